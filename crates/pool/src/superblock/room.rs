//! Room of the record: what a slot of the smallest drive holds, and what of that is kept free.
//!
//! A commit that a failing drive makes necessary must never find the record full: without it
//! nothing is written any more. So whatever adds to the record leaves room for what excluding
//! drives adds to the runs that there are then, and a fixed reserve for the rest: events, reasons,
//! rows of a rebuild that are recorded one by one, lost blocks. Fault expected: a drive that joins
//! and has smaller slots than the others.

use std::cell::Cell;

use crate::error::PoolError;
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::PartRecord;
use crate::superblock::block_bytes::{BITMAP_BYTES, MAX_LOST_BYTES};
use crate::superblock::changes::changes;
use crate::superblock::entries::{entry_bytes, entry_room_bytes};
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::{Run, SlotState};
use stripewise_array::tuning::Tuning;
use stripewise_array::{BlockSet, SPAN_BLOCKS};

/// Bytes that a checkpoint of this manifest takes in a slot. Takes time in proportion to the whole.
pub(crate) fn checkpoint_bytes(manifest: &Manifest) -> u64 {
    entry_bytes(changes(None, manifest).len() as u64)
}

/// Room for a checkpoint on the smallest participating drive, bytes.
pub(crate) fn slot_room_bytes(manifest: &Manifest) -> u64 {
    let online = manifest.drives.iter().filter(|drive| drive.is_online());
    online.map(|drive| entry_room_bytes(drive.capacity_bytes)).min().unwrap_or(0)
}

/// Part of the fixed reserve that lost blocks may always use, bytes.
const LOST_RESERVE_BYTES: u64 = 32 << 10;
/// Besides the states of its columns, what a run may need more when it lacks one and that is
/// allocated on another drive: the drive's number, and a slab's.
const SPARED_COLUMN_BYTES: u64 = 8;

/// The bounds of a pool's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBounds {
    /// A slot is not filled further than this, however large it is.
    most_bytes: u64,
    reserve_bytes: u64,
    /// Upper bound for lost blocks, bytes.
    lost_bytes: u64,
}

impl RecordBounds {
    pub(crate) fn of(tuning: &Tuning) -> Self {
        Self {
            most_bytes: tuning.record_room_bytes,
            reserve_bytes: tuning.record_reserve_bytes,
            lost_bytes: tuning.lost_record_bytes.min(MAX_LOST_BYTES),
        }
    }

    /// Room for a checkpoint on the smallest of the drives that take part.
    pub(crate) fn room_bytes(&self, manifest: &Manifest) -> u64 {
        slot_room_bytes(manifest).min(self.most_bytes)
    }

    /// Bytes that the record takes, and those that are kept free for emergencies.
    fn needed_bytes(&self, manifest: &Manifest) -> u64 {
        let exclusions: u64 = manifest.parts().map(exclusion_bytes).sum();
        checkpoint_bytes(manifest) + lost_growth_bytes(manifest) + exclusions + self.reserve_bytes
    }

    /// For changes that add to the manifest: refuses them before there is no room left for
    /// emergencies.
    pub(crate) fn check_growth(&self, next: &Manifest) -> Result<(), PoolError> {
        let (needed_bytes, room_bytes) = (self.needed_bytes(next), self.room_bytes(next));
        if needed_bytes <= room_bytes || mutation::is_chosen(Mutation::RecordWithoutReserve) {
            Ok(())
        } else {
            Err(PoolError::MetadataFull { needed_bytes, room_bytes })
        }
    }

    /// Total space for lost blocks, bytes: the room that nothing else needs.
    pub(crate) fn lost_bytes(&self, manifest: &Manifest, wanted_bytes: u64) -> u64 {
        let reserved = LOST_RESERVE_BYTES.min(self.reserve_bytes / 4).min(self.lost_bytes);
        if wanted_bytes <= reserved {
            return reserved;
        }
        let free = self.room_bytes(manifest).saturating_sub(self.needed_bytes(manifest));
        (free + manifest.lost_bytes()).clamp(reserved, self.lost_bytes)
    }
}

/// Growth of the sets of lost blocks when blocks are removed from wholly lost spans, bytes.
fn lost_growth_bytes(manifest: &Manifest) -> u64 {
    let whole = |set: &BlockSet| set.spans().filter(|(_, bits)| bits.count() == SPAN_BLOCKS).count() as u64;
    manifest.parts().map(|part| whole(&part.lost) + whole(&part.dead)).sum::<u64>() * BITMAP_BYTES as u64
}

/// Bytes that a part's rows take more when drives are excluded: then the states of a run's columns
/// are said one by one.
fn exclusion_bytes(part: &PartRecord) -> u64 {
    if part.shape.fault_tolerance() == 0 {
        return 0;
    }
    let is_whole = |run: &&Run| run.places.iter().all(|place| place.state == SlotState::Active);
    let whole = part.rows.runs().filter(is_whole).count() as u64;
    whole * (part.rows.width() as u64 + SPARED_COLUMN_BYTES)
}

/// Upper bound for the record's size, kept without recomputing it for each new row.
#[derive(Default)]
pub(crate) struct RoomLedger {
    /// Needed bytes when they were reckoned last, emergencies included.
    needed_bytes: Cell<Option<u64>>,
    /// Maximum growth by commits since.
    grown_bytes: Cell<u64>,
}

impl RoomLedger {
    /// A checkpoint was written, perhaps of something else than was reckoned.
    pub(crate) fn forget(&self) {
        self.needed_bytes.set(None);
    }

    /// A commit of these bytes of changes counts. `width`: the most columns of a part.
    pub(crate) fn note_change(&self, change_bytes: u64, width: u64) {
        // Each run in it takes four bytes at least; the one behind them may be coded otherwise.
        let runs = change_bytes / 4 + 1;
        self.grown_bytes.set(self.grown_bytes.get() + change_bytes + runs * run_growth_bytes(width));
    }

    /// As [`RecordBounds::check_growth`], for a change of `now` to `next` by `runs` runs of `width`
    /// columns.
    pub(crate) fn check_runs(
        &self,
        bounds: &RecordBounds,
        (now, next): (&Manifest, &Manifest),
        runs: u64,
        width: u64,
    ) -> Result<(), PoolError> {
        // Those before and behind may be cut.
        let growth = (runs + 2) * (run_growth_bytes(width) + width * 5 + 16);
        let fits = || {
            let needed = self.needed_bytes.get()?;
            Some(needed + self.grown_bytes.get() + growth <= bounds.room_bytes(next))
        };
        if fits() == Some(true) {
            return Ok(());
        }
        let before_bytes = bounds.needed_bytes(now);
        self.needed_bytes.set(Some(before_bytes));
        self.grown_bytes.set(0);
        // A change that does not enlarge the record is accepted, even if the record is too large.
        if fits() == Some(true) || bounds.needed_bytes(next) <= before_bytes {
            Ok(())
        } else {
            bounds.check_growth(next)
        }
    }
}

/// Maximum growth by a run of `width` columns beyond its slabs, bytes: drives, states, and the
/// reserve for it.
fn run_growth_bytes(width: u64) -> u64 {
    width * 4 + SPARED_COLUMN_BYTES
}

#[cfg(test)]
mod tests {
    use stripewise_drive::SplitMix64;
    use stripewise_layout::Level;

    use super::*;
    use crate::MIB;
    use crate::manifest::drive_record::{Exclusion, ExclusionKind};
    use crate::superblock::changes::changes;
    use crate::superblock::entries::entry_bytes;
    use crate::testing::{add_volume, pool};
    use stripewise_array::rows::SlotPlace;

    /// A thin RAID 6 of many rows, all holes.
    fn thin_pool(rows: u64) -> Manifest {
        let mut manifest = pool(&[4096; 9], MIB);
        add_volume(&mut manifest, 1, Level::Raid6, 7, rows);
        manifest.volumes[0].parts[0].rows.clear(0, rows);
        manifest
    }

    /// Gives a row slabs somewhere.
    fn add_row(manifest: &mut Manifest, row: u64, random: &mut SplitMix64) {
        let first = random.below(9) as u32;
        let slab = 20 + random.below(3000) as u32;
        let place = |column| SlotPlace { drive: (first + column) % 9, slab, state: SlotState::Active };
        let places: Vec<SlotPlace> = (0..7).map(place).collect();
        manifest.volumes[0].parts[0].rows.set(row, 1, &places);
    }

    #[test]
    fn the_ledger_never_grants_more_than_there_is() {
        for seed in 0..5 {
            let mut random = SplitMix64::new(seed);
            let tuning =
                Tuning { record_room_bytes: 24 << 10, record_reserve_bytes: 2048, ..Tuning::default() };
            let (bounds, ledger) = (RecordBounds::of(&tuning), RoomLedger::default());
            let mut now = thin_pool(3000);
            let mut added = 0;
            loop {
                let mut next = now.clone();
                add_row(&mut next, random.below(3000), &mut random);
                if ledger.check_runs(&bounds, (&now, &next), 1, 7).is_err() {
                    assert!(bounds.check_growth(&next).is_err(), "refused only where there is no room");
                    break;
                }
                assert!(bounds.check_growth(&next).is_ok(), "granted only where there is room");
                ledger.note_change(entry_bytes(changes(Some(&now), &next).len() as u64), 7);
                now = next;
                added += 1;
            }
            assert!(added > 300, "{added}");
            // Whatever drives the layout can do without.
            let exclusion =
                |drive| Exclusion { drive, reason: "a test".to_owned(), kind: ExclusionKind::Failed };
            now.exclude(&[exclusion(2), exclusion(5)]);
            assert!(checkpoint_bytes(&now) <= bounds.room_bytes(&now));
        }
    }

    #[test]
    fn lost_blocks_get_what_nothing_else_needs() {
        let bounds = RecordBounds::of(&Tuning::default());
        let mut manifest = thin_pool(30);
        let most = bounds.lost_bytes(&manifest, 1 << 30);
        assert!((200 << 10..512 << 10).contains(&most), "{most}");
        let lost = (0..30).flat_map(|span| (0..256).map(move |block| (1, span * 256 + block)));
        manifest.volumes[0].parts[0].lost = std::sync::Arc::new(lost.collect());
        assert!(bounds.lost_bytes(&manifest, 1 << 30).abs_diff(most) < 2 * 4096, "what they have counts");
        let small = RecordBounds::of(&Tuning { lost_record_bytes: 100, ..Tuning::default() });
        assert_eq!(small.lost_bytes(&manifest, 50), 100);
    }
}
