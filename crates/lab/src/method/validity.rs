//! Badges: validity checks of a figure. Pure. A badge that fails is shown, never hidden.
//!
//! The published studies give the reasons: study 001 measured files smaller than the host's memory,
//! study 000 groups sizes that fit a drive's cache with sizes that do not, and many print the speed
//! of a link as that of an array.

use crate::loads::caches::is_beyond;
use crate::records::record::{MeasurementRecord, Unit};
use crate::statistics::{STEADY_ROUNDS, drifts, interval95, outliers, standard_deviation, steady_text};

/// Known circumstances of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// True if the host's page cache was bypassed; `None` if there is none.
    pub direct_io: Option<bool>,
    /// True if every block was written before it is read.
    pub filled_before: bool,
    /// Bytes of the target in use.
    pub region_bytes: u64,
    /// Memory of the host, if reads may come from it.
    pub memory_bytes: Option<u64>,
    /// Total cache of the drives, if known; including modelled drives.
    pub drive_cache_bytes: Option<u64>,
    /// Rate of the slowest link to the drives in 10^6 bytes a second, if known.
    pub link_mb_per_s: Option<f64>,
    /// True if blocks of the target were discarded before.
    pub trimmed_before: bool,
    /// Bytes moved in each run.
    pub run_bytes: Vec<u64>,
    /// Processor time over elapsed time, of the process that drove the load.
    pub cpu_share: Option<f64>,
    /// Mean latency times rate over requests in flight: 1 in a steady state.
    pub littles_law_ratio: Option<f64>,
    /// Requests that failed.
    pub errors: u64,
    /// True if time is virtual: then badges about the host do not apply.
    pub virtual_time: bool,
}

/// Adds the badges to a figure.
pub fn judge(figure: &mut MeasurementRecord, around: &Circumstances) {
    let check = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
    figure.badge("no_errors", check(around.errors == 0, format!("{} requests failed", around.errors)));
    let reads = matches!(
        figure.op,
        crate::records::record::Operation::Read | crate::records::record::Operation::Mixed
    );
    if reads {
        let why = "blocks that were never written may be read without any drive".to_owned();
        figure.badge("filled_before", check(around.filled_before, why));
        let why = "blocks that were discarded before may be read without any drive".to_owned();
        figure.badge("no_trimmed_blocks", check(!around.trimmed_before, why));
    }
    if let Some(ratio) = around.littles_law_ratio {
        let why = format!("latency times rate gives {:.0} % of the requests in flight", 100.0 * ratio);
        figure.badge("steady", check((ratio - 1.0).abs() <= 0.15, why));
    }
    if figure.runs.len() >= 5 {
        let drift = "later runs differ from earlier ones".to_owned();
        figure.badge("no_drift", check(!drifts(&figure.runs), drift));
        let far = outliers(&figure.runs);
        let runs: Vec<String> = far.iter().map(|run| (run + 1).to_string()).collect();
        figure.badge(
            "no_outliers",
            check(far.is_empty(), format!("far from the others: run {}", runs.join(", "))),
        );
    }
    if let Some(spread) = standard_deviation(&figure.runs) {
        let mean = figure.runs.iter().sum::<f64>() / figure.runs.len() as f64;
        let why = format!("runs scatter by {:.0} %", 100.0 * spread / mean);
        figure.badge("repeatable", check(spread <= 0.1 * mean, why));
    }
    let direct = around.direct_io.filter(|_| !around.virtual_time);
    if direct.is_some() || around.drive_cache_bytes.is_some() {
        let cache = around.drive_cache_bytes.unwrap_or(0);
        let outcome = match direct {
            Some(false) => Err("requests went through the host's page cache".to_owned()),
            _ => {
                let why =
                    format!("{} bytes are in use, the drives' caches hold {cache}", around.region_bytes);
                check(is_beyond(around.region_bytes, cache), why)
            }
        };
        figure.badge("caches_defeated", outcome);
    }
    if around.virtual_time {
        return;
    }
    if let (Some(false), Some(memory)) = (direct, around.memory_bytes) {
        let why = "what was measured fits into the host's memory".to_owned();
        figure.badge("larger_than_memory", check(around.region_bytes > 2 * memory, why));
    }
    if let Some(cache) = around.drive_cache_bytes {
        let least = around.run_bytes.iter().copied().min().unwrap_or(0);
        let why = format!("a run moved {least} bytes, the drives' caches hold {cache}");
        figure.badge("longer_than_drive_cache", check(least > 4 * cache, why));
    }
    if let (Some(link), Some(rate)) = (around.link_mb_per_s, figure.mb_per_s) {
        let why =
            format!("{rate:.0} MB/s are {:.0} % of what the link to the drives carries", 100.0 * rate / link);
        figure.badge("not_link_bound", check(rate < 0.9 * link, why));
    }
    if let (Some(share), Unit::MbPerS | Unit::PerSecond) = (around.cpu_share, figure.unit) {
        let why = format!("{:.0} % of a core was used to drive the load", 100.0 * share);
        figure.badge("not_processor_bound", check(share < 0.9, why));
    }
}

/// Replaces the badges about equal runs for a method that runs until the steady state: its first
/// rounds differ on purpose. The interval is that of the last rounds.
pub(crate) fn judge_rounds(figure: &mut MeasurementRecord) {
    for badge in ["no_drift", "no_outliers", "repeatable"] {
        figure.badges.remove(badge);
        figure.badge_reasons.remove(badge);
    }
    let last = &figure.runs[figure.runs.len().saturating_sub(STEADY_ROUNDS)..];
    figure.ci95 = interval95(last).map(|interval| [interval.low, interval.high]);
    let outcome = steady_text(&figure.runs).map(drop);
    figure.badge("steady_state", outcome);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Operation;

    #[test]
    fn badges_that_fail_say_why() {
        let mut figure =
            MeasurementRecord::empty("r", Operation::Read).with_runs(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let around = Circumstances {
            direct_io: Some(false),
            region_bytes: 1 << 30,
            memory_bytes: Some(8 << 30),
            drive_cache_bytes: Some(256 << 20),
            link_mb_per_s: Some(3.0),
            trimmed_before: true,
            run_bytes: vec![100 << 20],
            cpu_share: Some(0.97),
            littles_law_ratio: Some(0.5),
            errors: 2,
            ..Circumstances::default()
        };
        judge(&mut figure, &around);
        assert!(figure.badges.values().filter(|holds| **holds).eq([&true]), "{:?}", figure.badges);
        assert!(figure.badges["no_outliers"]);
        let words = ["not_processor_bound", "no_errors", "steady"].map(MeasurementRecord::failed);
        assert_eq!(words, ["processor bound", "errors", "not steady"]);
        for name in figure.badges.iter().filter(|(_, holds)| !**holds).map(|(name, _)| name) {
            assert!(!figure.badge_reasons[name].is_empty(), "{name}");
        }
    }

    #[test]
    fn virtual_time_makes_no_claim_about_the_host() {
        let mut figure = MeasurementRecord::empty("r", Operation::Read).with_runs(vec![1.0; 6]);
        let around = Circumstances {
            virtual_time: true,
            direct_io: Some(false),
            cpu_share: Some(1.0),
            filled_before: true,
            littles_law_ratio: Some(1.0),
            ..Circumstances::default()
        };
        judge(&mut figure, &around);
        assert!(figure.badges.values().all(|holds| *holds), "{:?}", figure.badge_reasons);
        assert!(!figure.badges.contains_key("caches_defeated"));
    }

    #[test]
    fn eight_times_the_cache_size_defeats_drive_caches() {
        for virtual_time in [true, false] {
            let defeated = |region_bytes| {
                let mut figure = MeasurementRecord::empty("r", Operation::Read).with_runs(vec![1.0; 6]);
                let around = Circumstances {
                    virtual_time,
                    region_bytes,
                    drive_cache_bytes: Some(100),
                    ..Circumstances::default()
                };
                judge(&mut figure, &around);
                figure.badges["caches_defeated"]
            };
            assert!(!defeated(799) && defeated(800));
        }
    }
}
