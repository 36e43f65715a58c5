//! The order in which the engine may wait for resources; debug builds assert it.
//!
//! A wait is allowed only for a resource that comes *after* everything that the waiting code holds:
//!
//! 1. a request's admission, a range of a volume in conversion, the right to change drives or
//!    volumes;
//! 2. stripes: all at once and holding none ([`StripeTable::lock_all`]; a write leads each of its
//!    stripes separately, and no stripe it leads waits for another one);
//! 3. room in the journal for a write in place: holding only stripes that have nothing pending and
//!    that were written before;
//! 4. the completion of regions and the flush that records them as written ([`Inner::flush`]):
//!    holding no stripe. It locks stripes that were never written ahead of all that wait for them;
//! 5. room in the journal for destaging: the journal reserves it (`journal/space.rs`);
//! 6. checksum pages, pages of the region map, commits of the pool, drives.
//!
//! Room becomes free when the journal's oldest records are released. These need 4 if their region
//! is not recorded as written yet, or else 5 for a stripe that is free, reserved, or held by code
//! that waits for nothing before 5. So there is no cycle.
//!
//! [`scope`] marks one sequence of work. Scopes nest as futures do: stripes held by an outer scope
//! count for an inner one, which it waits for. Work that is joined with other work needs a scope of
//! its own, because the other work releases its stripes independently. Release builds check
//! nothing.
//!
//! [`StripeTable::lock_all`]: crate::stripes::stripe_table::StripeTable::lock_all
//! [`Inner::flush`]: crate::array::Inner::flush

#[cfg(debug_assertions)]
pub use checked::scope;
#[cfg(debug_assertions)]
pub(crate) use checked::{Holding, assert_holds_only, took};
#[cfg(not(debug_assertions))]
pub use unchecked::scope;
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Holding, assert_holds_only, took};

/// A table of stripes, identified by its address.
pub(crate) trait Stripes {}

/// Asserts, before a wait, that no stripe of the table is held.
pub(crate) fn assert_holds_none(table: &impl Stripes, wait: &str) {
    assert_holds_only(table, wait, |_| false);
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::rc::Rc;

    use super::Stripes;

    thread_local! {
        static CURRENT: RefCell<Option<Rc<Scope>>> = const { RefCell::new(None) };
    }

    /// Stripes held by one sequence of work, as table and stripe.
    struct Scope {
        held: RefCell<Vec<(usize, u64)>>,
        outer: Option<Rc<Scope>>,
    }

    /// Makes a scope the current one until this is dropped.
    struct Entered(Option<Rc<Scope>>);

    impl Entered {
        fn enter(scope: &Rc<Scope>) -> Self {
            Self(CURRENT.replace(Some(scope.clone())))
        }
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            CURRENT.replace(self.0.take());
        }
    }

    /// Runs a future as one sequence of work. Its outer scope is determined when it first runs: a
    /// spawned task has none.
    pub async fn scope<F: Future>(work: F) -> F::Output {
        let outer = CURRENT.with_borrow(Clone::clone);
        let scope = Rc::new(Scope { held: RefCell::default(), outer });
        let mut work = pin!(work);
        poll_fn(|context| {
            let _entered = Entered::enter(&scope);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Records that a stripe is held until this is dropped, in whichever scope.
    pub(crate) struct Holding {
        scope: Rc<Scope>,
        table: usize,
        stripe: u64,
    }

    impl Drop for Holding {
        fn drop(&mut self) {
            let mut held = self.scope.held.borrow_mut();
            let index = held.iter().position(|held| *held == (self.table, self.stripe));
            held.swap_remove(index.expect("noted when it was taken"));
        }
    }

    fn name_of(table: &impl Stripes) -> usize {
        std::ptr::from_ref(table).addr()
    }

    /// Records that the current scope has taken a stripe.
    pub(crate) fn took(table: &impl Stripes, stripe: u64) -> Holding {
        let scope =
            CURRENT.with_borrow(Clone::clone).expect("stripes are taken in a scope (stripes/lock_order.rs)");
        let table = name_of(table);
        scope.held.borrow_mut().push((table, stripe));
        Holding { scope, table, stripe }
    }

    /// Asserts, before a wait, that only allowed stripes of this table are held.
    pub(crate) fn assert_holds_only(table: &impl Stripes, wait: &str, may_be: impl Fn(u64) -> bool) {
        let mut next = CURRENT.with_borrow(Clone::clone);
        while let Some(scope) = next {
            for &(held, stripe) in scope.held.borrow().iter() {
                assert!(
                    held != name_of(table) || may_be(stripe),
                    "lock order: waits for {wait} while it holds stripe {stripe} (stripes/lock_order.rs)"
                );
            }
            next = scope.outer.clone();
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::Stripes;

    /// Stand-in for a held stripe.
    pub(crate) struct Holding;

    /// Returns the work as it is: only builds with debug assertions check the order.
    pub fn scope<F: Future>(work: F) -> F {
        work
    }

    pub(crate) fn took(_: &impl Stripes, _: u64) -> Holding {
        Holding
    }

    pub(crate) fn assert_holds_only(_: &impl Stripes, _: &str, _: impl Fn(u64) -> bool) {}
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use futures_util::future::join;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    /// Has a size, because two values without one may have the same address.
    #[derive(Default)]
    struct Table {
        _size: u64,
    }

    impl Stripes for Table {}

    fn refuses(work: impl Future<Output = ()>) -> bool {
        let executor = VirtualExecutor::new();
        catch_unwind(AssertUnwindSafe(|| executor.block_on(scope(work)))).is_err()
    }

    #[test]
    fn waiting_while_holding_a_stripe_is_refused() {
        let (table, other) = (Table::default(), Table::default());
        assert!(refuses(async {
            let _held = took(&table, 7);
            assert_holds_none(&table, "a test");
        }));
        assert!(refuses(async {
            let _held = took(&table, 7);
            scope(async { assert_holds_none(&table, "a test") }).await;
        }));
        assert!(!refuses(async {
            let held = took(&table, 7);
            assert_holds_none(&other, "a test");
            assert_holds_only(&table, "a test", |stripe| stripe == 7);
            drop(held);
            assert_holds_none(&table, "a test");
        }));
    }

    #[test]
    fn work_that_is_joined_or_spawned_does_not_count() {
        let table = Table::default();
        assert!(!refuses(async {
            let (event, wait) = (stripewise_drive::Event::new(), stripewise_drive::Event::new());
            let holder = scope(async {
                let _held = took(&table, 1);
                let until = wait.wait();
                event.notify_all();
                until.await;
            });
            let waiter = scope(async {
                event.wait().await;
                assert_holds_none(&table, "a test");
                wait.notify_all();
            });
            join(waiter, holder).await;
        }));
    }

    #[test]
    fn stripe_is_released_in_any_scope() {
        let table = Table::default();
        assert!(!refuses(async {
            let held = scope(async { took(&table, 3) }).await;
            drop(held);
            assert_holds_none(&table, "a test");
        }));
    }
}
