//! Check of one region: reads its stripes, compares them and makes them agree.
//!
//! Memory: the content of one region, which is its size times the width.

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, IoRequest, access};
use stripewise_layout::{Stripe, UnitRange};
use stripewise_parity::Verdict;

use super::report::ScrubReport;
use crate::array::parity::slice_of;
use crate::array::{BLOCK_BYTES, Inner};
use crate::checksums::PAGE_COVERS_BYTES;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::read::recover::HeldStripe;
use crate::stripes::stripe_table::StripeGuard;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Scrub,
    Resync,
    /// Reads and reports, and writes nothing (`jobs/scrub/check.rs`).
    Check,
}

/// Units of a stripe, or a row of blocks of it, with their content.
pub(super) type Units = SmallVec<[(usize, Buffer); 12]>;

pub(super) struct StripeRead {
    pub(super) stripe: Stripe,
    pub(super) units: Units,
    pub(super) answers: SmallVec<[Completion; 12]>,
    pub(super) guard: StripeGuard,
}

/// Verified ranges of a stripe that lack checksums.
pub(super) struct OfStripe {
    pub(super) stripe: Stripe,
    pub(super) ranges: Vec<(UnitRange, Buffer)>,
    pub(super) guard: StripeGuard,
}

/// Verified ranges that lack checksums, with their stripes held. At most the buffers that the
/// region was read into.
#[derive(Default)]
pub(super) struct Unrecorded(pub(super) Vec<OfStripe>);

/// Check of one region.
pub(super) struct RegionCheck<'a> {
    pub(super) inner: &'a Inner,
    purpose: Purpose,
    pub(super) report: &'a mut ScrubReport,
    pub(super) unrecorded: Unrecorded,
}

impl<'a> RegionCheck<'a> {
    pub(super) fn new(inner: &'a Inner, purpose: Purpose, report: &'a mut ScrubReport) -> Self {
        Self { inner, purpose, report, unrecorded: Unrecorded::default() }
    }

    /// Checks the region; stops with [`ArrayError::Closed`] if the array is closed.
    pub(super) async fn run(&mut self, region: u64) -> Result<(), ArrayError> {
        let inner = self.inner;
        if inner.lifecycle.is_closed() {
            return Err(ArrayError::Closed);
        }
        if self.purpose == Purpose::Check {
            return self.look_at_region(region).await;
        }
        if self.purpose == Purpose::Scrub {
            self.audit_region(region).await?;
        }
        if inner.regions.state(region) == RegionState::Unwritten {
            return Ok(());
        }
        if inner.geometry.fault_tolerance() > 0 {
            let mut compared = true;
            for read in self.read_stripes(region).await {
                compared &= self.check_stripe(read).await?;
            }
            if !compared {
                self.report.regions_without_redundancy += 1;
            }
        } else if self.purpose == Purpose::Scrub {
            for read in self.read_stripes(region).await {
                self.read_stripe(read).await?;
            }
        }
        let recorded = self.record_sums().await?;
        self.report.sums_recorded += recorded;
        Ok(())
    }

    /// Compares both copies of the region's checksum pages.
    async fn audit_region(&mut self, region: u64) -> Result<(), ArrayError> {
        let inner = self.inner;
        let Some(sums) = inner.sums.get() else { return Ok(()) };
        let row = region / inner.columns.regions_per_row;
        let in_row = region % inner.columns.regions_per_row * inner.regions.shape.member_region_bytes;
        let pages = in_row / PAGE_COVERS_BYTES
            ..(in_row + inner.regions.shape.member_region_bytes) / PAGE_COVERS_BYTES;
        let is_wanted = |page: u16| pages.contains(&u64::from(page)) && inner.sums.page_holds_data(row, page);
        let audits =
            (0..inner.geometry.width()).map(|column| sums.table.audit(row, column as u16, &is_wanted));
        for audit in join_all(audits).await {
            let audit = audit?;
            self.report.pages_repaired += audit.repaired;
            self.report.pages_lost += audit.lost;
        }
        Ok(())
    }

    /// Repairs blocks that do not match their checksums, on the drive and in `buffer`. `false` if a
    /// block cannot be repaired.
    async fn check_sums(
        &mut self,
        stripe: &Stripe,
        unit: usize,
        buffer: &Buffer,
    ) -> Result<bool, ArrayError> {
        let inner = self.inner;
        let whole = UnitRange { unit, start: 0, end: buffer.len() as u64 };
        let mut all = true;
        for start in inner.sums.bad_blocks(stripe, whole, buffer).await? {
            self.report.checksum_errors += 1;
            let block = UnitRange { start, end: start + BLOCK_BYTES, ..whole };
            match HeldStripe::new(inner, stripe, Class::Background).fetch_unit(block).await {
                Ok(bytes) => {
                    if let Some(member) = inner.columns.member_at(stripe.units[unit]) {
                        self.report.blame(member.label());
                    }
                    slice_of(buffer, 0, block.start, block.end).copy_from(&bytes);
                }
                Err(ArrayError::Lost { .. } | ArrayError::Drive(_)) => all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Checks a stripe without redundancy: all a scrub can see is whether it can be read.
    async fn read_stripe(&mut self, read: StripeRead) -> Result<(), ArrayError> {
        let inner = self.inner;
        let StripeRead { stripe, units, answers, guard } = read;
        let mut found = Vec::new();
        for ((unit, buffer), answer) in units.into_iter().zip(answers) {
            self.report.checked_bytes += buffer.len() as u64;
            let range = UnitRange { unit, start: 0, end: buffer.len() as u64 };
            if let Err(error) = answer.await {
                self.report.unreadable_strips += 1;
                inner.note_read_error(&error).await?;
                if inner.sums.lacks_any(&stripe, range).await? {
                    found.extend(self.readable_blocks(&stripe, range).await);
                }
                continue;
            }
            if !self.check_sums(&stripe, unit, &buffer).await? {
                self.report.unreadable_strips += 1;
            }
            found.push((range, buffer));
        }
        self.note_unrecorded(stripe, found, guard).await
    }

    /// Sends the reads of all units of a region's stripes. Memory is bounded by the region's size
    /// times the width.
    pub(super) async fn read_stripes(&self, region: u64) -> Vec<StripeRead> {
        let inner = self.inner;
        let length = inner.geometry.interleave_bytes();
        let mut reads = Vec::new();
        // Beyond the volume's end there is no data that could be lost.
        let end = inner.capacity.bytes().div_ceil(inner.geometry.stripe_data_bytes());
        let stripes: Vec<u64> = inner.regions.stripes_of(region).filter(|stripe| *stripe < end).collect();
        for (&index, guard) in stripes.iter().zip(inner.table.lock_all(stripes.clone()).await) {
            if inner.regions.is_unwritten(index) {
                continue;
            }
            let stripe = inner.geometry.stripe(index);
            let missing = inner.columns.missing_in(index);
            let mut units = SmallVec::new();
            let mut answers = SmallVec::new();
            for unit in (0..stripe.units.len()).filter(|&unit| !missing.contains(stripe.units[unit].member)) {
                let buffer = inner.buffers.allocate(length as usize);
                let range = UnitRange { unit, start: 0, end: length };
                let answer =
                    inner.submit_unless_lost(&stripe, range, Class::Background, Cause::Scrub, buffer.clone());
                answers.push(answer);
                units.push((unit, buffer));
            }
            reads.push(StripeRead { stripe, units, answers, guard });
        }
        reads
    }

    /// Checks one stripe; `false` if too much of it is missing for a comparison.
    async fn check_stripe(&mut self, read: StripeRead) -> Result<bool, ArrayError> {
        let inner = self.inner;
        let StripeRead { stripe, mut units, answers, guard } = read;
        let mut refused: SmallVec<[usize; 2]> = SmallVec::new();
        for ((unit, buffer), answer) in units.iter().zip(answers) {
            self.report.checked_bytes += buffer.len() as u64;
            if let Err(error) = answer.await {
                refused.push(*unit);
                let range = UnitRange { unit: *unit, start: 0, end: buffer.len() as u64 };
                if !inner.bad.is_unit_lost(&stripe, range) {
                    inner.note_read_error(&error).await?;
                }
            }
        }
        for unit in &refused {
            let Some(repaired) = self.repair_unreadable(&stripe, *unit).await? else {
                self.report.unreadable_strips += 1;
                return Ok(true);
            };
            let (_, buffer) =
                units.iter_mut().find(|(have, _)| have == unit).expect("refused units were asked for");
            *buffer = repaired;
        }
        for (unit, buffer) in &units {
            if !refused.contains(unit) && !self.check_sums(&stripe, *unit, buffer).await? {
                self.report.unreadable_strips += 1;
                return Ok(true);
            }
        }
        if units.len() < stripe.units.len() {
            return Ok(false);
        }
        let length = inner.geometry.interleave_bytes();
        let mut sound: Vec<(UnitRange, Buffer)> = Vec::new();
        if !self.agrees(&units) {
            for start in (0..length).step_by(BLOCK_BYTES as usize) {
                let row: Units = units
                    .iter()
                    .map(|(unit, buffer)| (*unit, slice_of(buffer, 0, start, start + BLOCK_BYTES)))
                    .collect();
                let of_row = self.check_row(&stripe, row, start).await?;
                sound.extend(
                    of_row
                        .into_iter()
                        .map(|(unit, block)| (UnitRange { unit, start, end: start + BLOCK_BYTES }, block)),
                );
            }
        } else if self.purpose == Purpose::Scrub {
            let whole = |(unit, buffer)| (UnitRange { unit, start: 0, end: length }, buffer);
            sound.extend(units.into_iter().map(whole));
        }
        self.note_unrecorded(stripe, sound, guard).await?;
        Ok(true)
    }

    /// Reads block by block a unit that could not be read as a whole, and writes back reconstructed
    /// blocks. `None` if a block is lost.
    async fn repair_unreadable(&self, stripe: &Stripe, unit: usize) -> Result<Option<Buffer>, ArrayError> {
        let inner = self.inner;
        let length = inner.geometry.interleave_bytes();
        let whole = inner.buffers.allocate(length as usize);
        let mut all = true;
        for start in (0..length).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            match HeldStripe::new(inner, stripe, Class::Background).fetch_unit(block).await {
                Ok(bytes) => slice_of(&whole, 0, block.start, block.end).copy_from(&bytes),
                Err(ArrayError::Lost { .. } | ArrayError::Drive(_)) => all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(all.then_some(whole))
    }

    pub(super) fn agrees(&self, units: &[(usize, Buffer)]) -> bool {
        let inner = self.inner;
        let buffers: SmallVec<[&Buffer; 12]> = units.iter().map(|(_, buffer)| buffer).collect();
        let copies = inner.geometry.copies() > 1;
        let mut agrees = true;
        access(&buffers, &[], |units, _| {
            agrees = if copies {
                units.iter().all(|unit| unit == &units[0])
            } else {
                stripewise_parity::locate(inner.geometry.data_units(), units) == Verdict::Consistent
            };
        });
        agrees
    }

    /// Makes a row of blocks agree; `start` is their offset in the strips. Returns the blocks whose
    /// checksums may be recorded.
    async fn check_row(&mut self, stripe: &Stripe, mut row: Units, start: u64) -> Result<Units, ArrayError> {
        let inner = self.inner;
        let end = start + BLOCK_BYTES;
        if self.purpose == Purpose::Scrub {
            self.follow_known(stripe, &mut row, start).await?;
        }
        if self.agrees(&row) {
            return Ok(if self.purpose == Purpose::Scrub { row } else { Units::new() });
        }
        let culprit = if self.purpose == Purpose::Scrub { self.locate_wrong(&row) } else { None };
        if let Some(unit) = culprit {
            let right = inner.buffers.allocate(BLOCK_BYTES as usize);
            let range = UnitRange { unit, start, end };
            self.blame(stripe, unit);
            HeldStripe::new(inner, stripe, Class::Background).reconstruct(range, &right).await?;
            self.write_unit(stripe, range, right.clone()).await?;
            row.iter_mut().filter(|(other, _)| *other == unit).for_each(|(_, block)| *block = right.clone());
            return Ok(row);
        }
        if self.purpose == Purpose::Scrub {
            self.report.unattributed_blocks += 1;
        }
        let mut written = Units::new();
        if inner.geometry.copies() > 1 {
            let first = row[0].1.clone();
            written.extend(row[1..].iter().map(|(unit, _)| (*unit, first.clone())));
        } else {
            let data_units = inner.geometry.data_units();
            let data: SmallVec<[&Buffer; 12]> = row[..data_units].iter().map(|(_, buffer)| buffer).collect();
            let parity: SmallVec<[Buffer; 3]> = (0..inner.geometry.parity_units())
                .map(|_| inner.buffers.allocate(BLOCK_BYTES as usize))
                .collect();
            let targets: SmallVec<[&Buffer; 3]> = parity.iter().collect();
            access(&data, &targets, stripewise_parity::encode);
            written.extend((data_units..).zip(parity.iter().cloned()));
        }
        for (unit, block) in &written {
            self.write_unit(stripe, UnitRange { unit: *unit, start, end }, block.clone()).await?;
        }
        Ok(written)
    }

    /// Counts a wrong block, found by other means than its checksum, against its drive.
    pub(super) fn blame(&mut self, stripe: &Stripe, unit: usize) {
        let inner = self.inner;
        if let Some(member) = inner.columns.member_at(stripe.units[unit]) {
            self.report.blame(member.label());
            member.count_checksum_errors(1);
        }
    }

    /// The single wrong unit, if it can be identified.
    pub(super) fn locate_wrong(&self, blocks: &[(usize, Buffer)]) -> Option<usize> {
        let inner = self.inner;
        let buffers: SmallVec<[&Buffer; 12]> = blocks.iter().map(|(_, buffer)| buffer).collect();
        let mut wrong = None;
        access(&buffers, &[], |units, _| {
            wrong = if inner.geometry.copies() > 1 {
                outvoted(units)
            } else {
                match stripewise_parity::locate(inner.geometry.data_units(), units) {
                    Verdict::Unit(unit) => Some(unit),
                    Verdict::Consistent | Verdict::Unknown => None,
                }
            };
        });
        wrong
    }

    /// Writes a range in place. Its checksum is not recorded here, because that has to wait until
    /// the data is durable.
    pub(super) async fn write_unit(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: Buffer,
    ) -> Result<(), ArrayError> {
        let inner = self.inner;
        let place = stripe.units[range.unit];
        if inner.sums.get().is_some() {
            // No journal announces this change, so the block must have no recorded checksum until
            // the change is complete.
            inner.sums.set(&inner.sums.of_unit(stripe, range).await?, 1);
            inner.release_records().await?;
        }
        let request = IoRequest::write(place.offset_bytes + range.start, data, false);
        match inner.columns.submit(place.member, Class::Background, request.because(Cause::Repair)).await {
            Ok(()) => Ok(()),
            Err(error) => inner.note_write_error(&error).await,
        }
    }
}

/// The one copy that differs while all others, at least two, agree.
fn outvoted(copies: &[&[u8]]) -> Option<usize> {
    if copies.len() < 3 {
        return None;
    }
    (0..copies.len()).find(|&odd| {
        let mut others = (0..copies.len()).filter(|&other| other != odd).map(|other| copies[other]);
        let first = others.next().expect("at least two others");
        first != copies[odd] && others.all(|other| other == first)
    })
}
