//! A rate of late: what was done counts half after some seconds.

/// Half-life of what was counted, seconds.
const HALF_LIFE_S: f64 = 10.0;

/// An amount that decays, and the moment of its last change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecayingRate {
    amount: f64,
    at_ns: u64,
}

impl DecayingRate {
    fn amount_at(&self, now_ns: u64) -> f64 {
        let seconds = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.amount * 0.5f64.powf(seconds / HALF_LIFE_S)
    }

    /// Counts an amount.
    pub(crate) fn add(&mut self, now_ns: u64, amount: f64) {
        *self = Self { amount: self.amount_at(now_ns) + amount, at_ns: now_ns };
    }

    /// The amount per second of late.
    pub(crate) fn per_second(&self, now_ns: u64) -> u64 {
        (self.amount_at(now_ns) * std::f64::consts::LN_2 / HALF_LIFE_S) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_amounts_give_their_rate() {
        let mut rate = DecayingRate::default();
        for second in 0..200u64 {
            rate.add(second * 1_000_000_000, 1000.0);
        }
        let steady = rate.per_second(199_000_000_000);
        assert!((950..1050).contains(&steady), "{steady}");
        let later = rate.per_second(209_000_000_000);
        assert!((450..550).contains(&later), "{later}");
    }
}
