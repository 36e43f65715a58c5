//! The way of a pool to a shard with arrays of it: visits, and messages.
//!
//! In virtual time all shards are on one thread: visits are direct calls, and messages arrive after
//! times that a seed draws. All else is the same as between threads.
//!
//! Expected faults: a shard that panics (the home then ends, too: nothing of its arrays is known).

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{Answerer, BufferPool, Context, Delivery, Port, Shard, SplitMix64, link};
use stripewise_layout::Geometry;

use crate::array::host::ArrayHost;
use crate::array::spec::ArraySpec;
use crate::array::{Array, LocalFuture};
use crate::member::Member;
use crate::member::again::Elsewhere;
use crate::member::gate::Gate;
use crate::shards::site::{self, ArrayPlace, ArrayThread, Outcome, PoolSite, ToHome, ToShard, Work};
use crate::stripes::lock_order;

/// A pool's way to one shard. When the last handle of it is dropped, the shard drops what it has of
/// the pool.
pub struct ShardLink {
    shard: Arc<dyn Shard>,
    /// Number of the pool's site there.
    site: u64,
    port: Rc<Port<ToShard, ToHome>>,
    /// Buffers of the home.
    buffers: BufferPool,
    closing: Rc<Cell<bool>>,
}

/// A shard of virtual time.
struct SameThread;

impl Shard for SameThread {
    fn visit(&self, look: &mut (dyn FnMut() + Send)) -> bool {
        look();
        true
    }
}

impl ShardLink {
    /// Opens a way to `shard`, a thread that has entered [`ArrayThread`]. Its arrays ask `host`.
    pub fn open(
        context: &Context,
        buffers: &BufferPool,
        shard: &Arc<dyn Shard>,
        host: Rc<dyn ArrayHost>,
    ) -> Rc<Self> {
        let (near, far) = link();
        let open = move || PoolSite::open(ArrayThread::this(), far, Delivery::AtOnce, None);
        let site = visit(&**shard, open);
        Self::to(context, buffers, shard.clone(), site, near.open(context, Delivery::AtOnce), host)
    }

    /// Opens a way to a shard of virtual time, with the drives of the pool behind `host`. The times
    /// of messages are drawn from `seed`.
    pub fn drawn(context: &Context, buffers: &BufferPool, seed: u64, host: Rc<dyn ArrayHost>) -> Rc<Self> {
        let (near, far) = link();
        let mut random = SplitMix64::new(seed);
        let (there, back) = (random.next_u64(), random.next_u64());
        let thread = (context.clone(), buffers.clone());
        let site = PoolSite::open(thread, far, Delivery::Drawn(back), Some(host.clone()));
        Self::to(
            context,
            buffers,
            Arc::new(SameThread),
            site,
            near.open(context, Delivery::Drawn(there)),
            host,
        )
    }

    fn to(
        context: &Context,
        buffers: &BufferPool,
        shard: Arc<dyn Shard>,
        site: u64,
        port: Rc<Port<ToShard, ToHome>>,
        host: Rc<dyn ArrayHost>,
    ) -> Rc<Self> {
        let closing = Rc::new(Cell::new(false));
        let (of_task, context_of_task, is_closing) = (port.clone(), context.clone(), closing.clone());
        drop(context.spawn(async move {
            let noted = |_| unreachable!("shards send requests only");
            let called = |call, answerer: Answerer<ToShard>| {
                let ToHome::Ask(array, request) = call else { unreachable!("a result is an answer") };
                let host = host.clone();
                // A request of an array is a sequence of its own here.
                drop(context_of_task.spawn(lock_order::scope(async move {
                    answerer.answer(ToShard::Answer(host.ask(array, request).await));
                })));
            };
            of_task.serve(noted, called).await;
            assert!(is_closing.get(), "the thread of a shard has ended on its own; its message is above");
        }));
        Rc::new(Self { shard, site, port, buffers: buffers.clone(), closing })
    }

    /// Opens a drive on the shard as well, for arrays there, until `member` lets go of it. `gate`
    /// makes the gate before the pool's drives there, once. Without effect for a drive that can be
    /// used on this thread only.
    pub fn open_member(
        &self,
        member: &Member,
        gate: impl FnOnce(&Context, Rc<dyn ArrayHost>) -> Rc<dyn Gate> + Send,
    ) {
        let Some(again) = member.for_another_thread() else { return };
        let number = self.site;
        visit(&*self.shard, || {
            let site = site::known(number).expect("a site is there as long as its link");
            let member = again.open(site.context());
            member.set_gate(site.gate(gate));
            site.add_member(member);
        });
        let (shard, label) = (self.shard.clone(), member.label().clone());
        member.ends_with(Elsewhere::new(move || {
            let mut end = || {
                if let Some(site) = site::known(number) {
                    site.end_member(&label);
                }
            };
            // A thread that has ended has no members.
            let _ = shard.visit(&mut end);
        }));
    }

    /// Runs work on the shard, to its end even if the caller is dropped.
    async fn call<F, R>(&self, work: impl FnOnce(Rc<PoolSite>) -> F + Send + 'static) -> R
    where
        F: Future<Output = R>,
        R: Send + 'static,
    {
        let work: Work = Box::new(move |site| -> LocalFuture<'static, Outcome> {
            Box::pin(async move { Box::new(work(site).await) as Outcome })
        });
        match self.port.call(ToShard::Work(work)).await {
            Some(ToHome::Done(outcome)) => *outcome.downcast().expect("the work's own result"),
            Some(ToHome::Ask(..)) => unreachable!("a request is no answer"),
            None => panic!("the thread of a shard has ended; its message is above"),
        }
    }
}

impl Drop for ShardLink {
    fn drop(&mut self) {
        self.closing.set(true);
        self.port.close();
    }
}

/// Runs `look` on the shard's thread.
fn visit<R: Send>(shard: &dyn Shard, look: impl FnOnce() -> R + Send) -> R {
    let (mut look, mut result) = (Some(look), None);
    let was_run = shard.visit(&mut || result = look.take().map(|look| look()));
    assert!(was_run, "the thread of a shard has ended; its message is above");
    result.expect("it was run")
}

/// An array on another shard, for its handles.
pub(crate) struct FarArray {
    link: Rc<ShardLink>,
    number: u64,
    spec: ArraySpec,
    geometry: Geometry,
}

impl FarArray {
    /// Its place, and its thread.
    pub(crate) fn place(&self) -> (ArrayPlace, Arc<dyn Shard>) {
        (ArrayPlace { site: self.link.site, number: self.number }, self.link.shard.clone())
    }

    /// Has an array made or opened on the shard.
    pub(crate) async fn make<F, E>(
        link: &Rc<ShardLink>,
        make: impl FnOnce(Rc<PoolSite>) -> F + Send + 'static,
    ) -> Result<Self, E>
    where
        F: Future<Output = Result<Array, E>>,
        E: Send + 'static,
    {
        let keep = async move |site: Rc<PoolSite>| {
            let array = make(site.clone()).await?;
            let (spec, geometry) = (array.spec().clone(), array.geometry().clone());
            Ok((site.keep(array), spec, geometry))
        };
        let (number, spec, geometry) = link.call(keep).await?;
        Ok(Self { link: link.clone(), number, spec, geometry })
    }

    /// The array itself, if it is on this thread.
    pub(crate) fn on_this_thread(&self) -> Option<Array> {
        site::array(self.link.site, self.number)
    }

    pub(crate) fn visit<R: Send>(&self, look: impl FnOnce(&Array) -> R + Send) -> R {
        let (site, number) = (self.link.site, self.number);
        visit(&*self.link.shard, move || look(&known(site, number)))
    }

    /// Releases stripes that are kept held. When an executor is dropped, a task may end after the
    /// array it works on.
    pub(crate) fn release_held(&self, held: u64) {
        let (site, number) = (self.link.site, self.number);
        visit(&*self.link.shard, move || {
            if let Some(array) = site::array(site, number) {
                array.release_held(held);
            }
        });
    }

    /// Runs work of the array, to its end even if the caller is dropped.
    pub(crate) async fn call<F, R>(&self, work: impl FnOnce(Array) -> F + Send + 'static) -> R
    where
        F: Future<Output = R>,
        R: Send + 'static,
    {
        let (site, number) = (self.link.site, self.number);
        self.link.call(async move |_| work(known(site, number)).await).await
    }

    /// Buffers of the home.
    pub(crate) fn buffers(&self) -> &BufferPool {
        &self.link.buffers
    }

    pub(crate) fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

/// An array that has handles.
fn known(site: u64, number: u64) -> Array {
    site::array(site, number).expect("an array is known until its last handle is dropped")
}

impl Drop for FarArray {
    fn drop(&mut self) {
        self.link.port.note(ToShard::Forget(self.number));
    }
}
