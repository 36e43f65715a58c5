//! A job of a pool, as its status tells of it.

use serde::Serialize;

use crate::pool::jobs::kind::JobKind;
use crate::pool::manifest::ids::DriveId;

/// A job under way or due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// What it does.
    pub kind: JobKind,
    /// Part done.
    pub percent: f64,
    /// Speed of late, 10^6 bytes per second; 0 where it waits for its turn.
    pub mb_per_s: f64,
    /// Time to go at that speed; `None` where that cannot be told yet.
    pub seconds_left: Option<f64>,
    /// The volume; empty for what concerns the pool as a whole.
    pub volume: String,
    /// The drive being rebuilt.
    pub drive: Option<DriveId>,
}
