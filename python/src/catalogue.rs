//! The drives of the catalogue, with the source of each number; and the catalogue of systems.

use std::sync::LazyLock;

use pyo3::prelude::*;
use stripewise_model::catalogue::{DriveEntry, drive, drives, parse_drive};
use stripewise_model::system::{Catalogue, CatalogueError};

use crate::failure::{Failure, Result, json};

/// The built-in catalogue of systems, parsed once.
pub(crate) static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(Catalogue::built_in);

pub(crate) fn failure(error: &CatalogueError) -> Failure {
    Failure::request(error.to_string(), error.hint())
}

/// The drives, or one of them by its name or by the path of its entry.
#[pyfunction]
pub(crate) fn catalogue(name: Option<String>) -> PyResult<String> {
    let named = name.map(|name| entry(&name)).transpose()?;
    let entries = named.as_ref().map_or(drives(), std::slice::from_ref);
    Ok(json(&entries.iter().map(DriveEntry::listed).collect::<Vec<_>>())?)
}

/// An entry by name, or from a file that `drive measure` wrote.
pub(crate) fn entry(name: &str) -> Result<DriveEntry> {
    if !name.ends_with(".toml") {
        return drive(name)
            .cloned()
            .map_err(|error| Failure::request(error.to_string(), "stripewise.catalogue() lists the drives"));
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| Failure::other(format!("cannot read {name}: {error}"), ""))?;
    parse_drive(name, &text).map_err(|error| {
        Failure::other(error.to_string(), "`stripewise drive measure DRIVE -o drive.toml` writes such a file")
    })
}
