//! Distribution of a volume's rows over drives: the number of rows of each drive, and the sets of
//! drives that share rows. Pure.
//!
//! With `n` rows of `width` columns, a drive with `f` free slabs can take `min(f, n)` of them, and
//! the rows fit exactly if these sum up to `width * n`. Each drive gets a *quota* in proportion to
//! its free space. All quotas are used up as long as no quota is larger than the number of rows
//! left, and each drive with a quota of that size is in every row. With more drives than columns,
//! the set changes from batch to batch so that every drive shares rows with every other about
//! equally often: then all drives take part in the rebuild of any one.

/// Number of batches in which a drive meets each other drive, approximately. It is high enough that
/// one more or less matters little, so that in a rebuild the other drives read about the same
/// amount.
const MEETINGS: u64 = 16;
/// Maximum number of batches, so that maps stay small.
const MAX_BATCHES: u64 = 1024;

/// Maximum number of rows of `width` columns that fit on drives with these numbers of free slabs.
pub(crate) fn max_rows(free: &[u64], width: usize) -> u64 {
    let width = width as u128;
    if width == 0 {
        return 0;
    }
    let fits = |rows: u64| {
        let room: u128 = free.iter().map(|&free| u128::from(free.min(rows))).sum();
        room >= width * u128::from(rows)
    };
    let sum: u128 = free.iter().map(|&free| u128::from(free)).sum();
    let (mut low, mut high) = (0u64, (sum / width) as u64 + 1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// Number of rows, of `rows`, that each drive gets. The rows fit (see [`max_rows`]).
fn quotas(free: &[u64], width: usize, rows: u64, salt: u64) -> Vec<u64> {
    let caps: Vec<u64> = free.iter().map(|&free| free.min(rows)).collect();
    let mut quotas = vec![0u64; free.len()];
    let mut left = width as u128 * u128::from(rows);
    let mut open: Vec<usize> = (0..free.len()).collect();
    // Drives so large that they are in every row come first.
    loop {
        let sum: u128 = open.iter().map(|&drive| u128::from(free[drive])).sum();
        let is_full = |drive: &usize| u128::from(free[*drive]) * left >= u128::from(rows) * sum;
        let (full, others): (Vec<usize>, Vec<usize>) = open.iter().partition(|drive| is_full(drive));
        let full: Vec<usize> = full.into_iter().filter(|&drive| caps[drive] == rows).collect();
        if full.is_empty() || sum == 0 {
            for &drive in &open {
                let share = (u128::from(free[drive]) * left).checked_div(sum).unwrap_or(0);
                quotas[drive] = (share as u64).min(caps[drive]);
            }
            break;
        }
        for &drive in &full {
            quotas[drive] = rows;
            left -= u128::from(rows);
        }
        open = others;
    }
    // The remainder of the rounding goes to the drives with the most free slabs.
    let given: u128 = quotas.iter().map(|&quota| u128::from(quota)).sum();
    let mut missing = (width as u128 * u128::from(rows)) - given;
    while missing > 0 {
        let drive = (0..free.len())
            .filter(|&drive| quotas[drive] < caps[drive])
            .max_by_key(|&drive| (free[drive] - quotas[drive], mixed(salt, drive)))
            .expect("the rows fit");
        quotas[drive] += 1;
        missing -= 1;
    }
    quotas
}

/// Assigns sets of drives to rows, batch by batch.
pub(crate) struct Placement {
    width: usize,
    rows: u64,
    quotas: Vec<u64>,
    /// Number of rows that two drives share.
    met: Vec<u64>,
    batch_rows: u64,
    salt: u64,
}

impl Placement {
    /// Prepares the placement of `rows` rows of `width` columns, which fit, on drives with these
    /// numbers of free slabs. `salt` breaks ties.
    pub(crate) fn new(free: &[u64], width: usize, rows: u64, salt: u64) -> Self {
        let quotas = quotas(free, width, rows, salt);
        let drives = quotas.iter().filter(|quota| **quota > 0).count() as u64;
        let pairs = (width as u64 * (width as u64 - 1)).max(1);
        let batches = if drives <= width as u64 {
            1
        } else {
            (MEETINGS * drives * (drives - 1)).div_ceil(pairs).clamp(drives, MAX_BATCHES)
        };
        let met = vec![0; free.len() * free.len()];
        Self { width, rows, quotas, met, batch_rows: rows.div_ceil(batches).max(1), salt }
    }

    /// Returns the drives of the next rows, as ascending indices, and the maximum number of rows
    /// for this set; `None` when all rows are placed.
    pub(crate) fn next(&self) -> Option<(Vec<usize>, u64)> {
        if self.rows == 0 {
            return None;
        }
        let quota = |drive: usize| self.quotas[drive];
        let mut left: Vec<usize> = (0..self.quotas.len()).filter(|&drive| quota(drive) > 0).collect();
        // Drives that have to be in (nearly) every remaining row come first.
        left.sort_by_key(|&drive| std::cmp::Reverse(quota(drive)));
        let is_urgent = |drive: &usize| quota(*drive) + self.batch_rows > self.rows;
        let urgent = left.iter().take_while(|drive| is_urgent(drive)).count().min(self.width);
        let mut set: Vec<usize> = left.drain(..urgent).collect();
        let mut met: Vec<u64> = vec![0; self.quotas.len()];
        let meet = |met: &mut Vec<u64>, drive: usize| {
            let row = &self.met[drive * self.quotas.len()..];
            met.iter_mut().zip(row).for_each(|(sum, rows)| *sum += rows);
        };
        set.iter().for_each(|&drive| meet(&mut met, drive));
        while set.len() < self.width {
            let most = left.iter().map(|&drive| quota(drive)).max().expect("quotas fill every row");
            let close = |drive: usize| quota(drive) + 2 * self.batch_rows > most;
            let better = |&index: &usize| {
                let drive = left[index];
                (met[drive], std::cmp::Reverse(quota(drive)), mixed(self.salt ^ self.rows, drive))
            };
            let best = (0..left.len()).filter(|&index| close(left[index])).min_by_key(better);
            let drive = left.swap_remove(best.expect("the drive with the largest quota is close"));
            meet(&mut met, drive);
            set.push(drive);
        }
        let least = set.iter().map(|&drive| quota(drive)).min().expect("at least one column");
        let most_of_others = left.iter().map(|&drive| quota(drive)).max().unwrap_or(0);
        let rows = self.batch_rows.min(least).min(self.rows - most_of_others);
        debug_assert!(rows > 0);
        set.sort_unstable();
        Some((set, rows))
    }

    /// Records that `rows` rows were placed on the set returned by [`Self::next`].
    pub(crate) fn done(&mut self, set: &[usize], rows: u64) {
        self.rows -= rows;
        for &drive in set {
            self.quotas[drive] -= rows;
            for &other in set {
                self.met[drive * self.quotas.len() + other] += rows;
            }
        }
    }
}

/// Returns a pseudo-random number.
pub(crate) fn mixed(salt: u64, number: usize) -> u64 {
    stripewise_drive::SplitMix64::new(salt ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Places all rows, checks each set, and returns the sets with their rows.
    fn placed(free: &[u64], width: usize, rows: u64, salt: u64) -> Vec<(Vec<usize>, u64)> {
        let mut placement = Placement::new(free, width, rows, salt);
        let mut left = free.to_vec();
        let mut sets = Vec::new();
        let mut total = 0;
        while let Some((set, rows)) = placement.next() {
            assert!(rows > 0 && set.len() == width && set.windows(2).all(|pair| pair[0] < pair[1]));
            set.iter().for_each(|&drive| left[drive] = left[drive].checked_sub(rows).expect("free"));
            placement.done(&set, rows);
            total += rows;
            sets.push((set, rows));
        }
        assert_eq!(total, rows);
        sets
    }

    #[test]
    fn unequal_drives_are_used_to_the_full() {
        for (free, width, most) in [
            (vec![4u64, 4, 2, 2, 2], 2, 7),
            (vec![4000, 4000, 2000, 2000, 2000], 2, 7000),
            (vec![10, 1, 1], 2, 2),
            (vec![10, 10, 10], 3, 10),
            (vec![10, 10, 1], 3, 1),
            (vec![5, 5, 5, 5], 3, 6),
            (vec![7], 1, 7),
            (vec![7, 9], 3, 0),
        ] {
            assert_eq!(max_rows(&free, width), most, "{free:?}");
            placed(&free, width, most, 1);
        }
    }

    #[test]
    fn equal_drives_are_one_batch_or_meet_evenly() {
        assert_eq!(placed(&[149_000; 60], 60, 149_000, 0).len(), 1);
        for (drives, width) in [(12usize, 2usize), (12, 4), (24, 6), (60, 10)] {
            let rows = 6000;
            let sets = placed(&vec![100_000; drives], width, rows, 7);
            assert!(sets.len() <= MAX_BATCHES as usize + 2 * drives, "{}", sets.len());
            let mut met = vec![0u64; drives];
            let mut of_first = 0;
            for (set, rows) in sets.iter().filter(|(set, _)| set.contains(&0)) {
                of_first += rows;
                set.iter().for_each(|&drive| met[drive] += rows);
            }
            let mean = of_first as f64 * (width - 1) as f64 / (drives - 1) as f64;
            let most = *met[1..].iter().max().unwrap() as f64;
            assert!(most < 1.5 * mean, "{drives} {width}: {most} of {mean}");
            let share = rows as f64 * width as f64 / drives as f64;
            assert!((of_first as f64 - share).abs() <= 1.0, "{of_first} of {share}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn all_rows_that_fit_are_placed(
            free in prop::collection::vec(0u64..300, 1..14),
            width in 1usize..8,
            share in 1u64..=100,
            salt: u64,
        ) {
            let most = max_rows(&free, width);
            let room = |rows: u64| free.iter().map(|&free| free.min(rows)).sum::<u64>();
            prop_assert!(room(most) >= width as u64 * most);
            prop_assert!(room(most + 1) < width as u64 * (most + 1));
            placed(&free, width, most * share / 100, salt);
        }
    }
}
