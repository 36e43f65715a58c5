//! Distance between two distributions of response times.

/// Response times of a replay beside the measured ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// As simulated, in the order of the trace.
    pub responses_ns: Vec<u64>,
    /// As measured.
    pub measured_ns: Vec<u64>,
}

impl Replay {
    /// Root mean square of the horizontal distance between the two curves.
    pub fn demerit_ms(&self) -> f64 {
        demerit_ms(&self.responses_ns, &self.measured_ns)
    }

    /// The same as a share of the measured mean.
    pub fn demerit_percent(&self) -> f64 {
        100.0 * self.demerit_ms() / self.measured_mean_ms()
    }

    /// Mean of the simulated times.
    pub fn mean_ms(&self) -> f64 {
        mean_ms(&self.responses_ns)
    }

    /// Mean of the measured times.
    pub fn measured_mean_ms(&self) -> f64 {
        mean_ms(&self.measured_ns)
    }

    /// Percentile of the simulated times and of the measured times.
    pub fn percentile_ms(&self, share: f64) -> (f64, f64) {
        (percentile_ms(&self.responses_ns, share), percentile_ms(&self.measured_ns, share))
    }
}

fn mean_ms(times_ns: &[u64]) -> f64 {
    let sum: u128 = times_ns.iter().map(|ns| u128::from(*ns)).sum();
    sum as f64 / times_ns.len() as f64 / 1e6
}

fn percentile_ms(times_ns: &[u64], share: f64) -> f64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1] as f64 / 1e6
}

/// Both curves are steps, of samples of any number; panics on none.
pub fn demerit_ms(a: &[u64], b: &[u64]) -> f64 {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort_unstable();
    b.sort_unstable();
    // Levels in units of 1 / (a × b), so that every step is a whole one.
    let (steps_a, steps_b) = (b.len() as u64, a.len() as u64);
    let (mut i, mut j, mut done, mut total) = (0, 0, 0, 0.0);
    while i < a.len() && j < b.len() {
        let (next_a, next_b) = ((i as u64 + 1) * steps_a, (j as u64 + 1) * steps_b);
        let level = next_a.min(next_b);
        let gap_ms = (a[i] as f64 - b[j] as f64) / 1e6;
        total += (level - done) as f64 * gap_ms * gap_ms;
        done = level;
        i += usize::from(level == next_a);
        j += usize::from(level == next_b);
    }
    (total / done as f64).sqrt()
}
