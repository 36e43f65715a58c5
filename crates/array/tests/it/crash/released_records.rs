//! A region is discarded and rewritten while the batch that records the release of older records of
//! the region is in flight, or while the checkpoint that allows their release is running. The first
//! write of a region is in no journal: if power is cut before that batch has landed, the older
//! records must not be replayed over it.
//!
//! Invariant I16 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, shape};
use crate::kit::linear::{LinearSpec, SlotInit};
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{
    BufferPool, Cause, Completion, CompletionSender, Context, CrashDrive, Drive, DriveInfo, IoRequest,
    Operation, completion,
};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const WIDTH: usize = 3;
/// Data sectors of a region: 1 MiB on each of two drives.
const REGION_SECTORS: u64 = 2 * MIB / SECTOR;
const STRIPE_SECTORS: u64 = 2 * 16384 / SECTOR;
const BLOCK_SECTORS: u64 = 8;

/// A drive that, on request, holds back writes to its journal area, or those of checksum pages.
struct HoldingDrive {
    drive: Rc<CrashDrive>,
    journal: Range<u64>,
    holds: Cell<bool>,
    holds_pages: Cell<bool>,
    held: RefCell<Vec<(IoRequest, CompletionSender)>>,
}

impl HoldingDrive {
    fn release(&self) {
        self.holds.set(false);
        self.holds_pages.set(false);
        for (request, sender) in self.held.take() {
            match self.drive.submit(request).try_take() {
                Ok(result) => sender.complete(result),
                Err(_) => panic!("it answers at once"),
            }
        }
    }
}

impl Drive for HoldingDrive {
    fn info(&self) -> &DriveInfo {
        self.drive.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let is_write = matches!(request.operation, Operation::Write { .. });
        let is_held = (self.holds.get() && self.journal.contains(&request.offset_bytes))
            || (self.holds_pages.get() && request.cause == Cause::Checksums);
        if !(is_write && is_held) {
            return self.drive.submit(request);
        }
        let (sender, answer) = completion();
        self.held.borrow_mut().push((request, sender));
        answer
    }
}

fn spec(checksums: bool) -> LinearSpec {
    LinearSpec {
        id: 9,
        shape: shape("raid5", WIDTH, 16384),
        base_bytes: MIB,
        space_bytes: 12 * MIB,
        journal_slabs: 2,
        write_back: false,
        checksums,
    }
}

async fn write(array: &Array, first: u64, sectors: u64, version: u32) {
    array.write(first * SECTOR, Model::data(first, sectors, version), false).await.expect("a write");
}

/// Creates an array with two regions that hold durable data.
async fn new_array(context: &Context, drives: &[Rc<HoldingDrive>], checksums: bool) -> Array {
    let buffers = BufferPool::new(8 << 20);
    let member = |drive: &Rc<HoldingDrive>| Member::new(context, drive.clone(), MemberOptions::default());
    let slots = drives.iter().map(|drive| SlotInit::Active(member(drive))).collect();
    let init = spec(checksums).init(slots).expect("possible");
    let array = Array::create(context, &buffers, init, Rc::new(NoHost), ArrayOptions::default());
    let array = array.await.expect("a new array");
    write(&array, 0, 2 * REGION_SECTORS, 1).await;
    array.flush().await.expect("a flush");
    array
}

/// Discards the first region and rewrites it, as far as that gets while drives hold back writes.
/// `true` if it was acknowledged.
async fn discarded_and_written(
    context: &Context,
    array: &Array,
    drives: &[Rc<HoldingDrive>],
    releases: bool,
) -> bool {
    let is_done = Rc::new(Cell::new(false));
    let (other, done) = (array.clone(), is_done.clone());
    let _discarding = context.spawn(async move {
        other.discard(0, REGION_SECTORS * SECTOR).await.expect("a discard");
        write(&other, 0, REGION_SECTORS, 4).await;
        other.flush().await.expect("a flush");
        done.set(true);
    });
    context.sleep_ns(100_000_000).await;
    if releases {
        drives.iter().for_each(|drive| drive.release());
        context.sleep_ns(100_000_000).await;
    }
    is_done.get()
}

async fn during_a_batch(context: &Context, drives: &[Rc<HoldingDrive>], releases: bool) -> bool {
    let array = new_array(context, drives, false).await;
    // A record of a region that the map does not have as written: as long as it is needed, later
    // batches are kept.
    write(&array, 2 * REGION_SECTORS, BLOCK_SECTORS, 1).await;
    write(&array, 2 * REGION_SECTORS, BLOCK_SECTORS, 2).await;
    // The record that must not be replayed, and one of another region.
    write(&array, 0, BLOCK_SECTORS, 2).await;
    write(&array, REGION_SECTORS, BLOCK_SECTORS, 2).await;
    drives.iter().for_each(|drive| drive.holds.set(true));
    // A full stripe write: the drives are flushed first, so both records are released, and the
    // batch now in flight records that.
    let other = array.clone();
    let _writer = context.spawn(async move { write(&other, REGION_SECTORS, STRIPE_SECTORS, 3).await });
    context.sleep_ns(1_000_000).await;
    assert!(
        drives.iter().filter(|drive| !drive.held.borrow().is_empty()).count() == 2,
        "a batch in two areas"
    );
    discarded_and_written(context, &array, drives, releases).await
}

async fn during_a_checkpoint(context: &Context, drives: &[Rc<HoldingDrive>], releases: bool) -> bool {
    let array = new_array(context, drives, true).await;
    // The record that must not be replayed, and one of another region.
    write(&array, 0, BLOCK_SECTORS, 2).await;
    write(&array, REGION_SECTORS, BLOCK_SECTORS, 2).await;
    array.flush().await.expect("a flush");
    drives.iter().for_each(|drive| drive.holds_pages.set(true));
    // Releases records, for which their checksums become durable.
    let other = array.clone();
    let _discarding =
        context.spawn(async move { other.discard(REGION_SECTORS * SECTOR, REGION_SECTORS * SECTOR).await });
    context.sleep_ns(1_000_000).await;
    assert!(drives.iter().any(|drive| !drive.held.borrow().is_empty()), "a checkpoint is running");
    discarded_and_written(context, &array, drives, releases).await
}

fn cut_in_flight(during_a_checkpoint_instead: bool, releases: bool, seed: u64) -> bool {
    let spec = spec(during_a_checkpoint_instead);
    let journal_end = spec.data_base_bytes().expect("possible");
    let journal = journal_end - spec.journal_slabs * spec.array_spec().slab_bytes..journal_end;
    let capacity = spec.base_bytes + spec.space_bytes;
    let drives: Vec<Rc<HoldingDrive>> = (0..WIDTH)
        .map(|number| {
            let drive = CrashDrive::new(&format!("crash{number}"), capacity);
            let (holds, holds_pages, held) = (Cell::new(false), Cell::new(false), RefCell::default());
            Rc::new(HoldingDrive { drive, journal: journal.clone(), holds, holds_pages, held })
        })
        .collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let is_done = match during_a_checkpoint_instead {
        true => executor.block_on(during_a_checkpoint(&context, &drives, releases)),
        false => executor.block_on(during_a_batch(&context, &drives, releases)),
    };
    let images: Vec<Rc<dyn Drive>> = (0..)
        .zip(&drives)
        .map(|(number, drive)| {
            drive.drive.image_after_cut(&format!("after{number}"), seed + number) as Rc<dyn Drive>
        })
        .collect();

    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let member = |drive: &Rc<dyn Drive>| Member::new(&context, drive.clone(), MemberOptions::default());
        let init = spec.init(images.iter().map(|drive| SlotInit::Active(member(drive))).collect());
        let (init, options) = (init.expect("possible"), ArrayOptions::default());
        let array = Array::open(&context, &buffers, init, Rc::new(NoHost), options).await.expect("it opens");
        let expected = Model::new(array.capacity_bytes());
        expected.set(0, REGION_SECTORS, if is_done { 4 } else { 1 });
        if !is_done {
            // Not even begun: the old contents are intact.
            expected.set(0, BLOCK_SECTORS, 2);
        }
        let found = array.read(0, (REGION_SECTORS * SECTOR) as usize).await.expect("a read");
        expected.check(0, &found, seed, &format!("released: {releases}, done: {is_done}"));
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!(report.unattributed_blocks, 0, "{report:?}");
    });
    is_done
}

#[test]
fn region_rewrite_waits_for_durable_release() {
    for seed in 0..4 {
        cut_in_flight(false, false, 10 * seed);
        assert!(cut_in_flight(false, true, 10 * seed), "it continues when the batch has landed");
    }
}

#[test]
fn region_rewrite_waits_for_the_checkpoint() {
    for seed in 0..4 {
        cut_in_flight(true, false, 10 * seed);
        assert!(cut_in_flight(true, true, 10 * seed), "it continues when the checkpoint has ended");
    }
}
