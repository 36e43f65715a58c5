//! A lost block that is written from the journal is whole in place before the pool has recorded it.
//! A cut in between finds it recorded as lost: what the journal has of it must still be there.
//!
//! Invariant I3 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, SECTOR};
use crate::kit::cut_drives::{BLOCK, CutDrives, STRIP, WIDTH, init_on, small_array};
use stripewise_array::{Array, ArrayHost, ArrayOptions, HostRequest, LocalFuture, NoHost};
use stripewise_drive::{BufferPool, Context, Drive};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
/// The block that is lost in the first column of the first stripe; in the second it is the one
/// before.
const LOST: u64 = 3;
/// Bytes that are checked after the cut; writes beyond them record released journal space.
const CHECKED: u64 = MIB;
const SEEDS: u64 = 6;

/// A host that cannot write its records.
struct RecordsNothing;

impl ArrayHost for RecordsNothing {
    fn ask(&self, _: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        let is_record = matches!(request, HostRequest::RecordLost | HostRequest::RecordLosses);
        let answer = if is_record { Err("not now".to_owned()) } else { Ok(()) };
        Box::pin(std::future::ready(answer))
    }
}

async fn open(context: &Context, drives: &[Rc<dyn Drive>], host: Rc<dyn ArrayHost>) -> Array {
    let buffers = BufferPool::new(8 << 20);
    let mut init = init_on(context, &small_array(true), drives);
    init.lost_blocks = (0..WIDTH - 1).map(|column| (column, LOST - column as u64)).collect();
    Array::open(context, &buffers, init, host, ArrayOptions::default()).await.expect("it opens")
}

#[test]
fn journal_keeps_a_repair_until_it_is_recorded() {
    let spec = small_array(true);
    let drives = CutDrives::for_array(&spec);
    let expected = Model::new(4 * MIB);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let block = |from: u64, version| Model::data(from / SECTOR, BLOCK / SECTOR, version);
    let array = executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let (init, options) = (init_on(&context, &spec, &drives.as_drives()), ArrayOptions::default());
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), options).await.expect("made");
        let all = Model::data(0, 4 * MIB / SECTOR, 1);
        array.write(0, all, false).await.expect("a write");
        expected.set(0, 4 * MIB / SECTOR, 1);
        array.close().await.expect("closed");

        let array = open(&context, &drives.as_drives(), Rc::new(RecordsNothing)).await;
        for unit in 0..WIDTH as u64 - 1 {
            let at = unit * STRIP + (LOST - unit) * BLOCK;
            array.write(at, block(at, 2), false).await.expect("the journal has it");
            expected.set(at / SECTOR, BLOCK / SECTOR, 2);
        }
        // Until they are in place.
        for version in 3..9 {
            context.sleep_ns(20_000_000_000).await;
            let at = CHECKED + u64::from(version) * STRIP;
            array.write(at, block(at, version), false).await.expect("a write");
        }
        assert!(array.lost_blocks().is_empty(), "they are not in place, so nothing is tried");
        array.flush().await.expect_err("nothing is recorded");
        array
    });
    for seed in 0..SEEDS {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let array = open(&context, &drives.after_cut(seed), Rc::new(NoHost)).await;
            let found = array.read(0, CHECKED as usize).await.expect("nothing is lost");
            expected.check(0, &found, seed, "after the cut");
        });
    }
    drop(array);
}
