//! The beginning of a life: the pool is created, or opened from the drives and judged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::SplitMix64;

use super::Life;
use crate::subject::{Facts, NewVolume, Place, Store, Subject};
use crate::world::content::SECTOR_BYTES;
use crate::world::descriptors::Descriptors;
use crate::world::guarded::{Guarded, draw_hot};
use crate::world::oracle::Oracle;

impl Life {
    /// Creates the pool and its volumes, without a power cut.
    pub(crate) async fn create(&self) -> Option<Subject> {
        let plan = &self.world.plan;
        let top = |disk: usize| self.plugged.borrow()[&disk].top.clone();
        let data: Vec<_> = (0..plan.data_bytes.len()).map(top).collect();
        let spares: Vec<_> = (data.len()..data.len() + plan.spare_bytes.len()).map(top).collect();
        let first_journal = data.len() + spares.len();
        let journals: Vec<_> = (first_journal..first_journal + plan.journal_bytes.len()).map(top).collect();
        let first_fast = first_journal + journals.len();
        let fast: Vec<_> = (first_fast..first_fast + plan.fast_bytes.len()).map(top).collect();
        let made = Subject::create(&self.context, plan.settings, data, spares, journals, fast);
        let subject = match self.bounded("making the pool", made).await? {
            Ok(subject) => subject,
            Err(why) => {
                self.broken("nothing-refused", format!("the pool cannot be made: {why}"));
                return None;
            }
        };
        for new in &plan.volumes {
            self.make_volume(&subject, new).await;
        }
        Some(subject)
    }

    /// Creates a volume and its model.
    pub(crate) async fn make_volume(&self, subject: &Subject, new: &NewVolume) {
        let number = self.world.next_volume.replace(self.world.next_volume.get() + 1) as u32;
        let slices = self.world.plan.slices_of(number, &self.world.options);
        let new = NewVolume { name: format!("v{number}"), slices, ..new.clone() };
        *self.world.being_made.borrow_mut() = Some(new.clone());
        let settings = self.world.plan.settings;
        let Some(made) = self.bounded("making a volume", subject.create_volume(settings, &new)).await else {
            return;
        };
        *self.world.being_made.borrow_mut() = None;
        match made {
            Ok(store) => self.judge_from_now(subject, &store, number, &new, &self.world.random),
            Err(why) => self.note(&format!("{} is not made: {why}", new.name)),
        }
    }

    /// Creates the model of a new volume, which reads as zeros.
    fn judge_from_now(
        &self,
        subject: &Subject,
        store: &Store,
        number: u32,
        new: &NewVolume,
        random: &RefCell<SplitMix64>,
    ) {
        let facts = subject.facts().into_iter().find(|facts| facts.name == new.name);
        let Some(facts) = facts else {
            let detail = format!("{} was made and is not there", new.name);
            return self.broken("nothing-refused", detail);
        };
        let plan = &self.world.plan;
        let parity_stripe = store.has_parity().then(|| store.stripe_bytes());
        let size_bytes = store.capacity_bytes();
        let is_crowded = plan.manner.is_crowded;
        let written_bytes = if is_crowded { size_bytes.min(2 * store.region_bytes()) } else { size_bytes };
        let guarded = Guarded {
            number,
            name: new.name.clone(),
            oracle: RefCell::new(Oracle::new(number, size_bytes, parity_stripe, plan.promises)),
            descriptors: Descriptors::default(),
            harmed: RefCell::default(),
            is_failed: Cell::new(false),
            may_refuse_writes: Cell::new(false),
            is_uncertain: Cell::new(false),
            is_changed: Cell::new(false),
            facts: RefCell::new(facts),
            is_thin: new.thin,
            is_leaving: Cell::new(false),
            hot: draw_hot(&mut random.borrow_mut(), written_bytes, store.stripe_bytes()),
            stripe_sectors: (store.stripe_bytes() / SECTOR_BYTES) as u32,
        };
        // Harmed drives that the volume could use must be known before it is first judged.
        guarded.harmed.borrow_mut().extend(self.world.spoiled());
        self.note(&format!("{} is made: {:?}, {size_bytes} bytes", new.name, new.layout));
        self.world.volumes.borrow_mut().push(Rc::new(guarded));
        self.observe(subject);
    }

    /// Judges a volume that was being created at a power cut. If it exists and is whole, it is
    /// kept. If drives are missing, it is deleted: their losses were not accounted to it.
    async fn judge_being_made(&self, subject: &Subject) {
        let (Some(random), Some(new)) = (self.world.later(), self.world.being_made.take()) else { return };
        let all = subject.facts();
        let Some(facts) = all.iter().find(|facts| facts.name == new.name) else { return };
        let number = new.name.trim_start_matches('v').parse().expect("a number was put there");
        match subject.volume(&new.name) {
            Ok(store) if facts.is_whole() && facts.is_online => {
                self.judge_from_now(subject, &store, number, &new, random);
            }
            _ => {
                let deleted = self.bounded("deleting a volume", subject.delete_volume(&new.name)).await;
                self.note(&format!("delete {}, which was being made: {deleted:?}", new.name));
            }
        }
    }

    /// Opens the pool and judges its state.
    pub(crate) async fn open(&self) -> Option<Subject> {
        let settings = self.world.settings();
        let opened = Subject::open(&self.context, settings, self.tops(), false);
        let subject = match self.bounded("opening", opened).await? {
            Ok(subject) => subject,
            Err(why) => {
                self.broken("nothing-refused", format!("the pool cannot be opened: {why}"));
                return None;
            }
        };
        *self.subject.borrow_mut() = Some(subject.clone());
        self.note(&format!("opened: {}", subject.in_words()));
        let facts = subject.facts();
        let places = subject.places();
        for guarded in self.world.volumes.borrow().iter() {
            match facts.iter().find(|facts| facts.name == guarded.name) {
                Some(facts) => self.judge_opened(guarded, facts, &places),
                None if guarded.is_leaving.get() => {}
                None => self.broken("nothing-refused", format!("volume {} is gone", guarded.name)),
            }
        }
        let is_there = |guarded: &Rc<Guarded>| facts.iter().any(|facts| facts.name == guarded.name);
        if !self.world.is_broken() {
            self.world.volumes.borrow_mut().retain(is_there);
        }
        self.judge_being_made(&subject).await;
        for (store, guarded) in self.targets(&subject) {
            guarded.is_leaving.set(false);
            guarded.oracle.borrow_mut().resize(store.capacity_bytes());
        }
        Some(subject)
    }

    fn judge_opened(&self, guarded: &Guarded, facts: &Facts, places: &[Place]) {
        *guarded.facts.borrow_mut() = facts.clone();
        if !facts.is_readable {
            let harmed = guarded.harmed.borrow().clone();
            let detail = format!("{} cannot be read, though only {harmed:?} were harmed", guarded.name);
            return self.broken("nothing-refused", detail);
        }
        let harmed = guarded.harmed.borrow().clone();
        // A disk that was added again as a new drive counts twice: as lost and as being filled.
        let drives_of = |disk: &usize| places.iter().filter(|place| place.disk == *disk).count().max(1);
        if facts.counted_lost > harmed.iter().map(drives_of).sum() {
            let lost = facts.behind();
            let detail = format!("{}: {lost:?} count as lost, harmed were {harmed:?}", guarded.name);
            self.broken("no-needless-loss", detail);
        }
        let mut disks = self.world.disks.borrow_mut();
        for (number, disk) in disks.iter_mut().enumerate() {
            let is_current = facts.columns.iter().any(|column| column.disk == number && column.is_current);
            if is_current && disk.stale.contains(&guarded.number) {
                let detail = format!("{}: disk{number} was away and counts as current", guarded.name);
                self.broken("no-stale-drive", detail);
            } else if self.plugged.borrow().contains_key(&number) {
                // The engine knows of the gap, and may resync the disk or place new data on it at
                // any time.
                disk.stale.remove(&guarded.number);
            }
        }
        if self.world.conversions.is_some() {
            // Data of the previous layout no longer counts.
            let has_none = |disk: &usize| facts.columns.iter().all(|column| column.disk != *disk);
            (0..disks.len()).filter(has_none).for_each(|disk| {
                disks[disk].stale.remove(&guarded.number);
            });
        }
        // The recorded losses count from now on.
        let damaged = facts.all_disks().into_iter().filter(|disk| !disks[*disk].unreadable.is_empty());
        // Also drives without data of the volume: it may be placed on them.
        let spoiled = (0..disks.len()).filter(|disk| disks[*disk].is_spoiled);
        let mut harmed = guarded.harmed.borrow_mut();
        if guarded.is_uncertain.get() || facts.is_whole() {
            *harmed = &facts.behind() | &facts.lacking_copies;
        }
        harmed.extend(damaged.chain(spoiled));
        guarded.is_uncertain.set(false);
    }
}
