//! Checksums of an array: verified reads, the first write and discard of regions, and when the
//! journal can release records. The places of pages on the slabs are in `sums/pages.rs`, the
//! recording of checksums in `sums/recorded.rs`.
//!
//! A mismatch in a read without the stripe's lock may be due to a write in flight, so the read is
//! repeated under the lock; only then it is the drive's fault, counted against it once, and
//! repaired from the rest of the stripe (`read/recover.rs`). The checksums of a write are in the
//! journal before it begins in place (`log/mod.rs`), and in the pages when all of it is in place;
//! the journal keeps the record until a checkpoint has made the pages durable.
//!
//! Checksums are kept for all columns, including missing ones, so that reconstructed data can be
//! verified; where parity of a missing drive is not even computed, nothing is recorded.
//!
//! Memory: the page cache, and a list of up to [`crate::tuning::Tuning::known_bad_blocks`] blocks.

pub(crate) mod pages;
pub(crate) mod recorded;
pub(crate) mod state;

use std::rc::Rc;

use futures_util::future::join;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Completion, IoResult};
use stripewise_layout::{Place, Stripe, UnitRange};

use crate::array::spec::SumsInit;
use crate::array::{BLOCK_BYTES, Inner};
use crate::checksums::{ChecksumOptions, ChecksumSpec, Checksums};
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::mutation::{self, Mutation};
use pages::SlabPages;
pub use pages::page_bytes_per_slab;
pub(crate) use recorded::{NewSums, OLD_SUMS, Recording, UnitSums};
use state::BlockSums;

impl Inner {
    /// Sets up the checksums of an array.
    pub(crate) fn begin_sums(&self, init: SumsInit) {
        let spec = ChecksumSpec {
            volume_id: self.spec.id,
            width: self.geometry.width() as u16,
            slab_bytes: self.spec.slab_bytes,
        };
        let options = ChecksumOptions {
            cache_bytes: init.cache_bytes,
            window_pages: self.options.tuning.checksum_window_pages,
            prefer_newest: true,
            first_stamp: init.first_stamp,
        };
        let io = Rc::new(SlabPages(self.me.clone()));
        self.sums.begin(Checksums::new(&self.buffers, spec, options, io));
        self.block_bytes.set(self.block_bytes.get().max(BLOCK_BYTES));
    }

    /// Makes all checksums recorded so far durable, and releases the journal's records that were
    /// kept for them.
    pub(crate) async fn release_records(&self) -> Result<(), ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(()) };
        let Some(log) = self.log.open() else { return sums.table.checkpoint().await.map(drop) };
        // One at a time: records of one stripe must be released in order.
        let Some(round) = log.releases.begin().await else { return Ok(()) };
        log.begin_checkpoint();
        let result = sums.table.checkpoint().await;
        log.end_checkpoint(result.is_ok());
        if result.is_ok() {
            round.ends_well();
        }
        result.map(drop)
    }
}

impl BlockSums {
    /// Attributes torn and outdated pages to the unclean stop before this opening.
    pub(crate) fn forgive_pages(&self) {
        if let Some(sums) = self.get() {
            sums.lenient.set(true);
        }
    }

    /// Called when a drive has come in: pages that lacked a place may have one now.
    pub(crate) fn reload(&self) {
        if let Some(sums) = self.get() {
            sums.table.reload_incomplete();
        }
    }

    /// Waits for a read, and loads the pages that it will be verified against at the same time.
    pub(crate) async fn read_with_pages(
        &self,
        column: usize,
        offset_bytes: u64,
        length_bytes: u64,
        answer: Completion,
    ) -> IoResult {
        let Some(sums) = self.get() else { return answer.await };
        let column = column as u16;
        if sums.table.has_pages(column, offset_bytes, length_bytes) {
            return answer.await;
        }
        // Errors of page loads recur when the pages are needed.
        join(answer, Box::pin(self.load_of(column, offset_bytes, length_bytes))).await.0
    }

    /// True if data read from a column has the expected contents. False also if that is no longer
    /// known: then it has to be compared with its redundancy (`read/recover.rs`).
    pub(crate) async fn is_right(
        &self,
        column: usize,
        offset_bytes: u64,
        data: &Buffer,
    ) -> Result<bool, ArrayError> {
        let Some(sums) = self.get() else { return Ok(true) };
        if mutation::is_chosen(Mutation::ChecksumsAlwaysAgree) {
            return Ok(true);
        }
        let column = column as u16;
        let verdict = match sums.table.try_verify(column, offset_bytes, data) {
            Some(verdict) => verdict,
            None => Box::pin(sums.table.verify(column, offset_bytes, data)).await?,
        };
        Ok(verdict.is_good() && verdict.doubted_blocks.is_empty())
    }

    /// Like [`Self::is_right`] for a range of a unit.
    pub(crate) async fn is_unit_right(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<bool, ArrayError> {
        let place = stripe.units[range.unit];
        self.is_right(place.member, place.offset_bytes + range.start, data).await
    }

    /// True if no recorded checksum contradicts the data of a range of a unit, which was computed
    /// from others.
    pub(crate) async fn is_possible(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<bool, ArrayError> {
        Ok(self.bad_blocks(stripe, range, data).await?.is_empty())
    }

    /// Blocks of a range of a unit whose recorded checksum was lost, each by its offset in the
    /// strip.
    pub(crate) async fn doubted_blocks(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<SmallVec<[u64; 4]>, ArrayError> {
        let Some(sums) = self.get() else { return Ok(SmallVec::new()) };
        let place = stripe.units[range.unit];
        let verdict = sums.table.verify(place.member as u16, place.offset_bytes + range.start, data).await?;
        Ok(verdict.doubted_blocks.iter().map(|block| block * BLOCK_BYTES - place.offset_bytes).collect())
    }

    /// Bad blocks of a range of a unit, each by its offset in the strip.
    pub(crate) async fn bad_blocks(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
    ) -> Result<SmallVec<[u64; 4]>, ArrayError> {
        let Some(sums) = self.get() else { return Ok(SmallVec::new()) };
        if mutation::is_chosen(Mutation::ChecksumsAlwaysAgree) {
            return Ok(SmallVec::new());
        }
        let place = stripe.units[range.unit];
        let verdict = sums.table.verify(place.member as u16, place.offset_bytes + range.start, data).await?;
        Ok(verdict.bad_blocks.iter().map(|block| block * BLOCK_BYTES - place.offset_bytes).collect())
    }

    /// Counts a bad block against its drive, once. The caller holds the block's stripe.
    pub(crate) fn note_bad_block(&self, place: Place, start: u64) {
        let Some(sums) = self.get() else { return };
        let mut known = sums.known_bad.borrow_mut();
        if known.len() >= self.tuning.known_bad_blocks {
            known.clear();
        }
        if known.insert((place.member, (place.offset_bytes + start) / BLOCK_BYTES))
            && let Some(member) = self.columns.member_at(place)
        {
            member.count_checksum_errors(1);
        }
    }

    /// Drops the known bad blocks of a range of a column that was written.
    pub(crate) fn forget_bad(&self, column: usize, offset_bytes: u64, length_bytes: u64) {
        let Some(sums) = self.get() else { return };
        let mut known = sums.known_bad.borrow_mut();
        if known.is_empty() {
            return;
        }
        for block in offset_bytes / BLOCK_BYTES..(offset_bytes + length_bytes).div_ceil(BLOCK_BYTES) {
            known.remove(&(column, block));
        }
    }

    /// True if a region's pages record all that was written there.
    pub(crate) fn is_begun(&self, region: u64) -> bool {
        let Some(sums) = self.get() else { return true };
        self.regions.state(region) != RegionState::Unwritten || sums.begun.borrow().contains(&region)
    }

    /// Starts empty pages before a region's first write.
    pub(crate) async fn begin_region(&self, region: u64) -> Result<(), ArrayError> {
        let Some(sums) = self.get() else { return Ok(()) };
        loop {
            if self.is_begun(region) {
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
                // Kept in memory only while a column is being filled: evicted pages are written
                // first.
                Ok(pages) => self.columns.keep_fresh_pages(column, region, pages),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if result.is_ok() {
            let mut begun = sums.begun.borrow_mut();
            if begun.len() >= self.tuning.begun_regions {
                begun.retain(|&region| self.regions.state(region) == RegionState::Unwritten);
            }
            begun.insert(region);
        }
        sums.beginning.set(false);
        sums.began.notify_all();
        result
    }

    /// Drops a region's pages and bad blocks after it became unwritten.
    pub(crate) fn forget_region(&self, region: u64) {
        let Some(sums) = self.get() else { return };
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
}
