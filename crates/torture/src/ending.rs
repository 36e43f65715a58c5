//! The end of a run, without further faults: the pool must regain full redundancy, be consistent,
//! and hold the right data, also with any drives missing whose loss its layouts survive.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::{Buffer, Drive, IoRequest};
use stripewise_runtime::VirtualExecutor;

use crate::Sabotage;
use crate::life::clients::flush;
use crate::life::closing::end_of_life;
use crate::life::{Life, new_executor};
use crate::subject::{Place, Subject};
use crate::world::World;
use crate::world::content::{Content, SECTOR_BYTES, identify};
use crate::world::guarded::Target;

/// Lets the pool become whole and verifies it.
pub(crate) fn end_of_run(world: &Rc<World>, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    if world.options.sabotage == Some(Sabotage::Rot) {
        spoil(world);
    }
    let executor = new_executor(world, kept);
    let all: BTreeSet<usize> = (0..world.disks.borrow().len()).collect();
    let life = Life::new(world, executor.context(), &all);
    life.note("the end");
    executor.block_on(life.become_whole());
    end_of_life(&life, world.plan.lives, true);
    drop(life);
    // Unreadable blocks that were needed have been rewritten by now.
    world.disks.borrow_mut().iter_mut().for_each(|disk| disk.unreadable.clear());
    for _ in 0..2 {
        if world.is_broken() || world.volumes.borrow().is_empty() {
            return;
        }
        look_degraded(world, kept);
    }
}

impl Life {
    async fn become_whole(self: &Rc<Self>) {
        let Some(subject) = self.open().await else { return };
        let targets = self.targets(&subject);
        for (store, guarded) in &targets {
            self.verify(store, guarded, false, "at the end").await;
        }
        subject.start_jobs();
        // A drive with too many unreadable blocks may still be failed.
        for _ in 0..8 {
            self.replace_all_lost(&subject).await;
            self.make_room(&subject).await;
            if self.world.is_broken() || !self.all_done(&subject).await {
                return;
            }
            if subject.is_online() {
                break;
            }
        }
        if !subject.is_online() {
            return self.broken("progress", "the pool does not become whole".to_owned());
        }
        self.look_whole(&subject, &targets).await;
        if !self.world.is_broken() {
            self.end(&subject).await;
        }
    }

    /// True if all jobs have succeeded.
    async fn all_done(&self, subject: &Subject) -> bool {
        let rebuilt = self.bounded("rebuilding", subject.wait_rebuilt()).await;
        let converted = match self.world.conversions {
            Some(_) => self.bounded("converting", subject.wait_converted()).await,
            None => Some(Ok(())),
        };
        let checked = self.bounded("checking", subject.wait_checked()).await;
        let spread = match self.world.moving {
            Some(_) => self.bounded("rebalancing", subject.wait_rebalanced()).await,
            None => Some(Ok(())),
        };
        let all = [
            ("rebuilding", rebuilt),
            ("converting", converted),
            ("checking", checked),
            ("rebalancing", spread),
        ];
        for (what, ended) in all {
            match ended {
                Some(Ok(())) => {}
                Some(Err(why)) => self.broken("progress", format!("{what} failed: {why}")),
                None => return false,
            }
        }
        !self.world.is_broken()
    }

    /// Replaces all lost drives by new ones.
    async fn replace_all_lost(&self, subject: &Subject) {
        // Drives replaced by spares leave the list on their own.
        let Some(rebuilt) = self.bounded("rebuilding", subject.wait_rebuilt()).await else { return };
        self.note(&format!("rebuilt with the drives present: {rebuilt:?}"));
        for _ in 0..20 {
            let facts = subject.facts();
            let lacking: BTreeSet<usize> = facts.iter().flat_map(|facts| facts.behind()).collect();
            let lacking_copies: BTreeSet<usize> =
                facts.iter().flat_map(|facts| facts.lacking_copies.clone()).collect();
            let is_lost = |place: &Place| {
                let has_data = (place.is_data || place.is_fast) && lacking.contains(&place.disk);
                !place.is_online && (has_data || lacking_copies.contains(&place.disk))
            };
            let lost = subject.places().into_iter().find(is_lost);
            let Some(old) = lost else { return };
            let plan = &self.world.plan;
            let capacity = plan.data_bytes.iter().chain(&plan.spare_bytes).copied().max().unwrap_or(64 << 20);
            let disk = self.world.make_disk(capacity);
            let top = self.plug(disk).top.clone();
            match self.bounded("replacing a drive", subject.replace(old.id, top)).await {
                Some(Ok(())) => self.note(&format!("replaced disk{} by disk{disk}", old.disk)),
                // If a drive is listed twice, the first replacement may have removed both.
                Some(Err(_)) if subject.places().iter().all(|place| place.id != old.id) => {}
                Some(Err(why)) => {
                    let detail = format!("disk{} cannot be replaced by a new drive: {why}", old.disk);
                    return self.broken("progress", detail);
                }
                None => return,
            }
        }
    }

    /// Brings offline drives back if a job waits for them. Adds a drive if the pool reports too
    /// little space to evacuate a drive or to convert a volume: space that was free when the job
    /// was accepted may have been lost to failed drives and grown volumes.
    async fn make_room(&self, subject: &Subject) {
        for _ in 0..8 {
            let Some(mut ended) = self.bounded("rebuilding", subject.wait_rebuilt()).await else { return };
            let is_short = subject.lacks_room_to_retire() && !subject.has_room_beyond_doubt();
            let is_converting = !is_short && subject.is_converting();
            if is_converting {
                let Some(converted) = self.bounded("converting", subject.wait_converted()).await else {
                    return;
                };
                ended = converted;
            }
            let Err(why) = ended else { return };
            let places = subject.places();
            // Not if the disk has been added as another drive since.
            let comes_back = |place: &Place| {
                place.is_offline && !places.iter().any(|other| other.disk == place.disk && other.is_online)
            };
            if places.iter().any(comes_back) {
                // The engine counts copies on offline drives as present.
                self.take_back(subject).await;
                continue;
            }
            let is_stuck = is_short || (is_converting && subject.lacks_room_to_convert());
            if !is_stuck {
                return;
            }
            let plan = &self.world.plan;
            let capacity = plan.data_bytes.iter().chain(&plan.spare_bytes).copied().max().unwrap_or(64 << 20);
            let disk = self.world.make_disk(capacity);
            let top = self.plug(disk).top.clone();
            self.note(&format!("disk{disk} is added: {why}"));
            if let Some(Err(why)) = self.bounded("adding a drive", subject.add_data(top)).await {
                return self.broken("progress", format!("a drive cannot be added: {why}"));
            }
        }
    }

    /// Verifies the whole pool: contents are final from now on, and copies and parity match.
    async fn look_whole(&self, subject: &Subject, targets: &[Target]) {
        for (store, guarded) in targets {
            if store.needs_resync() {
                let detail = format!("{} was not resynchronised", guarded.name);
                return self.broken("progress", detail);
            }
            guarded.harmed.borrow_mut().clear();
            guarded.oracle.borrow_mut().resynchronised();
            flush(self, store, guarded).await;
            self.verify(store, guarded, true, "when all is whole").await;
            flush(self, store, guarded).await;
        }
        if self.world.is_broken() {
            return;
        }
        // An indispensable drive that failed a flush may have lost the zeros of a new region; their
        // checksums detect that.
        let lost_zeros = self.world.coverage.borrow().failed_flushes_without_redundancy > 0;
        if !self.world.spoiled().is_empty() || lost_zeros {
            // The first scrub finds and repairs faults in blocks that were not read before.
            let recorded = self.bounded("recording a scrub", subject.scrub()).await;
            let checked = self.bounded("a scrub", subject.wait_checked()).await;
            if let (Some(Err(why)), _) | (_, Some(Err(why))) = (recorded, checked) {
                return self.broken("progress", format!("a repairing scrub failed: {why}"));
            }
            self.world.disks.borrow_mut().iter_mut().for_each(|disk| disk.is_spoiled = false);
        }
        let recorded = self.bounded("recording a scrub", subject.scrub()).await;
        let checked = self.bounded("a scrub", subject.wait_checked()).await;
        if let (Some(Err(why)), _) | (_, Some(Err(why))) = (recorded, checked) {
            return self.broken("progress", format!("a scrub failed: {why}"));
        }
        if let Some(findings) = subject.scrub_findings() {
            self.broken("redundancy-agrees", findings);
        }
        for (store, guarded) in targets {
            self.verify(store, guarded, false, "after a scrub").await;
        }
    }
}

/// Opens the pool read-only without as many drives as its layouts can lose.
fn look_degraded(world: &Rc<World>, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    let mut left_out = BTreeSet::new();
    let count = world.disks.borrow().len();
    for _ in 0..6 {
        let mut more: BTreeSet<usize> = left_out.clone();
        more.insert(world.below(count as u64) as usize);
        if more.len() < count && world.volumes.borrow().iter().all(|guarded| guarded.can_spare(&more)) {
            left_out = more;
        }
    }
    let executor = new_executor(world, kept);
    let present: BTreeSet<usize> = (0..count).filter(|disk| !left_out.contains(disk)).collect();
    let life = Life::new(world, executor.context(), &present);
    life.note(&format!("looked at without {left_out:?}"));
    executor.block_on(async {
        let settings = world.settings();
        let opened = Subject::open(&life.context, settings, life.tops(), true);
        let subject = match life.bounded("opening", opened).await {
            Some(Ok(subject)) => subject,
            Some(Err(why)) => {
                let detail = format!("without {left_out:?} the pool cannot be opened: {why}");
                return life.broken("nothing-refused", detail);
            }
            None => return,
        };
        let targets = life.targets(&subject);
        if targets.len() != world.volumes.borrow().len() {
            let detail = format!("without {left_out:?} not every volume can be read: {}", subject.in_words());
            return life.broken("nothing-refused", detail);
        }
        for (store, guarded) in &targets {
            life.verify(store, guarded, false, &format!("without {left_out:?}")).await;
        }
        let _ = life.bounded("closing", subject.close()).await;
    });
}

/// Corrupts some client data on the drives, behind the engine's back.
fn spoil(world: &World) {
    let disks = world.disks.borrow();
    let mut spoiled = BTreeSet::new();
    for disk in disks.iter() {
        let mut bytes = vec![0; 4096];
        for place in (0..disk.crash.info().capacity_bytes).step_by(bytes.len()) {
            disk.crash.peek(place, &mut bytes);
            let mut is_changed = false;
            for sector in bytes.chunks_exact_mut(SECTOR_BYTES as usize) {
                let Content::Data { volume, sector: number, .. } = identify(sector) else { continue };
                if spoiled.len() < 64 || spoiled.contains(&(volume, number)) {
                    spoiled.insert((volume, number));
                    sector[77] ^= 8;
                    is_changed = true;
                }
            }
            if is_changed {
                let buffer = Buffer::from_bytes(&bytes);
                let _ = disk.crash.submit(IoRequest::write(place, buffer, true)).try_take();
            }
        }
    }
}
