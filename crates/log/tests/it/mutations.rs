//! Each broken rule is found by the tests: a fault that is put into the log makes one of a few
//! lives fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stripewise_log::mutation::{Mutation, choose};

use crate::crash::life;

/// Lives of which one at least must find the fault.
const LIVES: u64 = 60;

fn is_found(mutation: Mutation) {
    choose(Some(mutation));
    let found = (1..=LIVES).find(|&seed| catch_unwind(AssertUnwindSafe(|| life(seed))).is_err());
    choose(None);
    assert!(found.is_some(), "{mutation:?} went unnoticed in {LIVES} lives");
}

fn is_found_in_a_rebuild(mutation: Mutation) {
    choose(Some(mutation));
    let life = crate::rebuild::life;
    let found = (1..=LIVES).find(|&seed| catch_unwind(AssertUnwindSafe(|| life(seed))).is_err());
    choose(None);
    assert!(found.is_some(), "{mutation:?} went unnoticed in {LIVES} rebuilds");
}

fn is_found_with_snapshots(mutation: Mutation) {
    choose(Some(mutation));
    let life = crate::snapshots::life;
    let found = (1..=LIVES).find(|&seed| catch_unwind(AssertUnwindSafe(|| life(seed))).is_err());
    choose(None);
    assert!(found.is_some(), "{mutation:?} went unnoticed in {LIVES} lives with snapshots");
}

test_cases! {
    broken_rule_is_found_with_snapshots = is_found_with_snapshots {
        kept_version_dropped: super::Mutation::KeptVersionDropped,
        kept_block_cleaned_away: super::Mutation::KeptBlockCleanedAway,
        snapshot_before_its_data: super::Mutation::SnapshotBeforeItsData,
        late_versions_count_as_newest: super::Mutation::LateVersionsCountAsNewest,
    }
}

test_cases! {
    broken_rule_is_found_in_a_rebuild = is_found_in_a_rebuild {
        unfinished_member_believed: super::Mutation::UnfinishedMemberBelieved,
        new_segments_not_filled: super::Mutation::NewSegmentsNotFilled,
        filled_whatever_the_use: super::Mutation::FilledWhateverTheUse,
    }
}

test_cases! {
    broken_rule_is_found_in_a_life = is_found {
        live_block_cleaned_away: super::Mutation::LiveBlockCleanedAway,
        older_use_of_segment: super::Mutation::OlderUseOfSegment,
        flush_without_staging: super::Mutation::FlushWithoutStaging,
        torn_segment_counts: super::Mutation::TornSegmentCounts,
        flush_without_drives: super::Mutation::FlushWithoutDrives,
        stale_roots: super::Mutation::StaleRoots,
    }
}

#[test]
fn forgotten_dead_lists_are_found_when_full() {
    choose(Some(Mutation::DeadListForgotten));
    let full = catch_unwind(crate::space::full_volume_refuses_writes_until_a_discard);
    choose(None);
    assert!(full.is_err());
}

#[test]
fn early_reuse_loses_forced_writes() {
    choose(Some(Mutation::ReuseBeforeRoots));
    let lost = catch_unwind(crate::crash::forced_writes_wait_for_the_roots);
    choose(None);
    assert!(lost.is_err());
}

#[test]
fn rebuild_of_a_replaced_column_is_found() {
    choose(Some(Mutation::ReplacedMemberBelieved));
    let lost = catch_unwind(crate::rebuild::replaced_column_is_not_believed);
    choose(None);
    assert!(lost.is_err());
}

#[test]
fn forgotten_parity_is_found_after_a_scrub() {
    choose(Some(Mutation::ScrubForgetsParity));
    let lost = catch_unwind(crate::scrub::rot_of_data_and_parity_is_mended);
    choose(None);
    assert!(lost.is_err());
}

#[test]
fn snapshots_given_up_early_lose_blocks() {
    choose(Some(Mutation::SnapshotGivenUpBeforeRoots));
    let lost = catch_unwind(crate::snapshots::deletions_wait_for_the_roots);
    choose(None);
    assert!(lost.is_err());
}

#[test]
fn summaries_believed_without_checksum_are_found() {
    choose(Some(Mutation::SummaryWithoutChecksum));
    let wrong = catch_unwind(crate::faults::damaged_summaries_are_reconstructed);
    choose(None);
    assert!(wrong.is_err());
}
