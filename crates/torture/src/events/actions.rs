//! Events in the life of a pool in use. Each action first makes sure that it takes no more than
//! what is promised to be survived; an action that finds itself impossible does nothing.
//!
//! To add one: a variant of [`Action`] and its weight in `world/bias.rs`, its arm in
//! [`Life::perform`]; what it asks of the engine goes into `subject.rs`. Whatever makes a drive
//! unreliable says so first, by [`Life::try_harm`].

use std::collections::BTreeSet;

use stripewise_drive::{Buffer, Delay, Drive, IoRequest, WriteFault};

use crate::life::Life;
use crate::life::clients::flush;
use crate::subject::{Place, Subject};
use crate::world::bias::{Action, chosen, total};
use crate::world::guarded::Target;

impl Life {
    /// One action, drawn.
    pub(crate) async fn act(&self, subject: &Subject, targets: &[Target]) {
        let weighted = self.world.bias.action;
        let action = chosen(weighted, self.world.below(total(weighted)));
        self.observe(subject);
        if !self.is_beyond.get() {
            self.perform(action, subject, targets).await;
        }
    }

    async fn perform(&self, action: Action, subject: &Subject, targets: &[Target]) {
        match action {
            Action::Pull => self.pull(),
            Action::PullTooMany => self.pull_too_many(targets),
            Action::Fail => self.fail(subject).await,
            Action::Stick => self.stick(),
            Action::Slow => self.slow(),
            Action::LatentErrors => self.latent_errors(),
            Action::PassingErrors => self.passing_errors(),
            Action::Rot => self.rot(),
            Action::LostWrite => self.write_fault(WriteFault::Lost),
            Action::MisdirectedWrite => self.write_fault(WriteFault::Misdirected(None)),
            Action::PlugBack => self.replace_lost(subject, true).await,
            Action::ReplaceLost => self.replace_lost(subject, false).await,
            Action::ReplaceHealthy => self.replace_healthy(subject).await,
            Action::AddSpare => self.add_spare(subject).await,
            Action::AddData => {
                if let Some((disk, top)) = self.new_disk() {
                    let added = self.bounded("adding a drive", subject.add_data(top)).await;
                    self.asked(&format!("add disk{disk}"), added);
                }
            }
            Action::Offline => self.take_offline(subject).await,
            Action::Online => self.take_back(subject).await,
            Action::Retire | Action::Remove => {
                let Some(place) = self.world.pick(&subject.places()) else { return };
                let asked = match action {
                    Action::Retire => self.bounded("retiring a drive", subject.retire(place.id)).await,
                    _ => self.bounded("removing a drive", subject.remove(place.id)).await,
                };
                self.asked(&format!("{action:?} disk{}", place.disk), asked);
            }
            Action::StartJobs => subject.start_jobs(),
            Action::WaitRebuilt => self.wait_rebuilt(subject, targets).await,
            Action::WaitChecked => {
                let ended = self.bounded("checking", subject.wait_checked()).await;
                self.asked("wait checked", ended);
            }
            Action::Scrub => {
                let recorded = self.bounded("recording a scrub", subject.scrub()).await;
                self.asked("scrub", recorded);
            }
            Action::Priority => {
                let percent = 1 + self.world.below(100) as u32;
                let set = self.bounded("a setting", subject.set_rebuild_priority(percent)).await;
                self.asked("priority", set);
            }
            Action::FlushAll => {
                for (store, guarded) in targets {
                    flush(self, store, guarded).await;
                }
            }
            Action::Verify => {
                for (store, guarded) in targets {
                    self.verify(store, guarded, false, "beside writes").await;
                }
            }
        }
    }

    fn pull(&self) {
        if let Some((disk, plugged)) = self.any_victim("pull") {
            self.pull_out(disk, &plugged);
        }
    }

    /// Pulls several drives at once, more than some volume tolerates: it must report that, and be
    /// as before when they return.
    fn pull_too_many(&self, targets: &[Target]) {
        let all: Vec<usize> = self.plugged.borrow().keys().copied().collect();
        // Nor with damage elsewhere: which of the drives the engine gives up before it knows that
        // they are too many is not known here, and what is damaged may need just that one.
        let troubled = self
            .plugged
            .borrow()
            .values()
            .any(|plugged| plugged.is_troubled.get() || plugged.faulty.unreadable_bytes() > 0);
        let troubled = troubled || !self.world.spoiled().is_empty();
        if troubled || all.len() < 3 || targets.len() != self.world.volumes.borrow().len() {
            return;
        }
        let count = 1 + self.world.below(all.len() as u64 - 2);
        let mut chosen = BTreeSet::new();
        while (chosen.len() as u64) < count {
            chosen.extend(self.world.pick(&all));
        }
        let fails = |(store, guarded): &&Target| {
            let facts = guarded.facts.borrow();
            store.surely_fails(&facts, &(&guarded.lost() | &chosen))
        };
        let is_spared = |(_, guarded): &&Target| guarded.can_spare(&chosen);
        let failing = targets.iter().filter(fails).count();
        // A volume that can do without some of these by luck is left out: what holds for it is not
        // known here.
        if failing == 0 || !targets.iter().all(|target| fails(&target) != is_spared(&target)) {
            return;
        }
        self.note(&format!("pull too many: {chosen:?}"));
        self.is_beyond.set(true);
        for (_, guarded) in targets {
            let is_failing = !guarded.can_spare(&chosen);
            if is_failing {
                guarded.oracle.borrow_mut().suspect_dirty();
            }
            guarded.harm(&chosen);
            guarded.is_failed.set(is_failing);
            guarded.is_uncertain.set(is_failing);
        }
        for disk in chosen {
            let plugged = self.plugged.borrow()[&disk].clone();
            self.pull_out(disk, &plugged);
            // They are back in the next life.
            self.world.disks.borrow_mut()[disk].is_away = false;
        }
    }

    async fn fail(&self, subject: &Subject) {
        let Some((disk, _)) = self.any_disk() else { return };
        let places = subject.places();
        let Some(place) = places.iter().find(|place| place.disk == disk && place.is_online) else { return };
        if !self.try_harm(&BTreeSet::from([disk])) {
            return;
        }
        self.count_loss();
        let volumes = self.world.volumes.borrow().clone();
        let on_it = volumes.iter().filter(|guarded| guarded.facts.borrow().disks().contains(&disk));
        let on_it: Vec<u32> = on_it.map(|guarded| guarded.number).collect();
        let failed = self.bounded("failing a drive", subject.fail_drive(place.id)).await;
        if let Some(Ok(())) = failed {
            // Recorded on all others by now.
            self.world.disks.borrow_mut()[disk].stale.extend(on_it);
        }
        self.asked(&format!("fail disk{disk}"), failed);
    }

    /// No answers for a while, perhaps for longer than the engine waits.
    fn stick(&self) {
        let timeout_ns = self.world.plan.settings.timeout_ns;
        let for_long = self.world.chance(0.4);
        let chosen = if for_long { self.any_victim("stick for long") } else { self.any_disk() };
        let Some((_, plugged)) = chosen else { return };
        let duration_ns = match for_long {
            true => timeout_ns * 5 / 4 + self.world.below(timeout_ns),
            false => self.world.below(timeout_ns / 4),
        };
        if for_long {
            self.count_loss();
        }
        self.stick_for(plugged, duration_ns);
    }

    fn slow(&self) {
        let Some((_, plugged)) = self.any_disk() else { return };
        let mean_ns = 1 + self.world.below(3_000_000);
        match self.world.below(3) {
            0 => plugged.faulty.set_delay(Delay::None),
            1 => plugged.faulty.set_slowdown(1.0 + self.world.below(20) as f64),
            _ => plugged.faulty.set_delay(Delay::Exponential { mean_ns }),
        }
    }

    fn latent_errors(&self) {
        let Some((disk, plugged)) = self.any_victim("latent errors on") else { return };
        for _ in 0..1 + self.world.below(4) {
            let start = self.draw_place(&plugged);
            let length = 4096 * (1 + self.world.below(64));
            let end = (start + length).min(plugged.top.info().capacity_bytes);
            plugged.faulty.make_unreadable(start..end);
            self.world.disks.borrow_mut()[disk].unreadable.push(start..end);
        }
    }

    fn passing_errors(&self) {
        let Some((_, plugged)) = self.any_victim("passing errors on") else { return };
        plugged.is_troubled.set(true);
        let (of_reads, of_writes) = (self.world.below(20), self.world.below(20));
        plugged.faulty.set_transient_errors(of_reads as f64 / 200.0, of_writes as f64 / 200.0);
        let context = self.context.clone();
        let duration_ns = self.world.below(30_000_000);
        self.context.spawn(async move {
            context.sleep_ns(duration_ns).await;
            plugged.faulty.set_transient_errors(0.0, 0.0);
            // The last of them may still be on their way.
            context.sleep_ns(100_000_000).await;
            plugged.is_troubled.set(false);
        });
    }

    /// Bits change in place, where that is promised to be noticed.
    fn rot(&self) {
        if !self.world.plan.promises.checksums {
            return;
        }
        let Some((disk, plugged)) = self.any_victim("rot on") else { return };
        self.world.disks.borrow_mut()[disk].is_spoiled = true;
        let crash = self.world.disks.borrow()[disk].crash.clone();
        for _ in 0..1 + self.world.below(8) {
            let place = self.draw_place(&plugged);
            let mut block = vec![0; 4096];
            crash.peek(place, &mut block);
            let at = self.world.below(4096) as usize;
            block[at] ^= 1 << self.world.below(8);
            let _ = crash.submit(IoRequest::write(place, Buffer::from_bytes(&block), false)).try_take();
            self.world.cover(|coverage| coverage.bit_rot += 1);
        }
    }

    /// A write is acknowledged and not done, or done elsewhere, where that is promised to be
    /// noticed.
    fn write_fault(&self, fault: WriteFault) {
        if !self.world.plan.promises.checksums {
            return;
        }
        if let Some((disk, plugged)) = self.any_victim(&format!("{fault:?} on")) {
            self.world.disks.borrow_mut()[disk].is_spoiled = true;
            plugged.faulty.arm_write_fault(fault);
        }
    }

    /// A drive in the place of one that is lost: the same one, come back, or a new one.
    async fn replace_lost(&self, subject: &Subject, by_itself: bool) {
        let lost: Vec<Place> = subject.places().into_iter().filter(|place| !place.is_online).collect();
        let Some(old) = self.world.pick(&lost) else { return };
        // Requests in flight to a drive when it was pulled have arrived by then.
        self.context.sleep_ns(5_000_000).await;
        let new = if by_itself { self.brought_back(old.disk) } else { self.new_disk() };
        let Some((disk, top)) = new else { return };
        self.world.disks.borrow_mut()[disk].stale.clear();
        let replaced = self.bounded("replacing a drive", subject.replace(old.id, top)).await;
        self.asked(&format!("replace disk{} by disk{disk}", old.disk), replaced);
    }

    async fn take_offline(&self, subject: &Subject) {
        let online: Vec<Place> = subject.places().into_iter().filter(|place| place.is_online).collect();
        let Some(place) = self.world.pick(&online) else { return };
        if !self.try_harm(&BTreeSet::from([place.disk])) {
            return;
        }
        let volumes = self.world.volumes.borrow().clone();
        let on_it = volumes.iter().filter(|guarded| guarded.facts.borrow().disks().contains(&place.disk));
        let on_it: Vec<u32> = on_it.map(|guarded| guarded.number).collect();
        let done = self.bounded("taking a drive offline", subject.offline(place.id)).await;
        if let Some(Ok(())) = done {
            self.count_loss();
            self.world.disks.borrow_mut()[place.disk].stale.extend(on_it);
        }
        self.asked(&format!("offline disk{}", place.disk), done);
    }

    /// A drive that was taken offline comes back and catches up.
    pub(crate) async fn take_back(&self, subject: &Subject) {
        let offline: Vec<Place> = subject.places().into_iter().filter(|place| place.is_offline).collect();
        let Some(place) = self.world.pick(&offline) else { return };
        // Requests in flight to it have arrived by then.
        self.context.sleep_ns(5_000_000).await;
        let Some((disk, top)) = self.brought_back(place.disk) else { return };
        self.world.disks.borrow_mut()[disk].stale.clear();
        let back = self.bounded("taking a drive back", subject.online(place.id, top)).await;
        self.asked(&format!("online disk{disk}"), back);
    }

    async fn add_spare(&self, subject: &Subject) {
        let Some((disk, top)) = self.new_disk() else { return };
        let added = self.bounded("adding a spare", subject.add_spare(top)).await;
        self.asked(&format!("spare disk{disk}"), added);
    }

    async fn wait_rebuilt(&self, subject: &Subject, targets: &[Target]) {
        let rebuilt = self.bounded("rebuilding", subject.wait_rebuilt()).await;
        if let Some(Ok(())) = rebuilt {
            self.recovered(subject, targets);
        }
        self.asked("wait rebuilt", rebuilt);
    }

    /// Volumes that are whole, on drives without trouble, can lose drives again.
    pub(crate) fn recovered(&self, subject: &Subject, targets: &[Target]) {
        self.observe(subject);
        let troubled = |disk: &usize| {
            let plugged = self.plugged.borrow();
            plugged
                .get(disk)
                .is_none_or(|plugged| plugged.is_troubled.get() || plugged.faulty.unreadable_bytes() > 0)
        };
        // The engine does not know yet, and may give a volume space there.
        let places = subject.places();
        let is_trusted = |disk: &usize| places.iter().any(|place| place.disk == *disk && place.is_online);
        for (store, guarded) in targets {
            let facts = guarded.facts.borrow();
            // Silent damage is known to be repaired only when everything was checked.
            if !facts.is_online
                || !facts.lacking_copies.is_empty()
                || !self.world.spoiled().is_empty()
                || facts.all_disks().iter().any(troubled)
            {
                continue;
            }
            guarded.harmed.borrow_mut().retain(|disk| troubled(disk) && is_trusted(disk));
            for disk in facts.disks() {
                self.world.disks.borrow_mut()[disk].stale.remove(&guarded.number);
            }
            if !store.needs_resync() {
                guarded.oracle.borrow_mut().resynchronised();
            }
        }
    }
}
