//! The requests behind a figure below the layout's potential: positions by cause. Faults expected:
//! results that predate causes.

use stripewise_drive::CauseTable;

/// Minimum share of the positions for a cause to be named.
const NAMED_SHARE: f64 = 0.1;

/// The costliest causes, as the end of a sentence: positions for each of `units` (requests of the
/// load, or MB rebuilt), named by `unit`. Empty if nothing was counted.
pub(super) fn costliest_causes(causes: &CauseTable, units: f64, unit: &str) -> String {
    let all = causes.total().positions;
    if all == 0 || units <= 0.0 {
        return String::new();
    }
    let mut found: Vec<_> = causes
        .used()
        .map(|(cause, counts)| (counts.positions, cause.words()))
        .filter(|(positions, _)| *positions as f64 >= NAMED_SHARE * all as f64)
        .collect();
    found.sort_by_key(|(positions, _)| std::cmp::Reverse(*positions));
    let each = |positions: u64| positions as f64 / units;
    let named: Vec<String> =
        found.into_iter().map(|(positions, words)| format!("{:.2} for {words}", each(positions))).collect();
    format!("; the drives took {:.2} positions for each {unit}: {}", each(all), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::{Cause, CauseCounts};

    #[test]
    fn the_costliest_causes_come_first_small_ones_omitted() {
        let mut causes = CauseTable::default();
        for (cause, positions) in [(Cause::Data, 30), (Cause::PreRead, 65), (Cause::Journal, 5)] {
            *causes.of_mut(cause) = CauseCounts { requests: 100, bytes: 0, positions };
        }
        let said =
            "; the drives took 2.00 positions for each request: 1.30 for pre-read, 0.60 for client data";
        assert_eq!(costliest_causes(&causes, 50.0, "request"), said);
        assert_eq!(costliest_causes(&CauseTable::default(), 50.0, "request"), "");
    }
}
