//! Solid-state drives behind a controller: a closed network of stations, bounded by the slowest.
//!
//! A controller spends a time per host request and KiB; a request is split into strips that members
//! serve in parallel; write-back answers at once as long as destaging keeps up, and in a steady
//! state it never does.

use super::{Limit, Prediction, State, Workload};
use crate::system::{Component, Over, System};

/// A drive's own times in microseconds for a request, by its size in KiB.
struct Ssd<'a>(&'a Component);

impl Ssd<'_> {
    fn per_kib(&self, rate: &str) -> f64 {
        self.0.get(rate).map_or(0.0, |mb_per_s| 1024.0 / mb_per_s)
    }

    /// Time the drive is busy with a read, with enough requests outstanding.
    fn read_busy(&self, kib: f64, random: bool) -> f64 {
        let wire = self.0.or("command", 0.0) + kib * self.per_kib("interface");
        wire.max(kib * self.per_kib(if random { "random_read" } else { "sequential_read" }))
    }

    /// Latency of a single request.
    fn read_alone(&self, kib: f64, random: bool) -> f64 {
        let flash = match (random, kib > 4.0) {
            (false, _) => 0.0,
            (true, false) => self.0.or("page_read", 0.0),
            (true, true) => self.0.or("pages_read", 0.0),
        };
        self.0.or("turnaround", 0.0)
            + self.0.or("command", 0.0)
            + flash
            + kib * self.per_kib("sequential_read")
    }

    fn write_busy(&self, kib: f64, random: bool) -> f64 {
        let streamed = self.0.or("command", 0.0) + kib * self.per_kib("sequential_write");
        if !random {
            return streamed;
        }
        // Beyond its buffer the drive moves old data for every block it gets, and has no pause to
        // do it in.
        let small = self.aged("random_write", kib);
        let sustained = if kib >= 32.0 { kib * self.0.or("random_write_sustained", 0.0) } else { 0.0 };
        small.max(sustained).max(streamed)
    }

    /// One random write alone: a page fits the drive's buffer; more waits for programming, and for
    /// the collection of garbage that the pauses leave over.
    fn write_alone(&self, kib: f64, random: bool) -> f64 {
        let streamed = self.write_busy(kib, false) + self.0.or("turnaround", 0.0);
        if !random {
            return streamed;
        }
        if kib <= 4.0 {
            return streamed.max(self.aged("random_write", kib));
        }
        streamed.max(self.0.or("program", 0.0)).max(kib * self.0.or("random_write_alone", 0.0))
    }

    /// Random write of a drive whose free blocks are used up, as after days in an array.
    fn write_aged(&self, kib: f64) -> f64 {
        self.aged("random_write_aged", kib)
    }

    fn aged(&self, base: &str, kib: f64) -> f64 {
        self.0.or(base, 0.0) * (kib / 4.0).powf(self.0.or("random_write_exponent", 1.0))
    }
}

/// A request split into strips.
struct Cut {
    strips: f64,
    strip_kib: f64,
}

impl Cut {
    fn of(system: &System, kib: f64) -> Self {
        let interleave_kib = system.shape.interleave_bytes as f64 / 1024.0;
        let strips = (kib / interleave_kib).max(1.0);
        Self { strips, strip_kib: kib.min(interleave_kib) }
    }
}

pub(super) fn predict(system: &System, state: State, workload: &Workload) -> Prediction {
    let parts = [
        (workload.read_share * workload.random_share, true, true),
        (workload.read_share * (1.0 - workload.random_share), true, false),
        ((1.0 - workload.read_share) * workload.random_share, false, true),
        ((1.0 - workload.read_share) * (1.0 - workload.random_share), false, false),
    ];
    let weight: f64 = workload.blocks.iter().map(|(_, weight)| weight).sum();
    // Work of each component per request of the mix.
    let mut alone_us = 0.0;
    let mut busy: Vec<(&'static str, f64)> = Vec::new();
    for (share, read, random) in parts.into_iter().filter(|(share, ..)| *share > 0.0) {
        for (bytes, block_weight) in &workload.blocks {
            let share = share * block_weight / weight;
            let costs = costs(system, state, workload, *bytes as f64 / 1024.0, read, random);
            alone_us += share * costs.alone_us;
            for (part, us) in costs.busy {
                match busy.iter_mut().find(|(name, _)| *name == part) {
                    Some((_, sum)) => *sum += share * us,
                    None => busy.push((part, share * us)),
                }
            }
        }
    }
    if let Some(in_flight) = system.link.as_ref().and_then(|link| link.get("in_flight")) {
        busy.push(("link's commands", alone_us / in_flight));
    }
    let mut limits: Vec<Limit> = busy
        .iter()
        .filter(|(_, us)| *us > 0.0)
        .map(|(part, us)| Limit { part: (*part).to_owned(), iops: 1e6 / us })
        .collect();
    limits.extend(super::processor_limit(system, workload));
    let drives_iops =
        limits.iter().find(|limit| limit.part == "drives").map_or(f64::INFINITY, |one| one.iops);
    let mut prediction = Prediction::of_limits(system, workload, alone_us, limits, drives_iops);
    if system.shape.fault_tolerance() > 0 {
        let rate = system.drive.or("sequential_write", 100.0) * 1e6;
        let idle = system.drive.or("capacity", 0.0) / rate;
        prediction.rebuild_seconds = Some(idle);
        prediction.rebuild_under_load_seconds = Some(idle / (1.0 - prediction.drive_utilisation).max(0.1));
    }
    prediction
}

/// Costs of one kind of request.
struct Costs {
    alone_us: f64,
    busy: Vec<(&'static str, f64)>,
}

fn costs(system: &System, state: State, load: &Workload, kib: f64, read: bool, random: bool) -> Costs {
    let streams = load.workers;
    let (mut read_more, mut members) = (1.0, system.drives as f64);
    if state != State::Normal {
        // A lost strip is the sum of the others of its stripe; a lost copy is read elsewhere.
        if system.shape.parity_units() > 0 {
            read_more = 1.0 + (system.shape.data_units() as f64 - 1.0) / members;
        }
        members -= 1.0;
    }
    let direct = !system.controller.parameters.contains_key("read");
    let mut costs = match (direct, read) {
        (true, true) => plain_read(system, kib, random, members, read_more),
        (true, false) => plain_write(system, kib, random, load.outstanding() == 1, members),
        (false, true) => controller_read(system, kib, random, streams, members, read_more),
        (false, false) => controller_write(system, kib, random, streams, members),
    };
    if let Some(link) = &system.link {
        costs.busy.push(("link", kib * 1024.0 / link.or("rate", f64::INFINITY)));
    }
    if state == State::Rebuilding {
        let share = system.controller.or("rebuild_share", 0.3);
        costs.busy.iter_mut().filter(|(part, _)| *part == "drives").for_each(|(_, us)| *us /= 1.0 - share);
    }
    costs
}

/// Drives at plain ports; the software that strips over them may send one command to a member at a
/// time.
fn plain_read(system: &System, kib: f64, random: bool, members: f64, more: f64) -> Costs {
    let (ssd, cut) = (Ssd(&system.drive), Cut::of(system, kib));
    if system.drives == 1 {
        return Costs {
            alone_us: ssd.read_alone(kib, random),
            busy: vec![("drives", ssd.read_busy(kib, random))],
        };
    }
    let rows = (cut.strips / members).max(1.0);
    let alone_us = ssd.read_alone(cut.strip_kib * rows, random);
    let serial = system.controller.is("serial_members");
    let busy = if !serial {
        cut.strips * more * ssd.read_busy(cut.strip_kib, random) / members
    } else if random || cut.strips < members {
        alone_us * cut.strips.min(members) / members
    } else {
        ssd.read_busy(kib / members, random)
    };
    Costs { alone_us, busy: vec![("drives", busy)] }
}

fn plain_write(system: &System, kib: f64, random: bool, alone: bool, members: f64) -> Costs {
    let (ssd, cut) = (Ssd(&system.drive), Cut::of(system, kib));
    if system.drives == 1 {
        let alone_us = ssd.write_alone(kib, random);
        let busy = if alone { alone_us } else { ssd.write_busy(kib, random) };
        return Costs { alone_us, busy: vec![("drives", busy)] };
    }
    let work = cut.strips * operations(system).1;
    let alone_us = ssd.write_alone(cut.strip_kib * (cut.strips / members).max(1.0), random);
    let each = if random { ssd.write_aged(cut.strip_kib) } else { ssd.write_busy(cut.strip_kib, false) };
    Costs { alone_us, busy: vec![("drives", work * each / members)] }
}

/// Reads and writes that a strip's write costs its drives.
fn operations(system: &System) -> (f64, f64) {
    let parity = system.shape.parity_units() as f64;
    match parity > 0.0 {
        true => (1.0 + parity, 1.0 + parity),
        false => (0.0, system.shape.copies() as f64),
    }
}

fn cap_us(system: &System, kib: f64) -> f64 {
    kib * 1024.0 / (system.controller.or("rate", f64::INFINITY) * system.controllers as f64)
}

/// Plain volumes and mirrors need no stripe to be looked up.
fn is_plain(system: &System) -> bool {
    system.over != Over::Drives || system.shape.copies() > 1
}

fn controller_read(
    system: &System,
    kib: f64,
    random: bool,
    streams: usize,
    members: f64,
    more: f64,
) -> Costs {
    let (ssd, cut, controller) = (Ssd(&system.drive), Cut::of(system, kib), &system.controller);
    // The controller recognises one stream; many look random to it.
    let streamed = !random && streams == 1;
    let fixed_read = match system.over {
        Over::Drives | Over::HardwareRaid0 => "read",
        Over::Jbod | Over::SimpleVolumes => "read_direct",
    };
    let fixed = match streamed {
        true => controller.or("stream", 0.0),
        false => controller.or(fixed_read, 0.0),
    };
    let station = (fixed + controller.or("per_kib", 0.0) * kib) / system.controllers as f64;
    let drives = cut.strips * ssd.read_busy(cut.strip_kib, random) * more / members;
    let latency = controller.or(if is_plain(system) { "latency_direct" } else { "latency" }, 0.0);
    let rest = cap_us(system, kib - cut.strip_kib).max(drives - ssd.read_busy(cut.strip_kib, random));
    // A stream of a parity set goes through the cache, strip by strip.
    let copied = match streamed && system.shape.parity_units() > 0 {
        true => controller.or("write_strip_per_kib", 0.0) * cut.strip_kib,
        false => 0.0,
    };
    let alone_us = latency + ssd.read_alone(cut.strip_kib, random) + copied + rest.max(0.0);
    let busy = vec![("controller", station), ("controller's rate", cap_us(system, kib)), ("drives", drives)];
    Costs { alone_us, busy }
}

fn controller_write(system: &System, kib: f64, random: bool, streams: usize, members: f64) -> Costs {
    let (ssd, cut, controller) = (Ssd(&system.drive), Cut::of(system, kib), &system.controller);
    let controllers = system.controllers as f64;
    let (reads, writes) = operations(system);
    if system.over == Over::Jbod {
        // No cache: strips go out one after the other.
        let each = if random { ssd.write_aged(cut.strip_kib) } else { ssd.write_busy(cut.strip_kib, false) };
        let lanes = if random { members } else { controllers };
        let busy = vec![("drives", cut.strips * writes * each / lanes)];
        return Costs { alone_us: ssd.write_alone(cut.strip_kib, random) + cut.strips * each - each, busy };
    }
    let gain = if system.file_system { controller.or("file_system_gain", 1.0) } else { 1.0 };
    // Finding the stripe takes what it takes a read; a write in place looks it up for each copy and
    // parity.
    let looking_up = controller.or("latency", 0.0) - controller.or("latency_direct", 0.0);
    let looked_up = if is_plain(system) { looking_up } else { 0.0 };
    let accept = (controller.or("accept", 0.0) - looked_up).max(0.0)
        + controller.or("write_strip_per_kib", 0.0) * cut.strip_kib;
    if random {
        let strip =
            controller.or("write_strip", 0.0) + controller.or("write_strip_per_kib", 0.0) * cut.strip_kib;
        let station = cut.strips * strip / controllers;
        let each = writes * ssd.write_aged(cut.strip_kib) + reads * ssd.read_busy(cut.strip_kib, true);
        let drives = cut.strips * each / members / gain;
        let old = if reads > 0.0 { ssd.read_alone(cut.strip_kib, true) } else { 0.0 };
        let mapping = writes * looking_up;
        let alone_us = (accept + mapping + old).max(drives);
        let busy =
            vec![("controller", station), ("controller's rate", cap_us(system, kib)), ("drives", drives)];
        return Costs { alone_us, busy };
    }
    let data_share = system.shape.units() as f64 / system.shape.data_units() as f64;
    let media = cut.strips * ssd.write_busy(cut.strip_kib, false) * data_share / members;
    let mut busy = vec![("controller's rate", cap_us(system, kib)), ("drives", media)];
    let flush_per_kib = (controller.or("flush_per_host_kib", 0.0)
        + controller.or("flush_per_drive_kib", 0.0) * data_share)
        / controllers;
    if streams == 1 {
        // One stream is flushed stripe by stripe.
        let redundant =
            if system.shape.fault_tolerance() > 0 { controller.or("redundant_write", 0.0) } else { 0.0 };
        busy.push(("flushing", redundant + flush_per_kib * kib));
    } else {
        let station = controller.or("stream", 0.0) + controller.or("per_kib", 0.0) * kib;
        busy.push(("controller", station / controllers));
    }
    Costs { alone_us: accept + flush_per_kib * (kib - cut.strip_kib), busy }
}
