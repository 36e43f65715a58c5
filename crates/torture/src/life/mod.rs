//! One life of a run, from opening the pool to its closing or a power cut: the drives, their power
//! supply and the pool. The clients are in `clients.rs`; `judge.rs` judges what they read.

pub(crate) mod clients;
pub(crate) mod closing;
mod files;
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

use self::files::Mounted;
use crate::Sabotage;
use crate::power::{LastAnswer, Power, Traits, Wire};
use crate::subject::Subject;
use crate::world::World;
use crate::world::content::BLOCK_BYTES;
use crate::world::guarded::{Guarded, Target};
use crate::world::manner::Manner;

/// Virtual time after which work counts as stuck: many times the delay of drives that fail one
/// after the other.
const PATIENCE_NS: u64 = 300_000_000_000;

/// Processor time of a turn at most, ns: hundreds of times what the longest one takes, also without
/// optimisation.
const MOST_CPU_NS: u64 = 2_000_000_000;

/// A drive that is plugged in in this life.
pub(crate) struct Plugged {
    /// Layer that injects faults.
    pub faulty: Rc<FaultyDrive>,
    /// Layer with the drive's latency and flush faults.
    pub wire: Rc<Wire>,
    /// Top layer, which the engine uses.
    pub top: Rc<dyn Drive>,
    /// True while a fault disturbs the drive's answers.
    pub is_troubled: Cell<bool>,
    /// True once its connection was lost: it does not answer any more.
    pub is_dead: Cell<bool>,
}

impl Plugged {
    /// Returns the blocks of these ranges that are still unreadable. The power is off: reads of
    /// good blocks never complete.
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
    /// State of the run.
    pub world: Rc<World>,
    /// Clock and tasks.
    pub context: Context,
    /// Power supply.
    pub power: Rc<Power>,
    /// Plugged drives by number.
    pub plugged: RefCell<BTreeMap<usize, Rc<Plugged>>>,
    /// The pool, once it is open.
    pub subject: RefCell<Option<Subject>>,
    /// The mount that clients use volumes by, in lives that have one.
    pub mounted: RefCell<Option<Mounted>>,
    /// True once a volume has lost more than it survives: no further events are injected.
    pub is_beyond: Cell<bool>,
    /// Completion that triggers the power cut after the loss of a drive.
    pub last_answer: Cell<Option<LastAnswer>>,
    /// True once clients must stop.
    pub is_ending: Cell<bool>,
}

impl Life {
    /// Begins a life with these drives plugged in.
    pub(crate) fn new(world: &Rc<World>, context: Context, disks: &BTreeSet<usize>) -> Rc<Self> {
        let life = Rc::new(Self {
            world: world.clone(),
            context,
            power: Power::new(),
            plugged: RefCell::default(),
            subject: RefCell::default(),
            mounted: RefCell::default(),
            is_beyond: Cell::new(false),
            last_answer: Cell::new(None),
            is_ending: Cell::new(false),
        });
        for disk in disks {
            life.plug(*disk);
        }
        life
    }

    /// Plugs in a drive.
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
        let plugged =
            Rc::new(Plugged { faulty, wire, top, is_troubled: Cell::default(), is_dead: Cell::default() });
        self.plugged.borrow_mut().insert(disk, plugged.clone());
        plugged
    }

    /// Logs an event.
    pub(crate) fn note(&self, what: &str) {
        self.world.note(self.context.now_ns(), what);
    }

    /// Reports a broken guarantee, with the pool's status.
    pub(crate) fn broken(&self, promise: &str, detail: String) {
        let pool = self.subject.borrow().as_ref().map_or_else(String::new, |subject| subject.in_words());
        let at_ms = self.context.now_ns() as f64 / 1e6;
        self.world.broken(promise, format!("{detail} (at {at_ms:.3} ms; pool: {pool})"));
    }

    /// True if the life has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending.get() || self.power.is_off() || self.world.is_broken()
    }

    /// Awaits `work`. Returns `None` and reports a broken guarantee if it does not end.
    pub(crate) async fn bounded<T>(&self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        self.bounded_by(PATIENCE_NS, what, work).await
    }

    /// As [`Self::bounded`], for a client's request, which must end sooner in a life with many
    /// clients.
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

    /// Returns the open volumes with their models, as clients use them.
    pub(crate) fn targets(&self, subject: &Subject) -> Vec<Target> {
        let (volumes, mounted) = (self.world.volumes.borrow(), self.mounted.borrow());
        let open = |guarded: &Rc<Guarded>| {
            let mut store = subject.volume(&guarded.name).ok()?;
            if self.world.plan.settings.direct {
                store = store.on_threads_of_arrays(&self.context);
            }
            let file = mounted.as_ref().and_then(|mounted| mounted.files.get(&guarded.number));
            let store = file.map_or_else(|| store.clone(), |file| store.through(file, 0));
            Some((store, guarded.clone()))
        };
        volumes.iter().filter_map(open).collect()
    }

    /// Updates the facts about the volumes.
    pub(crate) fn observe(&self, subject: &Subject) {
        for facts in subject.facts() {
            if let Some(guarded) = self.world.volumes.borrow().iter().find(|v| v.name == facts.name) {
                // A drive with unreadable blocks may have replaced another.
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

    /// Plugged drives in random order.
    pub(crate) fn tops(&self) -> Vec<Rc<dyn Drive>> {
        let plugged = self.plugged.borrow();
        let mut tops: Vec<Rc<dyn Drive>> = plugged.values().map(|plugged| plugged.top.clone()).collect();
        for index in (1..tops.len()).rev() {
            tops.swap(index, self.world.below(index as u64 + 1) as usize);
        }
        tops
    }

    /// Records a durable acknowledgement of a request that began at `began_ns`; may cut power.
    pub(crate) fn acknowledged_durably(&self, began_ns: u64) {
        let Some(last) = self.last_answer.get() else { return };
        if last.is_it(began_ns, self.context.now_ns()) {
            self.note("acknowledged without the drive that was lost: power goes");
            self.power.cut();
        }
    }
}

/// Creates an executor for a life.
pub(crate) fn new_executor(world: &World, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) -> Rc<VirtualExecutor> {
    let seed = world.next_seed();
    let executor = match world.plan.shuffled {
        true => VirtualExecutor::shuffled(seed),
        false => VirtualExecutor::new(),
    };
    executor.limit_turn_ns(MOST_CPU_NS);
    let executor = Rc::new(executor);
    kept.borrow_mut().push(executor.clone());
    executor
}
