//! Where an array meets its checksums: the way to their pages on the slabs, verified reads, and the sums of what is written.
//!
//! What was read without its stripe's lock and does not agree may have met a write under way, so it is looked at again under
//! the lock; only then it is the drive's fault, counted against it once, and put right from the rest of the stripe
//! (`recover.rs`). The sums of a write are in the journal before anything is written in place (`write_log.rs`), and in the pages
//! when all of it is in place; until a checkpoint has made the pages durable the journal keeps its record.
//!
//! The sums of all columns are kept up, also of those that are missing, so that what is reconstructed can be verified; where
//! parity that nobody has is not even computed, nothing is recorded of it.
//!
//! Memory: the pages' cache, and [`MAX_KNOWN_BAD`] names of blocks.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_util::future::{join, join_all};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Completion, DriveError, Event, IoRequest, IoResult, Operation, completion};
use stripewise_layout::{Place, Stripe, UnitRange, WritePlan};

use crate::array::{Array, BLOCK_BYTES, Inner, LocalFuture};
use crate::checksums::{
    ChecksumOptions, ChecksumSpec, Checksums, PAGE_BYTES, PAGE_COVERS_BYTES, PageId, PageIo, Pin, Side, Sums,
    recorded_sequence,
};
use crate::error::ArrayError;
use crate::journal::SumRun;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::regions::RegionState;
use crate::rows::{SlotPlace, SlotState};
use crate::write::UnitParts;

/// Bad blocks remembered by name, so that each is counted once however often it is read; of more than that, some are counted
/// again.
const MAX_KNOWN_BAD: usize = 65_536;
/// In a record's run of sums: not of what is written, but of what was there before.
pub(crate) const OLD_SUMS: u16 = 1 << 15;
/// Regions noted as begun, before those that are past it are forgotten.
const MAX_BEGUN: usize = 4096;

/// How an array keeps checksums.
#[derive(Clone, Copy, Debug)]
pub struct SumsInit {
    /// Above all stamps of earlier openings of this array: for instance the pool's generation shifted left by 32 bits.
    pub first_stamp: u64,
    /// Memory for pages.
    pub cache_bytes: usize,
}

/// Bytes of the pages that lie on a drive for each slab: its own, and behind them the copies it keeps of another's.
pub(crate) fn page_bytes_per_slab(slab_bytes: u64) -> u64 {
    2 * (slab_bytes / PAGE_COVERS_BYTES) * PAGE_BYTES as u64
}

/// The checksums of an array, and what it knows about them.
pub(crate) struct BlockSums {
    pub table: Rc<Checksums>,
    /// Regions whose pages were begun afresh since they were last unwritten.
    begun: RefCell<FxHashSet<u64>>,
    beginning: Cell<bool>,
    began: Event,
    known_bad: RefCell<FxHashSet<(usize, u64)>>,
    /// Opened after a stop that was not clean: torn and old pages are nobody's fault.
    lenient: Cell<bool>,
}

/// Sums of new content of one unit, and the pages they belong in.
pub(crate) struct UnitSums {
    pub unit: usize,
    /// Byte in the strip.
    pub start: u64,
    column: u16,
    /// The same place in the column.
    offset_bytes: u64,
    pin: Pin,
    /// `None`: the content is not known, and nothing is to be recorded of so many bytes.
    pub sums: Result<Sums, u64>,
}

/// The sums that a write changes.
pub(crate) type NewSums = SmallVec<[UnitSums; 4]>;

struct SlabPages(Weak<Inner>);

impl SlabPages {
    /// The place of a page: column of its holder, slab, and offset in the slab's pages.
    fn place(inner: &Inner, page: PageId, side: Side) -> Option<(usize, SlotPlace, u64)> {
        let width = inner.geometry.width();
        let (column, first) = match side {
            Side::Own => (usize::from(page.column), 0),
            Side::Copy => {
                ((usize::from(page.column) + 1) % width, page_bytes_per_slab(inner.spec.slab_bytes) / 2)
            }
        };
        let slot = inner.rows.borrow().place(page.row, column)?;
        Some((column, slot, first + u64::from(page.page) * PAGE_BYTES as u64))
    }
}

impl PageIo for SlabPages {
    fn read(&self, page: PageId, side: Side, into: Buffer) -> Completion {
        let request = IoRequest::read(0, into);
        let Some(inner) = self.0.upgrade() else { return crate::columns::gone(&request) };
        match Self::place(&inner, page, side) {
            Some((column, slot, offset)) if inner.holds_current_page(page, column, slot) => {
                inner.submit_to_pages(slot, IoRequest { offset_bytes: offset, ..request })
            }
            _ => crate::columns::gone(&request),
        }
    }

    fn write(&self, page: PageId, side: Side, data: Buffer) -> Completion {
        let request = IoRequest::write(0, data, false);
        let Some(inner) = self.0.upgrade() else { return crate::columns::gone(&request) };
        let Some((column, slot, offset)) = Self::place(&inner, page, side) else {
            return crate::columns::gone(&request);
        };
        let request = IoRequest { offset_bytes: offset, ..request };
        let target = inner.moves.borrow().get(&(page.row, column)).and_then(|moving| moving.target());
        match target {
            Some(to) => inner.submit_pages_to_both(request, (page.row, column), slot, to),
            None if slot.state == SlotState::Missing => crate::columns::gone(&request),
            None => inner.submit_to_pages(slot, request),
        }
    }

    fn flush(&self) -> LocalFuture<'_, Result<(), ArrayError>> {
        Box::pin(async {
            match self.0.upgrade() {
                Some(inner) => inner.flush_drives().await,
                None => Err(ArrayError::Closed),
            }
        })
    }

    fn report<'a>(
        &'a self,
        _: PageId,
        _: Side,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>> {
        Box::pin(async {
            let Some(inner) = self.0.upgrade() else { return Err(ArrayError::Closed) };
            match error.operation {
                Operation::Read => inner.note_read_error(error).await,
                _ => inner.note_write_error(error).await,
            }
        })
    }

    fn found_wrong(&self, page: PageId, side: Side) {
        let Some(inner) = self.0.upgrade() else { return };
        if inner.sums.get().is_none_or(|sums| sums.lenient.get()) {
            return;
        }
        let Some((_, slot, _)) = Self::place(&inner, page, side) else { return };
        if let Some(member) = inner.members.borrow().get(slot.drive) {
            member.member.count_checksum_errors(1);
        }
    }
}

impl Array {
    /// Ends when the writes of checksum pages that are under way now were answered.
    pub(crate) async fn until_pages_written(&self) {
        if let Some(sums) = self.0.sums.get() {
            sums.table.until_written().await;
        }
    }
}

impl Inner {
    /// Gives a new array its checksums.
    pub fn begin_sums(&self, init: SumsInit) {
        let spec = ChecksumSpec {
            volume_id: self.spec.id,
            width: self.geometry.width() as u16,
            slab_bytes: self.spec.slab_bytes,
        };
        let options = ChecksumOptions {
            cache_bytes: init.cache_bytes,
            prefer_newest: true,
            first_stamp: init.first_stamp,
        };
        let io = Rc::new(SlabPages(self.me.clone()));
        let sums = BlockSums {
            table: Checksums::new(&self.buffers, spec, options, io),
            begun: RefCell::default(),
            beginning: Cell::new(false),
            began: Event::new(),
            known_bad: RefCell::default(),
            lenient: Cell::new(false),
        };
        self.block_bytes.set(self.block_bytes.get().max(BLOCK_BYTES));
        assert!(self.sums.set(sums).is_ok(), "set once");
    }

    /// Pages that are torn or old are put down to the stop before this opening.
    pub fn forgive_pages(&self) {
        if let Some(sums) = self.sums.get() {
            sums.lenient.set(true);
        }
    }

    /// A drive has come in: pages of which no place was there may have one now.
    pub fn reload_sums(&self) {
        if let Some(sums) = self.sums.get() {
            sums.table.reload_all();
        }
    }

    /// Whether the place of a page on a column is believed: as its blocks are, but where the column is being filled only when all
    /// of it is, since the pages come last.
    fn holds_current_page(&self, page: PageId, column: usize, slot: SlotPlace) -> bool {
        let is_filled =
            || self.fills.borrow().get(&(page.row, column)).is_some_and(|fill| fill.is_complete());
        match slot.state {
            SlotState::Active => true,
            SlotState::Missing => false,
            SlotState::Rebuilding => is_filled(),
            SlotState::CatchingUp => {
                !self.regions.is_behind(self.region_of_page(page.row, page.page)) || is_filled()
            }
        }
    }

    fn submit_to_pages(&self, slot: SlotPlace, mut request: IoRequest) -> Completion {
        let members = self.members.borrow();
        let Some(member) = members.get(slot.drive) else { return crate::columns::gone(&request) };
        request.offset_bytes +=
            member.sums_base_bytes + u64::from(slot.slab) * page_bytes_per_slab(self.spec.slab_bytes);
        member.member.submit(Class::Upkeep, request)
    }

    fn submit_pages_to_both(
        &self,
        request: IoRequest,
        key: (u64, usize),
        from: SlotPlace,
        to: SlotPlace,
    ) -> Completion {
        let first = self.submit_to_pages(from, request.clone());
        let second = self.submit_to_pages(to, request);
        let (sender, answer) = completion();
        let inner = self.me.upgrade().expect("whoever writes holds the array");
        self.context.spawn(async move {
            let result = first.await;
            if second.await.is_err() {
                inner.fail_move(key, to);
            }
            sender.complete(result);
        });
        answer
    }

    /// Waits for a read, and meanwhile for the pages that it will be verified against.
    pub async fn read_with_pages(
        &self,
        column: usize,
        offset_bytes: u64,
        length_bytes: u64,
        answer: Completion,
    ) -> IoResult {
        let Some(sums) = self.sums.get() else { return answer.await };
        let column = column as u16;
        if sums.table.has_pages(column, offset_bytes, length_bytes) {
            return answer.await;
        }
        // What keeps pages from being loaded shows when they are needed.
        join(answer, sums.table.pin(column, offset_bytes, length_bytes)).await.0
    }

    /// Whether what was read at a place of a column is what should be there.
    pub async fn is_right(
        &self,
        column: usize,
        offset_bytes: u64,
        data: &Buffer,
    ) -> Result<bool, ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(true) };
        if mutation::is_chosen(Mutation::ChecksumsAlwaysAgree) {
            return Ok(true);
        }
        let column = column as u16;
        if let Some(verdict) = sums.table.try_verify(column, offset_bytes, data) {
            return Ok(verdict.is_good());
        }
        Ok(sums.table.verify(column, offset_bytes, data).await?.is_good())
    }

    /// As [`Self::is_right`], of a range of a unit.
    pub async fn is_unit_right(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<bool, ArrayError> {
        let place = stripe.units[range.unit];
        self.is_right(place.member, place.offset_bytes + range.start, data).await
    }

    /// The bad blocks of a range of a unit, each by its first byte in the strip.
    pub async fn bad_blocks(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<SmallVec<[u64; 4]>, ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(SmallVec::new()) };
        if mutation::is_chosen(Mutation::ChecksumsAlwaysAgree) {
            return Ok(SmallVec::new());
        }
        let place = stripe.units[range.unit];
        let verdict = sums.table.verify(place.member as u16, place.offset_bytes + range.start, data).await?;
        Ok(verdict.bad_blocks.iter().map(|block| block * BLOCK_BYTES - place.offset_bytes).collect())
    }

    /// A block was found bad, by somebody who holds its stripe: counts it against its drive, once.
    pub fn note_bad_block(&self, place: Place, start: u64) {
        let Some(sums) = self.sums.get() else { return };
        let mut known = sums.known_bad.borrow_mut();
        if known.len() >= MAX_KNOWN_BAD {
            known.clear();
        }
        if known.insert((place.member, (place.offset_bytes + start) / BLOCK_BYTES))
            && let Some(member) = self.member_at(place)
        {
            member.count_checksum_errors(1);
        }
    }

    /// A range of a column was written: what was bad there is so no more.
    pub fn forget_bad(&self, column: usize, offset_bytes: u64, length_bytes: u64) {
        let Some(sums) = self.sums.get() else { return };
        let mut known = sums.known_bad.borrow_mut();
        if known.is_empty() {
            return;
        }
        for block in offset_bytes / BLOCK_BYTES..(offset_bytes + length_bytes).div_ceil(BLOCK_BYTES) {
            known.remove(&(column, block));
        }
    }

    /// Before the first write of a region: its pages record nothing, whatever was there before.
    pub async fn begin_region_sums(&self, region: u64) -> Result<(), ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(()) };
        loop {
            let is_begun = sums.begun.borrow().contains(&region);
            if is_begun || self.regions.state(region) != RegionState::Unwritten {
                return Ok(());
            }
            if !sums.beginning.replace(true) {
                break;
            }
            sums.began.wait().await;
        }
        let length = self.regions.shape.member_region_bytes;
        let mut result = Ok(());
        for column in 0..self.geometry.width() {
            match sums.table.fresh(column as u16, region * length, length).await {
                // Not kept in memory but where a column is being filled: what is lost of them to others is written first.
                Ok(pages) => self.keep_fresh_pages(column, region, pages),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if result.is_ok() {
            let mut begun = sums.begun.borrow_mut();
            if begun.len() >= MAX_BEGUN {
                begun.retain(|&region| self.regions.state(region) == RegionState::Unwritten);
            }
            begun.insert(region);
        }
        sums.beginning.set(false);
        sums.began.notify_all();
        result
    }

    /// The region is unwritten again.
    pub fn forget_sums(&self, region: u64) {
        let Some(sums) = self.sums.get() else { return };
        sums.begun.borrow_mut().remove(&region);
        let length = self.regions.shape.member_region_bytes;
        for column in 0..self.geometry.width() {
            sums.table.forget(column as u16, region * length, length);
        }
        let bad = sums.known_bad.borrow().len();
        if bad > 0 {
            let blocks = region * length / BLOCK_BYTES..(region + 1) * length / BLOCK_BYTES;
            sums.known_bad.borrow_mut().retain(|(_, block)| !blocks.contains(block));
        }
    }

    /// Loads the pages of all columns of a region at once, as far as that can be done; what keeps one from being loaded shows when
    /// it is needed.
    pub async fn load_region_sums(&self, region: u64) -> Vec<Pin> {
        let Some(sums) = self.sums.get() else { return Vec::new() };
        let length = self.regions.shape.member_region_bytes;
        let columns = 0..self.geometry.width() as u16;
        let pins = join_all(columns.map(|column| sums.table.pin(column, region * length, length))).await;
        pins.into_iter().flatten().collect()
    }

    /// Loads what a write will change, all of it at once; as long as the result lives it stays in memory.
    pub async fn load_sums(&self, ranges: &[(Place, u64)]) -> Result<Vec<Pin>, ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(Vec::new()) };
        let lacks = |(place, length): &&(Place, u64)| {
            !sums.table.has_pages(place.member as u16, place.offset_bytes, *length)
        };
        let loads = ranges
            .iter()
            .filter(lacks)
            .map(|(place, length)| sums.table.pin(place.member as u16, place.offset_bytes, *length));
        join_all(loads).await.into_iter().collect()
    }

    /// The sums of what is about to be written, of all columns, there or not.
    pub async fn new_sums(
        &self,
        stripe: &Stripe,
        parts: &[UnitParts],
        plan: &WritePlan,
        parity: &[Buffer],
    ) -> Result<NewSums, ArrayError> {
        let mut new = NewSums::new();
        let Some(sums) = self.sums.get() else { return Ok(new) };
        let written = crate::write::written_ranges(parts);
        let data_units = self.geometry.data_units();
        if self.geometry.copies() > 1 {
            let range = written[0];
            let mut first: Option<(Sums, (u16, u64))> = None;
            for unit in 0..stripe.units.len() {
                let mut of_copy = self.unit_sums(stripe, UnitRange { unit, ..range }).await?;
                let name = (of_copy.column, of_copy.offset_bytes);
                let values = match &first {
                    Some((values, from)) => sums.table.translate(values, *from, name),
                    None => self.sums_of_parts(name, range.start, &parts[0]),
                };
                first.get_or_insert_with(|| (values.clone(), name));
                of_copy.sums = Ok(values);
                new.push(of_copy);
            }
            return Ok(new);
        }
        for range in &written {
            let mut of_unit = self.unit_sums(stripe, *range).await?;
            let name = (of_unit.column, of_unit.offset_bytes);
            of_unit.sums = Ok(self.sums_of_parts(name, range.start, &parts[range.unit]));
            new.push(of_unit);
        }
        let hull = written
            .iter()
            .fold((u64::MAX, 0), |hull, range| (hull.0.min(range.start), hull.1.max(range.end)));
        let (start, end) = plan.window.unwrap_or(hull);
        for number in 0..self.geometry.parity_units() {
            let range = UnitRange { unit: data_units + number, start, end };
            let mut of_unit = self.unit_sums(stripe, range).await?;
            if let Some(content) = parity.get(number).filter(|content| !content.is_empty()) {
                of_unit.sums = Ok(sums.table.compute(of_unit.column, of_unit.offset_bytes, content));
            }
            new.push(of_unit);
        }
        Ok(new)
    }

    /// A range of a unit with its pages, nothing known of its content yet.
    pub async fn unit_sums(&self, stripe: &Stripe, range: UnitRange) -> Result<UnitSums, ArrayError> {
        let sums = self.sums.get().expect("asked by who has checksums");
        let place = stripe.units[range.unit];
        let (column, offset_bytes) = (place.member as u16, place.offset_bytes + range.start);
        let pin = match sums.table.try_pin(column, offset_bytes, range.length()) {
            Some(pin) => pin,
            None => sums.table.pin(column, offset_bytes, range.length()).await?,
        };
        Ok(UnitSums {
            unit: range.unit,
            start: range.start,
            column,
            offset_bytes,
            pin,
            sums: Err(range.length()),
        })
    }

    fn sums_of_parts(&self, (column, offset_bytes): (u16, u64), start: u64, parts: &UnitParts) -> Sums {
        let sums = self.sums.get().expect("asked by who has checksums");
        let of_part =
            |(from, data): &(u64, Buffer)| sums.table.compute(column, offset_bytes + from - start, data);
        match &parts[..] {
            [part] => of_part(part),
            parts => parts.iter().flat_map(of_part).collect(),
        }
    }

    /// Records what a unit holds from now on.
    pub fn set_sums(&self, new: &UnitSums, sequence: u64) {
        let sums = self.sums.get().expect("whoever has sums has checksums");
        let length_bytes = match &new.sums {
            Ok(values) => {
                sums.table.set(&new.pin, new.offset_bytes, values, recorded_sequence(sequence));
                values.len() as u64 * BLOCK_BYTES
            }
            Err(length_bytes) => {
                sums.table.clear(&new.pin, new.offset_bytes, *length_bytes);
                *length_bytes
            }
        };
        self.forget_bad(usize::from(new.column), new.offset_bytes, length_bytes);
    }

    /// Records what one block of the range holds from now on; `None`: nothing is known of it.
    pub fn set_block_sum(&self, of: &UnitSums, block: usize, sum: Option<u32>, sequence: u64) {
        let Some(sums) = self.sums.get() else { return };
        let offset_bytes = of.offset_bytes + block as u64 * BLOCK_BYTES;
        match sum {
            Some(sum) => sums.table.set(&of.pin, offset_bytes, &[sum], recorded_sequence(sequence)),
            None => sums.table.clear(&of.pin, offset_bytes, BLOCK_BYTES),
        }
    }

    /// What is recorded of a block of the range.
    pub fn recorded_sum(&self, of: &UnitSums, block: usize) -> Option<u32> {
        let sums = self.sums.get()?;
        Some(sums.table.expected(&of.pin, of.offset_bytes + block as u64 * BLOCK_BYTES)?.sum)
    }

    /// The sums as a record of the journal carries them; `with_old`: and what they replace, for who has to tell one from the
    /// other after a crash.
    pub fn sum_runs(&self, new: &NewSums, with_old: bool) -> Vec<SumRun> {
        let mut runs = Vec::new();
        for of_unit in new {
            let Ok(values) = &of_unit.sums else { continue };
            let first_block = (of_unit.start / BLOCK_BYTES) as u32;
            runs.push(SumRun { unit: of_unit.unit as u16, first_block, sums: values.clone() });
            if !with_old {
                continue;
            }
            let mut is_open = false;
            for block in 0..values.len() {
                let Some(old) = self.recorded_sum(of_unit, block) else {
                    is_open = false;
                    continue;
                };
                if is_open {
                    runs.last_mut().expect("just pushed").sums.push(old);
                } else {
                    let unit = of_unit.unit as u16 | OLD_SUMS;
                    let first_block = first_block + block as u32;
                    runs.push(SumRun { unit, first_block, sums: SmallVec::from_iter([old]) });
                    is_open = true;
                }
            }
        }
        runs
    }

    /// A write failed, and what it has left of it is not known: records what of the new is there. The caller holds the stripe.
    pub async fn settle_failed_write(&self, stripe: &Stripe, new: &NewSums, sequence: u64) {
        let Some(sums) = self.sums.get() else { return };
        let missing = self.missing_in(stripe.index);
        for of_unit in new {
            let (Ok(values), false) = (&of_unit.sums, missing.contains(usize::from(of_unit.column))) else {
                continue;
            };
            for (index, value) in values.iter().enumerate() {
                let offset_bytes = of_unit.offset_bytes + index as u64 * BLOCK_BYTES;
                let buffer = self.buffers.allocate(BLOCK_BYTES as usize);
                let request = IoRequest::read(offset_bytes, buffer.clone());
                if self.submit(usize::from(of_unit.column), Class::Foreground, request).await.is_ok()
                    && sums.table.compute(of_unit.column, offset_bytes, &buffer)[0] == *value
                {
                    sums.table.set(&of_unit.pin, offset_bytes, &[*value], recorded_sequence(sequence));
                }
            }
        }
    }

    /// Records the sums of what the caller, who holds the stripe, has put in place of something of which nothing was recorded.
    pub async fn record_content(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<(), ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(()) };
        let mut of_unit = self.unit_sums(stripe, range).await?;
        of_unit.sums = Ok(sums.table.compute(of_unit.column, of_unit.offset_bytes, data));
        self.set_sums(&of_unit, 1);
        Ok(())
    }

    /// Makes all sums recorded so far durable, and lets the journal forget what was kept for them.
    pub async fn release_records(&self) -> Result<(), ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(()) };
        let Some(log) = self.write_log() else { return sums.table.checkpoint().await.map(drop) };
        // One at a time: of records of one stripe a later one must not go before an earlier one. Whoever comes meanwhile is served
        // by the next one, whoever makes it.
        let wanted = log.releases_begun.get() + 1;
        while log.releasing.get() {
            log.released.wait().await;
            if log.releases_done.get() >= wanted {
                return Ok(());
            }
        }
        log.releasing.set(true);
        let number = log.releases_begun.get() + 1;
        log.releases_begun.set(number);
        let settled = log.take_settled();
        let result = sums.table.checkpoint().await;
        log.release_settled(settled, result.is_ok());
        if result.is_ok() {
            log.releases_done.set(number);
        }
        log.releasing.set(false);
        log.released.notify_all();
        result.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::page_bytes_per_slab;
    use crate::pool::addresses::{checksums_base_bytes, copy_page_bytes, own_page_bytes};

    #[test]
    fn pages_lie_where_the_format_says() {
        for slab_bytes in [1 << 20, 8 << 20, 128 << 20] {
            let (capacity, per_slab) = (1 << 40, page_bytes_per_slab(slab_bytes));
            for (slab, page) in [(0, 0), (5, 0), (9, (slab_bytes >> 20) - 1)] {
                let at = checksums_base_bytes(capacity) + u64::from(slab) * per_slab + page * 4096;
                assert_eq!(own_page_bytes(capacity, slab_bytes, slab, page), at);
                assert_eq!(copy_page_bytes(capacity, slab_bytes, slab, page), at + per_slab / 2);
            }
        }
    }
}
