//! `drive show`: what drives hold. Reads only, and beside whoever uses them.
//!
//! Expected faults: paths that are no drives, drives in use (they can be shown all the same),
//! members of newer versions.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stripewise_control::access::Access;
use stripewise_control::drives::candidates::Candidate;
use stripewise_control::drives::contents::contents_of;
use stripewise_control::drives::names::LEAST_BEGINNING;
use stripewise_control::drives::opened::pace_of;
use stripewise_control::failure::pool_failure;
use stripewise_control::pools::stacked::Stack;
use stripewise_control::report::counted;
use stripewise_control::request::ShowDrives;
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::{DriveLabel, PoolError, inspect};
use stripewise_runtime::OpenOptions;

use crate::commands::App;
use crate::failure::{Exit, Result};
use crate::printer::{Page, Style};

/// Show the pool, role and state of drives; read-only
#[derive(Args)]
pub(crate) struct Options {
    /// Paths, volumes (POOL/VOL), NBD URIs, or identities of drives that belong to a known pool
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Shown {
    drives: Vec<ShownDrive>,
}

#[derive(Serialize)]
struct ShownDrive {
    path: PathBuf,
    capacity_bytes: u64,
    /// `file`, `block device`, `volume` or `NBD export`.
    kind: &'static str,
    pace: Option<String>,
    /// What its superblock says; `null` where it belongs to no pool.
    superblock: Option<DriveLabel>,
    /// Whether the pool still counts it among its drives; `null` where that pool is not known here.
    belongs: Option<bool>,
    /// What else was found on it.
    holds: Vec<String>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowDrives {
        ShowDrives { drives: self.drives.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ShowDrives, app: &App) -> Result<Exit> {
    let stack = Stack::new(app, "drive show")?;
    let drives = show_all(asked, app, &stack).await;
    let closed = stack.close().await;
    let drives = drives?;
    closed?;
    let shown = Shown { drives };
    app.printer.result(&shown, |page| {
        for (index, drive) in shown.drives.iter().enumerate() {
            if index > 0 {
                page.line("");
            }
            drive.print(page);
        }
    })?;
    Ok(Exit::Success)
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

impl ShownDrive {
    fn print(&self, page: &mut Page) {
        page.field("drive", self.path.display().to_string(), Style::Strong);
        page.field(
            "size",
            format!("{} ({}, {} bytes)", ByteSize(self.capacity_bytes), self.kind, self.capacity_bytes),
            Style::Plain,
        );
        if let Some(pace) = &self.pace {
            page.field("pace", pace, Style::Plain);
        }
        let Some(label) = &self.superblock else {
            match self.holds.as_slice() {
                [] => page.field("holds", "nothing known", Style::Plain),
                holds => page.field("holds", holds.join(", "), Style::Warning),
            }
            return;
        };
        page.field("pool", format!("{} ({})", label.pool_name, label.pool_id), Style::Plain);
        page.field("id", label.drive_id.to_string(), Style::Plain);
        page.field("role", stripewise_control::report::word(label.role), Style::Plain);
        match (self.belongs, label.state.as_str()) {
            (Some(false), _) => {
                page.field("state", "replaced: no longer a drive of the pool", Style::Warning)
            }
            (_, "online") => page.field("state", "online", Style::Good),
            (_, other) => page.field("state", other, Style::Warning),
        }
        match label.intact {
            true => page.field("superblock", "the same at both ends", Style::Good),
            false => page.field(
                "superblock",
                "whole at one end only; the pool writes the other anew when it is used",
                Style::Warning,
            ),
        }
        page.field("format", format!("version {}", label.format_version), Style::Plain);
        page.field("generation", label.generation.to_string(), Style::Plain);
        let slab = ByteSize(label.slab_bytes);
        page.field("slabs", format!("{} of {slab}, {} in use", label.slabs, label.used_slabs), Style::Plain);
        page.field("pool drives", label.drives.len().to_string(), Style::Plain);
        for volume in label.volumes.iter().filter(|volume| volume.on_this_drive) {
            let text = format!(
                "{} ({} over {} drives, {}), {} of it here",
                volume.name,
                volume.layout,
                volume.columns,
                ByteSize(volume.capacity_bytes),
                counted(volume.slabs_on_this_drive as usize, "slab"),
            );
            page.field("volume", text, Style::Plain);
        }
    }
}
