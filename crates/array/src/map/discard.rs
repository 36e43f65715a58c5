//! Discard and write-zeroes.
//!
//! Whole regions become unwritten again: their mark is taken from the map, durably, before the
//! drives get the discard, so a crash in between leaves either the old data or
//! zeros. The rest of a write-zeroes is written as zeros; the rest of a discard is left as it is,
//! which a discard allows.

use std::future::Future;

use stripewise_drive::{Cause, IoRequest, Operation};

use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order;
use crate::write_back::destage::Destaging;

impl Array {
    /// The range's contents are no longer needed; reading it gives zeros or what was there.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.0.check_writable_range(offset_bytes, length_bytes)?;
        let losses = self.0.losses.count();
        self.0.unwrite_regions(offset_bytes, offset_bytes + length_bytes).await?;
        self.0.losses.acknowledge_write(losses);
        Ok(())
    }

    /// The range reads as zeros afterwards; durable after the next flush.
    pub async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        let inner = &self.0;
        inner.check_writable_range(offset_bytes, length_bytes)?;
        let losses = inner.losses.count();
        let end_bytes = offset_bytes + length_bytes;
        let (first, last) = inner.unwrite_regions(offset_bytes, end_bytes).await?;
        for (start, end) in [(offset_bytes, first.min(end_bytes)), (last.max(offset_bytes), end_bytes)] {
            inner.zero(start, end).await?;
            if first >= last {
                // No whole region inside: the first round wrote everything.
                break;
            }
        }
        inner.losses.acknowledge_write(losses);
        Ok(())
    }
}

impl Array {
    /// Rows that have slabs though nothing in them was ever written, or all of it was discarded:
    /// their slabs can be given back, see [`Self::release_row`].
    pub fn empty_rows(&self) -> Vec<u64> {
        let inner = &self.0;
        let is_empty =
            |row: &u64| inner.columns.regions_of_row(*row).all(|region| inner.holds_nothing(region));
        let rows = inner.columns.rows.borrow();
        rows.runs().flat_map(|run| run.first_row..run.end_row()).filter(is_empty).collect()
    }

    /// Keeps everybody out of a row that holds nothing and has `record` take it out of the slab
    /// map, durably and by [`Self::set_rows`]; when this ends with `true` no request reads or
    /// writes its slabs any more. `false`: a client has written to it.
    pub async fn release_row(
        &self,
        row: u64,
        record: impl Future<Output = Result<(), ArrayError>>,
    ) -> Result<bool, ArrayError> {
        let inner = &self.0;
        let released = lock_order::scope(async {
            let stripes = row * inner.columns.stripes_per_row..(row + 1) * inner.columns.stripes_per_row;
            let _guards = inner.table.lock_all(stripes.collect()).await;
            if !inner.columns.regions_of_row(row).all(|region| inner.holds_nothing(region)) {
                return Ok(false);
            }
            inner.persist_map().await?;
            record.await?;
            Ok::<bool, ArrayError>(true)
        });
        let released = released.await?;
        if released {
            // Reads may wait for the stripes.
            self.drain_reads().await;
        }
        Ok(released)
    }
}

impl Inner {
    /// Writes zeros from `start` to `end`, but where zeros are read as it is: a thin volume takes
    /// no space for them.
    pub(crate) async fn zero(&self, start: u64, end: u64) -> Result<(), ArrayError> {
        let region_bytes = self.regions.shape.region_data_bytes;
        let mut at = start;
        while at < end {
            let region = at / region_bytes;
            let length =
                (end - at).min(self.options.tuning.zero_write_bytes).min((region + 1) * region_bytes - at);
            if !self.is_zero(region, at, at + length) {
                let zeroes = self.buffers.allocate_zeroed(length as usize);
                let _permit = self.admission.acquire(length).await;
                self.write_admitted(Class::Foreground, at, zeroes, false).await?;
            }
            at += length;
        }
        Ok(())
    }

    /// Makes all whole regions of a range unwritten; gives the volume range that they cover (empty,
    /// `(end, end)`, if none).
    async fn unwrite_regions(&self, start: u64, end: u64) -> Result<(u64, u64), ArrayError> {
        let region_bytes = self.regions.shape.region_data_bytes;
        let first = start.div_ceil(region_bytes);
        let last = if end == self.capacity.bytes() { self.regions.count() } else { end / region_bytes };
        if first >= last {
            return Ok((end, end));
        }
        for region in first..last {
            if !self.is_zero(region, region * region_bytes, (region + 1) * region_bytes) {
                lock_order::scope(self.unwrite_region(region)).await?;
            }
        }
        Ok((first * region_bytes, (last * region_bytes).min(self.capacity.bytes())))
    }

    /// True if a region reads as zeros, in place and in pending data.
    pub(crate) fn holds_nothing(&self, region: u64) -> bool {
        self.regions.state(region) == RegionState::Unwritten
            && (self.deferred.pending.is_empty()
                || self.deferred.pending.stripes_in(self.regions.stripes_of(region)).is_empty())
    }

    /// True if these bytes of a region read as zeros. Blocks can be dead where nothing was written:
    /// as when a region was discarded and power went before it was recorded that they are whole.
    fn is_zero(&self, region: u64, start: u64, end: u64) -> bool {
        self.holds_nothing(region) && self.bad.check_alive(&self.geometry, start, end).is_ok()
    }

    async fn unwrite_region(&self, region: u64) -> Result<(), ArrayError> {
        let _guards = self.table.lock_all(self.regions.stripes_of(region).collect()).await;
        // Acknowledged data goes in place before the journal forgets it, and that before the region
        // is unwritten: neither a crash nor a concurrent read may find older data. A flush that
        // ends in between would not make durable a region no longer known as new, while old records
        // of it could still be found.
        if let Some(destaging) = Destaging::of(self) {
            destaging.held(self.regions.stripes_of(region)).await?;
        }
        if !mutation::is_chosen(Mutation::DiscardKeepsRecords) {
            self.forget_logged(self.regions.stripes_of(region)).await?;
        }
        // A flush may have made it so by now.
        let before = self.regions.state(region);
        self.regions.mark_unwritten(region);
        if matches!(before, RegionState::Ready | RegionState::Written)
            && let Err(error) = self.persist_page(self.regions.pages.of(region)).await
        {
            // The drives still say that it is written: so it must be kept like one, by rebuilds
            // too.
            self.regions.mark_written_still(region, before);
            return Err(error);
        }
        self.sums.forget_region(region);
        let region_bytes = self.regions.shape.region_data_bytes;
        self.bad.repair_dead_bytes(region * region_bytes, (region + 1) * region_bytes);
        let length = self.regions.shape.member_region_bytes;
        let at = region * length;
        let (first, last) = (at / BLOCK_BYTES, (at + length) / BLOCK_BYTES - 1);
        for column in 0..self.geometry.width() {
            // Lost blocks there are zeros now, as everything else.
            self.bad.repair_lost(column, first..=last);
            // Advice only: a drive that refuses keeps the space, nothing else.
            let request = IoRequest::range(Operation::Discard, at, length);
            let _ = self.columns.submit(column, Class::Foreground, request.because(Cause::Discard)).await;
        }
        Ok(())
    }
}
