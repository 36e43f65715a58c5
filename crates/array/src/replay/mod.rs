//! After a crash: the journal's live records are replayed, before the array serves requests.
//!
//! A redo record is written in place as it stands: whichever of its writes had been done,
//! afterwards data and parity belong together, also where drives are missing now. An intent says
//! that a full stripe was being written; of every block of it some version is in place. With all
//! data units there, parity is computed again. With one missing it is not known which version
//! parity belongs to, so the blocks that were on it are dead: reading them is an error until they
//! are written.

mod lost;
mod redo;
mod resync;

use std::rc::{Rc, Weak};

use stripewise_drive::DriveError;

use crate::array::{AreaPlace, Array, BLOCK_BYTES, HostRequest, Inner, LocalFuture};
use crate::error::ArrayError;
use crate::journal::{Area, Journal, JournalHost, Kind};
use crate::log::WriteLog;
use crate::map::regions::RegionState;
use crate::mutation::{self, Mutation};
use redo::Replay;

impl Array {
    /// Begins a journal where the array has been going on without one; `epoch` as for
    /// [`Array::create`]. Requests wait until it is done: after a crash whatever the journal does
    /// not know counts as whole, so all that was written without it is durable in place first.
    /// `false`: not yet, since an earlier crash left something to be compared, or there is a
    /// journal.
    pub async fn begin_journal(&self, places: &[AreaPlace], epoch: u64) -> Result<bool, ArrayError> {
        let inner = &self.0;
        let _exclusive = inner.admission.acquire(inner.options.in_flight_bytes).await;
        let is_unclear = !inner.regions.intents.unsynced_chunks().is_empty();
        if inner.log.open().is_some() || is_unclear {
            return Ok(false);
        }
        inner.check_writable()?;
        inner.flush().await?;
        inner.create_journal(places, epoch).await?;
        Ok(inner.log.open().is_some())
    }

    /// Number of areas that may be lost before something that the journal holds, or the journal
    /// itself, is on none. 0 where it takes nothing more; `None` without a journal.
    pub fn journal_redundancy(&self) -> Option<usize> {
        Some(self.0.log.open()?.journal.least_copies().saturating_sub(1))
    }

    /// True if the journal was found empty where it should have held something.
    pub fn was_journal_empty(&self) -> bool {
        self.0.log.open().is_some_and(|log| log.was_empty.get())
    }

    /// Number of acknowledged writes to the journal, at least, that were on none of its areas when
    /// it was opened. `is_area_away`: a drive that has an area is not at hand, so a page that
    /// cannot be read in another one may hide the newest.
    pub fn missing_batches(&self, is_area_away: bool) -> u64 {
        let Some(log) = self.0.log.open() else { return 0 };
        let is_newest_hidden = is_area_away && log.hiding_areas.get() > 0;
        log.missing_batches.get().max(u64::from(is_newest_hidden))
    }

    /// Bytes in use in the journal and bytes that it has for clients, summed over its areas.
    pub fn journal_fill(&self) -> Option<(u64, u64)> {
        let fill = self.0.log.open()?.journal.fill();
        Some((fill.used_bytes, fill.capacity_bytes))
    }
}

/// Excludes a drive that refuses its journal area.
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

/// The areas whose drives are there.
pub(crate) fn areas_at(array: &Inner, places: &[AreaPlace]) -> Vec<Area> {
    let members = array.columns.members.borrow();
    let area = |place: &AreaPlace| {
        let member = members.get(place.drive)?;
        Some(Area {
            drive: place.drive,
            member: member.member.clone(),
            base_bytes: member.slabs_base_bytes + u64::from(place.slab) * array.spec.slab_bytes,
            bytes: u64::from(place.slabs) * array.spec.slab_bytes,
        })
    };
    places.iter().filter_map(area).collect()
}

/// The journal of an array that is opened, or gets one.
struct JournalOpening<'a> {
    array: &'a Inner,
    areas: Vec<Area>,
}

impl<'a> JournalOpening<'a> {
    fn at(array: &'a Inner, places: &[AreaPlace]) -> Self {
        Self { array, areas: areas_at(array, places) }
    }

    /// One more than the drives that may be lost. Also of a layout that can spare none: the volume
    /// does not depend on drives that have nothing of it but an area. One copy is enough where all
    /// areas are on drives with rows of it, for without one of those it has failed anyway.
    fn copies(&self) -> usize {
        if mutation::is_chosen(Mutation::JournalOnOneDrive) {
            return 1;
        }
        let least =
            if self.areas.iter().all(|area| self.array.columns.has_rows_on(area.drive)) { 1 } else { 2 };
        least.max(self.array.geometry.fault_tolerance() + 1)
    }

    /// Begins a journal.
    async fn create(self, epoch: u64) -> Result<(), ArrayError> {
        let copies = self.copies();
        let Self { array, areas } = self;
        let (id, host) = (array.spec.id, Rc::new(AreaHost(array.me.clone())));
        let journal = Journal::create(&array.context, &array.buffers, id, epoch, areas, copies, host).await?;
        set_limits(array, &journal);
        array.log.set(Rc::new(WriteLog::new(journal, array.sums.get().is_some())));
        Ok(())
    }

    /// Reads the journal and replays it. True if it held anything.
    async fn open(self, fresh_epoch: u64) -> Result<bool, ArrayError> {
        let copies = self.copies();
        let Self { array, areas } = self;
        let (id, host) = (array.spec.id, Rc::new(AreaHost(array.me.clone())));
        let epoch = Some(fresh_epoch);
        let (journal, mut replay) =
            Journal::open(&array.context, &array.buffers, id, epoch, areas, copies, host).await?;
        if mutation::is_chosen(Mutation::ReplayWithoutRedo) {
            replay.records.retain(|found| !matches!(found.record.kind, Kind::Redo | Kind::Parity));
        }
        if !(replay.records.is_empty() && array.regions.intents.unsynced_chunks().is_empty()) {
            array.sums.forgive_pages();
        }
        let replaying = Replay { array, journal: &journal };
        let records = lost::left_of(&replay.records);
        match array.sums.get() {
            Some(_) => replaying.replay_with_sums(&records).await?,
            None => replaying.replay(&records).await?,
        }
        lost::note_lost(array, &replay.records);
        let is_logged = array.geometry.parity_units() > 0 || array.sums.get().is_some();
        if replay.missing_batches == 0 && replay.hiding_areas == 0 && !replay.was_empty && is_logged {
            // Nothing was in flight that the journal does not know.
            for chunk in array.regions.intents.unsynced_chunks() {
                array.regions.intents.mark_synced(chunk);
            }
        }
        let log = Rc::new(WriteLog::new(journal.clone(), array.sums.get().is_some()));
        log.was_empty.set(replay.was_empty);
        log.missing_batches.set(replay.missing_batches);
        log.hiding_areas.set(replay.hiding_areas);
        let mut is_any_over = false;
        for found in &replay.records {
            let record = &found.record;
            let region = array.regions.region_of(record.stripe);
            let is_orphaned =
                region >= array.regions.count() || array.regions.state(region) == RegionState::Unwritten;
            if record.kind == Kind::Data && array.deferred.pending.holds(record.stripe, record.sequence) {
                log.note_data(record.stripe);
            } else if (is_orphaned && !found.is_lost) || array.bad.has_no_dead() {
                journal.release(record.sequence);
                is_any_over = true;
            } else {
                log.note_replayed(record.sequence);
            }
        }
        set_limits(array, &journal);
        if is_any_over {
            // Durably, before anything is written: the first write of a region is not in the
            // journal, and what is found there after the next crash must not be older than that.
            journal.mark().await?;
        }
        array.log.set(log);
        array.start_destaging();
        Ok(!replay.records.is_empty())
    }
}

/// Destaging logs the parity of what it puts in place, each stripe by itself: room for that is kept
/// free. Of a block that lies alone in its strip that is a block of each parity, and at worst the
/// sums of the whole strip, where others of the stripe lie at its ends.
fn set_limits(array: &Inner, journal: &Journal) {
    if array.deferred.is_on {
        let parity = array.geometry.parity_units() as u64;
        let sums_bytes = array.geometry.interleave_bytes() / BLOCK_BYTES * size_of::<u32>() as u64;
        let of_sums = if array.sums.get().is_some() { 100 * sums_bytes / BLOCK_BYTES } else { 0 };
        journal.set_destage_percent(120 + 100 * parity + of_sums * (1 + parity));
    }
    let tuning = &array.options.tuning;
    journal.set_batch_limits(tuning.journal_batch_bytes, tuning.journal_batch_notes);
    journal.begin_sequences_after(tuning.first_number);
}

impl Inner {
    /// Begins a journal where places of one are there.
    pub(crate) async fn create_journal(&self, places: &[AreaPlace], epoch: u64) -> Result<(), ArrayError> {
        let opening = JournalOpening::at(self, places);
        if opening.areas.is_empty() {
            return Ok(());
        }
        opening.create(epoch).await
    }

    /// Reads the journal and replays it.
    pub(crate) async fn open_journal(
        &self,
        places: &[AreaPlace],
        fresh_epoch: u64,
    ) -> Result<(), ArrayError> {
        let opening = JournalOpening::at(self, places);
        if opening.areas.is_empty() {
            return Ok(());
        }
        if self.lifecycle.is_protected() {
            // Also where no chunk is marked as dirty: what is pending in new regions marks none.
            self.log.leave_unread(places.to_vec(), fresh_epoch);
            return Ok(());
        }
        opening.open(fresh_epoch).await.map(drop)
    }

    /// Replays the journal that [`Self::open_journal`] left unread, on members that keep writes in
    /// memory. True if it held anything; `false` also if it was replayed before.
    pub(crate) async fn recover_in_memory(&self) -> Result<bool, ArrayError> {
        let _alone = self.log.read_alone().await;
        let Some((places, fresh_epoch)) = self.log.unread() else { return Ok(false) };
        let full = self.lifecycle.begin_recovery_in_memory();
        let replayed = JournalOpening::at(self, &places).open(fresh_epoch).await;
        self.lifecycle.end_recovery_in_memory(full);
        let held_something = replayed?;
        self.log.note_read();
        Ok(held_something)
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

    /// The same where no pool has recorded them yet; an error where it has no room for them.
    pub(crate) async fn record_and_forget_replayed(&self) -> Result<(), ArrayError> {
        let recorded = self.host.ask(self.spec.id, HostRequest::RecordLosses).await;
        recorded.map_err(ArrayError::CannotRecord)?;
        self.forget_replayed().await
    }
}
