//! Torture: random lives of random pools in virtual time, with every fault that a drive can have,
//! and every promise checked after each.
//!
//! A run is named by its seed and is the same every time. It makes a pool of small drives with a
//! few volumes and leads it through several lives; each ends by closing the pool or by a power cut
//! at any instant, and the next begins with what is on the drives. Clients write data that say what
//! they are (`world/content.rs`), a judge knows for every sector what it may hold
//! (`world/oracle.rs`), and things happen to the pool (`events/actions.rs`), never more than what
//! is promised to be survived, or else what is lost must be reported. At the end faults stop, and
//! the pool must become whole again, agree with itself, and hold everything with any drives missing
//! that its layouts can do without (`ending.rs`).
//!
//! What is promised is in [`Promises`]: it follows from what the engine can do and decides what may
//! be done to the pool. Safety and progress are checked apart: a wrong byte and a request that
//! never ends are different failures, and each has its name ([`Failure::promise`]).
//!
//! | in this order, each on those above | what is there |
//! |---|---|
//! | `subject.rs`, `power.rs` | the engine's interface; the power that drives hang on |
//! | `world/` | what lasts over a run: its plan, drives, volumes and their judges |
//! | `life/` | one life: drives plugged in, the pool opened and closed, clients, judgements |
//! | `events/` | what happens to a pool while it is used |
//! | `scenes/` | what happens between lives to copies of the drives |
//! | `lead.rs`, `ending.rs` | a life from its beginning to its end; the end of a run |
//! | `run.rs`, `many.rs` | a run, many runs |
//!
//! Faults expected: all. A panic of the engine, and a deadlock, are failures of the run, not of
//! this program.

#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod ending;
mod events;
mod focus;
mod lead;
mod life;
mod many;
mod power;
mod run;
mod scenes;
mod subject;
mod world;

use serde::Serialize;

pub use stripewise_array::mutation::Mutation;

pub use focus::Focus;
pub use many::{Progress, Summary, run_many};
pub use run::{CAN_BREAK, run};

/// Promises of a volume: they decide what may be done to it, and what is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// No write hole: of stripes in flight at a cut nothing else suffers from the loss of drives in
    /// the same instant, and the blocks that were in flight are old, new or refused.
    pub journal: bool,
    /// Wrong, lost and misdirected blocks of a drive are noticed and repaired.
    pub checksums: bool,
    /// Each 4 KiB block in flight at a cut is all old or all new, even if the drives tear sectors.
    pub atomic_blocks: bool,
    /// The drives themselves keep 4 KiB whole. Where they do not, a block in flight at a cut that a
    /// drive kept in part may be refused until it is written, as long as it is never read as a
    /// mixture.
    pub atomic_drives: bool,
}

/// Features of the engine under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Volumes have a journal.
    pub journal: bool,
    /// Volumes have checksums.
    pub checksums: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { journal: true, checksums: true }
    }
}

/// Damage behind the engine's back beyond what is promised to be survived, to see that it is
/// found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Drives say that they have flushed and have not.
    IgnoredFlushes,
    /// A flushed sector changes on every drive that has a copy of it, or its data.
    Rot,
    /// Writes are acknowledged and not done, on all drives.
    LostWrites,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Features of the engine.
    pub features: Features,
    /// Damage done behind the engine's back.
    pub sabotage: Option<Sabotage>,
    /// Keep what happened, in words, for the report of a single run.
    pub keep_log: bool,
    /// Version of the drawing that makes a run of a seed.
    pub drawn: Drawn,
    /// A rule of the engine to be broken. Not in a release build ([`CAN_BREAK`]).
    pub mutation: Option<Mutation>,
    /// The kind of lives to lead, where one kind of fault is looked for; only as drawn now.
    pub focus: Option<Focus>,
}

/// Versions of the drawing. Later kinds of events are drawn from streams of their own, so that a
/// kept seed can still be run as it was then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drawn {
    /// Everything there is.
    #[default]
    Now,
    /// No request of clients comes in on the thread of an array, past the home.
    BeforeDirect,
    /// No volume is cut into slices.
    BeforeSlices,
    /// No volume is used as a file (in seeds that leave 1 when divided by 3).
    BeforeFiles,
    /// All arrays on the shard of their pool, and all counters from their usual start.
    BeforeShards,
    /// Without lost connections and forced zeros (in seeds that are divisible by 4).
    BeforeConnections,
    /// The engine's own times and sizes, and no fault or life that came since.
    BeforeTuning,
    /// Nor conversions of volumes (in seeds that leave 3 when divided by 4) and power that goes
    /// with a drive (1).
    BeforeConversions,
}

impl Drawn {
    /// True if clients' requests may come in on the threads of arrays.
    pub(crate) fn has_direct(self) -> bool {
        self == Self::Now
    }

    /// True if volumes are cut into slices.
    pub(crate) fn has_slices(self) -> bool {
        self.has_direct() || self == Self::BeforeDirect
    }

    /// True if volumes are used as files.
    pub(crate) fn has_files(self) -> bool {
        self.has_slices() || self == Self::BeforeSlices
    }

    /// True if arrays are spread over shards, and counters may start below 2^32.
    pub(crate) fn has_shards(self) -> bool {
        self.has_files() || self == Self::BeforeFiles
    }

    /// True if there are lost connections and forced zeros.
    pub(crate) fn has_connections(self) -> bool {
        self.has_shards() || self == Self::BeforeShards
    }

    /// True if the engine's times and sizes are drawn, and the faults that came with them.
    pub(crate) fn has_tuning(self) -> bool {
        self.has_connections() || self == Self::BeforeConnections
    }
}

/// Counts of the events tried. Faults are counted when they strike, not when they are prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Power cuts.
    pub power_cuts: u64,
    /// Drives lost: pulled, failed, too slow, absent at the next start.
    pub drive_losses: u64,
    /// Reads that met a sector that could not be read.
    pub latent_errors: u64,
    /// Sectors changed in place.
    pub bit_rot: u64,
    /// Writes acknowledged and not done.
    pub lost_writes: u64,
    /// Sectors that a power cut left half old, half new.
    pub torn_writes: u64,
    /// Writes that went elsewhere.
    pub misdirected_writes: u64,
    /// Rebuilds that a cut or the end of the pool interrupted.
    pub interrupted_rebuilds: u64,
    /// Changes of a volume's layout that were begun.
    pub conversions: u64,
    /// Those that a cut or the end of the pool interrupted.
    pub interrupted_conversions: u64,
    /// Connections to drives that were lost.
    pub lost_connections: u64,
    /// Writes that a drive executed after their connection was lost.
    pub late_writes: u64,
    /// Flushes that failed and took a drive's cache with them.
    pub failed_flushes: u64,
    /// Those of them on a drive that a volume could not do without.
    pub failed_flushes_without_redundancy: u64,
    /// Drives that were put back to what they held in an earlier life.
    pub rolled_back_drives: u64,
    /// Drives of the pool that were offered as new ones, or in another one's place.
    pub drives_elsewhere: u64,
    /// Power cuts with the copy of a structure that one drive got.
    pub cuts_at_a_copy: u64,
    /// Drives lost at the next cut but one that had such a copy.
    pub lost_single_copies: u64,
    /// Writes that met a sector which cannot be written.
    pub unwritable_sectors: u64,
    /// Writes refused for lack of space beneath.
    pub writes_without_space: u64,
    /// Lives of many clients in few regions, whose journals are full.
    pub crowded_lives: u64,
    /// Lives with fast drives.
    pub tiered_lives: u64,
    /// Volumes pinned to fast drives or data drives, or unpinned.
    pub pins: u64,
    /// Volumes resized, or asked to be, while they were converted.
    pub resizes_in_conversions: u64,
    /// Volumes deleted while they were converted.
    pub deletes_in_conversions: u64,
    /// Volumes that were to become smaller than what they held, and did not.
    pub refused_shrinks: u64,
    /// Lives of some milliseconds in runs that open and close often.
    pub short_lives: u64,
    /// Lives of minutes.
    pub long_lives: u64,
    /// Replacements of drives that worked.
    pub replacements: u64,
    /// Those that a cut or the end of the pool interrupted.
    pub interrupted_replacements: u64,
    /// Times that a cut or the end of the pool interrupted a rebalance.
    pub interrupted_rebalances: u64,
    /// Rebalances that were begun by hand, or by a drive that came.
    pub rebalances: u64,
    /// Scenes that took place between lives, on copies of the drives.
    pub scenes: u64,
    /// Lives whose clients use volumes as files.
    pub mounted_lives: u64,
    /// Losses reported through a descriptor after another one had reported them.
    pub repeated_losses: u64,
}

impl Coverage {
    /// Every count, and what it counts in words for people.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut copy = *self;
        copy.fields().map(|(what, count)| (what, *count)).into()
    }

    fn fields(&mut self) -> [(&'static str, &mut u64); 35] {
        [
            ("power cuts", &mut self.power_cuts),
            ("drives lost", &mut self.drive_losses),
            ("reads of bad sectors", &mut self.latent_errors),
            ("sectors rotten", &mut self.bit_rot),
            ("writes lost", &mut self.lost_writes),
            ("sectors torn", &mut self.torn_writes),
            ("writes misdirected", &mut self.misdirected_writes),
            ("rebuilds interrupted", &mut self.interrupted_rebuilds),
            ("conversions", &mut self.conversions),
            ("conversions interrupted", &mut self.interrupted_conversions),
            ("connections to drives lost", &mut self.lost_connections),
            ("writes executed after that", &mut self.late_writes),
            ("flushes failed, the cache lost", &mut self.failed_flushes),
            ("of these on a drive that cannot be spared", &mut self.failed_flushes_without_redundancy),
            ("drives put back to an older copy", &mut self.rolled_back_drives),
            ("drives of the pool offered as others", &mut self.drives_elsewhere),
            ("power cuts at one copy of several", &mut self.cuts_at_a_copy),
            ("of these followed by the loss of that copy", &mut self.lost_single_copies),
            ("writes to sectors that cannot be written", &mut self.unwritable_sectors),
            ("writes without space", &mut self.writes_without_space),
            ("lives of full journals", &mut self.crowded_lives),
            ("lives with fast drives", &mut self.tiered_lives),
            ("pins set or taken away", &mut self.pins),
            ("resizes in conversions", &mut self.resizes_in_conversions),
            ("volumes deleted in conversions", &mut self.deletes_in_conversions),
            ("shrinks refused, as they had to be", &mut self.refused_shrinks),
            ("short lives", &mut self.short_lives),
            ("lives of minutes", &mut self.long_lives),
            ("replacements of drives that work", &mut self.replacements),
            ("of these interrupted", &mut self.interrupted_replacements),
            ("rebalances", &mut self.rebalances),
            ("rebalances interrupted", &mut self.interrupted_rebalances),
            ("scenes on copies of the drives", &mut self.scenes),
            ("lives with volumes as files", &mut self.mounted_lives),
            ("losses reported by another descriptor as well", &mut self.repeated_losses),
        ]
    }

    /// Counts another run's in.
    pub fn add(&mut self, other: &Self) {
        let mut other = *other;
        for ((_, to), (_, from)) in self.fields().into_iter().zip(other.fields()) {
            *to += *from;
        }
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// Name of the promise: `flushed-data-survives` (a sector holds something older than what was
    /// durable), `no-wrong-bytes` (something that was never written there), `old-or-new` (a block
    /// in flight at a cut is a mixture), `nothing-refused` (what can be read or written was
    /// refused), `no-needless-loss` (a drive counts as lost that was not harmed), `no-stale-drive`
    /// (a drive that was away is taken for current), `shrink-keeps-data` (a volume became smaller
    /// than what it held), `flush-errors-reach-all` (a descriptor did not report a loss of
    /// acknowledged writes), `redundancy-agrees` (copies or parity disagree at the end),
    /// `progress` (something did not end), `no-panic`.
    pub promise: String,
    /// Description of the failure.
    pub detail: String,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// Events tried.
    pub coverage: Coverage,
    /// Broken promises: empty if all is well.
    pub failures: Vec<Failure>,
    /// Hash of all events with their times: the same for every run of a seed.
    pub trace_hash: u64,
    /// Events in words, if requested.
    pub log: Vec<String>,
}
