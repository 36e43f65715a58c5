//! A set of members (or of units) small enough to copy: missing or requested ones.
//!
//! Four words hold 256 numbers, one more than the widest layout has members. No faults: a number
//! past 255 is a caller's bug.

use std::fmt;

/// A set of numbers below 256, in four words.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MemberSet {
    words: [u64; 4],
}

impl MemberSet {
    /// The set without members.
    pub const EMPTY: MemberSet = MemberSet { words: [0; 4] };

    /// Adds a member; true if it was not there before. Panics for numbers past 255.
    #[inline]
    pub fn insert(&mut self, member: usize) -> bool {
        assert!(member < 256, "member {member} of a set of 256");
        let (word, bit) = (&mut self.words[member / 64], 1 << (member % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a member; true if it was in the set.
    #[inline]
    pub fn remove(&mut self, member: usize) -> bool {
        let was_there = self.contains(member);
        if was_there {
            self.words[member / 64] &= !(1 << (member % 64));
        }
        was_there
    }

    /// True if the member is in the set; false for every number past 255.
    #[inline]
    pub fn contains(&self, member: usize) -> bool {
        member < 256 && self.words[member / 64] & (1 << (member % 64)) != 0
    }

    /// Number of members in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set has no members.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words == [0; 4]
    }

    /// The members in ascending order.
    pub fn iter(&self) -> Members {
        Members { words: self.words, word: 0 }
    }
}

/// The members of a [`MemberSet`] in ascending order.
#[derive(Clone, Debug)]
pub struct Members {
    words: [u64; 4],
    word: usize,
}

impl Iterator for Members {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.word < 4 {
            let bits = &mut self.words[self.word];
            if *bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                return Some(self.word * 64 + bit);
            }
            self.word += 1;
        }
        None
    }
}

impl IntoIterator for MemberSet {
    type Item = usize;
    type IntoIter = Members;

    fn into_iter(self) -> Members {
        self.iter()
    }
}

impl IntoIterator for &MemberSet {
    type Item = usize;
    type IntoIter = Members;

    fn into_iter(self) -> Members {
        self.iter()
    }
}

impl FromIterator<usize> for MemberSet {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> MemberSet {
        let mut set = MemberSet::EMPTY;
        set.extend(members);
        set
    }
}

impl Extend<usize> for MemberSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl fmt::Debug for MemberSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn behaves_as_a_set_of_numbers() {
        let mut set = MemberSet::EMPTY;
        let mut model = BTreeSet::new();
        let mut state = 1u64;
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let member = (state >> 40) as usize % 256;
            if state >> 63 == 0 {
                assert_eq!(set.insert(member), model.insert(member));
            } else {
                assert_eq!(set.remove(member), model.remove(&member));
            }
            assert_eq!(set.len(), model.len());
            assert_eq!(set.is_empty(), model.is_empty());
            assert_eq!(set.contains(member), model.contains(&member));
            if step % 100 == 0 {
                assert!(set.iter().eq(model.iter().copied()));
            }
        }
    }

    #[test]
    fn numbers_past_the_end_are_never_in_it() {
        let mut all: MemberSet = (0..256).collect();
        assert_eq!(all.len(), 256);
        assert!(!all.contains(256) && !all.contains(usize::MAX));
        assert!(!all.remove(256));
        assert_eq!(format!("{:?}", MemberSet::from_iter([200, 3])), "{3, 200}");
    }

    #[test]
    #[should_panic(expected = "member 256")]
    fn inserting_past_the_end_is_a_bug() {
        MemberSet::default().insert(256);
    }
}
