//! `pool create`: drives that hold nothing become a pool.
//!
//! Expected faults: drives that hold something (refused, or named and overwritten with `--force`), the same drive twice, in
//! use, too small, of different sizes; a name that is taken.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use stripewise_drive::{BufferPool, Drive};
use stripewise_engine::pool::{Pool, PoolError, PoolOptions, PoolSpec, inspect};
use stripewise_runtime::{OpenOptions, RealExecutor};

use crate::candidates::{self, Candidate};
use crate::commands::{App, Pools};
use crate::failure::{Exit, Failure, Result};
use crate::home::{KnownDrive, KnownPool};
use crate::names::PoolName;
use crate::report::{PoolReport, counted};
use crate::session::{OpenedDrive, executor, open_drive, pool_failure};
use crate::size::ByteSize;

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 16 << 20;

/// Make a pool of drives
#[derive(Args)]
pub struct Options {
    /// Its name: letters, digits, - _ .
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files or block devices
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
    /// A drive that takes over by itself when another fails
    #[arg(long, value_name = "DRIVE")]
    spare: Vec<PathBuf>,
    /// Overwrite drives that hold something
    #[arg(long)]
    force: bool,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let home = app.home()?;
    let name = &options.name.0;
    // Also finds out whether the list can be written, before anything is done to the drives.
    home.change_pools(|pools| match pools.iter().any(|pool| pool.name == *name) {
        true => Err(Failure::new(format!("there is a pool `{name}` already"))
            .hint(format!("choose another name; `stripewise pool export {name}` puts that one aside"))),
        false => Ok(()),
    })?;
    let paths: Vec<PathBuf> = options.drives.iter().chain(&options.spare).cloned().collect();
    let candidates = candidates::all(&paths)?;
    let executor = executor()?;
    let mut opened = Vec::new();
    for candidate in &candidates {
        opened.push(open_drive(app, &executor, &candidate.path, &OpenOptions::default())?);
    }
    for (candidate, opened) in candidates.iter().zip(&opened) {
        refuse_contents(app, &executor, candidate, opened, options.force)?;
    }

    let drives: Vec<Rc<dyn Drive>> = opened.into_iter().map(|opened| opened.drive).collect();
    let (drives, spares) = drives.split_at(options.drives.len());
    let spec = PoolSpec {
        name: name.clone(),
        drives: drives.to_vec(),
        spares: spares.to_vec(),
        force: options.force,
        options: PoolOptions::default(),
    };
    let what = format!("cannot create pool `{name}`");
    let buffers = BufferPool::new(RETAINED_BYTES);
    let pool = executor
        .block_on(Pool::create(&executor.context(), &buffers, spec))
        .map_err(|error| pool_failure(&what, &error))?;
    let report = PoolReport::from(&pool.status());
    executor.block_on(pool.close()).map_err(|error| pool_failure(&what, &error))?;
    let known = |drive: &crate::report::DriveReport| KnownDrive {
        id: drive.id.clone(),
        path: PathBuf::from(&drive.path),
    };
    home.remember(KnownPool {
        name: name.clone(),
        id: report.id.clone(),
        drives: report.drives.iter().map(known).collect(),
    })?;

    for notice in &report.notices {
        app.printer.note(format!("note: {notice}"));
    }
    let text = format!(
        "pool {name}: {}, {} for volumes and their redundancy",
        counted(report.drives.len(), "drive"),
        ByteSize(report.capacity_bytes)
    );
    app.printer.note(format!(
        "next: stripewise volume create {name}/VOL --layout raid5   (raid0, raid1, raid6, raid10 …)"
    ));
    app.printer.result(&Pools { pools: vec![report] }, |page| page.line(text))?;
    Ok(Exit::Success)
}

/// Refuses a drive that holds something, unless told to overwrite it: then says what is lost.
pub fn refuse_contents(
    app: &App,
    executor: &RealExecutor,
    candidate: &Candidate,
    opened: &OpenedDrive,
    force: bool,
) -> Result<()> {
    let path = candidate.path.display();
    let mut contents = match executor.block_on(inspect(&*opened.file)) {
        Ok(None) => candidate.contents()?,
        Ok(Some(label)) => {
            let volumes: Vec<&str> = label
                .volumes
                .iter()
                .filter(|volume| volume.on_this_drive)
                .map(|volume| volume.name.as_str())
                .collect();
            let parts = if volumes.is_empty() {
                String::new()
            } else {
                format!(", with parts of {}", volumes.join(", "))
            };
            vec![format!("a drive of pool `{}`{parts}", label.pool_name)]
        }
        Err(PoolError::NewerFormat { version, .. }) => vec![format!("a pool of a newer format ({version})")],
        Err(PoolError::UnknownFeatures { .. }) => {
            vec!["a pool with features unknown to this version".to_owned()]
        }
        Err(error) => return Err(pool_failure(format!("cannot read what {path} holds"), &error)),
    };
    if contents.is_empty() {
        return Ok(());
    }
    contents.dedup();
    let holds = contents.join(" and ");
    if force {
        app.printer.warning(format!("{path} is overwritten; it held {holds}"));
        return Ok(());
    }
    Err(Failure::new(format!("{path} holds {holds}; nothing was changed"))
        .hint("--force overwrites it: all that it holds would be lost"))
}
