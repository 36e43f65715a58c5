//! Every kernel this processor can run does what the portable one does, at every length and
//! misalignment, and nothing outside of its slices.

use proptest::prelude::*;
use stripewise_parity::{Kernel, Recovery, kernels};

const FENCE: u8 = 0xa5;
const FENCE_BYTES: usize = 64;

/// Bytes at a chosen distance from a multiple of 64, with a fence on both sides that must stay.
#[derive(Clone)]
struct Misaligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Misaligned {
    fn new(misalignment: usize, length: usize, mut byte: impl FnMut(usize) -> u8) -> Misaligned {
        let mut memory = vec![FENCE; length + 4 * FENCE_BYTES];
        let start = memory.as_ptr().align_offset(64) + FENCE_BYTES + misalignment;
        (0..length).for_each(|at| memory[start + at] = byte(at));
        Misaligned { memory, start, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }

    fn assert_fenced(&self) {
        let (before, rest) = self.memory.split_at(self.start);
        let outside = before.iter().chain(&rest[self.length..]);
        assert!(outside.into_iter().all(|&byte| byte == FENCE), "something was written outside of the slice");
    }
}

/// Reproducible bytes without a pattern.
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    fn units(&mut self, count: usize, length: usize, misalignment: usize) -> Vec<Misaligned> {
        // Each unit lies differently, so that no kernel can rely on one alignment for all.
        (0..count)
            .map(|unit| Misaligned::new((misalignment + 13 * unit) % 64, length, |_| self.byte()))
            .collect()
    }
}

fn slices(units: &[Misaligned]) -> Vec<&[u8]> {
    units.iter().map(Misaligned::bytes).collect()
}

fn mutable_slices(units: &mut [Misaligned]) -> Vec<&mut [u8]> {
    units.iter_mut().map(Misaligned::bytes_mut).collect()
}

fn others() -> impl Iterator<Item = (&'static Kernel, &'static Kernel)> {
    let (portable, others) = kernels().split_first().expect("portable is always there");
    assert_eq!(portable.name(), "portable");
    others.iter().map(move |kernel| (portable, kernel))
}

/// Runs one operation by the portable kernel and by each other one on equal units and compares all
/// units.
fn compare(units: &[Misaligned], what: &str, operation: impl Fn(&Kernel, &mut [Misaligned])) {
    for (portable, kernel) in others() {
        let mut expected = units.to_vec();
        operation(portable, &mut expected);
        // Cloned memory may lie differently: moved back to the misalignment that was asked for.
        let mut found: Vec<Misaligned> = units
            .iter()
            .map(|unit| Misaligned::new(unit.start_misalignment(), unit.length, |at| unit.bytes()[at]))
            .collect();
        operation(kernel, &mut found);
        for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(expected.bytes(), found.bytes(), "{what} by {}: unit {index}", kernel.name());
            found.assert_fenced();
        }
    }
}

impl Misaligned {
    fn start_misalignment(&self) -> usize {
        (self.memory.as_ptr().addr() + self.start) % 64
    }
}

/// Compares all operations with this number of data units at one length and misalignment.
fn compare_all(data_units: usize, length: usize, misalignment: usize) {
    let mut noise = Noise((length * 64 + misalignment) as u64);
    let what = format!("{data_units} units of {length} bytes, misaligned by {misalignment}");
    let units = noise.units(data_units + 3, length, misalignment);
    for parity_units in 1..=3 {
        compare(&units, &format!("encode +{parity_units}, {what}"), |kernel, units| {
            let (data, parity) = units.split_at_mut(data_units);
            kernel.encode(&slices(data), &mut mutable_slices(&mut parity[..parity_units]));
        });
        compare(&units, &format!("encode_streaming +{parity_units}, {what}"), |kernel, units| {
            let (data, parity) = units.split_at_mut(data_units);
            kernel.encode_streaming(&slices(data), &mut mutable_slices(&mut parity[..parity_units]));
        });
    }
    compare(&units, &format!("xor_into, {what}"), |kernel, units| {
        let (data, parity) = units.split_at_mut(data_units);
        kernel.xor_into(parity[0].bytes_mut(), data[0].bytes());
    });
    for which in [&[0][..], &[1], &[2], &[0, 1], &[2, 0], &[1, 2], &[0, 1, 2]] {
        compare(&units, &format!("update of {which:?}, {what}"), |kernel, units| {
            let (data, parity) = units.split_at_mut(data_units);
            let unit = data_units - 1;
            kernel.update(unit, data[unit].bytes(), which, &mut mutable_slices(&mut parity[..which.len()]));
        });
    }
    for lost in 1..=3.min(data_units) {
        // The first units are lost; where they would be, the parity units stand in.
        let sources: Vec<usize> = (lost..data_units + lost).collect();
        let recovery = Recovery::new(data_units, &sources, &(0..lost).collect::<Vec<_>>()).expect("solvable");
        compare(&units, &format!("recovery of {lost}, {what}"), |kernel, units| {
            let (sources, wanted) = units.split_at_mut(data_units);
            recovery.apply_with(kernel, &slices(sources), &mut mutable_slices(&mut wanted[..lost]));
        });
    }
}

#[test]
fn kernels_agree_at_every_length() {
    for length in 0..=600 {
        compare_all(1 + length % 5, length, 0);
        compare_all(1 + (length + 2) % 5, length, length % 64);
    }
}

#[test]
fn kernels_agree_at_every_misalignment() {
    for misalignment in 0..64 {
        for length in [1, 31, 32, 63, 64, 65, 127, 255, 256, 257, 300, 512, 577, 600] {
            compare_all(1 + misalignment % 4, length, misalignment);
        }
    }
}

#[test]
fn kernels_agree_for_every_number_of_units() {
    for data_units in 1..=255 {
        compare_all(data_units, 321, data_units % 64);
    }
}

/// Streaming stores are taken only when all of parity is aligned, which `compare_all` never has.
#[test]
fn kernels_agree_when_streaming_aligned_parity() {
    for length in [0, 1, 63, 64, 255, 256, 257, 1000, 4096, 65536] {
        let mut noise = Noise(length as u64);
        for parity_units in 1..=3 {
            let units: Vec<Misaligned> =
                (0..7 + parity_units).map(|_| Misaligned::new(0, length, |_| noise.byte())).collect();
            compare(&units, &format!("streaming, {length} bytes"), |kernel, units| {
                let (data, parity) = units.split_at_mut(7);
                kernel.encode_streaming(&slices(data), &mut mutable_slices(parity));
            });
        }
    }
    // Long enough to be streamed by default.
    let mut noise = Noise(1);
    let units: Vec<Misaligned> = (0..10).map(|_| Misaligned::new(0, 300_001, |_| noise.byte())).collect();
    compare(&units, "3 MB", |kernel, units| {
        let (data, parity) = units.split_at_mut(7);
        kernel.encode(&slices(data), &mut mutable_slices(parity));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn kernels_agree_for_any_shape(data_units in 1usize..24, length in 0usize..3000, misalignment in 0usize..64) {
        compare_all(data_units, length, misalignment);
    }
}
