//! The plan of an evaluation: drive sizes and run lengths that fit the allowed time; and, during
//! the evaluation, progress and remaining time.
//!
//! Estimates are rough on purpose (a drive's rate times the share that the layout's cost model
//! leaves): they determine the drive size and the remaining time, never a result. If the host is so
//! slow that four mean latencies of the mixed load would not fit, runs are shortened and the report
//! says so.

use std::cell::{Cell, RefCell};

use stripewise_layout::Shape;

use super::options::Status;
use crate::loads::caches::Beyond;
use crate::loads::workload::Workload;
use crate::records::results::State;

/// Minimum length of a run in mean latencies.
pub(super) const LATENCIES_PER_RUN: f64 = 4.0;
/// Share of the allowed time up to which drives are not made smaller; the rest is a reserve.
const PLANNED_SHARE: f64 = 0.8;
/// Share of the allowed time above which runs may be shorter than their mean latencies.
const CUT_SHARE: f64 = 0.88;
const MIB: u64 = 1 << 20;
/// Minimum drive size: smaller drives rebuild too quickly.
const LEAST_DRIVE_BYTES: u64 = 64 * MIB;
/// Maximum drive size by default, to limit the space of a first evaluation.
const MOST_DRIVE_BYTES: u64 = 4096 * MIB;

/// One array to evaluate.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub shape: Shape,
    /// Drive size as a multiple of the common one: 2 for two drives in place of four.
    pub size_factor: f64,
}

impl Subject {
    fn width(&self) -> f64 {
        self.shape.width as f64
    }

    /// Share of the raw space that holds data.
    fn data_share(&self) -> f64 {
        let parity = self.shape.parity_units();
        let group = self.shape.group_width().max(1) as f64;
        if parity > 0 { (group - parity as f64) / group } else { 1.0 / self.shape.copies() as f64 }
    }

    pub(super) fn is_redundant(&self) -> bool {
        self.shape.fault_tolerance() > 0
    }

    fn states(&self) -> &'static [State] {
        if self.is_redundant() { &State::ALL } else { &State::ALL[..1] }
    }
}

/// Rates of one drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriveRates {
    pub bytes_per_s: f64,
    pub iops: f64,
    /// Share of the drive that a rebuild gets under load.
    pub rebuild_share: f64,
}

/// Sizes and lengths of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub drive_bytes: u64,
    pub runs: u32,
    pub least_run_s: f64,
    pub most_run_s: f64,
    /// Minimum length of a ramp-up.
    pub ramp_s: f64,
    /// Maximum length of a ramp-up.
    pub most_ramp_s: f64,
    /// Expected duration of the evaluation.
    pub expected_s: f64,
}

/// Fixed constraints of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constraints {
    pub quick: bool,
    pub drive_bytes: Option<u64>,
    pub runs: Option<u32>,
    pub seconds_per_run: Option<f64>,
    /// Maximum size of each drive: the space of the folder.
    pub room_bytes: u64,
    /// Time spent before the first array.
    pub host_s: f64,
    /// Conditions for exceeding the caches of modelled drives. Virtual time costs only computing,
    /// so nothing is made smaller or shorter.
    pub beyond: Option<Beyond>,
}

/// Chooses drive size and lengths.
pub(super) fn plan(
    subjects: &[Subject],
    workloads: &[Workload],
    rates: &DriveRates,
    constraints: &Constraints,
) -> Plan {
    let beyond = constraints.beyond.unwrap_or_default();
    let allowed_s = match constraints.beyond {
        Some(_) => f64::INFINITY,
        None if constraints.quick => 60.0,
        None => 480.0,
    };
    let budget_s = PLANNED_SHARE * allowed_s;
    let mut plan = Plan {
        drive_bytes: 0,
        runs: constraints.runs.unwrap_or(if constraints.quick { 1 } else { 3 }),
        least_run_s: constraints.seconds_per_run.unwrap_or(if constraints.quick { 0.5 } else { 2.0 }),
        most_run_s: f64::INFINITY,
        ramp_s: if constraints.quick { 0.1 } else { 0.25 },
        most_ramp_s: if constraints.quick { 0.2 } else { 20.0 },
        expected_s: 0.0,
    };
    if constraints.seconds_per_run.is_none() {
        plan.least_run_s = plan.least_run_s.max(beyond.run_s);
        plan.ramp_s = plan.ramp_s.max(beyond.ramp_s);
        plan.most_ramp_s = plan.most_ramp_s.max(plan.ramp_s);
    }
    // A quick look has no time for mean latencies.
    if constraints.quick && constraints.seconds_per_run.is_none() {
        plan.most_run_s = 2.0 * plan.least_run_s;
    }
    let expected = |plan: &Plan| {
        constraints.host_s
            + subjects
                .iter()
                .map(|subject| subject_s(subject, workloads, rates, plan).iter().sum::<f64>())
                .sum::<f64>()
    };
    let size_of = |seconds: f64| {
        let (least, most) =
            (LEAST_DRIVE_BYTES.max(beyond.drive_bytes), MOST_DRIVE_BYTES.max(beyond.drive_bytes));
        let bytes = ((rates.bytes_per_s * seconds) as u64).clamp(least, most);
        let bytes = bytes.min(constraints.room_bytes).max(16 * MIB);
        constraints.drive_bytes.unwrap_or(bytes / (4 * MIB) * (4 * MIB))
    };
    // A rebuild under load should outlast one run with its ramp-up.
    let least_s = 1.6 * rates.rebuild_share * (plan.least_run_s + 2.0 * plan.ramp_s);
    let mut seconds = if constraints.quick { least_s } else { least_s.max(4.0) };
    loop {
        plan.drive_bytes = size_of(seconds);
        plan.expected_s = expected(&plan);
        if plan.expected_s <= budget_s || seconds <= least_s || constraints.drive_bytes.is_some() {
            break;
        }
        seconds = (seconds * 0.8).max(least_s);
    }
    let budget_s = CUT_SHARE * allowed_s;
    if plan.expected_s > budget_s && constraints.seconds_per_run.is_none() && constraints.runs.is_none() {
        plan.most_run_s = plan.most_run_s.min(8.0 * plan.least_run_s);
        plan.most_ramp_s = plan.most_ramp_s.min(plan.least_run_s);
        while expected(&plan) > budget_s && plan.most_run_s > plan.least_run_s {
            plan.most_run_s = (plan.most_run_s * 0.8).max(plan.least_run_s);
        }
        plan.expected_s = expected(&plan);
    }
    plan
}

/// The steps of one array, in the order of the estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Fill,
    Measure(State),
    IdleRebuild,
    Verify,
}

const STEPS: [Step; 6] = [
    Step::Fill,
    Step::Measure(State::Normal),
    Step::Measure(State::Degraded),
    Step::Measure(State::Rebuilding),
    Step::IdleRebuild,
    Step::Verify,
];

/// Expected seconds of each of [`STEPS`].
fn subject_s(subject: &Subject, workloads: &[Workload], rates: &DriveRates, plan: &Plan) -> [f64; 6] {
    let drive_s = plan.drive_bytes as f64 * subject.size_factor / rates.bytes_per_s;
    STEPS.map(|step| match step {
        Step::Fill => 1.1 * drive_s + 0.1,
        Step::Measure(state) if subject.states().contains(&state) => {
            let runs_s: f64 =
                workloads.iter().map(|workload| runs_s(subject, state, workload, rates, plan)).sum();
            if state != State::Rebuilding {
                return runs_s;
            }
            // The rest of each rebuild completes without load.
            let under_load_s = drive_s / rates.rebuild_share.max(0.01);
            let rebuilds = (runs_s / under_load_s).ceil().max(1.0);
            runs_s + rebuilds * 0.3 * drive_s
        }
        Step::IdleRebuild if subject.is_redundant() => 1.1 * drive_s,
        Step::Verify => drive_s * if subject.is_redundant() { 1.9 } else { 1.0 },
        _ => 0.0,
    })
}

fn runs_s(subject: &Subject, state: State, workload: &Workload, rates: &DriveRates, plan: &Plan) -> f64 {
    let latency_s = workload.outstanding() as f64 * workload.mean_block_bytes()
        / cell_bytes_per_s(subject, state, workload, rates).max(1.0);
    let run_s = (LATENCIES_PER_RUN * latency_s).min(plan.most_run_s).max(plan.least_run_s);
    f64::from(plan.runs) * (latency_s.clamp(plan.ramp_s, plan.most_ramp_s) + run_s + 0.8 * latency_s)
}

/// Estimates the throughput of a cell.
fn cell_bytes_per_s(subject: &Subject, state: State, workload: &Workload, rates: &DriveRates) -> f64 {
    let (drives, data) = (subject.width(), subject.data_share());
    let writes = 1.0 - workload.read_share;
    // Bytes and requests at the drives per byte and request of the load; parity costs pre-reads if
    // writes are small.
    let parity = subject.shape.parity_units() > 0;
    let sequential = workload.pattern.is_sequential();
    let write_bytes = if parity && !sequential { 1.6 / data } else { 1.0 / data };
    let bytes = rates.bytes_per_s * drives / (workload.read_share + writes * write_bytes);
    let per_request = (workload.mean_block_bytes() / subject.shape.interleave_bytes as f64).max(1.0);
    let per_request = if sequential { 1.0 } else { per_request };
    let requests = per_request * (workload.read_share + writes * if parity { 2.5 } else { 1.0 / data });
    let by_requests = rates.iops * drives / requests * workload.mean_block_bytes();
    let kept = match state {
        State::Normal | State::Recovered => 1.0,
        State::Degraded => 0.6,
        State::Rebuilding => 0.6 * (1.0 - rates.rebuild_share),
    };
    bytes.min(by_requests) * kept
}

/// Tracks completed and remaining work.
pub(super) struct Ledger {
    /// Expected seconds of every step: host first, then six per array.
    expected_s: RefCell<Vec<f64>>,
    at: Cell<usize>,
    what: RefCell<String>,
    started_s: Cell<f64>,
    step_started_s: Cell<f64>,
    /// Expected and real time of the completed steps.
    done_s: Cell<(f64, f64)>,
}

impl Ledger {
    pub(super) fn new(now_s: f64, host_s: f64) -> Self {
        Self {
            expected_s: RefCell::new(vec![host_s]),
            at: Cell::new(0),
            what: RefCell::new("measuring the host".into()),
            started_s: Cell::new(now_s),
            step_started_s: Cell::new(now_s),
            done_s: Cell::new((0.0, 0.0)),
        }
    }

    /// Adds the steps of all arrays once they are planned.
    pub(super) fn set_plan(
        &self,
        subjects: &[Subject],
        workloads: &[Workload],
        rates: &DriveRates,
        plan: &Plan,
    ) {
        let mut expected = self.expected_s.borrow_mut();
        expected.truncate(1);
        expected.extend(subjects.iter().flat_map(|subject| subject_s(subject, workloads, rates, plan)));
    }

    /// Begins a step of array number `subject`.
    pub(super) fn begin(&self, subject: usize, step: Step, now_s: f64) {
        let position = STEPS.iter().position(|other| *other == step).unwrap_or(0);
        let next = 1 + subject * STEPS.len() + position;
        let passed: f64 = self.expected_s.borrow()[self.at.get()..next].iter().sum();
        let (expected, real) = self.done_s.get();
        self.done_s.set((expected + passed, real + now_s - self.step_started_s.get()));
        self.at.set(next);
        self.step_started_s.set(now_s);
    }

    /// Sets the current activity.
    pub(super) fn say(&self, what: String) {
        *self.what.borrow_mut() = what;
    }

    pub(super) fn status(&self, now_s: f64, mb_per_s: f64) -> Status {
        let expected = self.expected_s.borrow();
        let total: f64 = expected.iter().sum::<f64>().max(0.001);
        let (done_expected, done_real) = self.done_s.get();
        // Ratio of real to expected time so far, damped by a few seconds of trust in the estimates
        // at the start.
        let pace = ((done_real + 5.0) / (done_expected + 5.0)).clamp(0.3, 5.0);
        let step_expected = expected[self.at.get()] * pace;
        let in_step = (now_s - self.step_started_s.get()).clamp(0.0, 0.97 * step_expected);
        let later: f64 = expected[self.at.get() + 1..].iter().sum();
        let seconds_left = step_expected - in_step + later * pace;
        let elapsed = now_s - self.started_s.get();
        let by_steps = (done_expected + in_step / pace) / total;
        let percent = 100.0 * if elapsed > 0.0 { by_steps.clamp(0.0, 0.999) } else { 0.0 };
        Status { what: self.what.borrow().clone(), percent, seconds_left, mb_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::options::{all_layouts, default_layouts};
    use stripewise_layout::LayoutSpec;

    fn subjects(layouts: &[LayoutSpec]) -> Vec<Subject> {
        layouts.iter().map(|spec| super::super::subject_of(spec, 4, true).expect("fits")).collect()
    }

    fn rates(mb_per_s: f64) -> DriveRates {
        DriveRates { bytes_per_s: mb_per_s * 1e6, iops: 50.0 * mb_per_s, rebuild_share: 0.3 }
    }

    fn constraints(quick: bool) -> Constraints {
        let host_s = if quick { 2.0 } else { 8.0 };
        Constraints {
            quick,
            drive_bytes: None,
            runs: None,
            seconds_per_run: None,
            room_bytes: u64::MAX,
            host_s,
            beyond: None,
        }
    }

    #[test]
    fn the_default_matrix_fits_its_time_on_any_host() {
        let subjects = subjects(&default_layouts());
        for speed in [60.0, 150.0, 300.0, 400.0] {
            for (quick, most_s) in [(false, 480.0), (true, 60.0)] {
                let plan = plan(&subjects, &Workload::study_004(), &rates(speed), &constraints(quick));
                // A mixed load keeps 150 MB in flight: on slow drives its ramp-up and last answers
                // alone take a minute.
                let cannot = quick && speed < 150.0;
                assert!(plan.expected_s < 0.96 * most_s || cannot, "{speed} MB/s, quick {quick}: {plan:?}");
                assert!(plan.drive_bytes >= LEAST_DRIVE_BYTES && plan.drive_bytes.is_multiple_of(4 * MIB));
                if !quick {
                    assert!(plan.runs == 3 && plan.least_run_s == 2.0, "{plan:?}");
                }
                if speed >= 150.0 && !quick {
                    assert_eq!(plan.most_run_s, f64::INFINITY, "no run is cut at {speed} MB/s: {plan:?}");
                }
            }
        }
    }

    #[test]
    fn explicit_options_override_the_plan() {
        let subjects = subjects(&all_layouts());
        let wish = Constraints {
            drive_bytes: Some(512 * MIB),
            runs: Some(7),
            seconds_per_run: Some(10.0),
            ..constraints(false)
        };
        let plan = plan(&subjects, &Workload::study_004(), &rates(100.0), &wish);
        assert_eq!((plan.drive_bytes, plan.runs, plan.least_run_s), (512 * MIB, 7, 10.0));
        assert_eq!(plan.most_run_s, f64::INFINITY);
        let little = Constraints { room_bytes: 100 * MIB, ..constraints(false) };
        assert_eq!(
            super::plan(&subjects, &Workload::study_004(), &rates(100.0), &little).drive_bytes,
            100 * MIB
        );
    }

    #[test]
    fn runs_on_modelled_drives_exceed_the_drive_caches() {
        let beyond = Beyond { drive_bytes: 3072 * MIB, run_s: 3.2, ramp_s: 0.8 };
        for quick in [false, true] {
            let plan = |wish| {
                let cached = Constraints { beyond: Some(beyond), ..wish };
                plan(&subjects(&all_layouts()), &Workload::study_004(), &rates(245.0), &cached)
            };
            let chosen = plan(constraints(quick));
            assert_eq!((chosen.drive_bytes, chosen.least_run_s), (3072 * MIB, 3.2));
            assert!(chosen.ramp_s >= 0.8 && chosen.most_ramp_s >= chosen.ramp_s, "{chosen:?}");
            let asked = plan(Constraints {
                drive_bytes: Some(64 * MIB),
                seconds_per_run: Some(0.5),
                ..constraints(quick)
            });
            assert_eq!((asked.drive_bytes, asked.least_run_s), (64 * MIB, 0.5), "explicit values apply");
            let small = plan(Constraints { room_bytes: 512 * MIB, ..constraints(quick) });
            assert_eq!(small.drive_bytes, 512 * MIB, "at most the capacity of the model");
        }
    }

    #[test]
    fn the_remaining_time_falls_to_zero() {
        let subjects = subjects(&default_layouts());
        let (workloads, rates) = (Workload::study_004(), rates(200.0));
        let plan = plan(&subjects, &workloads, &rates, &constraints(false));
        let ledger = Ledger::new(100.0, 8.0);
        let mut now = 108.0;
        ledger.set_plan(&subjects, &workloads, &rates, &plan);
        let mut last = ledger.status(now, 0.0);
        assert!((0.3..3.0).contains(&(last.seconds_left / (plan.expected_s - 8.0))), "{last:?}");
        for (number, subject) in subjects.iter().enumerate() {
            let expected = subject_s(subject, &workloads, &rates, &plan);
            for (step, expected) in STEPS.into_iter().zip(expected) {
                ledger.begin(number, step, now);
                // Everything takes 1.5 times the estimate.
                now += 1.5 * expected;
                let status = ledger.status(now, 1.0);
                assert!(status.percent >= last.percent, "{status:?} after {last:?}");
                last = status;
            }
        }
        assert!(last.seconds_left < 3.0 && last.percent > 99.0, "{last:?}");
    }
}
