//! Remarks on one figure.

use super::{causes, cost_model_mb_per_s, host_utilisation, single};
use crate::records::results::{ArrayResult, Evaluation, Measurement, Remark, Severity, State};

/// Share of the host's throughput without an array from which a figure is limited by the host.
const HOST_LIMIT: f64 = 0.9;
/// Share of one core from which a figure is limited by the processor: the engine runs on one
/// thread.
const CPU_LIMIT: f64 = 0.9;
/// Share of the layout's cost model below which a sequential figure needs an explanation.
const COST_MODEL_SHARE: f64 = 0.8;
/// Multiple of the drives' throughput above which a cache took part.
const IMPOSSIBLE: f64 = 1.1;
/// Share of the time without any completion above which a cell was disturbed.
const STALLED_SHARE: f64 = 0.03;
/// Tolerance of Little's law in a steady state.
const LITTLE_SLACK: f64 = 0.15;
/// Factor of bytes written to the drives beyond the layout's own need.
const WRITE_EXCESS: f64 = 1.15;

/// Remarks found for one figure.
pub(super) struct CellRemarks<'a> {
    pub(super) evaluation: &'a Evaluation,
    pub(super) array: &'a ArrayResult,
    pub(super) state: State,
    pub(super) workload: &'a str,
    pub(super) cell: &'a Measurement,
    pub(super) found: &'a mut Vec<Remark>,
}

impl CellRemarks<'_> {
    fn say(&mut self, severity: Severity, text: String) {
        self.found.push(Remark {
            severity,
            layout: Some(self.array.layout.clone()),
            state: Some(self.state),
            workload: Some(self.workload.into()),
            text,
        });
    }

    /// Adds all remarks.
    pub(super) fn all(&mut self) {
        self.errors();
        self.limits();
        self.runs();
        self.steadiness();
    }

    fn errors(&mut self) {
        if self.cell.errors > 0 {
            let text =
                format!("{} of {} requests failed.", self.cell.errors, self.cell.requests + self.cell.errors);
            self.say(Severity::Error, text);
        }
    }

    /// Adds the limit of a low figure, or the reason for an impossibly high one.
    fn limits(&mut self) {
        let cell = self.cell;
        let utilisation = host_utilisation(self.evaluation, cell);
        let host_bound = utilisation.filter(|utilisation| *utilisation >= HOST_LIMIT);
        let cpu_bound = cell.cpu_share.filter(|share| *share >= CPU_LIMIT);
        if let Some(utilisation) = host_bound {
            let text = format!(
                "Limited by the host, not the layout: the drives carried {:.0} % of the host's throughput without an \
                 array.",
                100.0 * utilisation
            );
            self.say(Severity::Warning, text);
        }
        if let Some(share) = cpu_bound {
            let text = format!("Limited by the processor, not the layout: {share:.2} of one core were used.");
            self.say(Severity::Warning, text);
        }
        if self.state != State::Normal || self.array.layout == "single" {
            return;
        }
        let Some(expected) = cost_model_mb_per_s(self.evaluation, self.array, self.workload) else { return };
        let most =
            single(self.evaluation, self.workload).map(|cell| cell.mb_per_s * self.array.drives as f64);
        if let Some(most) = most.filter(|most| cell.mb_per_s > IMPOSSIBLE * most) {
            let text = format!(
                "{:.0} MB/s is more than {} drives can give together ({most:.0} MB/s): a cache took part.",
                cell.mb_per_s, self.array.drives
            );
            self.say(Severity::Warning, text);
        } else if cell.mb_per_s < COST_MODEL_SHARE * expected && host_bound.is_none() && cpu_bound.is_none() {
            let text = format!(
                "{:.0} MB/s is {:.0} % of what the layout's cost model gives ({expected:.0} MB/s){}{}.",
                cell.mb_per_s,
                100.0 * cell.mb_per_s / expected,
                self.excess_writes(),
                causes::costliest_causes(&cell.drive_traffic.causes, cell.requests as f64, "request")
            );
            self.say(Severity::Warning, text);
        }
    }

    /// Describes writes beyond the layout's need for whole stripes.
    fn excess_writes(&self) -> String {
        let bytes =
            self.cell.write.as_ref().map_or(0.0, |write| write.mb_per_s * self.cell.total_seconds() * 1e6);
        if bytes <= 0.0 || self.array.capacity_bytes == 0 {
            return String::new();
        }
        let wrote = self.cell.drive_traffic.written_bytes as f64 / bytes;
        let needed =
            self.array.drives as f64 * self.array.drive_bytes as f64 / self.array.capacity_bytes as f64;
        if wrote > WRITE_EXCESS * needed {
            format!("; the drives wrote {wrote:.2} bytes for each, where whole stripes need {needed:.2}")
        } else {
            String::new()
        }
    }

    fn runs(&mut self) {
        let cell = self.cell;
        let settings = &self.evaluation.settings;
        if cell.ci95.is_none() && !settings.quick && !settings.virtual_time {
            let text = format!("{} runs are too few for an interval.", cell.runs.len());
            self.say(Severity::Note, text);
        }
        let fewest = cell.run_mean_latencies.iter().copied().fold(f64::INFINITY, f64::min);
        // The length of a run is derived from the latencies seen in it; a tenth covers changes in
        // its last moments.
        if !settings.quick && fewest < 0.9 * settings.mean_latencies_per_run {
            let text = format!(
                "A run lasted only {fewest:.1} mean latencies ({} are required): it may not show a steady state.",
                settings.mean_latencies_per_run
            );
            self.say(Severity::Warning, text);
        }
    }

    /// Reason why no request completed.
    fn reason_of_stall(&self) -> String {
        let stalled = &self.cell.stalled_traffic;
        let asked = format!(
            "{} writes ({:.1} MB), {} reads ({:.1} MB) and {} flushes",
            stalled.writes,
            stalled.written_bytes as f64 / 1e6,
            stalled.reads,
            stalled.read_bytes as f64 / 1e6,
            stalled.flushes
        );
        let own = match self.state {
            State::Rebuilding => "the rebuild and the array's own records",
            _ => "the array's own records and what it had deferred",
        };
        let idle = stalled.requests() + stalled.flushes == 0;
        match (self.evaluation.settings.virtual_time, idle) {
            (true, true) => "the drives were idle, so the array itself held the requests back".into(),
            (true, false) => format!("the array waited for its drives, which took {asked} for {own}"),
            (false, true) => "the host was busy with something else".into(),
            (false, false) => format!("the host was busy, or the drives were with {asked} for {own}"),
        }
    }

    fn steadiness(&mut self) {
        let stalled = self.cell.stalled_seconds;
        if stalled > STALLED_SHARE * self.cell.total_seconds() {
            let text = format!(
                "Nothing at all completed for {stalled:.1} s of {:.1} s: {}.",
                self.cell.total_seconds(),
                self.reason_of_stall()
            );
            self.say(Severity::Warning, text);
            return;
        }
        if self.evaluation.settings.quick {
            return;
        }
        if let Some(ratio) = self.cell.littles_law_ratio.filter(|ratio| (ratio - 1.0).abs() > LITTLE_SLACK) {
            let text = format!(
                "Mean latency times rate gives {:.0} requests in flight where {} were kept: not a steady state (start-up, \
                 pauses, or runs too short).",
                ratio * self.cell.outstanding as f64,
                self.cell.outstanding
            );
            self.say(Severity::Note, text);
        }
    }
}
