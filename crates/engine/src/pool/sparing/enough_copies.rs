//! How many copies of a region map, and areas of a journal, are enough to give one up. Pure.
//!
//! The layout needs one more than it can lose drives. Two of them count as one where one lies on a
//! drive that is being replaced and the other on its successor: the first goes when its drive does.
//! (A cut leaves both, between the commit that adds the second and the one that gives up the
//! first.)

use crate::pool::manifest::format::Manifest;

/// Whether there are enough without the one on `old`, where `others` are drives with one that is
/// current.
pub(in crate::pool) fn is_enough_without(
    manifest: &Manifest,
    old: u32,
    others: &[u32],
    tolerance: usize,
) -> bool {
    is_at_successor(manifest, old, others) || lasting(manifest, others) > tolerance
}

/// Whether the drive is being replaced and its successor is one of these.
pub(in crate::pool) fn is_at_successor(manifest: &Manifest, number: u32, drives: &[u32]) -> bool {
    let successor = manifest.drive(number).and_then(|drive| drive.successor);
    successor.is_some_and(|successor| drives.contains(&successor))
}

/// How many of these stay when all replacements have ended.
pub(in crate::pool) fn lasting(manifest: &Manifest, drives: &[u32]) -> usize {
    drives.iter().filter(|number| !is_at_successor(manifest, **number, drives)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{MIB, testing};

    #[test]
    fn copies_on_drive_and_successor_count_once() {
        let mut manifest = testing::pool(&[64; 5], MIB);
        manifest.drives[1].successor = Some(4);
        assert_eq!(lasting(&manifest, &[0, 1, 4]), 2);
        assert_eq!(lasting(&manifest, &[0, 1, 2]), 3);
        assert!(!is_enough_without(&manifest, 3, &[1, 4], 1), "one would be left after the replacement");
        assert!(is_enough_without(&manifest, 3, &[0, 1, 4], 1));
        assert!(is_enough_without(&manifest, 1, &[4], 1), "the successor has what goes with the drive");
        assert!(!is_enough_without(&manifest, 4, &[1], 1));
    }
}
