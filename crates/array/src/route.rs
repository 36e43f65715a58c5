//! Messages between a pool and arrays on another shard, in virtual time.
//!
//! All shards of virtual time are on one thread: a shard is a group of tasks. What another thread
//! would execute later, and answer later, happens here after times that a seed draws. Messages of
//! one direction keep their order, as in a queue between threads; of several shards they have none.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use stripewise_drive::{Context, SplitMix64};

use crate::stripes::lock_order;

/// Longest time of a message, ns.
const LONGEST_NS: u64 = 40_000;

/// The two queues between the home and another shard.
pub struct Route {
    context: Context,
    random: RefCell<SplitMix64>,
    to_shard: Lane,
    to_home: Lane,
}

/// Messages in one direction.
#[derive(Default)]
struct Lane {
    /// Arrival of the last one.
    last_ns: Cell<u64>,
}

impl Route {
    /// A route whose times are drawn from `seed`.
    pub fn new(context: &Context, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            context: context.clone(),
            random: RefCell::new(SplitMix64::new(seed)),
            to_shard: Lane::default(),
            to_home: Lane::default(),
        })
    }

    /// Runs work of the home on the shard, to its end even if the caller is dropped.
    pub fn on_shard<R: 'static>(
        self: &Rc<Self>,
        work: impl Future<Output = R> + 'static,
    ) -> impl Future<Output = R> + 'static {
        self.clone().carry(|route| &route.to_shard, work, |route| &route.to_home)
    }

    /// Runs work of the shard on the home, to its end even if the caller is dropped.
    pub fn on_home<R: 'static>(
        self: &Rc<Self>,
        work: impl Future<Output = R> + 'static,
    ) -> impl Future<Output = R> + 'static {
        self.clone().carry(|route| &route.to_home, work, |route| &route.to_shard)
    }

    async fn carry<R: 'static>(
        self: Rc<Self>,
        there: fn(&Self) -> &Lane,
        work: impl Future<Output = R> + 'static,
        back: fn(&Self) -> &Lane,
    ) -> R {
        let (context, arrival_ns) = (self.context.clone(), self.arrival_ns(there(&self)));
        let done = context.spawn(async move {
            self.context.sleep_until_ns(arrival_ns).await;
            // Work on the other side is a sequence of its own.
            let result = lock_order::scope(work).await;
            let arrival_ns = self.arrival_ns(back(&self));
            self.context.sleep_until_ns(arrival_ns).await;
            result
        });
        done.await
    }

    fn arrival_ns(&self, lane: &Lane) -> u64 {
        let drawn_ns = self.context.now_ns() + self.random.borrow_mut().below(LONGEST_NS);
        let arrival_ns = drawn_ns.max(lane.last_ns.get() + 1);
        lane.last_ns.set(arrival_ns);
        arrival_ns
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn messages_keep_their_order_and_take_time() {
        for seed in 0..10 {
            let executor = VirtualExecutor::shuffled(seed);
            let context = executor.context();
            let route = Route::new(&context, seed);
            let arrived: Rc<RefCell<Vec<u32>>> = Rc::default();
            executor.block_on(async {
                let send = |number: u32| {
                    let arrived = arrived.clone();
                    route.on_shard(async move { arrived.borrow_mut().push(number) })
                };
                futures_util::future::join_all((0..20).map(send)).await;
                assert_eq!(*arrived.borrow(), (0..20).collect::<Vec<u32>>(), "seed {seed}");
                assert!(context.now_ns() > 0);
            });
        }
    }

    #[test]
    fn work_ends_though_its_caller_is_dropped() {
        let executor = VirtualExecutor::shuffled(1);
        let context = executor.context();
        let route = Route::new(&context, 1);
        let is_done = Rc::new(Cell::new(false));
        executor.block_on(async {
            let done = is_done.clone();
            let mut sent = Box::pin(route.on_shard(async move { done.set(true) }));
            assert!((&mut sent).now_or_never().is_none());
            drop(sent);
            context.sleep_ns(4 * LONGEST_NS).await;
        });
        assert!(is_done.get());
    }
}
