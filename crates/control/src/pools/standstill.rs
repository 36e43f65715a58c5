//! Why volumes of a pool that a daemon keeps open take no writes, and what helps them on.

use stripewise_pool::{DriveStatus, OpenMode, Pool, VolumeState};

use crate::messages::report::{PoolReport, PoolState};

/// Why volumes of a pool stand still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standstill {
    /// These drives are lacking.
    Lacking(Vec<DriveStatus>),
    /// Nothing is lacking any more; but this volume takes no writes.
    Protected(String),
    /// The file system under a drive was full.
    Full,
}

/// Why volumes of the pool stand still, where they do.
pub(crate) fn standstill(pool: &Pool) -> Option<Standstill> {
    if pool.mode() == OpenMode::ReadOnly {
        return None;
    }
    if pool.full_drive().is_some() {
        return Some(Standstill::Full);
    }
    let status = pool.status();
    let needed: Vec<&String> = status.volumes.iter().flat_map(|volume| &volume.needed).collect();
    if !needed.is_empty() {
        let is_needed =
            |drive: &&DriveStatus| needed.iter().any(|needed| needed.contains(&drive.id.to_string()));
        return Some(Standstill::Lacking(status.drives.iter().filter(is_needed).cloned().collect()));
    }
    let stands_still = |name: &str| pool.volume(name).is_ok_and(|volume| volume.is_protected());
    let sound = status.volumes.iter().filter(|volume| volume.state != VolumeState::Failed);
    let mut names = sound.map(|volume| volume.name.clone());
    names.find(|name| stands_still(name)).map(Standstill::Protected)
}

/// Says in a report of a pool that a daemon keeps open what helps it on.
pub(crate) fn advise(pool: &Pool, report: &mut PoolReport) {
    let Some(standstill) = standstill(pool) else { return };
    let drive = match &standstill {
        Standstill::Full => {
            let first = report.drives.first().map_or("", |drive| &drive.id);
            report.action = format!("free space there, then: stripewise pool online {} {first}", report.name);
            None
        }
        Standstill::Lacking(drives) => drives.first().map(|drive| drive.id.to_string()),
        Standstill::Protected(volume) => {
            if report.state == PoolState::Online {
                report.state = PoolState::Degraded;
            }
            report.condition = format!(
                "the drives that volume {volume} needs are back; it can be read, and takes writes again when the pool is reopened"
            );
            report.drives.first().map(|drive| drive.id.clone())
        }
    };
    if let Some(drive) = drive {
        report.action = format!("stripewise pool online {} {drive}", report.name);
    }
}
