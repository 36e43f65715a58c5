//! The end of a life: the pool is closed or power is cut, and the lasting state is recorded for the
//! next life.

use std::collections::BTreeSet;

use super::Life;
use crate::subject::{Subject, disk_number};

impl Life {
    fn count_interrupted(&self, subject: &Subject) {
        self.world.cover(|coverage| {
            coverage.interrupted_rebuilds += u64::from(subject.is_rebuilding());
            coverage.interrupted_conversions += u64::from(subject.is_converting());
            coverage.interrupted_replacements += u64::from(subject.is_replacing());
            coverage.interrupted_rebalances += u64::from(subject.is_rebalancing());
        });
    }

    /// Closes the pool, which makes all acknowledged writes durable.
    pub(crate) async fn end(&self, subject: &Subject) {
        if self.world.is_broken() {
            return;
        }
        self.observe(subject);
        self.count_interrupted(subject);
        let volumes = self.world.volumes.borrow().clone();
        let begun: Vec<u64> = volumes.iter().map(|guarded| guarded.oracle.borrow_mut().tick()).collect();
        let Some(closed) = self.bounded("closing", subject.close()).await else { return };
        self.note(&format!("closed {}", closed.is_ok()));
        for (guarded, begun) in volumes.iter().zip(begun) {
            // With no space left below the drives, closing flushes as much as possible.
            let is_full = self.is_beyond.get() && guarded.may_refuse_writes.get();
            if closed.is_ok() && !guarded.is_failed.get() && !is_full {
                guarded.oracle.borrow_mut().end_flush(begun);
            }
        }
        if let Err(why) = closed
            && !volumes.iter().any(|guarded| guarded.is_failed.get() || guarded.may_refuse_writes.get())
        {
            self.broken("nothing-refused", format!("closing: {why}"));
        }
    }
}

/// Cuts power, unless it is off already: the drives keep or lose the contents of their caches.
pub(crate) fn end_of_life(life: &Life, number: usize, was_closed: bool) {
    let world = &life.world;
    if let Some(subject) = &*life.subject.borrow() {
        life.observe(subject);
        if !was_closed {
            life.count_interrupted(subject);
        }
    }
    let is_cut = !was_closed || life.power.is_off();
    life.power.cut();
    // Before the bad sectors are examined.
    for plugged in life.plugged.borrow().values() {
        let counts = plugged.faulty.counts();
        world.cover(|coverage| {
            coverage.latent_errors += counts.unreadable;
            coverage.lost_writes += counts.lost;
            coverage.misdirected_writes += counts.misdirected;
            coverage.unwritable_sectors += counts.unwritable;
            coverage.writes_without_space += counts.no_space;
        });
    }
    let mut torn = 0;
    for (number, disk) in world.disks.borrow_mut().iter_mut().enumerate() {
        let report = disk.crash.power_cut(world.next_seed());
        disk.crash.power_on();
        torn += report.torn;
        life.note(&format!("disk{number}: {report:?}"));
        if let Some(plugged) = life.plugged.borrow().get(&number) {
            disk.unreadable = plugged.still_unreadable(&disk.unreadable);
        }
    }
    world.cover(|coverage| {
        coverage.torn_writes += torn;
        coverage.power_cuts += u64::from(is_cut);
    });
    let mut changed = BTreeSet::new();
    for guarded in world.volumes.borrow().iter() {
        // These drives lack writes that were acknowledged without them.
        let was_changed = guarded.is_changed.replace(false) && !guarded.is_failed.replace(false);
        guarded.may_refuse_writes.set(false);
        if was_changed {
            changed.insert(guarded.number);
        }
        for disk in guarded.facts.borrow().disks() {
            if was_changed && !life.plugged.borrow().contains_key(&disk) {
                world.disks.borrow_mut()[disk].stale.insert(guarded.number);
            }
        }
        let mut oracle = guarded.oracle.borrow_mut();
        oracle.power_cut();
        if !guarded.lost().is_empty() {
            oracle.lose_suspects();
        }
    }
    let only_copy_on = life.power.only_copy_on().and_then(|label| disk_number(&label));
    world.remember(number, &changed, only_copy_on);
}
