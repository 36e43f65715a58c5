//! The five published studies, each as one call: their configurations built by our engine, their
//! method, their tables.
//!
//! Drives are files held to the speed of the study's drives (or slower by one factor, where the
//! host cannot keep up with all of them), or models in virtual time. What compares is the share of
//! a single drive. Configurations that only another system can be (a controller, Storage Spaces'
//! own code) stand in the tables as published only.

mod beside;
mod findings;
mod measure;
mod page;
mod plan;
mod published;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stripewise_drive::Pace;

use crate::evaluate::DriveSource;
use crate::records::record::MeasurementRecord;

pub use findings::Verdict;
pub use measure::run_study;
pub use page::{study_charts, study_html, study_markdown};

/// Which study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StudyNumber {
    /// Storage Spaces against chipset RAID, CrystalDiskMark.
    #[serde(rename = "000")]
    S000,
    /// A hardware-RAID server, bonnie and PostMark.
    #[serde(rename = "001")]
    S001,
    /// SSDs behind RAID controllers, IOMeter.
    #[serde(rename = "002")]
    S002,
    /// Storage Spaces with journals and columns, ATTO.
    #[serde(rename = "003")]
    S003,
    /// Four drives over controllers, ZFS, NAS and USB, fio.
    #[serde(rename = "004")]
    S004,
}

impl StudyNumber {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::S000, Self::S001, Self::S002, Self::S003, Self::S004];

    /// Three digits.
    pub fn text(self) -> &'static str {
        match self {
            Self::S000 => "000",
            Self::S001 => "001",
            Self::S002 => "002",
            Self::S003 => "003",
            Self::S004 => "004",
        }
    }

    /// What it is, in one line.
    pub fn title(self) -> &'static str {
        match self {
            Self::S000 => "Software RAID versus hardware RAID for Windows 10 Home (CrystalDiskMark)",
            Self::S001 => "Gateway 840 hardware RAID 50, 5, 0 and 10 (bonnie, PostMark)",
            Self::S002 => "RAID over X25-E SSDs behind Adaptec 5085 controllers (IOMeter)",
            Self::S003 => "Storage Spaces: 12 disks with 0 to 4 SSDs, columns and journals (ATTO)",
            Self::S004 => "The best RAID configuration for four drives (fio)",
        }
    }
}

impl std::str::FromStr for StudyNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|study| study.text() == text);
        found.ok_or_else(|| format!("there is no study `{text}`: 000, 001, 002, 003 or 004"))
    }
}

/// What is asked of a study.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// Which one.
    pub study: StudyNumber,
    /// Where drives are made, or how they are modelled.
    pub drives: DriveSource,
    /// What each is held to; `None`: the study's drives, slowed where the host cannot keep up.
    pub pace: Option<Pace>,
    /// A first look in under five minutes.
    pub quick: bool,
    /// Where all random choices start.
    pub seed: u64,
    /// When this is, ISO 8601.
    pub date: String,
}

/// What a study found here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    /// Its number.
    pub study: String,
    /// What each drive was held to.
    pub pace: Option<String>,
    /// The tables, in the study's own order.
    pub tables: Vec<StudyTable>,
    /// What it found, held against this run.
    pub findings: Vec<FindingResult>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A table of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// As the study calls it, with the system it is about.
    pub table: String,
    /// Its rows.
    pub rows: Vec<StudyRow>,
}

/// A published figure beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// Configuration and test.
    pub row: String,
    /// What the figures are, with their unit.
    pub metric: String,
    /// Ours; null where our engine cannot be this configuration.
    pub measured: Option<f64>,
    /// Of ours.
    pub ci95: Option<[f64; 2]>,
    /// Theirs.
    pub published: Option<f64>,
    /// Ours, of our single drive.
    pub percent_of_single: Option<f64>,
    /// Theirs, of their single drive.
    pub published_percent_of_single: Option<f64>,
}

/// Our figures by key.
type Ours = HashMap<String, MeasurementRecord>;

/// A finding of the study and whether this run agrees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingResult {
    /// Its id in `studies/findings.csv`.
    pub id: String,
    /// What the study found.
    pub finding: String,
    /// Whether this run agrees.
    pub verdict: Verdict,
    /// With the numbers.
    pub why: String,
}

/// How far a study is.
pub trait StudyProgress {
    /// `what` is being done, `done` of 1 is behind.
    fn update(&self, what: &str, done: f64);

    /// The whole will take about so long; said before anything is measured.
    fn planned(&self, seconds: f64);
}
