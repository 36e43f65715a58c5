//! Made-up results for tests of remarks, tables and reports: a plausible evaluation on four drives
//! of 200 MB/s.

use std::collections::BTreeMap;

use stripewise_drive::{Cause, CauseCounts, CauseTable};

use crate::environment::Environment;
use crate::loads::contents::Verification;
use crate::loads::load::{Tally, Window};
use crate::loads::metered::Traffic;
use crate::loads::workload::Workload;
use crate::records::results::{
    ArrayResult, Evaluation, HostSpeed, Measurement, OUTPUT_VERSION, PaceUsed, RebuildKind, RebuildLoad,
    RebuildPoint, RebuildRecord, Settings, State,
};

const DRIVE_MB_PER_S: f64 = 200.0;
const DRIVE_BYTES: u64 = 1 << 30;

/// An evaluation that gives no remarks at all.
pub(crate) fn quiet() -> Evaluation {
    let arrays =
        [("single", 1, 1, 1, 0), ("raid0", 4, 4, 1, 0), ("raid5", 4, 3, 1, 1), ("raid10", 4, 1, 2, 1)].map(
            |(layout, drives, data_units, copies, tolerance)| {
                array(layout, drives, DRIVE_BYTES, data_units, copies, tolerance)
            },
        );
    let mut arrays = arrays.to_vec();
    arrays.push(array("raid1", 2, 2 * DRIVE_BYTES, 1, 2, 1));
    let mut evaluation = Evaluation {
        output_version: OUTPUT_VERSION,
        date: "2026-01-02T03:04:05Z".into(),
        seconds: 421.5,
        environment: Environment {
            program_version: "0.1.0".into(),
            optimised_build: true,
            cpu_model: Some("Example Processor 3 GHz".into()),
            cores: Some(2),
            parity_kernel: Some("gfni".into()),
            memory_bytes: Some(8 << 30),
            kernel: Some("6.1.0".into()),
            system: Some("Debian GNU/Linux 12".into()),
            virtual_machine: Some(false),
            file_system: Some("ext4".into()),
            mount_options: Some("rw,relatime".into()),
            device: Some("/dev/nvme0n1p2".into()),
            device_model: Some("Example SSD".into()),
            device_firmware: None,
            device_serial: Some("EX123".into()),
            scheduler: Some("none".into()),
            smart: None,
            link_mb_per_s: None,
            rotational: Some(false),
            direct_io: Some(true),
        },
        settings: Settings {
            drives: "4 file-backed drives in /srv/lab".into(),
            drive_count: 4,
            drive_bytes: DRIVE_BYTES,
            pace_asked: "auto".into(),
            pace: Some(PaceUsed {
                text: "200MB/s,20000iops".into(),
                mb_per_s: Some(DRIVE_MB_PER_S),
                iops: Some(20_000.0),
            }),
            runs: 3,
            seconds_per_run: 2.0,
            mean_latencies_per_run: 4.0,
            quick: false,
            seed: 1,
            virtual_time: false,
            model: None,
            rebuild_priority_percent: 30,
            workloads: Workload::study_004().to_vec(),
        },
        host: Some(HostSpeed {
            drives: 4,
            seq_read_mb_per_s: 1800.0,
            seq_write_mb_per_s: 2000.0,
            random_read_iops: 100_000.0,
            random_write_iops: 90_000.0,
            seconds_each: 1.5,
        }),
        arrays,
        remarks: Vec::new(),
        on_disks: None,
        max_resident_bytes: Some(400 << 20),
    };
    crate::reports::remarks::conclude(&mut evaluation);
    evaluation
}

/// The same with a few things that deserve remarks.
pub(crate) fn example() -> Evaluation {
    let mut evaluation = quiet();
    let raid5 = &mut evaluation.arrays[2];
    let cell = raid5.states.get_mut(&State::Rebuilding).and_then(|cells| cells.get_mut("mixed"));
    let cell = cell.expect("the example has it");
    (cell.discarded_runs, cell.ci95) = (2, Some([60.0, 190.0]));
    let cell = raid5.states.get_mut(&State::Normal).and_then(|cells| cells.get_mut("seq_read"));
    cell.expect("the example has it").cpu_share = Some(0.94);
    crate::reports::remarks::conclude(&mut evaluation);
    evaluation
}

fn array(
    layout: &str,
    drives: usize,
    drive_bytes: u64,
    data_units: usize,
    copies: usize,
    fault_tolerance: usize,
) -> ArrayResult {
    let share = if copies > 1 { 1.0 / copies as f64 } else { data_units as f64 / drives as f64 };
    let capacity_bytes = (drives as f64 * drive_bytes as f64 * share) as u64;
    let mut states = BTreeMap::new();
    let in_states: &[State] = if fault_tolerance > 0 { &State::ALL } else { &[State::Normal] };
    for &state in in_states {
        let keeps = match state {
            State::Normal | State::Recovered => 1.0,
            State::Degraded => 0.7,
            State::Rebuilding => 0.5,
        };
        let cells = Workload::study_004().map(|workload| {
            let all = DRIVE_MB_PER_S * drives as f64;
            let (rate, traffic) = match workload.name.as_str() {
                "seq_write" => (all * share, 1.0 / share),
                "seq_read" => (all, 1.0),
                _ => (all * share * 0.6, 2.0),
            };
            let cell = measurement(&workload, rate * keeps, traffic);
            (workload.name, cell)
        });
        states.insert(state, BTreeMap::from(cells));
    }
    let verification =
        Verification { verified_bytes: capacity_bytes, seconds: 3.0, ..Verification::default() };
    ArrayResult {
        layout: layout.into(),
        drives,
        drive_bytes,
        columns: drives,
        interleave_bytes: 64 << 10,
        data_units,
        copies,
        fault_tolerance,
        capacity_bytes,
        fill_mb_per_s: Some(DRIVE_MB_PER_S * drives as f64 * share),
        rebuild_seconds: (fault_tolerance > 0).then_some(drive_bytes as f64 / 195e6),
        rebuild_mb_per_s: (fault_tolerance > 0).then_some(195.0),
        verified_bytes: capacity_bytes,
        corrupt_bytes: 0,
        verifications: vec![verification],
        states,
        rebuilds: if fault_tolerance > 0 { vec![rebuild(drive_bytes)] } else { Vec::new() },
        incidents: Vec::new(),
    }
}

fn measurement(workload: &Workload, mb_per_s: f64, drive_bytes_per_byte: f64) -> Measurement {
    let mut windows: Vec<Window> = [0.98, 1.01, 1.0]
        .iter()
        .map(|factor| {
            let request_bytes = workload.mean_block_bytes();
            let seconds = (4.5 * workload.outstanding() as f64 * request_bytes / mb_per_s / 1e6).max(2.0);
            let requests = (mb_per_s * factor * 1e6 * seconds / request_bytes) as u64;
            let mean_ns = workload.outstanding() as f64 * seconds * 1e9 / requests as f64;
            let mut window = Window {
                start_ns: 0,
                duration_ns: (seconds * 1e9) as u64,
                reads: Tally::new(),
                writes: Tally::new(),
                errors: 0,
                stalled_ns: 0,
                stalled_traffic: Traffic::default(),
                drive_traffic: Traffic::default(),
                cpu_seconds: Some(0.2 * seconds),
                interrupted: false,
            };
            for number in 0..requests {
                let is_read = (number as f64 + 0.5) / (requests as f64) < workload.read_share;
                let tally = if is_read { &mut window.reads } else { &mut window.writes };
                // From half to one and a half of the mean.
                let latency_ns = mean_ns * (0.5 + number as f64 / requests as f64);
                tally.requests += 1;
                tally.bytes += request_bytes as u64;
                tally.total_latency_ns += latency_ns as u128;
                tally.latency_ns.saturating_record(latency_ns as u64);
            }
            window
        })
        .collect();
    let read: u64 = windows.iter().map(|window| window.reads.bytes).sum();
    let written: u64 = windows.iter().map(|window| window.writes.bytes).sum();
    windows[0].drive_traffic = Traffic {
        reads: read / (128 << 10),
        read_bytes: read,
        writes: written / (128 << 10),
        written_bytes: (written as f64 * drive_bytes_per_byte) as u64,
        flushes: 0,
        causes: causes(),
    };
    Measurement::of(&windows, workload.outstanding(), 0)
}

fn causes() -> CauseTable {
    let mut causes = CauseTable::default();
    *causes.of_mut(Cause::Data) = CauseCounts { requests: 1000, bytes: 1000 << 20, positions: 250 };
    *causes.of_mut(Cause::RegionMap) = CauseCounts { requests: 10, bytes: 40960, positions: 10 };
    causes
}

fn rebuild(drive_bytes: u64) -> RebuildRecord {
    let seconds = drive_bytes as f64 / 60e6;
    let timeline = (0..=60)
        .map(|step| {
            let at = seconds * f64::from(step) / 60.0;
            let loaded = step < 40;
            RebuildPoint {
                seconds: at,
                percent: if loaded { f64::from(step) * 1.2 } else { 48.0 + f64::from(step - 40) * 2.6 },
                rebuild_mb_per_s: if loaded { 60.0 } else { 190.0 },
                load_mb_per_s: if loaded { 250.0 + 40.0 * f64::from(step % 5) } else { 0.0 },
            }
        })
        .collect();
    let load = |workload: &str, from: f64, to: f64| RebuildLoad {
        workload: workload.into(),
        from_seconds: seconds * from,
        to_seconds: seconds * to,
    };
    RebuildRecord {
        kind: RebuildKind::Load,
        lost_drive: "drive1".into(),
        seconds,
        idle_seconds: seconds / 3.0,
        rebuilt_bytes: drive_bytes,
        drive_traffic: Traffic { causes: causes(), ..Traffic::default() },
        timeline,
        loads: vec![load("seq_write", 0.0, 0.2), load("seq_read", 0.22, 0.4), load("mixed", 0.42, 0.66)],
    }
}
