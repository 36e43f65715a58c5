//! `drive show`: what drives hold. Reads only, and beside whoever uses them.
//!
//! Expected faults: paths that are no drives, drives in use (they can be shown all the same),
//! members of newer versions.

use std::path::{Path, PathBuf};

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::candidates::Candidate;
use stripewise_control::drives::contents::contents_of;
use stripewise_control::drives::names::LEAST_BEGINNING;
use stripewise_control::drives::opened::pace_of;
use stripewise_control::failure::pool_failure;
use stripewise_control::pools::stacked::Stack;
use stripewise_control::request::ShowDrives;
use stripewise_control::response::{Response, ShownDrive, ShownDrives};
use stripewise_engine::pool::{DriveLabel, PoolError, inspect};
use stripewise_runtime::OpenOptions;

use crate::commands::App;
use crate::failure::Result;

/// Show the pool, role and state of drives; read-only
#[derive(Args)]
pub(crate) struct Options {
    /// Paths, volumes (POOL/VOL), NBD URIs, or identities of drives that belong to a known pool
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowDrives {
        ShowDrives { drives: self.drives.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ShowDrives, app: &App) -> Result<Response> {
    let stack = Stack::new(app, "drive show")?;
    let drives = show_all(asked, app, &stack).await;
    let closed = stack.close().await;
    let drives = drives?;
    closed?;
    Ok(Response::Drives(ShownDrives { drives }))
}

async fn show_all(asked: &ShowDrives, app: &App, stack: &Stack) -> Result<Vec<ShownDrive>> {
    let mut drives = Vec::new();
    for drive in &asked.drives {
        drives.push(show(app, stack, &by_identity(app, drive)).await?);
    }
    Ok(drives)
}

/// A drive of a known pool may be named by its identity or the beginning of it; everything else is
/// a path.
fn by_identity(app: &App, drive: &Path) -> PathBuf {
    let Some(name) =
        drive.to_str().filter(|name| name.len() >= LEAST_BEGINNING && !app.absolute(drive).exists())
    else {
        return drive.to_owned();
    };
    let pools = app.home().and_then(|home| home.pools()).unwrap_or_default();
    let mut known = pools.iter().flat_map(|pool| &pool.drives).filter(|known| known.id.starts_with(name));
    match (known.next(), known.next()) {
        (Some(only), None) => only.path.clone(),
        _ => drive.to_owned(),
    }
}

async fn show(app: &App, stack: &Stack, path: &Path) -> Result<ShownDrive> {
    let candidate = match path.to_str() {
        Some(text) => Candidate::named(app, text)?,
        None => Candidate::at(&app.absolute(path))?,
    };
    let options = OpenOptions { read_only: true, lock: false, buffered: false };
    let opened = stack.open(&candidate, Access::Look, &options).await?;
    let mut holds = Vec::new();
    let superblock = match inspect(&*opened.bare).await {
        Ok(label) => label,
        Err(
            error @ (PoolError::NewerFormat { .. }
            | PoolError::OlderFormat { .. }
            | PoolError::UnknownFeatures { .. }),
        ) => {
            holds.push(error.to_string());
            None
        }
        Err(error) => return Err(pool_failure("cannot read the superblock", &error)),
    };
    if superblock.is_none() && holds.is_empty() {
        holds = match candidate.is_path() {
            true => candidate.contents()?,
            false => contents_of(&opened).await?,
        };
    }
    Ok(ShownDrive {
        belongs: superblock.as_ref().and_then(|label| belongs(app, label)),
        capacity_bytes: stripewise_drive::Drive::info(&*opened.bare).capacity_bytes,
        kind: candidate.kind(),
        pace: pace_of(app, &candidate.path).map(|pace| pace.to_string()),
        path: candidate.path,
        superblock,
        holds,
    })
}

/// A drive that was replaced does not know it: the others do.
fn belongs(app: &App, label: &DriveLabel) -> Option<bool> {
    let (pool_id, drive_id) = (label.pool_id.to_string(), label.drive_id.to_string());
    let pools = app.home().and_then(|home| home.pools()).unwrap_or_default();
    let pool = pools.into_iter().find(|pool| pool.id == pool_id)?;
    Some(pool.drives.iter().any(|drive| drive.id == drive_id))
}
