//! Profiles: measurement methods as data, built in or from users. One entry of a file may stand for
//! many measurements.

mod text;

use serde::Deserialize;

use self::text::nearest;
pub(crate) use self::text::{explain, parse_bytes, size_text};
use crate::loads::contents::Data;
use crate::loads::files::{Bonnie, POSTMARK_FIGURES, PostMark};
use crate::loads::workload::Workload;
use crate::records::import::BONNIE_TESTS;
use crate::records::record::Operation;
use crate::statistics::{STEADY_ROUNDS, mean, median};

/// Built-in profiles.
const BUILT_IN: [&str; 14] = [
    include_str!("../../../../profiles/crystaldiskmark.toml"),
    include_str!("../../../../profiles/atto.toml"),
    include_str!("../../../../profiles/iometer-latency.toml"),
    include_str!("../../../../profiles/iometer-light.toml"),
    include_str!("../../../../profiles/iometer-heavy.toml"),
    include_str!("../../../../profiles/iometer-matrix.toml"),
    include_str!("../../../../profiles/orion-simple.toml"),
    include_str!("../../../../profiles/orion-oltp.toml"),
    include_str!("../../../../profiles/orion-dss.toml"),
    include_str!("../../../../profiles/orion-normal.toml"),
    include_str!("../../../../profiles/toshiba.toml"),
    include_str!("../../../../profiles/snia-steady.toml"),
    include_str!("../../../../profiles/postmark.toml"),
    include_str!("../../../../profiles/bonnie.toml"),
];

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No profile has this name.
    #[error("there is no profile `{name}`; the nearest is `{nearest}`")]
    Unknown {
        /// Requested name.
        name: String,
        /// Most similar existing name.
        nearest: String,
    },
    /// The file contains an invalid setting.
    #[error("profile: {0}")]
    Wrong(String),
}

/// Statistic that turns runs into the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Median of the runs.
    #[default]
    Median,
    /// Mean of the runs.
    Mean,
    /// Best run, as printed by CrystalDiskMark.
    Best,
    /// Mean of the last five rounds once they are steady, as defined by SNIA.
    Steady,
}

impl Statistic {
    /// The figure of these runs; `None` without runs.
    pub fn of(self, runs: &[f64]) -> Option<f64> {
        match self {
            Self::Median => median(runs),
            Self::Mean => mean(runs),
            Self::Best => runs.iter().copied().max_by(f64::total_cmp),
            Self::Steady => mean(&runs[runs.len().saturating_sub(STEADY_ROUNDS)..]),
        }
    }
}

/// A method as data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Tool that it follows.
    pub tool: String,
    /// Description in one line.
    pub about: String,
    /// Runs of each measurement; maximum number of rounds for [`Statistic::Steady`].
    pub runs: u32,
    /// True to discard the first run.
    pub discard_first: bool,
    /// Statistic of the runs.
    pub statistic: Statistic,
    /// True to show the best run beside the figure.
    pub also_best: bool,
    /// Length of a run.
    pub seconds: f64,
    /// Pause before each measurement.
    pub pause_seconds: f64,
    /// Sizes of the used part of the target; empty: all of it.
    pub sizes: Vec<u64>,
    /// True if a run ends after moving as many bytes as are in use.
    pub moves_size_once: bool,
    /// Number of times the region is written before the measurements.
    pub precondition_passes: u32,
    /// Data written.
    pub data: Data,
    /// True to read back and compare all written data in the end.
    pub verify: bool,
    /// The measurements, in order; none for methods on files.
    pub steps: Vec<Step>,
    /// A method on files, in place of steps.
    pub files: Option<FileMethod>,
}

/// Methods on files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FileMethod {
    /// Many small files.
    PostMark(PostMark),
    /// One large file.
    Bonnie(Bonnie),
}

impl Profile {
    /// Creates a profile with one run of each load, for a scenario that determines sizes and times.
    pub(crate) fn of_loads(loads: &[Workload]) -> Self {
        let of_load = |load: &Workload| Step {
            name: load.name.clone(),
            op: match load.read_share {
                1.0 => Operation::Read,
                0.0 => Operation::Write,
                _ => Operation::Mixed,
            },
            workload: load.clone(),
            beside: None,
        };
        Self { runs: 1, steps: loads.iter().map(of_load).collect(), ..Self::default() }
    }

    /// Its loads for a scenario that determines states, sizes and times: they run until they are
    /// stopped. `None` for methods on files or with concurrent loads.
    pub fn plain_loads(&self) -> Option<Vec<Workload>> {
        let is_plain = self.files.is_none() && self.steps.iter().all(|step| step.beside.is_none());
        let of_step = |step: &Step| Workload {
            name: step.name.clone(),
            most_bytes: None,
            most_requests: None,
            ..step.workload.clone()
        };
        is_plain.then(|| self.steps.iter().map(of_step).collect())
    }
}

impl FileMethod {
    /// Reduces the size or number of files by a factor, to fit smaller drives.
    pub fn shortened(self, factor: u64) -> Self {
        match self {
            Self::PostMark(asked) => Self::PostMark(PostMark {
                files: (asked.files / factor).max(10),
                transactions: (asked.transactions / factor).max(20),
                most_bytes: (asked.most_bytes / factor).max(asked.least_bytes),
                ..asked
            }),
            Self::Bonnie(asked) => Self::Bonnie(Bonnie {
                file_bytes: (asked.file_bytes / factor).max(1 << 20),
                seeks: (asked.seeks / factor).max(100),
                ..asked
            }),
        }
    }

    /// The same method with files of about `bytes` in all. PostMark's files keep their number as
    /// long as each has a block.
    pub fn fitted(self, bytes: u64) -> Self {
        const BLOCK_BYTES: u64 = 4096;
        let asked = match self {
            Self::Bonnie(asked) => return Self::Bonnie(Bonnie { file_bytes: bytes, ..asked }),
            Self::PostMark(asked) => asked,
        };
        let all_files = |asked: &PostMark| asked.files + asked.transactions / 4;
        let most_files = (bytes / (2 * BLOCK_BYTES)).max(1);
        let factor = all_files(&asked).div_ceil(most_files).max(1);
        let files = (asked.files / factor).max(10);
        let fewer = PostMark { files, transactions: (asked.transactions / factor).max(20), ..asked };
        // A file takes half a block more than its bytes, on average.
        let room_bytes = bytes - (all_files(&fewer) * BLOCK_BYTES / 2).min(bytes / 2);
        let share = room_bytes as f64 / Self::PostMark(fewer).most_bytes().max(1) as f64;
        let scaled = |bytes: u64| ((bytes as f64 * share) as u64).max(1);
        Self::PostMark(PostMark {
            least_bytes: scaled(asked.least_bytes),
            most_bytes: scaled(asked.most_bytes),
            ..fewer
        })
    }

    /// Maximum bytes of the files, as far as the random choices allow an estimate.
    pub fn most_bytes(self) -> u64 {
        match self {
            // Half of the transactions create a file, about as many delete one, and half append to
            // one.
            Self::PostMark(asked) => {
                let made =
                    (asked.files + asked.transactions / 4) * (asked.least_bytes + asked.most_bytes) / 2;
                made + asked.transactions / 2 * asked.most_bytes / 4
            }
            Self::Bonnie(asked) => asked.file_bytes,
        }
    }

    /// Names of the figures.
    pub fn figures(self) -> Vec<String> {
        match self {
            Self::PostMark(_) => POSTMARK_FIGURES.map(str::to_owned).to_vec(),
            Self::Bonnie(_) => BONNIE_TESTS
                .iter()
                .flat_map(|(name, _)| [(*name).to_owned(), format!("{name}_cpu")])
                .collect(),
        }
    }
}

/// One measurement of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Name, unique within the profile.
    pub name: String,
    /// Operation of its requests.
    pub op: Operation,
    /// The load.
    pub workload: Workload,
    /// Concurrent load with a figure of its own.
    pub beside: Option<Workload>,
}

impl Step {
    /// Its loads; one without requests in flight does not count.
    pub fn loads(&self) -> impl Iterator<Item = &Workload> {
        std::iter::once(&self.workload).chain(&self.beside).filter(|load| load.depth > 0)
    }

    /// True if it changes the target.
    pub fn writes(&self) -> bool {
        self.loads().any(|load| {
            load.accesses.iter().any(|line| line.read_percent < 100)
                || load.accesses.is_empty() && load.read_share < 1.0
        })
    }
}

/// Returns the built-in profile of this name.
pub fn built_in(name: &str) -> Result<Profile, ProfileError> {
    let all = BUILT_IN.map(|text| Profile::parse(text).expect("built-in profiles are valid"));
    all.into_iter().find(|profile| profile.name == name).ok_or_else(|| ProfileError::Unknown {
        name: name.to_owned(),
        nearest: nearest(name, &built_in_names()).unwrap_or_default(),
    })
}

/// Names of the built-in profiles.
pub fn built_in_names() -> Vec<String> {
    let name = |text| Profile::parse(text).expect("built-in profiles are valid").name;
    BUILT_IN.map(name).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::workload::Pattern;

    #[test]
    fn evaluation_loads_match_their_method() {
        let loads = |name: &str| built_in(name).expect("it").plain_loads();
        assert_eq!(loads("toshiba"), Some(Workload::study_004().to_vec()));
        let goes_on = |load: &Workload| !load.is_counted();
        assert!(loads("atto").expect("loads").iter().all(goes_on));
        assert_eq!((loads("postmark"), loads("orion-normal")), (None, None));
    }

    #[test]
    fn built_in_profiles_match_the_studies() {
        let names = built_in_names();
        assert_eq!(names.len(), BUILT_IN.len());
        let disk_mark = built_in("crystaldiskmark").expect("it");
        assert_eq!(disk_mark.steps.len(), 12);
        let order: Vec<Operation> = disk_mark.steps.iter().map(|step| step.op).collect();
        assert!(order[..6].iter().all(|op| *op == Operation::Read), "{order:?}");
        let deepest = disk_mark.steps.iter().find(|step| step.name == "RND4K_Q32T16_read").expect("it");
        assert_eq!((deepest.workload.depth, deepest.workload.jobs), (32, 16));
        let atto = built_in("atto").expect("it");
        assert_eq!(atto.steps.len(), 42);
        assert_eq!((atto.steps[0].name.as_str(), atto.steps[1].op), ("512_write", Operation::Read));
        assert_eq!(atto.steps[41].workload.blocks[0].bytes, 64 << 20);
        let matrix = built_in("iometer-matrix").expect("it");
        assert_eq!(matrix.steps.len(), 20);
        assert!(matrix.steps.iter().any(|step| step.workload.pattern == Pattern::Partly(20)));
        let toshiba = built_in("toshiba").expect("it");
        let ours = Workload::study_004();
        for (step, expected) in toshiba.steps.iter().zip(&ours) {
            assert_eq!(&step.workload, expected);
        }
        let matrix = built_in("orion-normal").expect("it");
        assert_eq!(matrix.steps.len(), 8 * 6 - 1, "every combination except zero depth on both sides");
        let heavy = built_in("iometer-heavy").expect("it");
        assert_eq!(heavy.steps[0].workload.outstanding(), 160);
    }

    #[test]
    fn unknown_profile_error_names_the_nearest() {
        let error = built_in("cristaldiskmark").expect_err("unknown").to_string();
        assert!(error.contains("the nearest is `crystaldiskmark`"), "{error}");
    }
}
