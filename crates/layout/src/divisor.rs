//! Division by a number that is fixed when a volume is opened, as one multiplication and one
//! correction.
//!
//! Every 4 KiB request divides by the number of data units and by the width. A 64-bit hardware
//! division costs up to 40 cycles; this costs about 5. Pure arithmetic: no faults.

/// A divisor with its reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    /// `floor((2^64 - 1) / divisor)`: short of `2^64 / divisor` by at most one, so that the
    /// quotient estimated with it is short by at most one for every dividend.
    reciprocal: u64,
}

impl Divisor {
    pub(crate) fn new(divisor: u64) -> Divisor {
        assert!(divisor > 0, "division by zero");
        Divisor { divisor, reciprocal: u64::MAX / divisor }
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn divide(self, dividend: u64) -> (u64, u64) {
        let estimate = ((u128::from(dividend) * u128::from(self.reciprocal)) >> 64) as u64;
        let remainder = dividend - estimate * self.divisor;
        // Written without a branch: which way it goes is as good as random.
        let correction = u64::from(remainder >= self.divisor);
        (estimate + correction, remainder - correction * self.divisor)
    }

    #[inline]
    pub(crate) fn remainder(self, dividend: u64) -> u64 {
        self.divide(dividend).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_as_the_processor_does() {
        let dividends = (0..2000)
            .chain((0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1u64 << bit) + 1]))
            .chain((0..2000).map(|distance| u64::MAX - distance))
            .collect::<Vec<_>>();
        for divisor in (1..=600).chain([u64::from(u32::MAX), 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX])
        {
            for &dividend in &dividends {
                let expected = (dividend / divisor, dividend % divisor);
                assert_eq!(Divisor::new(divisor).divide(dividend), expected, "{dividend} / {divisor}");
            }
            // The dividends where a reciprocal that is a little too small shows.
            for multiple in [1, 2, 3, u64::MAX / divisor] {
                let dividend = multiple.saturating_mul(divisor);
                for dividend in [dividend.saturating_sub(1), dividend, dividend.saturating_add(1)] {
                    let expected = (dividend / divisor, dividend % divisor);
                    assert_eq!(Divisor::new(divisor).divide(dividend), expected, "{dividend} / {divisor}");
                }
            }
        }
    }
}
