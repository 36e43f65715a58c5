//! Replacement of journal areas: a new area when the drive with an area is lost, and a move of the
//! area before its drive leaves the pool.
//!
//! A new area is recorded before the journal writes to it, so that its batches are found after a
//! power cut; its old content is cleared first. An area is given up only after every batch has its
//! copies elsewhere. Faults expected: the drive with the new area fails (it is then excluded like
//! any other), there is no room (the journal then continues with fewer areas).

use stripewise_drive::{Cause, DriveError, IoRequest, Operation};

use crate::Inner;
use crate::error::PoolError;
use crate::manifest::drive_record::DriveRecord;
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{JournalPlaceRecord, PartRecord, PlaceState};
use crate::sparing::enough_copies::{is_at_successor, is_enough_without};
use crate::superblock::commit::Change;
use crate::volume::open::journal_place;
use stripewise_array::Area;
use stripewise_array::Class;
use stripewise_array::{Array, ArrayError, ArrayHandle, ArrayMember, MemberLabel};

/// Bytes cleared in a new area: its header, both slots.
const HEADER_BYTES: u64 = 2 * 4096;
/// Number of attempts to leave an area before giving up.
const LEAVING_ATTEMPTS: usize = 16;

/// Place chosen for a new area.
#[derive(Clone, Copy)]
struct Chosen {
    place: JournalPlaceRecord,
    /// True for the place of the old area; otherwise its slabs were taken from the free space.
    in_place: bool,
}

impl Inner {
    /// Replaces journal areas on drives that are given up or have come back empty.
    pub(crate) async fn reallocate_journals(&self) -> Result<(), PoolError> {
        let is_lost = |manifest: &Manifest, place: &JournalPlaceRecord| {
            let is_here = self.working_member(place.drive).is_some();
            let given_up = manifest.drive(place.drive).is_none_or(DriveRecord::is_given_up);
            place.state == PlaceState::Missing && (is_here || given_up)
        };
        self.renew_journals(is_lost).await?;
        self.begin_journals().await?;
        // Restores the second copies of batches that were on a lost area.
        let rebuildable = self.rebuildable();
        let arrays = self.volumes.arrays();
        for array in arrays.iter().filter(|array| rebuildable.contains(&Id(array.spec().id))) {
            array.call(async |array| array.restore_journal_copies().await).await?;
        }
        Ok(())
    }

    /// True if a volume runs without its journal, because there was no room for any of its areas
    /// when it was opened.
    pub(crate) fn is_journal_wanted(&self) -> bool {
        !self.parts_without_journal().is_empty()
    }

    fn parts_without_journal(&self) -> Vec<(Id, ArrayHandle)> {
        let (manifest, rebuildable) = (self.manifest.borrow(), self.rebuildable());
        let is_without = |part: &&PartRecord| !part.journal.is_empty() && rebuildable.contains(&part.id);
        let arrays = manifest
            .parts()
            .filter(is_without)
            .filter_map(|part| Some((part.id, self.volumes.array(part.id)?)));
        arrays.filter(|(_, array)| !array.visit(Array::has_journal)).collect()
    }

    /// Begins the journals of volumes that run without, as soon as they have an area.
    async fn begin_journals(&self) -> Result<(), PoolError> {
        for (part, array) in self.parts_without_journal() {
            let (places, epoch) = {
                let manifest = self.manifest.borrow();
                let Some(part) = manifest.parts().find(|other| other.id == part) else { continue };
                let is_there = |place: &&JournalPlaceRecord| {
                    place.state == PlaceState::Active && self.working_member(place.drive).is_some()
                };
                let places: Vec<_> = part.journal.iter().filter(is_there).map(journal_place).collect();
                (places, manifest.generation + 1)
            };
            if places.is_empty() {
                continue;
            }
            if array.call(async move |array| array.begin_journal(&places, epoch).await).await? {
                self.news.event(
                    EventKind::Journal,
                    &format!("volume {} has a journal again", self.manifest.borrow().volume_of(part).1),
                );
                // Prevents another journal from using this epoch.
                self.commit(None, |_| ()).await?;
            }
        }
        Ok(())
    }

    /// Replaces the areas of journals that have lost all of them by new, empty ones, as far as
    /// there is room. The volumes are about to be opened.
    pub(crate) async fn renew_lost_journals(&self, parts: &[Id]) {
        for part in parts {
            let lost: Vec<JournalPlaceRecord> = {
                let manifest = self.manifest.borrow();
                let Some(part) = manifest.parts().find(|other| other.id == *part) else { continue };
                let is_away = |number: u32| self.working_member(number).is_none();
                if part.has_journal_without(is_away) { Vec::new() } else { part.journal.clone() }
            };
            for old in lost {
                if let Err(error) = self.renew_lost_area(*part, old).await {
                    self.news.notice(format!("a lost journal could not be recreated: {error}"));
                    break;
                }
            }
        }
    }

    async fn renew_lost_area(&self, part: Id, old: JournalPlaceRecord) -> Result<(), PoolError> {
        let in_place = self.working_member(old.drive).is_some();
        let Some(chosen) = self.choose_place(part, &old, in_place) else { return Ok(()) };
        if self.clear_area(chosen).await?.is_none() {
            return Ok(());
        }
        let new = chosen.place;
        let recorded = self
            .try_commit(None, move |manifest| {
                let is_online = manifest.is_online(new.drive);
                let part = manifest.part_mut(part).filter(|_| is_online);
                let Some(place) = part.and_then(|part| part.journal.iter_mut().find(|place| **place == old))
                else {
                    return Ok(Change::Nothing(false));
                };
                *place = new;
                manifest.forget_replaced();
                Ok(Change::Commit(true))
            })
            .await;
        if !matches!(recorded, Ok(true)) {
            self.give_back_area(chosen);
        }
        recorded.map(drop)
    }

    /// Moves the areas that `is_stale` selects, as far as there is room.
    pub(crate) async fn renew_journals(
        &self,
        is_stale: impl Fn(&Manifest, &JournalPlaceRecord) -> bool,
    ) -> Result<(), PoolError> {
        let stale: Vec<(Id, JournalPlaceRecord)> = {
            let manifest = self.manifest.borrow();
            let rebuildable = self.rebuildable();
            let of_part = |part: &PartRecord| -> Vec<(Id, JournalPlaceRecord)> {
                let stale = part.journal.iter().filter(|place| is_stale(&manifest, place));
                stale.map(|place| (part.id, *place)).collect()
            };
            manifest.parts().filter(|part| rebuildable.contains(&part.id)).flat_map(of_part).collect()
        };
        for (part, old) in stale {
            self.renew_journal(part, old).await?;
        }
        Ok(())
    }

    async fn renew_journal(&self, part: Id, old: JournalPlaceRecord) -> Result<(), PoolError> {
        let Some(array) = self.volumes.array(part) else { return Ok(()) };
        // A broken journal may have lost records; the next opening handles that.
        if array.visit(Array::is_journal_broken) {
            return Ok(());
        }
        // A drive that came back still has its slabs; any other may already have an area.
        let in_place = old.state == PlaceState::Missing && self.working_member(old.drive).is_some();
        let Some(chosen) = self.choose_place(part, &old, in_place) else {
            return self.leave_journal(&array, part, old).await;
        };
        let drive = match self.clear_area(chosen).await {
            Ok(Some(drive)) => drive,
            Ok(None) => return Ok(()),
            Err(error) => {
                let _ = array.call(async move |array| array.note_write_error(&error).await).await;
                return Ok(());
            }
        };
        let new = chosen.place;
        // Both areas stay in the record until the old one is no longer needed.
        let added = self
            .try_commit(None, move |manifest| {
                let is_online = manifest.is_online(new.drive);
                let Some(part) = manifest.part_mut(part).filter(|_| is_online) else {
                    return Ok(Change::Nothing(false));
                };
                if in_place {
                    part.journal.retain(|place| *place != old);
                }
                part.journal.push(new);
                Ok(Change::Commit(true))
            })
            .await;
        match added {
            Ok(true) => {}
            Ok(false) => {
                self.give_back_area(chosen);
                return Ok(());
            }
            Err(error) => {
                self.give_back_area(chosen);
                return Err(error);
            }
        }
        if self.working_member(new.drive).is_some()
            && let Err(error) = add_area(&array, &new, drive).await
        {
            // The commit stands; the area is empty, and the next opening of the array tries again
            // to use it.
            self.news.notice(format!("a new journal area could not be used: {error}"));
        }
        if in_place { Ok(()) } else { self.leave_journal(&array, part, old).await }
    }

    /// Gives up an area if the others are enough, after its batches have copies there.
    async fn leave_journal(
        &self,
        array: &ArrayHandle,
        part: Id,
        old: JournalPlaceRecord,
    ) -> Result<(), PoolError> {
        let others = move |part: &PartRecord| -> Vec<u32> {
            let is_other = |place: &&JournalPlaceRecord| {
                (place.drive, place.slab) != (old.drive, old.slab) && place.state == PlaceState::Active
            };
            part.journal.iter().filter(is_other).map(|place| place.drive).collect()
        };
        let is_enough = move |manifest: &Manifest| {
            let part = manifest.parts().find(|other| other.id == part);
            part.is_some_and(|part| {
                is_enough_without(manifest, old.drive, &others(part), part.shape.fault_tolerance())
            })
        };
        if !is_enough(&self.manifest.borrow()) {
            return Ok(());
        }
        let goes_to_successor = {
            let manifest = self.manifest.borrow();
            let part = manifest.parts().find(|other| other.id == part);
            part.is_some_and(|part| is_at_successor(&manifest, old.drive, &others(part)))
        };
        // If the drive's successor has an area, areas on other drives may be lost; otherwise the
        // journal keeps as many as the layout requires.
        let least = if goes_to_successor { 1 } else { array.geometry().fault_tolerance() + 1 };
        let leave =
            async move |array: Array| array.leave_journal_area(old.drive, least, LEAVING_ATTEMPTS).await;
        if !array.call(leave).await? {
            return Ok(());
        }
        self.try_commit(None, move |manifest| {
            let is_enough = is_enough(manifest);
            let Some(part) = manifest.part_mut(part).filter(|_| is_enough) else {
                return Ok(Change::Nothing(()));
            };
            let before = part.journal.len();
            part.journal.retain(|place| (place.drive, place.slab) != (old.drive, old.slab));
            if part.journal.len() == before {
                return Ok(Change::Nothing(()));
            }
            manifest.forget_replaced();
            Ok(Change::Commit(()))
        })
        .await
    }

    /// Chooses a place for the area that replaces `old`; `in_place`: the place of `old`.
    fn choose_place(&self, part: Id, old: &JournalPlaceRecord, in_place: bool) -> Option<Chosen> {
        let place = match in_place {
            true => JournalPlaceRecord { state: PlaceState::Active, ..*old },
            false => self.place_for_journal(part, old)?,
        };
        Some(Chosen { place, in_place })
    }

    fn give_back_area(&self, Chosen { place, in_place }: Chosen) {
        if !in_place {
            self.space.borrow_mut().give(place.drive, place.slab, place.slabs);
        }
    }

    /// Prepares the area at the chosen place: clears anything that could be mistaken for this
    /// journal's. On failure the slabs become free again. Returns the drive; `None`: it is gone.
    async fn clear_area(&self, chosen: Chosen) -> Result<Option<MemberLabel>, DriveError> {
        let Some(member) = self.drives.array_member(&self.manifest.borrow(), chosen.place.drive) else {
            self.give_back_area(chosen);
            return Ok(None);
        };
        let area = area(self.manifest.borrow().slab_bytes, &member, &chosen.place);
        match clear(&area).await {
            Ok(()) => Ok(Some(area.member.label().clone())),
            Err(error) => {
                self.give_back_area(chosen);
                Err(error)
            }
        }
    }

    /// Takes slabs for an area from the free space.
    fn place_for_journal(&self, part: Id, old: &JournalPlaceRecord) -> Option<JournalPlaceRecord> {
        let manifest = self.manifest.borrow();
        let part = manifest.parts().find(|other| other.id == part)?;
        let (id, taken): (Id, Vec<u32>) = (part.id, part.journal.iter().map(|place| place.drive).collect());
        let new =
            |(drive, slab)| JournalPlaceRecord { drive, slab, slabs: old.slabs, state: PlaceState::Active };
        let enter = |planned: &mut Manifest, place| {
            let part = planned.part_mut(id).expect("just found");
            part.journal.retain(|place| place != old);
            part.journal.push(new(place));
        };
        let (planner, off) = (self.spare_planner(), (old.drive, &taken[..]));
        planner.place_off(&manifest, &mut self.space.borrow_mut(), off, old.slabs, enter).map(new)
    }
}

/// Has an array use a new area on this drive.
async fn add_area(
    array: &ArrayHandle,
    new: &JournalPlaceRecord,
    drive: MemberLabel,
) -> Result<(), ArrayError> {
    let place = journal_place(new);
    array.call(async move |array| array.add_journal_area_at(place, &drive).await).await
}

/// Clears the headers of a new area, so that older content is not mistaken for this journal's.
/// Durable when it returns, because the record that names the area will be.
async fn clear(area: &Area) -> Result<(), DriveError> {
    let failures = area.member.flush_failures().count();
    let headers = IoRequest::range(Operation::WriteZeroes, area.base_bytes, HEADER_BYTES.min(area.bytes));
    area.member.submit(Class::Foreground, headers.because(Cause::Journal)).await?;
    area.member.flush_since(failures).await
}

fn area(slab_bytes: u64, member: &ArrayMember, place: &JournalPlaceRecord) -> Area {
    Area {
        drive: place.drive,
        member: member.member.clone(),
        base_bytes: member.slabs_base_bytes + u64::from(place.slab) * slab_bytes,
        bytes: u64::from(place.slabs) * slab_bytes,
    }
}
