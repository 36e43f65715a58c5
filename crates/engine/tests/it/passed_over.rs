//! A write that passes over rows of a stripe between two that it changes: of these its record in
//! the journal has the sums only, and what they hold is in the record before it alone. After a cut
//! that took both from the drives nothing of either is missing, parity neither.
//!
//! Invariant I13 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, shape};
use stripewise_drive::{BufferPool, CrashDrive, Drive};
use stripewise_engine::linear::{LinearSpec, SlotInit};
use stripewise_engine::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const WIDTH: usize = 3;
const STRIP: u64 = 16384;
const BLOCK: u64 = 4096;
const SEEDS: u64 = 24;

fn spec() -> LinearSpec {
    LinearSpec {
        id: 9,
        shape: shape("raid5", WIDTH, STRIP),
        base_bytes: MIB,
        space_bytes: 12 * MIB,
        journal_slabs: 2,
        write_back: false,
        checksums: true,
    }
}

#[test]
fn what_a_write_passes_over_is_restored_from_the_record_before_it() {
    let capacity = spec().base_bytes + spec().space_bytes;
    let drives: Vec<Rc<CrashDrive>> =
        (0..WIDTH).map(|number| CrashDrive::new(&format!("crash{number}"), capacity)).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let expected = Model::new(4 * MIB);
    let array = executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let member = |drive: &Rc<CrashDrive>| Member::new(&context, drive.clone(), MemberOptions::default());
        let init = spec().init(drives.iter().map(|drive| SlotInit::Active(member(drive))).collect());
        let (init, options) = (init.expect("possible"), ArrayOptions::default());
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), options).await.expect("made");
        let write = async |from: u64, bytes: u64, version: u32| {
            let (first, sectors) = (from / SECTOR, bytes / SECTOR);
            array.write(first * SECTOR, Model::data(first, sectors, version), false).await.expect("a write");
            expected.set(first, sectors, version);
        };
        write(0, 4 * MIB, 1).await;
        array.flush().await.expect("a flush");
        write(BLOCK, BLOCK, 2).await;
        // The end of a strip and the beginning of the next: the first row and the last.
        write(STRIP - BLOCK, 2 * BLOCK, 3).await;
        array.clone()
    });
    for seed in 0..SEEDS {
        let image = |(number, drive): (u64, &Rc<CrashDrive>)| {
            drive.image_after_cut(&format!("after{number}"), seed * WIDTH as u64 + number) as Rc<dyn Drive>
        };
        let images: Vec<Rc<dyn Drive>> = (0..).zip(&drives).map(image).collect();
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let buffers = BufferPool::new(8 << 20);
            let member =
                |drive: &Rc<dyn Drive>| Member::new(&context, drive.clone(), MemberOptions::default());
            let init = spec().init(images.iter().map(|drive| SlotInit::Active(member(drive))).collect());
            let (init, options) = (init.expect("possible"), ArrayOptions::default());
            let array =
                Array::open(&context, &buffers, init, Rc::new(NoHost), options).await.expect("it opens");
            let found = array.read(0, 4 * MIB as usize).await.expect("a read");
            expected.check(0, &found, seed, "after the cut");
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert!(report.blamed.is_empty() && report.unattributed_blocks == 0, "{seed}: {report:?}");
        });
    }
    drop(array);
}
