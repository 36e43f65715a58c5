//! What is said of results: tables, remarks, pages, and the forms of other tools. Pure.

pub mod forms;
pub mod lab_report;
pub mod remarks;
pub(crate) mod report;
pub mod tables;
