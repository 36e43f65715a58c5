//! Proof that torture notices: each mutation of the engine (`stripewise_array::mutation`) breaks
//! one rule that keeps data right. One of the first [`SEEDS`] seeds of the lives that lead to it
//! ([`Focus::of`]) must show it, and be well without it.
//!
//! A mutation that no seed shows any more after a change of the engine has lost its lives, not its
//! seed: see `world/lives.rs`. `cargo run -p stripewise-torture --example mutants` prints how many
//! of the seeds show each.

use stripewise_torture::{Focus, Mutation, Options, run};

/// Seeds that are tried for each mutation.
const SEEDS: u64 = 64;

/// Mutations that these seeds do not show, and why.
const NOT_FOUND: &[(Mutation, &str)] = &[
    (
        Mutation::PlaceAreasCarelessly,
        "takes a pool that is full up to a few slabs, in which a drive is emptied and another is lost",
    ),
    (
        Mutation::OlderRecordsStay,
        "takes a record of a row that outlives the rebuild of it, and a cut before its next release",
    ),
    (
        Mutation::ReleaseBeforeRecord,
        "takes a lost block that is written and destaged, and a cut before the next commit",
    ),
    (
        Mutation::PassedOverForgotten,
        "takes a cut while a stripe is destaged around a block whose record is older than the last",
    ),
    (
        Mutation::IncompletePagesStay,
        "takes a page with one current place, on a drive that comes in while the other one is read",
    ),
    (
        Mutation::CheckpointInOneTurn,
        "takes a cut that tears both places of a page, and a block whose sum no record has",
    ),
    (
        Mutation::UnsettledServerAsked,
        "takes an NBD server: `servers_that_are_asked_too_early_are_found` in `late_writes.rs` of `export`",
    ),
    (
        Mutation::ConversionBesideDirectWrites,
        "takes a write that outlasts the begin of a conversion: `a_conversion_waits_for_direct_writes`, `pool`",
    ),
];

/// Shown by a seed, which is well without the mutation.
fn shows(mutation: Mutation, seed: u64, options: &Options) -> bool {
    const { assert!(stripewise_torture::CAN_BREAK) };
    if run(seed, &Options { mutation: Some(mutation), ..*options }).failures.is_empty() {
        return false;
    }
    let failures = run(seed, options).failures;
    assert!(failures.is_empty(), "seed {seed} breaks a promise without {mutation:?}: {failures:#?}");
    true
}

fn is_found(mutation: Mutation) {
    let focus = Focus::of(mutation);
    let options = Options { focus, ..Options::default() };
    let seed = (1..=SEEDS).find(|seed| shows(mutation, *seed, &options));
    println!("{mutation:?}: seed {seed:?}");
    assert!(seed.is_some(), "no seed up to {SEEDS} of {focus:?} shows {mutation:?}");
}

/// A test for each mutation.
macro_rules! found {
    ($($name:ident: $mutation:ident,)+) => {
        const FOUND: &[Mutation] = &[$(Mutation::$mutation,)+];

        $(
            #[test]
            fn $name() {
                is_found(Mutation::$mutation);
            }
        )+
    };
}

found! {
    replay_without_redo: ReplayWithoutRedo,
    parity_covers_all: ParityCoversAll,
    release_before_flush: ReleaseBeforeFlush,
    checksums_always_agree: ChecksumsAlwaysAgree,
    commit_on_one_drive: CommitOnOneDrive,
    acknowledge_before_exclusion: AcknowledgeBeforeExclusion,
    lock_without_waiting: LockWithoutWaiting,
    lock_one_by_one: LockOneByOne,
    frontier_before_flush: FrontierBeforeFlush,
    stale_beyond_frontier: StaleBeyondFrontier,
    write_old_array_only: WriteOldArrayOnly,
    refused_flush_forgotten: RefusedFlushForgotten,
    map_page_at_one_place: MapPageAtOnePlace,
    own_drive_twice: OwnDriveTwice,
    rolled_back_drive_counts: RolledBackDriveCounts,
    shrink_over_pending: ShrinkOverPending,
    flush_error_dropped: FlushErrorDropped,
    force_forgotten: ForceForgotten,
    write_before_dirty_mark: WriteBeforeDirtyMark,
    written_before_flush: WrittenBeforeFlush,
    missed_write_not_noted: MissedWriteNotNoted,
    move_to_old_place_only: MoveToOldPlaceOnly,
    discard_keeps_records: DiscardKeepsRecords,
    journal_on_one_drive: JournalOnOneDrive,
    freed_at_once: FreedAtOnce,
    rebuilt_before_flush: RebuiltBeforeFlush,
    resync_compares_nothing: ResyncComparesNothing,
    lost_blocks_forgotten_early: LostBlocksForgottenEarly,
    lost_blocks_not_recorded: LostBlocksNotRecorded,
    journal_not_durable: JournalNotDurable,
    first_stretch_only: FirstStretchOnly,
    forgotten_branch_is_past: ForgottenBranchIsPast,
    copy_without_mark: CopyWithoutMark,
    cut_drive_counts: CutDriveCounts,
    longer_drive_counts: LongerDriveCounts,
    unflushed_not_missed: UnflushedNotMissed,
    forced_zeroes_not_flushed: ForcedZeroesNotFlushed,
    other_session_passed_over: OtherSessionPassedOver,
    other_host_passed_over: OtherHostPassedOver,
    record_without_reserve: RecordWithoutReserve,
    losses_need_no_record: LossesNeedNoRecord,
    plan_copies_record: PlanCopiesRecord,
    page_sequence_truncated: PageSequenceTruncated,
    generation_truncated: GenerationTruncated,
    flush_error_reported_once: FlushErrorReportedOnce,
    reopened_without_losses: ReopenedWithoutLosses,
    unaligned_writes_together: UnalignedWritesTogether,
    flush_forgets_slice: FlushForgetsSlice,
}

#[test]
fn each_mutation_is_found_or_has_a_reason() {
    let listed = |mutation: &&Mutation| {
        FOUND.contains(mutation) != NOT_FOUND.iter().any(|(other, _)| other == *mutation)
    };
    let missing: Vec<&Mutation> = Mutation::ALL.iter().filter(|mutation| !listed(mutation)).collect();
    assert!(missing.is_empty() && FOUND.len() >= 30, "{missing:?}");
}
