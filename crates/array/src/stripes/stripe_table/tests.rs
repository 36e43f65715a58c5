//! Order of access to stripes: groups, writers, readers and attempts, also all at random.

use futures_util::future::FutureExt;
use stripewise_drive::SplitMix64;
use stripewise_runtime::VirtualExecutor;

use super::*;
use crate::stripes::lock_order::scope;

fn piece() -> Piece {
    let data = Buffer::from_bytes(&[0; 512]);
    Piece { from: 0, data, fua: false, class: Class::Foreground, room: None }
}

/// Locks a stripe that is idle or reserved, in a scope of its own, so that scopes that wait later
/// hold none.
async fn alone(table: &Rc<StripeTable>, stripe: u64) -> StripeGuard {
    scope(async { table.try_lock(stripe) }).await.expect("nothing holds it")
}

#[test]
fn a_group_holds_nothing_until_it_has_all() {
    let table: Rc<StripeTable> = Rc::default();
    VirtualExecutor::new().block_on(async {
        let writer = alone(&table, 2).await;
        let mut group = Box::pin(scope(table.lock_all(vec![1, 2, 3])));
        assert!(group.as_mut().now_or_never().is_none());
        // A stripe that is reserved for the group can be locked in between, and goes back to it.
        let destaging = alone(&table, 1).await;
        assert!(table.try_lock(1).is_none());
        drop(writer);
        assert!(group.as_mut().now_or_never().is_none(), "1 is in use");
        drop(destaging);
        let guards = group.await;
        assert_eq!(guards.len(), 3);
        assert!((1..4).all(|stripe| table.try_lock(stripe).is_none()));
        drop(guards);
        assert!(table.is_idle());
    });
}

#[test]
fn requests_after_a_group_wait_for_it() {
    let table: Rc<StripeTable> = Rc::default();
    VirtualExecutor::new().block_on(async {
        let first = alone(&table, 1).await;
        let mut group = Box::pin(scope(table.lock_all(vec![1, 2])));
        assert!(group.as_mut().now_or_never().is_none());
        let Err(mut write) = table.enter(2, piece()) else { panic!("2 is reserved") };
        let ahead = scope(table.lock_all_ahead(vec![2])).await;
        drop(first);
        assert!(group.as_mut().now_or_never().is_none(), "2 is in use");
        drop(ahead);
        let guards = group.await;
        assert!((&mut write).now_or_never().is_none());
        drop(guards);
        assert!(matches!(write.await, Turn::Lead));
        table.take_pieces(2, |_, _| true);
        table.leave(2);
        assert!(table.is_idle());
    });
}

#[test]
fn a_group_that_is_dropped_leaves_no_trace() {
    let table: Rc<StripeTable> = Rc::default();
    VirtualExecutor::new().block_on(async {
        let held = alone(&table, 1).await;
        let mut waiting = Box::pin(scope(table.lock_all(vec![1, 2])));
        assert!(waiting.as_mut().now_or_never().is_none());
        let mut next = Box::pin(scope(table.lock_all(vec![2, 3])));
        assert!(next.as_mut().now_or_never().is_none());
        drop(waiting);
        drop(next.await);
        // A group that has its stripes, but has not been polled since.
        let mut waiting = Box::pin(scope(table.lock_all(vec![1, 2])));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        drop(waiting);
        assert!(table.is_idle());
    });
}

/// Groups, writers, readers and attempts at random: access is exclusive where it must be, and every
/// request ends.
#[test]
fn stripe_access_is_exclusive_and_starves_no_request() {
    for seed in 0..30 {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        let table: Rc<StripeTable> = Rc::default();
        let inside: Rc<RefCell<FxHashMap<u64, i32>>> = Rc::default();
        let mut random = SplitMix64::new(seed);
        let tasks: Vec<_> = (0..120)
            .map(|_| {
                let (kind, pause, work) = (random.below(5), random.below(400), random.below(50));
                let (first, count) = (random.below(8), 1 + random.below(6));
                let stripes: Vec<u64> = (first..first + count).collect();
                let (table, inside, clock) = (table.clone(), inside.clone(), context.clone());
                let enter = move |stripes: &[u64], is_shared: bool| {
                    for stripe in stripes {
                        let mut inside = inside.borrow_mut();
                        let there = inside.entry(*stripe).or_default();
                        assert!(if is_shared { *there >= 0 } else { *there == 0 }, "seed {seed}");
                        *there += if is_shared { 1 } else { -1 };
                    }
                    let inside = inside.clone();
                    move |stripes: &[u64]| {
                        let change = if is_shared { -1 } else { 1 };
                        stripes.iter().for_each(|stripe| {
                            *inside.borrow_mut().get_mut(stripe).expect("entered") += change;
                        });
                    }
                };
                context.spawn(scope(async move {
                    clock.sleep_ns(pause).await;
                    let guards = match kind {
                        0 => table.lock_all(stripes.clone()).await,
                        1 => table.lock_all_ahead(stripes.clone()).await,
                        2 => vec![table.lock_shared(first).await],
                        3 => table.try_lock(first).into_iter().collect(),
                        _ => {
                            if let Err(waiting) = table.enter(first, piece())
                                && matches!(waiting.await, Turn::Done(_))
                            {
                                return;
                            }
                            let leave = enter(&[first], false);
                            let taken = table.take_pieces(first, |_, _| true);
                            clock.sleep_ns(work).await;
                            leave(&[first]);
                            taken.iter().for_each(|(ticket, _)| ticket.finish(Ok(())));
                            table.leave(first);
                            return;
                        }
                    };
                    let held = if kind < 2 { &stripes[..] } else { &stripes[..guards.len()] };
                    let leave = enter(held, kind == 2);
                    clock.sleep_ns(work).await;
                    leave(held);
                }))
            })
            .collect();
        executor.block_on(async {
            let all = async {
                for task in tasks {
                    task.await;
                }
            };
            let ended = context.time_limit_ns(1_000_000, std::pin::pin!(all)).await;
            assert!(ended.is_ok(), "seed {seed}: some requests never got their turn");
        });
        assert!(table.is_idle(), "seed {seed}");
    }
}
