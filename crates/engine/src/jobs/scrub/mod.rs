//! Scrub and resync: read everything that was written, compare, repair.
//!
//! A scrub reads every unit of every written stripe. What a drive cannot read is reconstructed and
//! written back. Where copies or parity disagree: with two parities, or three copies, the unit that
//! lied is named, repaired from the others and counted against its drive; with one, it cannot be
//! told who is right, so data are taken as they are (of two copies the first) and the rest is made
//! to agree, as after a crash. A *resync* is the same for chunks that a crash left open, where
//! disagreement is nobody's lie: parity is recomputed, or the first copy copied.
//!
//! With checksums every block says by itself whether it is right, in any layout; what is said above
//! is then left for blocks of which nothing is recorded. The pages of checksums are compared with
//! their copies first, because a drive that lost the write of a block may have lost that of its
//! page too.
//!
//! Blocks of which nothing is recorded are those of pages that were lost. Where the others of their
//! row are known to be right they are made to follow from these; and of all that agree with the
//! rest of their row (without redundancy: that could be read) a sum is recorded by a scrub, so that
//! from then on they are verified like all others (`jobs/scrub/recording.rs`).

mod recording;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, IoRequest, access};
use stripewise_layout::{Stripe, UnitRange};
use stripewise_parity::Verdict;

use crate::array::parity::slice_of;
use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::checksums::PAGE_COVERS_BYTES;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order;
use crate::stripes::stripe_table::StripeGuard;
use recording::Unrecorded;

/// What a scrub found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes read from the members and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB found wrong on a known drive, by its label, and repaired.
    pub blamed: Vec<(String, u64)>,
    /// Rows of blocks that disagreed where it cannot be told which is wrong; made to agree.
    pub unattributed_blocks: u64,
    /// Strips of which some could not be read, nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions that could not be compared because members are missing.
    pub regions_without_redundancy: u64,
    /// Blocks of 4 KiB that did not agree with their checksums; those that could be put right are
    /// among `blamed` too.
    pub checksum_errors: u64,
    /// Pages of checksums of which one place was wrong or old, and was written again from the
    /// other.
    pub pages_repaired: u64,
    /// Pages of checksums of which no place was right: nothing is known of their blocks.
    pub pages_lost: u64,
    /// Blocks of 4 KiB of which no checksum was recorded, and now is.
    pub sums_recorded: u64,
}

impl ScrubReport {
    fn blame(&mut self, label: &str) {
        self.blame_for(label, 1);
    }

    fn blame_for(&mut self, label: &str, blocks: u64) {
        match self.blamed.iter_mut().find(|(blamed, _)| blamed == label) {
            Some((_, sum)) => *sum = sum.saturating_add(blocks),
            None => self.blamed.push((label.to_owned(), blocks)),
        }
    }

    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: &Self) {
        // What was recorded comes from a drive.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.checked_bytes, other.checked_bytes);
        other.blamed.iter().for_each(|(label, blocks)| self.blame_for(label, *blocks));
        add(&mut self.unattributed_blocks, other.unattributed_blocks);
        add(&mut self.unreadable_strips, other.unreadable_strips);
        add(&mut self.regions_without_redundancy, other.regions_without_redundancy);
        add(&mut self.checksum_errors, other.checksum_errors);
        add(&mut self.pages_repaired, other.pages_repaired);
        add(&mut self.pages_lost, other.pages_lost);
        add(&mut self.sums_recorded, other.sums_recorded);
    }

    /// Whether something was wrong.
    pub fn found_something(&self) -> bool {
        !self.blamed.is_empty()
            || self.unattributed_blocks + self.unreadable_strips + self.pages_repaired + self.pages_lost > 0
    }
}

/// Told after each region: regions done, regions in all.
pub type ScrubProgress<'a> = &'a dyn Fn(u64, u64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Scrub,
    Resync,
}

impl Array {
    /// Checks and repairs all that was written. Ends early with [`ArrayError::Closed`] when the
    /// array is closed.
    pub async fn scrub(&self, progress: ScrubProgress<'_>) -> Result<ScrubReport, ArrayError> {
        self.scrub_from(0, progress).await
    }

    /// As [`Self::scrub`], from a region on: to go on with one that was interrupted.
    pub async fn scrub_from(
        &self,
        first_region: u64,
        progress: ScrubProgress<'_>,
    ) -> Result<ScrubReport, ArrayError> {
        let mut report = ScrubReport::default();
        let regions = self.0.regions.count();
        for region in first_region..regions {
            self.scrub_range(region..region + 1, &mut report).await?;
            progress(region + 1, regions);
        }
        self.0.release_records().await?;
        Ok(report)
    }

    /// Checks and repairs some regions; what is found is added to the report.
    pub async fn scrub_range(
        &self,
        regions: std::ops::Range<u64>,
        report: &mut ScrubReport,
    ) -> Result<(), ArrayError> {
        self.0.check_writable()?;
        for region in regions.start..regions.end.min(self.0.regions.count()) {
            lock_order::scope(self.0.check_region(region, Purpose::Scrub, report)).await?;
        }
        Ok(())
    }

    /// Makes copies and parity agree in the chunks that a crash left open. Where members went
    /// meanwhile there is nothing to compare: these chunks stay open ([`Self::needs_resync`]) until
    /// all is there again.
    pub async fn resync(&self, progress: ScrubProgress<'_>) -> Result<ScrubReport, ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let mut report = ScrubReport::default();
        let chunks = inner.regions.intents.unsynced_chunks();
        let total: u64 =
            chunks.iter().map(|&chunk| inner.regions.regions_of_chunk(chunk).count() as u64).sum();
        let mut done = 0;
        let mut all_compared = true;
        for chunk in chunks {
            let without_redundancy = report.regions_without_redundancy;
            for region in inner.regions.regions_of_chunk(chunk) {
                if !mutation::is_chosen(Mutation::ResyncComparesNothing) {
                    lock_order::scope(inner.check_region(region, Purpose::Resync, &mut report)).await?;
                }
                done += 1;
                progress(done, total);
            }
            if report.regions_without_redundancy == without_redundancy {
                inner.regions.intents.mark_synced(chunk);
            } else {
                all_compared = false;
            }
        }
        inner.unsynced.set(!all_compared);
        inner.start_clearing_intents();
        Ok(report)
    }
}

/// Units of a stripe, or a row of blocks of it, with their content.
type Units = SmallVec<[(usize, Buffer); 12]>;

struct StripeRead {
    stripe: Stripe,
    units: Units,
    answers: SmallVec<[Completion; 12]>,
    guard: StripeGuard,
}

impl Inner {
    async fn check_region(
        &self,
        region: u64,
        purpose: Purpose,
        report: &mut ScrubReport,
    ) -> Result<(), ArrayError> {
        if self.lifecycle.is_closed() {
            return Err(ArrayError::Closed);
        }
        if purpose == Purpose::Scrub {
            self.audit_region(region, report).await?;
        }
        if self.regions.state(region) == RegionState::Unwritten {
            return Ok(());
        }
        let mut unrecorded = Unrecorded::default();
        if self.geometry.fault_tolerance() > 0 {
            let mut compared = true;
            for read in self.read_stripes(region).await {
                compared &= self.check_stripe(read, purpose, &mut unrecorded, report).await?;
            }
            if !compared {
                report.regions_without_redundancy += 1;
            }
        } else if purpose == Purpose::Scrub {
            for read in self.read_stripes(region).await {
                self.read_stripe(read, &mut unrecorded, report).await?;
            }
        }
        report.sums_recorded += self.record_sums_of(unrecorded).await?;
        Ok(())
    }

    /// Compares the places of the region's checksum pages.
    async fn audit_region(&self, region: u64, report: &mut ScrubReport) -> Result<(), ArrayError> {
        let Some(sums) = self.sums.get() else { return Ok(()) };
        let row = region / self.columns.regions_per_row;
        let in_row = region % self.columns.regions_per_row * self.regions.shape.member_region_bytes;
        let pages =
            in_row / PAGE_COVERS_BYTES..(in_row + self.regions.shape.member_region_bytes) / PAGE_COVERS_BYTES;
        let is_wanted = |page: u16| pages.contains(&u64::from(page)) && self.page_holds_data(row, page);
        let audits =
            (0..self.geometry.width()).map(|column| sums.table.audit(row, column as u16, &is_wanted));
        for audit in join_all(audits).await {
            let audit = audit?;
            report.pages_repaired += audit.repaired;
            report.pages_lost += audit.lost;
        }
        Ok(())
    }

    /// Puts right what does not agree with its checksum, on the drive and in what was read. `false`
    /// if that cannot be done.
    async fn check_sums(
        &self,
        stripe: &Stripe,
        unit: usize,
        buffer: &Buffer,
        report: &mut ScrubReport,
    ) -> Result<bool, ArrayError> {
        let whole = UnitRange { unit, start: 0, end: buffer.len() as u64 };
        let mut all = true;
        for start in self.bad_blocks(stripe, whole, buffer).await? {
            report.checksum_errors += 1;
            let block = UnitRange { start, end: start + BLOCK_BYTES, ..whole };
            match self.fetch_unit(stripe, block, Class::Background).await {
                Ok(bytes) => {
                    if let Some(member) = self.columns.member_at(stripe.units[unit]) {
                        report.blame(member.label());
                    }
                    slice_of(buffer, 0, block.start, block.end).copy_from(&bytes);
                }
                Err(ArrayError::Lost { .. } | ArrayError::Drive(_)) => all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Without redundancy a scrub can only see whether everything can be read.
    async fn read_stripe(
        &self,
        read: StripeRead,
        unrecorded: &mut Unrecorded,
        report: &mut ScrubReport,
    ) -> Result<(), ArrayError> {
        let StripeRead { stripe, units, answers, guard } = read;
        let mut found = Vec::new();
        for ((unit, buffer), answer) in units.into_iter().zip(answers) {
            report.checked_bytes += buffer.len() as u64;
            let range = UnitRange { unit, start: 0, end: buffer.len() as u64 };
            if let Err(error) = answer.await {
                report.unreadable_strips += 1;
                self.note_read_error(&error).await?;
                if self.lacks_sums(&stripe, range).await? {
                    found.extend(self.readable_blocks(&stripe, range).await);
                }
                continue;
            }
            if !self.check_sums(&stripe, unit, &buffer, report).await? {
                report.unreadable_strips += 1;
            }
            found.push((range, buffer));
        }
        self.note_unrecorded(unrecorded, stripe, found, guard).await
    }

    /// Sends the reads of all units of a region's stripes. The region's memory is bounded by its
    /// size times the width.
    async fn read_stripes(&self, region: u64) -> Vec<StripeRead> {
        let length = self.geometry.interleave_bytes();
        let mut reads = Vec::new();
        // Beyond the volume's end nothing is stored that could be lost.
        let end = self.capacity.bytes().div_ceil(self.geometry.stripe_data_bytes());
        let stripes: Vec<u64> = self.regions.stripes_of(region).filter(|stripe| *stripe < end).collect();
        for (&index, guard) in stripes.iter().zip(self.table.lock_all(stripes.clone()).await) {
            if self.regions.is_unwritten(index) {
                continue;
            }
            let stripe = self.geometry.stripe(index);
            let missing = self.columns.missing_in(index);
            let mut units = SmallVec::new();
            let mut answers = SmallVec::new();
            for unit in (0..stripe.units.len()).filter(|&unit| !missing.contains(stripe.units[unit].member)) {
                let buffer = self.buffers.allocate(length as usize);
                let range = UnitRange { unit, start: 0, end: length };
                answers.push(if self.is_lost(&stripe, range) {
                    self.lost_answer(&stripe, range)
                } else {
                    self.submit_unit_read(&stripe, range, Class::Background, Cause::Scrub, buffer.clone())
                });
                units.push((unit, buffer));
            }
            reads.push(StripeRead { stripe, units, answers, guard });
        }
        reads
    }

    /// Checks one stripe; `false` if too much of it is missing to compare anything.
    async fn check_stripe(
        &self,
        read: StripeRead,
        purpose: Purpose,
        unrecorded: &mut Unrecorded,
        report: &mut ScrubReport,
    ) -> Result<bool, ArrayError> {
        let StripeRead { stripe, mut units, answers, guard } = read;
        let mut refused: SmallVec<[usize; 2]> = SmallVec::new();
        for ((unit, buffer), answer) in units.iter().zip(answers) {
            report.checked_bytes += buffer.len() as u64;
            if let Err(error) = answer.await {
                refused.push(*unit);
                let range = UnitRange { unit: *unit, start: 0, end: buffer.len() as u64 };
                if !self.is_lost(&stripe, range) {
                    self.note_read_error(&error).await?;
                }
            }
        }
        for unit in &refused {
            let Some(repaired) = self.repair_unreadable(&stripe, *unit).await? else {
                report.unreadable_strips += 1;
                return Ok(true);
            };
            let (_, buffer) =
                units.iter_mut().find(|(have, _)| have == unit).expect("refused units were asked for");
            *buffer = repaired;
        }
        for (unit, buffer) in &units {
            if !refused.contains(unit) && !self.check_sums(&stripe, *unit, buffer, report).await? {
                report.unreadable_strips += 1;
                return Ok(true);
            }
        }
        if units.len() < stripe.units.len() {
            return Ok(false);
        }
        let length = self.geometry.interleave_bytes();
        let mut sound: Vec<(UnitRange, Buffer)> = Vec::new();
        if !self.agrees(&units) {
            for start in (0..length).step_by(BLOCK_BYTES as usize) {
                let row: Units = units
                    .iter()
                    .map(|(unit, buffer)| (*unit, slice_of(buffer, 0, start, start + BLOCK_BYTES)))
                    .collect();
                let of_row = self.check_row(&stripe, row, start, purpose, report).await?;
                sound.extend(
                    of_row
                        .into_iter()
                        .map(|(unit, block)| (UnitRange { unit, start, end: start + BLOCK_BYTES }, block)),
                );
            }
        } else if purpose == Purpose::Scrub {
            let whole = |(unit, buffer)| (UnitRange { unit, start: 0, end: length }, buffer);
            sound.extend(units.into_iter().map(whole));
        }
        self.note_unrecorded(unrecorded, stripe, sound, guard).await?;
        Ok(true)
    }

    /// Reads a unit block by block that could not be read at once; writes back what was
    /// reconstructed. `None` if some of it is lost.
    async fn repair_unreadable(&self, stripe: &Stripe, unit: usize) -> Result<Option<Buffer>, ArrayError> {
        let length = self.geometry.interleave_bytes();
        let whole = self.buffers.allocate(length as usize);
        let mut all = true;
        for start in (0..length).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            match self.fetch_unit(stripe, block, Class::Background).await {
                Ok(bytes) => slice_of(&whole, 0, block.start, block.end).copy_from(&bytes),
                Err(ArrayError::Lost { .. } | ArrayError::Drive(_)) => all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(all.then_some(whole))
    }

    fn agrees(&self, units: &[(usize, Buffer)]) -> bool {
        let buffers: SmallVec<[&Buffer; 12]> = units.iter().map(|(_, buffer)| buffer).collect();
        let copies = self.geometry.copies() > 1;
        let mut agrees = true;
        access(&buffers, &[], |units, _| {
            agrees = if copies {
                units.iter().all(|unit| unit == &units[0])
            } else {
                stripewise_parity::locate(self.geometry.data_units(), units) == Verdict::Consistent
            };
        });
        agrees
    }

    /// Makes a row of blocks agree; `start`: where in their strips they are. Gives the blocks of
    /// which a sum may be recorded.
    async fn check_row(
        &self,
        stripe: &Stripe,
        mut row: Units,
        start: u64,
        purpose: Purpose,
        report: &mut ScrubReport,
    ) -> Result<Units, ArrayError> {
        let end = start + BLOCK_BYTES;
        if purpose == Purpose::Scrub {
            self.follow_known(stripe, &mut row, start, report).await?;
        }
        if self.agrees(&row) {
            return Ok(if purpose == Purpose::Scrub { row } else { Units::new() });
        }
        let liar = if purpose == Purpose::Scrub { self.liar(&row) } else { None };
        if let Some(unit) = liar {
            let right = self.buffers.allocate(BLOCK_BYTES as usize);
            let range = UnitRange { unit, start, end };
            self.blame(stripe, unit, report);
            self.reconstruct(stripe, range, &right, Class::Background).await?;
            self.write_unit(stripe, range, right.clone()).await?;
            row.iter_mut().filter(|(other, _)| *other == unit).for_each(|(_, block)| *block = right.clone());
            return Ok(row);
        }
        if purpose == Purpose::Scrub {
            report.unattributed_blocks += 1;
        }
        let mut written = Units::new();
        if self.geometry.copies() > 1 {
            let first = row[0].1.clone();
            written.extend(row[1..].iter().map(|(unit, _)| (*unit, first.clone())));
        } else {
            let data_units = self.geometry.data_units();
            let data: SmallVec<[&Buffer; 12]> = row[..data_units].iter().map(|(_, buffer)| buffer).collect();
            let parity: SmallVec<[Buffer; 3]> = (0..self.geometry.parity_units())
                .map(|_| self.buffers.allocate(BLOCK_BYTES as usize))
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

    /// A block of a unit was found wrong, and not by its checksum.
    fn blame(&self, stripe: &Stripe, unit: usize, report: &mut ScrubReport) {
        if let Some(member) = self.columns.member_at(stripe.units[unit]) {
            report.blame(member.label());
            member.count_checksum_errors(1);
        }
    }

    /// The one unit that is wrong, where that can be told.
    fn liar(&self, blocks: &[(usize, Buffer)]) -> Option<usize> {
        let buffers: SmallVec<[&Buffer; 12]> = blocks.iter().map(|(_, buffer)| buffer).collect();
        let mut liar = None;
        access(&buffers, &[], |units, _| {
            liar = if self.geometry.copies() > 1 {
                outvoted(units)
            } else {
                match stripewise_parity::locate(self.geometry.data_units(), units) {
                    Verdict::Unit(unit) => Some(unit),
                    Verdict::Consistent | Verdict::Unknown => None,
                }
            };
        });
        liar
    }

    /// Writes a range in place. Nothing is recorded of it afterwards: that has to wait until it is
    /// durable.
    async fn write_unit(&self, stripe: &Stripe, range: UnitRange, data: Buffer) -> Result<(), ArrayError> {
        let place = stripe.units[range.unit];
        if self.sums.get().is_some() {
            // No journal says what is changed here: until it is done nothing must be recorded of
            // the block.
            self.set_sums(&self.unit_sums(stripe, range).await?, 1);
            self.release_records().await?;
        }
        let request = IoRequest::write(place.offset_bytes + range.start, data, false);
        match self.columns.submit(place.member, Class::Background, request.because(Cause::Repair)).await {
            Ok(()) => Ok(()),
            Err(error) => self.note_write_error(&error).await,
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
