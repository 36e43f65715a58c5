//! Rows of volumes with the redundancy that each has left, for a map of the pool. Time and size are
//! proportional to the number of runs of rows.

use std::collections::BTreeMap;

use stripewise_array::rows::SlotState;

use crate::manifest::ids::DriveId;
use crate::status::ShareState;
use crate::{Id, Pool};

/// Rows in a sequence: on the same drives, in the same states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRun {
    /// Name of the volume.
    pub volume: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of further drives whose loss these rows survive; negative: the rows are unreadable.
    pub redundancy_left: i64,
    /// Number of drives whose loss the layout survives when all columns are current.
    pub redundancy: u64,
    /// The slabs of each column.
    pub columns: Vec<RowColumn>,
}

/// A column of a run of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// The drive.
    pub drive: DriveId,
    /// Number of the first slab on the drive.
    pub first_slab: u32,
    /// State of the slabs.
    pub state: ShareState,
}

impl Pool {
    /// Rows of all volumes, in the order of volumes and rows.
    pub fn row_runs(&self) -> Vec<RowRun> {
        let inner = &self.0;
        let manifest = inner.manifest.borrow();
        let mut works: BTreeMap<u32, bool> = BTreeMap::new();
        let mut found = Vec::new();
        for volume in &manifest.volumes {
            for part in &volume.parts {
                let redundancy = part.shape.fault_tolerance();
                for run in part.rows.runs() {
                    let mut lacking = 0;
                    let columns = run.places.iter().map(|place| {
                        let is_there = *works
                            .entry(place.drive)
                            .or_insert_with(|| inner.working_member(place.drive).is_some());
                        let state = state_of(place.state, is_there);
                        lacking += i64::from(state != ShareState::Active);
                        let drive = manifest.drive(place.drive).map_or(Id(0), |drive| drive.id);
                        RowColumn { drive, first_slab: place.slab, state }
                    });
                    let columns = columns.collect();
                    found.push(RowRun {
                        volume: volume.name.clone(),
                        rows: run.rows,
                        redundancy_left: redundancy as i64 - lacking,
                        redundancy: redundancy as u64,
                        columns,
                    });
                }
            }
        }
        found
    }
}

/// State of a slab, from its record and the presence of its drive.
pub(crate) fn state_of(recorded: SlotState, is_there: bool) -> ShareState {
    match recorded {
        SlotState::Active if is_there => ShareState::Active,
        SlotState::Active => ShareState::Away,
        SlotState::Rebuilding if is_there => ShareState::Rebuilding,
        SlotState::CatchingUp if is_there => ShareState::CatchingUp,
        _ => ShareState::Missing,
    }
}
