//! A thread with drives in memory, for arrays of this one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use stripewise_array::{ArrayThread, Member, MemberOptions, PoolSite};
use stripewise_drive::{
    BufferPool, Context, Delay, Drive, Event, FaultyDrive, MemoryDrive, Shard, SplitMix64,
};
use stripewise_runtime::{RealExecutor, Visitor};

/// Number of drives of each thread.
pub const DRIVES: usize = 4;
const DRIVE_BYTES: u64 = 32 << 20;

/// State of the thread.
pub struct OnThread {
    pub drives: Vec<Rc<FaultyDrive>>,
    pub members: RefCell<Vec<Rc<Member>>>,
    ends: Cell<bool>,
    changed: Event,
}

thread_local! {
    static STATE: RefCell<Option<Rc<OnThread>>> = const { RefCell::new(None) };
}

/// State of the thread that this runs on.
pub fn on_thread() -> Rc<OnThread> {
    STATE.with_borrow(Clone::clone).expect("a thread with drives")
}

impl OnThread {
    fn new(context: &Context) -> Rc<Self> {
        let drive = |number| {
            let image = MemoryDrive::new(&format!("drive{number}"), DRIVE_BYTES);
            let drive = FaultyDrive::new(context, image, number);
            drive.set_delay(Delay::Exponential { mean_ns: 20_000 });
            drive
        };
        let drives = (0..DRIVES as u64).map(drive).collect();
        let (members, ends, changed) = (RefCell::default(), Cell::new(false), Event::new());
        Rc::new(Self { drives, members, ends, changed })
    }

    /// New queues in front of the drives, which the pool of `site` has.
    pub fn open_members(&self, site: &PoolSite) -> Vec<Rc<Member>> {
        let open = |drive: &Rc<FaultyDrive>| {
            let member =
                Member::new(site.context(), drive.clone() as Rc<dyn Drive>, MemberOptions::default());
            site.add_member(member.clone());
            member
        };
        self.members.replace(self.drives.iter().map(open).collect());
        self.members.borrow().clone()
    }
}

/// Runs `work` here while another thread is there for its arrays.
pub fn with_shard(work: impl AsyncFnOnce(&Context, &BufferPool, &Arc<dyn Shard>)) {
    let (started, visitor) = channel();
    let thread = thread::spawn(move || {
        let executor = RealExecutor::new().expect("io_uring");
        let (context, buffers) = (executor.context(), BufferPool::new(8 << 20));
        let state = OnThread::new(&context);
        STATE.set(Some(state.clone()));
        let entered = ArrayThread::enter(&context, &buffers);
        started.send(executor.visitor()).expect("awaited");
        executor.block_on(async {
            while !state.ends.get() {
                state.changed.wait().await;
            }
        });
        drop(entered);
        drop(STATE.take());
    });
    let visitor: Visitor = visitor.recv().expect("it starts");
    let shard: Arc<dyn Shard> = Arc::new(visitor.clone());
    let executor = RealExecutor::new().expect("io_uring");
    let (context, buffers) = (executor.context(), BufferPool::new(8 << 20));
    executor.block_on(async { work(&context, &buffers, &shard).await });
    let end = || {
        let state = on_thread();
        state.ends.set(true);
        state.changed.notify_all();
    };
    visitor.visit(end).expect("it runs");
    thread.join().expect("no panic");
}

/// Bytes from a seed.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| random.next_u64() as u8).collect()
}
