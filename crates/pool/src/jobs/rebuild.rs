//! Filling columns that were given new slabs, or that catch up: many rows at once, the most exposed
//! first.
//!
//! Enough rows are rebuilt concurrently to keep every drive busy
//! ([`stripewise_array::tuning::Tuning::rebuild_rows`]), bounded by the memory that their regions
//! take: a quarter of `ArrayOptions::background_bytes` per drive of the pool, at least once that,
//! and twice as much on disks while clients do nothing: their streams would have to make room for
//! many rows. Rows are filled one after the other, and made durable many at a time beside that
//! ([`stripewise_array::tuning::Tuning::rebuild_batch_bytes`]): a flush and the checksum pages of
//! one row would cost a disk more than its data. What was filled is recorded every few seconds, by
//! a commit that takes it from the arrays. Rows that hold nothing written cost nothing. When drives
//! come or go the rows in work are ended and what is due is looked at again, so that what has
//! become more exposed comes first. Faults expected: the drive that is filled fails (then another
//! drive takes over), sources that cannot be read (then blocks are lost, which is recorded), more
//! lost blocks than there is room for in the record (then rows that lost any do not count as filled
//! until there is; all others do, and the rebuild ends).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_drive::{Context, Event};

use crate::Inner;
use crate::error::PoolError;
use crate::jobs::row_queue::{Due, RowQueue};
use crate::jobs::{Lane, Parts, Progress, watched};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::{DriveId, Id};
use crate::open_volumes::OpenVolumes;
use stripewise_array::rows::{Run, SlotPlace, SlotState};
use stripewise_array::{Array, ArrayError, ArrayHandle};

/// Factor for the rows in work on disks while clients are idle: with few rows the arms have to go
/// back and forth.
const IDLE_FACTOR: u64 = 2;

/// Polling interval for idle clients.
const IDLE_LOOK_NS: u64 = 100_000_000;

/// Work due in one part.
#[derive(Default)]
pub(crate) struct DueInPart {
    pub rows: u64,
    /// Bytes to be written to the new slabs; an upper bound for columns that catch up.
    pub bytes: f64,
    /// The one drive that is filled, where it is one.
    pub drive: Option<DriveId>,
    /// Then: bytes that it has already; so what was done before the pool was opened counts.
    pub done_bytes: f64,
}

/// A row that was filled and is not durable yet.
struct FilledRow {
    part: Id,
    row: u64,
    bytes: u64,
    /// Generation of the pool when its filling began.
    generation: u64,
}

/// Rows between their filling and their being durable: at most two batches.
struct FilledRows {
    rows: RefCell<Vec<FilledRow>>,
    bytes: Cell<u64>,
    batch_bytes: u64,
    ended: Cell<bool>,
    changed: Event,
}

impl FilledRows {
    fn new(batch_bytes: u64) -> Self {
        let (rows, bytes, ended) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Self { rows, bytes, batch_bytes, ended, changed: Event::new() }
    }

    fn add(&self, row: FilledRow) {
        self.bytes.set(self.bytes.get() + row.bytes);
        self.rows.borrow_mut().push(row);
        self.changed.notify_all();
    }

    /// No further rows come.
    fn end(&self) {
        self.ended.set(true);
        self.changed.notify_all();
    }

    /// Ends when fewer than two batches wait.
    async fn until_room(&self) {
        while self.bytes.get() >= 2 * self.batch_bytes {
            self.changed.wait().await;
        }
    }

    /// The next batch, or what there is after the interval or at the end; in order, so that what
    /// lies together on the drives is written together.
    async fn next(&self, context: &Context, interval_ns: u64) -> Option<Vec<FilledRow>> {
        while self.rows.borrow().is_empty() && !self.ended.get() {
            self.changed.wait().await;
        }
        let until_ns = context.now_ns() + interval_ns;
        while self.bytes.get() < self.batch_bytes && !self.ended.get() {
            let left_ns = until_ns.saturating_sub(context.now_ns());
            if left_ns == 0 {
                break;
            }
            let _ = context.time_limit_ns(left_ns, pin!(self.changed.wait())).await;
        }
        self.bytes.set(0);
        let mut rows = self.rows.take();
        rows.sort_unstable_by_key(|row| (row.part, row.row));
        self.changed.notify_all();
        if rows.is_empty() { None } else { Some(rows) }
    }
}

fn is_to_fill(state: SlotState) -> bool {
    matches!(state, SlotState::Rebuilding | SlotState::CatchingUp)
}

/// Bytes for people.
fn in_mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / (1 << 20) as f64)
}

fn columns_to_fill(run: &Run) -> u64 {
    run.places.iter().filter(|place| is_to_fill(place.state)).count() as u64
}

/// Returns the work due in a part.
pub(crate) fn due_in(manifest: &Manifest, array: &Array) -> DueInPart {
    let mut due = DueInPart::default();
    let mut drives: BTreeSet<u32> = BTreeSet::new();
    for run in array.rows().runs() {
        let columns = columns_to_fill(run);
        if columns == 0 {
            continue;
        }
        due.rows += run.rows;
        drives.extend(run.places.iter().filter(|p| is_to_fill(p.state)).map(|p| p.drive));
        let written: u64 = (run.first_row..run.end_row()).map(|row| array.row_written_bytes(row)).sum();
        due.bytes += (written * columns) as f64;
    }
    if let (Some(&drive), 1) = (drives.first(), drives.len()) {
        due.drive = manifest.drive(drive).map(|drive| drive.id);
        let rows = array.rows();
        let has = |run: &&Run| {
            let is_done = |place: &SlotPlace| place.drive == drive && place.state == SlotState::Active;
            run.places.iter().any(is_done)
        };
        let done = rows.runs().filter(has).flat_map(|run| run.first_row..run.end_row());
        due.done_bytes = done.map(|row| array.row_written_bytes(row)).sum::<u64>() as f64;
    }
    due
}

/// All rows that are to be filled and nothing stands in the way of.
fn due_rows(volumes: &OpenVolumes, lane: &Lane) -> (Vec<Due>, Vec<(Id, f64)>) {
    let (mut due, mut bytes) = (Vec::new(), Vec::new());
    for (part, array) in volumes.parts() {
        if lane.is_stalled(Some((part, None))) {
            continue;
        }
        let stalled = lane.stalled_rows(part);
        let (rows, part_bytes) = array.visit(|array| due_rows_of(part, array, &stalled));
        if part_bytes > 0.0 || !rows.is_empty() {
            bytes.push((part, part_bytes));
        }
        due.extend(rows);
    }
    (due, bytes)
}

/// Rows of a part that are to be filled, and their bytes.
fn due_rows_of(part: Id, array: &Array, stalled: &BTreeSet<u64>) -> (Vec<Due>, f64) {
    let (mut due, mut part_bytes): (Vec<Due>, f64) = (Vec::new(), 0.0);
    if array.is_protected() {
        return (due, part_bytes);
    }
    let tolerance = array.geometry().fault_tolerance() as isize;
    let filled: BTreeSet<(u64, usize)> = array.rebuilt().into_iter().collect();
    let is_there = |drive: &u32| array.member(*drive).is_some();
    for run in array.rows().runs().filter(|run| columns_to_fill(run) > 0) {
        let is_lacking = |place: &&SlotPlace| place.state != SlotState::Active || !is_there(&place.drive);
        let left = tolerance - run.places.iter().filter(is_lacking).count() as isize;
        let drives = run.places.iter().filter(|place| place.state != SlotState::Missing);
        let drives: SmallVec<[u32; 8]> = drives.map(|place| place.drive).filter(is_there).collect();
        let is_due = |row: &u64| {
            let mut columns = (0..run.places.len()).filter(|column| is_to_fill(run.places[*column].state));
            columns.any(|column| !filled.contains(&(*row, column))) && !stalled.contains(row)
        };
        for row in (run.first_row..run.end_row()).filter(is_due) {
            part_bytes += (array.row_written_bytes(row) * columns_to_fill(run)) as f64;
            match due.last_mut() {
                Some(last) if last.first_row + last.rows == row && last.drives == drives => last.rows += 1,
                _ => due.push(Due { part, first_row: row, rows: 1, left, drives: drives.clone() }),
            }
        }
    }
    (due, part_bytes)
}

impl Inner {
    /// Rows whose regions fit into memory at once.
    pub(crate) fn rows_at_once(&self, parts: impl Iterator<Item = Id>) -> u64 {
        let row_bytes = |part: Id| {
            let Some(array) = self.volumes.array(part) else { return 1 };
            array.visit(Array::background_bytes_per_row)
        };
        let largest = parts.map(row_bytes).max().unwrap_or(1);
        let drives = self.manifest.borrow().drives.iter().filter(|drive| drive.is_online()).count() as u64;
        let limit = self.options.array.background_bytes.saturating_mul(drives.max(4)) / 4;
        (limit / largest).clamp(1, self.tuning().rebuild_rows)
    }

    /// Fills what is to be filled, until it is done or something changed; whether there was
    /// anything.
    pub(crate) async fn rebuild(&self) -> bool {
        let lane = &self.jobs.rebuilding;
        let (due, bytes) = due_rows(&self.volumes, lane);
        if due.is_empty() {
            // The second look found nothing left to do.
            if !lane.current.borrow().is_empty() {
                self.jobs.end(lane);
            }
            return false;
        }
        let old = lane.current.take();
        let parts: Parts = bytes
            .into_iter()
            .map(|(part, bytes)| {
                let progress = old.get(&part).cloned().unwrap_or_else(|| progress_so_far(self, part));
                progress.total_bytes.set(progress.done_bytes.get() + bytes);
                if progress.begun.get().is_none() && bytes > 0.0 {
                    note_begins(self, part, &progress, bytes);
                }
                (part, progress)
            })
            .collect();
        self.jobs.begin(lane, parts.clone());
        let workers = self.rows_at_once(parts.keys().copied());
        let filling = Filling {
            pool: self,
            parts: parts.clone(),
            queue: RefCell::new(RowQueue::new(due, self.tuning().rebuild_look_ahead)),
            filled: FilledRows::new(self.tuning().rebuild_batch_bytes),
        };
        let working = filling.run(workers);
        let checkpoint = || async move { self.commit(None, |_| ()).await };
        watched(&self.context, &parts, working, self.tuning().rebuild_checkpoint_ns, checkpoint).await;
        self.jobs.pause(lane);
        filling.record().await;
        // The next work may be in the same parts; their progress goes on.
        let finished = filling.queue.borrow().is_empty() && !self.jobs.look_again.get();
        if finished || self.lifecycle.is_closed() {
            self.jobs.end(lane);
        }
        self.jobs.changed.notify_all();
        true
    }
}

/// Rows that are being filled, until all are or something changed.
struct Filling<'a> {
    pool: &'a Inner,
    parts: Parts,
    queue: RefCell<RowQueue>,
    filled: FilledRows,
}

impl Filling<'_> {
    /// Fills `workers` rows at once, on disks more while clients are idle, and makes them durable.
    async fn run(&self, workers: u64) {
        let are_disks = self.arrays().all(|array| array.visit(Array::is_seek_bound));
        let more = if are_disks { workers * IDLE_FACTOR } else { workers };
        let all = more.min(self.pool.tuning().rebuild_rows);
        let filling = async {
            join_all((0..all).map(|number| self.work(number >= workers))).await;
            self.filled.end();
        };
        join(filling, self.finish_rows()).await;
    }

    /// Arrays of all parts.
    fn arrays(&self) -> impl Iterator<Item = ArrayHandle> {
        self.parts.keys().filter_map(|part| self.pool.volumes.array(*part))
    }

    /// Fills one row after the other; with `while_idle`, only while clients do nothing.
    async fn work(&self, while_idle: bool) {
        let pool = self.pool;
        while !pool.lifecycle.is_closed() && !pool.jobs.look_again.get() {
            if while_idle && self.arrays().any(|array| array.visit(Array::serves_clients)) {
                if self.queue.borrow().is_empty() {
                    return;
                }
                pool.context.sleep_ns(IDLE_LOOK_NS).await;
                continue;
            }
            let is_free = |part: Id, row: u64| {
                let array = pool.volumes.array(part);
                array.is_none_or(|array| array.visit(|array| array.is_row_unused(row)))
            };
            let Some(next) = self.queue.borrow_mut().next(is_free) else { return };
            if let Some(array) = pool.volumes.array(next.part) {
                let due_bytes = self.fill_row(&array, next.part, next.row).await;
                if let Some(progress) = self.parts.get(&next.part) {
                    progress.add(due_bytes as f64);
                }
            }
            self.queue.borrow_mut().done(&next);
            self.filled.until_room().await;
        }
    }

    /// Bytes that were filled, or needed no copying.
    async fn fill_row(&self, array: &ArrayHandle, part: Id, row: u64) -> u64 {
        let due_bytes = array.visit(|array| {
            let columns = array.rows().run(row).map_or(0, columns_to_fill);
            array.row_written_bytes(row) * columns
        });
        let generation = self.pool.manifest.borrow().generation;
        match array.call(async move |array| array.fill_row(row).await).await {
            Ok(done) => {
                // Data that needed no copying is done as well.
                let bytes = due_bytes.max(done.bytes);
                self.filled.add(FilledRow { part, row, bytes, generation });
                bytes
            }
            Err(error) => {
                self.row_failed(part, row, generation, &error);
                0
            }
        }
    }

    /// Makes durable what was filled, many rows at a time, beside the filling of the next.
    async fn finish_rows(&self) {
        // Rows must be durable before the next periodic record.
        let interval_ns = self.pool.tuning().rebuild_checkpoint_ns / 4;
        while let Some(rows) = self.filled.next(&self.pool.context, interval_ns).await {
            let of_part = |part: Id| rows.iter().filter(move |row| row.part == part);
            let all: BTreeSet<Id> = rows.iter().map(|row| row.part).collect();
            for part in all {
                let Some(array) = self.pool.volumes.array(part) else { continue };
                let numbers: Vec<u64> = of_part(part).map(|row| row.row).collect();
                let finish = async move |array: Array| array.finish_rows(&numbers).await.is_ok();
                let are_done = array.call(finish).await;
                for row in of_part(part) {
                    // The error may concern one of them only.
                    if !are_done && let Err(error) = self.rebuild_row_again(&array, row).await {
                        self.row_failed(part, row.row, row.generation, &error);
                    }
                }
            }
        }
    }

    async fn rebuild_row_again(&self, array: &ArrayHandle, row: &FilledRow) -> Result<(), ArrayError> {
        if self.pool.manifest.borrow().generation != row.generation {
            self.pool.jobs.look_again.set(true);
            return Err(ArrayError::Closed);
        }
        let row = row.row;
        array.call(async move |array| array.rebuild_row(row).await).await.map(drop)
    }

    fn row_failed(&self, part: Id, row: u64, generation: u64, error: &ArrayError) {
        if matches!(error, ArrayError::Closed | ArrayError::Protected) {
            return;
        }
        // Its place, or who is there, changed: it is looked at again.
        if self.pool.manifest.borrow().generation != generation {
            self.pool.jobs.look_again.set(true);
            return;
        }
        let name = self.pool.manifest.borrow().volume_of(part).1;
        let why = format!("the rebuild of volume {name} stopped: {error}");
        self.pool.jobs.rebuilding.stall(Some((part, Some(row))), why);
    }

    /// Records what was filled.
    async fn record(&self) {
        let pool = self.pool;
        let lost: u64 = self.arrays().map(|array| array.visit(Array::take_new_losses)).sum();
        if lost > 0 {
            let text = format!(
                "{lost} blocks of 4 KiB could not be rebuilt, since no drive had them any more; reading them is an error until \
                 they are written"
            );
            pool.news.notice(text.clone());
            pool.news.event(EventKind::Loss, &text);
        }
        // The commit finds what is current now.
        let committed = pool.commit(None, |_| ()).await;
        for (&part, progress) in &self.parts {
            let name = pool.manifest.borrow().volume_of(part).1;
            let Some(array) = pool.volumes.array(part) else { continue };
            let (rebuilt, is_whole) = array.visit(|array| (array.rebuilt(), array.lacking_rows().is_empty()));
            if let Err(error) = &committed {
                let why = format!("the rebuild of volume {name} could not be recorded: {error}");
                pool.jobs.rebuilding.stall(Some((part, None)), why);
            } else if let Some((row, _)) = rebuilt.first()
                && !pool.jobs.look_again.get()
            {
                let rows: BTreeSet<u64> = rebuilt.iter().map(|(row, _)| *row).collect();
                let full = PoolError::LossesFull { pool: pool.name() };
                let why = format!(
                    "{} of the rows of volume {name} have no redundancy until what they lost is recorded: {full}",
                    rows.len()
                );
                pool.jobs.rebuilding.stall(Some((part, Some(*row))), why);
            } else if is_whole {
                note_ended(pool, part, progress);
            }
        }
    }
}

pub(crate) fn note_begins(pool: &Inner, part: Id, progress: &Progress, bytes: f64) {
    let done_bytes = progress.done_bytes.get();
    progress.begun.set(Some((pool.context.now_ns(), done_bytes)));
    let (name, left) = (pool.manifest.borrow().volume_of(part).1, in_mib(bytes));
    let text = match done_bytes > 0.0 {
        false => format!("the rebuild of volume {name} began: {left} to copy"),
        true => format!("the rebuild of volume {name} goes on: {left} left to copy"),
    };
    pool.news.event(EventKind::Rebuild, &text);
}

pub(crate) fn note_ended(pool: &Inner, part: Id, progress: &Progress) {
    let name = pool.manifest.borrow().volume_of(part).1;
    let text = match progress.begun.take() {
        None => format!("volume {name} has all its redundancy again"),
        Some((begun_ns, done_before)) => {
            let seconds = (pool.context.now_ns() - begun_ns) as f64 / 1e9;
            let copied = in_mib(progress.done_bytes.get() - done_before);
            format!(
                "the rebuild of volume {name} ended: {copied} in {seconds:.1} s; it has all its \
                 redundancy again"
            )
        }
    };
    pool.news.event(EventKind::Rebuild, &text);
}

/// Progress of a part, if known.
fn progress_so_far(pool: &Inner, part: Id) -> Rc<Progress> {
    let progress = Progress::default();
    if let Some(array) = pool.volumes.array(part) {
        let manifest = &*pool.manifest.borrow();
        progress.done_bytes.set(array.visit(|array| due_in(manifest, array)).done_bytes);
    }
    Rc::new(progress)
}
