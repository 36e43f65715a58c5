//! `pool create`: drives that hold nothing become a pool.
//!
//! Expected faults: drives that hold something (refused, or named and overwritten with `--force`),
//! the same drive twice, in use, too small, of different sizes; a name that is taken.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::candidates::{self, Candidate};
use stripewise_control::drives::contents::refuse_contents;
use stripewise_control::drives::opened::pool_options;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::stacked::Stack;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::registry::{KnownDrive, KnownPool};
use stripewise_control::report::PoolReport;
use stripewise_control::request::CreatePool;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_control::size::ByteSize;
use stripewise_drive::{BufferPool, Drive};
use stripewise_engine::pool::{Pool, PoolSpec};
use stripewise_runtime::OpenOptions;

use crate::commands::App;
use crate::failure::{Failure, Result};

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 16 << 20;

/// Create a pool from drives
#[derive(Args)]
pub(crate) struct Options {
    /// Its name: letters, digits, - _ .
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files, block devices, volumes of other pools (POOL/VOL), or exports of NBD servers
    /// (nbd://HOST/EXPORT)
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
    /// A drive that takes over by itself when another fails
    #[arg(long, value_name = "DRIVE")]
    spare: Vec<String>,
    /// A drive that takes small writes first: an SSD. As many as the layouts survive losses, and
    /// one more
    #[arg(long, value_name = "DRIVE")]
    journal: Vec<String>,
    /// A drive for what is asked for most: an SSD beside hard disks
    #[arg(long, value_name = "DRIVE")]
    fast: Vec<String>,
    /// Space is handed out in pieces of this size: a power of two, 1MiB to 128MiB; chosen from the
    /// drives if left out
    #[arg(long, value_name = "SIZE")]
    slab: Option<ByteSize>,
    /// Overwrite drives that hold something
    #[arg(long)]
    force: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> CreatePool {
        CreatePool {
            pool: self.name.clone(),
            drives: self.drives.clone(),
            spares: self.spare.clone(),
            journals: self.journal.clone(),
            fast: self.fast.clone(),
            slab_bytes: self.slab.map(|size| size.0),
            force: self.force,
        }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &CreatePool, app: &App) -> Result<Response> {
    let home = app.home()?;
    let name = &asked.pool.0;
    check_slab(asked.slab_bytes)?;
    // Also finds out whether the list can be written, before anything is done to the drives.
    let context = app.executor()?.context();
    let is_free = home.change_pools(&context, |pools| match pools.iter().any(|pool| pool.name == *name) {
        true => Err(Failure::new(format!("there is a pool `{name}` already"))
            .hint(format!("choose another name; `stripewise pool export {name}` puts that one aside"))),
        false => Ok(()),
    });
    is_free.await?;
    let roles = [&asked.drives, &asked.spares, &asked.journals, &asked.fast];
    let names: Vec<String> = roles.iter().flat_map(|names| names.iter().cloned()).collect();
    let candidates = candidates::all(app, &names)?;
    let mut held = Vec::new();
    for volume in candidates.iter().filter_map(Candidate::volume) {
        let what = format!("use `{volume}` as a drive of pool `{name}`");
        refuse_if_used(&home, &what, &volume.pool, Some(&volume.volume))?;
        held.push(app.served.hold(&what, &volume.pool, Some(&volume.volume))?);
    }
    let stack = Stack::new(app, &format!("pool create {name}"))?;
    let made = make(asked, app, &stack, &candidates).await;
    let closed = stack.close().await;
    let report = made?;
    closed?;

    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::Created { data_drives: asked.drives.len() },
        app.served.has(name),
    )))
}

/// Makes the pool on these drives, closes it and puts it on the list.
async fn make(asked: &CreatePool, app: &App, stack: &Stack, candidates: &[Candidate]) -> Result<PoolReport> {
    let (home, name, executor) = (app.home()?, &asked.pool.0, stack.executor());
    let mut opened = Vec::new();
    for candidate in candidates {
        opened.push(stack.open(candidate, Access::Change, &OpenOptions::default()).await?);
    }
    for (candidate, opened) in candidates.iter().zip(&opened) {
        refuse_contents(app, candidate, opened, asked.force).await?;
    }

    let pool_options = pool_options(&opened);
    let mut drives = opened.into_iter().map(|opened| opened.drive);
    let mut next =
        |names: &Vec<String>| -> Vec<Rc<dyn Drive>> { drives.by_ref().take(names.len()).collect() };
    let spec = PoolSpec {
        name: name.clone(),
        drives: next(&asked.drives),
        spares: next(&asked.spares),
        journals: next(&asked.journals),
        fast: next(&asked.fast),
        slab_bytes: asked.slab_bytes,
        force: asked.force,
        options: pool_options,
    };
    let what = format!("cannot create pool `{name}`");
    let buffers = BufferPool::new(RETAINED_BYTES);
    let pool = Pool::create(&executor.context(), &buffers, spec)
        .await
        .map_err(|error| pool_failure(&what, &error))?;
    let report = PoolReport::from(&pool.status());
    pool.close().await.map_err(|error| pool_failure(&what, &error))?;
    let known = |drive: &stripewise_control::report::DriveReport| KnownDrive {
        id: drive.id.clone(),
        path: PathBuf::from(&drive.path),
    };
    let known = KnownPool {
        name: name.clone(),
        id: report.id.clone(),
        drives: report.drives.iter().map(known).collect(),
    };
    home.remember(&executor.context(), known).await?;
    Ok(report)
}

/// Sizes that no pool can have are a wrong command line, told before anything is opened.
fn check_slab(slab_bytes: Option<u64>) -> Result<()> {
    let Some(size) = slab_bytes.map(ByteSize) else { return Ok(()) };
    let allowed = ByteSize(1 << 20)..=ByteSize(128 << 20);
    if size.0.is_power_of_two() && allowed.contains(&size) {
        return Ok(());
    }
    Err(Failure::usage(format!("a slab of {} bytes cannot be", size.0))
        .hint("it is a power of two from 1MiB to 128MiB; left out, it is chosen from the size of the drives"))
}
