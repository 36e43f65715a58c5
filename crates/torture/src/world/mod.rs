//! State that lasts from life to life of a run: the drives with their contents, the judges of the
//! volumes, the harmed drives, the findings.

pub(crate) mod bias;
pub(crate) mod content;
mod copies;
pub(crate) mod descriptors;
mod draw;
pub(crate) mod guarded;
mod history;
mod lives;
pub(crate) mod manner;
pub(crate) mod oracle;
pub(crate) mod plan;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{CrashDrive, MemoryDrive, SplitMix64};

use bias::Bias;
use copies::{KeptCopy, OnlyCopy};
use guarded::Guarded;
use plan::Plan;

use crate::subject::{NewVolume, Settings, disk_label};
use crate::{Coverage, Drawn, Failure, Options, RunReport};

/// A drive of the run, whether or not it is plugged in.
pub(crate) struct Disk {
    /// Its memory, with its cache.
    pub crash: Rc<CrashDrive>,
    /// Pulled: it may come back in another life.
    pub is_away: bool,
    /// Ranges that could not be read when it was last seen.
    pub unreadable: Vec<Range<u64>>,
    /// Some of it may be wrong in a way that only checksums detect, and has not been found and
    /// repaired since.
    pub is_spoiled: bool,
    /// Volumes (by number) that went on without it: what it holds of them is out of date.
    pub stale: BTreeSet<u32>,
}

/// A run.
pub(crate) struct World {
    /// Its seed.
    pub seed: u64,
    /// Options of the run.
    pub options: Options,
    /// Plan of the run.
    pub plan: Plan,
    /// Probabilities of events.
    pub bias: &'static Bias,
    /// Source of all events; clients have their own.
    pub random: RefCell<SplitMix64>,
    /// Source of conversions, in runs that have any.
    pub conversions: Option<RefCell<SplitMix64>>,
    /// Source of drives lost with the power, in runs that have any.
    pub losses: Option<RefCell<SplitMix64>>,
    /// Source of lost connections, in runs that have any.
    pub connections: Option<RefCell<SplitMix64>>,
    /// Share of zeros and discards that clients force, in runs that have any.
    pub forced_zeroes: f64,
    /// Source of rebalances, in runs that have any.
    pub moving: Option<RefCell<SplitMix64>>,
    /// Source of mounts and of the descriptors that are used, in runs that have any.
    pub files: Option<RefCell<SplitMix64>>,
    /// Source of later kinds of events: see [`World::later`].
    later: Option<RefCell<SplitMix64>>,
    /// Earlier contents of a drive.
    pub copy: RefCell<Option<KeptCopy>>,
    /// The drive that alone has a copy of something.
    pub only_copy: Cell<Option<OnlyCopy>>,
    /// All drives ever.
    pub disks: RefCell<Vec<Disk>>,
    /// All volumes.
    pub volumes: RefCell<Vec<Rc<Guarded>>>,
    /// Events tried.
    pub coverage: RefCell<Coverage>,
    /// Volumes ever made: their numbers.
    pub next_volume: Cell<u64>,
    /// One that was being made when power went: it may be there or not.
    pub being_made: RefCell<Option<NewVolume>>,
    /// Number of openings of the pool.
    openings: Cell<u64>,
    failures: RefCell<Vec<Failure>>,
    trace_hash: Cell<u64>,
    log: RefCell<Vec<String>>,
}

/// More failures of one run than this say nothing new.
const MAX_FAILURES: usize = 4;

impl World {
    /// Before anything happened.
    pub(crate) fn new(seed: u64, options: &Options) -> Rc<Self> {
        let mut random = SplitMix64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x7052_7475_7265);
        let plan = Plan::draw(seed, &mut random, options);
        let has_later = options.drawn != Drawn::BeforeConversions;
        let bias = Bias::of(options.focus);
        // With a focus every seed has all that its lives are made of.
        let has = |by_seed: bool, probability: f64| match options.focus {
            Some(_) => probability > 0.0,
            None => by_seed,
        };
        let has_connections = seed.is_multiple_of(4) && options.drawn.has_connections();
        let world = Self {
            seed,
            options: *options,
            plan,
            bias,
            random: RefCell::new(random),
            conversions: has(seed % 4 == 3 && has_later, bias.conversion)
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x636f_6e76_6572_7473))),
            losses: has(seed % 4 == 1 && has_later, bias.power_with_drive)
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x6c6f_7373_6573))),
            connections: has(has_connections, bias.connection)
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x636f_6e6e_6563_7473))),
            forced_zeroes: if has(has_connections, bias.forced_zeroes) { bias.forced_zeroes } else { 0.0 },
            moving: has(seed % 4 == 2 && options.drawn.has_tuning(), bias.rebalance)
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x6d6f_7669_6e67))),
            files: has(seed % 3 == 1 && options.drawn.has_files(), bias.mounted)
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x6669_6c65_7321))),
            later: (options.drawn.has_tuning())
                .then(|| RefCell::new(SplitMix64::new(seed ^ 0x6c61_7465_7221))),
            copy: RefCell::default(),
            only_copy: Cell::default(),
            disks: RefCell::default(),
            volumes: RefCell::default(),
            coverage: RefCell::default(),
            next_volume: Cell::new(0),
            being_made: RefCell::default(),
            openings: Cell::new(0),
            failures: RefCell::default(),
            trace_hash: Cell::new(0xcbf2_9ce4_8422_2325),
            log: RefCell::default(),
        };
        world.note(0, &format!("{:?}", world.plan));
        let plan = &world.plan;
        let sizes = plan
            .data_bytes
            .iter()
            .chain(&plan.spare_bytes)
            .chain(&plan.journal_bytes)
            .chain(&plan.fast_bytes);
        for bytes in sizes.copied().collect::<Vec<u64>>() {
            world.make_disk(bytes);
        }
        Rc::new(world)
    }

    /// A new, empty drive; gives its number.
    pub(crate) fn make_disk(&self, capacity_bytes: u64) -> usize {
        let mut disks = self.disks.borrow_mut();
        let label = disk_label(disks.len());
        let empty = MemoryDrive::with_block(&label, capacity_bytes, self.plan.block_bytes);
        let crash = CrashDrive::from_image(&label, &empty);
        crash.set_tears_sectors(self.plan.tears);
        disks.push(Disk {
            crash,
            is_away: false,
            unreadable: Vec::new(),
            is_spoiled: false,
            stale: BTreeSet::new(),
        });
        disks.len() - 1
    }

    /// Settings for the next opening of the pool. The seed of its identities is never the same:
    /// else an identity that one opening gave to one drive, and that was lost for all others, could
    /// be given to another drive by the next.
    pub(crate) fn settings(&self) -> Settings {
        self.openings.set(self.openings.get() + 1);
        let settings = self.plan.settings;
        Settings { seed: settings.seed ^ self.openings.get() << 48, ..settings }
    }

    /// Drives that may have errors that only checksums detect.
    pub(crate) fn spoiled(&self) -> Vec<usize> {
        let disks = self.disks.borrow();
        (0..disks.len()).filter(|disk| disks[*disk].is_spoiled).collect()
    }

    /// Source of the faults and lives that torture did not always have, in runs that have them.
    pub(crate) fn later(&self) -> Option<&RefCell<SplitMix64>> {
        self.later.as_ref()
    }

    /// A random number below `limit`.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    /// True with `probability`.
    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.random.borrow_mut().chance(probability)
    }

    /// A seed for another stream of random numbers.
    pub(crate) fn next_seed(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// One of these.
    pub(crate) fn pick<T: Clone>(&self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize].clone())
    }

    /// Counts.
    pub(crate) fn cover(&self, count: impl FnOnce(&mut Coverage)) {
        count(&mut self.coverage.borrow_mut());
    }

    /// Something happened: part of the trace.
    pub(crate) fn note(&self, now_ns: u64, what: &str) {
        let bytes = now_ns.to_le_bytes();
        let hash = bytes.iter().chain(what.as_bytes()).fold(self.trace_hash.get(), |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        self.trace_hash.set(hash);
        if self.options.keep_log {
            self.log.borrow_mut().push(format!("{:>12.6} ms  {what}", now_ns as f64 / 1e6));
        }
    }

    /// A promise was broken.
    pub(crate) fn broken(&self, promise: &str, detail: String) {
        self.note(0, &format!("BROKEN {promise}: {detail}"));
        let mut failures = self.failures.borrow_mut();
        if failures.len() < MAX_FAILURES {
            failures.push(Failure { seed: self.seed, promise: promise.to_owned(), detail });
        }
    }

    /// True if anything was broken yet.
    pub(crate) fn is_broken(&self) -> bool {
        !self.failures.borrow().is_empty()
    }

    /// Result of the run.
    pub(crate) fn report(&self) -> RunReport {
        RunReport {
            coverage: *self.coverage.borrow(),
            failures: self.failures.borrow().clone(),
            trace_hash: self.trace_hash.get(),
            log: self.log.borrow().clone(),
        }
    }
}
