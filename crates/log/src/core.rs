//! The state of an open log, and the waiting on it. The steps in `steps/` work on it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{Buffer, Context, Event, Rounds, Semaphore};

use crate::drives::Drives;
use crate::error::LogError;
use crate::heads::Heads;
use crate::map::Map;
use crate::map::cache::PageCache;
use crate::open_segment::OpenSegment;
use crate::options::Limits;
use crate::plan::Plan;
use crate::rate::DecayingRate;
use crate::readers::Readers;
use crate::roots::RootStore;
use crate::roots::codec::RebuildMark;
use crate::shape::Segments;
use crate::staging::Staging;
use crate::summary::Kind;
use crate::usage::Usage;

/// Identity of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) volume: u64,
}

/// An open log.
pub(crate) struct Core {
    pub(crate) context: Context,
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) segments: Segments,
    pub(crate) drives: Drives,
    pub(crate) roots: Rc<dyn RootStore>,
    pub(crate) state: RefCell<State>,
    pub(crate) cache: PageCache,
    pub(crate) readers: Readers,
    /// Notified when a segment was sealed, written or freed, a commit or a merge ended, or the log
    /// failed.
    pub(crate) progress: Event,
    /// Wakes the tasks in the background.
    pub(crate) work: Event,
    pub(crate) commits: Rounds,
    /// Turn to seal the clients' segment.
    pub(crate) seal_turn: Semaphore,
    /// Turn to seal a survivors' segment.
    pub(crate) survivor_turn: Semaphore,
    pub(crate) flush_turn: Semaphore,
    /// Turn to change snapshots and heads.
    pub(crate) snapshot_turn: Semaphore,
    /// Turn to read all segments: one rebuild or scrub at a time.
    pub(crate) pass_turn: Semaphore,
}

/// A sealed segment that is being written.
pub(crate) struct InFlight {
    pub(crate) segment: u32,
    pub(crate) data: Buffer,
}

/// Work that the tasks in the background are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) commit: bool,
    pub(crate) spill: bool,
    /// A merge of everything, after which the numbers of live blocks are exact.
    pub(crate) full_merge: bool,
}

/// Figures since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Blocks that clients wrote.
    pub client_blocks: u64,
    /// Blocks of client data written in segments.
    pub new_blocks: u64,
    /// Blocks that the cleaner moved.
    pub moved_blocks: u64,
    /// Blocks of map pages written.
    pub map_blocks: u64,
    /// Segments written, of any kind.
    pub segments: u64,
    /// Segments cleaned.
    pub cleaned: u64,
    /// Commits of the roots.
    pub commits: u64,
    /// Merges of runs.
    pub merges: u64,
    /// Staging records.
    pub staged: u64,
    /// Blocks reconstructed after a read error or a wrong checksum.
    pub repaired_blocks: u64,
    /// Upper bound of the live blocks.
    pub live_blocks: u64,
    /// Blocks that clients may use.
    pub limit_blocks: u64,
    /// Snapshots of the volume and its clones.
    pub snapshots: u64,
    /// Blocks that only snapshots see, at least: exact after a merge of everything.
    pub snapshot_blocks: u64,
    /// Segments cleaned of late, as bytes of data per second.
    pub cleaned_bytes_per_s: u64,
}

/// The state that changes together.
pub(crate) struct State {
    pub(crate) open: OpenSegment,
    /// Segments that the cleaner fills: blocks that survived once, and more often.
    pub(crate) survivors: [OpenSegment; 2],
    pub(crate) next_open: u64,
    pub(crate) map: Map,
    pub(crate) usage: Usage,
    pub(crate) plan: Plan,
    /// By sequence.
    pub(crate) in_flight: BTreeMap<u64, InFlight>,
    /// Every segment before this sequence is durable.
    pub(crate) durable_before: u64,
    pub(crate) staging: Staging,
    /// Last staging record whose blocks are in sealed segments.
    pub(crate) staged_through: u64,
    pub(crate) heads: Heads,
    /// Sealed data segments whose entries are in no run.
    pub(crate) recent: Vec<(u64, u32)>,
    pub(crate) frozen_through: u64,
    pub(crate) next_run: u64,
    /// Tables that became runs: a look-up in memory that finds nothing means the same as before
    /// while this number is the same.
    pub(crate) spills: u64,
    /// Segments retired by the running commit.
    pub(crate) retired: usize,
    pub(crate) wanted: Wanted,
    /// Progress of an unfinished rebuild.
    pub(crate) rebuild: Option<RebuildMark>,
    /// Full merges begun.
    pub(crate) full_merges_begun: u64,
    /// Full merges done.
    pub(crate) full_merges: u64,
    /// Time of cleaning per segment gained, ns.
    pub(crate) gain_ns: f64,
    /// Bytes of the segments that were cleaned.
    pub(crate) cleaning: DecayingRate,
    pub(crate) figures: LogFigures,
    pub(crate) is_closing: bool,
    pub(crate) failed: Option<LogError>,
}

impl State {
    /// True if blocks that the cleaner moves may be late.
    pub(crate) fn has_late_survivors(&self) -> bool {
        self.survivors.iter().any(OpenSegment::has_late)
    }

    /// Segments that can be written before the next cleaning.
    pub(crate) fn available(&self) -> usize {
        self.plan.len() + self.usage.free_count() + self.usage.waiting_count() + self.retired
    }

    /// Exchanges the clients' open segment for an empty one.
    pub(crate) fn take_open(&mut self, segments: &Segments) -> OpenSegment {
        let next = self.fresh(Kind::Data(0), segments);
        std::mem::replace(&mut self.open, next)
    }

    /// Exchanges a survivors' segment for an empty one.
    pub(crate) fn take_survivors(&mut self, which: usize, segments: &Segments) -> OpenSegment {
        let next = self.fresh(Kind::Data(which as u8 + 1), segments);
        std::mem::replace(&mut self.survivors[which], next)
    }

    fn fresh(&mut self, kind: Kind, segments: &Segments) -> OpenSegment {
        self.next_open += 1;
        OpenSegment::new(self.next_open, kind, segments)
    }

    /// Bytes of a segment that is being written.
    pub(crate) fn in_flight_data(&self, segment: u32) -> Option<Buffer> {
        self.in_flight.values().find(|flight| flight.segment == segment).map(|flight| flight.data.clone())
    }

    /// True while a segment is being written.
    pub(crate) fn is_in_flight(&self, segment: u32) -> bool {
        self.in_flight.values().any(|flight| flight.segment == segment)
    }

    /// Every segment before this sequence is written.
    pub(crate) fn written_before(&self) -> u64 {
        self.in_flight.first_key_value().map_or(self.plan.next_sequence(), |(&sequence, _)| sequence)
    }
}

impl Core {
    /// An error once the log has failed.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.state.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// An error once the log is closed. What can be read is read even after a failure: whatever was
    /// not written is still in memory.
    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        match &self.state.borrow().failed {
            Some(LogError::Closed) => Err(LogError::Closed),
            _ => Ok(()),
        }
    }

    /// Ends the tasks in the background and refuses all later requests.
    pub(crate) fn close(&self) {
        {
            let state = &mut *self.state.borrow_mut();
            state.is_closing = true;
            state.failed = Some(LogError::Closed);
        }
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Fails every later request that changes something: the environment broke what the log rests
    /// on.
    pub(crate) fn fail(&self, error: LogError) {
        self.state.borrow_mut().failed.get_or_insert(error);
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// Waits until `ready` finds something in the state. `ready` is asked after each step of
    /// progress.
    pub(crate) async fn when<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, LogError> {
        loop {
            self.check()?;
            if let Some(found) = ready(&mut self.state.borrow_mut()) {
                return Ok(found);
            }
            self.progress.wait().await;
        }
    }

    /// Waits until every segment before a sequence is written, and makes them durable.
    pub(crate) async fn make_durable(&self, before: u64) -> Result<(), LogError> {
        let written =
            self.when(|state| Some(state.written_before()).filter(|&written| written >= before)).await?;
        if self.state.borrow().durable_before >= before {
            return Ok(());
        }
        self.drives.flush().await.inspect_err(|error| self.fail(error.clone()))?;
        let mut state = self.state.borrow_mut();
        state.durable_before = state.durable_before.max(written);
        state.staging.durable_before(written);
        drop(state);
        self.progress.notify_all();
        Ok(())
    }

    /// Asks the tasks in the background for work.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.state.borrow_mut().wanted);
        self.work.notify_all();
    }
}
