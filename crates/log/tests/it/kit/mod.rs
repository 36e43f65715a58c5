//! Shared parts of the tests: logs on small drives, and a judge of their contents.

pub mod history;
#[path = "../../../../../tests/seeds.rs"]
pub mod seeds;

use std::rc::Rc;

use stripewise_array::{Member, MemberOptions};
use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive};
use stripewise_layout::{LayoutSpec, MemberSet, Shape};
use stripewise_log::{Columns, Log, LogError, LogInit, LogOptions, LogSpace, RootStore, SlotRoots};
use stripewise_runtime::VirtualExecutor;

/// Bytes of a slot of the roots.
const SLOT_BYTES: u64 = 64 << 10;
/// Identity of the log.
const IDENTITY: u64 = 7;

/// Layout and sizes of a log under test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub shape: Shape,
    pub segments: u64,
    pub options: LogOptions,
    /// Size of the volume as a share of the data that clients may store.
    pub fill: f64,
}

/// Takes a snapshot of a volume.
pub async fn take_snapshot(log: &Log, name: &str) -> Result<(), LogError> {
    Log::create_snapshots(&[(log.clone(), name.to_owned())], 0).await
}

/// Deletes a snapshot of a volume.
pub async fn delete_snapshot(log: &Log, name: &str) -> Result<(), LogError> {
    log.delete_snapshots(&[name.to_owned()]).await
}

/// Drives in memory as the log takes them.
pub fn dynamic(drives: &[Rc<MemoryDrive>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

pub fn shape(level: &str, width: usize, interleave_bytes: u64) -> Shape {
    let spec = LayoutSpec { interleave_bytes: Some(interleave_bytes), ..LayoutSpec::parse(level).unwrap() };
    LayoutSpec { columns: Some(width), ..spec }.resolve(width).unwrap()
}

impl Setup {
    /// Segments of about 24 blocks.
    pub fn small(level: &str, width: usize) -> Self {
        let shape = shape(level, width, 4096);
        let options = LogOptions {
            segment_bytes: 96 << 10,
            planned_segments: 8,
            memory_bytes: 256 << 10,
            ..LogOptions::default()
        };
        Self { shape, segments: 100, options, fill: 1.0 }
    }

    fn space(&self) -> LogSpace {
        // Every stripe takes a strip of each of its units.
        let Self { shape, .. } = *self;
        let stripe_bytes = shape.interleave_bytes * shape.data_units() as u64;
        let stripes = self.segments
            * (self.options.segment_bytes / stripe_bytes).next_multiple_of(2 * shape.width as u64);
        let strips = stripes * shape.units() as u64 / shape.width as u64;
        let staging_bytes = (2 * self.options.segment_bytes / 4096 + 64) * 4096;
        let member_bytes = staging_bytes + strips * shape.interleave_bytes;
        LogSpace { shape, start_bytes: 2 * SLOT_BYTES, member_bytes }
    }

    /// Size of each drive, bytes.
    pub fn drive_bytes(&self) -> u64 {
        let space = self.space();
        space.start_bytes + space.member_bytes
    }

    pub async fn create(&self, context: &Context, drives: &[Rc<dyn Drive>]) -> Log {
        self.create_with(context, drives, |roots| roots).await
    }

    /// Creates a log whose roots are kept in what `kept_in` makes of the usual slots.
    pub async fn create_with(
        &self,
        context: &Context,
        drives: &[Rc<dyn Drive>],
        kept_in: impl FnOnce(Rc<SlotRoots>) -> Rc<dyn RootStore>,
    ) -> Log {
        let buffers = BufferPool::new(8 << 20);
        // A log elsewhere, to learn what clients may store.
        let others: Vec<Rc<dyn Drive>> = (0..drives.len())
            .map(|_| MemoryDrive::new("probe", self.drive_bytes()) as Rc<dyn Drive>)
            .collect();
        let (init, _) = self.init(context, &others, MemberSet::EMPTY);
        let probe = Log::create(context, &buffers, init, 1, 1 << 20, self.options).await.unwrap();
        let capacity = (probe.client_bytes() as f64 * self.fill) as u64 / 4096 * 4096;
        probe.close().await.unwrap();
        let (mut init, roots) = self.init(context, drives, MemberSet::EMPTY);
        init.roots = kept_in(roots);
        Log::create(context, &buffers, init, IDENTITY, capacity, self.options).await.unwrap()
    }

    /// Opens the log without the absent members.
    pub async fn open(
        &self,
        context: &Context,
        drives: &[Rc<dyn Drive>],
        absent: MemberSet,
    ) -> Result<Log, LogError> {
        let (mut init, roots) = self.init(context, drives, absent);
        let found = roots.load(absent).await;
        init.missing = found.missing;
        Log::open(context, &BufferPool::new(8 << 20), init, &found.roots, self.options).await
    }

    /// Records that a member misses everything: its drive is another one.
    pub async fn record_missing_in(&self, context: &Context, drives: &[Rc<dyn Drive>], member: usize) {
        let missing = [member].into_iter().collect();
        let (_, roots) = self.init(context, drives, missing);
        roots.load(missing).await;
        roots.exclude(missing).await.expect("recorded");
    }

    /// The same, while nothing else runs.
    pub fn record_missing(&self, drives: &[Rc<dyn Drive>], member: usize) {
        let executor = VirtualExecutor::new();
        executor.block_on(self.record_missing_in(&executor.context(), drives, member));
    }

    fn init(
        &self,
        context: &Context,
        drives: &[Rc<dyn Drive>],
        missing: MemberSet,
    ) -> (LogInit, Rc<SlotRoots>) {
        let member = |drive: &Rc<dyn Drive>| Member::new(context, drive.clone(), MemberOptions::default());
        let members: Vec<Rc<Member>> = drives.iter().map(member).collect();
        let columns = Columns::whole(members);
        let roots = SlotRoots::new(columns.clone(), IDENTITY, self.shape, 0, SLOT_BYTES).unwrap();
        (LogInit { space: self.space(), columns, missing, roots: roots.clone() }, roots)
    }
}
