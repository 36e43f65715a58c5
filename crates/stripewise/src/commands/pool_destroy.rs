//! `pool destroy`: erases a pool from its drives. What volumes held is not overwritten, but nothing
//! finds it any more.
//!
//! Expected faults: drives that are not there (they keep their superblock; said so), a command line
//! without `--yes`.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::{Session, with_pool};
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::request::DestroyPool;
use stripewise_control::response::{PoolChange, PoolChanged, Response};

use crate::commands::{App, unconfirmed};
use crate::failure::Result;

/// Destroy a pool and all of its volumes
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Yes, lose everything in it
    #[arg(long)]
    yes: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> DestroyPool {
        DestroyPool { pool: self.name.clone(), yes: self.yes }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &DestroyPool, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let home = app.home()?;
    home.pool(name)?;
    let what = format!("destroy pool `{name}`");
    refuse_if_used(&home, &what, name, None)?;
    let _held = app.served.hold(&what, name, None)?;
    let doing = format!("pool destroy {name}");
    if !asked.yes {
        let meant = with_pool(app, name, Access::Look, &doing, async |session| {
            Ok(session.report().with_identity_and_drives())
        })
        .await?;
        return Err(unconfirmed(&doing, &format!("destroying {meant} loses all of its volumes")));
    }
    let session = Session::open(app, name, Access::Change, &doing).await?;
    let report = session.report();
    app.warning(format!("destroying {}", report.with_identity_and_drives()));
    session.destroy().await?;
    for drive in report.drives.iter().filter(|drive| !drive.state.takes_part()) {
        app.warning(format!(
            "{} ({}) was {}: it still says that it belongs to the pool",
            drive.path, drive.id, drive.state
        ));
    }
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::Destroyed, app.served.has(name))))
}
