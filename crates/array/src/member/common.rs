//! State that the members of one drive on several threads share: its end, its errors, the flushes
//! that it refused, and the pace of background work.
//!
//! A drive has one [`Common`], and an [`Opening`] for each of its members. A member that changes
//! something for all wakes the dispatchers of the others ([`Opening::call`]).
//!
//! Expected faults: a drive that fails on one thread while others wait for it, and threads that
//! look at any moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stripewise_drive::CauseTable;

use crate::flush_losses::FlushFailures;
use crate::member::flush_turn::FlushTurn;
use crate::member::opening::Opening;
use crate::member::{FailReason, MemberCounters, MemberLabel};

/// State that the members of one drive share.
pub(super) struct Common {
    /// Every error that a member returns carries this very allocation, so that its origin is known
    /// even when another drive of the same name has replaced it.
    pub label: MemberLabel,
    pub flush_failures: FlushFailures,
    pub flush_turn: FlushTurn,
    pub errors: ErrorCounts,
    failure: OnceLock<Failure>,
    /// Read errors of late and when they were last counted.
    recent_read_errors: Mutex<(f64, u64)>,
    /// Bits of a floating-point number.
    background_share: AtomicU64,
    /// 0: no slices.
    slice_ns: AtomicU64,
    openings: Mutex<Vec<Arc<Opening>>>,
    has_several: AtomicBool,
}

/// Why a drive is out of service.
pub(super) struct Failure {
    pub reason: FailReason,
    /// The drive is not there any more.
    pub was_pulled: bool,
}

/// Errors of a drive.
#[derive(Default)]
pub(super) struct ErrorCounts {
    pub read: AtomicU64,
    pub write: AtomicU64,
    pub checksum: AtomicU64,
}

/// Load of the members on other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadElsewhere {
    /// Service time of clients' requests so far, ns.
    pub clients_busy_ns: u64,
    /// Service time of background requests so far, ns.
    pub background_busy_ns: u64,
    /// Time at which the drive counts as free of their clients; `None` while these have requests.
    pub loaded_until_ns: Option<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    pub(super) fn new(label: MemberLabel, background_share: f64) -> Arc<Self> {
        Arc::new(Self {
            label,
            flush_failures: FlushFailures::default(),
            flush_turn: FlushTurn::default(),
            errors: ErrorCounts::default(),
            failure: OnceLock::new(),
            recent_read_errors: Mutex::new((0.0, 0)),
            background_share: AtomicU64::new(background_share.to_bits()),
            slice_ns: AtomicU64::new(0),
            openings: Mutex::default(),
            has_several: AtomicBool::new(false),
        })
    }

    /// Registers a member. Its counts stay when it has ended.
    pub(super) fn open(&self) -> Arc<Opening> {
        let mut openings = locked(&self.openings);
        let opening = Arc::new(Opening::new(openings.len() as u64 + 1));
        self.has_several.store(!openings.is_empty(), Ordering::Release);
        openings.push(opening.clone());
        opening
    }

    /// True if there was more than one member.
    pub(super) fn has_several(&self) -> bool {
        self.has_several.load(Ordering::Acquire)
    }

    /// Why the drive is out of service, if it is.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Takes the drive out of service; false if it is already.
    pub(super) fn fail(&self, failure: Failure) -> bool {
        self.failure.set(failure).is_ok()
    }

    /// Counts a read error at `now_ns`, and gives the number of late; each counts half after
    /// `half_life_ns`.
    pub(super) fn count_read_error(&self, now_ns: u64, half_life_ns: u64) -> f64 {
        let mut recent = locked(&self.recent_read_errors);
        let halvings = now_ns.saturating_sub(recent.1) as f64 / half_life_ns as f64;
        *recent = (recent.0 * 0.5f64.powf(halvings) + 1.0, now_ns);
        recent.0
    }

    pub(super) fn set_background_share(&self, share: f64) {
        self.background_share.store(share.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn background_share(&self) -> f64 {
        f64::from_bits(self.background_share.load(Ordering::Relaxed))
    }

    pub(super) fn set_slice_ns(&self, slice_ns: Option<u64>) {
        self.slice_ns.store(slice_ns.unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn slice_ns(&self) -> Option<u64> {
        Some(self.slice_ns.load(Ordering::Relaxed)).filter(|slice_ns| *slice_ns > 0)
    }

    /// Wakes the dispatchers of all members but one.
    pub(super) fn call_others(&self, own: &Opening) {
        if self.has_several() {
            let openings = locked(&self.openings).clone();
            openings.iter().filter(|opening| opening.number != own.number).for_each(|other| other.call());
        }
    }

    /// Load of all members but one; `None` if it is the only one.
    pub(super) fn load_elsewhere(&self, own: &Opening) -> Option<LoadElsewhere> {
        if !self.has_several() {
            return None;
        }
        let start = LoadElsewhere { loaded_until_ns: Some(0), ..LoadElsewhere::default() };
        let openings = locked(&self.openings);
        let others = openings.iter().filter(|opening| opening.number != own.number);
        Some(others.fold(start, |sum, other| LoadElsewhere {
            clients_busy_ns: sum.clients_busy_ns.wrapping_add(other.clients_busy_ns.get()),
            background_busy_ns: sum.background_busy_ns.wrapping_add(other.background_busy_ns.get()),
            loaded_until_ns: sum.loaded_until_ns.zip(other.loaded_until_ns()).map(|(one, two)| one.max(two)),
        }))
    }

    /// Counters of all members together.
    pub(super) fn counters(&self) -> MemberCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let errors = MemberCounters {
            read_errors: of(&self.errors.read),
            write_errors: of(&self.errors.write),
            checksum_errors: of(&self.errors.checksum),
            ..MemberCounters::default()
        };
        locked(&self.openings).iter().fold(errors, |sum, opening| MemberCounters {
            requests: sum.requests + opening.requests.get(),
            read_bytes: sum.read_bytes + opening.read_bytes.get(),
            written_bytes: sum.written_bytes + opening.written_bytes.get(),
            background_busy_ns: sum.background_busy_ns + opening.background_busy_ns.get(),
            foreground_busy_ns: sum.foreground_busy_ns + opening.foreground_busy_ns.get(),
            ..sum
        })
    }

    /// Requests of all members by cause.
    pub(super) fn causes(&self) -> CauseTable {
        let openings = locked(&self.openings);
        openings.iter().fold(CauseTable::default(), |sum, opening| sum.plus(&opening.causes.table()))
    }
}

impl ErrorCounts {
    /// Counts from none again.
    pub(super) fn forget(&self) {
        for count in [&self.read, &self.write, &self.checksum] {
            count.store(0, Ordering::Relaxed);
        }
    }
}
