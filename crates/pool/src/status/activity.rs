//! A pool job as shown in the status.

use serde::Serialize;

use crate::jobs::kind::JobKind;
use crate::manifest::ids::DriveId;

/// A job that is running or due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Kind of job.
    pub kind: JobKind,
    /// Part done, percent.
    pub percent: f64,
    /// Recent speed, 10^6 bytes per second; 0 while the job waits to run.
    pub mb_per_s: f64,
    /// Estimated time left at that speed; `None` while there is no estimate.
    pub seconds_left: Option<f64>,
    /// Name of the volume; empty for a job of the whole pool.
    pub volume: String,
    /// The drive being rebuilt.
    pub drive: Option<DriveId>,
}
