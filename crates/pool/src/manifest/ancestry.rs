//! The recorded history of a pool: the branches that led here, and which moments of other drives
//! are known to be part of it.
//!
//! The list of branches is bounded, and a drive may be away for longer than it reaches back. So an
//! old branch stays for as long as a drive that is out may have no later one; and for some of those
//! that were replaced. What is on no list is not known to be of this history, and counts as another
//! one: to take it for past would throw away what was written there.
//!
//! Faults expected: drives that come back after very many changes of who takes part, halves of a
//! pool that went on without each other for as long.

use crate::manifest::branches::{Branch, MAX_BRANCHES, MAX_OLD_BRANCHES, Moment, OldBranch};
use crate::manifest::drive_record::DriveRecord;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use stripewise_array::mutation::{self, Mutation};

impl Manifest {
    pub(crate) fn branch(&self) -> Branch {
        *self.branches.last().expect("a checked manifest has a branch")
    }

    /// Goes on under a new branch from a generation on, that of the commit which is to be made, or
    /// one before it.
    pub(crate) fn fork(&mut self, id: Id, generation: u64) {
        if self.branches.len() >= MAX_BRANCHES {
            let Branch { id, generation, .. } = self.branches.remove(0);
            let oldest = OldBranch { id, generation, last_generation: self.branches[0].generation - 1 };
            if self.is_had_last(&oldest) {
                self.keep_old(oldest);
            }
        }
        self.branches.push(Branch { id, generation, tentative: false });
    }

    /// Keeps the branches that drives which are no members any more have last. `before`: the record
    /// with these drives; those that took part in it have all up to `proven`.
    pub(crate) fn keep_branches_of_gone(&mut self, before: &Manifest, proven: u64) {
        let gone = before.drives.iter().filter(|drive| self.drive(drive.number).is_none());
        let had: Vec<u64> =
            gone.filter_map(|drive| if drive.is_online() { Some(proven) } else { drive.had }).collect();
        for generation in had {
            let ended = self.branches.windows(2).map(|pair| OldBranch {
                id: pair[0].id,
                generation: pair[0].generation,
                last_generation: pair[1].generation - 1,
            });
            if let Some(branch) = ended.into_iter().find(|branch| branch.has(generation)) {
                self.keep_old(branch);
            }
        }
    }

    /// True if a drive that is away may have no later branch than this one.
    fn is_had_last(&self, branch: &OldBranch) -> bool {
        self.drives.iter().filter_map(|drive| drive.had).any(|had| branch.has(had))
    }

    /// If there is no room, forgets the oldest branch that no drive that may return was on; if
    /// there is none, the oldest: its drive then counts as half of another pool.
    fn keep_old(&mut self, branch: OldBranch) {
        if self.old_branches.iter().any(|other| other.id == branch.id) {
            return;
        }
        if self.old_branches.len() >= MAX_OLD_BRANCHES {
            let spared = self.old_branches.iter().position(|other| !self.is_had_last(other));
            self.old_branches.remove(spared.unwrap_or(0));
        }
        let place = self.old_branches.partition_point(|other| other.generation < branch.generation);
        self.old_branches.insert(place, branch);
    }

    /// As [`Self::fork`], to be lived on when all that take part have it and know so
    /// ([`Self::confirm`]).
    pub(crate) fn fork_tentatively(&mut self, id: Id, generation: u64) {
        self.fork(id, generation);
        self.branches.last_mut().expect("just added").tentative = true;
    }

    /// Every drive that takes part has the last branch, and with it all that led there: from now on
    /// it is lived on.
    pub(crate) fn confirm(&mut self) {
        self.branches.iter_mut().for_each(|branch| branch.tentative = false);
    }

    /// True if the last branch is yet to be confirmed.
    pub(crate) fn is_tentative(&self) -> bool {
        self.branch().tentative
    }

    /// The last moment that may have been lived on by who has this manifest: that before its first
    /// tentative branch.
    pub(crate) fn last_confirmed(&self) -> Moment {
        let Some(first) = self.branches.iter().position(|branch| branch.tentative) else {
            return self.moment();
        };
        // If all earlier branches are forgotten, it is before everything that is known.
        let before = &self.branches[first.saturating_sub(1)];
        Moment { branch: before.id, generation: self.branches[first].generation.saturating_sub(1) }
    }

    /// The moment that it describes.
    pub(crate) fn moment(&self) -> Moment {
        Moment { branch: self.branch().id, generation: self.generation }
    }

    /// True if `other` describes an earlier (or the same) moment of the history that led here.
    pub(crate) fn descends_from(&self, other: &Manifest) -> bool {
        self.has_had(other.moment())
    }

    /// True if this is known to be a moment of the history that led here. What is forgotten is not:
    /// it may as well be of another half of the pool.
    pub(crate) fn has_had(&self, moment: Moment) -> bool {
        let is_older = || {
            mutation::is_chosen(Mutation::ForgottenBranchIsPast)
                && moment.generation < self.branches[0].generation
        };
        self.last_generation_on(moment.branch).map_or_else(is_older, |last| moment.generation <= last)
    }

    /// The moment of the history that led here with this generation; `None` where it is forgotten.
    pub(crate) fn moment_at(&self, generation: u64) -> Option<Moment> {
        let recent = self.branches.iter().rev().find(|branch| branch.generation <= generation);
        let old = || self.old_branches.iter().find(|branch| branch.has(generation));
        let branch = recent.map(|branch| branch.id).or_else(|| old().map(|branch| branch.id))?;
        Some(Moment { branch, generation })
    }

    /// True if a drive of this pool, with `theirs` on it, lacks a commit that it is known to have
    /// had: then it was put back from an older copy. A cut in the middle of a commit leaves drives
    /// without that commit, never without the one before.
    pub(crate) fn is_rolled_back(&self, drive: &DriveRecord, theirs: &Manifest) -> bool {
        if mutation::is_chosen(Mutation::RolledBackDriveCounts) {
            return false;
        }
        let had = match drive.is_online() {
            true => (self.proven > 0).then_some(self.proven),
            false => drive.had,
        };
        had.and_then(|generation| self.moment_at(generation)).is_some_and(|moment| !theirs.has_had(moment))
    }

    /// The last commit of a branch in the history that led here; `None` where it was not on that
    /// branch, or that is forgotten.
    pub(crate) fn last_generation_on(&self, branch: Id) -> Option<u64> {
        let Some(index) = self.branches.iter().position(|other| other.id == branch) else {
            let old = self.old_branches.iter().find(|other| other.id == branch);
            return old.map(|old| old.last_generation);
        };
        let next = self.branches.get(index + 1);
        Some(next.map_or(self.generation, |next| next.generation - 1))
    }

    /// The last moment of this history that is one of the `other` too, where every commit since is
    /// of the last branch, so that for all of them the same drives took part.
    pub(crate) fn shares_all_but_its_last_branch(&self, other: &Manifest) -> Option<Moment> {
        let last = self.branch();
        if let Some(theirs) = other.last_generation_on(last.id) {
            return Some(Moment { branch: last.id, generation: theirs.min(self.generation) });
        }
        let before = self.branches.iter().rev().nth(1)?;
        let generation = last.generation - 1;
        let theirs = other.last_generation_on(before.id)?;
        (theirs >= generation).then_some(Moment { branch: before.id, generation })
    }

    /// Validates the history as read from a drive.
    pub(crate) fn check_history(&self) -> Result<(), String> {
        let rising = |pair: &[Branch]| pair[0].generation < pair[1].generation;
        let branches_fit = (1..=MAX_BRANCHES).contains(&self.branches.len())
            && self.branches.windows(2).all(rising)
            && self.branches.windows(2).all(|pair| pair[1].tentative || !pair[0].tentative)
            && self.branches.last().is_some_and(|branch| branch.generation <= self.generation);
        let old_fit = self.old_branches.len() <= MAX_OLD_BRANCHES
            && self.old_branches.windows(2).all(|pair| pair[0].last_generation < pair[1].generation)
            && self
                .old_branches
                .iter()
                .all(|old| old.generation <= old.last_generation && old.last_generation < self.generation);
        if branches_fit && old_fit { Ok(()) } else { Err("the branches are out of order".to_owned()) }
    }
}

#[cfg(test)]
mod tests;
