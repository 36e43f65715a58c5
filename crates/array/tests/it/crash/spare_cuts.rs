//! Power is cut after a missing column counts as current again. Journal records from before its
//! loss, with data or parity of that column, must not be replayed over what was written without it.
//!
//! Invariant I15 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, shape};
use crate::kit::linear::{LinearSpec, SlotInit, rebuild};
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{BufferPool, CrashDrive, Drive};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const BLOCK_SECTORS: u64 = 8;
/// Sectors that are compared: some stripes of the first region.
const SECTORS: u64 = 512;

/// Time, relative to the filling, of the client's flush, which releases the records of its writes:
/// in memory, and durably only with the next append to the journal.
#[derive(Clone, Copy, Debug)]
enum Flush {
    Before,
    After,
    /// As `After`, and the region's first flush: until then the records are needed, since the map
    /// does not have the region as written.
    FirstAfter,
}

/// Writes a block, replaces a drive, writes the block again, fills the new drive, and cuts power.
fn cut_after_filling(spec: &LinearSpec, column: usize, flush: Flush, seed: u64) {
    let what = format!("column {column} of {:?}, flush {flush:?}", spec.shape);
    let capacity = spec.base_bytes + spec.space_bytes;
    let new_drive = |name: String| CrashDrive::new(&name, capacity);
    let mut drives: Vec<Rc<CrashDrive>> =
        (0..spec.shape.width).map(|number| new_drive(format!("crash{number}"))).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let member = |drive: &Rc<CrashDrive>| Member::new(&context, drive.clone(), MemberOptions::default());
    executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let slots = drives.iter().map(|drive| SlotInit::Active(member(drive))).collect();
        let init = spec.init(slots).expect("possible");
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("a new array");
        array.write(0, Model::data(0, SECTORS, 1), false).await.expect("a write");
        if !matches!(flush, Flush::FirstAfter) {
            array.flush().await.expect("a flush");
        }
        array.write(0, Model::data(0, BLOCK_SECTORS, 2), false).await.expect("a write");
        drives[column] = new_drive("spare".to_owned());
        spec.attach(&array, column, member(&drives[column])).await.expect("a new drive");
        array.write(0, Model::data(0, BLOCK_SECTORS, 3), false).await.expect("a write");
        if matches!(flush, Flush::Before) {
            array.flush().await.expect("a flush");
        }
        rebuild(&array).await.expect("it can be filled");
        if !matches!(flush, Flush::Before) {
            array.flush().await.expect("a flush");
        }
    });
    let images: Vec<Rc<dyn Drive>> = (drives.iter().enumerate())
        .map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), seed + i as u64) as Rc<dyn Drive>)
        .collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let member = |drive: &Rc<dyn Drive>| Member::new(&context, drive.clone(), MemberOptions::default());
        let slots = images.iter().map(|drive| SlotInit::Active(member(drive))).collect();
        let init = spec.init(slots).expect("possible");
        let array = Array::open(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("it opens");
        let expected = Model::new(array.capacity_bytes());
        expected.set(0, SECTORS, 1);
        expected.set(0, BLOCK_SECTORS, 3);
        let found = array.read(0, (SECTORS * SECTOR) as usize).await.expect("a read");
        expected.check(0, &found, seed, &what);
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "{what}: {report:?}");
        assert_eq!((report.checksum_errors, report.pages_lost), (0, 0), "{what}: {report:?}");
    });
}

fn in_every_column(checksums: bool, layouts: &[(&str, usize)], flush: Flush) {
    for &(level, width) in layouts {
        let shape = shape(level, width, 16384);
        let spec = LinearSpec {
            id: 7,
            shape,
            base_bytes: MIB,
            space_bytes: 8 * MIB,
            journal_slabs: 2,
            // Every write is in place when it is acknowledged; its record is live until the next
            // flush.
            write_back: false,
            checksums,
        };
        for column in 0..width {
            for seed in 0..2 {
                cut_after_filling(&spec, column, flush, seed);
            }
        }
    }
}

const WITH_PARITY: [(&str, usize); 4] = [("raid4", 3), ("raid5", 3), ("raid5", 5), ("raid6", 5)];
const WITHOUT_PARITY: [(&str, usize); 2] = [("raid1", 2), ("raid10", 4)];

#[test]
fn released_records_do_not_overwrite_a_filled_column() {
    in_every_column(false, &WITH_PARITY, Flush::Before);
}

#[test]
fn live_records_do_not_overwrite_a_filled_column() {
    in_every_column(false, &WITH_PARITY, Flush::After);
}

#[test]
fn records_of_unmapped_regions_spare_a_filled_column() {
    in_every_column(false, &WITH_PARITY, Flush::FirstAfter);
}

#[test]
fn checksummed_records_spare_a_filled_column() {
    for flush in [Flush::Before, Flush::After, Flush::FirstAfter] {
        in_every_column(true, &WITH_PARITY, flush);
        in_every_column(true, &WITHOUT_PARITY, flush);
    }
}
