//! Locations of checksum pages, and whether they are current: maps the name of a page to slabs on
//! drives.

use std::rc::{Rc, Weak};

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, DriveError, IoRequest, Operation, completion};
use stripewise_layout::Place;

use crate::array::{Array, Inner, LocalFuture};
use crate::checksums::{PAGE_BYTES, PAGE_COVERS_BYTES, PageId, PageIo, Pin, SeenPages, Side};
use crate::columns::members::gone;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::rows::{SlotPlace, SlotState};
use crate::sums::state::BlockSums;

/// Read-ahead around a page that is needed, in multiples of the pages that a drive transfers in the
/// time of a seek: a volume whose pages fit into memory has them there after a few hundred seeks.
const STRETCH_POSITIONS: u64 = 4;
/// Pages of all columns that a rebuild loads at once: about 2 MiB of memory.
pub(crate) const AHEAD_PAGES: u64 = 1024;
/// The same for a client that reads or writes sequentially across pages.
const AHEAD_OF_CLIENT_PAGES: u64 = 256;

/// Size of the pages on a drive for each slab: its own, followed by the copies of another column's.
pub fn page_bytes_per_slab(slab_bytes: u64) -> u64 {
    2 * (slab_bytes / PAGE_COVERS_BYTES) * PAGE_BYTES as u64
}

pub(super) struct SlabPages(pub Weak<Inner>);

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
        let slot = inner.columns.rows.borrow().place(page.row, column)?;
        Some((column, slot, first + u64::from(page.page) * PAGE_BYTES as u64))
    }

    /// Label of the drive that holds a place of a page.
    fn holder(inner: &Inner, page: PageId, side: Side) -> Option<String> {
        let (_, slot, _) = Self::place(inner, page, side)?;
        let members = inner.columns.members.borrow();
        members.get(slot.drive).map(|member| member.member.label().to_string())
    }

    /// True if the place of a page on a column is current: if its blocks are, or, in a column that
    /// is being filled, once that is complete, since the pages are filled last.
    fn holds_current(inner: &Inner, page: PageId, column: usize, slot: SlotPlace) -> bool {
        let is_filled =
            || inner.columns.fills.borrow().get(&(page.row, column)).is_some_and(|fill| fill.is_complete());
        match slot.state {
            SlotState::Active => true,
            SlotState::Missing => false,
            SlotState::Rebuilding => is_filled(),
            SlotState::CatchingUp => {
                !inner.regions.is_behind(inner.sums.region_of_page(page.row, page.page)) || is_filled()
            }
        }
    }

    fn submit(inner: &Inner, slot: SlotPlace, mut request: IoRequest) -> Completion {
        let members = inner.columns.members.borrow();
        let Some(member) = members.get(slot.drive) else { return gone(&request) };
        request.offset_bytes +=
            member.sums_base_bytes + u64::from(slot.slab) * page_bytes_per_slab(inner.spec.slab_bytes);
        member.member.submit(Class::Upkeep, request)
    }

    fn submit_to_both(
        inner: &Rc<Inner>,
        request: IoRequest,
        key: (u64, usize),
        from: SlotPlace,
        to: SlotPlace,
    ) -> Completion {
        let first = Self::submit(inner, from, request.clone());
        let second = Self::submit(inner, to, request);
        let (sender, answer) = completion();
        let columns = inner.columns.clone();
        inner.context.spawn(async move {
            let result = first.await;
            if second.await.is_err() {
                columns.fail_move(key, to);
            }
            sender.complete(result);
        });
        answer
    }
}

impl PageIo for SlabPages {
    fn read(&self, page: PageId, side: Side, into: Buffer) -> Completion {
        let request = IoRequest::read(0, into).because(Cause::Checksums);
        let Some(inner) = self.0.upgrade() else { return gone(&request) };
        match Self::place(&inner, page, side) {
            Some((column, slot, offset)) if Self::holds_current(&inner, page, column, slot) => {
                Self::submit(&inner, slot, IoRequest { offset_bytes: offset, ..request })
            }
            _ => gone(&request),
        }
    }

    fn write(&self, page: PageId, side: Side, data: Buffer) -> Completion {
        let request = IoRequest::write(0, data, false).because(Cause::Checksums);
        let Some(inner) = self.0.upgrade() else { return gone(&request) };
        let Some((column, slot, offset)) = Self::place(&inner, page, side) else {
            return gone(&request);
        };
        let request = IoRequest { offset_bytes: offset, ..request };
        let target = inner
            .columns
            .migrations
            .borrow()
            .get(&(page.row, column))
            .and_then(|migration| migration.target());
        match target {
            Some(to) => Self::submit_to_both(&inner, request, (page.row, column), slot, to),
            None if slot.state == SlotState::Missing => gone(&request),
            None => Self::submit(&inner, slot, request),
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

    fn most_between(&self) -> u64 {
        self.0.upgrade().map_or(0, |inner| inner.sums.pages_in_a_position())
    }

    fn is_there(&self, page: PageId, side: Side) -> bool {
        let Some(inner) = self.0.upgrade() else { return false };
        Self::place(&inner, page, side).is_some_and(|(_, slot, _)| {
            slot.state != SlotState::Missing && inner.columns.members.borrow().get(slot.drive).is_some()
        })
    }

    fn losses(&self) -> u64 {
        self.0.upgrade().map_or(0, |inner| inner.losses.count())
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
        if let Some(member) = inner.columns.members.borrow().get(slot.drive) {
            member.member.count_checksum_errors(1);
        }
    }
}

impl Array {
    /// Waits for the checksum page writes that are in flight now.
    pub async fn until_pages_written(&self) {
        if let Some(sums) = self.0.sums.get() {
            sums.table.until_written().await;
        }
    }
}

impl Inner {
    /// Pages of all columns of a region, read for a check; and the drives with damaged or outdated
    /// places of them. The stripes of the region are held.
    pub(crate) async fn look_at_pages(&self, region: u64) -> (Vec<SeenPages>, Vec<String>) {
        let Some(sums) = self.sums.get() else { return (Vec::new(), Vec::new()) };
        let length = self.regions.shape.member_region_bytes;
        let columns = 0..self.geometry.width() as u16;
        let seen = join_all(columns.map(|column| sums.table.look(column, region * length, length))).await;
        // Soon after an unclean stop, torn pages are no fault of a drive.
        let is_forgiven = sums.lenient.get();
        let wrong = seen.iter().flat_map(|pages| &pages.wrong).filter(|_| !is_forgiven);
        let drives = wrong.filter_map(|(page, side)| SlabPages::holder(self, *page, *side)).collect();
        (seen, drives)
    }
}

impl BlockSums {
    /// Loads the pages of all columns of a region at once. Errors are ignored; they recur when the
    /// page is needed.
    pub(crate) async fn load_region(&self, region: u64) -> Vec<Pin> {
        let Some(sums) = self.get() else { return Vec::new() };
        let length = self.regions.shape.member_region_bytes;
        let columns = 0..self.geometry.width() as u16;
        let pins = join_all(columns.map(|column| sums.table.pin(column, region * length, length))).await;
        pins.into_iter().flatten().collect()
    }

    /// Loads the pages of a region together with those of its neighbours, in a batch of suitable
    /// size, unless they are in memory: on the drives they are adjacent, and loading those of each
    /// region by themselves would cost a seek for each. Errors are ignored; they recur when the
    /// page is needed.
    pub(crate) async fn load_ahead(&self, region: u64, most_pages: u64) {
        let Some(sums) = self.get() else { return };
        let (length, width) = (self.regions.shape.member_region_bytes, self.geometry.width() as u16);
        let has_pages = |column: u16, region: u64| sums.table.has_pages(column, region * length, length);
        if (0..width).all(|column| has_pages(column, region)) {
            return;
        }
        let in_cache = self.tuning.checksum_cache_bytes as u64 / (4 * PAGE_BYTES as u64);
        let of_region = length / PAGE_COVERS_BYTES * u64::from(width);
        let regions = (most_pages.min(in_cache) / of_region).max(1);
        let first = region / regions * regions;
        let written = (first..(first + regions).min(self.regions.count()))
            .filter(|region| self.regions.state(*region) != RegionState::Unwritten);
        let all = written.flat_map(|region| (0..width).map(move |column| (column, region)));
        let lacking = all.filter(|(column, region)| !has_pages(*column, *region));
        join_all(lacking.map(|(column, region)| sums.table.pin(column, region * length, length))).await;
    }

    /// Loads the pages adjacent to those of a range of a column: on seek-bound drives they cost
    /// little more than these alone.
    async fn load_stretch(&self, column: u16, offset_bytes: u64) {
        let Some(sums) = self.get() else { return };
        let pages = STRETCH_POSITIONS * self.pages_in_a_position();
        if pages < 2 {
            return;
        }
        let number = offset_bytes / PAGE_COVERS_BYTES;
        let first = number / pages * pages;
        let holds_data = |number: &u64| {
            let region = number * PAGE_COVERS_BYTES / self.regions.shape.member_region_bytes;
            region < self.regions.count() && self.regions.state(region) != RegionState::Unwritten
        };
        sums.table.load_beside(column, (first..first + pages).filter(holds_data)).await;
    }

    /// Number of pages that a drive transfers in the time of one seek; 0 unless the drives are
    /// seek-bound.
    fn pages_in_a_position(&self) -> u64 {
        self.columns.write_policy().position_bytes / PAGE_BYTES as u64
    }

    /// True if the pages of a range of a column are not in memory though those of the MiB before it
    /// are, on seek-bound drives: a sign of a sequential client, which will need the next pages
    /// too.
    fn is_scanned_into(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> bool {
        let Some(sums) = self.get() else { return false };
        let Some(before) = offset_bytes.checked_sub(PAGE_COVERS_BYTES) else { return false };
        !sums.table.has_pages(column, offset_bytes, length_bytes)
            && sums.table.has_pages(column, before, 1)
            && self.columns.write_policy().is_seek_bound()
    }

    /// Loads the pages of a range of a column and, for a sequential client, those that it needs
    /// next.
    pub(crate) async fn load_of(
        &self,
        column: u16,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), ArrayError> {
        let Some(sums) = self.get() else { return Ok(()) };
        if self.is_scanned_into(column, offset_bytes, length_bytes) {
            let region = offset_bytes / self.regions.shape.member_region_bytes;
            self.load_ahead(region, AHEAD_OF_CLIENT_PAGES).await;
        } else if !sums.table.has_pages(column, offset_bytes, length_bytes) {
            self.load_stretch(column, offset_bytes).await;
        }
        sums.table.pin(column, offset_bytes, length_bytes).await.map(drop)
    }

    /// True if all pages that a write will change are in memory.
    pub(crate) fn are_loaded(&self, ranges: &[(Place, u64)]) -> bool {
        let Some(sums) = self.get() else { return true };
        let has_pages = |(place, length): &(Place, u64)| {
            sums.table.has_pages(place.member as u16, place.offset_bytes, *length)
        };
        ranges.iter().all(has_pages)
    }

    /// Loads all pages that a write will change at once; they stay in memory as long as the result
    /// lives.
    pub(crate) async fn load(&self, ranges: &[(Place, u64)]) -> Result<Vec<Pin>, ArrayError> {
        let Some(sums) = self.get() else { return Ok(Vec::new()) };
        let is_scanned_into = |(place, length): &&(Place, u64)| {
            self.is_scanned_into(place.member as u16, place.offset_bytes, *length)
        };
        if let Some((place, _)) = ranges.iter().find(is_scanned_into) {
            let region = place.offset_bytes / self.regions.shape.member_region_bytes;
            self.load_ahead(region, AHEAD_OF_CLIENT_PAGES).await;
        }
        let lacks = |(place, length): &&(Place, u64)| {
            !sums.table.has_pages(place.member as u16, place.offset_bytes, *length)
        };
        let lacking: SmallVec<[&(Place, u64); 8]> = ranges.iter().filter(lacks).collect();
        if lacking.is_empty() {
            return Ok(Vec::new());
        }
        join_all(lacking.iter().map(|(place, _)| self.load_stretch(place.member as u16, place.offset_bytes)))
            .await;
        let pins = lacking
            .iter()
            .map(|(place, length)| sums.table.pin(place.member as u16, place.offset_bytes, *length));
        join_all(pins).await.into_iter().collect()
    }

    /// True if any part of a row's slabs that a checksum page covers was ever written.
    pub(crate) fn page_holds_data(&self, row: u64, page: u16) -> bool {
        self.regions.state(self.region_of_page(row, page)) != RegionState::Unwritten
    }

    /// Region covered by a checksum page of a row.
    pub(crate) fn region_of_page(&self, row: u64, page: u16) -> u64 {
        let in_row = u64::from(page) * PAGE_COVERS_BYTES / self.regions.shape.member_region_bytes;
        row * self.columns.regions_per_row + in_row
    }
}
