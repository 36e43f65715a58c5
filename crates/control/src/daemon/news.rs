//! What clients are told that follow the pools: how each stands, what happens to it, how its jobs
//! go on. Told from one look at the served pools to the next (`alerts/watch.rs`), once a second.
//!
//! Expected faults: clients that leave (forgotten), and clients that do not take what they are
//! told: only so much waits for each of them, then their stream ends, and they may follow again.
//! What is told first is how everything stands, so nothing has to be told twice.

use std::cell::RefCell;

use futures_channel::mpsc;
use serde::Serialize;
use stripewise_engine::pool::JobKind;
use utoipa::ToSchema;

use crate::failure::{Failure, Reason, Result};
use crate::messages::report::{ActivityReport, EventReport, LastScrubReport, PoolReport, PoolState};

/// Clients that follow at the same time.
pub const MAX_FOLLOWERS: usize = 32;
/// What may wait to be taken by one of them.
const MAX_WAITING: usize = 256;

/// Something that a follower is told.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PoolNews {
    /// How a pool stands: when following begins, and whenever that changes.
    State {
        /// The pool.
        pool: String,
        /// How it is.
        state: PoolState,
        /// What that means.
        condition: String,
        /// What to do next; empty where nothing is to be done.
        action: String,
    },
    /// Something happened to a pool.
    Event {
        /// The pool.
        pool: String,
        /// What happened.
        event: EventReport,
    },
    /// A job goes on.
    Progress {
        /// The pool.
        pool: String,
        /// The job, and how far it is.
        job: ActivityReport,
    },
    /// A job is no more to be done: the last that is told where one job is followed.
    Done {
        /// The pool.
        pool: String,
        /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
        job: String,
        /// The volume; empty for what concerns the pool as a whole, and where all jobs of a kind
        /// are followed.
        volume: String,
        /// After a scrub: what the last one that ended found.
        last_scrub: Option<LastScrubReport>,
    },
    /// The pool is not served any more.
    Gone {
        /// The pool.
        pool: String,
    },
}

impl PoolNews {
    /// Which kind it is, as in its JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Event { .. } => "event",
            Self::Progress { .. } => "progress",
            Self::Done { .. } => "done",
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

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// All pools, those that come to be served too.
    AllPools,
    /// Jobs of one kind of one pool, until none is to be done.
    Job {
        /// The pool.
        pool: String,
        /// The kind.
        kind: JobKind,
    },
}

/// What one look at a pool found.
pub(crate) struct Found<'a> {
    /// How the pool stands.
    pub(crate) report: &'a PoolReport,
    /// Whether its state or condition is another than before.
    pub(crate) has_changed: bool,
    /// What happened since the look before.
    pub(crate) events: &'a [EventReport],
    /// Jobs that are no more to be done, by kind and volume.
    pub(crate) ended: &'a [(String, String)],
}

struct Follower {
    followed: Followed,
    to: mpsc::Sender<PoolNews>,
}

/// Those who follow the pools of a process.
#[derive(Default)]
pub struct News(RefCell<Vec<Follower>>);

impl News {
    /// From now on the receiver gets what happens, and first how everything stands. It ends where
    /// what is followed ends, with the process, or when too much waits to be taken.
    pub fn follow(&self, reports: &[PoolReport], followed: Followed) -> Result<mpsc::Receiver<PoolNews>> {
        let mut followers = self.0.borrow_mut();
        followers.retain(|follower| !follower.to.is_closed());
        if followers.len() >= MAX_FOLLOWERS {
            let many = format!("{MAX_FOLLOWERS} clients follow the pools already");
            return Err(Failure::of(Reason::Busy, many).hint("follow again when one of them has left"));
        }
        if let Followed::Job { pool, .. } = &followed
            && !reports.iter().any(|report| report.name == *pool)
        {
            return Err(Failure::missing(format!("there is no pool `{pool}` that is served here")));
        }
        let (to, news) = mpsc::channel(MAX_WAITING);
        let mut follower = Follower { followed, to };
        let stays = reports
            .iter()
            .all(|report| follower.tell(&Found { report, has_changed: true, events: &[], ended: &[] }));
        if stays {
            followers.push(follower);
        }
        Ok(news)
    }

    /// Whether there is anybody to tell.
    pub(crate) fn is_followed(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// Tells of one pool.
    pub(crate) fn tell(&self, found: &Found<'_>) {
        self.0.borrow_mut().retain_mut(|follower| follower.tell(found));
    }

    /// A pool is not served any more.
    pub(crate) fn tell_gone(&self, pool: &str) {
        self.0.borrow_mut().retain_mut(|follower| {
            if !follower.is_about(pool) {
                return true;
            }
            let is_told = follower.send(PoolNews::Gone { pool: pool.to_owned() });
            is_told && follower.followed == Followed::AllPools
        });
    }

    /// Ends what all of them follow.
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

    /// Whether it was taken, or can be.
    fn send(&mut self, news: PoolNews) -> bool {
        self.to.try_send(news).is_ok()
    }

    /// Tells of a pool what is followed of it; whether there is more to come.
    fn tell(&mut self, found: &Found<'_>) -> bool {
        let Found { report, has_changed, events, ended } = found;
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
        Found { report, has_changed: false, events: &[], ended }
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
        news.tell(&Found { report: &works, has_changed: true, events: &[event], ended: &[] });
        assert_eq!(kinds(&mut all), ["state", "event", "progress", "progress"]);
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
            .map(|_| news.follow(&[], Followed::AllPools).expect("there is a place"))
            .collect();
        let refused = news.follow(&[], Followed::AllPools).expect_err("no place");
        assert_eq!(refused.reason, Reason::Busy);
        all.pop();
        all.push(news.follow(&[], Followed::AllPools).expect("one has left"));
        let unknown = news.follow(&[], job(JobKind::Scrub));
        assert_eq!(unknown.expect_err("no such pool").reason, Reason::Busy, "places are asked for first");
        all.clear();
        let unknown = news.follow(&[], job(JobKind::Scrub)).expect_err("no such pool");
        assert_eq!(unknown.reason, Reason::Missing);
    }
}
