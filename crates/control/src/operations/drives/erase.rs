//! `drive clear`: erases a drive that holds an old pool's superblock, a file system or other data,
//! so that a pool can use it without `--force`.
//!
//! Expected faults: drives in use, drives of pools that this host has or that another host has not
//! exported, a command line without `--yes`.

use std::path::Path;

use stripewise_pool::{DriveLabel, erase, inspect};
use stripewise_runtime::OpenOptions;

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::Candidate;
use crate::drives::contents::{contents_in_words, refuse_known_member};
use crate::drives::opened::OpenedDrive;
use crate::drives::rights::permitted;
use crate::failure::{Failure, Result};
use crate::messages::request::ClearDrive;
use crate::messages::response::{DriveErased, Response};
use crate::operations::unconfirmed;
use crate::pools::stacked::StackOpener;
use crate::registry::stacking::refuse_if_used;
use crate::registry::this_host::this_host;

/// Erases the drive.
pub async fn run(asked: &ClearDrive, control: &Control) -> Result<Response> {
    let candidate = permitted(control, Path::new(&asked.drive)).await?;
    let held = match candidate.volume() {
        None => None,
        Some(volume) => {
            let what = format!("clear `{volume}`");
            refuse_if_used(&control.registry()?, &what, &volume.pool, Some(&volume.volume))?;
            Some(control.served.hold(&what, &volume.pool, Some(&volume.volume))?)
        }
    };
    let opener = StackOpener::new(control, "drive clear")?;
    let cleared = clear(asked, control, &opener, &candidate).await;
    let closed = opener.close().await;
    drop(held);
    let cleared = cleared?;
    closed?;
    Ok(Response::DriveErased(cleared))
}

async fn clear(
    asked: &ClearDrive,
    control: &Control,
    opener: &StackOpener,
    candidate: &Candidate,
) -> Result<DriveErased> {
    // Locks the drive: one that is mounted, or in an open pool, is refused here.
    let opened = opener.open(candidate, Access::Change, &OpenOptions::default()).await?;
    refuse_known_member(control, candidate, &opened).await?;
    if !asked.force {
        refuse_other_host(candidate, &opened).await?;
    }
    let path = candidate.path.clone();
    let held = contents_in_words(control, candidate, &opened, true).await?;
    if held.is_empty() {
        return Ok(DriveErased { path, held });
    }
    let loss = format!("{} holds {}, which clearing loses", path.display(), held.join(" and "));
    if !asked.yes {
        let force = if asked.force { " --force" } else { "" };
        return Err(unconfirmed(&format!("drive clear {}{force}", asked.drive), &loss));
    }
    let erased = erase(&opener.executor().context(), opened.bare.clone()).await;
    erased.map_err(|error| Failure::because(format!("cannot clear {}", path.display()), &error))?;
    Ok(DriveErased { path, held })
}

/// Refuses a drive of a pool that another host uses, by its record.
async fn refuse_other_host(candidate: &Candidate, opened: &OpenedDrive) -> Result<()> {
    // The contents describe an unreadable superblock.
    let Ok(Some(DriveLabel { pool_name, host: Some(host), .. })) = inspect(&*opened.bare).await else {
        return Ok(());
    };
    if !host.is_other(&this_host()) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} is a drive of pool `{pool_name}`, which host {} has not exported; nothing was changed",
        candidate.path.display(),
        host.name
    ))
    .hint("if that host does not use the pool any more, add --force"))
}
