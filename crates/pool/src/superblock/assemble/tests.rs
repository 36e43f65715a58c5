//! Histories of a pool of a few drives, and what is chosen from what is at hand.

use stripewise_layout::Level;

use super::*;
use crate::MIB;
use crate::manifest::drive_record::Exclusion;
use crate::manifest::ids::Id;
use crate::testing::{add_volume, pool};
use stripewise_array::rows::{SlotPlace, SlotState};

/// A pool as its drives have it; each drive by number, all with an identity of 100 plus that.
struct History {
    drives: Vec<Manifest>,
    next_branch: u128,
    kind: ExclusionKind,
}

impl History {
    fn new(count: u32, levels: &[Level]) -> Self {
        let mut manifest = pool(&vec![100; count as usize], MIB);
        for (index, level) in levels.iter().enumerate() {
            let width = if *level == Level::Single { 1 } else { count as usize };
            add_volume(&mut manifest, index as u128, *level, width, 10);
            if *level == Level::Single {
                put_on(&mut manifest, index, 0);
            }
        }
        Self { drives: vec![manifest; count as usize], next_branch: 2, kind: ExclusionKind::Failed }
    }

    /// As [`Self::go_on`], but power goes when some have the new branch, and before any knows
    /// that all have it.
    fn begin_to_go_on(&mut self, on: &[usize], out: &[u32], reached: &[usize]) {
        self.go_on(on, out, reached);
        for drive in reached {
            self.drives[*drive].branches.last_mut().expect("just begun").tentative = true;
        }
    }

    /// The drives of `on` go on without `out`; `reached` of them get the commit.
    fn go_on(&mut self, on: &[usize], out: &[u32], reached: &[usize]) {
        let newest = on.iter().max_by_key(|drive| self.drives[**drive].generation).expect("some");
        let mut next = self.drives[*newest].clone();
        let out: Vec<_> = out
            .iter()
            .map(|&drive| Exclusion { drive, reason: "gone".to_owned(), kind: self.kind })
            .collect();
        next.exclude(&out);
        next.generation += 1;
        next.confirm();
        if !out.is_empty() {
            next.fork(Id(self.next_branch), next.generation);
            self.next_branch += 1;
        }
        assert_eq!(next.check(), Ok(()));
        for drive in reached {
            self.drives[*drive] = next.clone();
        }
    }

    fn choose(&self, at_hand: &[usize]) -> Result<Choice, Diverged> {
        let found: Vec<Found> = at_hand
            .iter()
            .map(|&index| Found {
                index,
                label: format!("d{index}"),
                superblock: Superblock {
                    pool_id: Id(9),
                    drive_id: Id(100 + index as u128),
                    manifest: self.drives[index].clone(),
                    also: Vec::new(),
                    session: Id(0),
                    sessions: Vec::new(),
                },
            })
            .collect();
        choose(&found)
    }

    fn worths(&self, at_hand: &[usize]) -> Vec<(usize, Worth)> {
        let choice = self.choose(at_hand).expect("a choice");
        choice.drives.iter().map(|(index, _, worth)| (*index, *worth)).collect()
    }
}

/// Puts a volume of one column on a drive.
fn put_on(manifest: &mut Manifest, volume: usize, drive: u32) {
    let part = &mut manifest.volumes[volume].parts[0];
    let rows = part.rows.rows();
    part.meta.places[0].drive = drive;
    part.meta.places[0].slab = 40;
    part.rows.set(0, rows, &[SlotPlace { drive, slab: 41, state: SlotState::Active }]);
    assert_eq!(manifest.check(), Ok(()));
}

/// State of a volume's column on a drive.
fn state(manifest: &Manifest, volume: usize, drive: u32) -> SlotState {
    let run = manifest.volumes[volume].parts[0].rows.runs().next().expect("a run");
    run.places.iter().find(|place| place.drive == drive).expect("a column").state
}

use Worth::{Behind, Current, Returning, RolledBack, Stale};

/// Drives that go on for some commits, each of which says that all have the one before.
fn go_on_proven(history: &mut History, on: &[usize], commits: usize) {
    for _ in 0..commits {
        let proven = history.drives[on[0]].generation;
        on.iter().for_each(|drive| history.drives[*drive].proven = proven);
        history.go_on(on, &[], on);
    }
}

#[test]
fn drive_missing_its_own_commit_is_rolled_back() {
    let mut history = History::new(4, &[Level::Raid6]);
    go_on_proven(&mut history, &[0, 1, 2, 3], 3);
    let older = history.drives[3].clone();
    // One commit less is what a power cut leaves.
    go_on_proven(&mut history, &[0, 1, 2, 3], 1);
    history.drives[3] = older.clone();
    assert_eq!(history.worths(&[3, 0]), [(3, Current), (0, Current)]);
    go_on_proven(&mut history, &[0, 1, 2, 3], 1);
    history.drives[3] = older.clone();
    assert_eq!(history.worths(&[3, 0]), [(3, RolledBack), (0, Current)]);
    // If only older copies are at hand there is nothing to go by.
    assert_eq!(history.worths(&[3]), [(3, Current)]);
    // Also when it is out since: it had what the others had then.
    history.kind = ExclusionKind::Missing;
    history.go_on(&[0, 1, 2], &[3], &[0, 1, 2]);
    assert_eq!(history.worths(&[3, 0]), [(3, Behind), (0, Current)], "what it had is not recorded");
    for drive in 0..3 {
        let had = history.drives[drive].generation - 1;
        history.drives[drive].drive_mut(3).unwrap().had = Some(had);
    }
    assert_eq!(history.worths(&[3, 0]), [(3, RolledBack), (0, Current)]);
    history.drives[3].generation += 2;
    assert_eq!(history.worths(&[3, 0]), [(3, Behind), (0, Current)]);
}

#[test]
fn older_copy_used_alone_does_not_override_commits() {
    let mut history = History::new(2, &[Level::Raid1]);
    go_on_proven(&mut history, &[0, 1], 2);
    let older = history.drives[1].clone();
    for (commits, is_refused) in [(1, false), (2, true)] {
        let mut history = History { drives: history.drives.clone(), ..history };
        go_on_proven(&mut history, &[0, 1], commits);
        history.drives[1] = older.clone();
        history.go_on(&[1], &[0], &[1]);
        assert_eq!(history.choose(&[0, 1]).is_err(), is_refused, "{commits} commits");
    }
}

#[test]
fn drives_that_were_away_are_stale() {
    let mut history = History::new(4, &[Level::Raid6]);
    history.go_on(&[0, 1, 2], &[3], &[0, 1, 2]);
    history.go_on(&[0, 1], &[2], &[0, 1]);
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let mut worths = history.worths(&order);
        worths.sort_by_key(|(index, _)| *index);
        assert_eq!(worths, [(0, Current), (1, Current), (2, Stale), (3, Stale)]);
    }
    assert_eq!(history.worths(&[3, 1]), [(3, Stale), (1, Current)]);
    // Without a drive that knows, the one that knows most.
    assert_eq!(history.worths(&[3, 2]), [(3, Stale), (2, Current)]);
}

#[test]
fn interrupted_commit_is_completed_or_void() {
    let mut history = History::new(3, &[Level::Raid5]);
    history.go_on(&[0, 1, 2], &[], &[1]);
    let choice = history.choose(&[0, 1, 2]).unwrap();
    assert_eq!((choice.manifest.generation, choice.behind), (2, true));
    assert!(choice.drives.iter().all(|(_, _, worth)| *worth == Current));
    assert!(!history.choose(&[0, 2]).unwrap().behind);
    // An exclusion that reached one drive counts as soon as that drive is seen.
    history.go_on(&[1], &[0], &[1]);
    assert_eq!(history.worths(&[0, 1, 2]), [(0, Stale), (1, Current), (2, Current)]);
    assert_eq!(history.worths(&[0, 2]), [(0, Current), (2, Current)]);
}

#[test]
fn diverged_halves_are_refused_and_named() {
    let mut history = History::new(4, &[Level::Raid6]);
    history.go_on(&[0, 1], &[2, 3], &[0, 1]);
    history.go_on(&[2, 3], &[0, 1], &[2, 3]);
    let Err(Diverged { first, second }) = history.choose(&[0, 1, 2, 3]) else { panic!("refused") };
    assert_eq!(
        (first, second),
        (vec!["d0".to_owned(), "d1".to_owned()], vec!["d2".to_owned(), "d3".to_owned()])
    );
    // Part of a half that may have its other part somewhere is a half.
    assert!(matches!(history.choose(&[0, 1, 2]), Err(Diverged { .. })));
    assert_eq!(history.worths(&[3, 2]), [(3, Current), (2, Current)]);
    // Also when both went on for long.
    for _ in 0..5 {
        history.go_on(&[0, 1], &[], &[0, 1]);
    }
    assert!(matches!(history.choose(&[3, 0, 2, 1]), Err(Diverged { .. })));
}

#[test]
fn abandoned_branch_is_ignored() {
    let mut history = History::new(3, &[Level::Raid5]);
    // Drive 0 was to be excluded, but power went when only drive 1 had heard of it; then 0 and 2
    // were used.
    history.go_on(&[1], &[0], &[1]);
    history.go_on(&[0, 2], &[1], &[0, 2]);
    assert_eq!(history.worths(&[0, 1, 2]), [(0, Current), (1, Stale), (2, Current)]);
    // With only one of these two it cannot be decided.
    assert!(matches!(history.choose(&[0, 1]), Err(Diverged { .. })));
    // Drive 1 has something of its own, but its branch never counted: it was to be that of drive 2,
    // too.
    let mut history = History::new(3, &[Level::Raid5, Level::Single]);
    history.drives.iter_mut().for_each(|manifest| put_on(manifest, 1, 1));
    history.go_on(&[1], &[0], &[1]);
    history.go_on(&[0, 2], &[1], &[0, 2]);
    assert_eq!(history.worths(&[0, 1, 2]), [(0, Current), (1, Returning), (2, Current)]);
    // It was used without the others after all.
    let mut history = History::new(3, &[Level::Raid5, Level::Single]);
    history.drives.iter_mut().for_each(|manifest| put_on(manifest, 1, 1));
    history.go_on(&[1], &[0, 2], &[1]);
    history.go_on(&[0, 2], &[1], &[0, 2]);
    assert!(matches!(history.choose(&[0, 1, 2]), Err(Diverged { .. })));
}

#[test]
fn tentative_commit_yields_to_drives_that_continued() {
    for out in [&[][..], &[1]] {
        let mut history = History::new(3, &[Level::Raid1]);
        history.kind = ExclusionKind::Missing;
        history.go_on(&[0, 1, 2], &[], &[0, 1, 2]);
        // Power went when only drive 0 had it; then it was away. Alone it could be read.
        history.go_on(&[0], out, &[0]);
        history.go_on(&[1, 2], &[0], &[1, 2]);
        history.go_on(&[1, 2], &[], &[1, 2]);
        assert_eq!(history.worths(&[0, 1, 2]), [(0, Behind), (1, Current), (2, Current)]);
        assert_eq!(history.worths(&[2, 0]), [(2, Current), (0, Behind)]);
        let choice = history.choose(&[0, 1, 2]).unwrap();
        assert_eq!((choice.misled.as_slice(), choice.behind), ([0].as_slice(), false));
        assert_eq!(choice.manifest, history.drives[1]);
        match out {
            [] => assert_eq!(history.worths(&[1, 0]), [(1, Current), (0, Behind)]),
            // Drive 0 may have gone on with drive 2 for all that these two know.
            _ => assert!(matches!(history.choose(&[1, 0]), Err(Diverged { .. }))),
        }
        // Now it was used alone.
        history.go_on(&[0], &[1, 2], &[0]);
        assert!(matches!(history.choose(&[0, 1, 2]), Err(Diverged { .. })));
    }
}

#[test]
fn commit_yields_where_another_history_forked() {
    // Drive 0 got a commit that drive 1 lacked, and was out from then on; later drive 2 took its
    // place.
    let mut history = History::new(3, &[Level::Raid1]);
    history.go_on(&[0, 1, 2], &[], &[0]);
    history.go_on(&[1, 2], &[0], &[1, 2]);
    history.go_on(&[2], &[1], &[2]);
    // None of the drives at hand that went on took part in that commit.
    for number in [1, 2] {
        history.drives[0].drive_mut(number).unwrap().id = Id(300 + u128::from(number));
    }
    assert_eq!(history.worths(&[0, 2]), [(0, Stale), (2, Current)]);
    let choice = history.choose(&[0, 2]).unwrap();
    assert_eq!((choice.misled.as_slice(), &choice.manifest), ([0].as_slice(), &history.drives[2]));
    // Gone on with by itself it is half of a pool, however far it got before.
    history.go_on(&[0], &[1, 2], &[0]);
    assert!(matches!(history.choose(&[0, 2]), Err(Diverged { .. })));
}

#[test]
fn tentative_branch_yields_to_an_active_one() {
    for reached in [&[0][..], &[0, 1]] {
        let mut history = History::new(3, &[Level::Raid1]);
        history.kind = ExclusionKind::Missing;
        history.begin_to_go_on(&[0, 1], &[2], reached);
        assert_eq!(history.choose(&[0, 2]).unwrap().manifest, history.drives[0], "while it is all there is");
        // Those that are left of who was to take part are not at hand: for all that drive 0 knows
        // they may have it.
        history.go_on(&[2], &[0, 1], &[2]);
        let choice = history.choose(&[0, 2]).unwrap();
        assert_eq!((choice.misled.as_slice(), &choice.manifest), ([0].as_slice(), &history.drives[2]));
        assert_eq!(history.worths(&[0, 2]), [(0, Behind), (2, Current)]);
        // Begun once more from there, it is as tentative as before.
        history.begin_to_go_on(&[0], &[1], &[0]);
        history.drives[0].branches.iter_mut().rev().take(2).for_each(|branch| branch.tentative = true);
        assert_eq!(history.choose(&[0, 2]).unwrap().manifest, history.drives[2]);
        history.drives[0].confirm();
        assert!(matches!(history.choose(&[0, 2]), Err(Diverged { .. })));
    }
}

#[test]
fn only_counted_commits_before_a_branch_were_active() {
    // A commit that drive 0 alone had, and from there a branch without the others on which no
    // client was acknowledged.
    let mut history = History::new(3, &[Level::Raid1]);
    history.go_on(&[0, 1, 2], &[], &[0]);
    history.begin_to_go_on(&[0], &[1], &[0]);
    history.go_on(&[1, 2], &[0], &[1, 2]);
    assert_eq!(history.choose(&[0, 2]).unwrap().manifest, history.drives[2]);
    assert_eq!(history.choose(&[1, 0]).unwrap().manifest, history.drives[1]);
}

#[test]
fn counted_commit_before_a_tentative_one_is_kept() {
    let mut history = History::new(3, &[Level::Raid1]);
    history.go_on(&[0, 1], &[2], &[0, 1]);
    // Drive 2 was to take part again, and never heard of it.
    let mut next = history.drives[0].clone();
    next.drive_mut(2).unwrap().standing = crate::manifest::drive_record::Standing::Online;
    next.generation += 1;
    next.fork(Id(50), next.generation);
    history.drives[0] = next;
    assert!(history.choose(&[0, 2]).is_ok());
    history.go_on(&[2], &[0, 1], &[2]);
    assert!(matches!(history.choose(&[0, 2]), Err(Diverged { .. })));
}

#[test]
fn either_of_two_tentative_commits_may_be_chosen() {
    let mut history = History::new(4, &[Level::Raid1]);
    let lived = history.drives[3].clone();
    history.go_on(&[0], &[2], &[0]);
    history.go_on(&[1], &[3], &[1]);
    history.drives[1].generation += 5;
    let choice = history.choose(&[0, 1]).unwrap();
    assert!(choice.behind && choice.newest_generation == lived.generation + 6);
    assert_eq!(choice.manifest, history.drives[1]);
    assert_eq!(history.worths(&[0, 1]), [(0, Current), (1, Current)]);
}

#[test]
fn a_drive_that_could_not_be_spared_returns() {
    let mut history = History::new(3, &[Level::Raid0, Level::Raid5]);
    history.go_on(&[0, 2], &[1], &[0, 2]);
    assert_eq!(history.worths(&[0, 1, 2]), [(0, Current), (1, Returning), (2, Current)]);
    let manifest = history.choose(&[0, 1, 2]).unwrap().manifest;
    assert_eq!(state(&manifest, 0, 1), SlotState::Active);
    assert_eq!(state(&manifest, 1, 1), SlotState::Missing);
}

#[test]
fn absent_drive_catches_up_unless_it_diverged() {
    for kind in [ExclusionKind::Missing, ExclusionKind::Offline] {
        let mut history = History::new(4, &[Level::Raid6]);
        history.kind = kind;
        history.go_on(&[0, 1, 2], &[3], &[0, 1, 2]);
        history.go_on(&[0, 1, 2], &[], &[0, 1, 2]);
        assert_eq!(history.worths(&[3, 0, 1, 2]), [(3, Behind), (0, Current), (1, Current), (2, Current)]);
        assert!(!history.choose(&[3, 0, 1, 2]).unwrap().behind, "who is left out is not waited for");
        // It was used by itself, to no avail.
        history.go_on(&[3], &[0, 1, 2], &[3]);
        assert_eq!(history.worths(&[0, 3, 1, 2]), [(0, Current), (3, Stale), (1, Current), (2, Current)]);
        assert_eq!(history.choose(&[0, 3, 1, 2]).unwrap().manifest, history.drives[0]);
    }
}

#[test]
fn drive_without_the_last_commit_is_behind() {
    let mut history = History::new(3, &[Level::Raid5]);
    history.go_on(&[0, 1, 2], &[], &[0, 2]);
    let choice = history.choose(&[1, 0]).unwrap();
    assert!(choice.behind && choice.manifest == history.drives[0]);
    assert_eq!(history.worths(&[1, 0]), [(1, Current), (0, Current)]);
}

#[test]
fn replaced_drives_are_foreign() {
    let mut history = History::new(3, &[Level::Raid5]);
    history.go_on(&[0, 1], &[2], &[0, 1]);
    for drive in [0, 1] {
        let manifest = &mut history.drives[drive];
        manifest.volumes.clear();
        manifest.set_replaced(2);
    }
    let choice = history.choose(&[2, 0, 1]).unwrap();
    assert_eq!((choice.strangers.as_slice(), choice.drives.len()), ([2].as_slice(), 2));
    assert_eq!(choice.manifest.former, [Id(102)]);
}

#[test]
fn forgotten_branches_are_refused_kept_ones_are_past() {
    for is_kept in [true, false] {
        let mut history = History::new(3, &[Level::Raid1]);
        history.kind = ExclusionKind::Missing;
        history.go_on(&[0, 1], &[2], &[0, 1]);
        for _ in 0..200 {
            let mut next = history.drives[0].clone();
            next.drive_mut(2).unwrap().had = is_kept.then_some(1);
            next.generation += 1;
            next.fork(Id(history.next_branch), next.generation);
            history.next_branch += 1;
            assert_eq!(next.check(), Ok(()));
            history.drives[0] = next.clone();
            history.drives[1] = next;
        }
        match is_kept {
            true => assert_eq!(history.worths(&[2, 0, 1]), [(2, Behind), (0, Current), (1, Current)]),
            false => assert!(matches!(history.choose(&[2, 0, 1]), Err(Diverged { .. }))),
        }
        // Used alone it is half of a pool, kept or not.
        history.go_on(&[2], &[0, 1], &[2]);
        history.drives[2].branches.last_mut().unwrap().id = Id(7);
        assert!(matches!(history.choose(&[2, 0, 1]), Err(Diverged { .. })));
    }
}
