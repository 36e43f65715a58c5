//! Every combination of lost members is rebuilt, for every number of members; lies are located.

use proptest::prelude::*;
use stripewise_parity::{
    KERNEL_VARIABLE, MAXIMUM_DATA_UNITS, MAXIMUM_PARITY, Recovery, Verdict, encode, kernel_name, kernels,
    locate, update, xor_into,
};

/// Reproducible bytes without a pattern (xorshift).
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// All the units of a stripe, parity computed.
fn stripe(data_units: usize, parity_units: usize, length: usize) -> Vec<Vec<u8>> {
    let mut units: Vec<Vec<u8>> = (0..data_units).map(|unit| noise(unit as u64 + 1, length)).collect();
    let mut parity = vec![vec![0; length]; parity_units];
    encode(&slices(&units), &mut mutable_slices(&mut parity));
    units.extend(parity);
    units
}

fn slices(units: &[Vec<u8>]) -> Vec<&[u8]> {
    units.iter().map(Vec::as_slice).collect()
}

fn mutable_slices(units: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    units.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Rebuilds `lost` from the first survivors and compares.
fn rebuild(units: &[Vec<u8>], data_units: usize, lost: &[usize]) {
    let sources: Vec<usize> = (0..units.len()).filter(|unit| !lost.contains(unit)).take(data_units).collect();
    let recovery = Recovery::new(data_units, &sources, lost)
        .unwrap_or_else(|| panic!("{data_units} data units without {lost:?} not solved"));
    let source_slices: Vec<&[u8]> = sources.iter().map(|&unit| units[unit].as_slice()).collect();
    let mut rebuilt = vec![vec![0xee; units[0].len()]; lost.len()];
    recovery.apply(&source_slices, &mut mutable_slices(&mut rebuilt));
    for (&unit, bytes) in lost.iter().zip(&rebuilt) {
        assert_eq!(bytes, &units[unit], "{data_units} data units without {lost:?}: unit {unit}");
    }
}

#[test]
fn small_stripes_survive_every_loss() {
    for parity_units in 1..=3 {
        for data_units in 1..=12 {
            let units = stripe(data_units, parity_units, 97);
            let members = units.len();
            for lost in 0u32..1 << members {
                let lost: Vec<usize> = (0..members).filter(|&unit| lost >> unit & 1 == 1).collect();
                if (1..=parity_units).contains(&lost.len()) {
                    rebuild(&units, data_units, &lost);
                }
            }
        }
    }
}

/// Every number of members from 2 to 255 and every number of parity units, each with a number of
/// losses spread over it.
#[test]
fn stripes_of_every_width_survive() {
    for members in 2..=255usize {
        for parity_units in 1..=MAXIMUM_PARITY.min(members - 1) {
            let units = stripe(members - parity_units, parity_units, 5);
            for first in 0..16 {
                let step = 1 + members / 5 + first % 3;
                let mut lost: Vec<usize> =
                    (0..parity_units).map(|at| (first * members / 16 + at * step) % members).collect();
                lost.sort_unstable();
                lost.dedup();
                rebuild(&units, members - parity_units, &lost);
            }
        }
    }
}

/// All pairs of 255 members.
#[test]
fn the_widest_stripe_survives_every_pair() {
    let units = stripe(253, 2, 3);
    for first in 0..255 {
        for second in first + 1..255 {
            rebuild(&units, 253, &[first, second]);
        }
    }
}

/// Sources in any order, several times three wanted units, and among them units that are sources
/// themselves.
#[test]
fn recovery_takes_units_in_any_order_and_number() {
    let units = stripe(6, 3, 200);
    let sources = [8, 4, 0, 7, 5, 6];
    let wanted = [3, 0, 8, 1, 2, 6, 3];
    let recovery = Recovery::new(6, &sources, &wanted).expect("six distinct sources");
    let mut rebuilt = vec![vec![0xee; 200]; wanted.len()];
    let source_slices: Vec<&[u8]> = sources.iter().map(|&unit| units[unit].as_slice()).collect();
    recovery.apply(&source_slices, &mut mutable_slices(&mut rebuilt));
    for (unit, bytes) in wanted.iter().zip(&rebuilt) {
        assert_eq!(bytes, &units[*unit], "unit {unit}");
    }
}

#[test]
fn an_update_equals_a_full_encode() {
    let mut units = stripe(9, 3, 300);
    for unit in 0..9 {
        let new = noise(unit as u64 + 100, 300);
        let change: Vec<u8> = units[unit].iter().zip(&new).map(|(old, new)| old ^ new).collect();
        units[unit] = new;
        let (data, parity) = units.split_at_mut(9);
        update(unit, &change, &[0, 1, 2], &mut mutable_slices(parity));
        let mut expected = vec![vec![0; 300]; 3];
        encode(&slices(data), &mut mutable_slices(&mut expected));
        assert_eq!(parity, expected, "unit {unit}");
    }
}

#[test]
fn impossible_recoveries_are_refused() {
    assert!(Recovery::new(3, &[0, 1], &[2]).is_none(), "too few sources");
    assert!(Recovery::new(3, &[0, 1, 3, 4], &[2]).is_none(), "too many sources");
    assert!(Recovery::new(3, &[0, 1, 1], &[2]).is_none(), "a source twice");
    assert!(Recovery::new(3, &[0, 1, 6], &[2]).is_none(), "a source that does not exist");
    assert!(Recovery::new(3, &[0, 1, 3], &[6]).is_none(), "a wanted unit that does not exist");
    assert!(Recovery::new(0, &[], &[0]).is_none(), "no data");
    let beyond = MAXIMUM_DATA_UNITS + 1;
    assert!(Recovery::new(beyond, &(0..beyond).collect::<Vec<_>>(), &[beyond]).is_none(), "too much data");
    assert!(Recovery::new(3, &[4, 0, 3], &[2, 1, 5]).is_some());
}

#[test]
fn a_corrupt_unit_is_located() {
    for parity_units in 1..=MAXIMUM_PARITY {
        let mut units = stripe(8, parity_units, 9000);
        assert_eq!(locate(8, &slices(&units)), Verdict::Consistent);
        for unit in 0..units.len() {
            for at in [0, 4095, 4096, 8999] {
                units[unit][at] ^= 0x41;
            }
            let expected = if parity_units == 1 { Verdict::Unknown } else { Verdict::Unit(unit) };
            assert_eq!(locate(8, &slices(&units)), expected, "{parity_units} parity units, unit {unit}");
            let other = (unit + 1) % units.len();
            units[other][5000] ^= 1;
            assert_eq!(locate(8, &slices(&units)), Verdict::Unknown, "units {unit} and {other}");
            units[other][5000] ^= 1;
            for at in [0, 4095, 4096, 8999] {
                units[unit][at] ^= 0x41;
            }
        }
    }
}

/// Three parity units always distinguish two wrong units in one byte from one wrong unit.
#[test]
fn two_corrupt_units_are_not_taken_for_one() {
    let mut units = stripe(8, 3, 1);
    for first in 0..11 {
        for second in first + 1..11 {
            for (error, other_error) in
                (1..=255).flat_map(|error| [(error, 1), (error, error), (error, 0x80)])
            {
                units[first][0] ^= error;
                units[second][0] ^= other_error;
                assert_eq!(
                    locate(8, &slices(&units)),
                    Verdict::Unknown,
                    "{first}: {error}, {second}: {other_error}"
                );
                units[first][0] ^= error;
                units[second][0] ^= other_error;
            }
        }
    }
}

#[test]
fn xor_into_adds() {
    let (mut sum, other) = (noise(1, 1000), noise(2, 1000));
    let expected: Vec<u8> = sum.iter().zip(&other).map(|(a, b)| a ^ b).collect();
    xor_into(&mut sum, &other);
    assert_eq!(sum, expected);
}

/// P and Q wrong in the same byte look like one wrong data unit, but one that does not exist.
#[test]
fn a_nonexistent_unit_is_never_blamed() {
    let mut units = stripe(8, 2, 1);
    units[8][0] ^= 1;
    // 0x1d = 2^8: what an error of 1 in data unit 8 would do to Q.
    units[9][0] ^= 0x1d;
    assert_eq!(locate(8, &slices(&units)), Verdict::Unknown);
    // With more data units there would be one, and P and Q alone cannot distinguish them.
    let units = [vec![vec![0]; 9], vec![vec![1], vec![0x1d]]].concat();
    assert_eq!(locate(9, &slices(&units)), Verdict::Unit(8));
}

/// Runs the tests of this file once more for each kernel, forced by the environment.
#[test]
fn every_kernel_passes_the_code_tests() {
    const INNER: &str = "STRIPEWISE_TEST_KERNEL_EXPECTED";
    if let Ok(expected) = std::env::var(INNER) {
        return assert_eq!(kernel_name(), expected);
    }
    for kernel in kernels() {
        let output = std::process::Command::new(std::env::current_exe().expect("path of this test"))
            .arg("codes::")
            .env(KERNEL_VARIABLE, kernel.name())
            .env(INNER, kernel.name())
            .output()
            .expect("this test can be run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "forced to {}: {text}", kernel.name());
    }
    let output = std::process::Command::new(std::env::current_exe().expect("path of this test"))
        .args(["--exact", "codes::xor_into_adds", "--nocapture"])
        .env(KERNEL_VARIABLE, "abacus")
        .output()
        .expect("this test can be run");
    assert!(output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("STRIPEWISE_PARITY_KERNEL=abacus is not a parity kernel"), "{complaint}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any losses that the parity units allow, whichever survivors are read, after any updates.
    #[test]
    fn any_stripe_survives(
        data_units in 1usize..40,
        parity_units in 1usize..=3,
        length in 0usize..400,
        updates in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..4),
        order in any::<u64>(),
    ) {
        let mut units = stripe(data_units, parity_units, length);
        for (unit, seed) in updates {
            let unit = unit.index(data_units);
            let change = noise(seed, length);
            xor_into(&mut units[unit], &change);
            let rows: Vec<usize> = (0..parity_units).collect();
            update(unit, &change, &rows, &mut mutable_slices(&mut units[data_units..]));
        }
        prop_assert_eq!(locate(data_units, &slices(&units)), Verdict::Consistent);

        let mut shuffled: Vec<usize> = (0..units.len()).collect();
        shuffled.sort_by_key(|&unit| (unit as u64 + 1).wrapping_mul(order | 1).rotate_left(17));
        let (sources, wanted) = shuffled.split_at(data_units);
        let recovery = Recovery::new(data_units, sources, wanted).expect("any k units suffice");
        let source_slices: Vec<&[u8]> = sources.iter().map(|&unit| units[unit].as_slice()).collect();
        let mut rebuilt = vec![vec![0xee; length]; wanted.len()];
        recovery.apply(&source_slices, &mut mutable_slices(&mut rebuilt));
        for (&unit, bytes) in wanted.iter().zip(&rebuilt) {
            prop_assert_eq!(bytes, &units[unit]);
        }
    }
}
