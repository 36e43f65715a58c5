//! Births of versions, and who sees them.
//!
//! Each version of a logical block has a *birth*: a branch of the log's history and an epoch in it.
//! A head (the volume, or a clone) writes at its tip. A snapshot keeps the tip's birth and moves
//! the tip one epoch on. Rollback and clone begin a *branch* that forks off at a snapshot's birth.
//! Branches are numbered in the order in which they begin, so along every line of descent births
//! only grow, and the newest version that a viewer sees is the one of the greatest birth.
//!
//! A version is live if some viewer (a head's tip or a kept snapshot) sees it and no newer one.

use smallvec::SmallVec;

/// Birth of a version: branch and epoch.
pub(crate) type Birth = u32;

const EPOCH_BITS: u32 = 18;
/// Greatest epoch of a branch.
pub(crate) const LAST_EPOCH: Birth = (1 << EPOCH_BITS) - 1;
/// Branches of a history.
pub(crate) const MOST_BRANCHES: usize = 1 << (32 - EPOCH_BITS);

/// First birth of a birth's branch.
pub(crate) fn branch_start(birth: Birth) -> Birth {
    birth & !LAST_EPOCH
}

/// The branches of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branches {
    /// Birth at which each branch forks off; the first forks off nothing.
    forks: Vec<Birth>,
}

impl Default for Branches {
    fn default() -> Self {
        Self { forks: vec![0] }
    }
}

impl Branches {
    /// Branches as roots have them; `None` if they are malformed.
    pub(crate) fn from_forks(forks: Vec<Birth>) -> Option<Self> {
        let is_older =
            |(branch, fork): (usize, &Birth)| branch == 0 || ((fork >> EPOCH_BITS) as usize) < branch;
        let is_valid = !forks.is_empty() && forks.iter().enumerate().all(is_older);
        is_valid.then_some(Self { forks })
    }

    pub(crate) fn forks(&self) -> &[Birth] {
        &self.forks
    }

    /// Begins a branch at a birth; returns its first birth. `None` if there is no number left.
    pub(crate) fn fork(&mut self, at: Birth) -> Option<Birth> {
        let branch = self.forks.len();
        if branch == MOST_BRANCHES {
            return None;
        }
        self.forks.push(at);
        Some((branch as Birth) << EPOCH_BITS)
    }

    /// True if a birth is of a known branch.
    pub(crate) fn has(&self, birth: Birth) -> bool {
        ((birth >> EPOCH_BITS) as usize) < self.forks.len()
    }

    /// The births that a viewer at `tip` sees.
    pub(crate) fn view(&self, tip: Birth) -> View {
        let mut ranges = SmallVec::new();
        let mut last = tip;
        loop {
            ranges.push((branch_start(last), last));
            match (last >> EPOCH_BITS) as usize {
                0 => return View { ranges },
                branch => last = self.forks[branch],
            }
        }
    }
}

/// Births that a viewer sees: a range of each branch, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    ranges: SmallVec<[(Birth, Birth); 2]>,
}

impl View {
    pub(crate) fn sees(&self, birth: Birth) -> bool {
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&birth))
    }
}

/// Viewers of one branch.
#[derive(Clone, Debug)]
struct Group {
    first: Birth,
    /// Their tips, ascending.
    tips: Vec<Birth>,
    /// View on the branches before this one; nothing for the first branch.
    inherited: View,
}

/// All viewers: versions that none of them sees are dead.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    groups: Vec<Group>,
}

impl Kept {
    pub(crate) fn new(branches: &Branches, tips: impl IntoIterator<Item = Birth>) -> Self {
        let mut tips: Vec<Birth> = tips.into_iter().collect();
        tips.sort_unstable();
        tips.dedup();
        let groups = tips.chunk_by(|one, next| branch_start(*one) == branch_start(*next));
        let groups = groups.map(|tips| {
            let mut inherited = branches.view(tips[0]);
            inherited.ranges.remove(0);
            Group { first: branch_start(tips[0]), tips: tips.to_vec(), inherited }
        });
        Self { groups: groups.collect() }
    }

    /// The viewers of these views alone.
    pub(crate) fn of<'a>(views: impl IntoIterator<Item = &'a View>) -> Self {
        let groups = views.into_iter().map(|view| {
            let (first, last) = view.ranges[0];
            Group { first, tips: vec![last], inherited: View { ranges: view.ranges[1..].into() } }
        });
        Self { groups: groups.collect() }
    }

    /// True if there is one viewer, who sees the newest version of everything.
    pub(crate) fn is_single(&self) -> bool {
        matches!(&self.groups[..], [group] if group.tips.len() == 1)
    }

    /// For each version of a logical block, the newest first and no two of the same birth: true if
    /// some viewer sees it.
    pub(crate) fn live(&self, births: &[Birth]) -> SmallVec<[bool; 4]> {
        let mut live = SmallVec::from_elem(false, births.len());
        for group in &self.groups {
            let mut newer = Birth::MAX;
            for (index, &birth) in births.iter().enumerate() {
                if branch_start(birth) != group.first {
                    continue;
                }
                let from = group.tips.partition_point(|&tip| tip < birth);
                live[index] |= group.tips.get(from).is_some_and(|&tip| tip < newer);
                newer = birth;
            }
            if group.tips[0] < newer
                && let Some(index) = births.iter().position(|&birth| group.inherited.sees(birth))
            {
                live[index] = true;
            }
        }
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::SplitMix64;

    #[test]
    fn live_versions_are_those_that_a_viewer_sees() {
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            let mut branches = Branches::default();
            let mut known = vec![0];
            for _ in 0..12 {
                let from = known[random.below(known.len() as u64) as usize];
                known.push(match random.chance(0.4) {
                    true => branches.fork(from).unwrap(),
                    false => from + 1,
                });
            }
            let tips: Vec<Birth> = known.iter().copied().filter(|_| random.chance(0.4)).collect();
            let kept = Kept::new(&branches, tips.iter().copied());
            let mut births: Vec<Birth> = known.iter().copied().filter(|_| random.chance(0.5)).collect();
            births.sort_unstable_by_key(|&birth| std::cmp::Reverse(birth));
            births.dedup();
            let mut seen = vec![false; births.len()];
            for &tip in &tips {
                let view = branches.view(tip);
                if let Some(index) = births.iter().position(|&birth| view.sees(birth)) {
                    seen[index] = true;
                }
            }
            assert_eq!(kept.live(&births)[..], seen, "seed {seed}: {births:?} by {tips:?} of {branches:?}");
        }
    }

    #[test]
    fn branches_cannot_fork_off_later_ones() {
        let mut branches = Branches::default();
        let first = branches.fork(3).unwrap();
        branches.fork(first + 1).unwrap();
        assert_eq!(Branches::from_forks(branches.forks().to_vec()), Some(branches));
        assert_eq!(Branches::from_forks(vec![0, 1 << EPOCH_BITS]), None);
        assert_eq!(Branches::from_forks(Vec::new()), None);
    }
}
