//! Sums over trials: sums and sums of squares, in an order that does not depend on threads.

use std::ops::AddAssign;

/// Number of figures counted in a mission.
pub(super) const FIGURES: usize = 8;

/// Index of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Data was lost at least once.
    Loss,
    /// Times that data was lost.
    Events,
    /// Times that it was lost to a latent error met by a drive failure.
    LatentEvents,
    /// Hours with a drive missing.
    DegradedHours,
    /// Rebuilds begun.
    Rebuilds,
    /// New drives.
    Replacements,
    /// Bytes that are lost.
    BytesLost,
    /// Hours without any redundancy left.
    CriticalHours,
}

/// One trial's figures: expectations over what was split off.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    values: [f64; FIGURES],
}

impl Tally {
    #[inline]
    pub(super) fn add(&mut self, of: Of, value: f64) {
        self.values[of as usize] += value;
    }
}

/// Sums over trials: all that an estimate needs of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub(super) trials: u64,
    sums: [f64; FIGURES],
    squares: [f64; FIGURES],
}

impl Sums {
    /// Length of [`Sums::to_bytes`].
    pub const BYTES: usize = 8 * (1 + 2 * FIGURES);

    /// The sums as bytes, for another process.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let figures = self.sums.iter().chain(&self.squares).map(|value| value.to_bits());
        let words = std::iter::once(self.trials).chain(figures);
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// The sums of [`Sums::to_bytes`]; all bytes are some.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        Self {
            trials: word(0),
            sums: std::array::from_fn(|figure| f64::from_bits(word(1 + figure))),
            squares: std::array::from_fn(|figure| f64::from_bits(word(1 + FIGURES + figure))),
        }
    }

    pub(super) fn take(&mut self, tally: &Tally) {
        self.trials += 1;
        for (figure, value) in tally.values.into_iter().enumerate() {
            self.sums[figure] += value;
            self.squares[figure] += value * value;
        }
    }

    pub(super) fn mean(&self, of: Of) -> f64 {
        self.sums[of as usize] / self.trials as f64
    }

    /// Half of the 95 % interval, by the normal approximation.
    pub(super) fn half_width(&self, of: Of) -> f64 {
        let trials = self.trials as f64;
        if self.trials < 2 {
            return f64::INFINITY;
        }
        let mean = self.mean(of);
        let variance = (self.squares[of as usize] / trials - mean * mean).max(0.0) * trials / (trials - 1.0);
        1.96 * (variance / trials).sqrt()
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.trials += other.trials;
        for figure in 0..FIGURES {
            self.sums[figure] += other.sums[figure];
            self.squares[figure] += other.squares[figure];
        }
    }
}
