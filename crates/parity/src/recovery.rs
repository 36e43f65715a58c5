//! Rebuilding missing units from surviving ones.
//!
//! A [`Recovery`] is the solved linear system for one set of survivors: made once per set, applied
//! to any number of stripes. Every wanted unit is a sum of sources, each times a coefficient; where
//! all coefficients are 1 (one data unit missing and P present, or P itself) that is plain XOR and
//! takes the fast path. Survivors that cannot give the wanted units back are an expected fault and
//! answered with `None`.

use crate::choice::active;
use crate::field::{MAXIMUM_DATA_UNITS, coefficient, invert, multiply};
use crate::kernel::{Kernel, MAXIMUM_PARITY};

/// Computes wanted units of a stripe from surviving ones.
///
/// ```
/// let (a, b) = ([1u8, 2, 3], [4u8, 5, 6]);
/// let (mut p, mut q) = ([0u8; 3], [0u8; 3]);
/// stripewise_parity::encode(&[&a, &b], &mut [&mut p, &mut q]);
///
/// // Both data units are lost (units 0 and 1); P and Q (units 2 and 3) are left.
/// let recovery = stripewise_parity::Recovery::new(2, &[2, 3], &[0, 1]).unwrap();
/// let (mut lost_a, mut lost_b) = ([0u8; 3], [0u8; 3]);
/// recovery.apply(&[&p, &q], &mut [&mut lost_a, &mut lost_b]);
/// assert_eq!((lost_a, lost_b), (a, b));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    source_count: usize,
    wanted_count: usize,
    /// For every group of up to [`MAXIMUM_PARITY`] wanted units, which are computed in one pass
    /// over the sources: of each source its coefficient for each of them.
    coefficients: Vec<u8>,
}

impl Recovery {
    /// Solves for `wanted` given `sources`, in a stripe of `data_units` data units, of which P, Q
    /// and R are units `data_units`, `data_units + 1` and `data_units + 2`.
    ///
    /// `sources` names as many distinct surviving units as there are data units, in any order;
    /// `wanted` any units at all. `None` if that is impossible: no or more than
    /// [`MAXIMUM_DATA_UNITS`] data units, a unit that does not exist, a source named twice, too few
    /// sources or too many.
    pub fn new(data_units: usize, sources: &[usize], wanted: &[usize]) -> Option<Recovery> {
        let units = data_units + MAXIMUM_PARITY;
        if data_units == 0 || data_units > MAXIMUM_DATA_UNITS || sources.len() != data_units {
            return None;
        }
        if sources.iter().chain(wanted).any(|&unit| unit >= units) {
            return None;
        }
        let mut survives = [false; MAXIMUM_DATA_UNITS + MAXIMUM_PARITY];
        for &unit in sources {
            if std::mem::replace(&mut survives[unit], true) {
                return None;
            }
        }

        // Among any k distinct units there are as many parity units as lost data units: e equations
        // in e unknowns.
        let lost: SmallSet = (0..data_units).filter(|&unit| !survives[unit]).collect();
        let rows: SmallSet =
            (0..MAXIMUM_PARITY).filter(|&row| survives[data_units + row]).take(lost.count).collect();
        let inverse = invert_rows(&rows, &lost)?;

        // Coefficient of a source in a lost unit of data ...
        let in_lost_data = |source: usize, unknown: usize| match source.checked_sub(data_units) {
            Some(parity) => inverse[unknown][rows.index_of(parity)],
            None => rows
                .iter()
                .zip(inverse[unknown])
                .fold(0, |sum, (row, factor)| sum ^ multiply(factor, coefficient(row, source))),
        };
        // ... and in any unit: itself, a lost one, or parity of the data, of which some is lost.
        let in_unit = |source: usize, unit: usize| {
            if survives[unit] {
                return u8::from(unit == source);
            }
            let Some(parity) = unit.checked_sub(data_units) else {
                return in_lost_data(source, lost.index_of(unit));
            };
            let direct = if source < data_units { coefficient(parity, source) } else { 0 };
            lost.iter().enumerate().fold(direct, |sum, (unknown, lost_unit)| {
                sum ^ multiply(coefficient(parity, lost_unit), in_lost_data(source, unknown))
            })
        };
        let mut coefficients = Vec::with_capacity(sources.len() * wanted.len());
        for group in wanted.chunks(MAXIMUM_PARITY) {
            for &source in sources {
                coefficients.extend(group.iter().map(|&unit| in_unit(source, unit)));
            }
        }
        Some(Recovery { source_count: sources.len(), wanted_count: wanted.len(), coefficients })
    }

    /// Computes the wanted units, in the order they were named, from the sources, in the order they
    /// were named.
    ///
    /// # Panics
    /// If the number of slices is not what the recovery was made for, or their lengths differ.
    pub fn apply(&self, sources: &[&[u8]], wanted: &mut [&mut [u8]]) {
        self.apply_with(active(), sources, wanted);
    }

    /// As [`Recovery::apply`], by a kernel of one's choice (for tests and benchmarks).
    ///
    /// # Panics
    /// As [`Recovery::apply`].
    pub fn apply_with(&self, kernel: &Kernel, sources: &[&[u8]], wanted: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), self.source_count, "recovery was made for another number of sources");
        assert_eq!(wanted.len(), self.wanted_count, "recovery was made for another number of wanted units");
        let coefficients = self.coefficients.chunks(self.source_count * MAXIMUM_PARITY);
        for (outputs, coefficients) in wanted.chunks_mut(MAXIMUM_PARITY).zip(coefficients) {
            if outputs.len() == 1 && coefficients.iter().all(|&coefficient| coefficient == 1) {
                kernel.encode(sources, outputs);
            } else {
                kernel.sum_products(coefficients, sources, outputs);
            }
        }
    }
}

/// Up to three numbers, in order.
#[derive(Debug, Default)]
struct SmallSet {
    members: [usize; MAXIMUM_PARITY],
    count: usize,
}

impl SmallSet {
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.members[..self.count].iter().copied()
    }

    fn index_of(&self, member: usize) -> usize {
        self.iter().position(|other| other == member).expect("asked for members only")
    }
}

impl FromIterator<usize> for SmallSet {
    fn from_iter<T: IntoIterator<Item = usize>>(numbers: T) -> SmallSet {
        let mut set = SmallSet::default();
        for number in numbers {
            set.members[set.count] = number;
            set.count += 1;
        }
        set
    }
}

type Matrix = [[u8; MAXIMUM_PARITY]; MAXIMUM_PARITY];

/// The inverse of the coefficients of the `lost` data units in as many parity `rows`: lost unit by
/// row.
///
/// By Gauss-Jordan elimination; `None` if the matrix were singular, which the code excludes (see
/// the crate's page).
fn invert_rows(rows: &SmallSet, lost: &SmallSet) -> Option<Matrix> {
    assert_eq!(rows.count, lost.count, "as many equations as unknowns");
    let size = lost.count;
    let mut left = [[0; MAXIMUM_PARITY]; MAXIMUM_PARITY];
    let mut right = left;
    for (equation, row) in rows.iter().enumerate() {
        right[equation][equation] = 1;
        for (unknown, unit) in lost.iter().enumerate() {
            left[equation][unknown] = coefficient(row, unit);
        }
    }
    for column in 0..size {
        let pivot = (column..size).find(|&equation| left[equation][column] != 0)?;
        left.swap(column, pivot);
        right.swap(column, pivot);
        let factor = invert(left[column][column]);
        for half in [&mut left, &mut right] {
            half[column] = half[column].map(|entry| multiply(factor, entry));
        }
        for equation in (0..size).filter(|&equation| equation != column) {
            let factor = left[equation][column];
            for half in [&mut left, &mut right] {
                let pivot_row = half[column];
                half[equation]
                    .iter_mut()
                    .zip(pivot_row)
                    .for_each(|(entry, term)| *entry ^= multiply(factor, term));
            }
        }
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solves for the lost data units by the given rows and checks that it is a solution.
    fn assert_solvable(rows: &[usize], lost: &[usize]) {
        let inverse = invert_rows(&rows.iter().copied().collect(), &lost.iter().copied().collect())
            .unwrap_or_else(|| panic!("data units {lost:?} cannot be had from parity rows {rows:?}"));
        for (unknown, inverse_row) in inverse[..lost.len()].iter().enumerate() {
            for (other, &unit) in lost.iter().enumerate() {
                let product = rows
                    .iter()
                    .zip(inverse_row)
                    .fold(0, |sum, (&row, &factor)| sum ^ multiply(factor, coefficient(row, unit)));
                assert_eq!(product, u8::from(unknown == other), "rows {rows:?}, lost {lost:?}");
            }
        }
    }

    /// Every set of up to three lost members of a stripe with as many data units as the field
    /// allows, and so of every smaller one: whatever parity is lost, the lost data units must
    /// follow from any rows that are left.
    #[test]
    fn every_loss_of_up_to_three_is_solvable() {
        for first in 0..MAXIMUM_DATA_UNITS {
            for row in 0..3 {
                assert_solvable(&[row], &[first]);
            }
            for second in first + 1..MAXIMUM_DATA_UNITS {
                for rows in [[0, 1], [0, 2], [1, 2]] {
                    assert_solvable(&rows, &[first, second]);
                }
                for third in second + 1..MAXIMUM_DATA_UNITS {
                    assert_solvable(&[0, 1, 2], &[first, second, third]);
                }
            }
        }
    }
}
