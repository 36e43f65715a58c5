//! Pacing: clients slow down gradually as free segments become few, and stop before the segments
//! that the cleaner and the map need.

use crate::core::Core;
use crate::error::LogError;

/// Waits as long as the clients' next segment is worth at this level of free space.
pub(crate) async fn pace(core: &Core) -> Result<(), LogError> {
    let (delay_ns, is_short) = {
        let state = core.state.borrow();
        let (available, limits) = (state.available(), core.limits);
        (delay_ns(available, limits.low, limits.high, state.gain_ns), available < limits.high)
    };
    if is_short {
        // A plan that was filled up may last from above `high` to below `low`, without a commit
        // that would wake the cleaner.
        core.work.notify_all();
    }
    if delay_ns > 0 {
        core.context.sleep_ns(delay_ns).await;
    }
    let limits = core.limits;
    core.when(|state| {
        let has_memory = state.map.frozen.is_none() || state.map.table.len() < limits.table_entries;
        (has_memory && state.available() > limits.low).then_some(())
    })
    .await
}

/// Delay of a segment: none above `high`, the cleaner's whole time per gained segment at the
/// middle between `low` and `high`, more below.
fn delay_ns(available: usize, low: usize, high: usize, gain_ns: f64) -> u64 {
    if available >= high {
        return 0;
    }
    let missing = (high - available) as f64 / (high - low) as f64;
    (gain_ns * 4.0 * missing.min(1.0).powi(2)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_smoothly_as_space_shrinks() {
        let delays: Vec<u64> = (0..=40).rev().map(|free| delay_ns(free, 10, 30, 1000.0)).collect();
        assert_eq!((delays[10], delays[20], delays[30]), (0, 1000, 4000));
        assert!(delays.windows(2).all(|pair| pair[1] >= pair[0] && pair[1] - pair[0] < 500), "{delays:?}");
    }
}
