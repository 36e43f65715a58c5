//! Power is cut at any instant, several times in a life, with drives lost in the same instant; the
//! log recovers what was durable and nothing else.
//!
//! Invariants I1 to I4 (`docs/internals/invariants.md`), for log volumes.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::{LocalFuture, LogError, RootStore, SlotRoots};
use stripewise_runtime::VirtualExecutor;

use crate::kit::Setup;
use crate::kit::history::{History, client};
use crate::kit::seeds::sweep;

const LAYOUTS: [(&str, usize); 6] =
    [("raid5", 4), ("raid5", 3), ("raid6", 5), ("raid1", 2), ("raid10", 5), ("raid0", 2)];

/// Lives of a log with cuts. Panics where a promise is broken.
pub fn life(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (level, width) = LAYOUTS[random.below(LAYOUTS.len() as u64) as usize];
    let mut setup = Setup::small(level, width);
    setup.segments = 60 + random.below(60);
    setup.fill = [0.3, 0.8, 1.0, 1.3][random.below(4) as usize];
    let mut images: Vec<Rc<MemoryDrive>> =
        (0..width).map(|_| MemoryDrive::new("new", setup.drive_bytes())).collect();
    let mut history: Option<Rc<History>> = None;
    let mut absent = MemberSet::EMPTY;
    for round in 0..3 {
        let drives: Vec<Rc<CrashDrive>> =
            images.iter().map(|image| CrashDrive::from_image("crash", image)).collect();
        let executor = VirtualExecutor::shuffled(seed * 7 + round);
        executor.limit_polls(3_000_000);
        let context = executor.context();
        let tops: Vec<Rc<dyn Drive>> = drives
            .iter()
            .map(|drive| {
                let delayed = FaultyDrive::new(&context, drive.clone(), seed + round);
                delayed.set_delay(Delay::Exponential { mean_ns: 100_000 });
                delayed as Rc<dyn Drive>
            })
            .collect();
        let limit_ns = if random.chance(0.3) { 4_000_000 } else { 200_000_000 };
        let instant_ns = random.below(limit_ns);
        let is_cut_in_recovery = round > 0 && random.chance(0.4);
        let clients = 1 + random.below(4);
        let made = executor.block_on(async {
            let open = setup.open(&context, &tops, absent);
            let log = match &history {
                None => setup.create(&context, &tops).await,
                Some(_) if is_cut_in_recovery => {
                    let open = std::pin::pin!(open);
                    let _ = context.time_limit_ns(instant_ns / 40, open).await;
                    return None;
                }
                Some(_) => open.await.unwrap_or_else(|error| panic!("seed {seed}: round {round}: {error}")),
            };
            let known = history.clone().unwrap_or_else(|| History::new(log.capacity_bytes() / 4096));
            known.judge(&log, true, seed, &format!("after cut {round}")).await;
            for number in 0..clients {
                let task =
                    client(context.clone(), log.clone(), known.clone(), number, clients, seed + round * 99);
                context.spawn(task);
            }
            context.sleep_ns(instant_ns).await;
            Some(known)
        });
        history = made.or(history);
        images = drives
            .iter()
            .enumerate()
            .map(|(number, drive)| drive.image_after_cut("after", seed * 31 + round * 7 + number as u64))
            .collect();
        drop(executor);
        let tolerance = setup.shape.fault_tolerance();
        while absent.len() < tolerance && random.chance(0.3) {
            absent.insert(random.below(width as u64) as usize);
        }
    }
    check_every_loss(&setup, &images, &history.expect("made in the first round"), absent, seed);
}

/// Reads everything after the last cut, then again with each further drive missing.
fn check_every_loss(
    setup: &Setup,
    images: &[Rc<MemoryDrive>],
    history: &History,
    absent: MemberSet,
    seed: u64,
) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let drives: Vec<Rc<dyn Drive>> = images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect();
        let log = setup.open(&context, &drives, absent).await;
        let log = log.unwrap_or_else(|error| panic!("seed {seed}: after the last cut: {error}"));
        history.judge(&log, true, seed, "after the last cut").await;
        log.close().await.unwrap_or_else(|error| panic!("seed {seed}: closing: {error}"));
        if absent.len() == setup.shape.fault_tolerance() {
            return;
        }
        for member in (0..drives.len()).filter(|&member| !absent.contains(member)) {
            let copies: Vec<Rc<dyn Drive>> =
                images.iter().map(|image| image.duplicate("copy") as Rc<dyn Drive>).collect();
            let mut absent = absent;
            absent.insert(member);
            let log = setup.open(&context, &copies, absent).await;
            let log = log.unwrap_or_else(|error| panic!("seed {seed}: without {member}: {error}"));
            history.judge(&log, false, seed, &format!("without member {member}")).await;
        }
    });
}

fn lives(seeds: Range<u64>) {
    sweep(seeds).for_each(life);
}

test_cases! {
    flushed_data_survive_cuts_with_drives_lost = lives {
        from_1: 1..5,
        from_5: 5..9,
        from_9: 9..13,
    }
}

/// Slots of roots in which no commit ends while they are stuck.
pub struct StuckRoots {
    pub slots: Rc<SlotRoots>,
    pub is_stuck: Cell<bool>,
}

impl RootStore for StuckRoots {
    fn room_bytes(&self) -> u64 {
        self.slots.room_bytes()
    }

    fn commit(&self, roots: Vec<u8>) -> LocalFuture<'_, Result<(), LogError>> {
        match self.is_stuck.get() {
            true => Box::pin(std::future::pending()),
            false => self.slots.commit(roots),
        }
    }

    fn exclude(&self, missing: MemberSet) -> LocalFuture<'_, Result<(), LogError>> {
        self.slots.exclude(missing)
    }

    fn include(&self, member: usize) -> LocalFuture<'_, Result<(), LogError>> {
        self.slots.include(member)
    }
}

/// Forced writes, until one waits for a commit that does not end; then power is cut.
pub fn forced_writes_wait_for_the_roots() {
    let setup = Setup::small("raid5", 4);
    let drives: Vec<Rc<dyn Drive>> = (0..setup.shape.width)
        .map(|_| MemoryDrive::new("memory", setup.drive_bytes()) as Rc<dyn Drive>)
        .collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let history = executor.block_on(async {
        let mut stuck = None;
        let log = setup.create_with(&context, &drives, |slots| {
            stuck.insert(Rc::new(StuckRoots { slots, is_stuck: Cell::new(false) })).clone()
        });
        let log = log.await;
        stuck.expect("made with the log").is_stuck.set(true);
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..history.blocks() {
            let write = std::pin::pin!(history.write(&log, lba, 1, true));
            match context.time_limit_ns(1_000_000_000, write).await {
                Ok(written) => written.expect("the log works"),
                Err(_) => return history.clone(),
            }
        }
        panic!("more was written than the roots had planned");
    });
    drop(executor);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.open(&context, &drives, MemberSet::EMPTY).await.expect("recovered");
        history.judge(&log, true, 1, "without the commit").await;
        log.close().await.expect("closed");
    });
}

#[test]
fn segments_wait_until_durable_roots_plan_them() {
    forced_writes_wait_for_the_roots();
}
