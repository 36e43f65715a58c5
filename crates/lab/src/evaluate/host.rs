//! Throughput of the host without an array: all drive files at once, sequential and random, and the
//! resulting pace.
//!
//! Four files on one disk share its speed. `--pace auto` limits each drive to a rate at which all
//! of them together stay below the host's throughput, with a margin, because hosts are not steady;
//! then an array of four can be four times as fast as a drive.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::Pace;

use super::options::EvaluateError;
use super::world::{LabDrive, World};
use crate::loads::contents::Contents;
use crate::loads::load::{Load, Surroundings, Window, WindowLimits};
use crate::loads::sweep::{SweepOptions, fill};
use crate::loads::target::DriveTarget;
use crate::loads::workload::Workload;
use crate::records::results::HostSpeed;

/// Share of the host's throughput that all paced drives use together.
const MARGIN: f64 = 0.65;
/// Maximum pace of a drive, even on a faster host: a fast hard drive. One core can still generate,
/// check and move the data of four of them.
const FASTEST_BYTES_PER_S: f64 = 250e6;
/// Sequential requests in flight per file.
const SEQUENTIAL_DEPTH: u32 = 16;
/// Random requests in flight per file.
const RANDOM_DEPTH: u32 = 32;
/// A window may exceed its length by this for the first answers.
const LONGEST_WAIT_NS: u64 = 10_000_000_000;
/// Size of the files created for this, and the used size of existing drives. All of it is written
/// first: file systems answer differently where nothing was written.
const PROBE_BYTES: u64 = 64 << 20;

/// Measures `count` new drives at once, `seconds` for each of the four loads.
pub(crate) async fn measure_host(
    world: &World,
    count: usize,
    seconds: f64,
    seed: u64,
    moved_bytes: &Rc<Cell<u64>>,
) -> Result<HostSpeed, EvaluateError> {
    let bytes = world.given_bytes().unwrap_or(PROBE_BYTES);
    let drives: Vec<LabDrive> = (0..count)
        .map(|number| world.take(&format!("drive{number}"), bytes, None))
        .collect::<Result<_, _>>()?;
    let targets: Vec<DriveTarget> =
        drives.iter().map(|drive| DriveTarget::new(drive.metered.clone(), world.buffers.clone())).collect();
    let contents: Vec<Rc<Contents>> = (0..count as u64)
        .map(|number| Rc::new(Contents::new(seed ^ number, bytes.min(PROBE_BYTES))))
        .collect();
    let sequential = |workload: Workload| Workload { depth: SEQUENTIAL_DEPTH, ..workload };
    for (target, contents) in targets.iter().zip(&contents) {
        contents.next_phase();
        let options = SweepOptions { depth: SEQUENTIAL_DEPTH, request_bytes: 1 << 20 };
        fill(&world.context, target, contents, options, moved_bytes).await.map_err(|error| {
            EvaluateError::Array { layout: "host".into(), phase: "filling".into(), why: error.to_string() }
        })?;
    }
    let mut windows = Vec::new();
    for (number, workload) in [
        sequential(Workload::sequential_write()),
        sequential(Workload::sequential_read()),
        Workload::random_read(RANDOM_DEPTH),
        Workload::random_write(RANDOM_DEPTH),
    ]
    .into_iter()
    .enumerate()
    {
        let workload = workload.with_seed(seed.wrapping_add(number as u64));
        windows.push(all_at_once(world, &targets, &contents, &workload, seconds, moved_bytes).await?);
    }
    for drive in drives {
        world.give_back(drive);
    }
    let sum = |windows: &[Window], of: fn(&Window) -> f64| windows.iter().map(of).sum::<f64>();
    Ok(HostSpeed {
        drives: count,
        seq_write_mb_per_s: sum(&windows[0], Window::mb_per_s),
        seq_read_mb_per_s: sum(&windows[1], Window::mb_per_s),
        random_read_iops: sum(&windows[2], Window::iops),
        random_write_iops: sum(&windows[3], Window::iops),
        seconds_each: seconds,
    })
}

async fn all_at_once(
    world: &World,
    targets: &[DriveTarget],
    contents: &[Rc<Contents>],
    workload: &Workload,
    seconds: f64,
    moved_bytes: &Rc<Cell<u64>>,
) -> Result<Vec<Window>, EvaluateError> {
    let wrong =
        |why: String| EvaluateError::Array { layout: "host".into(), phase: workload.name.clone(), why };
    let loads: Vec<Load<DriveTarget>> = targets
        .iter()
        .zip(contents)
        .map(|(target, contents)| {
            contents.next_phase();
            Load::start(&world.context, target, workload, Some(contents.clone()), moved_bytes)
        })
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(error.to_string()))?;
    let ns = (seconds * 1e9) as u64;
    for load in &loads {
        load.ramp_up(ns / 10 / loads.len() as u64, ns).await;
    }
    // A slow host may answer nothing in a short window.
    let limits = WindowLimits { least_ns: ns, least_latencies: 1.0, most_ns: ns + LONGEST_WAIT_NS };
    let around = Surroundings::unknown();
    let windows =
        futures_util::future::join_all(loads.iter().map(|load| load.measure(&limits, &around))).await;
    for load in loads {
        let end = load.stop(60_000_000_000).await;
        if let Some(message) = end.messages.first() {
            return Err(wrong(message.clone()));
        }
        if end.unanswered > 0 {
            return Err(wrong("a drive did not answer for a minute".into()));
        }
    }
    Ok(windows)
}

/// Pace of each of `count` drives that the host can sustain with a margin, to two digits.
pub(crate) fn auto_pace(host: &HostSpeed, count: usize) -> Pace {
    let each = |speed: f64| MARGIN * speed / count.max(1) as f64;
    let bytes = each(host.seq_read_mb_per_s.min(host.seq_write_mb_per_s)) * 1e6;
    let iops = each(host.random_read_iops.min(host.random_write_iops));
    Pace { bytes_per_second: Some(two_digits(bytes.min(FASTEST_BYTES_PER_S))), iops: Some(two_digits(iops)) }
}

fn two_digits(value: f64) -> u64 {
    if !value.is_finite() || value < 1.0 {
        return 1;
    }
    let unit = 10f64.powf((value.log10().floor() - 1.0).max(0.0));
    ((value / unit).floor() * unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paced_drives_together_stay_below_the_host() {
        let host = HostSpeed {
            drives: 4,
            seq_read_mb_per_s: 900.0,
            seq_write_mb_per_s: 1200.0,
            random_read_iops: 80_000.0,
            random_write_iops: 41_000.0,
            seconds_each: 1.0,
        };
        assert_eq!(auto_pace(&host, 4), Pace { bytes_per_second: Some(140_000_000), iops: Some(6600) });
        let fast = HostSpeed { seq_read_mb_per_s: 1e5, seq_write_mb_per_s: 1e5, ..host.clone() };
        assert_eq!(auto_pace(&fast, 4).bytes_per_second, Some(250_000_000));
        let broken = HostSpeed { seq_read_mb_per_s: 0.0, random_write_iops: f64::NAN, ..host };
        let pace = auto_pace(&broken, 4);
        assert!(pace.bytes_per_second.unwrap() >= 1 && pace.iops.unwrap() >= 1, "{pace}");
    }
}
