//! Ranked layouts for drives and a workload, as `stripewise advise --json` prints them.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use stripewise_model::advise::{
    AdviceError, Kind, Need, advise as advised, html, parse_count, parse_drives, parse_link,
};
use stripewise_model::reliability::BitErrors;

use crate::catalogue::entry;
use crate::failure::{Failure, Result, json};
use crate::loads;
use crate::work::{self, Progress};

/// Maximum number of drives of one kind to buy when no bays are given.
const MOST_BOUGHT: usize = 24;
/// Kinds of drives considered when no price is given.
const CLASSES: [&str; 4] = ["4tb-hdd", "mg08ada800e", "16tb-hdd", "20tb-hdd"];

/// The arguments of `stripewise.advise`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    drives: Option<String>,
    workload: String,
    link: Option<String>,
    capacity_bytes: Option<u64>,
    risk_per_year: f64,
    ure: Option<String>,
    spares: usize,
    journal: Option<String>,
    controller: String,
    controllers: usize,
    bays: Option<usize>,
    prices: BTreeMap<String, f64>,
    budget: Option<f64>,
    rebuild_noise: Option<f64>,
    seed: u64,
}

/// Ranks the layouts; also the report as a page of HTML. `progress(done, total)` counts predictions
/// and estimates.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    request: Request,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    work::run(py, progress, move |progress| answer(request, progress))
}

fn answer(request: Request, progress: &Progress) -> Result<(String, String)> {
    let mut assumptions = Vec::new();
    let need = need(request, &mut assumptions)?;
    let mut advice = advised(&need, &|done, total| progress.note_or_unwind(done, total))
        .map_err(|error| failure(&error))?;
    advice.assumptions.splice(0..0, assumptions);
    let names: Vec<String> = need.drives.iter().map(|kind| format!("{}x{}", kind.count, kind.name)).collect();
    let title = format!("{} for {} work", names.join(", "), need.workload.name);
    Ok((json(&advice)?, html(&advice, &title)))
}

fn failure(error: &AdviceError) -> Failure {
    match error {
        AdviceError::Contradiction { .. } => Failure::other(error.to_string(), error.hint()),
        AdviceError::Catalogue(_) | AdviceError::Wish { .. } => {
            Failure::request(error.to_string(), error.hint())
        }
    }
}

/// Drives of one kind: a name, a size, or the path of an entry.
pub(crate) fn one_kind(count: usize, name: &str) -> Result<Kind> {
    match name.ends_with(".toml") {
        true => Ok(Kind::of_entry(count, &entry(name)?)),
        false => Kind::named(count, name).map_err(|error| failure(&error)),
    }
}

fn kinds(text: &str) -> Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('x').filter(|(_, name)| name.ends_with(".toml")) {
            Some((count, path)) => {
                let count = parse_count(count).map_err(|error| failure(&error))?;
                kinds.push(one_kind(count, path)?);
            }
            None => kinds.extend(parse_drives(part).map_err(|error| failure(&error))?),
        }
    }
    Ok(kinds)
}

fn need(mut request: Request, assumptions: &mut Vec<String>) -> Result<Need> {
    let lower = |(name, price): (String, f64)| (name.trim().to_ascii_lowercase(), price);
    request.prices = request.prices.into_iter().map(lower).collect();
    let (drives, buy) = match &request.drives {
        Some(text) => (kinds(text)?, request.budget.is_some()),
        None => (for_sale(&request, assumptions)?, true),
    };
    let journal = match &request.journal {
        None => None,
        Some(text) => match kinds(text)?.as_slice() {
            [kind] if kind.is_ssd => Some(kind.clone()),
            _ => {
                return Err(Failure::request(
                    "a journal requires solid-state drives of one kind",
                    "for example journal=\"2x500GB-ssd\"",
                ));
            }
        },
    };
    for (name, price) in &request.prices {
        if !(price.is_finite() && *price > 0.0) {
            return Err(Failure::request(format!("the price of `{name}` is {price}"), "prices are above 0"));
        }
        if !drives.iter().chain(&journal).any(|kind| kind.is_named(name)) {
            let known: Vec<&str> = drives.iter().chain(&journal).map(|kind| kind.name.as_str()).collect();
            return Err(Failure::request(
                format!("the price of `{name}` matches none of the drives"),
                format!("the drives are {}", known.join(", ")),
            ));
        }
    }
    let risk = loads::share("risk_per_year", request.risk_per_year)?;
    let noise = request.rebuild_noise.map(|share| loads::share("rebuild_noise", share)).transpose()?;
    let link = match &request.link {
        None => None,
        Some(text) => Some(parse_link(text).map_err(|error| failure(&error))?),
    };
    let bit_errors = match &request.ure {
        None => None,
        Some(text) => Some(
            text.parse::<BitErrors>()
                .map_err(|error| Failure::request(error.to_string(), "for example ure=1e-14"))?,
        ),
    };
    loads::at_least_one("controllers", request.controllers)?;
    let unset = Need::of(drives, loads::of_use(&request.workload)?);
    Ok(Need {
        buy,
        journal,
        controller: request.controller,
        controllers: request.controllers,
        bays: request.bays,
        prices: request.prices,
        budget: request.budget,
        capacity_bytes: request.capacity_bytes,
        link,
        risk_per_year: risk,
        bit_errors,
        spares: request.spares,
        rebuild_noise: noise,
        seed: request.seed,
        ..unset
    })
}

/// Drives that can be bought when none are named.
fn for_sale(request: &Request, assumptions: &mut Vec<String>) -> Result<Vec<Kind>> {
    if request.prices.is_empty() {
        let bays = request.bays.ok_or_else(|| {
            Failure::request(
                "no drives to advise on",
                "give drives=\"4x8TB-hdd\", or bays=8, or prices={\"8TB-hdd\": 150} with a budget",
            )
        })?;
        assumptions.push(format!("hard disks considered: {}; prices select others", CLASSES.join(", ")));
        return CLASSES.iter().map(|name| one_kind(bays, name)).collect();
    }
    if request.bays.is_none() && request.budget.is_none() {
        return Err(Failure::request(
            "prices alone do not limit the number of drives",
            "add budget=1000 or bays=8",
        ));
    }
    let count = |price: f64| {
        let paid = request.budget.map_or(usize::MAX, |budget| (budget / price) as usize);
        paid.min(request.bays.unwrap_or(MOST_BOUGHT))
    };
    let journal = request.journal.as_deref().unwrap_or_default().to_ascii_lowercase();
    let data = request.prices.iter().filter(|(name, _)| !journal.ends_with(&format!("x{name}")));
    let kinds: Vec<Kind> = data
        .filter(|(_, price)| count(**price) > 0)
        .map(|(name, price)| one_kind(count(*price), name))
        .collect::<Result<_>>()?;
    match kinds.is_empty() {
        true => Err(Failure::other("the budget buys no drive", "a larger budget, or cheaper drives")),
        false => Ok(kinds),
    }
}
