//! Places that are not equally likely: Zipf's law, and a hot spot. Pure.

use stripewise_drive::SplitMix64;

use super::mix;

/// Numbers 1 to `count`, the k-th with a probability proportional to k^-θ: rejection-inversion
/// sampling after Hörmann and Derflinger (1996), which needs no table and is exact for any count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: u64,
    theta: f64,
    at_one: f64,
    at_end: f64,
    shortcut: f64,
}

impl Zipf {
    /// With exponent θ above zero.
    pub(super) fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self { count: count.max(1), theta, at_one: 0.0, at_end: 0.0, shortcut: 0.0 };
        zipf.at_one = zipf.integral(1.5) - 1.0;
        zipf.at_end = zipf.integral(zipf.count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 { x.ln() } else { (x.powf(power) - 1.0) / power }
    }

    fn inverse(&self, y: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < 1e-9 { y.exp() } else { (1.0 + y * power).max(0.0).powf(1.0 / power) }
    }

    /// The next rank, from 1.
    pub(super) fn draw(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let u = self.at_end + random.unit() * (self.at_one - self.at_end);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.count as f64);
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }

    /// A place below `places`: ranks are scattered by a hash, so that what is popular does not lie
    /// side by side.
    pub(super) fn place(&self, random: &mut SplitMix64, places: u64) -> u64 {
        mix(self.draw(random)) % places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_ranks_follow_their_distribution() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let (count, draws) = (1000u64, 200_000);
            let zipf = Zipf::new(count, theta);
            let mut random = SplitMix64::new(4);
            let mut seen = vec![0u32; count as usize + 1];
            for _ in 0..draws {
                seen[zipf.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 3, 10, 100] {
                let expected = (rank as f64).powf(-theta) / total * f64::from(draws);
                let found = f64::from(seen[rank]);
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "{theta} {rank}: {found} {expected}"
                );
            }
        }
        assert_eq!(Zipf::new(1, 1.1).draw(&mut SplitMix64::new(1)), 1);
    }
}
