//! Errors on their way to Python: a message, a hint, and the class of the exception.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// An error of a library crate, as a Python exception shows it.
pub(crate) struct Failure {
    message: String,
    hint: String,
    class: &'static str,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An invalid argument: `stripewise.RequestError`.
    pub(crate) fn request(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), class: "RequestError" }
    }

    /// Any other error: `stripewise.Error`.
    pub(crate) fn other(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), class: "Error" }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let class = py.import("stripewise._errors").and_then(|module| module.getattr(failure.class));
            match class.and_then(|class| class.call1((&failure.message, &failure.hint))) {
                Ok(exception) => PyErr::from_value(exception),
                Err(_) => PyRuntimeError::new_err(failure.message),
            }
        })
    }
}

/// The end of work whose caller has gone; the caller has the interrupt itself.
pub(crate) fn interrupted() -> Failure {
    Failure::other("interrupted", "")
}

/// A document as JSON.
pub(crate) fn json(document: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(document)
        .map_err(|error| Failure::other(format!("cannot write the answer as JSON: {error}"), ""))
}
