//! Log messages about refused clients: the first few of each minute are logged one by one, the rest
//! is counted. A client that is refused a million times does not fill a disk.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::notation::plain::cut;

/// Maximum refusals logged individually per span.
const TOLD_EACH: u32 = 10;
const SPAN: Duration = Duration::from_secs(60);

/// Maximum bytes of a reason in the log.
const MOST_WHY_BYTES: usize = 500;

/// Refusals of one listener.
#[derive(Default)]
pub struct Refusals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    begun: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Counts {
    /// Counts a refusal. Returns true if it is to be logged, and the number that the previous span
    /// left out.
    fn count(&mut self, now: Instant) -> (bool, u64) {
        let mut left_out = 0;
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= SPAN) {
            left_out = std::mem::take(&mut self.left_out);
            (self.begun, self.told) = (Some(now), 0);
        }
        let is_told = self.told < TOLD_EACH;
        self.told += u32::from(is_told);
        self.left_out += u64::from(!is_told);
        (is_told, left_out)
    }
}

impl Refusals {
    /// A client at `peer` was refused.
    pub fn tell(&self, way: &str, peer: &dyn Display, why: &str) {
        let (is_told, left_out) = self.0.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now());
        if left_out > 0 {
            tracing::warn!(target: "client", "{way}: {left_out} more refusals were not logged");
        }
        if is_told {
            let why = cut(why, MOST_WHY_BYTES);
            tracing::warn!(target: "client", peer = %peer, "{way}: {peer} was refused: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_log_is_rate_limited_and_counts_the_rest() {
        let (mut counts, begin) = (Counts::default(), Instant::now());
        let told = (0..1000).filter(|_| counts.count(begin).0).count();
        assert_eq!(told, TOLD_EACH as usize);
        assert_eq!(counts.count(begin + SPAN), (true, 1000 - u64::from(TOLD_EACH)));
        assert_eq!(counts.count(begin + 2 * SPAN), (true, 0));
    }
}
