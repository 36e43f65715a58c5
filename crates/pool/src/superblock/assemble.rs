//! Assembly of a pool: chooses the branch of its history to continue, from the superblocks of the
//! drives at hand.
//!
//! Drives that missed commits describe earlier moments of one history; the newest moment counts.
//! Where the history forked, what was never lived on is passed over: a commit counts when every
//! drive that takes part has it, so one that a drive at hand should have and has not was cut short,
//! and nothing was written after it; so was what another history left its branch before; and a
//! branch that is still tentative was not lived on by who has it. The same holds for a branch of
//! which none of the volumes could be read with the drives that are on it or absent. Two branches
//! that were lived on, as two halves can that go on without each other, are refused, since only a
//! person knows which one is right. So is what is not known to be past (`manifest/ancestry.rs`).
//!
//! Every commit says which commit all that take part in it are known to have, and of each drive
//! that is out which one it had. A power cut leaves a drive without the commit that was being
//! written, never without such a one. A drive that lacks it was put back from an older copy: it is
//! not believed, and proves nothing against what the others have. Pure: superblocks in, choice out.

use crate::manifest::branches::Moment;
use crate::manifest::drive_record::ExclusionKind;
use crate::manifest::format::Manifest;
use crate::superblock::slots::Superblock;

/// A superblock and what people call the drive it is on.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Index of the drive among those at hand.
    pub index: usize,
    pub label: String,
    pub superblock: Superblock,
}

/// Standing of a drive at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Takes part.
    Current,
    /// Was excluded, but a volume could not be written without it: for that volume it is current.
    /// Of other volumes it may catch up as one that is `Behind`, unless it had failed.
    Returning,
    /// Was absent or offline, and was never active on another branch: it may catch up with the
    /// changes made since.
    Behind,
    /// Failed, was replaced, or lived on another branch: what it holds is of no use.
    Stale,
    /// Lacks a commit that it is known to have had: it was put back from an older copy, and is as
    /// good as `Stale`.
    RolledBack,
}

/// The answer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub manifest: Manifest,
    /// Drives at hand that the manifest names: index among those at hand, number, worth.
    pub drives: Vec<(usize, u32, Worth)>,
    /// Drives that the manifest does not name (any more): index.
    pub strangers: Vec<usize>,
    /// Some drive that takes part has another commit than the one that counts.
    pub behind: bool,
    /// Drives at hand that have a commit which never counted: index. What they say of themselves
    /// goes for nothing.
    pub misled: Vec<usize>,
    /// Drives at hand that were written as two members of the pool: index. They are good for
    /// neither.
    pub shared: Vec<usize>,
    /// The highest generation on any drive.
    pub newest_generation: u64,
}

/// The pool was used in two halves, each without the other: labels of the drives of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diverged {
    pub first: Vec<String>,
    pub second: Vec<String>,
}

/// Chooses among the superblocks of one pool, at least one, every drive at most once.
pub(crate) fn choose(found: &[Found]) -> Result<Choice, Diverged> {
    let manifest = chosen_leaf(leaves(found), found)?.superblock.manifest.clone();
    let newest = found.iter().map(|drive| drive.superblock.manifest.generation).max();
    let newest_generation = newest.unwrap_or(manifest.generation);
    let mut choice = Choice {
        manifest,
        drives: Vec::new(),
        strangers: Vec::new(),
        behind: false,
        misled: Vec::new(),
        shared: Vec::new(),
        newest_generation,
    };
    for drive in found {
        let theirs = &drive.superblock.manifest;
        let is_past = choice.manifest.descends_from(theirs);
        let is_misled = !is_past && choice.manifest.has_had(last_lived(theirs, found));
        let is_rolled_back = |record| choice.manifest.is_rolled_back(record, theirs);
        let Some(record) = choice.manifest.drive_by_id(drive.superblock.drive_id) else {
            choice.strangers.push(drive.index);
            continue;
        };
        let number = record.number;
        let worth = match record.exclusion() {
            _ if !is_past && !is_misled => Worth::Stale,
            _ if choice.manifest.is_shared(&drive.superblock.also) => {
                choice.shared.push(drive.index);
                Worth::Stale
            }
            _ if is_rolled_back(record) => Worth::RolledBack,
            None => Worth::Current,
            Some(_) if choice.manifest.is_needed(number) => Worth::Returning,
            Some(ExclusionKind::Missing | ExclusionKind::Offline) if !record.replaced => Worth::Behind,
            Some(_) => Worth::Stale,
        };
        if is_misled {
            choice.misled.push(drive.index);
        }
        let takes_part = matches!(worth, Worth::Current | Worth::Returning);
        choice.behind |= takes_part && theirs.moment() != choice.manifest.moment();
        choice.drives.push((drive.index, number, worth));
    }
    Ok(choice)
}

/// The last moment of a history that may have been lived on. What is tentative was not, nor what a
/// commit says that never counted: nothing was acknowledged, and no drive was written to, on the
/// strength of it. A commit counts when every drive that takes part has it, and these are the same
/// all along a branch. So it did not if a drive at hand lacks it which took part all the time; nor
/// if another history left the branch before it: that one goes back to a drive that had this much
/// of the branch and no more, and who has anything of a branch takes part in it. But what all that
/// take part are known to have counted, whatever an older copy of one of them lacks.
pub(crate) fn last_lived(manifest: &Manifest, found: &[Found]) -> Moment {
    let confirmed = manifest.last_confirmed();
    let left_earlier = |other: &Found| {
        let theirs = other.superblock.manifest.last_generation_on(confirmed.branch)?;
        Some(Moment { generation: theirs.min(confirmed.generation), ..confirmed })
    };
    let lacked = |other: &Found| {
        let takes_part =
            manifest.drive_by_id(other.superblock.drive_id).is_some_and(|drive| drive.is_online());
        let theirs = &other.superblock.manifest;
        let lacks_it = takes_part && !theirs.descends_from(manifest);
        lacks_it.then(|| manifest.shares_all_but_its_last_branch(theirs)).flatten()
    };
    let ends = found.iter().filter_map(left_earlier).chain(found.iter().filter_map(lacked));
    let last = ends.chain([confirmed]).min_by_key(|moment| moment.generation);
    let last = last.expect("at least what it says itself");
    let counted = manifest.moment_at(manifest.proven.min(confirmed.generation));
    counted.filter(|counted| manifest.proven > 0 && counted.generation > last.generation).unwrap_or(last)
}

/// One drive for each moment that no other drive's history contains.
fn leaves(found: &[Found]) -> Vec<&Found> {
    let mut leaves: Vec<&Found> = Vec::new();
    for drive in found {
        let manifest = &drive.superblock.manifest;
        let moment = (manifest.branch().id, manifest.generation);
        let contained = found.iter().any(|other| {
            let other = &other.superblock.manifest;
            (other.branch().id, other.generation) != moment && other.descends_from(manifest)
        });
        let known = leaves.iter().any(|leaf| {
            let leaf = &leaf.superblock.manifest;
            (leaf.branch().id, leaf.generation) == moment
        });
        if !contained && !known {
            leaves.push(drive);
        }
    }
    leaves
}

fn chosen_leaf<'a>(leaves: Vec<&'a Found>, found: &'a [Found]) -> Result<&'a Found, Diverged> {
    let leaves = lived_on(leaves, found);
    if let [only] = leaves.as_slice() {
        return Ok(only);
    }
    let alive: Vec<&Found> = leaves.iter().copied().filter(|leaf| is_alive(leaf, found)).collect();
    match alive.as_slice() {
        [only] => Ok(*only),
        // Nothing can be read on any of them, so nothing can be lost by the choice.
        [] => Ok(leaves.into_iter().max_by_key(|leaf| weight(leaf, found)).expect("at least one leaf")),
        [first, second, ..] => Err(Diverged { first: holders(first, found), second: holders(second, found) }),
    }
}

/// The leaves without those of which all that was ever lived on is in the history of another. One
/// after the other, those that fewest drives have first: where two are in each other's, one of them
/// stays.
fn lived_on<'a>(mut leaves: Vec<&'a Found>, found: &[Found]) -> Vec<&'a Found> {
    leaves.sort_by_key(|leaf| weight(leaf, found));
    let mut index = 0;
    while index < leaves.len() {
        let lived = last_lived(&leaves[index].superblock.manifest, found);
        let is_in = |other: &Found| other.superblock.manifest.has_had(lived);
        let is_elsewhere = leaves.iter().enumerate().any(|(other, leaf)| other != index && is_in(leaf));
        if is_elsewhere {
            leaves.remove(index);
        } else {
            index += 1;
        }
    }
    leaves
}

/// Weight of a leaf, used if nothing else decides.
fn weight(leaf: &Found, found: &[Found]) -> (usize, u64) {
    (holders(leaf, found).len(), leaf.superblock.manifest.generation)
}

/// Drives that say what the leaf says.
fn holders(leaf: &Found, found: &[Found]) -> Vec<String> {
    let branch = leaf.superblock.manifest.branch().id;
    let on_it = found.iter().filter(|drive| drive.superblock.manifest.branch().id == branch);
    on_it.map(|drive| drive.label.clone()).collect()
}

/// True if any volume could be read with the drives that are not known to be on another branch.
fn is_alive(leaf: &Found, found: &[Found]) -> bool {
    let manifest = &leaf.superblock.manifest;
    let lives_elsewhere = |number: u32| {
        let id = manifest.drive(number).map(|drive| drive.id);
        found.iter().any(|other| {
            Some(other.superblock.drive_id) == id && !manifest.descends_from(&other.superblock.manifest)
        })
    };
    manifest.volumes.iter().any(|volume| volume.survives(lives_elsewhere))
}

#[cfg(test)]
mod tests;
