//! Decides whether the next batch of a journal on disks waits for more appends.
//!
//! A batch moves such a drive away from its data writes, and back: a cost of a MiB or two of data,
//! however small the batch. While many long writes are in flight, the next batch waits for four
//! times as many appends as the last one had, but at most four times as long as that one took.
//! Short writes never wait, since their clients wait for each of them; nor do a few writers, as
//! others may not come.

use super::Record;

/// Minimum appends of a batch from which further ones can be expected.
const LEAST_APPENDS: usize = 4;
/// Target of the next batch, as a multiple of the last one: of its appends, and of its time.
const TIMES: usize = 4;
/// Maximum time that an append waits for others.
const LONGEST_NS: u64 = 60_000_000;
/// Minimum number of 4 KiB blocks that a long write changes.
const LONG_BLOCKS: usize = 32;

/// True if the records belong to a long write, which keeps its drives busy for longer than it
/// waits.
pub(super) fn are_of_a_long_write(records: &[Record]) -> bool {
    let blocks = |record: &Record| record.sums.iter().map(|run| run.sums.len()).sum::<usize>();
    records.iter().map(blocks).sum::<usize>() >= LONG_BLOCKS
}

/// Size and duration of the last batch, and how long appends have been waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gathering {
    /// Time since which appends wait for a batch.
    waiting_since_ns: Option<u64>,
    last_appends: usize,
    last_took_ns: u64,
}

impl Gathering {
    /// Records that appends are waiting.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.waiting_since_ns.get_or_insert(now_ns);
    }

    /// Records that a batch took `appends` appends and left `left` in the queue.
    pub(super) fn took(&mut self, appends: usize, left: usize, now_ns: u64) {
        self.last_appends = appends;
        self.waiting_since_ns = (left > 0).then_some(now_ns);
    }

    /// Records the time that a batch took to become durable.
    pub(super) fn landed(&mut self, took_ns: u64) {
        self.last_took_ns = took_ns;
    }

    /// Time until which a batch of the `waiting` appends waits for others; `None` if it does not
    /// wait.
    pub(super) fn until_ns(&self, waiting: usize, now_ns: u64) -> Option<u64> {
        if self.last_appends < LEAST_APPENDS || waiting >= TIMES * self.last_appends {
            return None;
        }
        let hold_ns = (TIMES as u64 * self.last_took_ns).min(LONGEST_NS);
        Some(self.waiting_since_ns? + hold_ns).filter(|until_ns| *until_ns > now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writers_gather_and_a_few_do_not() {
        let mut gathering = Gathering::default();
        gathering.begin(1_000);
        assert_eq!(gathering.until_ns(1, 1_000), None, "nothing is known yet");
        gathering.took(3, 0, 1_000);
        gathering.landed(500);
        gathering.begin(2_000);
        assert_eq!(gathering.until_ns(1, 2_000), None, "a few");
        gathering.took(8, 0, 2_000);
        gathering.landed(500);
        gathering.begin(3_000);
        gathering.begin(3_500);
        assert_eq!(gathering.until_ns(8, 3_500), Some(5_000), "four times as long as the last");
        assert_eq!(gathering.until_ns(32, 3_500), None, "four times as many as the last");
        assert_eq!(gathering.until_ns(8, 5_000), None, "the wait is over");
        gathering.took(8, 2, 5_000);
        assert_eq!(gathering.until_ns(2, 5_100), Some(7_000), "the remaining appends wait from then on");
    }

    #[test]
    fn no_append_waits_longer_than_a_few_seeks_take() {
        let mut gathering = Gathering::default();
        gathering.took(100, 1, 0);
        gathering.landed(u64::MAX / 8);
        assert_eq!(gathering.until_ns(1, 1), Some(LONGEST_NS));
    }
}
