//! Of which manner the lives of a run are: most are as they always were, some are crowded, some
//! have fast drives, some end as soon as they have begun, some last for minutes. Drawn from a
//! stream of their own ([`crate::Drawn`]).

use std::rc::Rc;

use stripewise_drive::SplitMix64;

use crate::clients::{Target, discard, write_zeroes};
use crate::life::Life;
use crate::subject::{Pinned, Subject};

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// What the lives of a run have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Many clients of write-back volumes write to the same few regions, which are discarded,
    /// zeroed, filled and migrated at the same time. Each request ends within
    /// [`Manner::PATIENCE_NS`].
    pub is_crowded: bool,
    /// Many lives of a few milliseconds, most of them closed in order.
    pub is_often: bool,
    /// Lives of minutes.
    pub is_long: bool,
    /// Crowded lives that end at a copy of a page of a region map. Each is followed by one in which
    /// a little is written, and nothing given up: it rests on the page that one drive has, which is
    /// lost when that life ends.
    pub is_paired: bool,
}

impl Manner {
    /// So long a client of a crowded life waits for an answer at most: several times as long as it
    /// takes to give up two drives one after the other.
    pub(crate) const PATIENCE_NS: u64 = 30 * SECOND_NS;

    /// Crowded and paired.
    pub(crate) const PAIRED: Self =
        Self { is_crowded: true, is_often: false, is_long: false, is_paired: true };

    /// Drawn from `random`.
    pub(crate) fn draw(random: &mut SplitMix64) -> Self {
        let usual = Self::default();
        match random.below(10) {
            0..=1 => Self { is_crowded: true, ..usual },
            2 => Self { is_often: true, ..usual },
            3 => Self { is_long: true, ..usual },
            _ => usual,
        }
    }
}

/// Sizes of fast drives, where a run has any.
pub(crate) fn draw_fast_drives(random: &mut SplitMix64) -> Vec<u64> {
    let count = if random.chance(0.3) { 1 + random.below(5) } else { 0 };
    (0..count).map(|_| (8 + random.below(33)) * MIB).collect()
}

impl Life {
    /// In a crowded life: goes on giving up whole regions that clients write to, until the life is
    /// over.
    pub(crate) async fn stir(self: Rc<Self>, targets: Vec<Target>, seed: u64) {
        let mut random = SplitMix64::new(seed);
        for _ in 0..40 {
            self.context.sleep_ns(random.below(4_000_000)).await;
            if self.is_over() {
                return;
            }
            let (store, guarded) = &targets[random.below(targets.len() as u64) as usize];
            let total = guarded.oracle.borrow().sector_count();
            let region = (store.region_bytes() / crate::content::SECTOR_BYTES) as u32;
            let first = random.below(2) as u32 * region;
            if first >= total {
                continue;
            }
            let regions = 1 + random.below(2) as u32;
            let range = first..first.saturating_add(region.saturating_mul(regions)).min(total);
            match random.below(3) {
                0 => write_zeroes(&self, store, guarded, range).await,
                _ => discard(&self, store, guarded, range).await,
            }
        }
    }

    /// In runs with fast drives: perhaps pins a volume, and gives rows time to move.
    pub(crate) async fn perhaps_pin(&self, subject: &Subject, targets: &[Target]) {
        let Some(random) = self.world.later() else { return };
        if self.world.plan.fast_bytes.is_empty() || targets.is_empty() {
            return;
        }
        if self.is_over() || self.is_beyond.get() {
            return;
        }
        let (is_wanted, which) = {
            let mut random = random.borrow_mut();
            (random.chance(0.4), random.below(targets.len() as u64) as usize)
        };
        if !is_wanted {
            return;
        }
        let name = &targets[which].1.name;
        let pin = [Pinned::Fast, Pinned::Slow, Pinned::Nowhere][random.borrow_mut().below(3) as usize];
        let pinned = self.bounded("pinning a volume", subject.pin(name, pin)).await;
        self.note(&format!("pin {name} {pin:?}: {pinned:?}"));
        self.world.cover(|coverage| coverage.pins += u64::from(matches!(pinned, Some(Ok(())))));
        subject.start_jobs();
        let pause_ns = random.borrow_mut().below(20_000_000);
        self.context.sleep_ns(pause_ns).await;
    }

    /// How long it is until the next thing happens.
    pub(crate) fn pause_ns(&self) -> u64 {
        let most_ns = match (self.world.plan.manner.is_long, self.world.chance(0.8)) {
            (false, true) => 3_000_000,
            (false, false) => 60_000_000,
            (true, true) => 3 * SECOND_NS,
            (true, false) => 60 * SECOND_NS,
        };
        self.world.below(most_ns)
    }
}
