//! `advise`: ranks layouts for drives and a workload, each with a reason, and prints the commands
//! that build the first. At a terminal it asks for drives that are not given (`ask.rs`).
//!
//! Expected faults: unknown names, contradictory requirements.

mod ask;
pub(crate) mod drives;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stripewise_control::size::ByteSize;
use stripewise_model::advise::{
    Advice, AdviceError, Kind, Link, Matter, Need, Use, advise, html, parse_link, parse_use,
};
use stripewise_model::reliability::{BitErrors, chance_per_year, percent as percent_text};

use super::model::profile_loads;
use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style, Table, plain};
use crate::progress::Progress;

/// Choose a layout for drives and a workload: ranked choices, and the commands to build them
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stripewise advise --drives 4x8TB-hdd --workload sequential --link 10gbe\n  \
                  stripewise advise --drives 4xmg08ada400e,2xmg08ada800e --capacity 8TB --link 1gbe\n  \
                  stripewise advise --drives /dev/sda,/dev/sdb,/dev/sdc --workload mixed\n  \
                  stripewise advise --price 8TB-hdd=150 --price 4TB-hdd=90 --budget 1000 --bays 8 --capacity 16TB\n  \
                  stripewise advise --drives 12x8TB-hdd --workload read=70,random=100,block=16KiB --report advice.html"
)]
pub(crate) struct Options {
    /// Available drives, separated by commas: a count, `x`, and a size, a catalogue name or a file
    /// written by `drive measure`; or paths of drives [default: drives with a --price, or hard
    /// disks for --bays]
    #[arg(long, value_name = "NxNAME,…")]
    drives: Option<String>,
    /// Workload: sequential, random, mixed, backup, archive, media, a method of `lab profiles`, or
    /// percentages: read=70,random=100,block=4KiB,depth=32
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    workload: Option<Use>,
    /// Link between array and client: 1gbe 2.5gbe 5gbe 10gbe 25gbe 40gbe 100gbe usb3 usb3-10g, or a
    /// rate such as 400MB/s
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: Option<Link>,
    /// Required usable capacity; without it, and for backup, archive and media, more is better
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    capacity: Option<ByteSize>,
    /// Accepted probability of data loss per year; no choice exceeds it [default: 0.1]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    risk: Option<f64>,
    /// Unrecoverable read errors by the data sheet, for each bit: 1e-14, or the bits for one error:
    /// 1e14 [default: latent errors as found in the field]
    #[arg(long, value_name = "RATE")]
    ure: Option<BitErrors>,
    /// Number of the given drives to keep as spares
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=100))]
    spares: u16,
    /// Solid-state drives available for a journal
    #[arg(long, value_name = "NxNAME")]
    journal: Option<String>,
    /// Controller or software, by its name in the catalogue
    #[arg(long, value_name = "NAME", default_value = "stripewise")]
    controller: String,
    /// Number of controllers that can share the drives
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    controllers: u16,
    /// Number of drive bays
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    bays: Option<u16>,
    /// Price of one drive, as in 8TB-hdd=150; may be given several times
    #[arg(long, value_name = "NAME=PRICE", value_parser = price)]
    price: Vec<(String, f64)>,
    /// Budget for all drives; with it, any number of each drive can be bought
    #[arg(long, value_name = "MONEY", value_parser = amount, requires = "price")]
    budget: Option<f64>,
    /// Minimum rate during a rebuild, as a percentage of the normal rate
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    rebuild_noise: Option<f64>,
    /// Write the full report as one self-contained HTML page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Number of choices to show; --json prints all
    #[arg(long, value_name = "N", default_value_t = 8)]
    show: usize,
    /// Random seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

type Parsed<T> = std::result::Result<T, String>;

/// Maximum number of drives of one kind to buy when no bays are given.
const MOST_BOUGHT: usize = 24;
/// Kinds of drives considered when no price is given.
const CLASSES: [&str; 4] = ["4tb-hdd", "8tb-hdd", "16tb-hdd", "20tb-hdd"];

fn error_with_hint(error: &AdviceError) -> String {
    format!("{error}; {}", error.hint())
}

/// Parses a workload: one of the model's, or a method of `lab profiles`.
pub(crate) fn workload(text: &str) -> Parsed<Use> {
    parse_use(text).or_else(|error| match profile_loads(text, None) {
        Ok(loads) => {
            Ok(Use { name: text.to_owned(), loads: loads.into_iter().map(|(_, load)| load).collect() })
        }
        Err(_) => Err(error_with_hint(&error)),
    })
}

fn link(text: &str) -> Parsed<Link> {
    parse_link(text).map_err(|error| error_with_hint(&error))
}

fn capacity(text: &str) -> Parsed<ByteSize> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("the capacity must be more than 0".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn amount(text: &str) -> Parsed<f64> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("`{text}` is not a number above 0")),
    }
}

fn percent(text: &str) -> Parsed<f64> {
    match amount(text.trim().trim_end_matches('%')) {
        Ok(percent) if percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(format!("`{text}` is not a percentage above 0 and up to 100")),
    }
}

fn price(text: &str) -> Parsed<(String, f64)> {
    let (name, price) = text.rsplit_once('=').ok_or_else(|| format!("`{text}` is not NAME=PRICE"))?;
    Ok((name.trim().to_ascii_lowercase(), amount(price)?))
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let mut assumptions = Vec::new();
    let names_drives = options.drives.is_some() || !options.price.is_empty() || options.bays.is_some();
    let asks = !names_drives && ask::can_ask(app);
    let drives = if asks { ask::drives()? } else { options.drives.clone() };
    let mut need = need(options, app, drives.as_deref(), &mut assumptions)?;
    let mut advice = match asks {
        true => ask::until_nothing_matters(app, &mut need, decided(options))?,
        false => advised(&need, app)?,
    };
    advice.assumptions.splice(0..0, assumptions);
    if let Some(path) = &options.report {
        let path = app.absolute(path);
        let names: Vec<String> =
            need.drives.iter().map(|kind| format!("{}x{}", kind.count, kind.name)).collect();
        let title = format!("{} for {} work", names.join(", "), need.workload.name);
        std::fs::write(&path, html(&advice, &title))
            .map_err(|error| Failure::because(format!("cannot write {}", path.display()), &error))?;
        app.printer.note(format!("wrote {}", path.display()));
    }
    app.printer.result(&Report { advice: &advice }, |page| print(&advice, options.show, page))?;
    Ok(Exit::Success)
}

/// Matters that the command line has decided.
fn decided(options: &Options) -> Vec<Matter> {
    let given = [
        (Matter::Workload, options.workload.is_some()),
        (Matter::Capacity, options.capacity.is_some()),
        (Matter::Link, options.link.is_some()),
        (Matter::Risk, options.risk.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(matter, _)| matter).collect()
}

/// Computes the advice and shows progress if it takes long.
fn advised(need: &Need, app: &App) -> Result<Advice> {
    let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let note = |now: u64, of: u64| {
        done.fetch_max(now, Ordering::Relaxed);
        all.store(of, Ordering::Relaxed);
    };
    let mut progress = Progress::new(&app.printer);
    let advice = std::thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        let work = scope.spawn(move || {
            let advice = advise(need, &note);
            drop(ended);
            advice
        });
        while end.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            let (done, all) = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
            progress.count("predicting", "arrays and risks", done, all.max(1));
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    advice.map_err(|error| failure(&error))
}

fn failure(error: &AdviceError) -> Failure {
    let failure = match error {
        AdviceError::Contradiction { .. } => Failure::new(error.to_string()),
        AdviceError::Catalogue(_) | AdviceError::Wish { .. } => Failure::usage(error.to_string()),
    };
    failure.hint(error.hint())
}

fn need(options: &Options, app: &App, named: Option<&str>, assumptions: &mut Vec<String>) -> Result<Need> {
    let (drives, buy) = match named {
        Some(text) => (drives::parse(app, text, assumptions)?, options.budget.is_some()),
        None => (for_sale(options, assumptions)?, true),
    };
    let journal = match &options.journal {
        None => None,
        Some(text) => match drives::parse(app, text, assumptions)?.as_slice() {
            [kind] if kind.is_ssd => Some(kind.clone()),
            _ => {
                return Err(Failure::usage("--journal requires solid-state drives of one kind")
                    .hint("--journal 2x500GB-ssd"));
            }
        },
    };
    for (name, _) in &options.price {
        if !drives.iter().chain(&journal).any(|kind| kind.is_named(name)) {
            let known: Vec<&str> = drives.iter().chain(&journal).map(|kind| kind.name.as_str()).collect();
            return Err(Failure::usage(format!("the price of `{name}` matches none of the drives"))
                .hint(format!("the drives are {}", known.join(", "))));
        }
    }
    let mixed = || parse_use("mixed").expect("a workload of its own");
    let unset = Need::of(drives, options.workload.clone().unwrap_or_else(mixed));
    Ok(Need {
        buy,
        journal,
        controller: options.controller.clone(),
        controllers: usize::from(options.controllers),
        bays: options.bays.map(usize::from),
        prices: options.price.iter().cloned().collect(),
        budget: options.budget,
        capacity_bytes: options.capacity.map(|size| size.0),
        link: options.link.clone(),
        risk_per_year: options.risk.unwrap_or(unset.risk_per_year),
        bit_errors: options.ure,
        spares: usize::from(options.spares),
        rebuild_noise: options.rebuild_noise,
        seed: options.seed,
        ..unset
    })
}

/// Drives that can be bought when none are named.
fn for_sale(options: &Options, assumptions: &mut Vec<String>) -> Result<Vec<Kind>> {
    let bays = options.bays.map(usize::from);
    let named = |count: usize, name: &str| {
        Kind::named(count, name).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))
    };
    if options.price.is_empty() {
        let Some(bays) = bays else {
            return Err(Failure::usage("no drives to advise on").hint(
                "stripewise advise --drives 4x8TB-hdd, or --bays 8, or --price 8TB-hdd=150 --budget 1000",
            ));
        };
        assumptions.push(format!("hard disks considered: {}; --price selects others", CLASSES.join(", ")));
        return CLASSES.iter().map(|name| named(bays, name)).collect();
    }
    let count = |price: f64| {
        let paid = options.budget.map_or(usize::MAX, |budget| (budget / price) as usize);
        paid.min(bays.unwrap_or(MOST_BOUGHT))
    };
    if bays.is_none() && options.budget.is_none() {
        return Err(Failure::usage("prices alone do not limit the number of drives")
            .hint("add --budget 1000 or --bays 8"));
    }
    let journal = options.journal.as_deref().unwrap_or_default().to_ascii_lowercase();
    let data = options.price.iter().filter(|(name, _)| !journal.ends_with(&format!("x{name}")));
    let kinds: Result<Vec<Kind>> =
        data.filter(|(_, price)| count(*price) > 0).map(|(name, price)| named(count(*price), name)).collect();
    match kinds?.as_slice() {
        [] => Err(Failure::new("the budget buys no drive").hint("a larger --budget, or cheaper drives")),
        kinds => Ok(kinds.to_vec()),
    }
}

/// Maximum width of the table.
const COLUMNS: usize = 100;
/// Number of arrays that miss a requirement and are named.
const EXCLUDED_SHOWN: usize = 3;

/// Prints the choices, what would change them, and the commands that build the first.
pub(crate) fn print(advice: &Advice, show: usize, page: &mut Page) {
    table(advice, show, page);
    if advice.choices.len() > show {
        page.line(format!("and {} more: --show {}", advice.choices.len() - show, advice.choices.len()));
    }
    page.line("");
    for choice in advice.choices.iter().take(show) {
        let better = choice.dominated_by.map_or_else(String::new, |rank| {
            format!("; choice {rank} is as good or better in every respect")
        });
        page.field(&choice.rank.to_string(), format!("{}{better}", choice.reason), Style::Plain);
    }
    let Some(first) = advice.choices.first() else { return };
    let loss = format!("{} with choice 1", chance_per_year(first.loss_probability_per_year));
    page.field("data loss", loss, Style::Plain);
    let error = format!(
        "half of such rates in published studies are within {:.0} % of the prediction, nine of ten within {:.0} %",
        first.rate_median_error_percent, first.rate_p90_error_percent
    );
    page.field("error", error, Style::Plain);
    excluded(advice, page);
    for line in &advice.sensitivity {
        page.field("but", line, Style::Plain);
    }
    for line in &advice.assumptions {
        page.field("assumed", line, Style::Plain);
    }
    for (system, commands, caveats) in [
        ("Stripewise", &first.commands.stripewise, &first.caveats.stripewise),
        ("Linux md", &first.commands.mdadm, &first.caveats.mdadm),
        ("ZFS", &first.commands.zpool, &first.caveats.zpool),
        ("Storage Spaces", &first.commands.storage_spaces, &first.caveats.storage_spaces),
    ] {
        page.line(format!("\n{} with {system}:", first.name()));
        commands.iter().for_each(|command| page.line(format!("  {command}")));
        caveats.iter().for_each(|caveat| page.line(format!("  note: {caveat}")));
    }
}

/// Table of the choices: with prices where there are any, else with the rate while rebuilding.
fn table(advice: &Advice, show: usize, page: &mut Page) {
    let has_costs = advice.choices.iter().any(|choice| choice.cost.is_some());
    let mut headings = vec![">#", "ARRAY", ">USABLE", ">MB/S", ">DEGRADED"];
    headings.extend(if has_costs { &[][..] } else { &[">REBUILDING"] });
    headings.extend([">REBUILD", ">LOSS/YEAR"]);
    headings.extend(if has_costs { &[">PRICE", ">PER TB"][..] } else { &[] });
    let mut table = Table::new(&headings);
    for choice in advice.choices.iter().take(show) {
        let redundant = choice.rebuild_seconds.is_some();
        let rate = |rate: f64| if redundant { format!("{rate:.0}") } else { "–".to_owned() };
        let mut cells = vec![
            choice.rank.to_string(),
            choice.short_name(),
            format!("{:.1} TB", choice.usable_bytes as f64 / 1e12),
            format!("{:.0}", choice.normal.workload),
            rate(choice.degraded.workload),
        ];
        cells.extend((!has_costs).then(|| rate(choice.rebuilding.workload)));
        cells.push(choice.rebuild_under_load_seconds.map_or_else(|| "–".to_owned(), in_hours));
        cells.push(percent_text(choice.loss_probability_per_year));
        if has_costs {
            let money = |money: Option<f64>, decimals: usize| {
                money.map_or_else(|| "–".to_owned(), |money| format!("{money:.decimals$}"))
            };
            cells.extend([money(choice.cost, 0), money(choice.cost_per_tb, 2)]);
        }
        table.row(cells.into_iter().map(plain));
    }
    page.table_within(&table, COLUMNS);
}

fn in_hours(seconds: f64) -> String {
    match seconds / 3600.0 {
        hours @ ..10.0 => format!("{hours:.1} h"),
        hours => format!("{hours:.0} h"),
    }
}

/// Names the largest arrays that miss a requirement, and the number of the others.
fn excluded(advice: &Advice, page: &mut Page) {
    let mut largest: Vec<_> = advice.excluded.iter().collect();
    largest.sort_by_key(|one| std::cmp::Reverse(one.usable_bytes));
    for one in largest.iter().take(EXCLUDED_SHOWN) {
        page.field("left out", format!("{} {}", one.array, one.why), Style::Plain);
    }
    if largest.len() > EXCLUDED_SHOWN {
        let others = largest.len() - EXCLUDED_SHOWN;
        page.field(
            "left out",
            format!("{others} more that miss a requirement; --json has all"),
            Style::Plain,
        );
    }
}
