//! The load of the served pools over the last hour, in memory: a page that is opened shows more
//! than the present moment. A pool that is opened again begins with an empty hour.
//!
//! Expected faults: counters that restart with a pool (`load.rs` counts from its opening).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use crate::pools::load::{Interval, PoolRates, between, pool_rates};
use crate::pools::status_file::StatusFile;

/// Length of an interval of the history, milliseconds.
const POINT_MS: u64 = 10_000;
/// Number of intervals that are kept: an hour.
const POINTS: usize = 360;

/// Load of a pool.
struct OfPool {
    /// Counters at the last poll.
    last: StatusFile,
    /// Counters at the end of the last interval.
    mark: StatusFile,
    points: VecDeque<PoolRates>,
}

/// Load of the served pools, by name.
#[derive(Default)]
pub struct History(RefCell<HashMap<String, OfPool>>);

impl History {
    /// Records the counters of a pool. Returns the load since the last call, of the whole pool and
    /// of its drives and volumes.
    pub(crate) fn add(&self, now: StatusFile) -> Option<(PoolRates, Interval)> {
        let mut pools = self.0.borrow_mut();
        let Some(pool) = pools.get_mut(&now.report.name) else {
            let pool = OfPool { last: now.clone(), mark: now.clone(), points: VecDeque::new() };
            pools.insert(now.report.name.clone(), pool);
            return None;
        };
        if pool.mark.opened_unix_ms != now.opened_unix_ms {
            pool.points.clear();
            pool.mark = now.clone();
        }
        if now.unix_ms.saturating_sub(pool.mark.unix_ms) >= POINT_MS {
            if pool.points.len() == POINTS {
                pool.points.pop_front();
            }
            pool.points.push_back(pool_rates(&pool.mark, &now));
            pool.mark = now.clone();
        }
        let before = std::mem::replace(&mut pool.last, now);
        let mut load = between(&before, &pool.last);
        load.drives.iter_mut().for_each(|drive| drive.causes.clear());
        Some((pool_rates(&before, &pool.last), load))
    }

    /// Drops the pools for which `is_served` is false.
    pub(crate) fn retain(&self, is_served: impl Fn(&str) -> bool) {
        self.0.borrow_mut().retain(|pool, _| is_served(pool));
    }

    /// The last hour of a pool, oldest interval first; empty for a pool that is not served.
    pub fn of(&self, pool: &str) -> Vec<PoolRates> {
        self.0.borrow().get(pool).map(|pool| pool.points.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::report::PoolReport;
    use crate::pools::status_file::VolumeRequests;

    /// A pool `tank` with one volume that was read `reads` times, 1 MB and 10 µs each.
    fn status(opened_unix_ms: u64, unix_ms: u64, reads: u64) -> StatusFile {
        let mut by_latency = vec![0; stripewise_pool::LATENCY_STEPS_NS.len() + 1];
        by_latency[0] = reads;
        let volume = VolumeRequests {
            volume: "a".into(),
            operation: "read".into(),
            by_latency,
            total_ns: reads * 10_000,
            bytes: reads * 1_000_000,
            failed: 0,
        };
        StatusFile {
            unix_ms,
            opened_unix_ms,
            report: PoolReport { name: "tank".into(), ..PoolReport::default() },
            events: Vec::new(),
            drives: Vec::new(),
            volumes: vec![volume],
        }
    }

    #[test]
    fn the_last_hour_is_kept_in_steps_of_ten_seconds() {
        let history = History::default();
        assert_eq!(history.add(status(1, 1_000, 0)), None);
        for second in 2..=4_000 {
            let (now, load) = history.add(status(1, second * 1_000, second)).expect("a second");
            let reads = if second == 2 { 2.0 } else { 1.0 };
            assert_eq!((now.reads.requests_per_s, now.reads.mb_per_s), (reads, reads));
            assert_eq!((now.reads.mean_us, now.reads.p99_at_most_us), (Some(10.0), Some(10.0)));
            assert_eq!((now.writes.mb_per_s, now.writes.mean_us), (0.0, None));
            assert_eq!(load.volumes.len(), 1);
        }
        let hour = history.of("tank");
        assert_eq!((hour.len(), hour[0].seconds), (POINTS, 10.0));
        assert_eq!(hour[POINTS - 1].reads.requests_per_s, 1.0);
        history.add(status(2, 5_000_000, 7));
        assert!(history.of("tank").is_empty(), "it was opened again");
        history.retain(|_| false);
        assert_eq!(history.add(status(2, 5_001_000, 8)), None);
    }
}
