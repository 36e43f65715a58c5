//! Opening volumes: arrays are made from their records, those whose drives are there; the others
//! are remembered with the reason.
//!
//! Faults expected: missing drives, journals that were lost with theirs, blocks that replay finds
//! lost.

use stripewise_layout::Level;

use crate::manifest::events::EventKind;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{JournalPlaceRecord, PartRecord, PlaceState, VolumeRecord};
use crate::superblock::commit::{leave_out_excluded, map_place};
use crate::volume::site::NamedInit;
use crate::{Inner, PoolError};
use stripewise_array::ArrayError;
use stripewise_array::BlockSet;
use stripewise_array::SumsInit;
use stripewise_array::{AreaPlace, Array, ArrayHandle, ArrayInit, ArraySpec};

/// Least memory for the checksums of a slice.
const LEAST_CACHE_BYTES: usize = 32 << 10;

impl PartRecord {
    /// Specification of the part's array.
    pub(crate) fn spec(&self, slab_bytes: u64) -> ArraySpec {
        ArraySpec { id: self.id.0, shape: self.shape, slab_bytes }
    }
}

/// An area of a journal, as arrays know it.
pub(crate) fn journal_place(place: &JournalPlaceRecord) -> AreaPlace {
    AreaPlace { drive: place.drive, slab: place.slab, slabs: place.slabs }
}

impl Inner {
    /// State from which the array of a part is opened.
    pub(crate) fn array_init(&self, record: &VolumeRecord, part: &PartRecord) -> NamedInit {
        let slab_bytes = self.manifest.borrow().slab_bytes;
        let map = part.meta.places.iter().filter(|place| place.state == PlaceState::Active);
        let journal = part.journal.iter().filter(|place| place.state == PlaceState::Active);
        ArrayInit {
            spec: part.spec(slab_bytes),
            size_bytes: part.bytes_of(record.size_bytes),
            rows: part.rows.clone(),
            map: map.map(|place| map_place(part, place)).collect(),
            journal: journal.map(journal_place).collect(),
            journal_epoch: self.manifest.borrow().generation + 1,
            write_back: record.write_back && part.shape.parity_units() > 0,
            checksums: record.checksums.then(|| self.sums_init(part)),
            // Those of columns that hold nothing current are found lost again, or not, when they
            // are filled.
            lost_blocks: part.lost.filtered(|block| part.is_current_at(block, slab_bytes)),
            dead_blocks: BlockSet::clone(&part.dead),
            members: self.drives.named_members(&self.manifest.borrow()),
            read_only: self.lifecycle.is_read_only(),
        }
    }

    /// Slices share the memory that one array has.
    fn sums_init(&self, part: &PartRecord) -> SumsInit {
        let slices = part.slice.map_or(1, |slice| slice.of as usize);
        let most_bytes = self.tuning().checksum_cache_bytes;
        SumsInit {
            first_stamp: self.manifest.borrow().generation << 32,
            cache_bytes: (most_bytes / slices).max(LEAST_CACHE_BYTES).min(most_bytes),
        }
    }

    /// Sees to it that arrays that are opened now have a generation of their own.
    async fn begin_stamps(&self) -> Result<(), PoolError> {
        if !self.lifecycle.is_read_only() && self.commits.is_stamped(self.manifest.borrow().generation) {
            self.commit(None, |_| ()).await?;
        }
        self.commits.stamp(self.manifest.borrow().generation);
        Ok(())
    }

    /// Opens the volumes that can be read and are not open; the others are remembered with the
    /// reason.
    pub(crate) async fn open_volumes(&self) {
        let records = self.manifest.borrow().volumes.clone();
        let to_open: Vec<VolumeRecord> =
            records.into_iter().filter(|record| !self.volumes.is_open(record)).collect();
        let stamped = match to_open
            .iter()
            .any(|record| record.checksums && self.drives.suffice_for(&self.manifest.borrow(), record))
        {
            true => self.begin_stamps().await,
            false => Ok(()),
        };
        for record in to_open {
            let record = self.with_journal(record).await;
            let opened = match &stamped {
                Err(error) if record.checksums => Err(error.to_string()),
                _ => self.open_volume(&record).await,
            };
            self.volumes.note_opened(record.id, opened);
        }
    }

    /// A volume that is about to be opened, with new areas for its journal where none is left.
    async fn with_journal(&self, record: VolumeRecord) -> VolumeRecord {
        if self.lifecycle.is_read_only() || !self.drives.suffice_for(&self.manifest.borrow(), &record) {
            return record;
        }
        let parts: Vec<Id> = record.parts.iter().map(|part| part.id).collect();
        self.renew_lost_journals(&parts).await;
        self.manifest.borrow().volume_by_id(record.id).cloned().unwrap_or(record)
    }

    async fn open_volume(&self, record: &VolumeRecord) -> Result<(), String> {
        if !self.drives.suffice_for(&self.manifest.borrow(), record) {
            let level = record.parts.last().map_or(Level::Single, |part| part.shape.level);
            return Err(format!(
                "more of its drives are missing or not rebuilt than {level} can do without: {}",
                self.drives.needed_for(&self.manifest.borrow(), record).join(", ")
            ));
        }
        let mut arrays = Vec::new();
        for part in &record.parts {
            if let Some(log) = &part.log {
                let log = self.open_log(record, part, log).await?;
                self.volumes.insert_log(log.clone());
                self.end_unknown_clones(record, &log).await;
                // A drive may have been excluded since.
                self.follow_record(&log);
                continue;
            }
            let array = match self.open_array(self.array_init(record, part)).await {
                Err(ArrayError::FileSystemFull { drive }) => {
                    self.open_array_in_memory(self.array_init(record, part), drive).await
                }
                opened => opened,
            };
            let array = array.map_err(|error| error.to_string())?;
            arrays.push((part.id, array));
        }
        let opened: Vec<ArrayHandle> = arrays.iter().map(|(_, array)| array.clone()).collect();
        self.volumes.reopen(record.id, arrays);
        if opened.iter().any(|array| array.visit(Array::was_journal_empty)) {
            self.news.event(
                EventKind::Journal,
                &format!("the journal of volume {} was lost with its drives and starts empty", record.name),
            );
        }
        let is_area_away =
            |part: &PartRecord| part.journal.iter().any(|area| area.state != PlaceState::Active);
        let parts = record.parts.iter().zip(&opened);
        let missing_in = |(part, array): (&PartRecord, &ArrayHandle)| {
            let is_away = is_area_away(part);
            array.visit(|array| array.missing_batches(is_away))
        };
        let missing: u64 = parts.map(missing_in).sum();
        if missing > 0 {
            let text = format!(
                "the journal of volume {} lacks {missing} or more writes that were acknowledged: the drives \
                 that have them are missing or cannot be read, and blocks may hold their former contents",
                record.name
            );
            self.news.event(EventKind::Loss, &text);
        }
        // A drive may have been excluded since.
        opened.iter().for_each(|array| leave_out_excluded(&self.manifest.borrow(), array));
        // Losses found by the replay are recorded before the journal may forget their cause.
        if !self.lifecycle.is_read_only() && opened.iter().any(|array| !array.visit(Array::has_no_dead)) {
            self.commit(None, |_| ()).await.map_err(|error| error.to_string())?;
            for (part, array) in record.parts.iter().zip(&opened) {
                if self.are_losses_recorded(part.id) {
                    let forgotten = array.call(async |array| array.forget_replayed().await).await;
                    forgotten.map_err(|error| error.to_string())?;
                    continue;
                }
                // The journal alone knows them, and keeps them; so nothing may be written.
                array.visit(Array::protect);
                let full = PoolError::LossesFull { pool: self.name() };
                let text = format!("volume {} can only be read: {full}", record.name);
                self.news.event(EventKind::Loss, &text);
            }
        }
        Ok(())
    }
}
