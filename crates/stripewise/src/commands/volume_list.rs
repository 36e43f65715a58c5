//! `volume list`: the volumes of one or all pools.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::{Home, KnownPool};
use stripewise_control::report::VolumeReport;
use stripewise_control::request::ListVolumes;
use stripewise_control::response::{Response, Volumes};

use crate::commands::App;
use crate::failure::Result;

/// List volumes
#[derive(Args)]
pub(crate) struct Options {
    /// The pool; all known ones if left out
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListVolumes {
        ListVolumes { pool: self.pool.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ListVolumes, app: &App) -> Result<Response> {
    let home = app.home()?;
    let pools = match &asked.pool {
        Some(name) => vec![home.pool(&name.0)?],
        None => home.pools()?,
    };
    let mut volumes = Vec::new();
    for pool in pools {
        match volumes_of(app, &home, &pool).await {
            Ok(found) => volumes.extend(found),
            Err(failure) if failure.taken_at().is_some() => return Err(failure),
            // One pool that is away does not hide the others.
            Err(failure) if asked.pool.is_none() => app.warning(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Response::Volumes(Volumes { volumes }))
}

async fn volumes_of(app: &App, home: &Home, pool: &KnownPool) -> Result<Vec<VolumeReport>> {
    match other_process::wait_for(app, home, pool).await? {
        Some(word) => Ok(word.report.volumes),
        None => {
            with_pool(app, &pool.name, Access::Look, "volume list", async |session| {
                Ok(session.report().volumes)
            })
            .await
        }
    }
}
