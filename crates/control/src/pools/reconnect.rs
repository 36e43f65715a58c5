//! Pools that can only go on when they are reopened: no drive of theirs is left within reach,
//! since this machine's own network was down, say, and nothing could be recorded on any of them.
//! They are closed, as a crash would leave them if need be, and opened when their drives are there.
//! Clients of their volumes see an error, and may come again.
//!
//! A pool that another process has taken over is closed and left to that.
//!
//! Expected faults: hosts that come back one after the other (waited for, a minute at most), some
//! that do not come back, and pools that are no better afterwards (left alone for longer and
//! longer).

use std::collections::HashMap;

use futures_util::future::LocalBoxFuture;
use stripewise_drive::Context;

use crate::control::Control;
use crate::daemon::serving::open;
use crate::drives::network;
use crate::failure::{Failure, Result};
use crate::pools::session::Session;
use crate::registry::KnownPool;

const LOOK_NS: u64 = 1_000_000_000;
/// Between two attempts.
const LONGEST_PAUSE_NS: u64 = 30_000_000_000;
/// Time to wait for all drives of a pool before it is opened with those that are reachable.
const COMPANY_NS: u64 = 60_000_000_000;
/// Time limit of an orderly close; after that the pool is dropped as in a crash.
const CLOSE_NS: u64 = 5_000_000_000;
/// Between two times that a pool is reopened: twice as long each time, until it was well for
/// long.
const FIRST_REST_NS: u64 = 5_000_000_000;
const LONGEST_REST_NS: u64 = 300_000_000_000;

struct Gone {
    pool: KnownPool,
    since_ns: u64,
    next_ns: u64,
    pause_ns: u64,
    /// Reason why the last attempt to open it failed; logged once.
    told: String,
}

/// Pause before a reopened pool may be reopened again.
#[derive(Default)]
struct Rest {
    until_ns: u64,
    length_ns: u64,
}

impl Rest {
    fn begin(&mut self, now_ns: u64) {
        let was_well = now_ns.saturating_sub(self.until_ns) > LONGEST_REST_NS;
        let longer_ns = if was_well { 0 } else { 2 * self.length_ns };
        self.length_ns = longer_ns.clamp(FIRST_REST_NS, LONGEST_REST_NS);
        self.until_ns = now_ns + self.length_ns;
    }
}

/// Looks after the pools served for as long as it is polled.
pub async fn reconnect(control: &Control) -> Result<()> {
    let context = control.executor()?.context();
    let mut gone: Vec<Gone> = Vec::new();
    let mut rests: HashMap<String, Rest> = HashMap::new();
    loop {
        context.sleep_ns(LOOK_NS).await;
        for session in Session::all_served(control) {
            let now_ns = context.now_ns();
            if session.pool.is_taken_over() {
                let name = session.name().to_owned();
                drop(session);
                let Some(session) = Session::end_serving(control, &name) else { continue };
                control.warning(format!(
                    "pool {name} was taken over by another process, on this host or another: it is not served here any more"
                ));
                close(&context, session).await;
                continue;
            }
            let rests = rests.get(session.name()).is_some_and(|rest| now_ns < rest.until_ns);
            if !rests && session.is_stranded() {
                let name = session.name().to_owned();
                drop(session);
                let Some(session) = Session::end_serving(control, &name) else { continue };
                control.warning(format!(
                    "pool {name}: none of its drives is within reach; it is closed, and opened again when they are back"
                ));
                let pool = close(&context, session).await;
                gone.push(Gone::at(context.now_ns(), pool));
            }
        }
        gone.extend(
            control.served.take_those_to_come().into_iter().map(|pool| Gone::at(context.now_ns(), pool)),
        );
        let mut still_gone = Vec::new();
        for mut pool in gone {
            if control.served.has(&pool.pool.name) {
                continue;
            }
            if control.served.is_coming(&pool.pool.name) {
                still_gone.push(pool);
                continue;
            }
            if is_open_again(control, &context, &mut pool).await {
                rests.entry(pool.pool.name.clone()).or_default().begin(context.now_ns());
                continue;
            }
            still_gone.push(pool);
        }
        gone = still_gone;
    }
}

impl Gone {
    fn at(now_ns: u64, pool: KnownPool) -> Self {
        Self { pool, since_ns: now_ns, next_ns: now_ns + LOOK_NS, pause_ns: LOOK_NS, told: String::new() }
    }
}

/// Closes a pool that is not served any more, in order if that can be done in bounded time, else as
/// a crash would.
pub async fn close(context: &Context, session: Session) -> KnownPool {
    let (pool, exports) = (session.known(), session.exports());
    // Boxed, since what is closed may lie on pools in turn. It cannot be recorded that it was
    // closed.
    let mut closing: LocalBoxFuture<'_, _> = Box::pin(session.close());
    let closed = context.time_limit_ns(CLOSE_NS, &mut closing).await;
    // Whatever of it could not be ended writes nothing more, and what waits for a drive waits no
    // longer.
    exports.iter().for_each(|export| export.close());
    if closed.is_err() {
        let _ = context.time_limit_ns(CLOSE_NS, &mut closing).await;
    }
    drop(closing);
    pool
}

async fn is_open_again(control: &Control, context: &Context, gone: &mut Gone) -> bool {
    if context.now_ns() < gone.next_ns {
        return false;
    }
    let opened = match is_reached(control, context, gone).await {
        true => {
            network::wait_for_late_writes(context, &gone.pool).await;
            open(control, &gone.pool).await
        }
        false => Err(Failure::new("its drives are out of reach")),
    };
    if let Err(failure) = opened {
        if gone.told != failure.message {
            control.warning(format!("pool {} is not served yet: {}", gone.pool.name, failure.message));
            gone.told = failure.message;
        }
        gone.pause_ns = (2 * gone.pause_ns).min(LONGEST_PAUSE_NS);
        gone.next_ns = context.now_ns() + gone.pause_ns;
        return false;
    }
    control.note(format!("pool {} is served again", gone.pool.name));
    true
}

/// True if all its exports are reachable, or, after `COMPANY_NS`, at least one.
async fn is_reached(control: &Control, context: &Context, gone: &Gone) -> bool {
    let Ok(executor) = control.executor() else { return false };
    let reached = network::open_all(&executor, &gone.pool, true).await;
    let has_waited = context.now_ns().saturating_sub(gone.since_ns) > COMPANY_NS;
    let is_there = |opened: &std::result::Result<_, _>| opened.is_ok();
    if has_waited { reached.values().any(is_there) } else { reached.values().all(is_there) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopening_a_pool_backs_off_to_a_limit() {
        let (mut rest, mut now_ns, mut lengths) = (Rest::default(), 1_000 * LOOK_NS, Vec::new());
        for _ in 0..9 {
            rest.begin(now_ns);
            lengths.push(rest.length_ns / LOOK_NS);
            now_ns = rest.until_ns;
        }
        assert_eq!(lengths, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        rest.begin(now_ns + 301 * LOOK_NS);
        assert_eq!(rest.length_ns, FIRST_REST_NS);
    }
}
