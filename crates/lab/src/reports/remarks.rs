//! Limits and anomalies of the figures: a pure function from results to remarks.
//!
//! Each remark names its cell, the figures it is based on, and the consequence. The thresholds are
//! few and defined in one place. A remark is never a reason to drop a figure: both are shown.

mod causes;
mod cell;

use crate::loads::caches::{LEAST_RUN_MULTIPLE, REGION_MULTIPLE, is_beyond};
use crate::records::results::{ArrayResult, Evaluation, Measurement, RebuildKind, Remark, Severity, State};
use crate::reports::tables::short_name;
use cell::CellRemarks;

/// Half-width above which an interval is wide, as a share of the median.
const WIDE_INTERVAL: f64 = 0.1;
/// Share of a drive's own write rate below which an idle rebuild needs an explanation.
const REBUILD_SHARE: f64 = 0.9;

/// Derives the conclusions: each cell's share of a single drive, and the remarks.
pub(crate) fn conclude(evaluation: &mut Evaluation) {
    let workloads = evaluation.settings.workloads.iter().map(|workload| workload.name.clone());
    let single: Vec<(String, Option<f64>)> = workloads
        .map(|name| {
            let speed = single(evaluation, &name).map(|cell| cell.mb_per_s).filter(|speed| *speed > 0.0);
            (name, speed)
        })
        .collect();
    for array in &mut evaluation.arrays {
        for cells in array.states.values_mut() {
            for (name, speed) in &single {
                if let Some(cell) = cells.get_mut(name) {
                    cell.percent_of_single = speed.map(|speed| 100.0 * cell.mb_per_s / speed);
                }
            }
        }
    }
    evaluation.remarks = remarks(evaluation);
}

/// All remarks on an evaluation, the most severe first, otherwise in the order of the tables.
pub fn remarks(evaluation: &Evaluation) -> Vec<Remark> {
    let mut found = Vec::new();
    on_the_whole(evaluation, &mut found);
    for array in &evaluation.arrays {
        on_an_array(evaluation, array, &mut found);
        for (&state, cells) in &array.states {
            for workload in &evaluation.settings.workloads {
                if let Some(cell) = cells.get(&workload.name) {
                    let mut cell_remarks = CellRemarks {
                        evaluation,
                        array,
                        state,
                        workload: &workload.name,
                        cell,
                        found: &mut found,
                    };
                    cell_remarks.all();
                }
            }
        }
    }
    found.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
    found
}

fn on_the_whole(evaluation: &Evaluation, found: &mut Vec<Remark>) {
    let mut say = |severity, text: String| {
        found.push(Remark { severity, layout: None, state: None, workload: None, text });
    };
    let settings = &evaluation.settings;
    if settings.quick {
        say(
            Severity::Warning,
            "A quick look: runs are few and short, so figures tell orders of magnitude, not differences between layouts. \
             Leave out --quick for figures with intervals."
                .into(),
        );
    }
    if !evaluation.environment.optimised_build {
        say(
            Severity::Warning,
            "This build is not optimised: figures are lower than the engine's own.".into(),
        );
    }
    if evaluation.environment.direct_io == Some(false) {
        say(
            Severity::Warning,
            "The file system refused O_DIRECT: the page cache took part in every figure.".into(),
        );
    }
    if evaluation.environment.virtual_machine == Some(true) && !settings.virtual_time {
        let held = if settings.pace.is_some() { " The pace keeps them out of most figures." } else { "" };
        say(
            Severity::Note,
            format!("A virtual machine: caches of its host are beyond our reach and may take part.{held}"),
        );
    }
    let wide = wide_intervals(evaluation);
    if !wide.is_empty() {
        say(
            Severity::Note,
            format!(
                "Intervals wider than ±{:.0} %: {}. Repeat with more runs (--runs) or longer ones (--seconds) before \
                 comparing these.",
                100.0 * WIDE_INTERVAL,
                wide.join(", ")
            ),
        );
    }
    if settings.virtual_time {
        say(
            Severity::Note,
            "Modelled drives in virtual time: the engine's own code ran, but no bytes were stored, so none were compared."
                .into(),
        );
    }
    if let Some(model) = &settings.model {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        if !is_beyond(settings.drive_bytes, model.cache_bytes) {
            say(
                Severity::Warning,
                format!(
                    "Caches are not defeated: drives of {:.0} MiB hold less than {REGION_MULTIPLE} times what their \
                     modelled caches do ({:.0} MiB). Leave out --size, or make it {:.0} MiB or more.",
                    mib(settings.drive_bytes),
                    mib(model.cache_bytes),
                    mib(REGION_MULTIPLE * model.cache_bytes)
                ),
            );
        }
        let cache_s = model.cache_bytes as f64 / (model.mb_per_s * 1e6).max(1.0);
        if settings.seconds_per_run < LEAST_RUN_MULTIPLE * cache_s {
            say(
                Severity::Warning,
                format!(
                    "Caches are not defeated: a run of {} s is too short for a drive to move {LEAST_RUN_MULTIPLE} \
                     times what its modelled caches hold ({:.0} MiB). Leave out --seconds, or make it {:.1} or more.",
                    settings.seconds_per_run,
                    mib(model.cache_bytes),
                    LEAST_RUN_MULTIPLE * cache_s
                ),
            );
        }
    }
    if settings.pace_asked == "none" && !settings.virtual_time {
        say(
            Severity::Note,
            "Drives are not paced: files on one disk share its speed, so layouts cannot scale with the number of drives."
                .into(),
        );
    }
}

/// Cells whose interval is too wide for comparisons, each with its half-width.
fn wide_intervals(evaluation: &Evaluation) -> Vec<String> {
    let mut wide = Vec::new();
    for array in &evaluation.arrays {
        for (state, cells) in &array.states {
            for workload in &evaluation.settings.workloads {
                let Some(cell) = cells.get(&workload.name).filter(|cell| cell.mb_per_s > 0.0) else {
                    continue;
                };
                let Some([low, high]) = cell.ci95 else { continue };
                let half = (high - low) / 2.0 / cell.mb_per_s;
                if half > WIDE_INTERVAL {
                    let load = short_name(&workload.name);
                    wide.push(format!("{} {state} {load} ±{:.0} %", array.layout, 100.0 * half));
                }
            }
        }
    }
    wide
}

fn on_an_array(evaluation: &Evaluation, array: &ArrayResult, found: &mut Vec<Remark>) {
    let mut say = |severity, text: String| {
        found.push(Remark {
            severity,
            layout: Some(array.layout.clone()),
            state: None,
            workload: None,
            text,
        });
    };
    if array.corrupt_bytes > 0 {
        let places: Vec<String> = array
            .verifications
            .iter()
            .flat_map(|verification| &verification.places)
            .take(3)
            .map(|place| format!("at {}: {}", place.offset_bytes, place.found))
            .collect();
        say(
            Severity::Error,
            format!("{} bytes differ from what was written ({}).", array.corrupt_bytes, places.join("; ")),
        );
    }
    let unknown: u64 = array.verifications.iter().map(|verification| verification.unknown_bytes).sum();
    if unknown > 0 {
        say(
            Severity::Warning,
            format!("{unknown} bytes could not be verified, because their last write had failed."),
        );
    }
    for incident in &array.incidents {
        say(Severity::Warning, incident.clone());
    }
    if let (Some(rate), Some(bound)) = (array.rebuild_mb_per_s, rebuild_bound_mb_per_s(evaluation, array))
        && rate < REBUILD_SHARE * bound
        && !evaluation.settings.quick
    {
        let idle = array.rebuilds.iter().rfind(|rebuild| rebuild.kind == RebuildKind::Idle);
        let costliest_causes = idle.map_or_else(String::new, |rebuild| {
            causes::costliest_causes(&rebuild.drive_traffic.causes, rebuild.rebuilt_bytes as f64 / 1e6, "MB")
        });
        say(
            Severity::Note,
            format!(
                "The idle rebuild wrote {rate:.0} MB/s, {:.0} % of what a drive and the host allow ({bound:.0} \
                 MB/s){costliest_causes}.",
                100.0 * rate / bound
            ),
        );
    }
    let begun = array.rebuilds.iter().filter(|rebuild| rebuild.kind == RebuildKind::Load).count();
    let discarded: u32 =
        array.states.values().flat_map(|cells| cells.values()).map(|cell| cell.discarded_runs).sum();
    let discarded = match discarded {
        0 => String::new(),
        1 => " 1 run was discarded, because the rebuild ended during it.".into(),
        many => format!(" {many} runs were discarded, because the rebuild ended during them."),
    };
    if begun > 1 || !discarded.is_empty() {
        let rebuilds = match begun {
            1 => "1 rebuild was started".to_owned(),
            many => format!("{many} rebuilds were started, each of another drive"),
        };
        say(
            Severity::Note,
            format!(
                "{rebuilds}, so that one was running throughout every run that counts as rebuilding.{discarded}"
            ),
        );
    }
}

/// The same load on a single drive in state normal.
fn single<'a>(evaluation: &'a Evaluation, workload: &str) -> Option<&'a Measurement> {
    let array = evaluation.arrays.iter().find(|array| array.layout == "single")?;
    array.cell(State::Normal, workload)
}

/// Load on the drives relative to the host's throughput without an array: 1 is all of it. `None` if
/// the host was not measured.
pub(crate) fn host_utilisation(evaluation: &Evaluation, cell: &Measurement) -> Option<f64> {
    let host = evaluation.host.as_ref()?;
    let (traffic, seconds) = (&cell.drive_traffic, cell.total_seconds());
    let share = |amount: f64, speed: f64| if speed > 0.0 { amount / seconds / speed } else { 0.0 };
    let by_bytes = share(traffic.read_bytes as f64 / 1e6, host.seq_read_mb_per_s)
        + share(traffic.written_bytes as f64 / 1e6, host.seq_write_mb_per_s);
    let by_requests = share(traffic.reads as f64, host.random_read_iops)
        + share(traffic.writes as f64, host.random_write_iops);
    Some(by_bytes.max(by_requests))
}

/// Throughput by the layout's cost model (study 002, Table 2, large requests) from one drive's
/// rates: sequential reads from all drives at once, sequential writes to as many drives' worth as
/// hold data; but at most the host's throughput for all of them together.
pub(crate) fn cost_model_mb_per_s(
    evaluation: &Evaluation,
    array: &ArrayResult,
    workload: &str,
) -> Option<f64> {
    let drive = single(evaluation, workload)?.mb_per_s;
    let host = evaluation.host.as_ref();
    let data_drives = array.capacity_bytes as f64 / array.drive_bytes.max(1) as f64;
    let no_limit = f64::INFINITY;
    match workload {
        "seq_read" => {
            let host = host.map_or(no_limit, |host| host.seq_read_mb_per_s);
            // A dedicated parity drive serves no reads.
            let drives = if array.layout == "raid4" { data_drives } else { array.drives as f64 };
            Some((drive * drives).min(host))
        }
        "seq_write" => {
            let share = data_drives / array.drives.max(1) as f64;
            let host = host.map_or(no_limit, |host| host.seq_write_mb_per_s * share);
            Some((drive * data_drives).min(host))
        }
        _ => None,
    }
}

/// Maximum write rate of an idle rebuild: one drive's sequential writes, but at most the host's
/// throughput for it and for the drives that are read for it.
fn rebuild_bound_mb_per_s(evaluation: &Evaluation, array: &ArrayResult) -> Option<f64> {
    let drive = single(evaluation, "seq_write")?.mb_per_s;
    let sources = if array.copies > 1 { 1 } else { array.data_units };
    let host = evaluation.host.as_ref().map_or(f64::INFINITY, |host| {
        1.0 / (sources as f64 / host.seq_read_mb_per_s + 1.0 / host.seq_write_mb_per_s)
    });
    Some(drive.min(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{example, quiet};
    use crate::loads::contents::{DamagedPlace, Verification};
    use crate::loads::metered::Traffic;

    fn texts(evaluation: &Evaluation) -> Vec<String> {
        remarks(evaluation).iter().map(|remark| format!("{}: {}", remark.subject(), remark.text)).collect()
    }

    /// Changes one cell of the quiet example and returns the resulting remarks.
    fn with_cell(
        layout: &str,
        state: State,
        workload: &str,
        change: impl Fn(&mut Measurement),
    ) -> Vec<String> {
        let mut evaluation = quiet();
        let array = evaluation.arrays.iter_mut().find(|array| array.layout == layout).expect("that array");
        change(array.states.get_mut(&state).unwrap().get_mut(workload).expect("that cell"));
        texts(&evaluation)
    }

    fn with(change: impl Fn(&mut Evaluation)) -> Vec<String> {
        let mut evaluation = quiet();
        change(&mut evaluation);
        texts(&evaluation)
    }

    #[track_caller]
    fn only(found: &[String], part: &str) {
        assert!(found.len() == 1 && found[0].contains(part), "expected only {part:?}: {found:#?}");
    }

    #[test]
    fn normal_figures_get_no_remarks() {
        assert_eq!(texts(&quiet()), Vec::<String>::new());
    }

    #[test]
    fn host_and_processor_are_named_as_limits() {
        let found = with_cell("raid5", State::Normal, "seq_write", |cell| {
            cell.drive_traffic.written_bytes = (0.95 * 2000e6 * cell.total_seconds()) as u64;
            cell.mb_per_s *= 0.5;
        });
        only(
            &found,
            "raid5, normal, seq_write: Limited by the host, not the layout: the drives carried 95 %",
        );
        let found = with_cell("raid10", State::Degraded, "mixed", |cell| {
            cell.drive_traffic.reads = (0.92 * 100_000.0 * cell.total_seconds()) as u64;
        });
        only(&found, "raid10, degraded, mixed: Limited by the host");
        let found = with_cell("raid0", State::Normal, "seq_read", |cell| cell.cpu_share = Some(0.97));
        only(&found, "Limited by the processor, not the layout: 0.97 of one core");
    }

    #[test]
    fn deviations_from_the_cost_model_get_a_remark() {
        let found = with_cell("raid5", State::Normal, "seq_write", |cell| {
            cell.mb_per_s = 300.0;
            cell.runs = vec![300.0; 3];
            cell.drive_traffic.written_bytes *= 2;
        });
        only(&found, "300 MB/s is 50 % of what the layout's cost model gives (599 MB/s)");
        assert!(
            found[0].contains("the drives wrote 2.67 bytes for each, where whole stripes need 1.33"),
            "{found:?}"
        );
        assert!(found[0].contains("positions for each request: "), "the cause is named: {found:?}");
        let mut unpaced = quiet();
        unpaced.settings.pace = None;
        if let Some(host) = &mut unpaced.host {
            (host.seq_read_mb_per_s, host.seq_write_mb_per_s) = (300.0, 300.0);
        }
        let model = |layout: &str, workload: &str| {
            let array = unpaced.arrays.iter().find(|array| array.layout == layout).expect("that array");
            cost_model_mb_per_s(&unpaced, array, workload).expect("known loads")
        };
        assert_eq!(model("raid0", "seq_read"), 300.0, "four files on one disk give no more than the disk");
        assert_eq!(model("raid5", "seq_write"), 225.0);
        let found = with_cell("raid0", State::Normal, "seq_read", |cell| cell.mb_per_s = 1200.0);
        only(&found, "1200 MB/s is more than 4 drives can give together (799 MB/s): a cache took part");
    }

    #[test]
    fn weak_measurements_get_a_remark() {
        let cell = |change: fn(&mut Measurement)| with_cell("raid1", State::Rebuilding, "mixed", change);
        only(&cell(|cell| cell.discarded_runs = 1), "1 run was discarded, because the rebuild ended");
        only(&cell(|cell| cell.ci95 = None), "3 runs are too few");
        only(
            &cell(|cell| cell.ci95 = Some([50.0, 150.0])),
            "all: Intervals wider than ±10 %: raid1 rebuilding M ±",
        );
        let busy = "s: the host was busy with something else";
        only(&cell(|cell| cell.stalled_seconds = 9.0), busy);
        only(
            &cell(|cell| cell.run_mean_latencies[1] = 1.5),
            "A run lasted only 1.5 mean latencies (4 are required)",
        );
        only(&cell(|cell| cell.littles_law_ratio = Some(0.5)), "256 requests in flight where 512 were kept");
        only(&cell(|cell| cell.errors = 7), "7 of ");
    }

    #[test]
    fn virtual_time_stalls_are_not_blamed_on_the_host() {
        let found = |traffic: Traffic| {
            let found = with(|evaluation| {
                evaluation.settings.virtual_time = true;
                let array =
                    evaluation.arrays.iter_mut().find(|array| array.layout == "raid5").expect("there");
                let cell = array.states.get_mut(&State::Rebuilding).unwrap().get_mut("mixed").unwrap();
                (cell.stalled_seconds, cell.stalled_traffic) = (9.0, traffic);
            });
            found.into_iter().find(|text| text.contains("Nothing at all completed")).expect("it is said")
        };
        let asked = Traffic { writes: 800, written_bytes: 3_200_000, flushes: 12, ..Traffic::default() };
        let busy = "800 writes (3.2 MB), 0 reads (0.0 MB) and 12 flushes for the rebuild";
        assert!(found(asked).contains(busy), "{}", found(asked));
        let idle = found(Traffic::default());
        assert!(idle.contains("the array itself held the requests back"), "{idle}");
    }

    #[test]
    fn corruption_is_an_error_and_comes_first() {
        let found = with(|evaluation| {
            evaluation.settings.quick = true;
            let array = &mut evaluation.arrays[2];
            array.corrupt_bytes = 8192;
            array.verifications = vec![Verification {
                corrupt_bytes: 8192,
                places: vec![DamagedPlace { offset_bytes: 4096, expected_phase: 2, found: "zeros".into() }],
                ..Verification::default()
            }];
        });
        assert_eq!(found[0], "raid5: 8192 bytes differ from what was written (at 4096: zeros).");
        assert!(found[1].contains("A quick look"), "{found:?}");
    }

    #[test]
    fn remarks_on_all_figures_appear_once() {
        only(&with(|e| e.environment.optimised_build = false), "not optimised");
        only(&with(|e| e.environment.direct_io = Some(false)), "O_DIRECT");
        only(&with(|e| e.environment.virtual_machine = Some(true)), "A virtual machine");
        only(&with(|e| e.settings.pace_asked = "none".into()), "not paced");
        only(&with(|e| e.settings.virtual_time = true), "virtual time");
    }

    #[test]
    fn slow_and_repeated_rebuilds_get_a_remark() {
        only(
            &with(|e| e.arrays[2].rebuild_mb_per_s = Some(120.0)),
            "The idle rebuild wrote 120 MB/s, 60 % of what",
        );
        let twice = |e: &mut Evaluation| {
            let again = e.arrays[2].rebuilds[0].clone();
            e.arrays[2].rebuilds.push(again);
        };
        only(&with(twice), "2 rebuilds were started, each of another drive");
        only(&with(|e| e.arrays[2].incidents = vec!["A drive was slow.".into()]), "raid5: A drive was slow.");
    }

    #[test]
    fn the_example_has_remarks_of_every_severity() {
        let found = remarks(&example());
        for severity in [Severity::Note, Severity::Warning] {
            assert!(found.iter().any(|remark| remark.severity == severity), "{severity:?}");
        }
    }
}
