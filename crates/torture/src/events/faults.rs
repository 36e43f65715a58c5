//! Faults that torture learned after its first ones: a flush that fails and takes the drive's cache
//! with it, sectors that cannot be written, file systems beneath that are full, drives of the pool
//! that are offered as others. Drawn from a stream of their own ([`crate::Drawn`]). As in
//! `actions.rs`, never more is taken from a volume than what it can do without, but for two:
//!
//! - A flush may fail on a drive that a volume without any redundancy lies on. What was not
//!   durable may be lost; a client must learn of that before any flush is acknowledged
//!   ([`crate::world::oracle::Oracle::put_at_risk`]).
//! - All drives may be full at once. Nothing more can be written then, and nothing that can be read
//!   may be refused.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::life::{Life, Plugged};
use crate::subject::{Facts, Place, Subject};
use crate::world::bias::{Fault, chosen, total};
use crate::world::guarded::{Guarded, Target};

impl Life {
    /// In runs that have them: perhaps one of these.
    pub(crate) async fn perhaps_fail_otherwise(self: &Rc<Self>, subject: &Subject, targets: &[Target]) {
        let Some(random) = self.world.later() else { return };
        // If a volume has no redundancy little else may happen.
        let is_bare = self.world.volumes.borrow().iter().any(|guarded| guarded.facts.borrow().tolerance == 0);
        let bias = self.world.bias;
        let often = if is_bare { bias.fault.1 } else { bias.fault.0 };
        if !random.borrow_mut().chance(often) || self.is_over() || self.is_beyond.get() {
            return;
        }
        self.observe(subject);
        let is_flush = is_bare && random.borrow_mut().chance(0.9);
        let fault = match is_flush {
            true => Fault::RefusedFlush,
            false => chosen(bias.faults, random.borrow_mut().below(total(bias.faults))),
        };
        match fault {
            Fault::RefusedFlush => self.fail_a_flush(),
            Fault::UnwritableSectors => self.unwritable_sectors(),
            Fault::DriveElsewhere => self.come_back_elsewhere(subject).await,
            Fault::NoSpace => self.fill_up(targets),
        }
    }

    /// The next flush of a drive fails, and its cache is lost.
    fn fail_a_flush(self: &Rc<Self>) {
        let Some((disk, plugged)) = self.any_disk() else { return };
        let one = BTreeSet::from([disk]);
        let volumes = self.world.volumes.borrow().clone();
        let (sparing, others): (Vec<_>, Vec<_>) =
            volumes.into_iter().partition(|guarded| guarded.can_spare(&one));
        // A volume that had redundancy and has none now may lose more than unflushed data.
        let never_had_any = |guarded: &Rc<Guarded>| {
            let facts = guarded.facts.borrow();
            facts.tolerance == 0 && !facts.is_converting && !guarded.is_uncertain.get()
        };
        let has_others =
            self.plugged.borrow().iter().any(|(other, plugged)| *other != disk && !plugged.is_troubled.get());
        if !others.iter().all(never_had_any) || !has_others {
            return;
        }
        sparing.iter().for_each(|guarded| guarded.harm(&one));
        let on_it = |guarded: &&Rc<Guarded>| guarded.facts.borrow().all_disks().contains(&disk);
        let at_risk = others.iter().filter(on_it).count();
        self.note(&format!("the next flush of disk{disk} fails, {at_risk} volumes cannot do without"));
        // Whatever is whole until then, the drive is not to be relied on.
        plugged.is_troubled.set(true);
        // The wire keeps what is called until a flush comes, if one comes: it must not keep itself.
        let (life, plugged_again) = (Rc::downgrade(self), Rc::downgrade(&plugged));
        plugged.wire.fail_next_flush(move || {
            let Some(life) = life.upgrade() else { return Box::new(|| ()) };
            life.a_flush_failed(disk, &sparing, &others);
            let later = life.context.clone();
            life.context.spawn(async move {
                later.sleep_ns(100_000_000).await;
                if let Some(plugged) = plugged_again.upgrade() {
                    plugged.is_troubled.set(false);
                }
            });
            // Rows may be on their way to the drive by then.
            let life = Rc::downgrade(&life);
            Box::new(move || {
                let Some(life) = life.upgrade() else { return };
                life.is_left_out_with(disk, &sparing, &others);
            })
        });
    }

    /// A flush of a drive has just failed. Whose data lie on the drive is looked at now: rows may
    /// have moved since the failure was prepared, and what was deleted since is not concerned.
    fn a_flush_failed(&self, disk: usize, sparing: &[Rc<Guarded>], others: &[Rc<Guarded>]) {
        self.note(&format!("a flush of disk{disk} fails"));
        let now = self.facts_now();
        let at_risk: Vec<&Rc<Guarded>> =
            others.iter().filter(|guarded| may_be_on_it(&now, guarded, disk)).collect();
        self.world.cover(|coverage| {
            coverage.drive_losses += 1;
            coverage.failed_flushes += 1;
            coverage.failed_flushes_without_redundancy += u64::from(!at_risk.is_empty());
        });
        for guarded in at_risk {
            guarded.oracle.borrow_mut().put_at_risk();
            guarded.descriptors.lose();
            guarded.may_refuse_writes.set(true);
            guarded.is_uncertain.set(true);
        }
        self.is_left_out_with(disk, sparing, others);
    }

    /// A volume that can spare a drive that failed a flush has it left out, also where rows are
    /// only on their way there, and it is out for all of the pool then.
    fn is_left_out_with(&self, disk: usize, sparing: &[Rc<Guarded>], others: &[Rc<Guarded>]) {
        let now = self.facts_now();
        let is_moving =
            |guarded: &Rc<Guarded>| now.iter().any(|facts| facts.name == guarded.name && facts.is_moving);
        if sparing.iter().any(|guarded| may_be_on_it(&now, guarded, disk)) || others.iter().any(is_moving) {
            let on_it = others.iter().filter(|guarded| may_be_on_it(&now, guarded, disk));
            on_it.for_each(|guarded| guarded.is_failed.set(true));
        }
    }

    fn facts_now(&self) -> Vec<Facts> {
        self.subject.borrow().as_ref().map(|subject| subject.facts()).unwrap_or_default()
    }

    /// Some sectors of a drive cannot be written any more, in this life.
    fn unwritable_sectors(&self) {
        let Some((_, plugged)) = self.any_victim("unwritable sectors on") else { return };
        plugged.is_troubled.set(true);
        for _ in 0..1 + self.world.below(4) {
            let start = self.draw_place(&plugged);
            let end = start + 4096 * (1 + self.world.below(64));
            plugged.faulty.make_unwritable(start..end.min(plugged.top.info().capacity_bytes));
        }
    }

    /// A drive of the pool is offered as a new one or in another one's place, and perhaps under its
    /// own name after that.
    async fn come_back_elsewhere(&self, subject: &Subject) {
        let places = subject.places();
        let lost: Vec<Place> = places.iter().filter(|place| !place.is_online).cloned().collect();
        // Seldom one that is in use: that is refused.
        let from = if self.world.chance(0.8) { &lost } else { &places };
        let Some(back) = self.world.pick(from) else { return };
        let others: Vec<Place> = lost.iter().filter(|place| place.id != back.id).cloned().collect();
        // Requests in flight to a drive when it was pulled have arrived by then.
        self.context.sleep_ns(5_000_000).await;
        let plugged = self.plugged.borrow().get(&back.disk).cloned();
        let offered = match (back.is_online, plugged) {
            (true, Some(plugged)) => Some((back.disk, plugged.top.clone())),
            (true, None) => None,
            (false, _) => self.brought_back(back.disk),
        };
        let Some((disk, top)) = offered else { return };
        self.world.cover(|coverage| coverage.drives_elsewhere += 1);
        let old = self.world.pick(&others);
        let (what, asked) = match (self.world.below(3), old) {
            (0, Some(old)) => {
                let replaced = self.bounded("replacing a drive", subject.replace(old.id, top.clone())).await;
                (format!("replace disk{} by disk{disk}, which is another", old.disk), replaced)
            }
            (1, _) => {
                let added = self.bounded("adding a spare", subject.add_spare(top.clone())).await;
                (format!("spare disk{disk}, which was another"), added)
            }
            _ => {
                let added = self.bounded("adding a drive", subject.add_data(top.clone())).await;
                (format!("add disk{disk}, which was another"), added)
            }
        };
        if matches!(asked, Some(Ok(()))) {
            // It begins again.
            self.world.disks.borrow_mut()[disk].stale.clear();
        }
        self.asked(&what, asked);
        if self.is_over() || back.is_online || self.world.chance(0.4) {
            return;
        }
        // It may be back, and get something new, before this is answered.
        self.world.disks.borrow_mut()[disk].stale.clear();
        let online = self.bounded("taking a drive back", subject.online(back.id, top)).await;
        self.asked(&format!("online disk{disk} as what it was"), online);
    }

    /// No drive takes a write any more for lack of space, in this life. What can be read stays so.
    fn fill_up(&self, targets: &[Target]) {
        let is_well =
            |plugged: &Plugged| !plugged.is_troubled.get() && plugged.faulty.unreadable_bytes() == 0;
        let all_well = self.plugged.borrow().values().all(|plugged| is_well(plugged));
        let all_open = targets.len() == self.world.volumes.borrow().len();
        if !all_well || !all_open || !self.world.spoiled().is_empty() {
            return;
        }
        self.note("no drive has space");
        self.is_beyond.set(true);
        for (_, guarded) in targets {
            guarded.oracle.borrow_mut().suspect_dirty();
            guarded.may_refuse_writes.set(true);
            guarded.is_uncertain.set(true);
        }
        self.plugged.borrow().values().for_each(|plugged| plugged.faulty.set_full(true));
    }
}

/// True if a volume has anything on a disk. Rows that are on their way to other drives may count
/// there before a failure is answered.
fn may_be_on_it(now: &[Facts], guarded: &Guarded, disk: usize) -> bool {
    let has_it = |facts: &Facts| facts.all_disks().contains(&disk) || facts.is_moving;
    now.iter().any(|facts| facts.name == guarded.name && has_it(facts))
}
