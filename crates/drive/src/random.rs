//! A small seeded generator of random numbers for faults, so that a run is repeated exactly by its
//! seed.
//!
//! SplitMix64, from Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
//! 2014 (the constants are Stafford's variant 13 of the MurmurHash3 finaliser, as in Java's
//! `SplittableRandom`). Not for secrets.

/// 64 bits of state, 64 bits of output; every seed is a good seed.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The same seed gives the same numbers, on every machine and in every version.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit - 1`, all equally likely (to within `limit` / 2^64). Panics when
    /// `limit` is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "nothing is below zero");
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// From 0 up to, not including, 1, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with `probability`; exactly never for 0 and always for 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// From the exponential distribution of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// An additional latency, drawn for each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Nothing.
    None,
    /// Always this many nanoseconds.
    Fixed(u64),
    /// Anything from `least_ns` to `most_ns`, both included, all equally likely.
    Between {
        /// The shortest, in nanoseconds.
        least_ns: u64,
        /// The longest, in nanoseconds.
        most_ns: u64,
    },
    /// Exponentially distributed: mostly short, now and then very long.
    Exponential {
        /// The mean, in nanoseconds.
        mean_ns: u64,
    },
}

impl Delay {
    pub(crate) fn draw_ns(&self, random: &mut SplitMix64) -> u64 {
        match *self {
            Self::None => 0,
            Self::Fixed(delay_ns) => delay_ns,
            Self::Between { least_ns, most_ns } => {
                least_ns + random.below((most_ns - least_ns).saturating_add(1))
            }
            Self::Exponential { mean_ns } => random.exponential(mean_ns as f64) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_numbers() {
        // The first outputs for seed 1234567, as published with the reference implementation's
        // translations.
        let mut random = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn draws_have_the_stated_range_and_mean() {
        let mut random = SplitMix64::new(9);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        let mean = (0..100_000).map(|_| random.exponential(50.0)).sum::<f64>() / 100_000.0;
        assert!((49.0..51.0).contains(&mean), "{mean}");
        assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
        let between = Delay::Between { least_ns: 10, most_ns: 12 };
        let drawn: std::collections::BTreeSet<u64> =
            (0..1000).map(|_| between.draw_ns(&mut random)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(Delay::Fixed(7).draw_ns(&mut random), 7);
        assert_eq!(Delay::None.draw_ns(&mut random), 0);
    }
}
