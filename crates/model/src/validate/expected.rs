//! The error that figures of a kind had on the published rows.

use super::{Summary, summarise, validate};
use crate::predict::Workload;
use crate::studies;
use crate::system::{Catalogue, ComponentKind, System};

/// The errors of the published rows that are most like this prediction: the study with such drives, and in it the rows of
/// the same direction and pattern.
pub fn expected_error(catalogue: &Catalogue, system: &System, workload: &Workload) -> Summary {
    let study = match (system.drive.kind, system.controller.kind) {
        (ComponentKind::Ssd, _) => "002",
        (_, ComponentKind::Enclosure) => "001",
        _ if system.name.starts_with("000") => "000",
        _ => "004",
    };
    let rows: Vec<_> = studies::built_in().into_iter().filter(|row| row.text("study") == study).collect();
    let reads = workload.read_share >= 0.5;
    let random = workload.random_share >= 0.5;
    let wanted: &[&str] = match (study, reads, random) {
        ("004", _, true) => &["mixed"],
        ("004", true, false) => &["seq_read"],
        ("004", false, false) => &["seq_write"],
        ("001", true, _) => &["read"],
        ("001", false, _) => &["write"],
        ("000", true, true) => &["RND4K", " read "],
        ("000", false, true) => &["RND4K", " write "],
        ("000", true, false) => &["SEQ1M", " read "],
        ("000", false, false) => &["SEQ1M", " write "],
        (_, true, true) => &["read random"],
        (_, false, true) => &["write random"],
        (_, true, false) => &["read sequential"],
        (_, false, false) => &["write sequential"],
    };
    let answers = validate(catalogue, &rows).unwrap_or_default();
    let alike = answers.iter().filter(|answer| {
        let label = format!("{} {}", answer.row, answer.metric);
        wanted.iter().all(|word| label.contains(word))
    });
    summarise(alike)
}
