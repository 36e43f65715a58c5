//! Random reads, writes, discards and flushes on every layout against a plain map, with the map
//! spilled and merged, segments cleaned, and members lost on the way; then closed and opened
//! again.

use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_runtime::VirtualExecutor;

use crate::kit::Setup;
use crate::kit::history::History;
use crate::kit::seeds::sweep;

const LAYOUTS: [(&str, usize); 10] = [
    ("single", 1),
    ("raid0", 3),
    ("raid1", 2),
    ("raid1", 3),
    ("raid4", 4),
    ("raid5", 5),
    ("raid6", 4),
    ("raid7", 6),
    ("raid10", 5),
    ("raid50", 6),
];

fn run(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (level, width) = LAYOUTS[(seed % LAYOUTS.len() as u64) as usize];
    let mut setup = Setup::small(level, width);
    setup.fill = [0.5, 0.9, 1.0][random.below(3) as usize];
    let drives: Vec<Rc<dyn Drive>> =
        (0..width).map(|_| MemoryDrive::new("memory", setup.drive_bytes()) as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    executor.limit_polls(3_000_000);
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &drives).await;
        let history = History::new(log.capacity_bytes() / 4096);
        let blocks = history.blocks();
        for step in 0..4 * blocks {
            let lba = random.below(blocks);
            let count = 1 + random.below((blocks - lba).min(6));
            let done = match random.below(200) {
                0..4 => history.flush(&log).await,
                4..8 => history.discard(&log, lba, count).await,
                8..12 => history.write(&log, lba, count, true).await,
                _ => history.write(&log, lba, count, false).await,
            };
            done.unwrap_or_else(|error| panic!("seed {seed}: {level}: step {step}: {error}"));
            if step % blocks == 0 {
                history.judge(&log, false, seed, level).await;
            }
        }
        history.judge(&log, false, seed, level).await;
        let figures = log.figures();
        assert!(
            figures.cleaned > 0 || setup.fill < 0.9,
            "seed {seed}: {level}: nothing cleaned: {figures:?}"
        );
        assert!(figures.merges > 0, "seed {seed}: {level}: nothing merged: {figures:?}");
        log.close().await.unwrap();
        let log = setup.open(&context, &drives, MemberSet::EMPTY).await.unwrap();
        history.judge(&log, false, seed, "opened again").await;
        let figures = log.figures();
        assert!(figures.live_blocks <= figures.limit_blocks + figures.limit_blocks / 2, "{figures:?}");
    });
}

fn runs(seeds: Range<u64>) {
    sweep(seeds).for_each(run);
}

test_cases! {
    log_agrees_with_a_plain_map = runs {
        from_1: 1..6,
        from_6: 6..11,
    }
}
