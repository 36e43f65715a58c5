//! Records checksums for blocks that have none, during a scrub.
//!
//! A checksum page is lost when one copy rots while the drive with the other copy is away. Its
//! blocks then have no checksums, and a client that reads them has to accept them unverified. A
//! scrub sees whether they agree with the rest of their stripe. If they do, they are as right as
//! can be determined, and their checksums are recorded.
//!
//! The stripes are held from the read until their checksums are recorded. No journal has these
//! checksums, so their data is made durable first: a checksum that survives a crash must not
//! describe bytes that were only in a drive's cache. A region without missing checksums costs
//! nothing; in any other region the drives are flushed once and all checksums recorded together.
//! They become durable with the next checkpoint, which the scrub makes at its end, and before its
//! progress is recorded.

use stripewise_drive::{Buffer, Cause, access};
use stripewise_layout::{Stripe, UnitRange};

use super::region_check::{OfStripe, RegionCheck, Units};
use crate::array::BLOCK_BYTES;
use crate::array::parity::recover_units;
use crate::error::ArrayError;
use crate::member::Class;
use crate::stripes::stripe_table::StripeGuard;
use crate::sums::Recording;

impl RegionCheck<'_> {
    /// Keeps those ranges of a stripe, found right, that lack a checksum, if any.
    pub(super) async fn note_unrecorded(
        &mut self,
        stripe: Stripe,
        right: Vec<(UnitRange, Buffer)>,
        guard: StripeGuard,
    ) -> Result<(), ArrayError> {
        let inner = self.inner;
        let mut ranges = Vec::new();
        for (range, data) in right {
            // A performance model has no bytes, and its checksum pages are empty.
            if !data.is_phantom() && inner.sums.lacks_any(&stripe, range).await? {
                ranges.push((range, data));
            }
        }
        if !ranges.is_empty() {
            self.unrecorded.0.push(OfStripe { stripe, ranges, guard });
        }
        Ok(())
    }

    /// Records the checksums, and returns the number of blocks.
    pub(super) async fn record_sums(&mut self) -> Result<u64, ArrayError> {
        let inner = self.inner;
        let unrecorded = std::mem::take(&mut self.unrecorded);
        if unrecorded.0.is_empty() {
            return Ok(0);
        }
        inner.flush_drives().await?;
        let mut blocks = 0;
        for OfStripe { stripe, ranges, guard: _guard } in unrecorded.0 {
            for (range, data) in ranges {
                blocks += inner.sums.record_content(&stripe, range, &data, Recording::Unknown).await?;
            }
        }
        Ok(blocks)
    }

    /// Reads the blocks that can be read of a range that cannot be read as a whole.
    pub(super) async fn readable_blocks(
        &self,
        stripe: &Stripe,
        range: UnitRange,
    ) -> Vec<(UnitRange, Buffer)> {
        let inner = self.inner;
        let mut readable = Vec::new();
        for start in (range.start..range.end).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { start, end: start + BLOCK_BYTES, ..range };
            let buffer = inner.buffers.allocate(BLOCK_BYTES as usize);
            if inner.bad.is_unit_lost(stripe, block) {
                continue;
            }
            // The read error was counted before.
            if inner
                .columns
                .submit_unit_read(stripe, block, Class::Background, Cause::Scrub, buffer.clone())
                .await
                .is_ok()
            {
                readable.push((block, buffer));
            }
        }
        readable
    }

    /// Repairs a row that has enough verified blocks: recomputes the others from these, and writes
    /// those that differ to the drives and to `row`.
    pub(super) async fn follow_known(
        &mut self,
        stripe: &Stripe,
        row: &mut Units,
        start: u64,
    ) -> Result<(), ArrayError> {
        let inner = self.inner;
        let end = start + BLOCK_BYTES;
        if inner.sums.get().is_none() {
            return Ok(());
        }
        let mut known = Units::new();
        let mut unknown: Vec<usize> = Vec::new();
        for (index, (unit, block)) in row.iter().enumerate() {
            if inner.sums.lacks_any(stripe, UnitRange { unit: *unit, start, end }).await? {
                unknown.push(index);
            } else {
                known.push((*unit, block.clone()));
            }
        }
        let needed = inner.geometry.data_units();
        if unknown.is_empty() || known.len() < needed {
            return Ok(());
        }
        known.truncate(needed);
        let (units, sources): (Vec<usize>, Vec<Buffer>) = known.into_iter().unzip();
        for index in unknown {
            let unit = row[index].0;
            let right = inner.buffers.allocate(BLOCK_BYTES as usize);
            if inner.geometry.copies() > 1 {
                right.copy_from(&sources[0]);
            } else {
                recover_units(
                    inner.geometry.data_units(),
                    &units,
                    &sources,
                    &[unit],
                    std::slice::from_ref(&right),
                );
            }
            if is_same(&row[index].1, &right) {
                continue;
            }
            self.blame(stripe, unit);
            self.write_unit(stripe, UnitRange { unit, start, end }, right.clone()).await?;
            row[index].1 = right;
        }
        Ok(())
    }
}

fn is_same(one: &Buffer, other: &Buffer) -> bool {
    let mut is_same = true;
    access(&[one, other], &[], |bytes, _| is_same = bytes[0] == bytes[1]);
    is_same
}
