//! How long a client is waited for, by a server that may be slow itself: only time in which the
//! server could have noticed counts. A machine with too much to do, or one that stood still, makes
//! no client late.

use std::future::Future;

use stripewise_drive::Context;

/// Looks that a wait is divided into. Whatever the clock says, so many turns of the executor pass
/// before a client is given up; a negotiation takes fewer.
const LOOKS: u64 = 50;

/// As [`within`], and a sixth as long from when `is_short` on: others wait for what this one keeps.
pub(crate) async fn within_unless_short<F: Future + Unpin>(
    context: &Context,
    limit_ns: u64,
    is_short: impl Fn() -> bool,
    mut work: F,
) -> Option<F::Output> {
    let mut short_looks = 0;
    for _ in 0..LOOKS {
        if let Ok(done) = context.time_limit_ns(limit_ns.div_ceil(LOOKS), &mut work).await {
            return Some(done);
        }
        short_looks += u64::from(is_short());
        if short_looks > LOOKS / 6 {
            return None;
        }
    }
    None
}

/// What `work` comes to; `None` if it takes longer than `limit_ns`, not counted what the executor
/// did not get round to.
pub(crate) async fn within<F: Future + Unpin>(
    context: &Context,
    limit_ns: u64,
    mut work: F,
) -> Option<F::Output> {
    for _ in 0..LOOKS {
        if let Ok(done) = context.time_limit_ns(limit_ns.div_ceil(LOOKS), &mut work).await {
            return Some(done);
        }
    }
    None
}
