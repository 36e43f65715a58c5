//! One life: the pool is opened with what is on the drives, judged, used and mistreated, and ends
//! by being closed or by a power cut at any instant, that of opening included.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{join_all, select};
use stripewise_drive::{
    Buffer, CheckedDrive, Context, Delay, Drive, FaultyDrive, IoRequest, SplitMix64, WriteFault,
};

use stripewise_runtime::VirtualExecutor;

use crate::Sabotage;
use crate::clients::{Target, client, draw_hot};
use crate::content::BLOCK_BYTES;
use crate::losses::LastAnswer;
use crate::manner::Manner;
use crate::oracle::Oracle;
use crate::power::{Ending, Power, Wire};
use crate::subject::{Facts, NewVolume, Place, Subject, disk_number};
use crate::world::{Guarded, World};

/// Whatever takes longer than this in virtual time has not ended: many times what failing drives
/// one after the other take.
const PATIENCE_NS: u64 = 300_000_000_000;

/// A drive that is plugged in in this life.
pub(crate) struct Plugged {
    /// Where its faults are told it.
    pub faulty: Rc<FaultyDrive>,
    /// Where its flushes are.
    pub wire: Rc<Wire>,
    /// What the engine gets.
    pub top: Rc<dyn Drive>,
    /// Does not answer as it should at the moment.
    pub is_troubled: Cell<bool>,
}

impl Plugged {
    /// Blocks of these ranges that were not written since. The power is off, so what can be read is
    /// not answered.
    fn still_unreadable(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        if self.faulty.unreadable_bytes() == 0 {
            return Vec::new();
        }
        self.faulty.plug_in();
        self.faulty.release();
        self.faulty.set_transient_errors(0.0, 0.0);
        self.faulty.set_full(false);
        self.faulty.set_delay(Delay::None);
        let blocks = ranges.iter().flat_map(|range| range.clone().step_by(BLOCK_BYTES as usize));
        let is_unreadable = |start: &u64| {
            let buffer = Buffer::from_bytes(&[0; BLOCK_BYTES as usize]);
            let answer = self.faulty.submit(IoRequest::read(*start, buffer)).try_take();
            matches!(answer, Ok(Err(_)))
        };
        blocks.filter(is_unreadable).map(|start| start..start + BLOCK_BYTES).collect()
    }
}

/// A life.
pub(crate) struct Life {
    /// The run.
    pub world: Rc<World>,
    /// Its clock and tasks.
    pub context: Context,
    /// Its power.
    pub power: Rc<Power>,
    /// Drives by number.
    pub plugged: RefCell<BTreeMap<usize, Rc<Plugged>>>,
    /// The pool, once it is open.
    pub subject: RefCell<Option<Subject>>,
    /// More was taken from a volume than it can do without: nothing else is done to the pool.
    pub is_beyond: Cell<bool>,
    /// A drive was lost, and power goes with this answer.
    pub last_answer: Cell<Option<LastAnswer>>,
    is_ending: Cell<bool>,
}

impl Life {
    /// With these drives plugged in.
    pub(crate) fn new(world: &Rc<World>, context: Context, disks: &BTreeSet<usize>) -> Rc<Self> {
        let life = Rc::new(Self {
            world: world.clone(),
            context,
            power: Power::new(),
            plugged: RefCell::default(),
            subject: RefCell::default(),
            is_beyond: Cell::new(false),
            last_answer: Cell::new(None),
            is_ending: Cell::new(false),
        });
        for disk in disks {
            life.plug(*disk);
        }
        life
    }

    /// Plugs a drive in, as it is.
    pub(crate) fn plug(&self, disk: usize) -> Rc<Plugged> {
        let plan = &self.world.plan;
        let crash = self.world.disks.borrow()[disk].crash.clone();
        let (wire_seed, fault_seed) = (self.world.next_seed(), self.world.next_seed());
        let power = self.power.clone();
        let wire = Wire::new(&self.context, crash, power, plan.latency, plan.queued, wire_seed);
        let faulty = FaultyDrive::new(&self.context, wire.clone(), fault_seed);
        for range in &self.world.disks.borrow()[disk].unreadable {
            faulty.make_unreadable(range.clone());
        }
        if self.world.options.sabotage == Some(Sabotage::LostWrites) {
            faulty.set_write_fault_rate(0.02, WriteFault::Lost);
        }
        let top = CheckedDrive::new(&self.context, faulty.clone());
        let plugged = Rc::new(Plugged { faulty, wire, top, is_troubled: Cell::new(false) });
        self.plugged.borrow_mut().insert(disk, plugged.clone());
        plugged
    }

    /// Notes what happened.
    pub(crate) fn note(&self, what: &str) {
        self.world.note(self.context.now_ns(), what);
    }

    /// A promise was broken; what the pool says of itself is added.
    pub(crate) fn broken(&self, promise: &str, detail: String) {
        let pool = self.subject.borrow().as_ref().map_or_else(String::new, |subject| subject.in_words());
        let at_ms = self.context.now_ns() as f64 / 1e6;
        self.world.broken(promise, format!("{detail} (at {at_ms:.3} ms; pool: {pool})"));
    }

    /// Whether there is nothing more to do in this life.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending.get() || self.power.is_off() || self.world.is_broken()
    }

    /// What `work` gives; `None`, and a broken promise, if it does not end.
    pub(crate) async fn bounded<T>(&self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        self.bounded_by(PATIENCE_NS, what, work).await
    }

    /// As [`Self::bounded`], of what a client asks: in a crowded life that is to end sooner.
    pub(crate) async fn answered<T>(&self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        let is_crowded = self.world.plan.manner.is_crowded;
        let patience_ns = if is_crowded { Manner::PATIENCE_NS } else { PATIENCE_NS };
        self.bounded_by(patience_ns, what, work).await
    }

    async fn bounded_by<T>(&self, patience_ns: u64, what: &str, work: impl Future<Output = T>) -> Option<T> {
        let work = pin!(work);
        let result = self.context.time_limit_ns(patience_ns, work).await;
        if result.is_err() {
            self.broken("progress", format!("{what} has not ended after {} s", patience_ns / 1_000_000_000));
        }
        result.ok()
    }

    /// The volumes that are open, with their judges.
    pub(crate) fn targets(&self, subject: &Subject) -> Vec<Target> {
        let volumes = self.world.volumes.borrow();
        let open = |guarded: &Rc<Guarded>| Some((subject.volume(&guarded.name).ok()?, guarded.clone()));
        volumes.iter().filter_map(open).collect()
    }

    /// Looks at how the volumes are.
    pub(crate) fn observe(&self, subject: &Subject) {
        for facts in subject.facts() {
            if let Some(guarded) = self.world.volumes.borrow().iter().find(|v| v.name == facts.name) {
                // A drive that cannot read all of itself may have taken the place of another.
                let damaged = facts.all_disks().into_iter().filter(|disk| self.is_damaged(*disk));
                guarded.harmed.borrow_mut().extend(damaged);
                guarded.harmed.borrow_mut().extend(self.world.spoiled());
                *guarded.facts.borrow_mut() = facts;
            }
        }
    }

    fn is_damaged(&self, disk: usize) -> bool {
        self.plugged.borrow().get(&disk).is_some_and(|plugged| plugged.faulty.unreadable_bytes() > 0)
    }

    /// Drives in a random order.
    pub(crate) fn tops(&self) -> Vec<Rc<dyn Drive>> {
        let plugged = self.plugged.borrow();
        let mut tops: Vec<Rc<dyn Drive>> = plugged.values().map(|plugged| plugged.top.clone()).collect();
        for index in (1..tops.len()).rev() {
            tops.swap(index, self.world.below(index as u64 + 1) as usize);
        }
        tops
    }

    /// Makes the pool and its volumes; no power is cut here.
    async fn create(&self) -> Option<Subject> {
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

    /// Makes a volume and gives it a judge.
    pub(crate) async fn make_volume(&self, subject: &Subject, new: &NewVolume) {
        let plan = &self.world.plan;
        let number = self.world.next_volume.replace(self.world.next_volume.get() + 1) as u32;
        let new = NewVolume { name: format!("v{number}"), ..new.clone() };
        let made = self.bounded("making a volume", subject.create_volume(plan.settings, &new)).await;
        let store = match made {
            Some(Ok(store)) => store,
            Some(Err(why)) => return self.note(&format!("{} is not made: {why}", new.name)),
            None => return,
        };
        let facts = subject.facts().into_iter().find(|facts| facts.name == new.name);
        let Some(facts) = facts else {
            let detail = format!("{} was made and is not there", new.name);
            return self.broken("nothing-refused", detail);
        };
        let parity_stripe = store.has_parity().then(|| store.stripe_bytes());
        let size_bytes = store.capacity_bytes();
        let is_crowded = plan.manner.is_crowded;
        let written_bytes = if is_crowded { size_bytes.min(2 * store.region_bytes()) } else { size_bytes };
        let guarded = Guarded {
            number,
            name: new.name.clone(),
            oracle: RefCell::new(Oracle::new(number, size_bytes, parity_stripe, plan.promises)),
            harmed: RefCell::default(),
            is_failed: Cell::new(false),
            may_refuse_writes: Cell::new(false),
            is_uncertain: Cell::new(false),
            is_changed: Cell::new(false),
            facts: RefCell::new(facts),
            is_thin: new.thin,
            is_leaving: Cell::new(false),
            hot: draw_hot(&mut self.world.random.borrow_mut(), written_bytes, store.stripe_bytes()),
            stripe_sectors: (store.stripe_bytes() / crate::content::SECTOR_BYTES) as u32,
        };
        // What may be missing of drives that it could lie on is known before it is first judged.
        guarded.harmed.borrow_mut().extend(self.world.spoiled());
        self.note(&format!("{} is made: {:?}, {size_bytes} bytes", new.name, new.layout));
        self.world.volumes.borrow_mut().push(Rc::new(guarded));
        self.observe(subject);
    }

    /// Opens the pool and judges how it is found.
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
        // A disk that came back as another drive is both: the one that is lost, and the one that is
        // being filled.
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
                // The engine knows, and may bring it up to date, or put something new on it, at any
                // time.
                disk.stale.remove(&guarded.number);
            }
        }
        if self.world.conversions.is_some() {
            // A drive's data of a former layout counts no more.
            let has_none = |disk: &usize| facts.columns.iter().all(|column| column.disk != *disk);
            (0..disks.len()).filter(has_none).for_each(|disk| {
                disks[disk].stale.remove(&guarded.number);
            });
        }
        // What is recorded counts from now on.
        let damaged = facts.all_disks().into_iter().filter(|disk| !disks[*disk].unreadable.is_empty());
        // Also a drive without anything of the volume may get some of it.
        let spoiled = (0..disks.len()).filter(|disk| disks[*disk].is_spoiled);
        let mut harmed = guarded.harmed.borrow_mut();
        if guarded.is_uncertain.get() || facts.is_whole() {
            *harmed = &facts.behind() | &facts.lacking_copies;
        }
        harmed.extend(damaged.chain(spoiled));
        guarded.is_uncertain.set(false);
    }

    /// A life in which anything may happen.
    async fn lead(self: Rc<Self>, number: usize, ending: Ending) {
        if number > 0 {
            self.arm(ending);
        }
        let subject = if number == 0 { self.create().await } else { self.open().await };
        let Some(subject) = subject else { return };
        *self.subject.borrow_mut() = Some(subject.clone());
        let targets = self.targets(&subject);
        if number == 0 {
            self.arm(ending);
        }
        for (store, guarded) in &targets {
            self.verify(store, guarded, false, "after opening").await;
            if !store.needs_resync() && guarded.lost().is_empty() {
                guarded.oracle.borrow_mut().resynchronised();
            }
        }
        if targets.is_empty() || self.is_over() {
            return;
        }
        if self.world.chance(0.6) {
            subject.start_jobs();
        }
        let manner = self.world.plan.manner;
        let rests = manner.is_paired && self.world.is_copy_to_be_seen(number);
        let targets = match manner.is_paired {
            true => targets,
            false => self.change_volumes(&subject, targets).await,
        };
        if targets.is_empty() || self.is_over() {
            return;
        }
        if !manner.is_paired {
            self.perhaps_convert(&subject, &targets).await;
        }
        let clients = match manner.is_crowded {
            _ if rests => 3,
            true => 8 + self.world.below(33),
            false => 1 + self.world.below(6),
        };
        let steps = match manner.is_often {
            _ if rests => 10 + self.world.below(40),
            true => self.world.below(12),
            false => 10 + self.world.below(if manner.is_crowded { 2000 } else { 400 }) / clients,
        };
        let mut random = SplitMix64::new(self.world.next_seed());
        let mut running: Vec<_> = (0..clients)
            .map(|_| client(self.clone(), targets.clone(), random.next_u64(), steps))
            .map(|client| self.context.spawn(client))
            .collect();
        if manner.is_crowded && !rests {
            running.push(self.context.spawn(self.clone().stir(targets.clone(), random.next_u64())));
        }
        self.count_manner();
        let actions = match manner {
            Manner { is_often: true, .. } => self.world.below(3),
            Manner { is_paired: true, .. } => 0,
            Manner { is_crowded: true, .. } => 4 + self.world.below(16),
            _ => self.world.below(10),
        };
        for _ in 0..actions {
            self.context.sleep_ns(self.pause_ns()).await;
            if self.is_over() {
                break;
            }
            self.perhaps_convert(&subject, &targets).await;
            // It may have deleted one.
            let targets = self.targets(&subject);
            self.perhaps_lose_power_with_a_drive().await;
            self.perhaps_pin(&subject, &targets).await;
            self.perhaps_rebalance(&subject).await;
            self.perhaps_fail_otherwise(&subject, &targets).await;
            self.act(&subject, &targets).await;
        }
        if matches!(ending, Ending::Close) || self.world.is_broken() {
            if self.world.chance(0.5) {
                self.is_ending.set(true);
            }
            self.bounded("the clients", join_all(running)).await;
            self.is_ending.set(true);
            self.end(&subject).await;
        } else {
            self.context.sleep_ns(self.world.below(20_000_000)).await;
        }
    }

    fn count_manner(&self) {
        let plan = &self.world.plan;
        self.world.cover(|coverage| {
            coverage.crowded_lives += u64::from(plan.manner.is_crowded);
            coverage.short_lives += u64::from(plan.manner.is_often);
            coverage.long_lives += u64::from(plan.manner.is_long);
            coverage.tiered_lives += u64::from(!plan.fast_bytes.is_empty());
        });
    }

    fn arm(self: &Rc<Self>, ending: Ending) {
        match ending {
            Ending::CutAtCopy(structure, count) => self.power.cut_at_copy(structure, count),
            Ending::Close => {}
            Ending::CutAtWrite(count) => self.power.cut_at_write(count),
            Ending::CutAfter(delay_ns) => {
                let life = self.clone();
                self.context.spawn(async move {
                    life.context.sleep_ns(delay_ns).await;
                    life.power.cut();
                });
            }
        }
    }

    fn count_interrupted(&self, subject: &Subject) {
        self.world.cover(|coverage| {
            coverage.interrupted_rebuilds += u64::from(subject.is_rebuilding());
            coverage.interrupted_conversions += u64::from(subject.is_converting());
            coverage.interrupted_replacements += u64::from(subject.is_replacing());
            coverage.interrupted_rebalances += u64::from(subject.is_rebalancing());
        });
    }

    /// Closes the pool; all that was acknowledged is durable then.
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
            // Where there is no space left under the drives, closing makes durable what can be.
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

/// Leads one life. `kept`: executors, which a panic must not drop.
pub(crate) fn live(world: &Rc<World>, number: usize, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    let executor = new_executor(world, kept);
    let absent = world.draw_absent(number);
    let present: BTreeSet<usize> =
        (0..world.disks.borrow().len()).filter(|disk| !absent.contains(disk)).collect();
    let ending = world.draw_ending(number);
    let life = Life::new(world, executor.context(), &present);
    life.note(&format!("life {number}, absent {absent:?}, to end by {ending:?}"));
    executor.block_on(async {
        let lead = pin!(life.clone().lead(number, ending));
        let cut = pin!(life.power.until_off());
        select(lead, cut).await;
    });
    end_of_life(&life, number, matches!(ending, Ending::Close));
}

/// An executor for a life.
pub(crate) fn new_executor(world: &World, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) -> Rc<VirtualExecutor> {
    let seed = world.next_seed();
    let executor = match world.plan.shuffled {
        true => VirtualExecutor::shuffled(seed),
        false => VirtualExecutor::new(),
    };
    let executor = Rc::new(executor);
    kept.borrow_mut().push(executor.clone());
    executor
}

/// Power goes, at the latest now: the drives keep or lose what they had in their caches.
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
    // Before anybody looks which sectors are still bad.
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
        // What was acknowledged without them, they do not have.
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
