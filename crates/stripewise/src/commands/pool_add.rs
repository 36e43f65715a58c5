//! `pool add`: drives into a pool that is there already. A data drive is used at once by whatever
//! waits for room: rebuilds of degraded rows, thin volumes, new volumes.
//!
//! Expected faults: drives that hold something (refused, or named and overwritten with `--force`),
//! the same one twice, in use, too small, one of the pool's own. Drives are taken in one after the
//! other: where one is refused, those before it are in.

use clap::{Args, ValueEnum};
use stripewise_control::access::Access;
use stripewise_control::drives::candidates;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::AddDrives;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::Role;

use crate::commands::App;
use crate::failure::Result;

/// Add drives to a pool: data, spare, journal or fast
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files, block devices, volumes of other pools, or NBD URIs
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
    /// What they are for: data holds volumes, a spare waits for another drive to fail, journal
    /// drives take small writes first, fast ones what is asked for most
    #[arg(long = "as", value_name = "ROLE", value_enum, default_value = "data")]
    role: RoleChoice,
    /// Overwrite drives that hold something
    #[arg(long)]
    force: bool,
}

/// A role as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoleChoice {
    Data,
    Spare,
    Journal,
    Fast,
}

impl From<RoleChoice> for Role {
    fn from(choice: RoleChoice) -> Self {
        match choice {
            RoleChoice::Data => Self::Data,
            RoleChoice::Spare => Self::Spare,
            RoleChoice::Journal => Self::Journal,
            RoleChoice::Fast => Self::Fast,
        }
    }
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> AddDrives {
        AddDrives {
            pool: self.name.clone(),
            drives: self.drives.clone(),
            role: self.role.into(),
            force: self.force,
        }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &AddDrives, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let candidates = candidates::all(app, &asked.drives)?;
    let report = with_pool(app, name, Access::Change, &format!("pool add {name}"), async |session| {
        // All are looked at before the first is taken in.
        let mut opened = Vec::new();
        for candidate in &candidates {
            opened.push(session.open_new_drive(candidate, asked.force).await?);
        }
        for (candidate, opened) in candidates.iter().zip(opened) {
            let what = format!("cannot add {} to pool `{name}`", candidate.path.display());
            let added = session.pool.add(opened.drive, asked.role, asked.force).await;
            added.map_err(|error| pool_failure(what, &error))?;
        }
        // What waited for a drive is due from now on.
        let healed = session.pool.heal().await;
        healed.map_err(|error| pool_failure(format!("cannot plan the rebuilds of pool `{name}`"), &error))?;
        Ok(session.report())
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DrivesAdded { count: candidates.len(), role: asked.role },
        app.served.has(name),
    )))
}
