//! Time limits for clients of a server that may be slow itself: only time in which the server could
//! have noticed progress counts. An overloaded machine, or one that stood still, makes no client
//! late.

use std::future::Future;

use stripewise_drive::Context;

/// Number of checks that a wait is divided into. Regardless of the clock, this many turns of the
/// executor pass before a client is dropped; fewer in a hurry.
const LOOKS: f64 = 50.0;
/// Shortest limit that haste can produce, ns.
const LEAST_NS: f64 = 5e9;

/// The rest of a client's time limit.
pub(crate) struct Patience {
    context: Context,
    limit_ns: u64,
    looks_left: f64,
}

impl Patience {
    /// A limit of `limit_ns`.
    pub(crate) fn new(context: &Context, limit_ns: u64) -> Self {
        Self { context: context.clone(), limit_ns, looks_left: LOOKS }
    }

    /// The result of `work`; `None` if the limit is over first. With a `haste` of 1 time counts as
    /// if the whole limit were 5 s, with 0 as it is.
    pub(crate) async fn wait<F: Future + Unpin>(
        &mut self,
        haste: impl Fn() -> f64,
        mut work: F,
    ) -> Option<F::Output> {
        let look_ns = self.limit_ns.div_ceil(LOOKS as u64);
        let most = (self.limit_ns as f64 / LEAST_NS).max(1.0);
        while self.looks_left > 0.0 {
            if let Ok(done) = self.context.time_limit_ns(look_ns, &mut work).await {
                return Some(done);
            }
            self.looks_left -= 1.0 + haste().clamp(0.0, 1.0) * (most - 1.0);
        }
        None
    }
}

/// The result of `work`; `None` if it takes longer than `limit_ns`, not counting time that the
/// executor was late.
pub(crate) async fn within<F: Future + Unpin>(
    context: &Context,
    limit_ns: u64,
    work: F,
) -> Option<F::Output> {
    Patience::new(context, limit_ns).wait(|| 0.0, work).await
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use stripewise_runtime::VirtualExecutor;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn given_up_after_s(limit_s: u64, haste: f64) -> u64 {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let mut patience = Patience::new(&context, limit_s * SECOND_NS);
            assert!(patience.wait(|| haste, pin!(pending::<()>())).await.is_none());
            // The limit is used up.
            let now_ns = context.now_ns();
            assert!(patience.wait(|| 0.0, pin!(pending::<()>())).await.is_none());
            assert_eq!(context.now_ns(), now_ns);
            now_ns / SECOND_NS
        })
    }

    #[test]
    fn patience_shortens_as_memory_runs_short() {
        assert_eq!(given_up_after_s(60, 0.0), 60);
        assert!((5..=7).contains(&given_up_after_s(60, 1.0)));
        assert!((5..=6).contains(&given_up_after_s(30, 1.0)));
        assert!((9..=11).contains(&given_up_after_s(60, 0.5)));
        assert_eq!(given_up_after_s(2, 1.0), 2, "a short limit is not shortened");
    }
}
