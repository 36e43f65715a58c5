//! Presentation of results: tables, remarks, pages, and the output formats of other tools. Pure.

pub(crate) mod figures;
pub mod forms;
pub mod lab_report;
pub mod remarks;
pub(crate) mod report;
pub mod tables;
