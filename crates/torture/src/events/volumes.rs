//! Changes of the volumes themselves: made, deleted, made larger and smaller. No client uses them
//! then, at the beginning of a life, as their users would have it; power may be cut at any
//! instant of it.
//!
//! Pinned they are at any time, in runs with fast drives.
//!
//! Converted to other layouts they are at any time, also under load: begun here, carried on by the
//! jobs of this and later lives, ended at the latest at the end of the run. From before it is begun
//! until it has ended a volume counts with the redundancy of the lower of the two layouts. All that
//! is drawn from a stream of its own, in one run of four.

use crate::life::Life;
use crate::life::clients::{discard, widened, write, write_zeroes};
use crate::subject::{Pinned, Subject};
use crate::world::bias::Change;
use crate::world::content::SECTOR_BYTES;
use crate::world::guarded::Target;
use crate::world::plan::draw_volume;

const MIB: u64 = 1 << 20;
/// Volumes that a pool has at a time.
const MOST_VOLUMES: usize = 4;

impl Life {
    /// Perhaps changes a volume. Gives what is open afterwards.
    pub(crate) async fn change_volumes(&self, subject: &Subject, targets: Vec<Target>) -> Vec<Target> {
        if !self.world.chance(self.world.bias.change) || targets.len() != self.world.volumes.borrow().len() {
            return targets;
        }
        let change = self.world.pick(self.world.bias.changes).unwrap_or(Change::Grow);
        let Some(target) = self.world.pick(&targets) else { return targets };
        match change {
            Change::Create if targets.len() < MOST_VOLUMES => self.create_another(subject).await,
            Change::Create => {}
            Change::Delete if targets.len() > 1 => self.delete(subject, &target).await,
            Change::Delete => {}
            Change::Grow => {
                let more_bytes = (1 + self.world.below(2048)) * 4096;
                self.resize(subject, &target, target.0.capacity_bytes() + more_bytes).await;
            }
            Change::Shrink => {
                let size_bytes = (self.world.below(target.0.capacity_bytes()) / 4096 * 4096).max(MIB / 4);
                if size_bytes < target.0.capacity_bytes() {
                    self.perhaps_write_beyond(&target, size_bytes).await;
                    self.resize(subject, &target, size_bytes).await;
                }
            }
        }
        self.observe(subject);
        self.targets(subject)
    }

    /// In runs that convert volumes: perhaps begins to convert one, to a layout that can do without
    /// what is lost now.
    pub(crate) async fn perhaps_convert(&self, subject: &Subject, targets: &[Target]) {
        let Some(random) = &self.world.conversions else { return };
        let is_wanted = random.borrow_mut().chance(self.world.bias.conversion);
        if !is_wanted || targets.is_empty() || self.is_over() || self.is_beyond.get() {
            return;
        }
        self.observe(subject);
        let which = random.borrow_mut().below(targets.len() as u64) as usize;
        let (store, guarded) = &targets[which];
        if guarded.is_leaving.get() {
            return;
        }
        if guarded.facts.borrow().is_converting {
            // Whole regions are given up while they are in one array and not in the other, or in
            // both.
            let sectors = widened(&mut random.borrow_mut(), guarded);
            let choice = random.borrow_mut().below(8);
            match choice {
                0 => discard(self, store, guarded, sectors, false).await,
                1..=2 => write_zeroes(self, store, guarded, sectors, false).await,
                3..=4 if self.world.later().is_some() => {
                    self.change_amid_conversion(subject, &targets[which], choice == 3).await;
                }
                _ => {}
            }
            return;
        }
        let drives = subject.places().iter().filter(|place| place.is_data && place.is_online).count();
        // A volume may lie on fast drives only.
        if drives == 0 {
            return;
        }
        // Seldom to one without redundancy: nothing can be taken from the pool as long as there is
        // such a volume.
        let least = usize::from(random.borrow_mut().chance(0.9)).max(guarded.lost().len());
        let drawn = draw_volume(&mut random.borrow_mut(), self.world.bias, drives, least, 0);
        let layout = self.world.plan.on_its_drives(drawn).layout;
        let Ok(shape) = layout.resolve(drives) else { return };
        if guarded.is_uncertain.get() || shape.fault_tolerance() < least {
            return;
        }
        {
            let mut facts = guarded.facts.borrow_mut();
            facts.tolerance = facts.tolerance.min(shape.fault_tolerance());
        }
        // Numbers of volumes are lower.
        let drawn = 10_000 + self.world.coverage.borrow().conversions as u32;
        let slices = self.world.plan.slices_of(drawn, &self.world.options);
        let begun = subject.convert(&guarded.name, layout, slices);
        let begun = self.bounded("beginning a conversion", begun).await;
        self.note(&format!("convert {} to {layout:?}, {slices} slices: {begun:?}", guarded.name));
        self.world.cover(|coverage| coverage.conversions += u64::from(matches!(begun, Some(Ok(())))));
        self.observe(subject);
        if random.borrow_mut().chance(0.8) {
            subject.start_jobs();
        }
    }

    /// In runs with fast drives: perhaps pins a volume, and gives rows time to move.
    pub(crate) async fn perhaps_pin(&self, subject: &Subject, targets: &[Target]) {
        let Some(random) = self.world.later() else { return };
        if self.world.plan.fast_bytes.is_empty() || targets.is_empty() {
            return;
        }
        if self.is_over() || self.is_beyond.get() {
            return;
        }
        let (is_wanted, which) = {
            let mut random = random.borrow_mut();
            (random.chance(0.4), random.below(targets.len() as u64) as usize)
        };
        if !is_wanted {
            return;
        }
        let name = &targets[which].1.name;
        let pin = [Pinned::Fast, Pinned::Slow, Pinned::Nowhere][random.borrow_mut().below(3) as usize];
        let pinned = self.bounded("pinning a volume", subject.pin(name, pin)).await;
        self.note(&format!("pin {name} {pin:?}: {pinned:?}"));
        self.world.cover(|coverage| coverage.pins += u64::from(matches!(pinned, Some(Ok(())))));
        subject.start_jobs();
        let pause_ns = random.borrow_mut().below(20_000_000);
        self.context.sleep_ns(pause_ns).await;
    }

    /// Perhaps writes beyond the end that a volume is to get; it is acknowledged and nothing more.
    async fn perhaps_write_beyond(&self, (store, guarded): &Target, size_bytes: u64) {
        let Some(random) = self.world.later() else { return };
        let first = (size_bytes / SECTOR_BYTES) as u32;
        let end = guarded.oracle.borrow().sector_count();
        if first >= end || !random.borrow_mut().chance(0.5) {
            return;
        }
        let from = first + random.borrow_mut().below(u64::from(end - first)) as u32 / 8 * 8;
        write(self, store, guarded, from..(from + 8).min(end), false).await;
    }

    /// A volume that is being converted is to be deleted, or to have another size, while its
    /// clients go on.
    async fn change_amid_conversion(&self, subject: &Subject, target: &Target, deletes: bool) {
        if !deletes {
            let more_bytes = (1 + self.world.below(256)) * 4096;
            self.world.cover(|coverage| coverage.resizes_in_conversions += 1);
            return self.resize(subject, target, target.0.capacity_bytes() + more_bytes).await;
        }
        let is_last = self.world.volumes.borrow().len() < 2;
        if is_last {
            return;
        }
        self.delete(subject, target).await;
        let is_deleted = self.world.volumes.borrow().iter().all(|other| other.number != target.1.number);
        self.world.cover(|coverage| coverage.deletes_in_conversions += u64::from(is_deleted));
    }

    async fn create_another(&self, subject: &Subject) {
        let drives = self.world.plan.data_bytes.len();
        let new = draw_volume(&mut self.world.random.borrow_mut(), self.world.bias, drives, 1, 0);
        let new = self.world.plan.on_its_drives(new);
        self.make_volume(subject, &new).await;
    }

    async fn delete(&self, subject: &Subject, (_, guarded): &Target) {
        guarded.is_leaving.set(true);
        let deleted = self.bounded("deleting a volume", subject.delete_volume(&guarded.name)).await;
        self.note(&format!("delete {}: {deleted:?}", guarded.name));
        match deleted {
            Some(Ok(())) => {
                self.world.volumes.borrow_mut().retain(|other| other.number != guarded.number);
            }
            Some(Err(_)) => guarded.is_leaving.set(false),
            None => {}
        }
    }

    async fn resize(&self, subject: &Subject, (store, guarded): &Target, size_bytes: u64) {
        // Nothing is excused beforehand: a volume that stays as it was has all that it had, and
        // where it becomes smaller there were zeros beyond its end.
        let first_gone = (size_bytes / SECTOR_BYTES) as u32;
        let stored = guarded.oracle.borrow().surely_holds_data_from(first_gone);
        let resized = self.bounded("resizing a volume", subject.resize(&guarded.name, size_bytes)).await;
        self.note(&format!("resize {} to {size_bytes}: {resized:?}", guarded.name));
        if let Some(sector) = stored {
            match resized {
                Some(Ok(())) => {
                    let detail = format!(
                        "{}: sector {sector} held data when it was made {size_bytes} bytes large",
                        guarded.name
                    );
                    self.broken("shrink-keeps-data", detail);
                }
                Some(Err(_)) => self.world.cover(|coverage| coverage.refused_shrinks += 1),
                None => {}
            }
        }
        if let Some(Ok(())) = resized {
            guarded.oracle.borrow_mut().resize(store.capacity_bytes());
        }
    }
}
