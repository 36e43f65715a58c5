//! The error that figures of a kind had on the published rows.

use std::collections::BTreeMap;

use super::{Summary, questions, summarise, validate};
use crate::predict::Workload;
use crate::studies::{self, Row};
use crate::system::{Catalogue, ComponentKind, System};

/// The errors of the published rows of each kind, validated once when they are first asked for.
pub struct Expected<'a> {
    catalogue: &'a Catalogue,
    summaries: BTreeMap<(&'static str, &'static [&'static str]), Summary>,
}

impl<'a> Expected<'a> {
    /// With the numbers of a catalogue.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, summaries: BTreeMap::new() }
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
        let wanted = words(study, workload);
        let summary = self.summaries.entry((study, wanted)).or_insert_with(|| {
            let mut rows = studies::built_in();
            rows.retain(|row| row.text("study") == study && is_alike(row, wanted));
            let answers = validate(self.catalogue, &rows).expect("the built-in tables are sound");
            summarise(answers.iter())
        });
        *summary
    }
}

/// True if a row asks for a figure whose name has these words.
fn is_alike(row: &Row, words: &[&str]) -> bool {
    let Some(question) = questions::question(row).ok().flatten() else { return false };
    let label = format!("{} {}", question.row, question.metric);
    words.iter().all(|word| label.contains(word))
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
