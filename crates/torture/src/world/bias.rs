//! Probabilities of all that a run draws. A number that is changed in [`Bias::USUAL`]
//! changes what every seed draws. The numbers of lives that lead to one kind of fault are in
//! `lives.rs`.

use stripewise_array::tuning::Tuning;
use stripewise_layout::Level;

use super::manner::Manner;
use crate::scenes::Scene;

/// Something that happens to a pool while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pull,
    PullTooMany,
    Fail,
    Stick,
    Slow,
    LatentErrors,
    PassingErrors,
    Rot,
    LostWrite,
    MisdirectedWrite,
    PlugBack,
    ReplaceLost,
    ReplaceHealthy,
    AddSpare,
    AddData,
    Offline,
    Online,
    Retire,
    Remove,
    StartJobs,
    WaitRebuilt,
    WaitChecked,
    Scrub,
    Priority,
    FlushAll,
    Verify,
}

/// A fault that torture learned after its first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    RefusedFlush,
    UnwritableSectors,
    DriveElsewhere,
    NoSpace,
}

/// A change of the volumes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Create,
    Delete,
    Grow,
    Shrink,
}

/// A kind of ending of a life, with the largest number that is drawn for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndingKind {
    Close,
    AtWrite(u64),
    AfterNs(u64),
}

/// Operations of a client, out of a hundred; the rest are writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Habits {
    pub flushes: u64,
    pub reads: u64,
    pub zeroes: u64,
    /// Writes of zeros, at times over whole regions.
    pub wide_zeroes: u64,
    pub discards: u64,
    pub naps: u64,
    /// Forced writes.
    pub forced: u64,
    /// Share of the wide zeros and discards that cover whole regions.
    pub wide: f64,
}

/// Something that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Flush,
    Read,
    Zeroes,
    WideZeroes,
    Discard,
    Nap,
    Write { is_forced: bool },
}

impl Habits {
    /// The operation for a number below 100.
    pub(crate) fn deed(&self, drawn: u64) -> Deed {
        let in_order = [
            (Deed::Flush, self.flushes),
            (Deed::Read, self.reads),
            (Deed::Zeroes, self.zeroes),
            (Deed::WideZeroes, self.wide_zeroes),
            (Deed::Discard, self.discards),
            (Deed::Nap, self.naps),
        ];
        let mut end = 0;
        let other = in_order.into_iter().find(|(_, share)| {
            end += share;
            drawn < end
        });
        other.map_or(Deed::Write { is_forced: drawn >= 100 - self.forced }, |(deed, _)| deed)
    }
}

/// Choices with their weights.
pub(crate) type Weighted<T> = &'static [(T, u64)];

/// The sum of their weights.
pub(crate) fn total<T>(choices: &[(T, u64)]) -> u64 {
    choices.iter().map(|(_, weight)| weight).sum()
}

/// The choice that a number below [`total`] falls on.
pub(crate) fn chosen<T: Copy>(choices: &[(T, u64)], mut drawn: u64) -> T {
    let chosen = choices.iter().find(|(_, weight)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    });
    chosen.expect("drawn below their sum").0
}

/// Least and how many numbers from there on.
pub(crate) type Span = (u64, u64);

/// See the module. Probabilities, unless it says something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bias {
    /// Data drives.
    pub drives: Span,
    /// Their sizes, MiB.
    pub drive_mib: Span,
    pub journal_drives: f64,
    pub fast_drives: f64,
    pub large_blocks: f64,
    /// Drives say that they have arms, in every seed.
    pub arms: bool,
    pub tears: f64,
    pub checksums: f64,
    pub volumes: Span,
    /// Their sizes, MiB.
    pub volume_mib: Span,
    pub levels: &'static [Level],
    /// Drives that a volume can do without, at least; `None`: drawn.
    pub tolerance: Option<usize>,
    pub write_back: f64,
    pub thin: f64,
    /// A volume is cut into one to eight slices.
    pub slices: f64,
    /// Clients' requests come in on the threads of arrays.
    pub direct: f64,
    /// Lives, `None`: drawn.
    pub lives: Option<Span>,
    pub manner: Option<Manner>,
    /// Changes the drawn times and sizes of the engine.
    pub tune: Option<fn(&mut Tuning)>,
    /// Kinds of endings, each as likely as the others; `None`: drawn as usual.
    pub endings: Option<&'static [EndingKind]>,
    /// A drive more is missing at the beginning of a life.
    pub absent: f64,
    /// A drive that was pulled stays away for a life more.
    pub stays_away: f64,
    pub clients: Span,
    /// Things that the clients of a life do, all together.
    pub steps: Span,
    pub habits: Habits,
    pub actions: Span,
    pub action: Weighted<Action>,
    pub change: f64,
    pub changes: &'static [Change],
    pub conversion: f64,
    pub power_with_drive: f64,
    /// The connection to a drive is lost.
    pub connection: f64,
    /// Share of zeros and discards that are forced.
    pub forced_zeroes: f64,
    /// A life uses volumes as files of a mount.
    pub mounted: f64,
    pub rebalance: f64,
    /// A later fault, where volumes have redundancy, and where one has none.
    pub fault: (f64, f64),
    pub faults: Weighted<Fault>,
    /// A copy of a drive is kept, and put back.
    pub rollback: (f64, f64),
    /// Played after each life.
    pub scene: Option<Scene>,
}

const LEVELS: [Level; 10] = [
    Level::Single,
    Level::Raid0,
    Level::Raid1,
    Level::Raid4,
    Level::Raid5,
    Level::Raid6,
    Level::Raid7,
    Level::Raid10,
    Level::Raid50,
    Level::Raid60,
];
impl Bias {
    /// Probabilities of a run without a focus.
    pub(crate) const USUAL: Self = Self {
        drives: (2, 7),
        drive_mib: (8, 57),
        journal_drives: 0.25,
        fast_drives: 0.3,
        large_blocks: 0.25,
        arms: false,
        tears: 0.5,
        checksums: 0.85,
        volumes: (1, 3),
        volume_mib: (1, 6),
        levels: &LEVELS,
        tolerance: None,
        write_back: 0.5,
        thin: 0.3,
        slices: 0.3,
        direct: 0.5,
        lives: None,
        manner: None,
        tune: None,
        endings: None,
        absent: 0.25,
        stays_away: 0.5,
        clients: (1, 6),
        steps: (10, 400),
        habits: Habits {
            flushes: 12,
            reads: 23,
            zeroes: 4,
            wide_zeroes: 1,
            discards: 1,
            naps: 3,
            forced: 8,
            wide: 0.2,
        },
        actions: (0, 10),
        action: &[
            (Action::Pull, 12),
            (Action::PullTooMany, 3),
            (Action::Fail, 6),
            (Action::Stick, 6),
            (Action::Slow, 6),
            (Action::LatentErrors, 12),
            (Action::PassingErrors, 4),
            (Action::Rot, 8),
            (Action::LostWrite, 6),
            (Action::MisdirectedWrite, 6),
            (Action::PlugBack, 10),
            (Action::ReplaceLost, 12),
            (Action::ReplaceHealthy, 4),
            (Action::AddSpare, 4),
            (Action::AddData, 4),
            (Action::Offline, 6),
            (Action::Online, 8),
            (Action::Retire, 5),
            (Action::Remove, 3),
            (Action::StartJobs, 8),
            (Action::WaitRebuilt, 12),
            (Action::WaitChecked, 6),
            (Action::Scrub, 6),
            (Action::Priority, 3),
            (Action::FlushAll, 8),
            (Action::Verify, 4),
        ],
        change: 0.3,
        changes: &[Change::Create, Change::Delete, Change::Grow, Change::Shrink],
        conversion: 0.4,
        power_with_drive: 0.3,
        connection: 0.15,
        forced_zeroes: 0.3,
        mounted: 0.5,
        rebalance: 0.15,
        fault: (0.3, 0.7),
        faults: &[
            (Fault::RefusedFlush, 9),
            (Fault::UnwritableSectors, 4),
            (Fault::DriveElsewhere, 6),
            (Fault::NoSpace, 1),
        ],
        rollback: (0.4, 0.6),
        scene: None,
    };
}
