//! A file of the catalogue: named parameters, each with its source.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::names::nearest;

/// An entry that is invalid or missing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogueError {
    /// No entry has this name.
    #[error("there is no {kind} `{name}` in the catalogue{}", similar(.nearest))]
    Unknown {
        /// Kind of entry: drive or system.
        kind: &'static str,
        /// Name as requested.
        name: String,
        /// Most similar names.
        nearest: Vec<String>,
    },
    /// A file has an invalid value.
    #[error("{file}:{line}: {why}")]
    Wrong {
        /// Its path.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Fault of the value.
        why: String,
    },
    /// A file is not TOML of this form.
    #[error("{file}: {why}")]
    Syntax {
        /// Its path.
        file: String,
        /// Message of the parser, with line and column.
        why: String,
    },
}

fn similar(nearest: &[String]) -> String {
    match nearest.is_empty() {
        true => String::new(),
        false => format!("; the nearest: {}", nearest.join(", ")),
    }
}

impl CatalogueError {
    /// No such entry among these.
    pub fn unknown<'a>(kind: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let nearest = nearest(name, known).into_iter().map(String::from).collect();
        CatalogueError::Unknown { kind, name: name.into(), nearest }
    }
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Printed by the manufacturer.
    DataSheet,
    /// Measured on the drive itself.
    Measured,
    /// Fitted to published rows, which are named.
    Fitted,
    /// Typical of such drives.
    Assumed,
}

/// One value with its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In the unit of the parameter's name.
    pub value: toml::Value,
    /// Origin of the value.
    pub from: Origin,
    /// Source of the value.
    pub source: String,
    /// Rows that a fitted value was fitted to.
    #[serde(default)]
    pub rows: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub name: String,
    pub title: String,
    pub kind: String,
    pub parameters: BTreeMap<String, Parameter>,
}

/// A file being read.
pub(super) struct Reader<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub parameters: BTreeMap<String, Parameter>,
}

impl Reader<'_> {
    pub(super) fn parse(file: &str, text: &str) -> Result<Raw, CatalogueError> {
        toml::from_str(text)
            .map_err(|error| CatalogueError::Syntax { file: file.into(), why: error.to_string() })
    }

    /// An error at the line of a parameter.
    pub(super) fn wrong(&self, parameter: &str, why: impl Into<String>) -> CatalogueError {
        let is_it = |line: &str| {
            let rest = line.trim_start().strip_prefix(parameter);
            rest.is_some_and(|rest| rest.starts_with([' ', '=', '.', ']']))
        };
        let line = self.text.lines().position(is_it).map_or(1, |at| at + 1);
        CatalogueError::Wrong { file: self.file.into(), line, why: format!("{parameter}: {}", why.into()) }
    }

    /// Refuses parameters that are not among these, and fitted ones without rows.
    pub(super) fn check_names(&self, known: &[&str]) -> Result<(), CatalogueError> {
        for (name, parameter) in &self.parameters {
            if !known.contains(&name.as_str()) {
                let with_unit = known.iter().find(|known| known.starts_with(&format!("{name}_")));
                let why = match with_unit {
                    Some(with_unit) => format!("without a unit; it is called {with_unit}"),
                    None => format!("unknown{}", similar(&names(nearest(name, known.iter().copied())))),
                };
                return Err(self.wrong(name, why));
            }
            if parameter.from == Origin::Fitted && parameter.rows.is_empty() {
                return Err(self.wrong(name, "fitted, but not said to which rows"));
            }
        }
        Ok(())
    }

    pub(super) fn number(&self, name: &str) -> Result<f64, CatalogueError> {
        let parameter = self.parameters.get(name).ok_or_else(|| self.wrong(name, "missing"))?;
        match &parameter.value {
            toml::Value::Integer(value) => Ok(*value as f64),
            toml::Value::Float(value) => Ok(*value),
            other => Err(self.wrong(name, format!("a {} is not a number", other.type_str()))),
        }
    }

    pub(super) fn whole(&self, name: &str) -> Result<u64, CatalogueError> {
        let value = self.number(name)?;
        match value >= 0.0 && value.fract() == 0.0 && value < 9e15 {
            true => Ok(value as u64),
            false => Err(self.wrong(name, format!("{value} is not a whole number"))),
        }
    }

    /// Rows of `columns` numbers each.
    pub(super) fn rows(&self, name: &str, columns: usize) -> Result<Vec<Vec<f64>>, CatalogueError> {
        let parameter = self.parameters.get(name).ok_or_else(|| self.wrong(name, "missing"))?;
        let refuse = || self.wrong(name, format!("its value is not a list of rows of {columns} numbers"));
        let number = |value: &toml::Value| match value {
            toml::Value::Integer(value) => Some(*value as f64),
            toml::Value::Float(value) => Some(*value),
            _ => None,
        };
        let row = |value: &toml::Value| {
            let numbers = value.as_array()?.iter().map(number).collect::<Option<Vec<f64>>>()?;
            (numbers.len() == columns).then_some(numbers)
        };
        let rows = parameter.value.as_array().ok_or_else(refuse)?.iter().map(row);
        rows.collect::<Option<_>>().ok_or_else(refuse)
    }

    pub(super) fn small(&self, name: &str) -> Result<u32, CatalogueError> {
        let value = self.whole(name)?;
        u32::try_from(value).map_err(|_| self.wrong(name, format!("{value} is too large")))
    }
}

fn names(found: Vec<&str>) -> Vec<String> {
    found.into_iter().map(String::from).collect()
}
