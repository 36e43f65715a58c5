//! Entries of the catalogue as documents, each number with its source. The command line and the
//! Python package print them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DriveEntry, Origin, Parameter};

/// A drive of the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedDrive<'a> {
    /// Name in the catalogue.
    pub name: &'a str,
    /// Name for people.
    pub title: &'a str,
    /// Kind of the drive's model.
    pub kind: &'a str,
    /// Capacity of a drive.
    pub capacity_bytes: u64,
    /// Parameters by name.
    pub parameters: BTreeMap<&'a str, ListedParameter<'a>>,
}

/// A parameter of a drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedParameter<'a> {
    /// In the unit of the parameter's name.
    pub value: serde_json::Value,
    /// Origin of the value.
    pub from: Origin,
    /// Source of the value.
    pub source: &'a str,
    /// Rows that a fitted value was fitted to.
    pub rows: &'a [String],
}

impl DriveEntry {
    /// This entry as a document.
    pub fn listed(&self) -> ListedDrive<'_> {
        ListedDrive {
            name: &self.name,
            title: &self.title,
            kind: self.kind(),
            capacity_bytes: self.capacity_bytes(),
            parameters: self.parameters.iter().map(|(name, of)| (name.as_str(), parameter(of))).collect(),
        }
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
