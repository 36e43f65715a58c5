//! `advise`: which layout for these drives and this work, with a reason each, and the commands to
//! build it. Without `--drives` at a terminal it asks.
//!
//! Expected faults: names that are none, wishes that contradict each other.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use stripewise_model::advise::{
    Advice, AdviceError, Choice, Kind, Link, Need, Use, advise, html, parse_drives, parse_link, parse_use,
};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style, Table, plain};
use crate::size::{ByteSize, duration_text};

/// Choose a layout: ranked choices for drives and work, and the commands to build them
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stripewise advise --drives 4x8TB-hdd --workload sequential --link 10gbe\n  \
                  stripewise advise --drives 4xmg08ada400e,2xmg08ada800e --capacity 8TB --link 1gbe\n  \
                  stripewise advise --drives 12x8TB-hdd --workload read=70,random=100,block=16KiB --report advice.html"
)]
pub struct Options {
    /// Drives at hand: number, x, and a size or a catalogue name; several with commas
    #[arg(long, value_name = "NxNAME,…", value_parser = drives)]
    drives: Option<Drives>,
    /// sequential, random, mixed, backup, archive, or shares: read=70,random=100,block=4KiB,depth=32
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    workload: Option<Use>,
    /// Between array and client: 1gbe 2.5gbe 5gbe 10gbe 25gbe 40gbe 100gbe usb3 usb3-10g, or 400MB/s
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: Option<Link>,
    /// Usable capacity that is wanted
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    /// Accepted probability of a loss of data within a year
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = percent)]
    risk: f64,
    /// Drives of those given that stay spare
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=100))]
    spares: u16,
    /// Solid-state drives that can hold a journal
    #[arg(long, value_name = "NxNAME", value_parser = drives)]
    journal: Option<Drives>,
    /// Controller or software, by its name in the model
    #[arg(long, value_name = "NAME", default_value = "stripewise")]
    controller: String,
    /// Controllers that can share the drives
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    controllers: u16,
    /// Places for drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    bays: Option<u16>,
    /// Price of one drive, as in 8TB-hdd=150; repeatable
    #[arg(long, value_name = "NAME=PRICE", value_parser = price)]
    price: Vec<(String, f64)>,
    /// For all drives; then any number of those given can be bought
    #[arg(long, value_name = "MONEY", value_parser = amount, requires = "price")]
    budget: Option<f64>,
    /// Share of the normal rate that must be left while a drive is rebuilt
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    rebuild_noise: Option<f64>,
    /// Write everything to one page that needs no network
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// How many choices to show; --json has all
    #[arg(long, value_name = "N", default_value_t = 8)]
    show: usize,
    /// Of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Wrapped, so that clap takes it for one value.
#[derive(Clone)]
struct Drives(Vec<Kind>);

type Parsed<T> = std::result::Result<T, String>;

fn told(error: &AdviceError) -> String {
    format!("{error}; {}", error.hint())
}

fn drives(text: &str) -> Parsed<Drives> {
    parse_drives(text).map(Drives).map_err(|error| told(&error))
}

fn workload(text: &str) -> Parsed<Use> {
    parse_use(text).map_err(|error| told(&error))
}

fn link(text: &str) -> Parsed<Link> {
    parse_link(text).map_err(|error| told(&error))
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

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let need = need(options, app)?;
    // Progress belongs to this thread, the work to others: what takes long says so once.
    let advice = advise(&need, &|_, _| ()).map_err(|error| failure(&error))?;
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

fn failure(error: &AdviceError) -> Failure {
    let failure = match error {
        AdviceError::Contradiction { .. } => Failure::new(error.to_string()),
        AdviceError::Catalogue(_) | AdviceError::Wish { .. } => Failure::usage(error.to_string()),
    };
    failure.hint(error.hint())
}

fn need(options: &Options, app: &App) -> Result<Need> {
    let asked = match &options.drives {
        Some(_) => Asked::default(),
        None => ask(options, app)?,
    };
    let Some(Drives(drives)) = options.drives.clone().or(asked.drives) else {
        return Err(Failure::usage("no drives to advise on").hint("stripewise advise --drives 4x8TB-hdd"));
    };
    let mixed = || parse_use("mixed").expect("a workload of its own");
    let workload = options.workload.clone().or(asked.workload).unwrap_or_else(mixed);
    let journal = match options.journal.clone().map(|drives| drives.0) {
        None => None,
        Some(kinds) if kinds.len() == 1 && kinds[0].is_ssd => kinds.into_iter().next(),
        Some(_) => {
            return Err(Failure::usage("a journal lies on solid-state drives of one kind")
                .hint("--journal 2x500GB-ssd"));
        }
    };
    Ok(Need {
        journal,
        controller: options.controller.clone(),
        controllers: usize::from(options.controllers),
        bays: options.bays.map(usize::from),
        prices: options.price.iter().cloned().collect(),
        budget: options.budget,
        capacity_bytes: options.capacity.or(asked.capacity).map(|size| size.0),
        link: options.link.clone().or(asked.link),
        risk_per_year: options.risk,
        spares: usize::from(options.spares),
        rebuild_noise: options.rebuild_noise,
        seed: options.seed,
        ..Need::of(drives, workload)
    })
}

/// What was asked for at the terminal.
#[derive(Default)]
struct Asked {
    drives: Option<Drives>,
    workload: Option<Use>,
    link: Option<Link>,
    capacity: Option<ByteSize>,
}

/// Asks what is not said yet, at a terminal only.
fn ask(options: &Options, app: &App) -> Result<Asked> {
    if app.printer.is_json() || app.printer.caller().is_some() || !std::io::stdin().is_terminal() {
        return Ok(Asked::default());
    }
    let mut asked =
        Asked { drives: question("Which drives? (4x8TB-hdd, 8x1TB-ssd, …)", drives)?, ..Asked::default() };
    if asked.drives.is_some() && options.workload.is_none() {
        asked.workload =
            question("For what? (sequential, random, mixed, backup, archive; empty: mixed)", workload)?;
    }
    if asked.drives.is_some() && options.link.is_none() {
        asked.link =
            question("Behind which link? (1gbe, 2.5gbe, 10gbe, usb3, …; empty: none that limits)", link)?;
    }
    if asked.drives.is_some() && options.capacity.is_none() {
        let size = |text: &str| text.parse::<ByteSize>().map_err(|error| error.to_string());
        asked.capacity = question("How much usable capacity? (12TB; empty: any)", size)?;
    }
    Ok(asked)
}

/// Asks until the answer makes sense; an empty one leaves it open.
fn question<T>(text: &str, parse: impl Fn(&str) -> Parsed<T>) -> Result<Option<T>> {
    let mut errors = std::io::stderr();
    loop {
        let _ = write!(errors, "{text} ").and_then(|()| errors.flush());
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| Failure::because("cannot read the answer", &error))? == 0
            || line.trim().is_empty()
        {
            return Ok(None);
        }
        match parse(line.trim()) {
            Ok(value) => return Ok(Some(value)),
            Err(why) => drop(writeln!(errors, "{why}")),
        }
    }
}

/// What a choice is, in words.
fn name(choice: &Choice) -> String {
    let mut name = format!("{} of {} {}", choice.layout, choice.drives, choice.drive);
    if choice.groups > 1 {
        name += &format!(" in {} groups", choice.groups);
    }
    if choice.journal_drives > 0 {
        name += " with a journal";
    }
    if choice.controllers > 1 {
        name += &format!(" on {} controllers", choice.controllers);
    }
    name
}

/// Choices, what would change them, and how to build the first.
pub fn print(advice: &Advice, show: usize, page: &mut Page) {
    let mut table = Table::new(&[
        ">#",
        "ARRAY",
        ">USABLE",
        ">MB/S",
        ">DEGRADED",
        ">REBUILDING",
        ">REBUILD",
        ">LOSS/YEAR",
        "WHY",
    ]);
    for choice in advice.choices.iter().take(show) {
        let rebuild = choice.rebuild_seconds.map_or_else(|| "–".to_owned(), duration_text);
        let loss = choice.loss_probability_per_year * 100.0;
        table.row([
            plain(choice.rank.to_string()),
            plain(name(choice)),
            plain(format!("{:.1} TB", choice.usable_bytes as f64 / 1e12)),
            plain(format!("{:.0}", choice.normal.workload)),
            plain(format!("{:.0}", choice.degraded.workload)),
            plain(format!("{:.0}", choice.rebuilding.workload)),
            plain(rebuild),
            plain(if loss >= 0.01 { format!("{loss:.2} %") } else { format!("{loss:.0e} %") }),
            plain(choice.reason.clone()),
        ]);
    }
    page.table(&table);
    if advice.choices.len() > show {
        page.line(format!("and {} more: --show {}", advice.choices.len() - show, advice.choices.len()));
    }
    for line in &advice.sensitivity {
        page.field("but", line, Style::Plain);
    }
    for line in &advice.assumptions {
        page.field("assumed", line, Style::Plain);
    }
    let Some(first) = advice.choices.first() else { return };
    for (system, commands, caveats) in [
        ("Stripewise", &first.commands.stripewise, &first.caveats.stripewise),
        ("Linux md", &first.commands.mdadm, &first.caveats.mdadm),
        ("ZFS", &first.commands.zpool, &first.caveats.zpool),
        ("Storage Spaces", &first.commands.storage_spaces, &first.caveats.storage_spaces),
    ] {
        page.line(format!("\n{} with {system}:", name(first)));
        commands.iter().for_each(|command| page.line(format!("  {command}")));
        caveats.iter().for_each(|caveat| page.line(format!("  note: {caveat}")));
    }
}
