//! Histories that are longer than the list of branches.

use super::*;
use crate::MIB;
use crate::manifest::drive_record::{Exclusion, ExclusionKind, Role, Standing};
use crate::testing::pool;

/// A pool of four drives whose drive 3 has been away since generation 1.
fn without_drive_3() -> Manifest {
    let mut manifest = pool(&[64; 4], MIB);
    leave(&mut manifest, 3);
    manifest
}

/// A commit that changes who takes part.
fn go_on(manifest: &mut Manifest) {
    manifest.generation += 1;
    manifest.fork(Id(1000 + u128::from(manifest.generation)), manifest.generation);
    assert_eq!(manifest.check(), Ok(()));
}

fn leave(manifest: &mut Manifest, drive: u32) {
    let had = manifest.generation;
    manifest.exclude(&[Exclusion { drive, reason: "gone".to_owned(), kind: ExclusionKind::Missing }]);
    manifest.drive_mut(drive).unwrap().had = Some(had);
    go_on(manifest);
}

fn come_back(manifest: &mut Manifest, drive: u32) {
    let record = manifest.drive_mut(drive).unwrap();
    (record.standing, record.had) = (Standing::Online, None);
    go_on(manifest);
}

#[test]
fn a_drive_away_for_very_long_is_still_past() {
    let mut manifest = without_drive_3();
    let its_last = Moment { branch: Id(1), generation: 1 };
    for _ in 0..300 {
        leave(&mut manifest, 2);
        come_back(&mut manifest, 2);
        assert!(manifest.has_had(its_last));
    }
    assert_eq!((manifest.branches.len(), manifest.old_branches.len()), (MAX_BRANCHES, 1));
    assert_eq!(manifest.moment_at(1), Some(its_last), "what it had is still known");
    assert!(!manifest.has_had(Moment { generation: 2, ..its_last }), "a commit that never counted here");
}

#[test]
fn another_half_is_no_past_however_old() {
    let mut other = pool(&[64; 4], MIB);
    leave(&mut other, 2);
    other.branches.last_mut().unwrap().id = Id(7);
    let mut manifest = without_drive_3();
    for _ in 0..300 {
        assert!(!manifest.descends_from(&other) && !other.descends_from(&manifest));
        leave(&mut manifest, 1);
        come_back(&mut manifest, 1);
    }
    assert!(manifest.branches[0].generation > other.generation);
}

#[test]
fn a_replaced_drive_is_past_for_long() {
    let before = without_drive_3();
    let mut manifest = before.clone();
    manifest.set_replaced(3);
    go_on(&mut manifest);
    manifest.keep_branches_of_gone(&before, before.generation);
    // One that took part until now had the last branch.
    let (took_part, now) = (manifest.clone(), manifest.moment());
    manifest.set_replaced(2);
    go_on(&mut manifest);
    manifest.keep_branches_of_gone(&took_part, took_part.generation);
    for _ in 0..150 {
        go_on(&mut manifest);
    }
    assert!(manifest.has_had(Moment { branch: Id(1), generation: 1 }) && manifest.has_had(now));
    assert_eq!(manifest.old_branches.len(), 2);
}

#[test]
fn old_branches_are_bounded_and_those_needed_stay() {
    let mut manifest = without_drive_3();
    for _ in 0..3 * MAX_OLD_BRANCHES as u32 {
        let before = manifest.clone();
        let number =
            manifest.add_drive(Id(5000 + u128::from(manifest.next_number)), "/dev/n", Role::Spare, 64 * MIB);
        go_on(&mut manifest);
        let with = manifest.clone();
        manifest.set_replaced(number);
        go_on(&mut manifest);
        manifest.keep_branches_of_gone(&with, with.generation);
        manifest.keep_branches_of_gone(&before, before.generation);
    }
    assert_eq!(manifest.old_branches.len(), MAX_OLD_BRANCHES);
    assert!(manifest.has_had(Moment { branch: Id(1), generation: 1 }), "its drive may come back");
    assert_eq!(manifest.check(), Ok(()));
}
