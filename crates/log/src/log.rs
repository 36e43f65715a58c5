//! A log volume, as its users see it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Context, Event, Rounds, Semaphore};
use stripewise_layout::{Geometry, MemberSet};

use crate::core::{Core, Identity, LogFigures, State, Wanted};
use crate::drives::Drives;
use crate::drives::columns::{Column, Columns};
use crate::error::LogError;
use crate::heads::Heads;
use crate::map::Map;
use crate::map::cache::PageCache;
use crate::map::lineage::Birth;
use crate::open_segment::OpenSegment;
use crate::options::{Limits, LogOptions};
use crate::plan::Plan;
use crate::rate::DecayingRate;
use crate::readers::Readers;
use crate::roots::RootStore;
use crate::roots::codec::Roots;
use crate::shape::{BLOCK_BYTES, LogSpace, Segments};
use crate::staging::Staging;
use crate::steps::background::repeat;
use crate::steps::clean::{self, seal_survivors};
use crate::steps::commit::commit;
use crate::steps::flush::flush;
use crate::steps::read::read;
use crate::steps::rebuild::{LogProgress, LogRebuildReport, rebuild};
use crate::steps::recover::{apply_staged, recover};
use crate::steps::scrub::{LogScrubReport, scrub};
use crate::steps::spill;
use crate::steps::write::{discard, seal_open, write};
use crate::summary::Kind;
use crate::usage::Usage;

/// Parts of a log that its pool provides.
#[derive(Clone)]
pub struct LogInit {
    /// Space on the members.
    pub space: LogSpace,
    /// Columns of the members in order, those that are missing included.
    pub columns: Rc<Columns>,
    /// Members that miss writes.
    pub missing: MemberSet,
    /// Keeper of the roots.
    pub roots: Rc<dyn RootStore>,
}

/// A volume of a log, or a snapshot of one. Copies of the handle share it.
#[derive(Clone)]
pub struct Log {
    pub(crate) core: Rc<Core>,
    /// The head that it reads and writes.
    pub(crate) head: u32,
    /// The snapshot that it reads, by its birth.
    pub(crate) snapshot: Option<Birth>,
}

impl Log {
    /// Creates an empty log of a size. `volume` distinguishes its segments from those of other
    /// logs.
    pub async fn create(
        context: &Context,
        buffers: &BufferPool,
        init: LogInit,
        volume: u64,
        capacity_bytes: u64,
        options: LogOptions,
    ) -> Result<Self, LogError> {
        let heads = Heads::new(capacity_bytes / BLOCK_BYTES);
        let log = Self::new(context, buffers, init, Identity { volume }, heads, options, Plan::new(1, []))?;
        commit(&log.core).await?;
        log.start();
        Ok(log)
    }

    /// Opens a log by its roots, and recovers what was made durable after them.
    pub async fn open(
        context: &Context,
        buffers: &BufferPool,
        init: LogInit,
        roots: &[u8],
        options: LogOptions,
    ) -> Result<Self, LogError> {
        let malformed = || LogError::Invalid("its roots are malformed".into());
        let roots = Roots::decode(roots).ok_or_else(malformed)?;
        let identity = Identity { volume: roots.volume };
        let heads = Heads::from_roots(&roots.heads).ok_or_else(malformed)?;
        // A segment's size is fixed at creation.
        let options = LogOptions { segment_bytes: roots.segment_blocks * BLOCK_BYTES, ..options };
        let log = Self::new(context, buffers, init, identity, heads, options, Plan::default())?;
        if log.core.segments.blocks != roots.segment_blocks
            || !roots.names_only_segments_below(log.core.segments.count)
        {
            return Err(LogError::Invalid("its roots are of another space or layout".into()));
        }
        let staged_through = recover(&log.core, &roots).await?;
        log.start();
        apply_staged(&log.core, staged_through).await?;
        Ok(log)
    }

    fn new(
        context: &Context,
        buffers: &BufferPool,
        init: LogInit,
        identity: Identity,
        heads: Heads,
        options: LogOptions,
        plan: Plan,
    ) -> Result<Self, LogError> {
        let segments = Segments::new(&init.space, options.segment_bytes)?;
        let limits = Limits::new(&options, &segments)?;
        let open = |number: u64, survived: u8| OpenSegment::new(number, Kind::Data(survived), &segments);
        let state = State {
            open: open(0, 0),
            survivors: [open(1, 1), open(2, 2)],
            next_open: 2,
            map: Map::default(),
            usage: Usage::new(segments.count),
            durable_before: plan.next_sequence(),
            plan,
            in_flight: BTreeMap::new(),
            staging: Staging::new(segments.staging_bytes, 0),
            staged_through: 0,
            heads,
            recent: Vec::new(),
            frozen_through: 0,
            next_run: 0,
            spills: 0,
            retired: 0,
            wanted: Wanted::default(),
            rebuild: None,
            full_merges_begun: 0,
            full_merges: 0,
            gain_ns: 0.0,
            cleaning: DecayingRate::default(),
            figures: LogFigures::default(),
            is_closing: false,
            failed: None,
        };
        let LogInit { columns, missing, roots, .. } = init;
        let drives = Drives::new(buffers.clone(), segments.clone(), columns, missing, roots.clone());
        let core = Core {
            context: context.clone(),
            identity,
            limits,
            segments,
            drives,
            roots,
            state: RefCell::new(state),
            cache: PageCache::new(limits.cached_pages),
            readers: Readers::default(),
            progress: Event::new(),
            work: Event::new(),
            commits: Rounds::default(),
            seal_turn: Semaphore::new(1),
            survivor_turn: Semaphore::new(1),
            flush_turn: Semaphore::new(1),
            snapshot_turn: Semaphore::new(1),
            pass_turn: Semaphore::new(1),
        };
        Ok(Self { core: Rc::new(core), head: 0, snapshot: None })
    }

    /// Starts the tasks in the background.
    fn start(&self) {
        self.core.context.spawn(commit_task(self.core.clone()));
        self.core.context.spawn(repeat(self.core.clone(), spill::one_round));
        self.core.context.spawn(repeat(self.core.clone(), clean::one_round));
    }

    /// Size of the volume, bytes.
    pub fn capacity_bytes(&self) -> u64 {
        let heads = &self.core.state.borrow().heads;
        let capacity_blocks = match self.snapshot {
            None => heads.head(self.head).map(|head| head.capacity_blocks),
            Some(birth) => heads.snapshot_of(birth).map(|snapshot| snapshot.capacity_blocks),
        };
        capacity_blocks.map_or(0, |blocks| blocks * BLOCK_BYTES)
    }

    /// Data that clients may store at the same time, bytes. A larger volume is overcommitted.
    pub fn client_bytes(&self) -> u64 {
        self.core.limits.client_blocks * BLOCK_BYTES
    }

    /// Reads a range.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Buffer, LogError> {
        let (lba, count) = self.blocks(offset_bytes, length_bytes as u64)?;
        let view = {
            let heads = &self.core.state.borrow().heads;
            match self.snapshot {
                None => heads.view(self.head)?.clone(),
                Some(birth) => heads.view_of(birth)?,
            }
        };
        read(&self.core, &view, lba, count).await
    }

    /// Writes a range. Durable after a flush, or at once with `fua`.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), LogError> {
        self.check_writable()?;
        let (lba, _) = self.blocks(offset_bytes, data.len() as u64)?;
        write(&self.core, self.head, lba, &data).await?;
        if fua { flush(&self.core).await } else { Ok(()) }
    }

    /// Makes a range read as zeros and frees its space.
    pub async fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        fua: bool,
    ) -> Result<(), LogError> {
        self.check_writable()?;
        let (lba, count) = self.blocks(offset_bytes, length_bytes)?;
        if count > 0 {
            discard(&self.core, self.head, lba, count).await?;
        }
        if fua { flush(&self.core).await } else { Ok(()) }
    }

    /// Discards a range: it reads as zeros from now on.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), LogError> {
        self.write_zeroes(offset_bytes, length_bytes, false).await
    }

    /// Makes everything durable that was acknowledged before.
    pub async fn flush(&self) -> Result<(), LogError> {
        flush(&self.core).await
    }

    /// Makes everything durable in segments and ends the log. It has ended also after an error.
    pub async fn close(&self) -> Result<(), LogError> {
        let written = self.write_out().await;
        self.core.close();
        written
    }

    async fn write_out(&self) -> Result<(), LogError> {
        let core = &self.core;
        let number = core.state.borrow().open.number;
        seal_open(core, number).await?;
        for which in 0..2 {
            seal_survivors(core, which, 1).await?;
        }
        core.state.borrow_mut().is_closing = true;
        commit(core).await
    }

    /// Sends nothing more to the drives and leaves none of them out: its contents matter no more.
    pub fn abandon(&self) {
        self.core.drives.columns.stop();
        self.core.close();
    }

    /// Ends the log without writing anything out. When this returns, nothing of it is in flight
    /// and nothing more is sent, so that its space can be given to others.
    pub async fn end(&self) {
        self.abandon();
        self.core.drives.columns.end().await;
    }

    /// Leaves out members that are recorded as missing. If the layout cannot do without them, the
    /// log takes no more writes, and what they hold stays current.
    pub fn leave_out(&self, missing: MemberSet) {
        if !self.core.drives.leave_out(missing) {
            self.core.fail(LogError::Protected);
        }
    }

    /// Takes no more writes.
    pub fn protect(&self) {
        self.core.fail(LogError::Protected);
    }

    /// The reason why the log takes no more writes.
    pub fn failure(&self) -> Option<LogError> {
        self.core.state.borrow().failed.clone()
    }

    /// The layout's addresses.
    pub fn geometry(&self) -> &Geometry {
        &self.core.segments.geometry
    }

    /// Buffers of the log's thread.
    pub fn buffers(&self) -> &BufferPool {
        &self.core.drives.buffers
    }

    /// Fails for a range beyond the end.
    pub fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), LogError> {
        let capacity_bytes = self.capacity_bytes();
        match offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
            true => Err(LogError::OutOfRange { offset_bytes, length_bytes, capacity_bytes }),
            false => Ok(()),
        }
    }

    /// Fills a member that misses writes with its strips of all segments in use, while clients go
    /// on, and counts it as present once it has everything. Paused by `progress`, dropped or
    /// interrupted by a crash, it goes on from where the roots say the next time that it is called
    /// for the same `identity` of the member's contents.
    pub async fn rebuild(
        &self,
        member: usize,
        identity: u64,
        progress: &dyn Fn(LogProgress) -> ControlFlow<()>,
    ) -> Result<LogRebuildReport, LogError> {
        let rebuilt = rebuild(&self.core, member, identity, progress).await;
        // A refusal after the end of the log is not a drive's.
        rebuilt.map_err(|error| if self.core.drives.columns.has_ended() { LogError::Closed } else { error })
    }

    /// Segments that a member being rebuilt has of those in use, as far as is known: the place that
    /// it is filled up to, of all places.
    pub fn rebuilt_segments(&self, member: usize, identity: u64) -> LogProgress {
        let state = self.core.state.borrow();
        let mark = state.rebuild.filter(|mark| (mark.member, mark.identity) == (member, identity));
        let below = mark.map_or(0, |mark| mark.below);
        let of = |range| state.usage.in_use_in(range);
        LogProgress { segments: of(0..below), of_segments: of(0..self.core.segments.count) }
    }

    /// Makes the progress of a rebuild durable, as far as the member was filled for certain.
    pub async fn checkpoint(&self) -> Result<(), LogError> {
        commit(&self.core).await
    }

    /// Gives a member that misses writes another drive and place, to be rebuilt.
    pub fn replace_column(&self, member: usize, column: Column) {
        self.core.drives.replace_column(member, column);
    }

    /// Columns of the members.
    pub fn columns(&self) -> &Columns {
        &self.core.drives.columns
    }

    /// Bytes of a member's strips of one segment.
    pub fn strips_bytes(&self) -> u64 {
        let segments = &self.core.segments;
        let geometry = &segments.geometry;
        let all = segments.stripes * geometry.units() as u64 * geometry.interleave_bytes();
        all / geometry.width() as u64
    }

    /// Number of segments, in use or not.
    pub fn segments(&self) -> u32 {
        self.core.segments.count
    }

    /// Reads the segments in use of a range, compares them with their checksums and parity, and
    /// mends them with `mends`.
    pub async fn scrub(&self, segments: Range<u32>, mends: bool) -> Result<LogScrubReport, LogError> {
        scrub(&self.core, segments, mends).await
    }

    /// Members that miss writes.
    pub fn missing(&self) -> MemberSet {
        self.core.drives.missing()
    }

    /// Figures since opening.
    pub fn figures(&self) -> LogFigures {
        let state = self.core.state.borrow();
        LogFigures {
            repaired_blocks: self.core.drives.counters.get().repaired,
            live_blocks: state.usage.live(),
            limit_blocks: self.core.limits.client_blocks,
            snapshots: state.heads.snapshot_count() as u64,
            snapshot_blocks: match state.heads.snapshot_count() {
                0 => 0,
                _ => state.map.kept_for_snapshots(),
            },
            cleaned_bytes_per_s: state.cleaning.per_second(self.core.context.now_ns()),
            ..state.figures
        }
    }

    /// True for a snapshot, which never changes.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    fn check_writable(&self) -> Result<(), LogError> {
        if self.is_snapshot() { Err(LogError::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn blocks(&self, offset_bytes: u64, length_bytes: u64) -> Result<(u64, u64), LogError> {
        {
            let heads = &self.core.state.borrow().heads;
            match self.snapshot {
                None => heads.head(self.head).map(drop)?,
                Some(birth) => heads.snapshot_of(birth).map(drop)?,
            }
        }
        self.check_range(offset_bytes, length_bytes)?;
        if !offset_bytes.is_multiple_of(BLOCK_BYTES) || !length_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(LogError::Misaligned { offset_bytes, length_bytes });
        }
        Ok((offset_bytes / BLOCK_BYTES, length_bytes / BLOCK_BYTES))
    }
}

/// Commits when that is asked for, while the log is open.
async fn commit_task(core: Rc<Core>) {
    loop {
        let work = core.work.wait();
        let (is_wanted, is_over) = {
            let state = core.state.borrow();
            (state.wanted.commit, state.is_closing || state.failed.is_some())
        };
        if is_over {
            return;
        }
        if !is_wanted {
            work.await;
        } else if let Err(error) = commit(&core).await {
            return core.fail(error);
        }
    }
}
