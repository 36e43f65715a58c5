//! Options, errors and progress of `evaluate`.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_drive::{Context, Drive, ModelDrive, ModelSpec, Pace};
use stripewise_layout::{LayoutError, LayoutSpec, Level};
use stripewise_runtime::{DriveIdentity, DriveOpener, FileDrive, OpenError, OpenFile, OpenOptions};

use crate::loads::caches::Beyond;
use crate::loads::workload::Workload;

/// Source of the drives.
#[derive(Clone, Debug)]
pub enum DriveSource {
    /// Files created in this folder. They are unlinked as soon as they are open, so that nothing
    /// remains, however the process ends.
    Folder(PathBuf),
    /// These drives, whose contents are overwritten. Those beyond [`EvaluateOptions::count`] are
    /// replacements; without any, a pulled drive is its own replacement.
    Paths(Vec<GivenDrive>),
    /// Modelled drives in virtual time.
    Model {
        /// Name in the report.
        name: String,
        /// Behaviour of each drive.
        maker: Rc<dyn DriveMaker>,
    },
}

/// A drive that a user named.
#[derive(Clone, Debug)]
pub struct GivenDrive {
    path: PathBuf,
    seen: Option<DriveIdentity>,
}

impl From<PathBuf> for GivenDrive {
    fn from(path: PathBuf) -> Self {
        Self { path, seen: None }
    }
}

impl GivenDrive {
    /// The file or device that was found at a path, and judged: no other is used in its place.
    pub fn seen(path: PathBuf, identity: DriveIdentity) -> Self {
        Self { path, seen: Some(identity) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, to overwrite it.
    ///
    /// # Errors
    /// Those of opening, and another drive at its path.
    pub fn open(&self, opener: &DriveOpener) -> Result<Rc<FileDrive>, OpenError> {
        let opened = OpenFile::open(&self.path, &OpenOptions::default())?;
        if self.seen.is_some_and(|seen| seen != opened.identity()) {
            let source = std::io::Error::other("another file or device has taken its path");
            return Err(OpenError::Io { path: self.path.clone(), action: "opening it", source });
        }
        Ok(opener.drive(opened))
    }
}

/// Creates modelled drives, each over its contents.
pub trait DriveMaker: Debug {
    /// Creates drive number `number` with the contents and the capacity of `contents`.
    fn make(
        &self,
        context: &Context,
        number: u32,
        contents: Rc<dyn Drive>,
    ) -> Result<Rc<dyn Drive>, EvaluateError>;

    /// Approximate rate of long transfers, from which sizes are derived.
    fn bytes_per_second(&self) -> f64;

    /// Approximate rate of short requests with a full queue, per second.
    fn iops(&self) -> f64;

    /// Size of the read and write caches together: data that a drive may answer without its medium.
    fn cache_bytes(&self) -> u64 {
        0
    }

    /// Maximum size of a drive.
    fn capacity_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// Conditions for a measurement beyond the caches of drives of `maker`; `None` if they have no
/// cache.
pub(crate) fn beyond_caches(maker: &dyn DriveMaker) -> Option<Beyond> {
    Beyond::of(maker.cache_bytes(), maker.bytes_per_second(), maker.capacity_bytes())
}

impl DriveMaker for ModelSpec {
    fn make(
        &self,
        context: &Context,
        _: u32,
        contents: Rc<dyn Drive>,
    ) -> Result<Rc<dyn Drive>, EvaluateError> {
        let capacity_bytes = contents.info().capacity_bytes;
        Ok(ModelDrive::new(context, "model", capacity_bytes, *self, contents))
    }

    fn bytes_per_second(&self) -> f64 {
        self.bytes_per_second as f64
    }

    fn iops(&self) -> f64 {
        f64::from(self.queue_depth) * 1e9 / self.latency_ns.max(1) as f64
    }
}

/// Pace of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceChoice {
    /// A rate that this host can sustain for all drives together, found by measurement.
    Auto,
    /// Not paced: the host itself is measured.
    None,
    /// These rates, for each drive.
    Rates(Pace),
}

/// Everything that determines an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluateOptions {
    /// Source of the drives.
    pub drives: DriveSource,
    /// Drives per array; layouts that need more get as many as they need.
    pub count: usize,
    /// Bytes of each drive; `None` derives them from the time. Ignored for existing drives.
    pub drive_bytes: Option<u64>,
    /// The layouts, in the order of the tables.
    pub layouts: Vec<LayoutSpec>,
    /// Loads, in the order of the tables. The cost model of the remarks knows those of study 004.
    pub workloads: Vec<Workload>,
    /// Pace of the drives; modelled drives are not paced.
    pub pace: PaceChoice,
    /// A first look in at most a minute instead of figures with intervals.
    pub quick: bool,
    /// Minimum length of a run; `None`: 2 s, or the time of a quick look.
    pub seconds_per_run: Option<f64>,
    /// Runs per cell; `None`: 3, or 1 for a quick look.
    pub runs: Option<u32>,
    /// Share of drive time for a rebuild under load, in percent.
    pub rebuild_priority_percent: u32,
    /// Random seed.
    pub seed: u64,
    /// Date of the results, ISO 8601.
    pub date: String,
    /// True to measure one of the layouts on modelled drives at a disk's pace, too.
    pub on_disks_too: bool,
}

impl EvaluateOptions {
    /// The default matrix on four drives created in `folder`.
    pub fn new(folder: PathBuf, date: String) -> Self {
        Self {
            drives: DriveSource::Folder(folder),
            count: 4,
            drive_bytes: None,
            layouts: default_layouts(),
            workloads: Workload::study_004().to_vec(),
            pace: PaceChoice::Auto,
            quick: false,
            seconds_per_run: None,
            runs: None,
            rebuild_priority_percent: 30,
            seed: 1,
            date,
            on_disks_too: false,
        }
    }

    pub(super) fn pace_text(&self) -> String {
        match (&self.pace, &self.drives) {
            (_, DriveSource::Model { .. }) | (PaceChoice::None, _) => "none".into(),
            (PaceChoice::Auto, _) => "auto".into(),
            (PaceChoice::Rates(pace), _) => pace.to_string(),
        }
    }
}

/// Layouts of the default matrix.
pub fn default_layouts() -> Vec<LayoutSpec> {
    [Level::Single, Level::Raid0, Level::Raid5, Level::Raid10, Level::Raid1].map(LayoutSpec::new).to_vec()
}

/// Every layout: those of the default matrix first.
pub fn all_layouts() -> Vec<LayoutSpec> {
    let mut layouts = default_layouts();
    layouts
        .extend(Level::ALL.map(LayoutSpec::new).into_iter().filter(|spec| !default_layouts().contains(spec)));
    layouts
}

/// Progress of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Current activity.
    pub what: String,
    /// Share of the expected time that has passed.
    pub percent: f64,
    /// Expected remaining time.
    pub seconds_left: f64,
    /// Throughput of the current load.
    pub mb_per_s: f64,
}

/// A progress display. Called a few times a second of real time.
pub trait Progress {
    /// Shows the current progress.
    fn update(&self, status: &Status);
    /// Shows a note on a line of its own.
    fn note(&self, text: &str);
    /// Announces the expected duration, once the speed of the drives is known.
    fn planned(&self, _seconds: f64) {}
}

/// Shows nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: &Status) {}
    fn note(&self, _: &str) {}
}

/// Reason for a failed evaluation.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The options contradict each other or request nothing.
    #[error("{0}")]
    Options(String),
    /// A layout does not fit the drives.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// The system offers no usable I/O interface.
    #[error("setting up io_uring failed")]
    Executor(#[source] std::io::Error),
    /// A drive file could not be created.
    #[error(transparent)]
    Create(#[from] stripewise_runtime::CreateError),
    /// A drive could not be opened.
    #[error(transparent)]
    Open(#[from] stripewise_runtime::OpenError),
    /// The folder for the drives cannot be used.
    #[error("{}: cannot create drives in this folder", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Too little space for the drives.
    #[error("{}: the drives need {needed_bytes} bytes, {free_bytes} are free", path.display())]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes of all drives and a replacement.
        needed_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
    },
    /// The array or a drive misbehaved.
    #[error("{layout}, {phase}: {why}")]
    Array {
        /// The layout.
        layout: String,
        /// Current phase.
        phase: String,
        /// The failure.
        why: String,
    },
    /// A signal or the caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl EvaluateError {
    /// Suggested action, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSpace { .. } => Some("make the drives smaller (--size) or fewer (--count), or name another folder (--drives DIR)".into()),
            Self::Folder { .. } => Some("name a folder that exists (--drives DIR)".into()),
            Self::Create(error) => error.hint().map(str::to_owned),
            Self::Open(error) => error.hint(),
            Self::Executor(_) => Some("Linux 5.11 or newer is required, and io_uring must not be disabled (sysctl kernel.io_uring_disabled, seccomp)".into()),
            _ => None,
        }
    }
}
