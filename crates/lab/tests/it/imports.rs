//! Outputs of other tools, each as a short sample in the tool's form, and what is read of them.

mod fio;
mod hostile;
mod programs;
mod suites;
mod tables;
mod unix;

use stripewise_lab::import::import;
use stripewise_lab::record::{MeasurementRecord, RunRecord};

/// The only run in a file.
fn run_of(text: &str) -> RunRecord {
    let mut runs = import(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

/// The figure of a name.
fn figure<'a>(run: &'a RunRecord, name: &str) -> &'a MeasurementRecord {
    let found = run.measurements.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| panic!("{name} is not among {:?}", names(run)))
}

fn names(run: &RunRecord) -> Vec<&str> {
    run.measurements.iter().map(|figure| figure.name.as_str()).collect()
}

/// MB/s of a figure, rounded to three decimals.
fn mb_per_s(run: &RunRecord, name: &str) -> f64 {
    (figure(run, name).mb_per_s.expect("a rate") * 1e3).round() / 1e3
}

fn is_noted(run: &RunRecord, part: &str) -> bool {
    run.notes.iter().any(|note| note.contains(part))
}

fn refused(text: &str) -> String {
    import(text.as_bytes()).expect_err("refused").to_string()
}
