//! Stripes on their way to the drives. One direction, no step calls back:
//!
//! 1. *ready*: the row has slabs, checksum pages are begun, the chunk's write-intent bit is
//!    durable;
//! 2. *prepare*: what the units will hold, in whole blocks, and the plan; its reads are sent;
//! 3. *read* and *parity*: old data are awaited, parity and checksums computed. A member that goes
//!    in between has the stripe planned again;
//! 4. *log*: what is about to be written is durable in the journal;
//! 5. *send*: the plan's writes are with the drives;
//! 6. *await*: they are in place, and the journal knows. A drive that refuses twice is excluded
//!    before the write counts.
//!
//! Stripes that are written together go through each step together, so their I/Os are in the
//! drives' queues together and merge there. One that fails leaves the others alone. Callers hold
//! the stripes: `write.rs` for clients, `write_back/destage.rs` for what is pending.
//!
//! Faults expected: drives that refuse, at any step; no space for a row; a journal that fails.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, DriveError, IoRequest, Operation, Segments};
use stripewise_layout::{Place, Stripe, UnitRange, WriteMethod, WritePlan, plan_write};

use crate::array::parity::{new_parity, slice_of};
use crate::array::parts::{
    StripRanges, StripeParts, covered, pad_with_zeroes, split_by_unit, written_ranges,
};
use crate::array::{BLOCK_BYTES, HostRequest, Inner};
use crate::checksums::Pin;
use crate::error::ArrayError;
use crate::journal::{ALL_BEFORE, Journal, Kind, Part, Quota, Record};
use crate::log::{Logged, WriteLog};
use crate::map::regions::WriteIntent;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::read::recover::HeldStripe;
use crate::stripes::lock_order;
use crate::sums::NewSums;

/// One entry per stripe that is written together: one, for the most part.
pub(crate) type Group<T> = SmallVec<[T; 1]>;

/// A stripe that is to be written.
pub(crate) struct StripeWrite {
    pub index: u64,
    pub content: NewContent,
    pub fua: bool,
    pub class: Class,
    /// The journal has the data already, up to this record.
    pub covers: Option<u64>,
}

impl StripeWrite {
    fn is_whole_blocks(&self) -> bool {
        let is_whole = |(from, data): &(u64, Buffer)| {
            from.is_multiple_of(BLOCK_BYTES) && data.len().is_multiple_of(BLOCK_BYTES as usize)
        };
        match &self.content {
            NewContent::Pieces(pieces) => pieces.iter().all(is_whole),
            NewContent::Parts(..) => true,
        }
    }
}

/// New content of a stripe.
pub(crate) enum NewContent {
    /// Ranges of the stripe's data, in order and without gaps within a unit: where each begins. One
    /// alone need not be whole blocks.
    Pieces(SmallVec<[(u64, Buffer); 1]>),
    /// Whole blocks by unit.
    Parts(Box<PutTogether>),
}

/// New content of a stripe that was put together from pieces and what lies between them.
pub(crate) struct PutTogether {
    pub parts: StripeParts,
    /// Changed ranges of all units; the rest keeps the stripe's content.
    pub changed: StripRanges,
    /// Old content read from the stripe for the write.
    pub old: OldData,
    /// Write plan to use instead of the one with the fewest reads.
    pub plan: Option<WritePlan>,
}

/// A stripe of which is known what it will hold and how it is written; old data are being read.
struct Prepared {
    stripe: Stripe,
    parts: StripeParts,
    /// Ranges of the stripe that change, and of its parity with them.
    changed: StripRanges,
    fua: bool,
    class: Class,
    covers: Option<u64>,
    /// The stripe was never written, so what it held before is known to be zeros.
    is_new: bool,
    /// Lost blocks are poisoned: the journal has none of it.
    is_poison: bool,
    plan: WritePlan,
    reads: Reads,
    /// Until the write has ended.
    _intent: WriteIntent,
}

// Room for the reads of a write within one unit under two parities. No more: the value is moved in
// memory several times with every write.
type Reads = SmallVec<[(UnitRange, Buffer, Completion); 3]>;

/// Old content read from a stripe for its write.
pub(crate) type OldData = SmallVec<[(UnitRange, Buffer); 3]>;

/// A stripe of which everything that is to be written is known.
struct Computed {
    prepared: Box<Prepared>,
    parity: SmallVec<[Buffer; 3]>,
    sums: NewSums,
}

/// A stripe that the drives have.
pub(crate) struct InFlight {
    computed: Box<Computed>,
    logged: Option<Logged>,
    writes: Vec<(UnitRange, Segments, Completion)>,
    /// Number of undone repairs when the write was sent.
    undone: u64,
}

/// Outcome of sending a stripe.
pub(crate) enum Sent {
    InFlight(InFlight),
    Ended(Result<(), ArrayError>),
}

/// Stripes that were sent together, in the order in which they were given.
pub(crate) struct SentStripes {
    pub stripes: Group<Sent>,
    /// Log that holds the writes, if any.
    pub log: Option<Rc<WriteLog>>,
    /// Checksum pages that the writes change stay in memory until they have ended.
    _pages: Vec<Pin>,
}

impl SentStripes {
    /// None was sent, all for the same reason.
    pub(crate) fn failed(count: usize, error: &ArrayError) -> Self {
        let stripes = (0..count).map(|_| Sent::Ended(Err(error.clone()))).collect();
        Self { stripes, log: None, _pages: Vec::new() }
    }
}

impl Computed {
    /// Kind of journal record. For a full stripe, and without parity, the journal keeps only that
    /// the stripe is being written.
    fn record_kind(&self) -> Kind {
        match (self.prepared.covers, self.prepared.plan.method) {
            (Some(_), _) => Kind::Parity,
            (None, WriteMethod::FullStripe | WriteMethod::Copy) => Kind::Intent,
            (None, _) => Kind::Redo,
        }
    }

    /// New content of a unit, data or parity.
    fn content(&self, range: UnitRange) -> Segments {
        let parts = &self.prepared.parts;
        if self.parity.is_empty() && parts.len() == 1 {
            return parts[0].iter().map(|(_, data)| data.clone()).collect();
        }
        match range.unit.checked_sub(parts.len()) {
            None => parts[range.unit].iter().map(|(_, data)| data.clone()).collect(),
            Some(number) => SmallVec::from_iter([self.parity[number].clone()]),
        }
    }
}

impl Inner {
    /// Sends what is to be written to stripes that the caller holds alone. Each is in place when
    /// [`Self::until_in_place`] has ended.
    pub(crate) async fn send_stripes(&self, writes: Group<StripeWrite>) -> SentStripes {
        let count = writes.len();
        let intents = match self.make_ready(&writes).await {
            Ok(intents) => intents,
            Err(error) => return SentStripes::failed(count, &error),
        };
        let mut prepared: Group<Result<Box<Prepared>, ArrayError>> = Group::new();
        for (write, intent) in writes.into_iter().zip(intents) {
            prepared.push(match write.is_whole_blocks() {
                true => self.prepare(write, intent),
                // Boxed, so that the common write is shorter in memory.
                false => Box::pin(self.prepare_completed(write, intent)).await,
            });
        }
        let is_logged = self.geometry.parity_units() > 0 || self.sums.get().is_some();
        let log = self.log.open().filter(|_| is_logged);
        let pages = self.load_pages(&mut prepared).await;
        let Some(log) = log else {
            let mut stripes: Group<Sent> = Group::new();
            for stripe in prepared {
                stripes.push(match self.read_and_compute(stripe).await {
                    Ok(computed) => Sent::InFlight(self.send(computed, None)),
                    Err(error) => Sent::Ended(Err(error)),
                });
            }
            return SentStripes { stripes, log: None, _pages: pages };
        };
        let mut computed: Group<Result<Box<Computed>, ArrayError>> = Group::new();
        for stripe in prepared {
            let mut stripe = self.read_and_compute(stripe).await;
            if let Ok(stripe) = &mut stripe
                && stripe.record_kind() == Kind::Intent
                && !stripe.prepared.is_new
                && self.sums.lacks_any_of(&stripe.sums)
            {
                let Computed { prepared, sums, .. } = &mut **stripe;
                Box::pin(self.sums.find_unrecorded(&prepared.stripe, sums, prepared.class)).await;
            }
            computed.push(stripe);
        }
        let stripes = self.log_and_send(&log, computed).await;
        SentStripes { stripes, log: Some(log), _pages: pages }
    }

    /// Before anything is written: slabs, checksum pages in which nothing is recorded yet, and a
    /// durable mark that writes are in flight.
    async fn make_ready(&self, writes: &[StripeWrite]) -> Result<Group<WriteIntent>, ArrayError> {
        self.fill_holes(writes.iter().map(|write| write.index)).await?;
        for write in writes {
            let region = self.regions.region_of(write.index);
            if !self.sums.is_begun(region) {
                Box::pin(self.sums.begin_region(region)).await?;
            }
        }
        let mut intents: Group<WriteIntent> = Group::new();
        let mut pages: SmallVec<[usize; 2]> = SmallVec::new();
        for write in writes {
            let region = self.regions.region_of(write.index);
            let away = self.columns.is_column_away(self.columns.row_of(write.index));
            let (intent, needs_mark) = WriteIntent::new(&self.regions, region, away);
            intents.push(intent);
            let page = self.regions.pages.of(region);
            let needs_mark = needs_mark && !mutation::is_chosen(Mutation::WriteBeforeDirtyMark);
            if needs_mark && !pages.contains(&page) {
                pages.push(page);
            }
        }
        for page in pages {
            Box::pin(self.persist_page(page)).await?;
        }
        Ok(intents)
    }

    /// Has slabs allocated for rows that have none: a thin volume's first write there.
    pub(crate) async fn fill_holes(&self, stripes: impl Iterator<Item = u64>) -> Result<(), ArrayError> {
        for stripe in stripes {
            let row = self.columns.row_of(stripe);
            if self.columns.rows.borrow().is_hole(row) {
                let wanted = HostRequest::AllocateRows { first_row: row, rows: 1 };
                self.host.ask(self.spec.id, wanted).await.map_err(ArrayError::NoSpace)?;
            }
        }
        Ok(())
    }

    /// As [`Self::prepare`], of one range that need not be whole blocks.
    async fn prepare_completed(
        &self,
        mut write: StripeWrite,
        intent: WriteIntent,
    ) -> Result<Box<Prepared>, ArrayError> {
        if let NewContent::Pieces(pieces) = &mut write.content {
            let (stripe, is_new) =
                (self.geometry.stripe(write.index), self.regions.is_unwritten(write.index));
            for (from, data) in pieces {
                (*from, *data) = HeldStripe::new(self, &stripe, Class::Foreground)
                    .complete_blocks(*from, data, is_new)
                    .await?;
            }
        }
        self.prepare(write, intent)
    }

    /// Completes stripes that were never written, plans, and sends the plan's reads.
    fn prepare(&self, write: StripeWrite, intent: WriteIntent) -> Result<Box<Prepared>, ArrayError> {
        let StripeWrite { index, content, fua, class, covers } = write;
        let stripe = self.geometry.stripe(index);
        let is_new = self.regions.is_unwritten(index);
        let (mut old, mut known_plan) = (OldData::new(), None);
        let (mut parts, changed) = match content {
            NewContent::Parts(content) => {
                let PutTogether { parts, changed, old: before, plan } = *content;
                (old, known_plan) = (before, plan);
                (parts, changed)
            }
            NewContent::Pieces(pieces) => {
                let parts = split_by_unit(&self.geometry, &pieces);
                let changed = covered(written_ranges(&parts).iter().map(|range| (range.start, range.end)));
                (parts, changed)
            }
        };
        if is_new {
            parts.iter_mut().for_each(|parts| pad_with_zeroes(parts, &self.zeroes));
        }
        let is_poison = known_plan.is_some();
        let plan = match known_plan {
            Some(plan) => self.check_writable().map(|()| plan)?,
            None => self.plan(&stripe, &parts)?,
        };
        let mut prepared = Box::new(Prepared {
            stripe,
            parts,
            changed,
            fua,
            class,
            covers,
            is_new,
            is_poison,
            plan,
            reads: Reads::new(),
            _intent: intent,
        });
        self.send_reads(&mut prepared, old);
        Ok(prepared)
    }

    /// Plans a stripe with the members that are there now.
    fn plan(&self, stripe: &Stripe, parts: &StripeParts) -> Result<WritePlan, ArrayError> {
        // Before looking at what is missing: a protected array may have members missing that must
        // not be written without.
        self.check_writable()?;
        let missing = self.columns.missing_in(stripe.index);
        let plan = plan_write(&self.geometry, stripe, &written_ranges(parts), &missing)
            .map_err(|lost| ArrayError::Lost { stripe: stripe.index, what: lost.to_string() })?;
        self.count(|counters| match plan.method {
            WriteMethod::Copy => {}
            WriteMethod::FullStripe => counters.full_stripe_writes += 1,
            WriteMethod::ReadModifyWrite => counters.read_modify_writes += 1,
            WriteMethod::ReconstructWrite | WriteMethod::DecodeWrite => counters.reconstruct_writes += 1,
        });
        Ok(plan)
    }

    /// Sends what the plan reads and is not known yet.
    fn send_reads(&self, prepared: &mut Prepared, mut old: OldData) {
        let Prepared { stripe, plan, class, .. } = &*prepared;
        let read = |&range: &UnitRange| {
            if let Some(known) = old.iter().position(|(known, _)| *known == range) {
                return (range, old.swap_remove(known).1, Completion::ready(Ok(())));
            }
            let buffer = self.buffers.allocate(range.length() as usize);
            let answer = self.submit_unless_lost(stripe, range, *class, Cause::PreRead, buffer.clone());
            (range, buffer, answer)
        };
        prepared.reads = plan.reads.iter().map(read).collect();
    }

    /// Loads the checksum pages that the writes will change, while old data are being read. Where
    /// that fails no stripe is written.
    async fn load_pages(&self, group: &mut [Result<Box<Prepared>, ArrayError>]) -> Vec<Pin> {
        if self.sums.get().is_none() {
            return Vec::new();
        }
        let mut ranges: SmallVec<[(Place, u64); 4]> = SmallVec::new();
        for prepared in group.iter().flatten() {
            ranges.extend(prepared.plan.writes.iter().chain(&prepared.plan.reads).map(|range| {
                let place = prepared.stripe.units[range.unit];
                (Place { offset_bytes: place.offset_bytes + range.start, ..place }, range.length())
            }));
        }
        if self.sums.are_loaded(&ranges) {
            return Vec::new();
        }
        match Box::pin(self.sums.load(&ranges)).await {
            Ok(pages) => pages,
            Err(error) => {
                group
                    .iter_mut()
                    .filter(|stripe| stripe.is_ok())
                    .for_each(|stripe| *stripe = Err(error.clone()));
                Vec::new()
            }
        }
    }

    /// Awaits the reads: what the plan needs of the old data.
    async fn read_old(&self, prepared: &mut Prepared, old: &mut OldData) -> Result<(), ArrayError> {
        loop {
            let Prepared { stripe, plan, reads, class, covers, .. } = &mut *prepared;
            old.clear();
            let mut lost = None;
            let mut planned_for = self.columns.missing_in(stripe.index);
            for (range, mut buffer, answer) in std::mem::take(reads) {
                let answer = answer.await;
                let is_right = answer.is_ok() && self.sums.is_unit_right(stripe, range, &buffer).await?;
                if !is_right {
                    if let Err(error) = &answer
                        && !self.bad.is_unit_lost(stripe, range)
                    {
                        Box::pin(self.note_read_error(error)).await?;
                    }
                    planned_for = self.columns.missing_in(stripe.index);
                    if !planned_for.contains(stripe.units[range.unit].member) {
                        match Box::pin(HeldStripe::new(self, stripe, *class).fetch_unit(range)).await {
                            Ok(content) => buffer = content,
                            Err(error @ ArrayError::Lost { .. }) => lost = Some(error),
                            Err(error) => return Err(error),
                        }
                    }
                }
                old.push((range, buffer));
            }
            if let Some(lost) = lost {
                let reads = plan.reads.iter();
                let strip = reads
                    .fold((u64::MAX, 0), |(start, end), read| (start.min(read.start), end.max(read.end)));
                let how = (*class, covers.is_some());
                // The content read may predate the poisoning.
                Box::pin(self.poison_lost_blocks(stripe, strip, how, lost)).await?;
            } else {
                let needed =
                    plan.reads.iter().all(|range| !planned_for.contains(stripe.units[range.unit].member));
                let unchanged = planned_for == self.columns.missing_in(stripe.index);
                if needed && unchanged {
                    return Ok(());
                }
            }
            // A member went while its old data were being read: what is to be read and written is
            // another matter now.
            prepared.plan = self.plan(&prepared.stripe, &prepared.parts)?;
            self.send_reads(prepared, OldData::new());
        }
    }

    /// Awaits the old data; then parity, and the checksums of all that is new.
    async fn read_and_compute(
        &self,
        prepared: Result<Box<Prepared>, ArrayError>,
    ) -> Result<Box<Computed>, ArrayError> {
        let mut prepared = prepared?;
        let mut old = OldData::new();
        if !prepared.plan.reads.is_empty() {
            // Boxed, so that writes that read nothing are shorter in memory.
            Box::pin(self.read_old(&mut prepared, &mut old)).await?;
        }
        let parity = new_parity(&self.geometry, &self.buffers, &prepared.parts, &prepared.plan, &old);
        drop(old);
        let mut computed = Box::new(Computed { prepared, parity, sums: NewSums::new() });
        if self.sums.get().is_some() {
            let Prepared { stripe, parts, plan, .. } = &*computed.prepared;
            let written = (stripe, &parts[..], plan, &computed.parity[..]);
            self.sums.add_new_sums(written, &mut computed.sums).await?;
        }
        Ok(computed)
    }

    /// Logs and sends as much as the journal takes at once. What is logged is in place before there
    /// is more: a task that has a record in the journal and waits for room there could wait for
    /// ever.
    async fn log_and_send(
        &self,
        log: &Rc<WriteLog>,
        mut computed: Group<Result<Box<Computed>, ArrayError>>,
    ) -> Group<Sent> {
        let mut sent: Group<Sent> = Group::new();
        while !computed.is_empty() {
            let count = self.portion_of(log, &computed);
            let mut portion: Group<_> = computed.drain(..count).collect();
            let logged = self.log_portion(log, &mut portion).await;
            let portion = portion.into_iter().zip(logged).map(|(computed, logged)| match computed {
                Ok(computed) => Sent::InFlight(self.send(computed, logged)),
                Err(error) => Sent::Ended(Err(error)),
            });
            let portion: Group<Sent> = portion.collect();
            if computed.is_empty() {
                sent.extend(portion);
                break;
            }
            for stripe in portion {
                // Boxed, so that the common write is shorter in memory.
                sent.push(Sent::Ended(Box::pin(self.until_in_place(Some(log), stripe)).await));
            }
        }
        sent
    }

    /// Number of leading stripes that the journal takes at once; at least one.
    fn portion_of(&self, log: &WriteLog, computed: &[Result<Box<Computed>, ArrayError>]) -> usize {
        if computed.len() == 1 {
            return 1;
        }
        let mut records: SmallVec<[Record; 4]> = SmallVec::new();
        for (index, stripe) in computed.iter().enumerate() {
            if let Some(stripe) = stripe.as_ref().ok().filter(|stripe| !stripe.prepared.is_new) {
                records.push(self.record_of(log, stripe));
            }
            if index > 0 && !log.fits(&records) {
                return index;
            }
        }
        computed.len()
    }

    /// Makes durable in the journal what is about to be written, all together; the record of each
    /// stripe that needs one. Where that fails none is written.
    async fn log_portion(
        &self,
        log: &Rc<WriteLog>,
        computed: &mut [Result<Box<Computed>, ArrayError>],
    ) -> Group<Option<Logged>> {
        let mut of_stripes: Group<Option<Logged>> = computed.iter().map(|_| None).collect();
        let must_flush =
            |stripe: &Computed| log.must_flush_before(stripe.prepared.stripe.index, stripe.record_kind());
        let mut result = Ok(());
        if computed.iter().flatten().any(|stripe| must_flush(stripe)) {
            // Boxed, so that the common write is shorter in memory.
            result = Box::pin(self.flush_members()).await;
        }
        if result.is_ok() {
            match self.log_needed(log, computed).await {
                Ok(logged) => logged.into_iter().for_each(|(index, logged)| of_stripes[index] = Some(logged)),
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            computed
                .iter_mut()
                .filter(|stripe| stripe.is_ok())
                .for_each(|stripe| *stripe = Err(error.clone()));
        }
        of_stripes
    }

    /// Logs what needs a record, all together, each with the index of its stripe; new stripes need
    /// none. More is logged only when these are in place: room comes when the oldest records are
    /// over.
    async fn log_needed(
        &self,
        log: &Rc<WriteLog>,
        computed: &[Result<Box<Computed>, ArrayError>],
    ) -> Result<SmallVec<[(usize, Logged); 4]>, ArrayError> {
        let to_log: SmallVec<[(usize, &Computed); 4]> = computed
            .iter()
            .enumerate()
            .filter_map(|(index, stripe)| Some((index, &**stripe.as_ref().ok()?)))
            .filter(|(_, stripe)| !stripe.prepared.is_new)
            .collect();
        let Some((_, first)) = to_log.first() else { return Ok(SmallVec::new()) };
        let is_destaging = first.prepared.covers.is_some();
        if !is_destaging {
            let may_be_held =
                |stripe| !self.regions.is_unwritten(stripe) && !self.deferred.pending.has_stripe(stripe);
            lock_order::assert_holds_only(&*self.table, "room in the journal", may_be_held);
        }
        let quota = if is_destaging { Quota::Destage } else { Quota::InPlace };
        let records: Vec<Record> = to_log.iter().map(|(_, stripe)| self.record_of(log, stripe)).collect();
        let room = self.wait_for_room(log, log.journal.reserve(Journal::bytes_of(&records), quota)).await?;
        let names = log.begin_records(&records);
        let logged = log.end_records(names, log.journal.append(records, room).await)?;
        Ok(to_log.into_iter().map(|(index, _)| index).zip(logged).collect())
    }

    fn record_of(&self, log: &WriteLog, computed: &Computed) -> Record {
        let prepared = &computed.prepared;
        let kind = computed.record_kind();
        let stripe = prepared.stripe.index;
        let is_first = kind == Kind::Intent && !log.has_live(stripe);
        let mut record = Record {
            sequence: 0,
            kind,
            stripe,
            covers: prepared.covers.unwrap_or(if is_first { ALL_BEFORE } else { 0 }),
            parts: SmallVec::new(),
            sums: self.sums.runs(&computed.sums, kind == Kind::Intent),
        };
        if kind == Kind::Intent {
            return record;
        }
        let data_units = self.geometry.data_units();
        for range in &prepared.plan.writes {
            let mut part = |start: u64, segments: Segments| {
                record.parts.push(Part { unit: range.unit as u16, start: start as u32, segments });
            };
            match range.unit.checked_sub(data_units) {
                None if kind == Kind::Parity && !prepared.is_poison => {}
                None => part(range.start, computed.content(*range)),
                // Between ranges that change it is written as it was.
                Some(number) => {
                    let is_cut = mutation::is_chosen(Mutation::FirstStretchOnly);
                    let stretches = if is_cut { 1 } else { usize::MAX };
                    for (start, end) in prepared.changed.iter().take(stretches) {
                        let parity = slice_of(&computed.parity[number], range.start, *start, *end);
                        part(*start, SmallVec::from_iter([parity]));
                    }
                }
            }
        }
        record
    }

    fn send(&self, computed: Box<Computed>, logged: Option<Logged>) -> InFlight {
        let mut in_flight = InFlight { computed, logged, writes: Vec::new(), undone: self.bad.undone() };
        let send = |&range: &UnitRange| {
            let segments = in_flight.computed.content(range);
            let answer = self.submit_unit_write(&in_flight, range, segments.clone());
            (range, segments, answer)
        };
        in_flight.writes = in_flight.computed.prepared.plan.writes.iter().map(send).collect();
        in_flight
    }

    fn submit_unit_write(&self, in_flight: &InFlight, range: UnitRange, segments: Segments) -> Completion {
        let Prepared { stripe, class, fua, covers, .. } = &*in_flight.computed.prepared;
        // Data that the journal holds whole is durable already.
        let fua = *fua && in_flight.logged.is_none_or(|logged| logged.kind != Kind::Redo);
        let own_units = if self.geometry.copies() > 1 { 1 } else { self.geometry.data_units() };
        let cause = match covers {
            Some(_) => Cause::Destage,
            None if range.unit >= own_units => Cause::Parity,
            None => Cause::Data,
        };
        let place = stripe.units[range.unit];
        let request =
            IoRequest::with_segments(Operation::Write { fua }, place.offset_bytes + range.start, segments);
        self.columns.submit(place.member, *class, request.because(cause))
    }

    /// Ends when what was sent is in place, and has the journal know.
    pub(crate) async fn until_in_place(
        &self,
        log: Option<&Rc<WriteLog>>,
        sent: Sent,
    ) -> Result<(), ArrayError> {
        let mut in_flight = match sent {
            Sent::InFlight(in_flight) => in_flight,
            Sent::Ended(result) => return result,
        };
        let written = self.await_writes(&mut in_flight).await;
        let prepared = &in_flight.computed.prepared;
        let logged = log.zip(in_flight.logged);
        if written.is_ok() {
            self.regions.mark_initialised(prepared.stripe.index);
            return match logged {
                None => Ok(()),
                Some((log, logged)) if prepared.covers.is_some() => {
                    log.note_applied(logged);
                    Ok(())
                }
                Some((log, logged)) => self.note_in_place(log, logged, prepared.fua).await,
            };
        }
        if let Some((log, logged)) = logged
            && self.geometry.parity_units() == 0
            && !self.lifecycle.is_protected()
        {
            // Each block is what its sum says by now, so there is nothing to put right. Where there
            // is parity, what failed takes no more writes, and the record is needed.
            log.note_applied(logged);
        }
        written
    }

    /// Awaits the writes. A member that refuses twice is excluded; the others then hold what it
    /// lacks, as long as the layout can do without all that are gone.
    async fn await_writes(&self, in_flight: &mut InFlight) -> Result<(), ArrayError> {
        let mut failed: Vec<DriveError> = Vec::new();
        for (range, segments, answer) in std::mem::take(&mut in_flight.writes) {
            if let Err(_first) = answer.await
                && let Err(error) = self.submit_unit_write(in_flight, range, segments).await
            {
                failed.push(error);
                continue;
            }
            let prepared = &in_flight.computed.prepared;
            let is_kept = prepared.fua || prepared.covers.is_some();
            if is_kept || self.bad.undone() == in_flight.undone {
                self.bad.repair_unit(&prepared.stripe, range);
            }
        }
        let Computed { prepared, sums, .. } = &*in_flight.computed;
        let sequence = in_flight.logged.map_or(1, |logged| logged.sequence);
        let mut result = Ok(());
        if !failed.is_empty() {
            result = Box::pin(self.note_failed_writes(prepared.stripe.index, failed)).await;
        }
        if result.is_ok() {
            sums.iter().for_each(|of_unit| self.sums.set(of_unit, sequence));
        } else {
            Box::pin(self.sums.record_failed_write(&prepared.stripe, sums, sequence)).await;
        }
        result
    }
}
