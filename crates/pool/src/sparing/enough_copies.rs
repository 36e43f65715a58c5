//! Decides whether one copy of a region map, or one area of a journal, can be given up. Pure.
//!
//! A layout needs one copy more than the number of drives that it can lose. A copy on a drive that
//! is being replaced and one on its successor count once, because the first goes away with its
//! drive. (A power cut between the commit that adds the second and the one that gives up the first
//! leaves both.)

use crate::manifest::format::Manifest;

/// True if enough copies remain without the one on `old`; `others` are drives with a current copy.
pub(crate) fn is_enough_without(manifest: &Manifest, old: u32, others: &[u32], tolerance: usize) -> bool {
    is_at_successor(manifest, old, others) || lasting(manifest, others) > tolerance
}

/// True if the drive is being replaced and its successor is among `drives`.
pub(crate) fn is_at_successor(manifest: &Manifest, number: u32, drives: &[u32]) -> bool {
    let successor = manifest.drive(number).and_then(|drive| drive.successor);
    successor.is_some_and(|successor| drives.contains(&successor))
}

/// Number of these drives' copies that remain once all replacements have ended.
pub(crate) fn lasting(manifest: &Manifest, drives: &[u32]) -> usize {
    drives.iter().filter(|number| !is_at_successor(manifest, **number, drives)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MIB, testing};

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
