//! The part of an array's interface that serves its pool: rows that are released or migrate,
//! conversions, journal areas, thin allocation and resizing. Clients of a volume use none of it.
//!
//! Expected faults: those of the drives, as [`ArrayError`].

use std::ops::Range;
use std::sync::Arc;

use stripewise_drive::DriveError;

use super::held::HeldStripes;
use super::{AreaPlace, Array, BLOCK_BYTES};
use crate::error::ArrayError;
use crate::journal::Area;
use crate::map::regions::RegionState;
use crate::member::MemberLabel;
use crate::replay::areas_at;
use crate::rows::SlotPlace;
use crate::stripes::lock_order;

/// Interval between two looks at an array that is to become idle, ns.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Regions and rows.
impl Array {
    /// Bytes of the volume that one region covers.
    pub fn region_data_bytes(&self) -> u64 {
        self.0.regions.shape.region_data_bytes
    }

    /// True if a region is unwritten and no acknowledged data for it is in the journal.
    pub fn holds_nothing(&self, region: u64) -> bool {
        self.0.holds_nothing(region)
    }

    /// True if the region map says that a region was never written.
    pub fn is_region_unwritten(&self, region: u64) -> bool {
        self.0.regions.state(region) == RegionState::Unwritten
    }

    /// True if [`Self::holds_nothing`] of every region of a row.
    pub fn is_row_unwritten(&self, row: u64) -> bool {
        self.0.columns.regions_of_row(row).all(|region| self.0.holds_nothing(region))
    }

    /// Memory that background work on one row takes, bytes.
    pub fn background_bytes_per_row(&self) -> u64 {
        let inner = &self.0;
        let region_bytes = inner.regions.shape.member_region_bytes * inner.geometry.width() as u64;
        let regions = (inner.options.background_bytes / region_bytes).clamp(1, 16);
        region_bytes * regions.min(inner.columns.regions_per_row)
    }

    /// Locks all stripes of these rows. The rows are in ascending order.
    pub async fn lock_rows(&self, rows: impl IntoIterator<Item = u64>) -> HeldStripes {
        let stripes = rows.into_iter().flat_map(|row| self.stripes_of_rows(row..row + 1)).collect();
        HeldStripes(self.0.table.lock_all(stripes).await)
    }

    /// Makes rows unwritten, durably, and keeps their stripes locked: their slabs may be released
    /// before the locks are.
    pub async fn clear_rows(&self, rows: Range<u64>) -> Result<HeldStripes, ArrayError> {
        let inner = &self.0;
        // Partly written regions are completed here, which is impossible under the locks.
        inner.flush().await?;
        let stripes = self.stripes_of_rows(rows.clone());
        let held = HeldStripes(inner.table.lock_all(stripes.clone().collect()).await);
        inner.forget_logged(stripes).await?;
        let regions = || rows.clone().flat_map(|row| inner.columns.regions_of_row(row));
        for region in regions().filter(|&region| !self.is_region_unwritten(region)) {
            inner.regions.mark_unwritten(region);
        }
        // Durable before the slabs can hold anything else.
        inner.persist_map().await?;
        regions().for_each(|region| inner.sums.forget_region(region));
        // Checksum pages in flight to these slabs have arrived when this ends.
        inner.release_records().await?;
        Ok(held)
    }

    /// Keeps stripes locked until [`Self::release_held`] of the number that this returns.
    pub(crate) fn keep_held(&self, held: HeldStripes) -> u64 {
        self.0.held.keep(held)
    }

    /// Releases stripes that were kept locked.
    pub(crate) fn release_held(&self, number: u64) {
        self.0.held.release(number);
    }

    /// Waits until every write in flight in a row began with the slabs that the row has now.
    pub async fn until_row_is_quiet(&self, row: u64) {
        for stripe in self.stripes_of_rows(row..row + 1) {
            drop(lock_order::scope(self.0.table.lock(stripe)).await);
        }
    }

    /// Waits until an array that takes no new requests has none in flight, of clients or of its own
    /// work: destaging and repairs hold their stripes.
    pub async fn until_quiet(&self) {
        while self.0.activity.writes() > 0 || !self.0.table.is_idle() {
            self.0.context.sleep_ns(LOOK_AGAIN_NS).await;
        }
        self.drain_reads().await;
    }

    /// Marks the migration of a slab as being recorded. `false` if it has failed or goes to another
    /// place.
    pub fn begin_recording(&self, row: u64, column: usize, to: SlotPlace) -> bool {
        let mut migrations = self.0.columns.migrations.borrow_mut();
        migrations.get_mut(&(row, column)).is_some_and(|migration| migration.begin_recording(to))
    }

    /// Writes the region map to its drives.
    pub async fn persist_map(&self) -> Result<(), ArrayError> {
        self.0.persist_map().await
    }

    /// Writes both slots of every page of the region map, so that no older page is taken for this
    /// volume's.
    pub async fn rewrite_map(&self) -> Result<(), ArrayError> {
        self.0.rewrite_map().await
    }

    /// Refuses writes beyond this offset until it is set again.
    pub fn end_writes_at(&self, bytes: u64) {
        self.0.capacity.end_writes_at(bytes);
    }

    fn stripes_of_rows(&self, rows: Range<u64>) -> Range<u64> {
        let per_row = self.0.columns.stripes_per_row;
        rows.start * per_row..rows.end * per_row
    }
}

/// State of the array and of its drives.
impl Array {
    /// True if a seek on its drives takes longer than the transfer of a strip.
    pub fn is_seek_bound(&self) -> bool {
        self.0.columns.write_policy().is_seek_bound()
    }

    /// True if clients have requests in the queues of its drives.
    pub fn serves_clients(&self) -> bool {
        self.0.columns.serve_clients()
    }

    /// True if every column of every row is current.
    pub fn is_whole(&self) -> bool {
        self.0.is_whole()
    }

    /// True if a conversion has replaced the array by another one.
    pub fn is_abandoned(&self) -> bool {
        self.0.lifecycle.is_abandoned()
    }

    /// Requests per row, weighted, cooled to now.
    pub fn heat(&self, now_ns: u64) -> Vec<(u64, f32)> {
        self.0.heat.all(now_ns)
    }

    /// Sets the half-life of heat; 0 stops counting.
    pub fn set_heat_half_life(&self, half_life_ns: u64) {
        self.0.heat.set_half_life(half_life_ns);
    }

    /// Refuses writes: the file system below this drive is full.
    pub fn fill_up(&self, drive: &str) {
        self.0.lifecycle.fill_up(drive.into());
    }

    /// Records that a drive refused a write.
    pub async fn note_write_error(&self, error: &DriveError) -> Result<(), ArrayError> {
        self.0.note_write_error(error).await
    }

    /// Flushes the caches of all drives.
    pub async fn flush_members(&self) -> Result<(), ArrayError> {
        self.0.flush_members().await
    }

    /// Number of flushes that drives have refused.
    pub fn refused_flushes(&self) -> u64 {
        self.0.losses.count()
    }

    /// True if a drive has refused a flush since this count.
    pub fn has_refused_since(&self, count: u64) -> bool {
        self.0.losses.check_since(count).is_err()
    }

    /// Gives away the refused flushes that no client has learned of yet.
    pub fn take_unreported_refusals(&self) -> Option<DriveError> {
        self.0.losses.take_unreported()
    }

    /// Takes over refused flushes of another array, to be reported to a client.
    pub fn take_over_refusals(&self, error: DriveError) {
        self.0.losses.take_over(error);
    }

    /// Tests that a request lies within the volume.
    pub fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.0.check_range(offset_bytes, length_bytes)
    }
}

/// Lost and dead blocks.
impl Array {
    /// Number of blocks lost since the last call.
    pub fn take_new_losses(&self) -> u64 {
        self.0.bad.take_unreported()
    }

    /// Forgets lost blocks below this one of each column.
    pub fn forget_lost_below(&self, block: u64) {
        self.0.bad.retain_lost(|(_, lost)| lost >= block);
    }

    /// Forgets dead blocks below this offset.
    pub fn forget_dead_below(&self, offset_bytes: u64) {
        self.0.bad.forget_dead_below(offset_bytes / BLOCK_BYTES);
    }

    /// Notes that the dead blocks of a range were written.
    pub fn repair_dead(&self, range: Range<u64>) {
        self.0.bad.repair_dead_bytes(range.start, range.end);
    }

    /// True if no block is dead.
    pub fn has_no_dead(&self) -> bool {
        self.0.bad.has_no_dead()
    }
}

/// The journal.
impl Array {
    /// True if the array has an open journal.
    pub fn has_journal(&self) -> bool {
        self.0.log.open().is_some()
    }

    /// True if the journal has failed and accepts no records.
    pub fn is_journal_broken(&self) -> bool {
        self.0.log.open().is_some_and(|log| log.journal.broken().is_some())
    }

    /// Gives records that lack a copy another one, where the journal has areas for it.
    pub async fn restore_journal_copies(&self) -> Result<(), ArrayError> {
        match self.0.log.open().filter(|log| log.journal.is_short()) {
            Some(log) => log.journal.restore_copies().await.map(drop),
            None => Ok(()),
        }
    }

    /// Takes an area into use, and gives the records that lack a copy one there.
    pub async fn add_journal_area(&self, area: Area) -> Result<(), ArrayError> {
        let Some(log) = self.0.log.open() else { return Ok(()) };
        // Data that is durable in place needs no copy. Errors show elsewhere.
        if self.flush_members().await.is_ok() {
            let _ = self.release_records().await;
        }
        log.journal.add_area(area).await?;
        // Records have lacked a copy since the old area went, and may go on to.
        drop(log.journal.restore_copies().await);
        Ok(())
    }

    /// As [`Self::add_journal_area`], on the drive with this very label.
    pub async fn add_journal_area_at(&self, place: AreaPlace, drive: &MemberLabel) -> Result<(), ArrayError> {
        let area = areas_at(&self.0, &[place]).pop();
        match area.filter(|area| Arc::ptr_eq(area.member.label(), drive)) {
            Some(area) => self.add_journal_area(area).await,
            None => Err(ArrayError::Journal("the drive of a new area is gone".to_owned())),
        }
    }

    /// Gives up a drive's journal area once its records have copies on others; at least `least`
    /// areas stay. `false` if it is still in use after the last attempt: clients keep the others
    /// full.
    pub async fn leave_journal_area(
        &self,
        drive: u32,
        least: usize,
        attempts: usize,
    ) -> Result<bool, ArrayError> {
        let Some(log) = self.0.log.open() else { return Ok(true) };
        for _ in 0..attempts {
            if !log.journal.begin_leaving(drive, least) {
                return Ok(false);
            }
            // Data that is durable in place is no longer needed in the journal.
            let emptied = self.0.destage_logged().await;
            if log.journal.leave_area(drive).await? {
                return Ok(true);
            }
            emptied?;
        }
        Ok(false)
    }

    /// Writes in place what the journal holds.
    pub async fn destage_all(&self) -> Result<(), ArrayError> {
        self.0.destage_logged().await
    }

    /// Releases journal records whose data is durable in place.
    pub async fn release_records(&self) -> Result<(), ArrayError> {
        self.0.release_records().await
    }

    /// Releases the records that the replay at opening has put in place.
    pub async fn forget_replayed(&self) -> Result<(), ArrayError> {
        self.0.forget_replayed().await
    }

    /// Replays the journal in memory only, for an array opened for reading. `true` if it held
    /// anything.
    pub async fn recover_in_memory(&self) -> Result<bool, ArrayError> {
        self.0.recover_in_memory().await
    }

    /// Waits until no write of the journal is in flight.
    pub async fn until_journal_written(&self) {
        if let Some(log) = self.0.log.open() {
            log.journal.until_written().await;
        }
    }
}
