//! `pool export`: takes a pool off the list, so that its drives can be moved and imported
//! elsewhere. Where its drives are there they record that this host has let the pool go; needs none
//! of them to be there, though.
//!
//! Expected faults: a pool in use, drives that are gone already (another host then has to be told
//! `--force`).

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::Session;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::request::ExportPool;
use stripewise_control::response::{PoolExported, Response};

use crate::commands::App;
use crate::failure::Result;

/// Release a pool, so that another host can import it
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ExportPool {
        ExportPool { pool: self.name.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ExportPool, app: &App) -> Result<Response> {
    let home = app.home()?;
    let pool = home.pool(&asked.pool.0)?;
    let what = format!("export pool `{}`", pool.name);
    refuse_if_used(&home, &what, &pool.name, None)?;
    let _held = app.served.hold(&what, &pool.name, None)?;
    let doing = format!("pool export {}", pool.name);
    let opened = match app.served.end(&pool.name) {
        Some(session) => Ok(session),
        None => Session::open(app, &pool.name, Access::Change, &doing).await,
    };
    let released = match opened {
        Ok(session) => {
            let released = session.pool.release().await;
            let closed = session.close().await;
            released.map_err(|error| pool_failure("its drives could not record it", &error)).and(closed)
        }
        Err(failure) if failure.taken_at().is_some() => return Err(failure),
        Err(failure) => {
            // Not while another process has it.
            drop(home.lock_pool(&app.executor()?.context(), &pool, Access::Change, &doing, None).await?);
            Err(failure)
        }
    };
    home.forget(&app.executor()?.context(), &pool.id).await?;
    if let Err(failure) = released {
        app.warning(format!(
            "the pool's drives do not say that it was exported: {}; another host imports it with --force",
            failure.message
        ));
    }
    Ok(Response::PoolExported(PoolExported { exported: pool }))
}
