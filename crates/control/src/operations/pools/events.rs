//! `pool events`: the pool's history, which it keeps on its drives. Looks only; beside a process
//! that works on the pool it shows what that one left word of.
//!
//! Expected faults: as those of every look at a pool.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::report::EventReport;
use crate::messages::request::ListEvents;
use crate::messages::response::{Events, Response};
use crate::pools::other_process;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &ListEvents, control: &Control) -> Result<Response> {
    let (registry, name) = (control.registry()?, &asked.pool.0);
    let known = registry.pool(name)?;
    let mut events = match other_process::wait_for(control, &registry, &known).await? {
        Some(word) => word.events,
        None => {
            with_pool(control, name, Access::Look, "pool events", async |session| {
                Ok(session.pool.events().iter().map(EventReport::from).collect())
            })
            .await?
        }
    };
    // Earlier versions recorded some events after later ones.
    events.sort_by_key(|event| event.time_unix_ms);
    let passed_over = asked.last.map_or(0, |last| events.len().saturating_sub(last));
    events.drain(..passed_over);
    Ok(Response::Events(Events { pool: name.clone(), events }))
}
