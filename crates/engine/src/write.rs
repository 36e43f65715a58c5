//! Writes: gather what belongs to one stripe, plan it, read what parity needs, compute, write.
//!
//! A request enters every stripe it touches at once. Stripes that nobody holds it leads; where it has to wait it may find
//! its piece carried out by another leader. A leader takes all waiting pieces that fit, so that writes that come together
//! become one, and the last, partial stripe of a sequential writer is held back for the rest of it: a full stripe needs no
//! reads. All stripes led go through each step together, so their I/Os are in the drives' queues together and merge there.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::{join, join_all, select};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Completion, IoRequest, Operation, Segments};
use stripewise_layout::{Place, Stripe, UnitRange, WriteMethod, WritePlan, plan_write};

use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::checksums::Pin;
use crate::destage::Room;
use crate::error::ArrayError;
use crate::journal::{Kind, Part, Quota, Record};
use crate::member::Class;
use crate::regions::{MAX_PARTIAL_REGIONS, RegionState, Regions, WriteIntent};
use crate::stripe_table::{Piece, Ticket, Turn, Waiting};
use crate::sums::NewSums;
use crate::write_log::{Logged, WriteLog};

/// The longest a sequential writer's last stripe is held back for its rest; only while other writes are being carried out,
/// so a lone writer never waits.
const HOLD_NS: u64 = 50_000_000;

/// New data of one data unit: parts in order, without gaps.
pub(crate) type UnitParts = SmallVec<[(u64, Buffer); 1]>;

/// One stripe on its way through the steps of a write.
struct Work {
    index: u64,
    stripe: Stripe,
    taken: Vec<(Rc<Ticket>, Piece)>,
    parts: SmallVec<[UnitParts; 8]>,
    fua: bool,
    /// Of the most urgent of its pieces.
    class: Class,
    plan: Option<WritePlan>,
    reads: SmallVec<[(UnitRange, Buffer, Completion); 4]>,
    writes: SmallVec<[(UnitRange, Segments, Completion); 8]>,
    intent: Option<WriteIntent>,
    /// The stripe was never written, so what it held before is known to be zeros.
    virgin: bool,
    parity: SmallVec<[Buffer; 3]>,
    sums: NewSums,
    logged: Option<Logged>,
    /// What was sent has been waited for.
    in_place: bool,
    /// The journal has the data already, up to this record.
    covers: Option<u64>,
    result: Result<(), ArrayError>,
}

impl Work {
    fn of(stripe: Stripe) -> Self {
        Self {
            index: stripe.index,
            stripe,
            taken: Vec::new(),
            parts: SmallVec::new(),
            fua: false,
            class: Class::Foreground,
            plan: None,
            reads: SmallVec::new(),
            writes: SmallVec::new(),
            intent: None,
            virgin: false,
            parity: SmallVec::new(),
            sums: NewSums::new(),
            logged: None,
            in_place: false,
            covers: None,
            result: Ok(()),
        }
    }

    /// Of a full stripe, and where there is no parity, the journal keeps only that it is being written.
    fn record_kind(&self) -> Kind {
        match (self.covers, self.plan.as_ref().expect("planned").method) {
            (Some(_), _) => Kind::Parity,
            (None, WriteMethod::FullStripe | WriteMethod::Copy) => Kind::Intent,
            (None, _) => Kind::Redo,
        }
    }

    /// What the journal holds whole is durable already.
    fn is_fua_in_place(&self) -> bool {
        self.fua && self.logged.is_none_or(|logged| logged.kind != Kind::Redo)
    }
}

impl Array {
    /// Writes `data` at `offset_bytes`, both multiples of 512. With `fua` it is durable when this ends, else after the next
    /// [`Array::flush`]. The caller must not change the buffer until then.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        self.write_as(Class::Foreground, offset_bytes, data, fua).await
    }

    /// As [`Self::write`], in the share of the drives that this class has.
    pub async fn write_as(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        let inner = &self.0;
        inner.check_range(offset_bytes, data.len() as u64)?;
        inner.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        inner.note_heat(offset_bytes, data.len() as u64);
        let _permit = inner.admission.acquire(data.len() as u64).await;
        inner.write_admitted(class, offset_bytes, data, fua).await
    }
}

impl Inner {
    pub async fn write_admitted(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        let end_bytes = offset_bytes + data.len() as u64;
        if !self.regions.all_written() {
            self.admit_new_regions().await?;
        }
        let sequential = self.note_sequence(offset_bytes, end_bytes);
        let mut rooms = self.rooms_for(offset_bytes, &data)?.into_iter();
        self.writes_in_flight.set(self.writes_in_flight.get() + 1);

        let mut led: SmallVec<[u64; 8]> = SmallVec::new();
        let mut waiting: SmallVec<[(u64, Waiting); 2]> = SmallVec::new();
        let mut at = 0;
        for segment in self.geometry.segments(offset_bytes, data.len() as u64) {
            let length = (segment.to - segment.from) as usize;
            let room = rooms.next().map(|room| Rc::new(RefCell::new(Some(room))));
            let piece = Piece { from: segment.from, data: data.slice(at..at + length), fua, class, room };
            at += length;
            match self.table.enter(segment.stripe, piece) {
                Ok(_) => led.push(segment.stripe),
                Err(wait) => waiting.push((segment.stripe, wait)),
            }
        }

        let leading = self.lead_holding_tail(led, sequential);
        let result = if waiting.is_empty() {
            leading.await
        } else {
            // All at once: a stripe that this request is given to lead must not wait for another one, because somebody
            // who has that may be waiting for this.
            let following = join_all(waiting.into_iter().map(|(stripe, wait)| self.follow(stripe, wait)));
            let (first, others) = join(leading, following).await;
            others.into_iter().fold(first, Result::and)
        };
        self.writes_in_flight.set(self.writes_in_flight.get() - 1);
        result?;
        self.forget_dead(offset_bytes, end_bytes);
        // The data are durable, but a region that the map does not know as written would read as zeros after a crash.
        if fua && !self.all_regions_written(offset_bytes, end_bytes) {
            self.flush().await?;
        }
        if fua { self.record_lost().await } else { Ok(()) }
    }

    /// Room for each of the request's pieces to be deferred with; none where it goes in place at once.
    fn rooms_for(&self, offset_bytes: u64, data: &Buffer) -> Result<Vec<Room>, ArrayError> {
        let Some(log) = self.write_log().filter(|_| self.may_defer(data.len() as u64)) else {
            return Ok(Vec::new());
        };
        let segments = self.geometry.segments(offset_bytes, data.len() as u64);
        let lengths: SmallVec<[u64; 4]> = segments.map(|segment| segment.to - segment.from).collect();
        Ok(self.reserve_rooms(&log, &lengths)?.unwrap_or_default())
    }

    /// Waits until the piece was carried out by another leader, or carries it out.
    async fn follow(&self, stripe: u64, wait: Waiting) -> Result<(), ArrayError> {
        match wait.await {
            Turn::Done(outcome) => outcome,
            Turn::Lead => self.lead(&[stripe]).await,
        }
    }

    fn all_regions_written(&self, offset_bytes: u64, end_bytes: u64) -> bool {
        let first = self.regions.region_of(self.geometry.locate(offset_bytes).stripe);
        let last = self.regions.region_of(self.geometry.locate(end_bytes - 1).stripe);
        (first..=last).all(|region| self.regions.state(region) == RegionState::Written)
    }

    /// Keeps the number of partly initialised regions bounded, before any stripe is held.
    async fn admit_new_regions(&self) -> Result<(), ArrayError> {
        while self.regions.partial_count() >= MAX_PARTIAL_REGIONS {
            let oldest = self.regions.partial_regions()[0];
            self.complete_region(oldest).await?;
        }
        Ok(())
    }

    /// Whether the write goes on where an earlier one ended.
    fn note_sequence(&self, offset_bytes: u64, end_bytes: u64) -> bool {
        let mut ends = self.recent_ends.borrow_mut();
        if let Some(stream) = ends.iter_mut().find(|end| **end == offset_bytes) {
            *stream = end_bytes;
            return true;
        }
        let next = self.recent_next.get();
        ends[next] = end_bytes;
        self.recent_next.set((next + 1) % ends.len());
        false
    }

    /// Leads the stripes; the last one, if a sequential writer filled it only in part, apart from the others and later.
    async fn lead_holding_tail(&self, led: SmallVec<[u64; 8]>, sequential: bool) -> Result<(), ArrayError> {
        let Some((&tail, rest)) = led.split_last() else { return Ok(()) };
        let hold = sequential
            && self.geometry.parity_units() > 0
            && self.writes_in_flight.get() > 1
            && self.table.gathered(tail).0 < self.geometry.stripe_data_bytes();
        if !hold {
            return self.lead(&led).await;
        }
        let now = async { if rest.is_empty() { Ok(()) } else { self.lead(rest).await } };
        let later = async {
            self.hold_for_more(tail).await;
            self.lead(&[tail]).await
        };
        let (first, second) = join(now, later).await;
        first.and(second)
    }

    /// Waits until the stripe's queue covers it, or no write is being carried out whose end could bring more.
    async fn hold_for_more(&self, stripe: u64) {
        let deadline = self.context.now_ns() + HOLD_NS;
        // The writer's other stripes begin their work in this same turn.
        stripewise_drive::yield_now().await;
        loop {
            let (bytes, joined) = self.table.gathered(stripe);
            let more_may_come = self.active_groups.get() > 0 && self.context.now_ns() < deadline;
            if bytes >= self.geometry.stripe_data_bytes() || !more_may_come {
                return;
            }
            let joined = std::pin::pin!(joined.wait());
            let activity = std::pin::pin!(self.write_activity.wait());
            let sleep = self.context.sleep_until_ns(deadline);
            select(select(joined, activity), sleep).await;
        }
    }

    /// Carries out the pieces that wait in stripes the caller leads, and leaves the stripes. The result is of all of them.
    async fn lead(&self, stripes: &[u64]) -> Result<(), ArrayError> {
        let works: SmallVec<[Work; 1]> = stripes.iter().map(|&stripe| self.begin(stripe)).collect();
        let Some(log) = self.write_log() else {
            return self.lead_in_place(works).await;
        };
        let (later, now): (Vec<Work>, Vec<Work>) =
            works.into_iter().partition(|work| self.is_deferrable(work));
        let deferring = join_all(later.into_iter().map(|work| self.lead_deferred(&log, work)));
        // Stripes never written need no room in the journal, and must not wait for those that do: a flush that makes room may
        // have to wait for them.
        let (new, others): (Vec<Work>, Vec<Work>) =
            now.into_iter().partition(|work| self.regions.is_virgin(work.index));
        let in_place = join(self.lead_in_place(new.into()), self.lead_in_place(others.into()));
        let (deferred, (first, second)) = join(deferring, in_place).await;
        deferred.into_iter().fold(first.and(second), Result::and)
    }

    /// Part of a stripe, all of it with room to be deferred.
    fn is_deferrable(&self, work: &Work) -> bool {
        let bytes: u64 = work.taken.iter().map(|(_, piece)| piece.data.len() as u64).sum();
        self.write_back
            && bytes < self.geometry.stripe_data_bytes()
            && work.taken.iter().all(|(_, piece)| piece.room.is_some())
    }

    /// Acknowledges pieces of a stripe from the journal, and leaves the stripe.
    async fn lead_deferred(&self, log: &WriteLog, work: Work) -> Result<(), ArrayError> {
        let pieces = work.taken.iter().map(|(_, piece)| {
            let room = piece.room.as_ref().and_then(|room| room.take()).expect("a deferrable piece has room");
            (piece.clone(), room)
        });
        let pieces = pieces.collect();
        let mut result = self.fill_holes(std::slice::from_ref(&work)).await;
        if result.is_ok() {
            result = self.defer(log, &work.stripe, pieces).await;
        }
        for (ticket, _) in &work.taken {
            ticket.finish(result.clone());
        }
        self.table.leave(work.index);
        result
    }

    async fn lead_in_place(&self, mut works: SmallVec<[Work; 1]>) -> Result<(), ArrayError> {
        if works.is_empty() {
            return Ok(());
        }
        self.active_groups.set(self.active_groups.get() + 1);
        let mut marked = self.destage_first(&works).await;
        if marked.is_ok() {
            marked = self.fill_holes(&works).await;
        }
        if marked.is_ok() {
            marked = self.begin_sums_of(&works).await;
        }
        if marked.is_ok() {
            marked = self.mark_dirty(&mut works).await;
        }
        let mut result = Ok(());
        for work in &mut works {
            work.result = marked.clone();
            if work.result.is_ok() {
                work.result = self.prepare(work).await;
            }
        }
        let is_logged = self.geometry.parity_units() > 0 || self.sums.get().is_some();
        let log = self.write_log().filter(|_| is_logged);
        let _pages = self.load_pages(&mut works).await;
        for work in &mut works {
            if work.result.is_ok() {
                work.result = self.read_and_compute(work).await;
            }
            if work.result.is_ok() && log.is_none() {
                self.send_writes(work);
            }
        }
        if let Some(log) = &log {
            self.log_in_portions(log, &mut works).await;
        }
        for mut work in works {
            self.put_in_place(log.as_ref(), &mut work).await;
            drop(work.intent);
            for (ticket, _) in &work.taken {
                ticket.finish(work.result.clone());
            }
            self.table.leave(work.index);
            result = result.and(work.result);
        }
        self.active_groups.set(self.active_groups.get() - 1);
        self.write_activity.notify_all();
        result
    }

    /// Logs and sends as much as the journal takes at once. What is logged is in place before there is more: whoever has a
    /// record in the journal and waits for room there could wait for ever.
    async fn log_in_portions(&self, log: &Rc<WriteLog>, works: &mut [Work]) {
        let mut rest = works;
        while !rest.is_empty() {
            let (portion, later) = rest.split_at_mut(self.portion_of(log, rest));
            self.log_and_send(log, portion).await;
            if !later.is_empty() {
                for work in portion {
                    self.put_in_place(Some(log), work).await;
                }
            }
            rest = later;
        }
    }

    /// How many of the first writes the journal takes at once; at least one.
    fn portion_of(&self, log: &WriteLog, works: &[Work]) -> usize {
        if works.len() == 1 {
            return 1;
        }
        let mut records: SmallVec<[Record; 4]> = SmallVec::new();
        for (index, work) in works.iter().enumerate() {
            if work.result.is_ok() && !work.virgin {
                records.push(self.record_of(work));
            }
            if index > 0 && !log.fits(&records) {
                return index;
            }
        }
        works.len()
    }

    /// Waits until what was sent is in place, and has the journal know.
    async fn put_in_place(&self, log: Option<&Rc<WriteLog>>, work: &mut Work) {
        if std::mem::replace(&mut work.in_place, true) {
            return;
        }
        let written = self.finish_writes(work).await;
        if work.result.is_ok() {
            work.result = written;
        }
        if work.result.is_ok() {
            self.regions.mark_initialised(work.index);
            if let (Some(log), Some(logged)) = (log, work.logged) {
                work.result = self.note_in_place(log, logged, work.fua).await;
            }
        } else if let (Some(log), Some(logged)) = (log, work.logged)
            && self.geometry.parity_units() == 0
            && !self.protected.get()
        {
            // Each block is what its sum says by now, so there is nothing to put right. Where there is parity, what failed
            // takes no more writes, and the record is needed.
            log.note_applied(logged);
        }
    }

    /// Takes the pieces to carry out together: aligned to blocks, without overlap, and without gaps within a unit.
    fn begin(&self, index: u64) -> Work {
        let taken = self.table.take_pieces(index, |taken, next| {
            let aligned = |piece: &Piece| {
                piece.from.is_multiple_of(BLOCK_BYTES) && piece.to().is_multiple_of(BLOCK_BYTES)
            };
            taken.iter().all(|(_, piece)| aligned(piece)) && aligned(next) && self.fits(taken, next)
        });
        if taken.len() > 1 {
            self.count(|counters| counters.merged_writes += taken.len() as u64 - 1);
        }
        let is_urgent = taken.iter().any(|(_, piece)| piece.class == Class::Foreground);
        let class = if is_urgent { Class::Foreground } else { Class::Background };
        let fua = taken.iter().any(|(_, piece)| piece.fua);
        Work { fua, class, taken, ..Work::of(self.geometry.stripe(index)) }
    }

    fn fits(&self, taken: &[(Rc<Ticket>, Piece)], next: &Piece) -> bool {
        let ranges_of = |piece: &Piece| self.geometry.data_ranges(piece.from, piece.to());
        ranges_of(next).all(|range| {
            let (mut start, mut end) = (u64::MAX, 0);
            for other in
                taken.iter().flat_map(|(_, piece)| ranges_of(piece)).filter(|other| other.unit == range.unit)
            {
                start = start.min(other.start);
                end = end.max(other.end);
            }
            start == u64::MAX || range.end == start || range.start == end
        })
    }

    /// What is pending of the stripes goes in place before anything else does.
    async fn destage_first(&self, works: &[Work]) -> Result<(), ArrayError> {
        let Some(log) = self.write_log().filter(|_| !self.pending.is_empty()) else { return Ok(()) };
        for work in works {
            self.destage_held(&log, work.index).await?;
        }
        Ok(())
    }

    /// Writes new data that was put together from pending pieces to a stripe that the caller holds alone; the journal has the
    /// data up to the record `covers`.
    pub async fn write_parts(
        &self,
        log: &Rc<WriteLog>,
        stripe: Stripe,
        parts: SmallVec<[UnitParts; 8]>,
        covers: u64,
    ) -> Result<(), ArrayError> {
        let mut works = [Work { parts, covers: Some(covers), ..Work::of(stripe) }];
        self.fill_holes(&works).await?;
        self.begin_sums_of(&works).await?;
        self.mark_dirty(&mut works).await?;
        let work = &mut works[0];
        work.virgin = self.regions.is_virgin(work.index);
        if work.virgin {
            for parts in &mut work.parts {
                self.pad_with_zeroes(parts);
            }
        }
        self.plan(work)?;
        let _pages = self.load_pages(&mut works).await;
        let work = &mut works[0];
        std::mem::replace(&mut work.result, Ok(()))?;
        self.read_and_compute(work).await?;
        self.log_and_send(log, &mut works).await;
        let work = &mut works[0];
        std::mem::replace(&mut work.result, Ok(()))?;
        self.finish_writes(work).await?;
        self.regions.mark_initialised(work.index);
        if let Some(logged) = work.logged {
            log.note_applied(logged);
        }
        Ok(())
    }

    /// Has slabs allocated for rows that have none: a thin volume's first write there.
    async fn fill_holes(&self, works: &[Work]) -> Result<(), ArrayError> {
        for work in works {
            let row = self.row_of(work.index);
            if self.rows.borrow().is_hole(row) {
                self.host.allocate_rows(self.spec.id, row, 1).await.map_err(ArrayError::NoSpace)?;
            }
        }
        Ok(())
    }

    /// Regions that are written for the first time begin with checksum pages in which nothing is recorded.
    async fn begin_sums_of(&self, works: &[Work]) -> Result<(), ArrayError> {
        for work in works {
            self.begin_region_sums(self.regions.region_of(work.index)).await?;
        }
        Ok(())
    }

    /// Loads the checksum pages that the writes will change, while what has to be read of the old data is being read.
    async fn load_pages(&self, works: &mut [Work]) -> Vec<Pin> {
        if self.sums.get().is_none() {
            return Vec::new();
        }
        let mut ranges: SmallVec<[(Place, u64); 16]> = SmallVec::new();
        for work in works.iter().filter(|work| work.result.is_ok()) {
            let Some(plan) = &work.plan else { continue };
            ranges.extend(plan.writes.iter().chain(&plan.reads).map(|range| {
                let place = work.stripe.units[range.unit];
                (Place { offset_bytes: place.offset_bytes + range.start, ..place }, range.length())
            }));
        }
        match self.load_sums(&ranges).await {
            Ok(pages) => pages,
            Err(error) => {
                for work in works {
                    let result = std::mem::replace(&mut work.result, Ok(()));
                    work.result = result.and(Err(error.clone()));
                }
                Vec::new()
            }
        }
    }

    /// Counts the writes in and makes their chunks' dirty marks durable where they are not.
    async fn mark_dirty(&self, works: &mut [Work]) -> Result<(), ArrayError> {
        let mut pages: SmallVec<[usize; 2]> = SmallVec::new();
        for work in works {
            let region = self.regions.region_of(work.index);
            let away = self.is_column_away(self.row_of(work.index));
            let (intent, needs_mark) = WriteIntent::new(&self.regions, region, away);
            work.intent = Some(intent);
            let page = Regions::page_of(region);
            if needs_mark && !pages.contains(&page) {
                pages.push(page);
            }
        }
        for page in pages {
            self.persist_page(page).await?;
        }
        Ok(())
    }

    /// Splits the pieces by unit, completes blocks and virgin stripes, and plans.
    async fn prepare(&self, work: &mut Work) -> Result<(), ArrayError> {
        let virgin = self.regions.is_virgin(work.index);
        work.virgin = virgin;
        if let [(_, piece)] = &mut work.taken[..]
            && !(piece.from.is_multiple_of(BLOCK_BYTES) && piece.to().is_multiple_of(BLOCK_BYTES))
        {
            let whole = self.complete_blocks(&work.stripe, piece, virgin).await?;
            *piece = whole;
        }
        let mut order: SmallVec<[&Piece; 4]> = work.taken.iter().map(|(_, piece)| piece).collect();
        order.sort_by_key(|piece| piece.from);
        work.parts = (0..self.geometry.data_units()).map(|_| UnitParts::new()).collect();
        for piece in order {
            let mut at = 0;
            for range in self.geometry.data_ranges(piece.from, piece.to()) {
                let length = range.length() as usize;
                work.parts[range.unit].push((range.start, piece.data.slice(at..at + length)));
                at += length;
            }
        }
        if virgin {
            for parts in &mut work.parts {
                self.pad_with_zeroes(parts);
            }
        }
        self.plan(work)
    }

    fn plan(&self, work: &mut Work) -> Result<(), ArrayError> {
        // Before looking at what is missing: a protected array may have members missing that must not be written without.
        self.check_writable()?;
        let written = written_ranges(&work.parts);
        let missing = self.missing_in(work.index);
        let plan = plan_write(&self.geometry, &work.stripe, &written, &missing)
            .map_err(|lost| ArrayError::Lost { stripe: work.index, what: lost.to_string() })?;
        self.count(|counters| match plan.method {
            WriteMethod::Copy => {}
            WriteMethod::FullStripe => counters.full_stripe_writes += 1,
            WriteMethod::ReadModifyWrite => counters.read_modify_writes += 1,
            WriteMethod::ReconstructWrite | WriteMethod::DecodeWrite => counters.reconstruct_writes += 1,
        });
        for &range in &plan.reads {
            let buffer = self.buffers.allocate(range.length() as usize);
            let answer = if self.is_lost(&work.stripe, range) {
                self.lost_answer(&work.stripe, range)
            } else {
                self.submit_unit_read(&work.stripe, range, work.class, buffer.clone())
            };
            work.reads.push((range, buffer, answer));
        }
        work.plan = Some(plan);
        Ok(())
    }

    /// The piece widened to whole blocks with what the stripe holds there.
    pub async fn complete_blocks(
        &self,
        stripe: &Stripe,
        piece: &Piece,
        virgin: bool,
    ) -> Result<Piece, ArrayError> {
        let from = piece.from / BLOCK_BYTES * BLOCK_BYTES;
        let to = piece.to().next_multiple_of(BLOCK_BYTES);
        let whole = self.buffers.allocate((to - from) as usize);
        let mut edges: SmallVec<[u64; 2]> = SmallVec::new();
        if piece.from != from {
            edges.push(from);
        }
        if piece.to() != to && edges.first() != Some(&(to - BLOCK_BYTES)) {
            edges.push(to - BLOCK_BYTES);
        }
        for edge in edges {
            let target = whole.slice((edge - from) as usize..(edge - from + BLOCK_BYTES) as usize);
            // What is left of a block that is lost cannot be told, so it would stay lost, and with it what is written now.
            let at = stripe.index * self.geometry.stripe_data_bytes() + edge;
            self.check_alive(at, at + BLOCK_BYTES)?;
            if virgin {
                target.fill(0);
            } else {
                self.fetch_data(stripe, edge, &target, Class::Foreground).await?;
            }
        }
        let at = (piece.from - from) as usize;
        whole.slice(at..at + piece.data.len()).copy_from(&piece.data);
        Ok(Piece { from, data: whole, fua: piece.fua, class: piece.class, room: piece.room.clone() })
    }

    /// Extends a unit's new data to the whole strip with zeros.
    fn pad_with_zeroes(&self, parts: &mut UnitParts) {
        let interleave = self.geometry.interleave_bytes();
        let zeroes = |length: u64| self.zeroes.slice(0..length as usize);
        let Some((first, _)) = parts.first() else {
            parts.push((0, zeroes(interleave)));
            return;
        };
        if *first > 0 {
            let length = *first;
            parts.insert(0, (0, zeroes(length)));
        }
        let (last, data) = parts.last().expect("just seen");
        let end = last + data.len() as u64;
        if end < interleave {
            parts.push((end, zeroes(interleave - end)));
        }
    }

    /// Makes durable in the journal what is about to be written, then sends the writes.
    async fn log_and_send(&self, log: &WriteLog, works: &mut [Work]) {
        let mut prepared = Ok(());
        let must_flush =
            |work: &Work| work.result.is_ok() && log.must_flush_before(work.index, work.record_kind());
        if works.iter().any(must_flush) {
            prepared = self.flush_members().await;
        }
        let to_log: SmallVec<[usize; 4]> =
            (0..works.len()).filter(|&index| works[index].result.is_ok() && !works[index].virgin).collect();
        if prepared.is_ok() && !to_log.is_empty() {
            let is_destaging = works[to_log[0]].covers.is_some();
            let quota = if is_destaging { Quota::Destage } else { Quota::InPlace };
            let records = to_log.iter().map(|&index| self.record_of(&works[index])).collect();
            match log.log(records, quota).await {
                Ok(logged) => {
                    for (&index, logged) in to_log.iter().zip(logged) {
                        works[index].logged = Some(logged);
                    }
                }
                Err(error) => prepared = Err(error),
            }
        }
        for work in works.iter_mut().filter(|work| work.result.is_ok()) {
            work.result = prepared.clone();
            if work.result.is_ok() {
                self.send_writes(work);
            }
        }
    }

    fn record_of(&self, work: &Work) -> Record {
        let plan = work.plan.as_ref().expect("planned");
        let mut record = Record {
            sequence: 0,
            kind: work.record_kind(),
            stripe: work.index,
            covers: work.covers.unwrap_or(0),
            parts: SmallVec::new(),
            sums: self.sum_runs(&work.sums, work.record_kind() == Kind::Intent),
        };
        if record.kind != Kind::Intent {
            let first = if record.kind == Kind::Parity { self.geometry.data_units() } else { 0 };
            record.parts = plan
                .writes
                .iter()
                .filter(|range| range.unit >= first)
                .map(|range| Part {
                    unit: range.unit as u16,
                    start: range.start as u32,
                    segments: self.new_content(work, *range),
                })
                .collect();
        }
        record
    }

    /// A logged write is in place, durably so with `fua`.
    async fn note_in_place(&self, log: &Rc<WriteLog>, logged: Logged, fua: bool) -> Result<(), ArrayError> {
        if fua && logged.kind == Kind::Intent && log.is_alone(logged.stripe) {
            log.note_durable(vec![logged]);
            log.mark().await?;
        } else {
            log.note_applied(logged);
            if fua && logged.kind == Kind::Intent {
                // What the journal has of the stripe from before must not outlive it.
                self.flush_members().await?;
                log.mark().await?;
            }
        }
        if self.can_make_room(log) && !log.checkpointing.replace(true) {
            let Some(inner) = self.me.upgrade() else { return Ok(()) };
            let log = log.clone();
            self.context.spawn(async move {
                // Until there is room: whoever waits for some does not come by here. What cannot be flushed shows when
                // somebody asks for a flush.
                while inner.can_make_room(&log)
                    && inner.flush_members().await.is_ok()
                    && inner.release_records().await.is_ok()
                {}
                log.checkpointing.set(false);
            });
        }
        Ok(())
    }

    /// Whether it is time to release records, and would help: a ring is freed from its oldest end, which only destaging can do
    /// where that is pending.
    fn can_make_room(&self, log: &WriteLog) -> bool {
        let oldest = log.journal.oldest();
        log.is_filling() && oldest.is_some() && oldest != self.pending.oldest_sequence()
    }

    /// Awaits the reads and computes parity.
    async fn read_and_compute(&self, work: &mut Work) -> Result<(), ArrayError> {
        let old = loop {
            let mut old: SmallVec<[(UnitRange, Buffer); 4]> = SmallVec::new();
            let mut planned_for = self.missing_in(work.index);
            for (range, mut buffer, answer) in std::mem::take(&mut work.reads) {
                let answer = answer.await;
                let is_right = answer.is_ok() && self.is_unit_right(&work.stripe, range, &buffer).await?;
                if !is_right {
                    if let Err(error) = &answer
                        && !self.is_lost(&work.stripe, range)
                    {
                        self.note_read_error(error).await?;
                    }
                    planned_for = self.missing_in(work.index);
                    if !planned_for.contains(work.stripe.units[range.unit].member) {
                        buffer = self.fetch_unit(&work.stripe, range, work.class).await?;
                    }
                }
                old.push((range, buffer));
            }
            let plan = work.plan.as_ref().expect("planned");
            let needed =
                plan.reads.iter().all(|range| !planned_for.contains(work.stripe.units[range.unit].member));
            let unchanged = planned_for == self.missing_in(work.index);
            if needed && unchanged {
                break old;
            }
            // A member went while its old data were being read: what is to be read and written is another matter now.
            self.plan(work)?;
        };
        let plan = work.plan.as_ref().expect("planned");
        work.parity = self.new_parity(&work.parts, plan, &old);
        work.sums = self.new_sums(&work.stripe, &work.parts, plan, &work.parity).await?;
        Ok(())
    }

    fn send_writes(&self, work: &mut Work) {
        let plan = work.plan.as_ref().expect("planned");
        let fua = work.is_fua_in_place();
        for &range in &plan.writes {
            let segments = self.new_content(work, range);
            let answer = self.submit_unit_write(&work.stripe, range, segments.clone(), work.class, fua);
            work.writes.push((range, segments, answer));
        }
    }

    /// What is to be written to a unit, data or parity.
    fn new_content(&self, work: &Work, range: UnitRange) -> Segments {
        let data_units = self.geometry.data_units();
        if self.geometry.parity_units() == 0 {
            work.parts[0].iter().map(|(_, data)| data.clone()).collect()
        } else if range.unit < data_units {
            work.parts[range.unit].iter().map(|(_, data)| data.clone()).collect()
        } else {
            SmallVec::from_iter([work.parity[range.unit - data_units].clone()])
        }
    }

    fn submit_unit_write(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        segments: Segments,
        class: Class,
        fua: bool,
    ) -> Completion {
        let place = stripe.units[range.unit];
        let request =
            IoRequest::with_segments(Operation::Write { fua }, place.offset_bytes + range.start, segments);
        self.submit(place.member, class, request)
    }

    /// Awaits the writes. A member that refuses twice is excluded; the others then hold what it lacks, as long as the
    /// layout can do without all that are gone.
    async fn finish_writes(&self, work: &mut Work) -> Result<(), ArrayError> {
        if work.result.is_err() {
            return Ok(());
        }
        let mut failed: SmallVec<[stripewise_drive::DriveError; 2]> = SmallVec::new();
        for (range, segments, answer) in std::mem::take(&mut work.writes) {
            if let Err(_first) = answer.await
                && let Err(error) = self
                    .submit_unit_write(&work.stripe, range, segments, work.class, work.is_fua_in_place())
                    .await
            {
                failed.push(error);
                continue;
            }
            self.forget_lost(&work.stripe, range);
        }
        let sequence = work.logged.map_or(1, |logged| logged.sequence);
        let result = self.note_failed_writes(work, failed).await;
        if result.is_ok() {
            work.sums.iter().for_each(|of_unit| self.set_sums(of_unit, sequence));
        } else {
            self.settle_failed_write(&work.stripe, &work.sums, sequence).await;
        }
        result
    }

    async fn note_failed_writes(
        &self,
        work: &Work,
        mut failed: SmallVec<[stripewise_drive::DriveError; 2]>,
    ) -> Result<(), ArrayError> {
        if failed.is_empty() {
            return Ok(());
        }
        for error in &failed {
            self.note_write_error(error).await?;
        }
        if !self.protected.get() && self.geometry.stripe_survives(work.index, &self.missing_in(work.index)) {
            return Ok(());
        }
        Err(ArrayError::Drive(failed.swap_remove(0)))
    }

    /// Writes zeros to every stripe of a partly initialised region that was not written yet.
    pub async fn complete_region(&self, region: u64) -> Result<(), ArrayError> {
        self.check_writable()?;
        let mut held = Vec::new();
        for stripe in self.regions.stripes_of(region) {
            if self.regions.is_virgin(stripe) {
                let guard = self.table.lock(stripe).await;
                if self.regions.state(region) == RegionState::Partial && self.regions.is_virgin(stripe) {
                    held.push((stripe, guard));
                }
            }
        }
        let mut answers = Vec::new();
        for (index, _) in &held {
            let missing = self.missing_in(*index);
            for place in self.geometry.stripe(*index).units {
                if !missing.contains(place.member) {
                    let length = self.geometry.interleave_bytes();
                    let answer =
                        self.submit_zeroes(place.member, Class::Foreground, place.offset_bytes, length);
                    answers.push(answer);
                }
            }
        }
        let mut result = Ok(());
        for answer in answers {
            if let Err(error) = answer.await {
                result = result.and(self.note_write_error(&error).await);
            }
        }
        result.and(self.check_writable())?;
        if self.sums.get().is_some() {
            for (index, _) in &held {
                let stripe = self.geometry.stripe(*index);
                for unit in 0..stripe.units.len() {
                    let range = UnitRange { unit, start: 0, end: self.geometry.interleave_bytes() };
                    self.record_content(&stripe, range, &self.zeroes).await?;
                }
            }
        }
        for (index, guard) in held {
            self.regions.mark_initialised(index);
            drop(guard);
        }
        Ok(())
    }
}

pub(crate) fn written_ranges(parts: &[UnitParts]) -> SmallVec<[UnitRange; 8]> {
    parts
        .iter()
        .enumerate()
        .filter_map(|(unit, parts)| {
            let (start, _) = parts.first()?;
            let (last, data) = parts.last()?;
            Some(UnitRange { unit, start: *start, end: last + data.len() as u64 })
        })
        .collect()
}
