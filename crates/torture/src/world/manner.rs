//! Manner of a run's lives: most are as they always were, some are crowded, some
//! have fast drives, some end as soon as they have begun, some last for minutes. Drawn from a
//! stream of their own ([`crate::Drawn`]).

use stripewise_drive::SplitMix64;

const MIB: u64 = 1 << 20;
/// In nanoseconds.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Properties shared by the lives of a run.
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
    /// Maximum wait of a client of a crowded life for an answer: several times the time it takes to
    /// give up two drives one after the other.
    pub(crate) const PATIENCE_NS: u64 = 30 * SECOND_NS;

    /// None of these.
    pub(crate) const USUAL: Self =
        Self { is_crowded: false, is_often: false, is_long: false, is_paired: false };
    /// Crowded.
    pub(crate) const CROWDED: Self = Self { is_crowded: true, ..Self::USUAL };
    /// Crowded and paired.
    pub(crate) const PAIRED: Self = Self { is_paired: true, ..Self::CROWDED };

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

/// Sizes of fast drives, where a run has any, as it has with this probability.
pub(crate) fn draw_fast_drives(random: &mut SplitMix64, probability: f64) -> Vec<u64> {
    let count = if random.chance(probability) { 1 + random.below(5) } else { 0 };
    (0..count).map(|_| (8 + random.below(33)) * MIB).collect()
}
