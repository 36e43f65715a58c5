//! After a crash: the journal's live records are carried out, before the array serves anybody.
//!
//! A redo record is written in place as it stands: whichever of its writes had been done,
//! afterwards data and parity belong together, also where drives are missing now. An intent says
//! that a full stripe was being written; of every block of it some version is in place. With all
//! data units there, parity is computed again. With one missing it cannot be told which version
//! parity speaks of, so the blocks that were on it are dead: reading them is an error until they
//! are written.

pub(crate) mod resync;

use std::rc::{Rc, Weak};

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, DriveError, IoRequest, Operation, access};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::{AreaPlace, Array, BLOCK_BYTES, Inner, LocalFuture};
use crate::error::ArrayError;
use crate::journal::{Area, Found, Journal, JournalHost, Kind, Record};
use crate::log::WriteLog;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::write_back::pending::PendingPiece;

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayReport {
    /// Partial stripes written again.
    pub redone: u64,
    /// Full stripes whose parity was computed again.
    pub resynced: u64,
    /// Blocks of 4 KiB that are lost: they were being written when power was cut, and their drive
    /// is gone.
    pub dead_blocks: u64,
}

impl Array {
    /// Takes further areas into the journal's use, after the drives were added; entries that have
    /// too few copies get more. Nothing happens where the array has no journal.
    pub(crate) async fn add_journal_places(&self, places: &[AreaPlace]) -> Result<(), ArrayError> {
        let Some(log) = self.0.log.open() else { return Ok(()) };
        for area in self.0.journal_areas(places) {
            log.journal.add_area(area).await?;
        }
        log.journal.restore_copies().await.map(drop)
    }

    /// Begins a journal where the array has been going on without one; `epoch` as for
    /// [`Array::create`]. Requests wait meanwhile: after a crash whatever the journal does not know
    /// counts as whole, so all that was written without it is durable in place first. `false`: not
    /// yet, since an earlier crash left something to be compared, or there is a journal.
    pub(crate) async fn begin_journal(&self, places: &[AreaPlace], epoch: u64) -> Result<bool, ArrayError> {
        let inner = &self.0;
        let _nobody_else = inner.admission.acquire(inner.options.in_flight_bytes).await;
        let is_unclear = !inner.regions.intents.unsynced_chunks().is_empty();
        if inner.log.open().is_some() || is_unclear {
            return Ok(false);
        }
        inner.check_writable()?;
        inner.flush().await?;
        inner.create_journal(places, epoch).await?;
        Ok(inner.log.open().is_some())
    }

    /// How many more areas may be lost before something that the journal holds, or the journal
    /// itself, is on none. 0 where it takes nothing more; `None` without a journal.
    pub fn journal_redundancy(&self) -> Option<usize> {
        Some(self.0.log.open()?.journal.least_copies().saturating_sub(1))
    }

    /// Whether the journal was found empty where it should have held something.
    pub(crate) fn was_journal_empty(&self) -> bool {
        self.0.log.open().is_some_and(|log| log.was_empty.get())
    }

    /// Bytes in use in the journal and bytes that it has for clients, summed over its areas.
    pub fn journal_fill(&self) -> Option<(u64, u64)> {
        let fill = self.0.log.open()?.journal.fill();
        Some((fill.used_bytes, fill.capacity_bytes))
    }
}

/// How the journal has a drive excluded that refuses its area.
struct AreaHost(Weak<Inner>);

impl JournalHost for AreaHost {
    fn area_failed<'a>(&'a self, _: u32, error: &'a DriveError) -> LocalFuture<'a, Result<(), ArrayError>> {
        Box::pin(async move {
            match self.0.upgrade() {
                Some(inner) => inner.note_write_error(error).await,
                None => Err(ArrayError::Closed),
            }
        })
    }
}

impl Inner {
    fn new_log(&self, journal: Journal) -> WriteLog {
        WriteLog::new(journal, self.sums.get().is_some())
    }

    /// The areas whose drives are there.
    fn journal_areas(&self, places: &[AreaPlace]) -> Vec<Area> {
        let members = self.columns.members.borrow();
        let area = |place: &AreaPlace| {
            let member = members.get(place.drive)?;
            Some(Area {
                drive: place.drive,
                member: member.member.clone(),
                base_bytes: member.slabs_base_bytes + u64::from(place.slab) * self.spec.slab_bytes,
                bytes: u64::from(place.slabs) * self.spec.slab_bytes,
            })
        };
        places.iter().filter_map(area).collect()
    }

    /// One more than the drives that may be lost. Also of a layout that can spare none: the volume
    /// does not depend on drives that have nothing of it but an area. One copy is enough where all
    /// areas are on drives with rows of it, for without one of those it has failed anyway.
    fn journal_copies(&self, areas: &[Area]) -> usize {
        if mutation::is_chosen(Mutation::JournalOnOneDrive) {
            return 1;
        }
        let least = if areas.iter().all(|area| self.columns.has_rows_on(area.drive)) { 1 } else { 2 };
        least.max(self.geometry.fault_tolerance() + 1)
    }

    pub(crate) async fn create_journal(&self, places: &[AreaPlace], epoch: u64) -> Result<(), ArrayError> {
        let areas = self.journal_areas(places);
        if areas.is_empty() {
            return Ok(());
        }
        let (id, copies) = (self.spec.id, self.journal_copies(&areas));
        let host = Rc::new(AreaHost(self.me.clone()));
        let journal = Journal::create(&self.context, &self.buffers, id, epoch, areas, copies, host).await?;
        self.set_limits(&journal);
        self.log.set(Rc::new(self.new_log(journal)));
        Ok(())
    }

    /// Reads the journal and carries out what it holds.
    pub(crate) async fn open_journal(
        &self,
        places: &[AreaPlace],
        fresh_epoch: u64,
    ) -> Result<(), ArrayError> {
        let areas = self.journal_areas(places);
        if areas.is_empty() {
            return Ok(());
        }
        if self.lifecycle.is_protected() {
            // Also where no chunk is marked as dirty: what is pending in new regions marks none.
            self.log.leave_unread(places.to_vec(), fresh_epoch);
            return Ok(());
        }
        self.replay_journal(areas, fresh_epoch).await.map(drop)
    }

    /// What [`Self::open_journal`] left out, on members that keep in memory what is written to
    /// them. Whether the journal held anything; `false` also where that was done before.
    pub(crate) async fn recover_in_memory(&self) -> Result<bool, ArrayError> {
        let _alone = self.log.read_alone().await;
        let Some((places, fresh_epoch)) = self.log.unread() else { return Ok(false) };
        let full = self.lifecycle.begin_recovery_in_memory();
        let replayed = self.replay_journal(self.journal_areas(&places), fresh_epoch).await;
        self.lifecycle.end_recovery_in_memory(full);
        let held_something = replayed?;
        self.log.note_read();
        Ok(held_something)
    }

    /// Whether the journal held anything.
    async fn replay_journal(&self, areas: Vec<Area>, fresh_epoch: u64) -> Result<bool, ArrayError> {
        let (id, copies) = (self.spec.id, self.journal_copies(&areas));
        let host = Rc::new(AreaHost(self.me.clone()));
        let epoch = Some(fresh_epoch);
        let (journal, mut replay) =
            Journal::open(&self.context, &self.buffers, id, epoch, areas, copies, host).await?;
        if mutation::is_chosen(Mutation::ReplayWithoutRedo) {
            replay.records.retain(|found| !matches!(found.record.kind, Kind::Redo | Kind::Parity));
        }
        if !(replay.records.is_empty() && self.regions.intents.unsynced_chunks().is_empty()) {
            self.sums.forgive_pages();
        }
        if self.sums.get().is_some() {
            self.replay_with_sums(&journal, &replay.records).await?;
        } else {
            self.replay(&journal, &replay.records).await?;
        }
        let is_logged = self.geometry.parity_units() > 0 || self.sums.get().is_some();
        if replay.missing_batches == 0 && !replay.was_empty && is_logged {
            // Nothing was under way that the journal does not know.
            for chunk in self.regions.intents.unsynced_chunks() {
                self.regions.intents.mark_synced(chunk);
            }
        }
        let log = Rc::new(self.new_log(journal.clone()));
        log.was_empty.set(replay.was_empty);
        let mut is_any_over = false;
        for found in &replay.records {
            let record = &found.record;
            let region = self.regions.region_of(record.stripe);
            let is_nobodys =
                region >= self.regions.count() || self.regions.state(region) == RegionState::Unwritten;
            if record.kind == Kind::Data && self.deferred.pending.holds(record.stripe, record.sequence) {
                log.note_data(record.stripe);
            } else if is_nobodys || self.bad.has_no_dead() {
                journal.release(record.sequence);
                is_any_over = true;
            } else {
                log.note_replayed(record.sequence);
            }
        }
        self.set_limits(&journal);
        if is_any_over {
            // Durably, before anything is written: the first write of a region is not in the
            // journal, and what is found there after the next crash must not be older than that.
            journal.mark().await?;
        }
        self.log.set(log);
        self.start_destaging();
        Ok(!replay.records.is_empty())
    }

    /// Releases the records that the replay kept because of dead blocks; to be called when the pool
    /// has recorded these, and before anything is logged. The replay has resynchronised their
    /// stripes, perhaps to older versions or to what stands in for dead blocks, so beside a newer
    /// record they would be wrong.
    pub(crate) async fn forget_replayed(&self) -> Result<(), ArrayError> {
        let _alone = self.log.read_alone().await;
        let Some(log) = self.log.open().filter(|log| log.has_replayed()) else { return Ok(()) };
        log.forget_replayed().await?;
        self.start_destaging();
        Ok(())
    }

    /// The same where no pool has recorded them yet.
    pub(crate) async fn record_and_forget_replayed(&self) -> Result<(), ArrayError> {
        self.host.record_lost(self.spec.id).await.map_err(ArrayError::CannotRecord)?;
        self.forget_replayed().await
    }

    /// Destaging logs the parity of what it puts in place, each stripe by itself: room for that is
    /// kept free.
    fn set_limits(&self, journal: &Journal) {
        if self.deferred.is_on {
            journal.set_destage_percent(120 + 100 * self.geometry.parity_units() as u64);
        }
        let tuning = &self.options.tuning;
        journal.set_batch_limits(tuning.journal_batch_bytes, tuning.journal_batch_notes);
    }

    pub(crate) async fn close_journal(&self) -> Result<(), ArrayError> {
        match self.log.open() {
            Some(log) => log.journal.close().await,
            None => Ok(()),
        }
    }

    /// Carries the records out, in order, and makes that durable.
    async fn replay(&self, journal: &Journal, records: &[Found]) -> Result<ReplayReport, ArrayError> {
        let mut report = ReplayReport::default();
        for found in records {
            let record = &found.record;
            if record.kind == Kind::Data {
                self.keep_data(&journal.load(found).await?);
                continue;
            }
            let region = self.regions.region_of(record.stripe);
            if region >= self.regions.count() || self.regions.state(region) == RegionState::Unwritten {
                // Never made durable as a whole, or forgotten since: it reads as zeros, with what
                // is pending over it.
                continue;
            }
            // A request that writes a stripe in place has first put in place what was pending of
            // it, perhaps in several steps.
            let covers_all = record.kind != Kind::Parity || mutation::is_chosen(Mutation::ParityCoversAll);
            let placed = if covers_all { record.sequence } else { record.covers };
            let pending = self.deferred.pending.up_to(record.stripe, placed);
            self.deferred.pending.remove(record.stripe, placed);
            let stripe = self.geometry.stripe(record.stripe);
            match record.kind {
                Kind::Redo => {
                    self.redo(&stripe, &journal.load(found).await?).await?;
                    report.redone += 1;
                }
                Kind::Intent => {
                    report.dead_blocks += self.resync_stripe(&stripe).await?;
                    report.resynced += 1;
                }
                Kind::Parity => {
                    self.redo_pending(&stripe, &pending).await?;
                    self.redo(&stripe, &journal.load(found).await?).await?;
                    report.redone += 1;
                }
                Kind::Data => unreachable!("kept above"),
            }
        }
        self.flush_members().await?;
        Ok(report)
    }

    /// Data that was acknowledged from the journal is pending again.
    pub(crate) fn keep_data(&self, record: &Record) {
        let interleave = self.geometry.interleave_bytes();
        for part in &record.parts {
            let unit = u64::from(part.unit);
            let start = u64::from(part.start);
            let fits = start + part.len() <= interleave && unit < self.geometry.data_units() as u64;
            let region = self.regions.region_of(record.stripe);
            if !fits || region >= self.regions.count() {
                continue;
            }
            let mut from = unit * interleave + start;
            for data in &part.segments {
                let piece = PendingPiece { from, data: data.clone(), sequence: record.sequence, room: None };
                let start = record.stripe * self.geometry.stripe_data_bytes() + from;
                self.bad.repair_dead_bytes(start, start + data.len() as u64);
                from = piece.to();
                self.deferred.pending.insert(record.stripe, piece, self.context.now_ns());
            }
        }
    }

    /// Writes in place what the journal has as data; the parity that belongs to it follows.
    async fn redo_pending(&self, stripe: &Stripe, pending: &[(u64, Buffer)]) -> Result<(), ArrayError> {
        let missing = self.columns.missing_in(stripe.index);
        for (from, data) in pending {
            let mut at = 0;
            for range in self.geometry.data_ranges(*from, from + data.len() as u64) {
                let length = range.length() as usize;
                let bytes = data.slice(at..at + length);
                at += length;
                let place = stripe.units[range.unit];
                if missing.contains(place.member) {
                    continue;
                }
                // In order: where pieces overlap the last counts.
                let request = IoRequest::write(place.offset_bytes + range.start, bytes, false);
                if let Err(error) = self
                    .columns
                    .submit(place.member, Class::Foreground, request.because(Cause::Journal))
                    .await
                {
                    self.note_write_error(&error).await?;
                }
                self.bad.repair_unit(stripe, range);
            }
        }
        Ok(())
    }

    async fn redo(&self, stripe: &Stripe, record: &Record) -> Result<(), ArrayError> {
        let missing = self.columns.missing_in(stripe.index);
        let mut answers = Vec::new();
        for part in &record.parts {
            let Some(place) = stripe.units.get(usize::from(part.unit)) else { continue };
            let end = u64::from(part.start) + part.len();
            if missing.contains(place.member) || end > self.geometry.interleave_bytes() {
                continue;
            }
            let at = place.offset_bytes + u64::from(part.start);
            let request =
                IoRequest::with_segments(Operation::Write { fua: false }, at, part.segments.clone());
            answers.push(self.columns.submit(
                place.member,
                Class::Foreground,
                request.because(Cause::Journal),
            ));
        }
        for answer in answers {
            if let Err(error) = answer.await {
                self.note_write_error(&error).await?;
            }
        }
        // What is written is no longer lost, also where it entered parity only.
        for part in record.parts.iter().filter(|part| usize::from(part.unit) < self.geometry.data_units()) {
            let start = u64::from(part.start);
            let range = UnitRange { unit: usize::from(part.unit), start, end: start + part.len() };
            self.bad.repair_unit(stripe, range);
        }
        Ok(())
    }

    /// Makes parity fit the data of a stripe that was being written as a whole. Gives the number of
    /// blocks that are lost.
    async fn resync_stripe(&self, stripe: &Stripe) -> Result<u64, ArrayError> {
        let interleave = self.geometry.interleave_bytes();
        let data_units = self.geometry.data_units();
        let missing = self.columns.missing_in(stripe.index);
        let mut data: SmallVec<[Buffer; 12]> = SmallVec::new();
        let mut dead_blocks = 0;
        for unit in 0..data_units {
            let place = stripe.units[unit];
            let buffer = self.buffers.allocate(interleave as usize);
            let read = match missing.contains(place.member) {
                true => None,
                false => {
                    let request = IoRequest::read(place.offset_bytes, buffer.clone());
                    match self
                        .columns
                        .submit(place.member, Class::Foreground, request.because(Cause::Journal))
                        .await
                    {
                        Ok(()) => Some(buffer),
                        Err(error) => {
                            self.note_read_error(&error).await?;
                            None
                        }
                    }
                }
            };
            data.push(match read {
                Some(buffer) => buffer,
                None => {
                    dead_blocks += self.declare_dead(stripe.index, unit);
                    self.buffers.allocate_zeroed(interleave as usize)
                }
            });
        }
        let parity: SmallVec<[Buffer; 3]> =
            (0..self.geometry.parity_units()).map(|_| self.buffers.allocate(interleave as usize)).collect();
        if !parity.is_empty() {
            let sources: SmallVec<[&Buffer; 12]> = data.iter().collect();
            let targets: SmallVec<[&Buffer; 3]> = parity.iter().collect();
            access(&sources, &targets, stripewise_parity::encode);
        }
        for (number, buffer) in parity.into_iter().enumerate() {
            let place = stripe.units[data_units + number];
            if missing.contains(place.member) {
                continue;
            }
            let request = IoRequest::write(place.offset_bytes, buffer, false);
            if let Err(error) =
                self.columns.submit(place.member, Class::Foreground, request.because(Cause::Journal)).await
            {
                self.note_write_error(&error).await?;
            }
        }
        Ok(dead_blocks)
    }

    /// One block of a data unit is lost; `start` is its place in the strip. `false`: what was
    /// acknowledged since is pending, and it is not needed.
    pub(crate) fn declare_block_dead(&self, stripe: u64, unit: usize, start: u64) -> bool {
        let in_stripe = unit as u64 * self.geometry.interleave_bytes() + start;
        let block = (stripe * self.geometry.stripe_data_bytes() + in_stripe) / BLOCK_BYTES;
        let is_needed = !self.deferred.pending.holds_block(&self.geometry, block);
        if is_needed {
            self.bad.note_dead([block]);
        }
        is_needed
    }

    /// Gives the number of blocks that are lost.
    fn declare_dead(&self, stripe: u64, unit: usize) -> u64 {
        let blocks = (0..self.geometry.interleave_bytes()).step_by(BLOCK_BYTES as usize);
        blocks.filter(|&start| self.declare_block_dead(stripe, unit, start)).count() as u64
    }
}
