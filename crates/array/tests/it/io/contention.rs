//! Many requests over the same few stripes at once, beside work that takes stripes in a row: no
//! request waits for ever.

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::array::{Model, Rig, SECTOR, shape};
use stripewise_drive::SplitMix64;
use stripewise_runtime::VirtualExecutor;

/// A request that waits in two stripes once was given the second to lead while it still waited for
/// the first; a scrub that held the first waited for the second. The executor panics when nothing
/// can go on.
#[test]
fn multi_stripe_writes_and_scrubs_never_deadlock() {
    for seed in 1..=30 {
        println!("seed {seed}");
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        executor.block_on(async {
            let rig = Rig::new(&context, shape("raid5", 4, 4096), 2 << 20, seed).await;
            let array = rig.array();
            let sectors = array.geometry().stripe_data_bytes() / SECTOR;
            array.write(0, Model::data(0, sectors * 6, 1), true).await.expect("a write");
            let over = Rc::new(Cell::new(false));
            let writers: Vec<_> = (0..8)
                .map(|number| {
                    let (array, over) = (array.clone(), over.clone());
                    let mut random = SplitMix64::new(seed * 100 + number);
                    context.spawn(async move {
                        while !over.get() {
                            let first = random.below(sectors * 3);
                            let count = 1 + random.below(sectors * 3);
                            let data = Model::data(first, count, 2);
                            array.write(first * SECTOR, data, false).await.expect("a write");
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                let report = array.scrub(&|_, _| {}).await.expect("a scrub");
                assert_eq!(
                    (report.blamed.len(), report.unattributed_blocks),
                    (0, 0),
                    "seed {seed}: {report:?}"
                );
            }
            over.set(true);
            for writer in writers {
                writer.await;
            }
        });
    }
}
