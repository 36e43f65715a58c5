//! `pool events`: the pool's history, which it keeps on its drives. Looks only; beside a process
//! that works on the pool it shows what that one left word of.
//!
//! Expected faults: as those of every look at a pool.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::with_pool;
use stripewise_control::report::EventReport;
use stripewise_control::request::ListEvents;
use stripewise_control::response::{Events, Response};

use crate::commands::App;
use crate::failure::Result;

/// Show the history of a pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Only the last so many
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListEvents {
        ListEvents { pool: self.name.clone(), last: self.last }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ListEvents, app: &App) -> Result<Response> {
    let (home, name) = (app.home()?, &asked.pool.0);
    let known = home.pool(name)?;
    let mut events = match other_process::wait_for(app, &home, &known).await? {
        Some(word) => word.events,
        None => {
            with_pool(app, name, Access::Look, "pool events", async |session| {
                Ok(session.pool.events().iter().map(EventReport::from).collect())
            })
            .await?
        }
    };
    let passed_over = asked.last.map_or(0, |last| events.len().saturating_sub(last));
    events.drain(..passed_over);
    Ok(Response::Events(Events { pool: name.clone(), events }))
}
