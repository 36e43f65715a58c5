//! The drives of the catalogue, with the source of each number; and the catalogue of systems.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use pyo3::prelude::*;
use serde::Serialize;
use stripewise_model::catalogue::{DriveEntry, Origin, Parameter, drive, drives, parse_drive};
use stripewise_model::system::{Catalogue, CatalogueError};

use crate::failure::{Failure, Result, json};

/// The built-in catalogue of systems, parsed once.
pub(crate) static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(Catalogue::built_in);

pub(crate) fn failure(error: &CatalogueError) -> Failure {
    Failure::request(error.to_string(), error.hint())
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    kind: &'a str,
    capacity_bytes: u64,
    parameters: BTreeMap<&'a str, ListedParameter<'a>>,
}

#[derive(Serialize)]
struct ListedParameter<'a> {
    value: serde_json::Value,
    from: Origin,
    source: &'a str,
    rows: &'a [String],
}

/// The drives, or one of them by its name or by the path of its entry.
#[pyfunction]
pub(crate) fn catalogue(name: Option<String>) -> PyResult<String> {
    let named = name.map(|name| entry(&name)).transpose()?;
    let entries = named.as_ref().map_or(drives(), std::slice::from_ref);
    Ok(json(&entries.iter().map(listed).collect::<Vec<_>>())?)
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

fn listed(entry: &DriveEntry) -> Listed<'_> {
    Listed {
        name: &entry.name,
        title: &entry.title,
        kind: entry.kind(),
        capacity_bytes: entry.capacity_bytes(),
        parameters: entry.parameters.iter().map(|(name, of)| (name.as_str(), parameter(of))).collect(),
    }
}

fn parameter(parameter: &Parameter) -> ListedParameter<'_> {
    ListedParameter {
        value: serde_json::to_value(&parameter.value).unwrap_or_default(),
        from: parameter.from,
        source: &parameter.source,
        rows: &parameter.rows,
    }
}
