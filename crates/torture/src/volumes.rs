//! Changes of the volumes themselves: made, deleted, made larger and smaller. Nobody uses them meanwhile, at the beginning of a
//! life, as their users would have it; power may be cut at any instant of it.
//!
//! Converted to other layouts they are at any time, also under load: begun here, carried on by the jobs of this and later
//! lives, ended at the latest at the end of the run. From before it is begun until it has ended a volume counts with the
//! redundancy of the lower of the two layouts. All that is drawn from a stream of its own, in one run of four.

use crate::clients::{Target, discard, widened, write_zeroes};
use crate::content::SECTOR_BYTES;
use crate::life::Life;
use crate::plan::draw_volume;
use crate::subject::Subject;

const MIB: u64 = 1 << 20;
/// Volumes that a pool has at a time.
const MOST_VOLUMES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Delete,
    Grow,
    Shrink,
}

impl Life {
    /// Perhaps changes a volume. Gives what is open afterwards.
    pub async fn change_volumes(&self, subject: &Subject, targets: Vec<Target>) -> Vec<Target> {
        if !self.world.chance(0.3) || targets.len() != self.world.volumes.borrow().len() {
            return targets;
        }
        let changes = [Change::Create, Change::Delete, Change::Grow, Change::Shrink];
        let change = self.world.pick(&changes).unwrap_or(Change::Grow);
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
                    self.resize(subject, &target, size_bytes).await;
                }
            }
        }
        self.observe(subject);
        self.targets(subject)
    }

    /// In runs that convert volumes: perhaps begins to convert one, to a layout that can do without what is lost now.
    pub async fn perhaps_convert(&self, subject: &Subject, targets: &[Target]) {
        let Some(random) = &self.world.conversions else { return };
        let is_wanted = random.borrow_mut().chance(0.4);
        if !is_wanted || targets.is_empty() || self.is_over() || self.is_beyond.get() {
            return;
        }
        self.observe(subject);
        let (store, guarded) = &targets[random.borrow_mut().below(targets.len() as u64) as usize];
        if guarded.facts.borrow().is_converting {
            // Whole regions are given up while they are in one array and not in the other, or in both.
            let sectors = widened(&mut random.borrow_mut(), guarded);
            let choice = random.borrow_mut().below(8);
            match choice {
                0 => discard(self, store, guarded, sectors).await,
                1..=2 => write_zeroes(self, store, guarded, sectors).await,
                _ => {}
            }
            return;
        }
        let drives = subject.places().iter().filter(|place| place.is_data && place.is_online).count();
        // Seldom to one without redundancy: nothing can be taken from the pool as long as there is such a volume.
        let least = usize::from(random.borrow_mut().chance(0.9)).max(guarded.lost().len());
        let layout = draw_volume(&mut random.borrow_mut(), drives, least, 0).layout;
        let Ok(shape) = layout.resolve(drives) else { return };
        if guarded.is_uncertain.get() || shape.fault_tolerance() < least {
            return;
        }
        {
            let mut facts = guarded.facts.borrow_mut();
            facts.tolerance = facts.tolerance.min(shape.fault_tolerance());
        }
        let begun = self.bounded("beginning a conversion", subject.convert(&guarded.name, layout)).await;
        self.note(&format!("convert {} to {layout:?}: {begun:?}", guarded.name));
        self.world.cover(|coverage| coverage.conversions += u64::from(matches!(begun, Some(Ok(())))));
        self.observe(subject);
        if random.borrow_mut().chance(0.8) {
            subject.start_jobs();
        }
    }

    async fn create_another(&self, subject: &Subject) {
        let drives = self.world.plan.data_bytes.len();
        let new = draw_volume(&mut self.world.random.borrow_mut(), drives, 1, 0);
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
        let first_gone = (size_bytes / SECTOR_BYTES) as u32;
        guarded.oracle.borrow_mut().give_up_from(first_gone);
        let resized = self.bounded("resizing a volume", subject.resize(&guarded.name, size_bytes)).await;
        self.note(&format!("resize {} to {size_bytes}: {resized:?}", guarded.name));
        if let Some(Ok(())) = resized {
            guarded.oracle.borrow_mut().resize(store.capacity_bytes());
        }
    }
}
