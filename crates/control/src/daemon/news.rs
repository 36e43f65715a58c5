//! Live updates for clients that follow the pools: states, events and progress of jobs. Sent once a
//! second, after each inspection of the served pools (`alerts/watch.rs`).
//!
//! Expected faults: clients that disconnect (they are removed), and clients that do not read: each
//! has a bounded queue, and its stream ends when that is full. Such a client can follow again: a
//! stream opens with the full state, so updates are never resent.

use std::cell::RefCell;

use futures_channel::mpsc;
use serde::Serialize;
use stripewise_pool::JobKind;
use utoipa::ToSchema;

use crate::failure::{Failure, Reason, Result};
use crate::messages::report::{
    ActivityReport, EventReport, LastScrubReport, MountReport, PoolReport, PoolState,
};
use crate::pools::load::{Interval, PoolRates};

/// Maximum number of concurrent followers.
pub const MAX_FOLLOWERS: usize = 32;
/// Maximum number of queued updates per follower.
const MAX_WAITING: usize = 256;

/// An update for followers.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PoolNews {
    /// State of a pool: sent at the start and after every change.
    State {
        /// Pool name.
        pool: String,
        /// State of the pool.
        state: PoolState,
        /// Explanation of the state.
        condition: String,
        /// Next command to run; empty if none is needed.
        action: String,
    },
    /// An event of a pool.
    Event {
        /// Pool name.
        pool: String,
        /// The event.
        event: EventReport,
    },
    /// Progress of a job.
    Progress {
        /// Pool name.
        pool: String,
        /// The job and its progress.
        job: ActivityReport,
    },
    /// End of a job: the last update for a follower of one job.
    Done {
        /// Pool name.
        pool: String,
        /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
        job: String,
        /// Volume; empty for a job of the whole pool, and for a follower of all jobs of a kind.
        volume: String,
        /// After a scrub: the result of the last finished one.
        last_scrub: Option<LastScrubReport>,
    },
    /// Load of a pool in the last second.
    Rates {
        /// Pool name.
        pool: String,
        /// Number of the last commit of the pool's metadata: where it differs, the pool changed.
        generation: u64,
        /// Load of the clients of all volumes.
        rates: PoolRates,
        /// Load of each drive and volume; without causes.
        load: Interval,
        /// Mounts of the pool that the daemon keeps.
        mounts: Vec<MountReport>,
    },
    /// End of service of a pool.
    Gone {
        /// Pool name.
        pool: String,
    },
}

impl PoolNews {
    /// Value of `kind` in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Event { .. } => "event",
            Self::Progress { .. } => "progress",
            Self::Done { .. } => "done",
            Self::Rates { .. } => "rates",
            Self::Gone { .. } => "gone",
        }
    }

    fn state(report: &PoolReport) -> Self {
        Self::State {
            pool: report.name.clone(),
            state: report.state,
            condition: report.condition.clone(),
            action: report.action.clone(),
        }
    }

    fn done(report: &PoolReport, job: &str, volume: &str) -> Self {
        let is_scrub = job == JobKind::Scrub.to_string();
        Self::Done {
            pool: report.name.clone(),
            job: job.to_owned(),
            volume: volume.to_owned(),
            last_scrub: report.last_scrub.clone().filter(|_| is_scrub),
        }
    }
}

/// Scope of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// All pools, including those that are opened later.
    AllPools,
    /// Jobs of one kind of one pool, until none is left.
    Job {
        /// Pool name.
        pool: String,
        /// Kind of the jobs.
        kind: JobKind,
    },
}

/// Findings of one inspection of a pool.
pub(crate) struct Found<'a> {
    /// Current report of the pool.
    pub(crate) report: &'a PoolReport,
    /// True if the state or condition differs from the last inspection.
    pub(crate) has_changed: bool,
    /// Events since the last inspection.
    pub(crate) events: &'a [EventReport],
    /// Jobs that ended since the last inspection, by kind and volume.
    pub(crate) ended: &'a [(String, String)],
    /// Load since the last inspection.
    pub(crate) load: Option<&'a (PoolRates, Interval)>,
}

impl<'a> Found<'a> {
    /// An inspection that found the report and nothing else.
    fn of(report: &'a PoolReport) -> Self {
        Self { report, has_changed: false, events: &[], ended: &[], load: None }
    }
}

struct Follower {
    followed: Followed,
    to: mpsc::Sender<PoolNews>,
}

/// The followers of the pools of a process.
#[derive(Default)]
pub struct News(RefCell<Vec<Follower>>);

impl News {
    /// Adds a follower. The receiver first gets the current state, then updates. It ends when the
    /// followed job or pool ends, with the process, or when its queue is full.
    pub fn follow(&self, reports: &[PoolReport], followed: Followed) -> Result<mpsc::Receiver<PoolNews>> {
        let mut followers = self.0.borrow_mut();
        followers.retain(|follower| !follower.to.is_closed());
        if followers.len() >= MAX_FOLLOWERS {
            let many = format!("{MAX_FOLLOWERS} clients follow the pools already");
            return Err(Failure::of(Reason::Busy, many).hint("try again when one of them has disconnected"));
        }
        if let Followed::Job { pool, .. } = &followed
            && !reports.iter().any(|report| report.name == *pool)
        {
            return Err(Failure::missing(format!("pool `{pool}` is not served here")));
        }
        let (to, news) = mpsc::channel(MAX_WAITING);
        let mut follower = Follower { followed, to };
        let stays =
            reports.iter().all(|report| follower.notify(&Found { has_changed: true, ..Found::of(report) }));
        if stays {
            followers.push(follower);
        }
        Ok(news)
    }

    /// True if there are followers.
    pub(crate) fn is_followed(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// Sends the updates of one pool.
    pub(crate) fn tell(&self, found: &Found<'_>) {
        self.0.borrow_mut().retain_mut(|follower| follower.notify(found));
    }

    /// Sends the end of service of a pool.
    pub(crate) fn tell_gone(&self, pool: &str) {
        self.0.borrow_mut().retain_mut(|follower| {
            if !follower.is_about(pool) {
                return true;
            }
            let is_queued = follower.send(PoolNews::Gone { pool: pool.to_owned() });
            is_queued && follower.followed == Followed::AllPools
        });
    }

    /// Ends all streams.
    pub fn end(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Follower {
    fn is_about(&self, pool: &str) -> bool {
        match &self.followed {
            Followed::AllPools => true,
            Followed::Job { pool: followed, .. } => followed == pool,
        }
    }

    /// Queues an update. False if the queue is full or the client has disconnected.
    fn send(&mut self, news: PoolNews) -> bool {
        self.to.try_send(news).is_ok()
    }

    /// Sends the updates of a pool that this client follows. False if its stream ends with them.
    fn notify(&mut self, found: &Found<'_>) -> bool {
        let Found { report, has_changed, events, ended, load } = found;
        if !self.is_about(&report.name) {
            return true;
        }
        let pool = || report.name.clone();
        let mut news = Vec::new();
        let progress = |job: &ActivityReport| PoolNews::Progress { pool: pool(), job: job.clone() };
        let is_over = match &self.followed {
            Followed::AllPools => {
                news.extend(has_changed.then(|| PoolNews::state(report)));
                news.extend(
                    events.iter().map(|event| PoolNews::Event { pool: pool(), event: event.clone() }),
                );
                news.extend(report.activity.iter().map(progress));
                news.extend(ended.iter().map(|(job, volume)| PoolNews::done(report, job, volume)));
                news.extend(load.map(|(rates, load)| PoolNews::Rates {
                    pool: pool(),
                    generation: report.generation,
                    rates: *rates,
                    load: load.clone(),
                    mounts: report.mounts.clone(),
                }));
                false
            }
            Followed::Job { kind, .. } => {
                let kind = kind.to_string();
                news.extend(report.activity.iter().filter(|job| job.kind == kind).map(progress));
                let is_over = news.is_empty();
                news.extend(is_over.then(|| PoolNews::done(report, &kind, "")));
                is_over
            }
        };
        news.into_iter().all(|news| self.send(news)) && !is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: PoolState, jobs: &[(&str, f64)]) -> PoolReport {
        let job = |(kind, percent): &(&str, f64)| ActivityReport {
            kind: (*kind).to_owned(),
            percent: *percent,
            mb_per_s: 0.0,
            seconds_left: None,
            volume: "a".to_owned(),
            drive: None,
        };
        PoolReport {
            name: "tank".to_owned(),
            state,
            activity: jobs.iter().map(job).collect(),
            ..PoolReport::default()
        }
    }

    fn followed(followed: Followed) -> (News, mpsc::Receiver<PoolNews>) {
        let (to, taken) = mpsc::channel(MAX_WAITING);
        (News(RefCell::new(vec![Follower { followed, to }])), taken)
    }

    fn look<'a>(report: &'a PoolReport, ended: &'a [(String, String)]) -> Found<'a> {
        Found { ended, ..Found::of(report) }
    }

    fn kinds(taken: &mut mpsc::Receiver<PoolNews>) -> Vec<&'static str> {
        std::iter::from_fn(|| taken.try_recv().ok()).map(|news| news.kind()).collect()
    }

    fn job(kind: JobKind) -> Followed {
        Followed::Job { pool: "tank".to_owned(), kind }
    }

    #[test]
    fn followers_get_all_pools_or_one_job_until_done() {
        let (news, mut all) = followed(Followed::AllPools);
        let (to, mut scrub) = mpsc::channel(MAX_WAITING);
        news.0.borrow_mut().push(Follower { followed: job(JobKind::Scrub), to });
        let event = EventReport {
            time: String::new(),
            time_unix_ms: 1,
            kind: "drive".to_owned(),
            text: "out".to_owned(),
        };
        let works = report(PoolState::Degraded, &[("scrub", 1.0), ("rebuild", 2.0)]);
        let load = (PoolRates::default(), Interval { seconds: 1.0, drives: Vec::new(), volumes: Vec::new() });
        let found = Found { has_changed: true, events: &[event], load: Some(&load), ..Found::of(&works) };
        news.tell(&found);
        assert_eq!(kinds(&mut all), ["state", "event", "progress", "progress", "rates"]);
        assert_eq!(kinds(&mut scrub), ["progress"]);
        let ended = [("scrub".to_owned(), "a".to_owned())];
        news.tell(&look(&report(PoolState::Degraded, &[("rebuild", 3.0)]), &ended));
        assert_eq!(kinds(&mut all), ["progress", "done"]);
        assert_eq!(kinds(&mut scrub), ["done"]);
        assert!(scrub.try_recv().is_err(), "its stream has ended");
        news.tell_gone("tank");
        news.tell_gone("other");
        assert_eq!(kinds(&mut all), ["gone", "gone"]);
        assert!(news.is_followed());
    }

    #[test]
    fn a_stream_ends_when_its_job_is_done_or_pool_gone() {
        let (news, mut taken) = followed(job(JobKind::Scrub));
        news.tell(&look(&report(PoolState::Online, &[]), &[]));
        assert_eq!(kinds(&mut taken), ["done"]);
        assert!(!news.is_followed());
        let (news, mut taken) = followed(job(JobKind::Rebuild));
        news.tell_gone("tank");
        assert_eq!(kinds(&mut taken), ["gone"]);
        assert!(!news.is_followed());
    }

    #[test]
    fn a_follower_that_never_reads_is_dropped() {
        let (news, mut taken) = followed(Followed::AllPools);
        let works = report(PoolState::Online, &[("scrub", 1.0)]);
        for _ in 0..2 * MAX_WAITING {
            news.tell(&look(&works, &[]));
        }
        assert!(!news.is_followed(), "its stream has ended");
        let waiting = kinds(&mut taken).len();
        assert!((MAX_WAITING..MAX_WAITING + 2).contains(&waiting), "{waiting}");
    }

    #[test]
    fn the_follower_limit_counts_connected_clients() {
        let news = News::default();
        let mut all: Vec<_> = (0..MAX_FOLLOWERS)
            .map(|_| news.follow(&[], Followed::AllPools).expect("below the limit"))
            .collect();
        let refused = news.follow(&[], Followed::AllPools).expect_err("at the limit");
        assert_eq!(refused.reason, Reason::Busy);
        all.pop();
        all.push(news.follow(&[], Followed::AllPools).expect("one has disconnected"));
        let unknown = news.follow(&[], job(JobKind::Scrub));
        assert_eq!(unknown.expect_err("no such pool").reason, Reason::Busy, "the limit is checked first");
        all.clear();
        let unknown = news.follow(&[], job(JobKind::Scrub)).expect_err("no such pool");
        assert_eq!(unknown.reason, Reason::Missing);
    }
}
