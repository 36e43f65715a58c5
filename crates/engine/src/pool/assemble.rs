//! Which of the drives at hand say what counts: choosing the branch of the pool's history to live on with.
//!
//! Drives that missed commits describe earlier moments of one history; the newest moment counts. Where the history forked
//! because two halves went on without each other, a branch counts as *alive* if, as far as the drives at hand tell, any of
//! its volumes could still be read with the drives that are on it or absent. A dead branch (a change of members that was
//! interrupted after the first drive or two) is passed over; two live ones are refused, since only a person knows which
//! one is right. Pure: superblocks in, choice out.

use super::drive_record::ExclusionKind;
use super::format::Manifest;
use super::slots::Superblock;

/// A superblock and what people call the drive it is on.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Index of the drive among those at hand.
    pub index: usize,
    pub label: String,
    pub superblock: Superblock,
}

/// What a drive at hand is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Takes part.
    Current,
    /// Was excluded, but a volume could not be written without it: for that volume it is current. Of other volumes it may
    /// catch up as one that is `Behind`, unless it had failed.
    Returning,
    /// Was not there, or offline, and has lived on no other branch: it may catch up with what changed meanwhile.
    Behind,
    /// Failed, was replaced, or lived on another branch: what it holds is of no use.
    Stale,
}

/// The answer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub manifest: Manifest,
    /// Drives at hand that the manifest names: index among those at hand, number, worth.
    pub drives: Vec<(usize, u32, Worth)>,
    /// Drives that the manifest does not name (any more): index.
    pub strangers: Vec<usize>,
    /// Some drive that takes part has not got the newest commit.
    pub behind: bool,
}

/// The pool was used in two halves, each without the other: labels of the drives of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diverged {
    pub first: Vec<String>,
    pub second: Vec<String>,
}

/// Chooses among the superblocks of one pool, at least one, every drive at most once.
pub(crate) fn choose(found: &[Found]) -> Result<Choice, Diverged> {
    let leaves = leaves(found);
    let manifest = match leaves.as_slice() {
        [only] => only.superblock.manifest.clone(),
        several => chosen_leaf(several, found)?.superblock.manifest.clone(),
    };
    let mut choice = Choice { manifest, drives: Vec::new(), strangers: Vec::new(), behind: false };
    for drive in found {
        let theirs = &drive.superblock.manifest;
        let on_branch = choice.manifest.descends_from(theirs);
        let Some(record) = choice.manifest.drive_by_id(drive.superblock.drive_id) else {
            choice.strangers.push(drive.index);
            continue;
        };
        let number = record.number;
        let worth = match record.exclusion() {
            _ if !on_branch => Worth::Stale,
            None => Worth::Current,
            Some(_) if choice.manifest.is_needed(number) => Worth::Returning,
            Some(ExclusionKind::Missing | ExclusionKind::Offline) if !record.replaced => Worth::Behind,
            Some(_) => Worth::Stale,
        };
        let takes_part = matches!(worth, Worth::Current | Worth::Returning);
        choice.behind |= takes_part && theirs.generation < choice.manifest.generation;
        choice.drives.push((drive.index, number, worth));
    }
    Ok(choice)
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

fn chosen_leaf<'a>(leaves: &[&'a Found], found: &'a [Found]) -> Result<&'a Found, Diverged> {
    let alive: Vec<&Found> = leaves.iter().copied().filter(|leaf| is_alive(leaf, found)).collect();
    match alive.as_slice() {
        [only] => Ok(*only),
        // Nothing can be read on any of them, so nothing can be lost by the choice.
        [] => Ok(leaves
            .iter()
            .copied()
            .max_by_key(|leaf| (holders(leaf, found).len(), leaf.superblock.manifest.generation))
            .expect("at least one leaf")),
        [first, second, ..] => Err(Diverged { first: holders(first, found), second: holders(second, found) }),
    }
}

/// Drives that say what the leaf says.
fn holders(leaf: &Found, found: &[Found]) -> Vec<String> {
    let branch = leaf.superblock.manifest.branch().id;
    let on_it = found.iter().filter(|drive| drive.superblock.manifest.branch().id == branch);
    on_it.map(|drive| drive.label.clone()).collect()
}

/// Whether any volume could be read with the drives that are not known to live on another branch.
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
