//! Sparing: drives that came back catch up, spares and free slabs stand in for drives that are out.
//!
//! A dedicated spare takes over all that was on a drive that failed or is missing, with the same
//! slab numbers; where there is none, or not all fits, free slabs of all drives that are not in the
//! row do (`sparing/allocation.rs`). No drive takes over from one that was taken offline:
//! the administrator who did that means to bring it back. Copies of region maps go with it: one
//! that is lost is written again on another drive before it counts. Where there is no room, what is
//! lacking stays lacking and is reported ([`super::Pool::status`]), until a drive or a spare with
//! room is added. Faults expected: the drive that
//! takes over fails, too; then the next one does.

pub(crate) mod allocation;
pub(crate) mod enough_copies;
pub(crate) mod journal_areas;
pub(crate) mod planner;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::error::PoolError;
use crate::manifest::care::Takeover;
use crate::manifest::drive_record::{DriveRecord, ExclusionKind, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{MetaPlaceRecord, PartRecord, PlaceState};
use crate::sparing::allocation::{Onto, Taken, allocate};
use crate::sparing::enough_copies::is_enough_without;
use crate::superblock::commit::{Change, map_place};
use crate::{Inner, Pool};
use stripewise_array::AreaPlace;

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
    pub(crate) async fn allocate_spares(&self) -> Result<(), PoolError> {
        let _alone = self.lifecycle.turn().await;
        let mut tried: BTreeSet<u32> = BTreeSet::new();
        while !self.lifecycle.is_closed() {
            if let Some(number) = self.next_to_rejoin().filter(|number| tried.insert(*number)) {
                // One that fails at it is out again.
                let _ = self.rejoin(number).await;
                continue;
            }
            let next = self.spare_planner().next_for_spare(&self.manifest.borrow());
            if let Some((old, new)) = next {
                let now_s = self.news.unix_ms() / 1000;
                let takeover = Takeover::by_spare(&self.manifest.borrow(), old, new, now_s);
                // It was not asked for, so it is shown until it is acknowledged.
                let outcome = self.allocate_on(old, new, takeover).await;
                // A spare that fails at this gives way to the next.
                if outcome.is_err() && self.working_member(new).is_some() {
                    return outcome;
                }
                continue;
            }
            if self.distribute().await? {
                continue;
            }
            let left = self.spare_planner().next_for_leftover(&self.manifest.borrow());
            if let Some((old, new)) = left {
                let outcome = self.allocate_on(old, new, None).await;
                // As above.
                if outcome.is_err() && self.working_member(new).is_some() {
                    return outcome;
                }
            } else if self.spare_planner().next_for_spare(&self.manifest.borrow()).is_none() {
                self.reallocate_maps().await?;
                return self.reallocate_journals().await;
            }
        }
        Ok(())
    }

    /// A drive that is present and either out, or online with columns that no job fills.
    fn next_to_rejoin(&self) -> Option<u32> {
        let manifest = self.manifest.borrow();
        let planner = self.spare_planner();
        let is_due = |drive: &&DriveRecord| match drive.exclusion() {
            None => {
                planner.working.contains(&drive.number) && planner.has_missing_rows(&manifest, drive.number)
            }
            Some(ExclusionKind::Missing) if !drive.replaced => self.drives.is_back(drive.number),
            Some(_) => false,
        };
        manifest.drives.iter().find(is_due).map(|drive| drive.number)
    }

    /// Replaces a drive that is out by another one, as far as it is large enough. Records that its
    /// rows are to be rebuilt, and the event.
    pub(crate) async fn allocate_on(
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

    /// Allocates free slabs of all drives for what is on drives that are out for good; whether
    /// anything was done.
    async fn distribute(&self) -> Result<bool, PoolError> {
        let taken = self.commit_allocation(Onto::All, DriveRecord::is_given_up, |_| ()).await?;
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
                if matches!(onto, Onto::All)
                    && pool.spare_planner().next_for_spare(&pool.manifest.borrow()).is_some()
                {
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
                if matches!(onto, Onto::All) {
                    // Rows are cut into stretches. Onto one drive they go as they are.
                    pool.commits.check_growth(manifest)?;
                }
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
    pub(crate) async fn reallocate_maps(&self) -> Result<(), PoolError> {
        let is_stale = |manifest: &Manifest, place: &MetaPlaceRecord| {
            let is_here = self.working_member(place.drive).is_some();
            let given_up = manifest.drive(place.drive).is_none_or(DriveRecord::is_given_up);
            (place.state == PlaceState::Missing && (is_here || given_up)).then_some(is_here)
        };
        self.renew_maps(is_stale).await
    }

    /// Writes copies of maps elsewhere, or where they are, for which `is_stale` says so.
    pub(crate) async fn renew_maps(
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
            Some(_) if array.visit(|array| array.member(new.drive).is_some()) => {
                array.call(async move |array| array.add_map_places(&[area]).await).await
            }
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
            array.visit(|array| array.remove_map_places(&[area]));
            if !matches!(recorded, Ok(true)) {
                // A page that another task writes may be on its way there.
                array.call(async |array| array.until_map_written().await).await;
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
        let (planner, off) = (self.spare_planner(), (stale.old.drive, &taken[..]));
        planner.place_off(&manifest, &mut self.space.borrow_mut(), off, stale.slabs, enter).map(new)
    }
}
