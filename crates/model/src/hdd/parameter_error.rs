//! Fault of a drive's description.

use thiserror::Error;

/// A description that no drive can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{parameter}: {why}")]
pub struct ParameterError {
    /// The parameter, by its name in the catalogue.
    pub parameter: String,
    /// Fault of the parameter, with its value.
    pub why: String,
}

impl ParameterError {
    pub(crate) fn new(parameter: impl Into<String>, why: impl Into<String>) -> Self {
        Self { parameter: parameter.into(), why: why.into() }
    }
}
