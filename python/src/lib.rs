//! The Python package's native module, `stripewise._native`: thin functions over the library crates.
//! The public, documented interface is the Python code in `python/stripewise/`.
//!
//! Requests are dictionaries whose keys the Python code has completed; answers are JSON documents
//! with the keys of the command line's `--json`, or tables that Arrow takes without a copy. Every
//! function runs its work on another thread, without the interpreter's lock (`work.rs`).
//!
//! Expected faults: any value that a caller may pass; each is an exception with a hint
//! (`failure.rs`).

#![cfg(feature = "extension")]

mod advise;
mod arrow;
mod buffers;
mod catalogue;
mod failure;
mod lab;
mod loads;
mod parity;
mod predict;
mod reliability;
mod replay;
mod rounds;
mod sweep;
mod table;
mod torture;
mod validate;
mod work;

use pyo3::prelude::*;

/// Functions and classes for the Python code of the package.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::advise::advise;
    #[pymodule_export]
    use super::catalogue::catalogue;
    #[pymodule_export]
    use super::lab::{
        lab_compare, lab_histograms, lab_measurements, lab_run, lab_runs, lab_samples, lab_seconds,
    };
    #[pymodule_export]
    use super::parity::{parity_encode, parity_kernel, parity_recover, parity_update};
    #[pymodule_export]
    use super::predict::predict;
    #[pymodule_export]
    use super::reliability::reliability;
    #[pymodule_export]
    use super::replay::replay;
    #[pymodule_export]
    use super::rounds::{PyRounds, reliability_blocks};
    #[pymodule_export]
    use super::sweep::{sweep, sweep_points};
    #[pymodule_export]
    use super::table::PyTable;
    #[pymodule_export]
    use super::torture::torture;
    #[pymodule_export]
    use super::validate::validate;
}
