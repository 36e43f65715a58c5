//! Loads by name: an access pattern, or a method of the laboratory.

use stripewise_lab::{Pattern, method};
use stripewise_model::advise::{Use, parse_use};
use stripewise_model::predict::{State, Workload};
use stripewise_model::system::Over;

use crate::failure::{Failure, Result};

/// Access pattern of one load; the other numbers are the caller's.
pub(crate) struct Asked<'a> {
    pub(crate) pattern: &'a str,
    pub(crate) block_bytes: Option<u64>,
    pub(crate) depth: usize,
    pub(crate) workers: usize,
    pub(crate) read_share: f64,
    pub(crate) span_bytes: Option<u64>,
}

/// The load of a pattern, and its name.
pub(crate) fn of_pattern(asked: &Asked<'_>) -> Result<(String, Workload)> {
    let (read_share, is_random) = match asked.pattern {
        "seq-read" => (1.0, false),
        "seq-write" => (0.0, false),
        "rand-read" => (1.0, true),
        "rand-write" => (0.0, true),
        "mixed" => (share("read_share", asked.read_share)?, true),
        other => {
            return Err(Failure::request(
                format!("there is no access pattern `{other}`"),
                "one of seq-read, seq-write, rand-read, rand-write, mixed",
            ));
        }
    };
    let block = asked.block_bytes.unwrap_or(if is_random { 4096 } else { 1 << 20 });
    if block == 0 || !block.is_multiple_of(512) {
        return Err(Failure::request(
            format!("a block of {block} bytes is not a positive multiple of 512"),
            "for example block=\"4K\"",
        ));
    }
    at_least_one("depth", asked.depth)?;
    at_least_one("workers", asked.workers)?;
    let load = Workload {
        read_share,
        random_share: if is_random { 1.0 } else { 0.0 },
        blocks: vec![(block, 1.0)],
        depth: asked.depth,
        workers: asked.workers,
        span_bytes: asked.span_bytes,
        repeats: false,
    };
    Ok((asked.pattern.to_owned(), load))
}

/// The block loads of a method, with their names.
pub(crate) fn of_method(name: &str, span_bytes: Option<u64>) -> Result<Vec<(String, Workload)>> {
    let profile = method::built_in(name).map_err(|error| {
        let known = method::built_in_names().join(", ");
        Failure::request(format!("cannot predict `{name}`: {error}"), format!("the methods are {known}"))
    })?;
    let load = |step: &method::Step| (step.name.clone(), of_lab(&step.workload, span_bytes));
    let loads: Vec<_> = profile.steps.iter().map(load).collect();
    match loads.is_empty() {
        false => Ok(loads),
        true => Err(Failure::request(
            format!("`{name}` measures a file system, which is not modelled"),
            "choose a method with block loads",
        )),
    }
}

fn of_lab(load: &stripewise_lab::Workload, span_bytes: Option<u64>) -> Workload {
    let random_share = match load.pattern {
        Pattern::Sequential => 0.0,
        Pattern::Partly(percent) => f64::from(percent) / 100.0,
        _ => 1.0,
    };
    Workload {
        read_share: load.read_share,
        random_share,
        blocks: load.blocks.iter().map(|one| (one.bytes, f64::from(one.share))).collect(),
        depth: load.depth as usize,
        workers: load.jobs as usize,
        span_bytes,
        repeats: false,
    }
}

/// A workload in words, in shares, or a method of the laboratory.
pub(crate) fn of_use(text: &str) -> Result<Use> {
    parse_use(text).or_else(|error| match of_method(text, None) {
        Ok(loads) => {
            Ok(Use { name: text.to_owned(), loads: loads.into_iter().map(|(_, load)| load).collect() })
        }
        Err(_) => Err(Failure::request(error.to_string(), error.hint())),
    })
}

/// A state of the array.
pub(crate) fn state(text: &str) -> Result<State> {
    match text {
        "normal" => Ok(State::Normal),
        "degraded" => Ok(State::Degraded),
        "rebuilding" => Ok(State::Rebuilding),
        other => Err(Failure::request(
            format!("there is no state `{other}`"),
            "one of normal, degraded, rebuilding",
        )),
    }
}

/// Devices below software RAID.
pub(crate) fn over(text: Option<&str>) -> Result<Over> {
    match text {
        None => Ok(Over::Drives),
        Some("jbod") => Ok(Over::Jbod),
        Some("simple-volumes") => Ok(Over::SimpleVolumes),
        Some("hardware-raid0") => Ok(Over::HardwareRaid0),
        Some(other) => Err(Failure::request(
            format!("software RAID cannot lie over `{other}`"),
            "one of jbod, simple-volumes, hardware-raid0",
        )),
    }
}

/// A share from 0 to 1.
pub(crate) fn share(name: &str, share: f64) -> Result<f64> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(Failure::request(format!("{name} is {share}"), "shares are from 0 to 1")),
    }
}

/// A number that must not be 0.
pub(crate) fn at_least_one(name: &str, number: usize) -> Result<()> {
    match number {
        0 => Err(Failure::request(format!("{name} is 0"), format!("{name} must be at least 1"))),
        _ => Ok(()),
    }
}
