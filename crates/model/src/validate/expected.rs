//! The error that figures of a kind had on the published rows.

use std::collections::BTreeMap;

use super::{Answer, Summary, summarise, validate};
use crate::predict::Workload;
use crate::studies;
use crate::system::{Catalogue, ComponentKind, System};

/// The errors of the published studies, each validated once when it is first asked for.
pub struct Expected<'a> {
    catalogue: &'a Catalogue,
    answers: BTreeMap<&'static str, Vec<Answer>>,
}

impl<'a> Expected<'a> {
    /// With the numbers of a catalogue.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, answers: BTreeMap::new() }
    }

    /// The errors of the published rows that are most like this prediction: the study with such
    /// drives, and in it the rows of the same direction and pattern.
    pub fn error(&mut self, system: &System, workload: &Workload) -> Summary {
        let study = match (system.drive.kind, system.controller.kind) {
            (ComponentKind::Ssd, _) => "002",
            (_, ComponentKind::Enclosure) => "001",
            _ if system.name.starts_with("000") => "000",
            _ => "004",
        };
        let answers = self.answers.entry(study).or_insert_with(|| {
            let mut rows = studies::built_in();
            rows.retain(|row| row.text("study") == study);
            validate(self.catalogue, &rows).expect("the built-in tables are sound")
        });
        let wanted = words(study, workload);
        let alike = answers.iter().filter(|answer| {
            let label = format!("{} {}", answer.row, answer.metric);
            wanted.iter().all(|word| label.contains(word))
        });
        summarise(alike)
    }
}

/// Words in a study's rows that mark a load like this one.
fn words(study: &str, workload: &Workload) -> &'static [&'static str] {
    let reads = workload.read_share >= 0.5;
    let random = workload.random_share >= 0.5;
    match (study, reads, random) {
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
    }
}
