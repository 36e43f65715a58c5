//! `drive show`: the contents of drives. Reads only, even while other processes use them.
//!
//! Expected faults: paths that are no drives, drives in use (they can be shown all the same),
//! members of newer versions.

use std::path::{Path, PathBuf};

use stripewise_export::bridge::off_thread;
use stripewise_pool::{DriveLabel, PoolError, inspect};
use stripewise_runtime::{OpenOptions, pace_attribute};

use crate::access::Access;
use crate::control::Control;
use crate::drives::contents::contents_of;
use crate::drives::hardware::Hardware;
use crate::drives::hardware::samples::facts_of;
use crate::drives::names::LEAST_BEGINNING;
use crate::drives::opened::parse_pace;
use crate::drives::rights::permitted;
use crate::failure::{Result, pool_failure};
use crate::messages::request::ShowDrives;
use crate::messages::response::{Response, ShownDrive, ShownDrives};
use crate::pools::stacked::StackOpener;

/// Shows drives.
pub async fn run(asked: &ShowDrives, control: &Control) -> Result<Response> {
    let opener = StackOpener::new(control, "drive show")?;
    let drives = show_all(asked, control, &opener).await;
    let closed = opener.close().await;
    let drives = drives?;
    closed?;
    Ok(Response::Drives(ShownDrives { drives }))
}

async fn show_all(asked: &ShowDrives, control: &Control, opener: &StackOpener) -> Result<Vec<ShownDrive>> {
    let mut drives = Vec::new();
    for drive in &asked.drives {
        drives.push(show(control, opener, &by_identity(control, drive).await).await?);
    }
    Ok(drives)
}

/// The path of a drive. A drive of a known pool may be named by its identity or the beginning of
/// it; any other name is a path.
pub(super) async fn by_identity(control: &Control, drive: &Path) -> PathBuf {
    let Some(name) = drive.to_str().filter(|name| name.len() >= LEAST_BEGINNING) else {
        return drive.to_owned();
    };
    let pools = control.registry().and_then(|registry| registry.pools()).unwrap_or_default();
    let mut known = pools.iter().flat_map(|pool| &pool.drives).filter(|known| known.id.starts_with(name));
    let (Some(only), None) = (known.next(), known.next()) else { return drive.to_owned() };
    let path = control.absolute(drive);
    let of_thread = path.clone();
    match control.look(&path, move || of_thread.exists()).await {
        Ok(false) => only.path.clone(),
        _ => drive.to_owned(),
    }
}

async fn show(control: &Control, opener: &StackOpener, path: &Path) -> Result<ShownDrive> {
    let candidate = permitted(control, path).await?;
    let options = OpenOptions { read_only: true, lock: false, buffered: false };
    let opened = opener.open(&candidate, Access::Look, &options).await?;
    let mut holds = Vec::new();
    let superblock = match inspect(&*opened.bare).await {
        Ok(label) => label,
        Err(
            error @ (PoolError::NewerFormat { .. }
            | PoolError::OlderFormat { .. }
            | PoolError::UnknownFeatures { .. }
            | PoolError::UnreadableState { .. }),
        ) => {
            holds.push(error.to_string());
            None
        }
        Err(error) => return Err(pool_failure("cannot read the superblock", &error)),
    };
    if superblock.is_none() && holds.is_empty() {
        holds = contents_of(control, &opened).await?.in_words();
    }
    let device = candidate.path.clone();
    let (hardware, pace) = match candidate.kind() {
        "block device" => (off_thread(move || facts_of(&device)).await.unwrap_or_default(), None),
        "file" => {
            let reading = control.look(&candidate.path, move || pace_attribute(&device));
            (Hardware::default(), reading.await.unwrap_or_default())
        }
        _ => Default::default(),
    };
    Ok(ShownDrive {
        belongs: superblock.as_ref().and_then(|label| belongs(control, label)),
        capacity_bytes: stripewise_drive::Drive::info(&*opened.bare).capacity_bytes,
        kind: candidate.kind(),
        pace: parse_pace(control, &candidate.path, pace).map(|pace| pace.to_string()),
        hardware,
        path: candidate.path,
        superblock,
        holds,
    })
}

/// True if the pool still has the drive. A replaced drive's own label does not show it; the pool's
/// registry entry does.
fn belongs(control: &Control, label: &DriveLabel) -> Option<bool> {
    let (pool_id, drive_id) = (label.pool_id.to_string(), label.drive_id.to_string());
    let pools = control.registry().and_then(|registry| registry.pools()).unwrap_or_default();
    let pool = pools.into_iter().find(|pool| pool.id == pool_id)?;
    Some(pool.drives.iter().any(|drive| drive.id == drive_id))
}
