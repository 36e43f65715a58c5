//! A write that passes over rows of a stripe between two that it changes: of these its record in
//! the journal has the sums only, and what they hold is in the record before it alone. After a cut
//! that took both from the drives nothing of either is missing, parity neither.
//!
//! Invariant I13 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, SECTOR};
use crate::kit::cut_drives::{BLOCK, CutDrives, STRIP, init_on, small_array};
use stripewise_array::{Array, ArrayOptions, NoHost};
use stripewise_drive::BufferPool;
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const SEEDS: u64 = 24;

#[test]
fn skipped_rows_are_restored_from_the_earlier_record() {
    let spec = small_array(false);
    let drives = CutDrives::for_array(&spec);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let expected = Model::new(4 * MIB);
    let array = executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let (init, options) = (init_on(&context, &spec, &drives.as_drives()), ArrayOptions::default());
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
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let buffers = BufferPool::new(8 << 20);
            let (init, options) =
                (init_on(&context, &spec, &drives.after_cut(seed)), ArrayOptions::default());
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
