//! The five published studies, each as one call: their configurations built with our engine, their
//! methods, their tables.
//!
//! Drives are files paced to the speed of the study's drives (or slower by one factor, if the host
//! cannot sustain all of them), or models in virtual time. Figures compare as a share of a single
//! drive. Configurations that require another system (a controller, Storage Spaces' own code)
//! appear in the tables as published only.

mod beside;
mod findings;
mod measure;
mod merged;
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
pub use merged::{ShownRow, ShownTable, shown_tables};
pub use page::{study_charts, study_html, study_markdown, study_summary};

/// A published study.
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
    /// All studies.
    pub const ALL: [Self; 5] = [Self::S000, Self::S001, Self::S002, Self::S003, Self::S004];

    /// Number in three digits.
    pub fn text(self) -> &'static str {
        match self {
            Self::S000 => "000",
            Self::S001 => "001",
            Self::S002 => "002",
            Self::S003 => "003",
            Self::S004 => "004",
        }
    }

    /// Title in one line.
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
        found.ok_or_else(|| format!("unknown study `{text}`; studies: 000, 001, 002, 003, 004"))
    }
}

/// Options of a study run.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The study.
    pub study: StudyNumber,
    /// Source of the drives.
    pub drives: DriveSource,
    /// Pace of each drive; `None`: the study's drives, slowed if the host cannot keep up.
    pub pace: Option<Pace>,
    /// A first look: one short run of each figure.
    pub quick: bool,
    /// Random seed.
    pub seed: u64,
    /// Date of the results, ISO 8601.
    pub date: String,
}

/// Results of a study run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    /// Number of the study.
    pub study: String,
    /// Pace of each drive.
    pub pace: Option<String>,
    /// The tables, in the study's own order.
    pub tables: Vec<StudyTable>,
    /// Findings of the study, compared with this run.
    pub findings: Vec<FindingResult>,
    /// Remarks for readers.
    pub notes: Vec<String>,
}

/// A table of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// Title in the study, with the system it is about.
    pub table: String,
    /// Rows of the table.
    pub rows: Vec<StudyRow>,
}

/// A published figure beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// Configuration and test.
    pub row: String,
    /// Name and unit of the figures.
    pub metric: String,
    /// Our figure; null if our engine cannot be this configuration.
    pub measured: Option<f64>,
    /// 95 % interval of our figure.
    pub ci95: Option<[f64; 2]>,
    /// Published figure.
    pub published: Option<f64>,
    /// Our figure relative to our single drive.
    pub percent_of_single: Option<f64>,
    /// Published figure relative to their single drive.
    pub published_percent_of_single: Option<f64>,
    /// Key of our figure; rows of other systems with the same key have the same one.
    #[serde(skip)]
    pub key: String,
}

/// Our figures by key.
type OwnFigures = HashMap<String, MeasurementRecord>;

/// A finding of the study and its verdict in this run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingResult {
    /// Id in `studies/findings.csv`.
    pub id: String,
    /// Finding of the study.
    pub finding: String,
    /// Agreement of this run.
    pub verdict: Verdict,
    /// Reason, with the numbers.
    pub why: String,
}

/// Progress of a study.
pub trait StudyProgress {
    /// Shows the current activity, the completed share from 0 to 1, and the time that is left at
    /// the present pace.
    fn update(&self, what: &str, done: f64, seconds_left: Option<f64>);

    /// Announces the expected duration before the first measurement.
    fn planned(&self, seconds: f64);
}
