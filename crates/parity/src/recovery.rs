//! Rebuilding missing units from surviving ones.
//!
//! A [`Recovery`] is the solved linear system for one set of survivors: made once per set, applied to any number of
//! stripes. Every wanted unit is a sum of sources, each times a coefficient; where all coefficients are 1 (one data
//! unit missing and P present, or P itself) that is plain XOR and takes the fast path. Survivors that cannot give the wanted
//! units back are an expected fault and answered with `None`.

use crate::field::{coefficient, invert, multiply};
use crate::kernel::{Kernel, MAXIMUM_PARITY, active};

/// The most data units a stripe can have: beyond it the coefficients 2^i repeat.
pub const MAXIMUM_DATA_UNITS: usize = 255;

/// How to compute wanted units of a stripe from surviving ones.
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
    groups: Vec<Group>,
}

/// Up to [`MAXIMUM_PARITY`] wanted units that are computed in one pass over the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Group {
    /// One wanted unit, the XOR of all sources.
    Xor,
    /// `coefficients[source * outputs + output]`.
    Sums { outputs: usize, coefficients: Vec<u8> },
}

impl Group {
    fn outputs(&self) -> usize {
        match self {
            Group::Xor => 1,
            Group::Sums { outputs, .. } => *outputs,
        }
    }
}

impl Recovery {
    /// Solves for `wanted` given `sources`, in a stripe of `data_units` data units, of which P, Q and R are units
    /// `data_units`, `data_units + 1` and `data_units + 2`.
    ///
    /// `sources` names as many distinct surviving units as there are data units, in any order; `wanted` any units at all.
    /// `None` if that is impossible: no or more than [`MAXIMUM_DATA_UNITS`] data units, a unit that does not exist, a source named
    /// twice, too few sources or too many.
    pub fn new(data_units: usize, sources: &[usize], wanted: &[usize]) -> Option<Recovery> {
        let units = data_units + MAXIMUM_PARITY;
        if data_units == 0 || data_units > MAXIMUM_DATA_UNITS || sources.len() != data_units {
            return None;
        }
        if sources.iter().chain(wanted).any(|&unit| unit >= units) {
            return None;
        }
        let mut position_of = vec![None; units];
        for (position, &unit) in sources.iter().enumerate() {
            if position_of[unit].replace(position).is_some() {
                return None;
            }
        }

        let lost: Vec<usize> = (0..data_units).filter(|&unit| position_of[unit].is_none()).collect();
        let lost_data = express_lost_data(data_units, sources, &lost)?;
        let row_of = |unit: usize| -> Vec<u8> {
            if let Some(position) = position_of[unit] {
                return (0..data_units).map(|at| u8::from(at == position)).collect();
            }
            if let Some(index) = lost.iter().position(|&other| other == unit) {
                return lost_data[index].clone();
            }
            // A missing parity unit: its sum over the data, with what is lost expressed by the sources.
            let parity = unit - data_units;
            let mut row = vec![0; data_units];
            for (entry, &source) in row.iter_mut().zip(sources) {
                if source < data_units {
                    *entry = coefficient(parity, source);
                }
            }
            for (&lost_unit, expression) in lost.iter().zip(&lost_data) {
                let factor = coefficient(parity, lost_unit);
                for (entry, &term) in row.iter_mut().zip(expression) {
                    *entry ^= multiply(factor, term);
                }
            }
            row
        };
        let rows: Vec<Vec<u8>> = wanted.iter().map(|&unit| row_of(unit)).collect();
        let groups = rows.chunks(MAXIMUM_PARITY).map(Group::new).collect();
        Some(Recovery { source_count: data_units, wanted_count: wanted.len(), groups })
    }

    /// Computes the wanted units, in the order they were named, from the sources, in the order they were named.
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
        let mut rest = wanted;
        for group in &self.groups {
            let (outputs, others) = rest.split_at_mut(group.outputs());
            match group {
                Group::Xor => kernel.encode(sources, outputs),
                Group::Sums { coefficients, .. } => kernel.sum_products(coefficients, sources, outputs),
            }
            rest = others;
        }
    }
}

impl Group {
    fn new(rows: &[Vec<u8>]) -> Group {
        if rows.len() == 1 && rows[0].iter().all(|&entry| entry == 1) {
            return Group::Xor;
        }
        let sources = rows[0].len();
        let coefficients = (0..sources).flat_map(|source| rows.iter().map(move |row| row[source])).collect();
        Group::Sums { outputs: rows.len(), coefficients }
    }
}

/// For each lost data unit its coefficients over the sources.
///
/// With e data units lost, e of the sources are parity units: e equations in e unknowns. Gauss-Jordan elimination on them gives the
/// inverse; `None` if it were singular, which the choice of coefficients excludes (see the crate's page).
fn express_lost_data(data_units: usize, sources: &[usize], lost: &[usize]) -> Option<Vec<Vec<u8>>> {
    let parity_positions: Vec<usize> = (0..sources.len()).filter(|&at| sources[at] >= data_units).collect();
    assert_eq!(
        parity_positions.len(),
        lost.len(),
        "k distinct sources lack as many data units as they have parities"
    );

    // Each equation: coefficients of the lost units = coefficients of the sources.
    let mut equations: Vec<(Vec<u8>, Vec<u8>)> = parity_positions
        .iter()
        .map(|&position| {
            let row = sources[position] - data_units;
            let left = lost.iter().map(|&unit| coefficient(row, unit)).collect();
            let right = sources
                .iter()
                .enumerate()
                .map(
                    |(at, &unit)| {
                        if unit < data_units { coefficient(row, unit) } else { u8::from(at == position) }
                    },
                )
                .collect();
            (left, right)
        })
        .collect();

    for column in 0..lost.len() {
        let pivot = (column..lost.len()).find(|&at| equations[at].0[column] != 0)?;
        equations.swap(column, pivot);
        let factor = invert(equations[column].0[column]);
        let (left, right) = &mut equations[column];
        left.iter_mut().chain(right).for_each(|entry| *entry = multiply(factor, *entry));
        let (left, right) = equations[column].clone();
        for (at, equation) in equations.iter_mut().enumerate() {
            let factor = equation.0[column];
            if at == column || factor == 0 {
                continue;
            }
            equation.0.iter_mut().zip(&left).for_each(|(entry, &term)| *entry ^= multiply(factor, term));
            equation.1.iter_mut().zip(&right).for_each(|(entry, &term)| *entry ^= multiply(factor, term));
        }
    }
    Some(equations.into_iter().map(|(_, right)| right).collect())
}
