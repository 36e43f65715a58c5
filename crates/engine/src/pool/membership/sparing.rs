//! Sparing: drives that came back catch up, spares and free slabs stand in for drives
//! that are out.
//!
//! A dedicated spare takes over all that was on a drive that failed or is missing, with the same
//! slab numbers; where there is none, or not all fits, free slabs of all drives that are not in the
//! row do (`membership/spare_allocation.rs`). No drive takes over from one that was taken offline:
//! the administrator who did that means to bring it back. Copies of region maps go with it: one
//! that is lost is written again on another drive before it counts. Where there is no room, what is
//! lacking stays lacking and is said ([`super::Pool::status`]). Faults expected: the drive that
//! takes over fails, too; then the next one does.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::array::AreaPlace;
use crate::mutation::{self, Mutation};
use crate::pool::error::PoolError;
use crate::pool::manifest::care::Takeover;
use crate::pool::manifest::commit::{Change, map_place};
use crate::pool::manifest::drive_record::{DriveRecord, ExclusionKind, Role};
use crate::pool::manifest::events::EventKind;
use crate::pool::manifest::format::Manifest;
use crate::pool::manifest::ids::Id;
use crate::pool::manifest::volume_record::{MetaPlaceRecord, PartRecord, PlaceState};
use crate::pool::membership::enough_copies::is_enough_without;
use crate::pool::membership::spare_allocation::{Onto, Taken, allocate, candidates, stretches};
use crate::pool::space::evacuation;
use crate::pool::space::slabs::FreeSlabs;
use crate::pool::{Inner, Pool};
use crate::rows::{SlotPlace, SlotState};

/// A place of a map that is to be written elsewhere, or where it is.
struct Stale {
    part: Id,
    old: MetaPlaceRecord,
    slabs: u32,
    /// On the drive that it is on already.
    in_place: bool,
}

impl Pool {
    /// Allocates space for what is lacking, as jobs would when they run; the rebuild itself is
    /// done when they do.
    pub async fn allocate_spares(&self) -> Result<(), PoolError> {
        self.0.check_changeable()?;
        self.0.allocate_spares().await
    }
}

impl Inner {
    /// Allocates space on other drives for everything that is lacking, as far as there is a drive
    /// for it. Ends when nothing is left to do.
    pub(in crate::pool) async fn allocate_spares(&self) -> Result<(), PoolError> {
        let _alone = self.lifecycle.turn().await;
        let mut tried: BTreeSet<u32> = BTreeSet::new();
        while !self.lifecycle.is_closed() {
            if let Some(number) = self.next_to_rejoin().filter(|number| tried.insert(*number)) {
                // One that fails at it is out again.
                let _ = self.rejoin(number).await;
                continue;
            }
            if let Some((old, new)) = self.next_for_spare() {
                let takeover = self.notice_of_spare(old, new);
                // It was not asked for, so it is shown until it is acknowledged.
                let outcome = self.allocate_on(old, new, takeover).await;
                // A spare that fails at this gives way to the next.
                if outcome.is_err() && self.working_member(new).is_some() {
                    return outcome;
                }
                continue;
            }
            if !self.distribute().await? && self.next_for_spare().is_none() {
                self.reallocate_maps().await?;
                return self.reallocate_journals().await;
            }
        }
        Ok(())
    }

    /// A drive that is at hand, but out, or in with columns that nobody fills.
    fn next_to_rejoin(&self) -> Option<u32> {
        let manifest = self.manifest.borrow();
        let rebuildable = self.rebuildable();
        let is_due = |drive: &&DriveRecord| match drive.exclusion() {
            None => {
                let wanted =
                    |place: SlotPlace| place.drive == drive.number && place.state == SlotState::Missing;
                self.working_member(drive.number).is_some()
                    && !stretches(&manifest, wanted, |part| rebuildable.contains(&part)).is_empty()
            }
            Some(ExclusionKind::Missing) if !drive.replaced => self.drives.is_back(drive.number),
            Some(_) => false,
        };
        manifest.drives.iter().find(is_due).map(|drive| drive.number)
    }

    /// Whether nobody expects a drive that is out to come back with what it had.
    pub(in crate::pool) fn is_given_up(drive: &DriveRecord) -> bool {
        match drive.exclusion() {
            None => false,
            Some(ExclusionKind::Offline) => drive.replaced,
            Some(ExclusionKind::Missing | ExclusionKind::Failed) => true,
        }
    }

    /// A drive whose place another could take, and which: the one that was to have it in any case,
    /// or a dedicated spare.
    fn next_for_spare(&self) -> Option<(u32, u32)> {
        self.next_for_spare_in(&self.manifest.borrow())
    }

    /// As [`Self::next_for_spare`], by another record.
    pub(in crate::pool) fn next_for_spare_in(&self, manifest: &Manifest) -> Option<(u32, u32)> {
        let is_spare = |drive: &&DriveRecord| {
            drive.role == Role::Spare && drive.takes_new() && self.working_member(drive.number).is_some()
        };
        let spares: Vec<&DriveRecord> = manifest.drives.iter().filter(is_spare).collect();
        let has_successor = |drive: &DriveRecord| drive.successor.is_some();
        if spares.is_empty() && !manifest.drives.iter().any(has_successor) {
            return None;
        }
        let rebuildable = self.rebuildable();
        for drive in manifest.drives.iter().filter(|drive| Self::is_given_up(drive) && !drive.replaced) {
            let wanted = |place: SlotPlace| place.drive == drive.number && place.state == SlotState::Missing;
            let has_rows = !stretches(manifest, wanted, |part| rebuildable.contains(&part)).is_empty();
            let has_copies = manifest
                .parts()
                .any(|part| rebuildable.contains(&part.id) && part.lacks_copy_on(drive.number));
            let successor = drive.successor.filter(|successor| self.working_member(*successor).is_some());
            if let Some(successor) = successor.filter(|_| has_rows || has_copies) {
                return Some((drive.number, successor));
            }
            // What is on a journal drive is not worth a drive for data; others have room for it.
            if spares.is_empty() || !(has_rows || has_copies && drive.role != Role::Journal) {
                continue;
            }
            let slabs = drive.slab_count(manifest.slab_bytes);
            let size = |spare: &&DriveRecord| spare.slab_count(manifest.slab_bytes);
            let enough = spares.iter().copied().filter(|spare| size(spare) >= slabs).min_by_key(size);
            let chosen = enough.or_else(|| spares.iter().copied().max_by_key(size));
            return chosen.map(|spare| (drive.number, spare.number));
        }
        None
    }

    /// Has one drive take the place of another that is out, as far as it is large enough; records
    /// that its rows are to be rebuilt, and what a person is to be told of it.
    pub(in crate::pool) async fn allocate_on(
        &self,
        old: u32,
        new: u32,
        noted: Option<Takeover>,
    ) -> Result<(), PoolError> {
        if self.working_member(new).is_none() {
            return Err(PoolError::Job(format!(
                "{} failed before it could take over",
                self.manifest.borrow().path_of(new)
            )));
        }
        let (from, to) = (self.manifest.borrow().path_of(old), self.manifest.borrow().path_of(new));
        self.commit_allocation(
            Onto::Drive(new),
            move |drive| drive.number == old,
            move |manifest| {
                let role = manifest.drive(old).map_or(Role::Data, |drive| drive.role);
                if let Some(drive) = manifest.drive_mut(new)
                    && drive.role == Role::Spare
                    && role != Role::Spare
                {
                    drive.role = role;
                }
                manifest.set_replaced(old);
                noted.into_iter().for_each(|takeover| manifest.care.note_takeover(takeover));
            },
        )
        .await?;
        self.news.event(EventKind::Drive, &format!("{to} takes the place of {from}"));
        self.set_background_share();
        self.reallocate_maps().await
    }

    /// What spare allocation would do, on a copy of the record and the books: so that no other plan
    /// counts on the room it takes.
    pub(in crate::pool) fn plan_spares(&self, planned: &mut Manifest, books: &mut FreeSlabs) {
        let rebuildable = self.rebuildable();
        let may = |part| rebuildable.contains(&part);
        while let Some((old, new)) = self.next_for_spare_in(planned) {
            allocate(planned, books, |drive| drive == old, may, Onto::Drive(new));
            let role = planned.drive(old).map_or(Role::Data, |drive| drive.role);
            if let Some(drive) = planned.drive_mut(new) {
                drive.role = role;
            }
            planned.set_replaced(old);
            books.refresh(planned);
        }
        let given_up = planned.drives.iter().filter(|drive| Self::is_given_up(drive));
        let given_up: BTreeSet<u32> = given_up.map(|drive| drive.number).collect();
        allocate(planned, books, |drive| given_up.contains(&drive), may, Onto::All);
        let is_lost = |place: PlaceState, drive| place == PlaceState::Missing && given_up.contains(&drive);
        if !mutation::is_chosen(Mutation::PlaceAreasCarelessly) {
            evacuation::place_lost(planned, books, may, is_lost);
        }
    }

    /// Allocates free slabs of all drives for what is on drives that are out for good; whether
    /// anything was done.
    async fn distribute(&self) -> Result<bool, PoolError> {
        let taken = self.commit_allocation(Onto::All, Self::is_given_up, |_| ()).await?;
        self.jobs.without_room.set(taken.without_room);
        let rows: u64 = taken.new.iter().map(|slabs| u64::from(slabs.count)).sum();
        if rows > 0 {
            self.news.event(
                EventKind::Rebuild,
                &format!("{rows} slabs are rebuilt into free space of all drives"),
            );
        }
        Ok(rows > 0)
    }

    /// Gives what is missing on drives that are `out` new places in a commit, together with a
    /// further change.
    async fn commit_allocation(
        &self,
        onto: Onto,
        out: impl Fn(&DriveRecord) -> bool + 'static,
        further: impl FnOnce(&mut Manifest) + 'static,
    ) -> Result<Taken, PoolError> {
        let pool = self.rc();
        let taken = Rc::new(RefCell::new(Taken::default()));
        let result = taken.clone();
        let committed = self
            .try_commit(None, move |manifest| {
                // A drive may have gone while this waited: a spare comes before free slabs.
                if matches!(onto, Onto::All) && pool.next_for_spare().is_some() {
                    return Ok(Change::Nothing(()));
                }
                let numbers: BTreeSet<u32> =
                    manifest.drives.iter().filter(|drive| out(drive)).map(|drive| drive.number).collect();
                let rebuildable = pool.rebuildable();
                let is_out = |drive| numbers.contains(&drive);
                let may = |part| rebuildable.contains(&part);
                let done = allocate(manifest, &mut pool.space.borrow_mut(), is_out, may, onto);
                let is_nothing = done.new.is_empty() && matches!(onto, Onto::All);
                *result.borrow_mut() = done;
                if is_nothing {
                    return Ok(Change::Nothing(()));
                }
                further(manifest);
                manifest.forget_replaced();
                Ok(Change::Commit(()))
            })
            .await;
        let taken = taken.take();
        if committed.is_err() {
            taken.undone(&mut self.space.borrow_mut());
        } else if !taken.new.is_empty() {
            // Only then: what ends in an error would be tried for ever.
            self.jobs.forget_stalls();
        }
        committed.map(|()| taken)
    }

    /// Writes new copies of region maps whose drives are out for good, or have come back.
    pub(in crate::pool) async fn reallocate_maps(&self) -> Result<(), PoolError> {
        let is_stale = |manifest: &Manifest, place: &MetaPlaceRecord| {
            let is_here = self.working_member(place.drive).is_some();
            let given_up = manifest.drive(place.drive).is_none_or(Self::is_given_up);
            (place.state == PlaceState::Missing && (is_here || given_up)).then_some(is_here)
        };
        self.renew_maps(is_stale).await
    }

    /// Writes copies of maps elsewhere, or where they are, for which `is_stale` says so.
    pub(in crate::pool) async fn renew_maps(
        &self,
        is_stale: impl Fn(&Manifest, &MetaPlaceRecord) -> Option<bool>,
    ) -> Result<(), PoolError> {
        let stale: Vec<Stale> = {
            let manifest = self.manifest.borrow();
            let rebuildable = self.rebuildable();
            let of_part = |part: &PartRecord| -> Vec<Stale> {
                let (part_id, slabs) = (part.id, part.meta.slabs);
                let places = part.meta.places.iter();
                let stale = places.filter_map(|place| {
                    let in_place = is_stale(&manifest, place)?;
                    Some(Stale { part: part_id, old: *place, slabs, in_place })
                });
                stale.collect()
            };
            manifest.parts().filter(|part| rebuildable.contains(&part.id)).flat_map(of_part).collect()
        };
        for stale in stale {
            self.renew_map(&stale).await?;
        }
        Ok(())
    }

    async fn renew_map(&self, stale: &Stale) -> Result<(), PoolError> {
        let Some(array) = self.volumes.array(stale.part) else { return Ok(()) };
        let Some(new) = self.place_for_map(stale) else { return self.leave_map_place(stale).await };
        let give_back = |new: &MetaPlaceRecord| {
            if !stale.in_place {
                self.space.borrow_mut().give(new.drive, new.slab, stale.slabs);
            }
        };
        let area = AreaPlace { drive: new.drive, slab: new.slab, slabs: stale.slabs };
        let written = match self.working_member(new.drive) {
            // It is known to the array, but may have gone just now.
            Some(_) if array.member(new.drive).is_some() => array.add_map_places(&[area]).await,
            _ => {
                give_back(&new);
                return Ok(());
            }
        };
        let (part, old) = (stale.part, stale.old);
        let recorded = match written {
            Err(error) => Err(error.into()),
            Ok(()) => {
                let change = move |manifest: &mut Manifest| {
                    let is_online = manifest.is_online(new.drive);
                    let place = manifest.part_mut(part).and_then(|part| {
                        let is_it = |place: &&mut MetaPlaceRecord| **place == old;
                        part.meta.places.iter_mut().find(is_it)
                    });
                    let Some(place) = place.filter(|_| is_online) else { return Ok(Change::Nothing(false)) };
                    *place = new;
                    manifest.forget_replaced();
                    Ok(Change::Commit(true))
                };
                self.try_commit(None, change).await
            }
        };
        let is_named = |pool: &Inner| {
            let manifest = pool.manifest.borrow();
            let part = manifest.parts().find(|other| other.id == part);
            part.is_some_and(|part| {
                part.meta
                    .places
                    .iter()
                    .any(|place| map_place(part, place) == area && place.state == new.state)
            })
        };
        if !is_named(self) {
            array.remove_map_places(&[area]);
            if !matches!(recorded, Ok(true)) {
                // A page that another task writes may be on its way there.
                array.until_map_written().await;
                give_back(&new);
            }
        }
        recorded.map(|_| ())
    }

    /// Does without a copy for which there is no room, where others are enough.
    async fn leave_map_place(&self, stale: &Stale) -> Result<(), PoolError> {
        let (part, old) = (stale.part, stale.old);
        self.try_commit(None, move |manifest| {
            let Some(record) = manifest.parts().find(|other| other.id == part) else {
                return Ok(Change::Nothing(()));
            };
            let is_other = |place: &&MetaPlaceRecord| **place != old && place.state == PlaceState::Active;
            let others: Vec<u32> =
                record.meta.places.iter().filter(is_other).map(|place| place.drive).collect();
            if !is_enough_without(manifest, old.drive, &others, record.shape.fault_tolerance()) {
                return Ok(Change::Nothing(()));
            }
            let Some(part) = manifest.part_mut(part) else { return Ok(Change::Nothing(())) };
            part.meta.places.retain(|place| *place != old);
            manifest.forget_replaced();
            Ok(Change::Commit(()))
        })
        .await
    }

    /// Slabs for a copy of a map, taken from the books unless it stays where it is.
    fn place_for_map(&self, stale: &Stale) -> Option<MetaPlaceRecord> {
        if stale.in_place {
            return Some(MetaPlaceRecord { state: PlaceState::Active, ..stale.old });
        }
        let manifest = self.manifest.borrow();
        let part = manifest.parts().find(|part| part.id == stale.part)?;
        let taken: Vec<u32> = part.meta.places.iter().map(|place| place.drive).collect();
        let new = |(drive, slab)| MetaPlaceRecord { drive, slab, state: PlaceState::Active };
        let enter = |planned: &mut Manifest, place| {
            let part = planned.part_mut(stale.part).expect("just found");
            part.meta.places.retain(|place| *place != stale.old);
            part.meta.places.push(new(place));
        };
        self.place_off(&manifest, stale.old.drive, &taken, stale.slabs, enter).map(new)
    }

    /// Takes consecutive slabs for what was on the drive `old`, on a drive that is none of `taken`:
    /// the emptiest, as long as all that is on drives to be emptied keeps a place. Such areas are
    /// not moved out of the way later, as rows are. `enter` has a record say that they are in use.
    pub(in crate::pool) fn place_off(
        &self,
        manifest: &Manifest,
        old: u32,
        taken: &[u32],
        slabs: u32,
        enter: impl Fn(&mut Manifest, (u32, u32)),
    ) -> Option<(u32, u32)> {
        let mut possible = Vec::new();
        {
            let space = self.space.borrow();
            let mut drives = space.emptiest(&candidates(manifest, &space, old, taken));
            drives.retain(|drive| self.working_member(*drive).is_some());
            for drive in drives {
                let mut books = space.clone();
                if let Ok(places) = books.allocate_places(&[drive], slabs) {
                    possible.push((places[0], books));
                }
            }
        }
        let has_retiring = manifest.drives.iter().any(DriveRecord::is_leaving)
            && !mutation::is_chosen(Mutation::PlaceAreasCarelessly);
        let leaves_room = |(place, books): &((u32, u32), FreeSlabs)| {
            let mut planned = manifest.clone();
            enter(&mut planned, *place);
            self.shortage_with(planned, books.clone()).is_none()
        };
        let kept = possible.iter().position(|possible| !has_retiring || leaves_room(possible));
        // Where there was not enough in any case, redundancy comes first.
        let (place, books) = possible.into_iter().nth(kept.unwrap_or(0))?;
        *self.space.borrow_mut() = books;
        Some(place)
    }
}
