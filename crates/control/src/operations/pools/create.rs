//! `pool create`: makes a pool of empty drives.
//!
//! Expected faults: drives that hold data (refused, or reported and overwritten with `--force`),
//! the same drive twice, in use, too small, of different sizes; a name that is taken.

use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Drive};
use stripewise_pool::{Pool, PoolSpec};
use stripewise_runtime::OpenOptions;

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::Candidate;
use crate::drives::contents::refuse_contents;
use crate::drives::opened::pool_options;
use crate::drives::rights::all_permitted;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::PoolReport;
use crate::messages::request::CreatePool;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::notation::size::ByteSize;
use crate::pools::stacked::StackOpener;
use crate::registry::stacking::refuse_if_used;
use crate::registry::{KnownDrive, KnownPool};

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 16 << 20;

/// Creates the pool.
pub async fn run(asked: &CreatePool, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let name = &asked.pool.0;
    check_slab(asked.slab_bytes)?;
    // This also checks that the registry is writable, before the drives are touched.
    let context = control.executor()?.context();
    let is_free =
        registry.change_pools(&context, |pools| match pools.iter().any(|pool| pool.name == *name) {
            true => Err(Failure::new(format!("there is a pool `{name}` already"))
                .hint(format!("choose another name; `stripewise pool export {name}` puts that one aside"))),
            false => Ok(()),
        });
    is_free.await?;
    let roles = [&asked.drives, &asked.spares, &asked.journals, &asked.fast];
    let names: Vec<String> = roles.iter().flat_map(|names| names.iter().cloned()).collect();
    let candidates = all_permitted(control, &names).await?;
    let mut held = Vec::new();
    for volume in candidates.iter().filter_map(Candidate::volume) {
        let what = format!("use `{volume}` as a drive of pool `{name}`");
        refuse_if_used(&registry, &what, &volume.pool, Some(&volume.volume))?;
        held.push(control.served.hold(&what, &volume.pool, Some(&volume.volume))?);
    }
    let opener = StackOpener::new(control, &format!("pool create {name}"))?;
    let made = make(asked, control, &opener, &candidates).await;
    let closed = opener.close().await;
    let report = made?;
    closed?;

    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::Created { data_drives: asked.drives.len() },
        control.served.has(name),
    )))
}

/// Creates the pool on these drives, closes it and registers it.
async fn make(
    asked: &CreatePool,
    control: &Control,
    opener: &StackOpener,
    candidates: &[Candidate],
) -> Result<PoolReport> {
    let (registry, name, executor) = (control.registry()?, &asked.pool.0, opener.executor());
    let opening = async {
        let mut opened = Vec::new();
        for candidate in candidates {
            opened.push(opener.open(candidate, Access::Change, &OpenOptions::default()).await?);
        }
        for (candidate, opened) in candidates.iter().zip(&opened) {
            refuse_contents(control, candidate, opened, asked.force).await?;
        }
        Ok::<_, Failure>(opened)
    };
    let opened = control.without_turn(opening).await?;

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
    let known = |drive: &crate::messages::report::DriveReport| KnownDrive {
        id: drive.id.clone(),
        path: PathBuf::from(&drive.path),
    };
    let known = KnownPool {
        name: name.clone(),
        id: report.id.clone(),
        drives: report.drives.iter().map(known).collect(),
    };
    registry.remember(&executor.context(), known).await?;
    Ok(report)
}

/// Checks the slab size before any drive is opened: an invalid one is a usage error.
fn check_slab(slab_bytes: Option<u64>) -> Result<()> {
    let Some(size) = slab_bytes.map(ByteSize) else { return Ok(()) };
    let allowed = ByteSize(1 << 20)..=ByteSize(128 << 20);
    if size.0.is_power_of_two() && allowed.contains(&size) {
        return Ok(());
    }
    Err(Failure::usage(format!("invalid slab size: {} bytes", size.0))
        .hint("use a power of two from 1MiB to 128MiB; by default it is chosen from the size of the drives"))
}
