//! Lives that lead to one kind of fault ([`Focus`]): the numbers in which each kind differs from
//! quiet lives. They were found by trying which show the mutations of the engine in many of 64
//! seeds (`cargo run -p stripewise-torture --example mutants` counts them).

use stripewise_array::tuning::{MapGrain, Tuning};
use stripewise_layout::Level;

use super::bias::{Action, Bias, Change, EndingKind, Fault, Habits};
use super::manner::Manner;
use crate::Focus;
use crate::scenes::Scene;

const PARITY: &[Level] = &[Level::Raid5, Level::Raid6];
const MIRROR_AND_PARITY: &[Level] = &[Level::Raid1, Level::Raid5];
const REDUNDANT: &[Level] = &[Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

impl Bias {
    /// Short lives of a small pool in which nothing but cuts and flushes happens: what every focus
    /// adds its own to.
    pub(crate) const QUIET: Self = Self {
        drives: (3, 3),
        drive_mib: (8, 9),
        journal_drives: 0.0,
        fast_drives: 0.0,
        checksums: 1.0,
        volumes: (1, 1),
        volume_mib: (1, 2),
        levels: REDUNDANT,
        tolerance: Some(1),
        thin: 0.0,
        slices: 0.0,
        direct: 0.0,
        lives: Some((3, 2)),
        manner: Some(Manner::USUAL),
        endings: Some(&[
            EndingKind::AtWrite(60),
            EndingKind::AtWrite(600),
            EndingKind::AfterNs(3_000_000),
            EndingKind::AfterNs(30_000_000),
        ]),
        steps: (60, 200),
        actions: (1, 4),
        action: &[(Action::FlushAll, 1), (Action::StartJobs, 1)],
        change: 0.0,
        conversion: 0.0,
        power_with_drive: 0.0,
        connection: 0.0,
        forced_zeroes: 0.0,
        mounted: 0.0,
        rebalance: 0.0,
        fault: (0.0, 0.0),
        rollback: (0.0, 0.0),
        ..Self::USUAL
    };

    /// Two lives of a small pool without checksums, which scenes follow.
    const IN_SCENES: Self = Self {
        checksums: 0.0,
        absent: 0.0,
        lives: Some((2, 1)),
        steps: (10, 30),
        endings: Some(&[EndingKind::AfterNs(30_000_000), EndingKind::Close]),
        ..Self::QUIET
    };

    /// Probabilities of a run.
    pub(crate) fn of(focus: Option<Focus>) -> &'static Self {
        let Some(focus) = focus else { return &Self::USUAL };
        match focus {
            Focus::Arms => {
                const {
                    &Self {
                        arms: true,
                        levels: &[Level::Raid5, Level::Raid4],
                        drives: (4, 4),
                        checksums: 0.0,
                        write_back: 1.0,
                        absent: 0.7,
                        endings: Some(&[EndingKind::AfterNs(30_000_000)]),
                        tune: Some(brisk),
                        steps: (100, 300),
                        clients: (6, 6),
                        habits: Habits { wide: 1.0, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Cuts => const { &Self { levels: PARITY, absent: 0.6, tune: Some(brisk), ..Self::QUIET } },
            Focus::Parity => {
                const {
                    &Self {
                        checksums: 0.0,
                        levels: &[Level::Raid5],
                        write_back: 1.0,
                        absent: 0.8,
                        endings: Some(&[EndingKind::AtWrite(300), EndingKind::AfterNs(10_000_000)]),
                        steps: (100, 200),
                        tune: Some(late),
                        drives: (3, 1),
                        clients: (5, 4),
                        habits: Habits { flushes: 25, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Resyncs => {
                const {
                    &Self {
                        levels: MIRROR_AND_PARITY,
                        checksums: 0.0,
                        tears: 1.0,
                        write_back: 0.0,
                        endings: Some(&[EndingKind::AtWrite(300), EndingKind::AfterNs(5_000_000)]),
                        tune: Some(soon_clean),
                        absent: 0.0,
                        steps: (100, 200),
                        drives: (2, 1),
                        volume_mib: (4, 4),
                        clients: (1, 2),
                        habits: Habits { naps: 10, wide: 1.0, flushes: 2, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Conversions => {
                const {
                    &Self {
                        conversion: 0.9,
                        endings: None,
                        checksums: 0.5,
                        absent: 0.2,
                        actions: (3, 8),
                        volume_mib: (1, 5),
                        steps: (30, 100),
                        tune: Some(as_usual),
                        lives: Some((3, 4)),
                        ..Self::QUIET
                    }
                }
            }
            Focus::ZeroedConversions => {
                const {
                    &Self {
                        conversion: 0.9,
                        volume_mib: (1, 2),
                        endings: Some(&[EndingKind::Close, EndingKind::AfterNs(40_000_000)]),
                        checksums: 0.0,
                        tune: Some(unrecorded_copies),
                        steps: (60, 100),
                        actions: (3, 4),
                        lives: Some((3, 3)),
                        absent: 0.0,
                        drives: (3, 1),
                        habits: Habits { wide_zeroes: 8, discards: 8, wide: 1.0, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Crowds => {
                const {
                    &Self {
                        manner: Some(Manner::CROWDED),
                        levels: PARITY,
                        lives: Some((1, 1)),
                        actions: (1, 3),
                        absent: 0.0,
                        endings: Some(&[EndingKind::Close]),
                        ..Self::QUIET
                    }
                }
            }
            Focus::Discards => {
                const {
                    &Self {
                        write_back: 1.0,
                        thin: 0.3,
                        volume_mib: (1, 1),
                        steps: (100, 200),
                        clients: (4, 4),
                        endings: Some(&[EndingKind::AfterNs(60_000_000), EndingKind::Close]),
                        tune: Some(brisk),
                        levels: &[Level::Raid5],
                        checksums: 0.0,
                        habits: Habits { wide_zeroes: 4, discards: 8, wide: 0.8, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::NewRegions => {
                const {
                    &Self {
                        levels: MIRROR_AND_PARITY,
                        checksums: 0.0,
                        write_back: 0.0,
                        endings: Some(&[EndingKind::AtWrite(300), EndingKind::AfterNs(5_000_000)]),
                        absent: 0.3,
                        steps: (60, 60),
                        volume_mib: (6, 6),
                        volumes: (2, 2),
                        drives: (2, 2),
                        habits: Habits {
                            wide_zeroes: 4,
                            discards: 8,
                            wide: 0.7,
                            reads: 5,
                            ..Self::USUAL.habits
                        },
                        ..Self::QUIET
                    }
                }
            }
            Focus::DrivesElsewhere => {
                const {
                    &Self {
                        fault: (0.9, 0.9),
                        faults: &[(Fault::DriveElsewhere, 1)],
                        action: &[(Action::Pull, 1), (Action::Offline, 2), (Action::Fail, 3)],
                        actions: (6, 4),
                        levels: PARITY,
                        drives: (2, 2),
                        endings: Some(&[EndingKind::AfterNs(100_000_000), EndingKind::Close]),
                        volumes: (1, 1),
                        steps: (20, 40),
                        ..Self::QUIET
                    }
                }
            }
            Focus::LostBlocks => {
                const {
                    &Self {
                        fault: (0.9, 0.9),
                        faults: &[(Fault::RefusedFlush, 1)],
                        tolerance: Some(0),
                        endings: Some(&[EndingKind::AfterNs(20_000_000), EndingKind::AtWrite(600)]),
                        actions: (6, 4),
                        write_back: 1.0,
                        drives: (2, 1),
                        levels: &[Level::Single],
                        lives: Some((8, 4)),
                        action: &[(Action::Priority, 5), (Action::Verify, 2), (Action::FlushAll, 2)],
                        steps: (60, 100),
                        tune: Some(brisk),
                        volumes: (2, 1),
                        journal_drives: 1.0,
                        habits: Habits { flushes: 4, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::MapPages => {
                const { &Self { manner: Some(Manner::PAIRED), lives: Some((4, 3)), ..Self::QUIET } }
            }
            Focus::Moves => {
                const {
                    &Self {
                        levels: &[Level::Raid1],
                        checksums: 0.0,
                        action: &[(Action::Retire, 3), (Action::ReplaceHealthy, 1), (Action::StartJobs, 1)],
                        actions: (2, 2),
                        drives: (4, 1),
                        endings: Some(&[EndingKind::AfterNs(100_000_000), EndingKind::Close]),
                        steps: (400, 400),
                        clients: (4, 4),
                        volume_mib: (4, 1),
                        absent: 0.0,
                        tune: Some(small_rebuilds),
                        write_back: 0.0,
                        ..Self::QUIET
                    }
                }
            }
            Focus::PowerWithDrive => {
                const {
                    &Self {
                        power_with_drive: 1.0,
                        levels: &[Level::Raid1],
                        checksums: 0.0,
                        actions: (1, 1),
                        endings: Some(&[EndingKind::AfterNs(20_000_000_000)]),
                        lives: Some((8, 2)),
                        clients: (4, 4),
                        steps: (300, 500),
                        absent: 0.0,
                        drives: (2, 2),
                        habits: Habits { flushes: 20, forced: 40, naps: 30, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Rebuilds => {
                const {
                    &Self {
                        levels: &[Level::Raid5, Level::Raid1],
                        checksums: 0.0,
                        write_back: 0.0,
                        tune: Some(small_rebuilds),
                        action: &[
                            (Action::Fail, 2),
                            (Action::ReplaceLost, 3),
                            (Action::StartJobs, 1),
                            (Action::WaitRebuilt, 2),
                        ],
                        actions: (6, 6),
                        endings: Some(&[EndingKind::AfterNs(100_000_000), EndingKind::AtWrite(1500)]),
                        absent: 0.0,
                        steps: (20, 40),
                        stays_away: 0.0,
                        lives: Some((3, 2)),
                        ..Self::QUIET
                    }
                }
            }
            Focus::RefusedFlushes => {
                const {
                    &Self {
                        checksums: 0.0,
                        fault: (0.9, 0.9),
                        faults: &[(Fault::RefusedFlush, 1)],
                        levels: &[Level::Raid1, Level::Single],
                        tolerance: Some(0),
                        endings: Some(&[EndingKind::AfterNs(60_000_000), EndingKind::Close]),
                        actions: (4, 4),
                        clients: (3, 4),
                        steps: (20, 60),
                        write_back: 0.0,
                        action: &[(Action::FlushAll, 1), (Action::Retire, 1), (Action::AddSpare, 1)],
                        volumes: (2, 2),
                        habits: Habits { flushes: 20, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Slices => {
                const {
                    &Self {
                        slices: 1.0,
                        volume_mib: (3, 4),
                        drive_mib: (32, 9),
                        write_back: 0.0,
                        habits: Habits { flushes: 20, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Files => {
                const {
                    &Self {
                        mounted: 1.0,
                        scene: Some(Scene::Reopened),
                        fault: (0.9, 0.9),
                        faults: &[(Fault::RefusedFlush, 1)],
                        levels: &[Level::Single, Level::Raid0, Level::Raid1],
                        tolerance: Some(0),
                        checksums: 0.5,
                        endings: Some(&[EndingKind::AfterNs(60_000_000), EndingKind::Close]),
                        actions: (4, 4),
                        clients: (3, 4),
                        steps: (20, 60),
                        absent: 0.0,
                        action: &[(Action::FlushAll, 1), (Action::Verify, 1), (Action::StartJobs, 1)],
                        volumes: (1, 2),
                        habits: Habits { flushes: 20, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::Returns => {
                const {
                    &Self {
                        levels: MIRROR_AND_PARITY,
                        checksums: 0.0,
                        write_back: 0.0,
                        action: &[(Action::Pull, 1), (Action::StartJobs, 1)],
                        actions: (1, 3),
                        endings: Some(&[EndingKind::AfterNs(30_000_000), EndingKind::Close]),
                        absent: 0.3,
                        steps: (100, 200),
                        lives: Some((5, 3)),
                        stays_away: 0.0,
                        drives: (3, 2),
                        ..Self::QUIET
                    }
                }
            }
            Focus::RolledBack => {
                const { &Self { rollback: (1.0, 1.0), lives: Some((5, 3)), absent: 0.0, ..Self::QUIET } }
            }
            Focus::Rot => {
                const {
                    &Self {
                        action: &[(Action::LostWrite, 6), (Action::MisdirectedWrite, 3), (Action::Verify, 3)],
                        actions: (6, 5),
                        absent: 0.0,
                        endings: Some(&[EndingKind::AfterNs(60_000_000), EndingKind::Close]),
                        lives: Some((2, 2)),
                        steps: (200, 400),
                        write_back: 0.0,
                        levels: &[Level::Raid1],
                        ..Self::QUIET
                    }
                }
            }
            Focus::Shrinks => {
                const {
                    &Self {
                        write_back: 1.0,
                        change: 1.0,
                        changes: &[Change::Shrink, Change::Shrink, Change::Grow],
                        lives: Some((5, 4)),
                        steps: (5, 30),
                        volume_mib: (6, 6),
                        levels: &[Level::Raid5],
                        endings: Some(&[EndingKind::AfterNs(30_000_000)]),
                        ..Self::QUIET
                    }
                }
            }
            Focus::Halves => {
                const { &Self { scene: Some(Scene::Halves), levels: &[Level::Raid1], ..Self::IN_SCENES } }
            }
            Focus::CopiedDrives => const { &Self { scene: Some(Scene::Copied), ..Self::IN_SCENES } },
            Focus::CutDrives => {
                const {
                    &Self {
                        scene: Some(Scene::Cut),
                        levels: &[Level::Raid1, Level::Raid10],
                        drive_mib: (24, 8),
                        volume_mib: (14, 4),
                        ..Self::IN_SCENES
                    }
                }
            }
            Focus::Connections => {
                const {
                    &Self {
                        connection: 0.9,
                        levels: MIRROR_AND_PARITY,
                        checksums: 0.3,
                        write_back: 0.0,
                        action: &[(Action::StartJobs, 2), (Action::PlugBack, 1), (Action::WaitRebuilt, 3)],
                        actions: (3, 4),
                        endings: Some(&[EndingKind::AfterNs(100_000_000), EndingKind::Close]),
                        absent: 0.0,
                        stays_away: 0.0,
                        drives: (2, 2),
                        drive_mib: (24, 8),
                        volume_mib: (8, 8),
                        clients: (1, 2),
                        steps: (60, 100),
                        habits: Habits { flushes: 2, naps: 20, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::ForcedZeroes => {
                const {
                    &Self {
                        forced_zeroes: 0.8,
                        levels: MIRROR_AND_PARITY,
                        checksums: 0.3,
                        endings: Some(&[EndingKind::AtWrite(300), EndingKind::AfterNs(10_000_000)]),
                        tune: Some(brisk),
                        habits: Habits { flushes: 2, zeroes: 25, discards: 5, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
            Focus::ResizedDrives => {
                const {
                    &Self {
                        scene: Some(Scene::Resized),
                        drive_mib: (24, 8),
                        volume_mib: (8, 4),
                        checksums: 0.5,
                        ..Self::IN_SCENES
                    }
                }
            }
            Focus::ManyLosses => {
                const { &Self { scene: Some(Scene::Losses), lives: Some((1, 1)), ..Self::IN_SCENES } }
            }
            Focus::TwoOpeners => const { &Self { scene: Some(Scene::Openers), ..Self::IN_SCENES } },
            Focus::FullRecords => {
                const { &Self { scene: Some(Scene::FullRecord), lives: Some((1, 1)), ..Self::IN_SCENES } }
            }
            Focus::Thin => {
                const {
                    &Self {
                        thin: 1.0,
                        fast_drives: 1.0,
                        volumes: (2, 2),
                        steps: (100, 200),
                        endings: Some(&[EndingKind::AfterNs(50_000_000)]),
                        drives: (4, 3),
                        habits: Habits { discards: 8, wide_zeroes: 4, wide: 0.9, ..Self::USUAL.habits },
                        ..Self::QUIET
                    }
                }
            }
        }
    }
}

/// Short times, so that much is destaged, released and recorded within a life.
fn brisk(tuning: &mut Tuning) {
    tuning.gather_hold_ns = 1_000_000;
    tuning.destage_hold_ns = 1_000_000;
    tuning.destage_stripes = 2;
    tuning.pending_bytes = 1 << 20;
    tuning.journal_batch_notes = 2;
}

/// Write-intent bits of single regions, cleared after 300 µs.
fn soon_clean(tuning: &mut Tuning) {
    tuning.intent_clear_interval_ns = 300_000;
    tuning.map_grain = MapGrain { regions_per_chunk: 1, regions_per_page: 1 };
}

/// Records that stay in the journal for a whole life.
fn late(tuning: &mut Tuning) {
    tuning.gather_hold_ns = 5_000_000;
    tuning.destage_hold_ns = 1_000_000_000;
    tuning.pending_bytes = 64 << 20;
}

/// The engine's own times and sizes.
fn as_usual(tuning: &mut Tuning) {
    *tuning = Tuning::default();
}

/// Conversions whose progress is not recorded within a life.
fn unrecorded_copies(tuning: &mut Tuning) {
    tuning.convert_window_bytes = 64 << 10;
    tuning.convert_piece_bytes = 64 << 10;
    tuning.convert_unrecorded_bytes = 256 << 20;
    tuning.convert_record_ns = 10_000_000_000;
}

/// Rebuilds that record their progress every few rows.
fn small_rebuilds(tuning: &mut Tuning) {
    tuning.rebuild_checkpoint_ns = 2_000_000;
    tuning.rebuild_rows = 2;
    tuning.rebuild_batch_bytes = 1 << 20;
}
