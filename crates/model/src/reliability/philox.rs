//! Counter-based random numbers: Philox4x32 with ten rounds (Salmon et al., SC 2011). The numbers
//! of a trial are a function of the seed and the trial's number, so trials may run in any order.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One block of four numbers.
#[inline]
fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// The random numbers of one trial.
pub(super) struct Random {
    key: [u32; 2],
    trial: u64,
    blocks: u64,
    left: Option<u64>,
}

impl Random {
    pub(super) fn new(seed: u64, trial: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], trial, blocks: 0, left: None }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        if let Some(left) = self.left.take() {
            return left;
        }
        let counter =
            [self.blocks as u32, (self.blocks >> 32) as u32, self.trial as u32, (self.trial >> 32) as u32];
        self.blocks += 1;
        let [a, b, c, d] = block(counter, self.key);
        self.left = Some(u64::from(c) << 32 | u64::from(d));
        u64::from(a) << 32 | u64::from(b)
    }

    /// Above 0 and below 1.
    #[inline]
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Exponential with mean 1.
    #[inline]
    pub(super) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Exponential with mean 1, given that it is at most `limit`.
    #[inline]
    pub(super) fn exponential_below(&mut self, limit: f64) -> f64 {
        // 1 - exp(-limit) without the loss of digits that a small limit would bring.
        -(self.uniform() * (-limit).exp_m1()).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_blocks() {
        // Known answers of the authors' library, Random123.
        let all = u32::MAX;
        assert_eq!(block([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block([all; 4], [all; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            block([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn trials_have_streams_of_their_own() {
        let first = |seed, trial| Random::new(seed, trial).next();
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_eq!(first(7, 9), first(7, 9));
    }

    #[test]
    fn a_limited_exponential_stays_below_its_limit() {
        let mut random = Random::new(3, 0);
        for limit in [1e-12, 1e-3, 1.0, 50.0] {
            let mean = (0..2000).map(|_| random.exponential_below(limit)).sum::<f64>() / 2000.0;
            let wanted = 1.0 - limit / limit.exp_m1();
            assert!(mean > 0.0 && mean < limit);
            assert!((mean / wanted - 1.0).abs() < 0.1, "{limit}: {mean} against {wanted}");
        }
    }
}
