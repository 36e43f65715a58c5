//! What `evaluate` can be asked for, what can go wrong, and how it tells how far it is.

use std::fmt::Debug;
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, ModelDrive, ModelSpec, Pace};
use stripewise_layout::{LayoutError, LayoutSpec, Level};

use crate::loads::caches::Beyond;
use crate::loads::workload::Workload;

/// Where drives come from.
#[derive(Clone, Debug)]
pub enum DriveSource {
    /// Files made in this folder. Their names are taken away as soon as they are open, so that
    /// nothing is left there, however the process ends.
    Folder(PathBuf),
    /// These drives, whose contents are overwritten. Those beyond [`EvaluateOptions::count`] are
    /// replacements; without any, a drive that was pulled is its own replacement.
    Paths(Vec<PathBuf>),
    /// Modelled drives in virtual time.
    Model {
        /// What the report calls it.
        name: String,
        /// How each of them behaves.
        maker: Rc<dyn DriveMaker>,
    },
}

/// Makes modelled drives, each beside its contents.
pub trait DriveMaker: Debug {
    /// A drive with the contents and the capacity of `contents`; `number` tells it from the others.
    fn make(
        &self,
        context: &Context,
        number: u32,
        contents: Rc<dyn Drive>,
    ) -> Result<Rc<dyn Drive>, EvaluateError>;

    /// About what long transfers get; sizes are chosen by it.
    fn bytes_per_second(&self) -> f64;

    /// About how many short requests a second it serves in a full queue.
    fn iops(&self) -> f64;

    /// What a drive may answer without its medium: its caches of reads and writes together.
    fn cache_bytes(&self) -> u64 {
        0
    }

    /// The largest that a drive can be.
    fn capacity_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// What a measurement needs to be beyond the caches of drives of `maker`; `None` where they have
/// none.
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

/// What holds drives to a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceChoice {
    /// A rate that all drives together can keep on this host, found by measuring it.
    Auto,
    /// Nothing: the host itself is measured.
    None,
    /// These rates, for each drive.
    Rates(Pace),
}

/// Everything that an evaluation depends on.
#[derive(Clone, Debug)]
pub struct EvaluateOptions {
    /// Where drives come from.
    pub drives: DriveSource,
    /// Drives per array; layouts that need more get as many as they need.
    pub count: usize,
    /// Bytes of each drive; `None` chooses what fits the time. Ignored for drives that exist.
    pub drive_bytes: Option<u64>,
    /// The layouts, in the order of the tables.
    pub layouts: Vec<LayoutSpec>,
    /// The loads, in the order of the tables. The remarks' cost model knows those of study 004.
    pub workloads: Vec<Workload>,
    /// What holds drives to a rate; modelled drives are not paced.
    pub pace: PaceChoice,
    /// A first look in at most a minute instead of figures with intervals.
    pub quick: bool,
    /// Least length of a run; `None`: 2 s, or what a quick look allows.
    pub seconds_per_run: Option<f64>,
    /// Runs per cell; `None`: 3, or 1 for a quick look.
    pub runs: Option<u32>,
    /// Share of drive time for a rebuild under load, in percent.
    pub rebuild_priority_percent: u32,
    /// Where all random choices start.
    pub seed: u64,
    /// When this is, ISO 8601, for the results.
    pub date: String,
    /// Whether one of the layouts is measured on modelled drives at a disk's pace, too.
    pub on_disks_too: bool,
}

impl EvaluateOptions {
    /// The default matrix on four drives made in `folder`.
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

/// The layouts of the default matrix.
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

/// How far an evaluation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// What is being done, in words.
    pub what: String,
    /// Of all there is to do, by expected time.
    pub percent: f64,
    /// Expected time to go.
    pub seconds_left: f64,
    /// What the load moves at the moment.
    pub mb_per_s: f64,
}

/// Whoever shows progress. Called a few times a second of real time.
pub trait Progress {
    /// How far it is.
    fn update(&self, status: &Status);
    /// Something worth a line of its own.
    fn note(&self, text: &str);
}

/// Shows nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: &Status) {}
    fn note(&self, _: &str) {}
}

/// An evaluation could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The options contradict each other or ask for nothing.
    #[error("{0}")]
    Options(String),
    /// A layout does not fit the drives.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// The system offers no way to do input and output.
    #[error("setting up io_uring failed")]
    Executor(#[source] std::io::Error),
    /// A drive's file could not be made.
    #[error(transparent)]
    Create(#[from] stripewise_runtime::CreateError),
    /// A drive could not be opened.
    #[error(transparent)]
    Open(#[from] stripewise_runtime::OpenError),
    /// The folder for the drives cannot be used.
    #[error("{}: no drives can be made in this folder", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Not enough room for the drives.
    #[error("{}: {needed_bytes} bytes are needed for the drives, {free_bytes} are free", path.display())]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// What all drives and a replacement take.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// The array or a drive did not do what it has to.
    #[error("{layout}, {phase}: {why}")]
    Array {
        /// The layout.
        layout: String,
        /// What was being done.
        phase: String,
        /// What went wrong.
        why: String,
    },
    /// Somebody stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl EvaluateError {
    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSpace { .. } => Some("make the drives smaller (--size) or fewer (--count), or name another folder (--drives DIR)".into()),
            Self::Folder { .. } => Some("name a folder that exists (--drives DIR)".into()),
            Self::Create(error) => error.hint().map(str::to_owned),
            Self::Open(error) => error.hint(),
            Self::Executor(_) => Some("Linux 5.11 or newer is needed, and io_uring must not be forbidden (sysctl kernel.io_uring_disabled, seccomp)".into()),
            _ => None,
        }
    }
}
