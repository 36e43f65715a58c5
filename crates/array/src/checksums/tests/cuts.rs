//! Power cuts during checkpoints: durable checksums are never lost, and each page reads old or new.

use stripewise_drive::{CrashDrive, Delay};

use super::*;

const COLUMNS: u16 = 3;
/// Column offsets to write: in two rows, a few blocks in each of a few pages.
fn offsets() -> impl Iterator<Item = u64> {
    [0, MIB, 3 * MIB, 4 * MIB, 5 * MIB]
        .into_iter()
        .flat_map(|page| (0..3).map(move |block| page + block * 5 * BLOCK_BYTES))
}

#[derive(Default)]
struct History {
    sequence: Cell<u32>,
    /// For each block its durable sequence and its newest one.
    blocks: RefCell<std::collections::BTreeMap<(u16, u64), (u32, u32)>>,
}

impl History {
    fn newest(&self) -> Vec<((u16, u64), u32)> {
        self.blocks.borrow().iter().map(|(&place, &(_, newest))| (place, newest)).collect()
    }
}

/// Contents of a block, which identify the write.
fn content(column: u16, offset: u64, sequence: u32) -> Buffer {
    data(u64::from(sequence) << 40 | offset << 3 | u64::from(column), 1)
}

async fn writer(context: Context, sums: Rc<Checksums>, history: Rc<History>, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let places: Vec<u64> = offsets().collect();
    loop {
        let column = random.below(u64::from(COLUMNS)) as u16;
        let offset = places[random.below(places.len() as u64) as usize];
        let pin = sums.pin(column, offset, BLOCK_BYTES).await.expect("pages");
        let sequence = history.sequence.get() + 1;
        history.sequence.set(sequence);
        history.blocks.borrow_mut().entry((column, offset)).or_default().1 = sequence;
        let content = content(column, offset, sequence);
        sums.set(&pin, offset, &sums.compute(column, offset, &content), sequence);
        context.sleep_ns(random.below(100_000)).await;
    }
}

async fn checkpointer(context: Context, sums: Rc<Checksums>, history: Rc<History>, seed: u64) {
    let mut random = SplitMix64::new(seed);
    loop {
        let before = history.newest();
        if sums.checkpoint().await.is_err() {
            return;
        }
        for (place, newest) in before {
            let mut blocks = history.blocks.borrow_mut();
            let durable = &mut blocks.get_mut(&place).expect("known").0;
            *durable = newest.max(*durable);
        }
        context.sleep_ns(random.below(300_000)).await;
    }
}

/// Checks the drives after a cut; `missing` is the index of a missing drive, if it is one.
async fn check(
    images: &[Rc<MemoryDrive>],
    history: &History,
    missing: usize,
    options: ChecksumOptions,
    seed: u64,
) {
    let places = Places::new(images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect());
    if missing < images.len() {
        places.missing.borrow_mut()[missing] = true;
    }
    let sums = open(&places, options);
    let blocks = history.blocks.borrow().clone();
    for ((column, offset), (durable, newest)) in blocks {
        if usize::from(column) == missing {
            continue; // its blocks are missing too
        }
        let pin = sums.pin(column, offset, BLOCK_BYTES).await.expect("pages");
        let recorded = sums.expected(&pin, offset);
        let sequence = recorded.map_or(0, |recorded| recorded.sequence);
        let what = format!("seed {seed}: column {column} at {offset}, missing {missing}");
        assert!((durable..=newest).contains(&sequence), "{what}: {durable}..={newest}, is {sequence}");
        if sequence > 0 {
            let right = content(column, offset, sequence);
            assert!(sums.verify(column, offset, &right).await.expect("a verdict").is_good(), "{what}");
            // A block that was never written: its wrong contents lead to the other place, if that
            // is newer.
            let wrong = content(column, offset, newest + 1);
            assert!(!sums.verify(column, offset, &wrong).await.expect("a verdict").is_good(), "{what}");
        }
    }
    if missing >= images.len() {
        assert_eq!(sums.counters().lost_pages, 0, "seed {seed}");
    }
}

#[test]
fn each_page_reads_old_or_new_after_any_cut() {
    let (mut torn, mut durable_blocks) = (0, 0);
    for seed in 0..150 {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        let mut random = SplitMix64::new(seed ^ 0xc0ffee);
        let delay = Delay::Exponential { mean_ns: 100_000 };
        let drives: Vec<_> = (0..COLUMNS)
            .map(|i| {
                CrashDrive::with_delay(
                    &context,
                    &format!("drive{i}"),
                    1 << 20,
                    delay,
                    seed * 7 + u64::from(i),
                )
            })
            .collect();
        let places = Places::new(drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect());
        places.between.set(if seed % 2 == 0 { 0 } else { PAGES_PER_SLAB });
        let sums = open(&places, OPTIONS);
        let history = Rc::new(History::default());
        executor.block_on(async {
            for task in 0..2 {
                drop(context.spawn(writer(context.clone(), sums.clone(), history.clone(), seed * 3 + task)));
            }
            drop(context.spawn(checkpointer(context.clone(), sums.clone(), history.clone(), seed)));
            context.sleep_ns(random.below(8_000_000)).await;
            let images: Vec<_> = drives
                .iter()
                .enumerate()
                .map(|(i, drive)| drive.image_after_cut(&format!("drive{i}"), seed * 5 + i as u64))
                .collect();
            durable_blocks += history.blocks.borrow().values().filter(|block| block.0 > 0).count();
            for options in [OPTIONS, ChecksumOptions { prefer_newest: true, ..OPTIONS }] {
                check(&images, &history, usize::MAX, options, seed).await;
            }
            // Count the pages whose places differ after the cut, to prove that the test covers
            // this.
            let places = Places::new(images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect());
            let sums = open(&places, OPTIONS);
            for column in 0..COLUMNS {
                for row in 0..2 {
                    torn += sums.audit(row, column, &|_| true).await.expect("an audit").repaired;
                }
            }
        });
    }
    assert!(torn > 100 && durable_blocks > 1000, "{torn} pages differed, {durable_blocks} blocks durable");
}

/// Without a cut in the middle of a checkpoint, any one drive may be missing afterwards.
#[test]
fn any_one_drive_may_be_lost_after_a_checkpoint() {
    for seed in 0..20 {
        run(|context| async move {
            let bed = Bed::new(&context, COLUMNS, OPTIONS);
            let history = History::default();
            let mut random = SplitMix64::new(seed);
            for (sequence, offset) in (1..).zip(offsets()) {
                let column = random.below(u64::from(COLUMNS)) as u16;
                record(&bed.sums, column, offset, &content(column, offset, sequence), sequence).await;
                history.blocks.borrow_mut().insert((column, offset), (sequence, sequence));
            }
            bed.sums.checkpoint().await.expect("a checkpoint");
            for missing in 0..=usize::from(COLUMNS) {
                check(&bed.images, &history, missing, OPTIONS, seed).await;
            }
        });
    }
}
