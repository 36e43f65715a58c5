//! Effects of controllers and software on hard disks that are simulated request by request
//! ([`simulation`]): journals, a driver's cache, gains and costs of streams, a rebuild's share.

use super::{Latency, Limit, Prediction, State, Workload};
use stripewise_layout::{Level, Shape};

use crate::system::System;

mod member;
mod simulation;

use member::Member;
use simulation::{Simulation, takes_turns};

/// Runs of a method that repeats itself, and how long each is: those of CrystalDiskMark.
const REPEATED_RUNS: usize = 5;
const RUN_SECONDS: f64 = 5.0;
/// Journal space that Storage Spaces reserves on the disks of a parity space.
const JOURNAL_BYTES: u64 = 32 << 20;
/// Number of drives up to which a stream of gathered rows is simulated in full.
const FEW_DRIVES: f64 = 8.0;
/// Time a write-back cache takes to accept a request, in microseconds.
const ACCEPT_US: f64 = 50.0;

/// Random seed, and factor on the usual number of simulated requests.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub seed: u64,
    pub effort: f64,
}

/// Seconds to rebuild one drive: its mean rate over the surface, each cylinder taking the same
/// time.
pub(super) fn rebuild_seconds(system: &System) -> Option<f64> {
    (system.shape.fault_tolerance() > 0).then(|| {
        let outer = system.drive.or("outer_rate", 200.0);
        let mean = (outer + system.drive.or("inner_rate", outer / 2.0)) / 2.0;
        let used = if system.controller.is("rebuilds_used_only") { system.filled } else { 1.0 };
        system.drive.or("capacity", 0.0) * used / (mean * 1e6 * system.controller.or("rebuild_of_outer", 1.0))
    })
}

/// The journal's copies as an array of their own.
fn in_journal(system: &System, copies: usize) -> System {
    let mut journal = system.clone();
    journal.drives = copies;
    let level = if copies > 1 { Level::Raid1 } else { Level::Single };
    journal.shape = Shape { level, width: copies, groups: 1, ..journal.shape };
    journal.controller.parameters.remove("slab");
    if let Some(gathers) = journal.controller.parameters.remove("journals") {
        journal.controller.parameters.insert("coalesces".to_owned(), gathers);
    }
    journal
}

/// Writes that pass a journal: streams at the speed of one disk, where a lone request waits for a
/// turn of it to be safe; random ones as far apart as the journal is large, where they replace what
/// it holds. On solid-state drives the journal's copies share their speed.
fn journalled(system: &System, workload: &Workload, run: Run) -> Prediction {
    let bytes = workload.mean_bytes();
    let (part, us) = match &system.journal {
        Some((count, ssd)) => {
            let lanes = (*count as f64 / 2.0).floor().max(1.0);
            ("journal", bytes / (ssd.or("sequential_write", 400.0) * lanes))
        }
        None if workload.random_share < 0.5 => {
            let turn_us = 60e6 / system.drive.or("spindle", 7200.0);
            let alone = if workload.outstanding() == 1 { turn_us } else { 0.0 };
            let one = predict(&in_journal(system, 1), State::Normal, workload, run);
            ("journal", 1e6 / one.iops + alone)
        }
        // In a short run on a file larger than the journal hardly a block is written twice before
        // it is destaged: entries are appended, each a command of its own, by the copies of all
        // disks.
        None if workload.repeats && workload.span_bytes.is_some_and(|span| span > JOURNAL_BYTES) => {
            let lanes = (system.drives / 2).clamp(1, workload.outstanding()) as f64;
            let command = system.drive.or("prepare", 0.0).max(system.drive.or("command", 50.0));
            ("journal", (command + bytes / system.drive.or("outer_rate", 200.0)) / lanes)
        }
        None => {
            let one = in_journal(system, 2);
            let journal = 2 * JOURNAL_BYTES / system.drives as u64;
            let span_bytes = workload.span_bytes.map_or(journal, |span| span.min(journal));
            let load = Workload { span_bytes: Some(span_bytes), ..workload.clone() };
            let prediction = predict(&one, State::Normal, &load, run);
            let rebuild_seconds = rebuild_seconds(system);
            return Prediction { rebuild_seconds, bottleneck: "journal".into(), ..prediction };
        }
    };
    let limits = vec![Limit { part: part.into(), iops: 1e6 / us }];
    let mut prediction = Prediction::of_limits(system, workload, us, limits, 2e6 / us);
    prediction.bottleneck = part.into();
    prediction.rebuild_seconds = rebuild_seconds(system);
    prediction.rebuild_under_load_seconds = prediction.rebuild_seconds.map(|idle| 2.0 * idle);
    prediction
}

/// Reads and writes of a journalled set in turns.
fn mixed(system: &System, state: State, workload: &Workload, run: Run) -> Prediction {
    let of = |read_share| predict(system, state, &Workload { read_share, ..workload.clone() }, run);
    let (reads, writes) = (of(1.0), of(0.0));
    let share = workload.read_share;
    let iops = 1.0 / (share / reads.iops + (1.0 - share) / writes.iops);
    // The kind of request that takes more of the time limits.
    let slower = if share / reads.iops > (1.0 - share) / writes.iops { reads } else { writes };
    let scale = slower.iops / iops;
    let latency = slower.latency_us;
    let at = |us: f64| us * scale;
    Prediction {
        mb_per_s: iops * workload.mean_bytes() / 1e6,
        iops,
        latency_us: Latency {
            mean: at(latency.mean),
            p50: at(latency.p50),
            p99: at(latency.p99),
            p999: at(latency.p999),
            max: at(latency.max),
        },
        ..slower
    }
}

/// Speed-up of reads whose runs repeat one random sequence, from a driver's cache of `room` blocks:
/// each run covers what the previous one read and as much again, until the sequence exceeds the
/// cache and the next run misses.
fn repeated(room: f64, requests_in_a_run: f64, places: f64) -> f64 {
    let blocks = |requests: f64| places * (1.0 - (-requests / places).exp());
    let (mut last, mut all) = (0.0, 0.0);
    for _ in 0..REPEATED_RUNS {
        let found = if blocks(last) <= room { last } else { 0.0 };
        last = found + requests_in_a_run;
        all += last;
    }
    all / (REPEATED_RUNS as f64 * requests_in_a_run)
}

pub(super) fn predict(system: &System, state: State, workload: &Workload, run: Run) -> Prediction {
    let controller = &system.controller;
    let journals = controller.is("journals") && system.shape.parity_units() > 0;
    if journals && workload.read_share == 0.0 {
        return journalled(system, workload, run);
    }
    if journals && workload.read_share < 1.0 {
        return mixed(system, state, workload, run);
    }
    if journals && workload.span_bytes.is_some_and(|span| span <= JOURNAL_BYTES) {
        // The most recent writes still lie in the journal, which is a mirror.
        let rebuild_seconds = rebuild_seconds(system);
        let prediction = predict(&in_journal(system, 2), State::Normal, workload, run);
        return Prediction { rebuild_seconds, ..prediction };
    }
    let mut simulation = Simulation::new(system, state, workload, run.seed);
    let span = simulation.span;
    let outstanding = simulation.requests.len() as u64 - 1;
    let warm = 2 * outstanding + 300;
    // Gathered rows are wider the more drives there are: fewer of them are as many commands.
    let gathers = controller.is("coalesces") && workload.random_share < 0.5 && workload.read_share == 0.0;
    let fewer = match gathers {
        true => (FEW_DRIVES / system.drives as f64).min(1.0),
        false => 1.0,
    };
    let measured = ((3000 + 4 * outstanding) as f64 * run.effort * fewer) as u64;
    let (from_ns, until_ns) = simulation.run(warm, measured);
    let seconds = (until_ns - from_ns).max(1) as f64 / 1e9;
    let mut iops = simulation.done_bytes as f64 / workload.mean_bytes() / seconds;
    let busy = |member: &Member| (member.busy_ns as f64 / 1e9 / seconds).min(1.0);
    let mut drives_busy: Vec<f64> = simulation.members.iter().map(busy).collect();
    let mut drive_utilisation = drives_busy.iter().copied().fold(0.0, f64::max);
    let mut link = (simulation.link_busy_ns as f64 / 1e9 / seconds).min(1.0);
    // Software that moves more or fewer bytes than asked for, and what its own work costs.
    let sequential = workload.random_share < 0.5;
    let is_striped = system.shape.width > system.shape.copies();
    let strips = if is_striped { controller.or("strip_efficiency", 1.0) } else { 1.0 };
    let efficiency = controller.or("efficiency", 1.0) * strips;
    let gain = match (sequential, workload.read_share >= 0.5) {
        (true, true) => controller.or("stream_read_gain", 1.0) * efficiency,
        // Each strip waits for the spindle already: no further loss.
        (true, false) if controller.is("serial_strips") && system.shape.parity_units() > 0 => 1.0,
        (true, false) => controller.or("stream_write_gain", 1.0) * efficiency,
        _ => 1.0 / controller.or("positions_per_request", 1.0),
    };
    let gain = match workload.repeats && !sequential && workload.read_share >= 1.0 {
        true => {
            let kept = controller.or("read_cache", 0.0) * 1024.0 / controller.or("read_cache_line", 4.0);
            gain * repeated(kept, iops * RUN_SECONDS, span as f64 / workload.mean_bytes())
        }
        false => gain,
    };
    iops *= gain;
    if sequential && workload.read_share == 0.0 && controller.is("coalesces") {
        iops = iops.min(workload.outstanding() as f64 * 1e6 / ACCEPT_US);
    }
    if state == State::Rebuilding && !takes_turns(system) {
        iops *= 1.0 - controller.or("rebuild_share", 0.3);
    }
    let processor = super::processor_limit(system, workload);
    let unlimited = iops;
    iops = processor.as_ref().map_or(iops, |limit| iops.min(limit.iops));
    let mut latencies = std::mem::take(&mut simulation.latencies_ns);
    latencies.sort_unstable();
    // Waiting at the host and a rebuild's share lengthen all latencies alike.
    let mean = workload.outstanding() as f64 / iops * 1e6;
    let simulated = latencies.iter().sum::<u64>() as f64 / latencies.len().max(1) as f64;
    let at = |share: f64| {
        let index = (share * (latencies.len().max(1) - 1) as f64) as usize;
        latencies.get(index).map_or(mean, |ns| mean * *ns as f64 / simulated.max(1.0))
    };
    let latency_us = Latency { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) };
    // A rate limited by the processor leaves the drives and the link idle.
    let idle = iops / unlimited.max(1e-9);
    drives_busy.iter_mut().for_each(|busy| *busy *= idle);
    (drive_utilisation, link) = (drive_utilisation * idle, link * idle);
    let mut limits = vec![Limit { part: "drives".into(), iops: iops / drive_utilisation.max(1e-6) }];
    if link > 0.0 {
        limits.push(Limit { part: "link".into(), iops: iops / link });
    }
    let interfaces = system.drive.or("interface", 550.0) * 1e6 * system.drives as f64;
    limits.push(Limit { part: "drives' interfaces".into(), iops: interfaces / workload.mean_bytes() });
    let offered = Limit { part: "outstanding requests".into(), iops };
    let is_held_back = processor.as_ref().is_some_and(|limit| limit.iops <= unlimited);
    limits.extend(processor);
    if drive_utilisation < 0.9 && link < 0.9 && !is_held_back {
        limits.push(offered);
    }
    limits.sort_by(|one, other| one.iops.total_cmp(&other.iops));
    let headroom = limits.get(1).map_or(1.0, |next| next.iops / iops);
    let rebuild = rebuild_seconds(system);
    let share = match takes_turns(system) {
        true => 0.25,
        false => controller.or("rebuild_share", 0.3),
    };
    Prediction {
        mb_per_s: iops * workload.mean_bytes() / 1e6,
        iops,
        latency_us,
        bottleneck: limits[0].part.clone(),
        headroom,
        processor_utilisation: super::processor(system, workload, iops, &limits),
        limits,
        drive_utilisation,
        drives_busy,
        rebuild_seconds: rebuild,
        rebuild_under_load_seconds: rebuild
            .map(|idle| idle / (1.0 - drive_utilisation * (1.0 - share)).max(0.02)),
    }
}
