//! One life of a run: its drives on their power, its pool, and what is promised of all that is
//! asked of it. What clients do to it is in `clients.rs`, what they read is judged in `judge.rs`.

pub(crate) mod clients;
pub(crate) mod closing;
mod judge;
mod opening;
mod verify;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

use stripewise_drive::{Buffer, CheckedDrive, Context, Delay, Drive, FaultyDrive, IoRequest, WriteFault};
use stripewise_runtime::VirtualExecutor;

use crate::Sabotage;
use crate::power::{LastAnswer, Power, Traits, Wire};
use crate::subject::Subject;
use crate::world::World;
use crate::world::content::BLOCK_BYTES;
use crate::world::guarded::{Guarded, Target};
use crate::world::manner::Manner;

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
    /// Clients are to end.
    pub is_ending: Cell<bool>,
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
        let traits = Traits { latency: plan.latency, queued: plan.queued, gap_bytes: plan.gap_bytes };
        let wire = Wire::new(&self.context, crash, power, traits, wire_seed);
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

    /// What was begun at this time is acknowledged, durably.
    pub(crate) fn acknowledged_durably(&self, began_ns: u64) {
        let Some(last) = self.last_answer.get() else { return };
        if last.is_it(began_ns, self.context.now_ns()) {
            self.note("acknowledged without the drive that was lost: power goes");
            self.power.cut();
        }
    }
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
