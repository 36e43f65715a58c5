//! Check of a region that writes nothing: the drives as they are, with the place of each fault.
//!
//! A scrub repairs what it finds, and with one parity, or two copies, without checksums it has to
//! take one side for right. A check shows the places before that, and leaves the choice to the
//! administrator. The stripes of the region are held while it is read and compared, so that no
//! write of a client is mistaken for a fault.
//!
//! Expected faults: units that cannot be read (they are read block by block, to find the place),
//! damaged checksum pages, missing drives (the rest is verified by its checksums).

use smallvec::SmallVec;
use stripewise_drive::{Buffer, DriveErrorKind};
use stripewise_layout::{Stripe, UnitRange};

use super::region_check::{RegionCheck, StripeRead, Units};
use super::report::{PlaceFault, WrongPlace};
use crate::array::BLOCK_BYTES;
use crate::array::parity::slice_of;
use crate::checksums::SeenPages;
use crate::error::ArrayError;
use crate::map::regions::RegionState;

impl RegionCheck<'_> {
    /// Reads and compares the region.
    pub(super) async fn look_at_region(&mut self, region: u64) -> Result<(), ArrayError> {
        let inner = self.inner;
        if inner.regions.state(region) == RegionState::Unwritten {
            return Ok(());
        }
        let reads = self.read_stripes(region).await;
        let Some(first) = reads.first().map(|read| read.stripe.index) else { return Ok(()) };
        let (pages, wrong_holders) = inner.look_at_pages(region).await;
        let stripe_bytes = inner.geometry.stripe_data_bytes();
        for drive in wrong_holders {
            self.report.pages_repaired += 1;
            self.report.add_place(WrongPlace {
                offset_bytes: first * stripe_bytes,
                length_bytes: reads.len() as u64 * stripe_bytes,
                fault: PlaceFault::ChecksumPage,
                drives: vec![drive],
            });
        }
        self.report.pages_lost += pages.iter().map(|pages| pages.lost).sum::<u64>();
        let is_open = inner.regions.intents.is_unsynced(region);
        let mut compared = inner.geometry.fault_tolerance() > 0;
        for read in reads {
            compared &= self.look_at_stripe(read, &pages, !is_open).await;
        }
        if !compared && inner.geometry.fault_tolerance() > 0 {
            self.report.regions_without_redundancy += 1;
        }
        Ok(())
    }

    /// Checks one stripe. False if its units were not compared with each other.
    async fn look_at_stripe(&mut self, read: StripeRead, pages: &[SeenPages], compares: bool) -> bool {
        let inner = self.inner;
        let StripeRead { stripe, units, answers, guard: _guard } = read;
        let length = inner.geometry.interleave_bytes();
        // Faulty units of each row of blocks.
        let mut faulty: Vec<SmallVec<[usize; 2]>> =
            vec![SmallVec::new(); length.div_ceil(BLOCK_BYTES) as usize];
        for ((unit, buffer), answer) in units.iter().zip(answers) {
            self.report.checked_bytes += buffer.len() as u64;
            let answer = answer.await;
            let whole = UnitRange { unit: *unit, start: 0, end: length };
            let refused = match answer {
                Ok(()) => Vec::new(),
                // A drive that fails as a whole is not asked for each block.
                Err(error) if error.kind != DriveErrorKind::Medium => blocks(whole).collect(),
                Err(_) => self.unreadable_blocks(&stripe, whole, buffer).await,
            };
            for start in &refused {
                self.add_fault(&stripe, &[*unit], *start, PlaceFault::Unreadable);
                faulty[(start / BLOCK_BYTES) as usize].push(*unit);
            }
            for start in self.blocks_unlike_checksum(&stripe, *unit, buffer, pages) {
                if !refused.contains(&start) {
                    self.report.checksum_errors += 1;
                    self.add_fault(&stripe, &[*unit], start, PlaceFault::Checksum);
                    faulty[(start / BLOCK_BYTES) as usize].push(*unit);
                }
            }
        }
        let is_lost = |faulty: &SmallVec<_>| units.len() - faulty.len() < inner.geometry.data_units();
        self.report.unreadable_strips += u64::from(faulty.iter().any(|row| !row.is_empty() && is_lost(row)));
        let is_whole = units.len() == stripe.units.len();
        if is_whole && compares && inner.geometry.fault_tolerance() > 0 {
            let is_sound = faulty.iter().all(SmallVec::is_empty);
            if !(is_sound && self.agrees(&units)) {
                self.compare_rows(&stripe, &units, &faulty, pages);
            }
        }
        is_whole && compares
    }

    /// Compares the rows of blocks that have no fault so far.
    fn compare_rows(
        &mut self,
        stripe: &Stripe,
        units: &Units,
        faulty: &[SmallVec<[usize; 2]>],
        pages: &[SeenPages],
    ) {
        let length = self.inner.geometry.interleave_bytes();
        let rows = blocks(UnitRange { unit: 0, start: 0, end: length }).zip(faulty);
        for start in rows.filter(|(_, faulty)| faulty.is_empty()).map(|(start, _)| start) {
            let row: Units = units
                .iter()
                .map(|(unit, buffer)| (*unit, slice_of(buffer, 0, start, start + BLOCK_BYTES)))
                .collect();
            if self.agrees(&row) {
                continue;
            }
            if let Some(unit) = self.locate_wrong(&row) {
                self.add_fault(stripe, &[unit], start, PlaceFault::Mismatch);
                continue;
            }
            self.report.unattributed_blocks += 1;
            // Blocks that match their checksums are right.
            let is_proven = |unit: &usize| {
                let place = stripe.units[*unit];
                let block = (place.offset_bytes + start) / BLOCK_BYTES;
                pages.get(place.member).is_some_and(|pages| pages.is_recorded(block))
            };
            let all: SmallVec<[usize; 12]> = row.iter().map(|(unit, _)| *unit).collect();
            let open: SmallVec<[usize; 12]> = all.iter().copied().filter(|unit| !is_proven(unit)).collect();
            self.add_fault(stripe, if open.is_empty() { &all } else { &open }, start, PlaceFault::Mismatch);
        }
    }

    /// Reads the blocks of a unit that cannot be read as a whole into its buffer, and returns the
    /// offsets of those that cannot be read.
    async fn unreadable_blocks(&self, stripe: &Stripe, whole: UnitRange, buffer: &Buffer) -> Vec<u64> {
        let readable = self.readable_blocks(stripe, whole).await;
        for (block, bytes) in &readable {
            slice_of(buffer, 0, block.start, block.end).copy_from(bytes);
        }
        let is_readable = |start: &u64| readable.iter().any(|(block, _)| block.start == *start);
        blocks(whole).filter(|start| !is_readable(start)).collect()
    }

    /// Offsets in the strip of the blocks that do not match their checksums.
    fn blocks_unlike_checksum(
        &self,
        stripe: &Stripe,
        unit: usize,
        buffer: &Buffer,
        pages: &[SeenPages],
    ) -> Vec<u64> {
        let place = stripe.units[unit];
        let (Some(sums), Some(seen)) = (self.inner.sums.get(), pages.get(place.member)) else {
            return Vec::new();
        };
        let verdict = sums.table.verify_by(seen, place.offset_bytes, buffer);
        verdict.bad_blocks.iter().map(|block| block * BLOCK_BYTES - place.offset_bytes).collect()
    }

    /// Adds a faulty block: of one unit, or of one among several. A single unit's is counted for
    /// its drive in the report.
    fn add_fault(&mut self, stripe: &Stripe, units: &[usize], start: u64, fault: PlaceFault) {
        let inner = self.inner;
        let member = |unit: &usize| inner.columns.member_at(stripe.units[*unit]);
        let drives: Vec<String> =
            units.iter().filter_map(member).map(|member| member.label().to_string()).collect();
        if let (&[_], [drive]) = (units, &drives[..])
            && fault != PlaceFault::Unreadable
        {
            self.report.blame(drive);
        }
        let data_units = inner.geometry.data_units();
        let in_stripe = match units {
            [unit] if *unit < data_units => *unit as u64 * inner.geometry.interleave_bytes(),
            _ => 0,
        };
        self.report.add_place(WrongPlace {
            offset_bytes: stripe.index * inner.geometry.stripe_data_bytes() + in_stripe + start,
            length_bytes: BLOCK_BYTES,
            fault,
            drives,
        });
    }
}

/// Offsets of the blocks of a range of a unit.
fn blocks(range: UnitRange) -> impl Iterator<Item = u64> {
    (range.start..range.end).step_by(BLOCK_BYTES as usize)
}
