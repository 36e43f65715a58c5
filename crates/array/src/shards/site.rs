//! Arrays of a pool on another shard, as the shard's thread has them: by numbers, since the home
//! cannot hold what belongs to another thread.
//!
//! Expected faults: a home that ends before its arrays were closed (as when a pool is dropped: the
//! arrays and drives of it are dropped here).

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_drive::{Answerer, BufferPool, Context, Delivery, HalfPort, Port};

use crate::array::Array;
use crate::array::host::{ArrayHost, HostRequest, LocalFuture};
use crate::member::gate::Gate;
use crate::member::{Member, MemberLabel};
use crate::stripes::lock_order;

/// The result of work, whose type its sender knows.
pub(crate) type Outcome = Box<dyn Any + Send>;

/// Work for a shard.
pub(crate) type Work = Box<dyn FnOnce(Rc<PoolSite>) -> LocalFuture<'static, Outcome> + Send>;

/// A message from the home.
pub(crate) enum ToShard {
    /// Answered by [`ToHome::Done`].
    Work(Work),
    /// The pool needs the array of this number no more.
    Forget(u64),
    /// The answer to a request of an array.
    Answer(Result<(), String>),
}

/// A message to the home.
pub(crate) enum ToHome {
    /// The result of work.
    Done(Outcome),
    /// A request of the array with this identity; answered by [`ToShard::Answer`].
    Ask(u128, HostRequest),
}

thread_local! {
    /// Clock and buffers of a thread that has entered.
    static THREAD: RefCell<Option<(Context, BufferPool)>> = const { RefCell::new(None) };
    /// Sites on this thread, by number.
    static SITES: RefCell<BTreeMap<u64, Weak<PoolSite>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Number of the next site, on any thread.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A thread that may have arrays of pools of other threads, until this is dropped.
pub struct ArrayThread(());

impl ArrayThread {
    /// Makes this thread one that may have arrays. They use this clock and these buffers.
    pub fn enter(context: &Context, buffers: &BufferPool) -> Self {
        let before = THREAD.replace(Some((context.clone(), buffers.clone())));
        assert!(before.is_none(), "a thread is entered once");
        Self(())
    }

    /// Clock and buffers of this thread.
    pub fn this() -> (Context, BufferPool) {
        THREAD.with_borrow(Clone::clone).expect("arrays are sent to threads that have entered")
    }
}

impl Drop for ArrayThread {
    fn drop(&mut self) {
        drop(THREAD.take());
    }
}

/// The site with this number, if it is on this thread.
pub(crate) fn known(number: u64) -> Option<Rc<PoolSite>> {
    SITES.with_borrow(|sites| sites.get(&number).and_then(Weak::upgrade))
}

/// The array with this number at the site with this number, if both are on this thread.
pub(crate) fn array(site: u64, number: u64) -> Option<Array> {
    let site = known(site)?;
    let arrays = site.arrays.borrow();
    arrays.get(&number).cloned()
}

/// Place of an array that is on another thread than its pool. It can be sent to any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayPlace {
    pub(crate) site: u64,
    pub(crate) number: u64,
}

impl ArrayPlace {
    /// The array, if it is on this thread and its pool has it still.
    pub fn array(self) -> Option<Array> {
        array(self.site, self.number)
    }
}

/// The arrays of one pool on a shard.
pub struct PoolSite {
    number: u64,
    context: Context,
    buffers: BufferPool,
    host: Rc<FarHost>,
    arrays: RefCell<BTreeMap<u64, Array>>,
    next: Cell<u64>,
    /// Gate before the drives.
    gate: OnceCell<Rc<dyn Gate>>,
}

impl PoolSite {
    /// Begins to serve a pool on this thread, until the home closes the link. `pool`: the pool
    /// itself, if it is on this thread, too. Gives the site's number.
    pub(crate) fn open(
        (context, buffers): (Context, BufferPool),
        link: HalfPort<ToHome, ToShard>,
        delivery: Delivery,
        pool: Option<Rc<dyn ArrayHost>>,
    ) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = link.open(&context, delivery);
        let host = Rc::new(FarHost { home, members: RefCell::default(), pool });
        let (of_task, arrays, next) = (context.clone(), RefCell::default(), Cell::new(0));
        let gate = OnceCell::new();
        let site = Rc::new(Self { number, context, buffers, host, arrays, next, gate });
        SITES.with_borrow_mut(|sites| sites.insert(number, Rc::downgrade(&site)));
        drop(of_task.spawn(async move { site.serve().await }));
        number
    }

    async fn serve(self: Rc<Self>) {
        let noted = |note| match note {
            ToShard::Forget(number) => self.forget(number),
            ToShard::Work(_) | ToShard::Answer(_) => unreachable!("work and an answer are no notes"),
        };
        let called = |call, answerer: Answerer<ToHome>| {
            let ToShard::Work(work) = call else { unreachable!("the home calls for work only") };
            let site = self.clone();
            // Work of the home is a sequence of its own here.
            drop(self.context.spawn(lock_order::scope(async move {
                answerer.answer(ToHome::Done(work(site).await));
            })));
        };
        self.host.home.serve(noted, called).await;
        self.host.release_members();
        let arrays = self.arrays.take();
        drop(arrays);
        self.host.home.close();
    }

    /// The clock and tasks of the shard.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Buffers of the shard.
    pub fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// The pool, for arrays here.
    pub fn host(&self) -> Rc<dyn ArrayHost> {
        self.host.clone()
    }

    /// A drive of the pool is at hand here.
    pub fn add_member(&self, member: Rc<Member>) {
        self.host.members.borrow_mut().push(member);
    }

    /// The gate before the drives; made first if there is none.
    pub(crate) fn gate(
        &self,
        make: impl FnOnce(&Context, Rc<dyn ArrayHost>) -> Rc<dyn Gate>,
    ) -> Rc<dyn Gate> {
        self.gate.get_or_init(|| make(&self.context, self.host())).clone()
    }

    /// Lets go of a drive, which has failed or has no requests.
    pub(crate) fn end_member(&self, label: &MemberLabel) {
        let member = {
            let mut members = self.host.members.borrow_mut();
            let index = members.iter().position(|own| Arc::ptr_eq(own.label(), label));
            index.map(|index| members.swap_remove(index))
        };
        if let Some(member) = member {
            member.stop();
            member.release();
        }
    }

    /// Keeps an array here, and gives its number.
    pub(crate) fn keep(&self, array: Array) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        self.arrays.borrow_mut().insert(number, array);
        number
    }

    fn forget(&self, number: u64) {
        // Dropped outside the borrow: an array has much to drop.
        let array = self.arrays.borrow_mut().remove(&number);
        drop(array);
    }
}

impl Drop for PoolSite {
    fn drop(&mut self) {
        // Not reachable during the thread's end: then nothing is found any more.
        let _ = SITES.try_with(|sites| sites.borrow_mut().remove(&self.number));
    }
}

/// The pool of arrays on another shard.
struct FarHost {
    home: Rc<Port<ToHome, ToShard>>,
    /// The queues of the pool's drives on this thread.
    members: RefCell<Vec<Rc<Member>>>,
    /// The pool itself, if it is on this thread, too: its queues are those of the arrays.
    pool: Option<Rc<dyn ArrayHost>>,
}

impl FarHost {
    /// The pool is closed, or was dropped.
    fn release_members(&self) {
        for member in self.members.take() {
            member.fail("the pool was dropped");
            member.stop();
            member.release();
        }
    }
}

impl ArrayHost for FarHost {
    fn ask(&self, array: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match self.home.call(ToHome::Ask(array, request)).await {
                Some(ToShard::Answer(answer)) => answer,
                Some(_) => unreachable!("the answer to a request is its outcome"),
                None => Err("the pool is closed".to_owned()),
            }
        })
    }

    fn member(&self, drive: &MemberLabel) -> Option<Rc<Member>> {
        let own = self.members.borrow().iter().find(|own| Arc::ptr_eq(own.label(), drive)).cloned();
        own.or_else(|| self.pool.as_ref()?.member(drive))
    }
}
