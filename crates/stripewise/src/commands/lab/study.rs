//! `lab study`: a published study on our engine, in the study's own tables, its findings judged.
//!
//! Expected faults: no room for the drives, a host too slow for them (all are slowed by one factor, and it is said).

use std::cell::RefCell;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use stripewise_drive::Pace;
use stripewise_lab::evaluate::DriveSource;
use stripewise_lab::study::{StudyNumber, StudyOptions, StudyProgress, StudyResult, Verdict, run_study};

use super::text::number;
use crate::commands::App;
use crate::commands::evaluate::{self, Model, iso_8601, parse_model};
use crate::failure::{Exit, Failure, Result, system_text};
use crate::home::replace_file;
use crate::printer::{Page, Style, Table, plain};
use crate::progress::Progress;

/// Run a published study: its configurations, its method, its tables, its findings
#[derive(Args)]
pub struct Options {
    /// 000, 001, 002, 003 or 004
    #[arg(value_name = "STUDY")]
    study: StudyNumber,
    /// A first look in under five minutes
    #[arg(long)]
    quick: bool,
    /// A folder to make drives in [default: the current one]
    #[arg(long, value_name = "DIR")]
    drives: Option<PathBuf>,
    /// What each drive is held to [default: the study's drives, slower where the host cannot keep up]
    #[arg(long, value_name = "RATES")]
    pace: Option<Pace>,
    /// Modelled drives in virtual time: fixed:LATENCY,RATE,DEPTH
    #[arg(long, value_name = "DRIVE", value_parser = parse_model, conflicts_with_all = ["drives", "pace"],
        num_args = 0..=1, default_missing_value = "fixed:8ms,200MB/s,4")]
    model: Option<Model>,
    /// Where all random choices start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The folder for study-NUMBER.md and study-NUMBER.json
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let out = evaluate::prepare_output(&app.absolute(&options.out))?;
    let drives = match &options.model {
        Some(model) => model.source(),
        None => {
            let folder = app.absolute(options.drives.as_deref().unwrap_or(Path::new(".")));
            if !folder.is_dir() {
                return Err(Failure::new(format!("{} is no folder", folder.display()))
                    .hint("--drives names a folder to make drives in"));
            }
            DriveSource::Folder(folder)
        }
    };
    let asked = StudyOptions {
        study: options.study,
        drives,
        pace: options.pace,
        quick: options.quick,
        seed: options.seed,
        date: iso_8601(SystemTime::now()),
    };
    let most = if options.quick { "under five minutes" } else { "up to half an hour" };
    app.printer.note(format!("study {}: {}; {most}", options.study.text(), options.study.title()));
    let shown = Shown(RefCell::new(Progress::new(&app.printer)));
    let result = run_study(&asked, &shown).map_err(|error| evaluate::failure(&error))?;
    let name = format!("study-{}", options.study.text());
    let json = serde_json::to_string_pretty(&result).expect("plain data becomes JSON") + "\n";
    write(&out.join(format!("{name}.json")), &json)?;
    write(&out.join(format!("{name}.md")), &markdown(options.study, &result))?;
    app.printer.result(&result, |page| page_of(&result, page))?;
    app.printer.note(format!("report: {}", out.join(format!("{name}.md")).display()));
    Ok(Exit::Success)
}

struct Shown<'a>(RefCell<Progress<'a>>);

impl StudyProgress for Shown<'_> {
    fn update(&self, what: &str, done: f64) {
        self.0.borrow_mut().update(what, 100.0 * done, 0.0, None);
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, text.as_bytes())
        .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error))))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{share:.0} %"))
}

fn page_of(result: &StudyResult, page: &mut Page) {
    for table in &result.tables {
        page.line("");
        page.line(&table.table);
        let mut shown = Table::new(&["ROW", "METRIC", ">HERE", ">OF SINGLE", ">PUBLISHED", ">OF SINGLE"]);
        for row in &table.rows {
            shown.row([
                plain(row.row.clone()),
                plain(row.metric.clone()),
                plain(number(row.measured)),
                plain(percent(row.percent_of_single)),
                plain(number(row.published)),
                plain(percent(row.published_percent_of_single)),
            ]);
        }
        page.table(&shown);
    }
    page.line("");
    let mut shown = Table::new(&["FINDING", "VERDICT", "WHY"]);
    for finding in &result.findings {
        let verdict = match finding.verdict {
            Verdict::Agrees => ("agrees".to_owned(), Style::Good),
            Verdict::Disagrees => ("disagrees".to_owned(), Style::Bad),
            Verdict::CannotTell => plain("cannot tell"),
            Verdict::NotModelled => plain("not modelled"),
        };
        shown.row([plain(finding.id.clone()), verdict, plain(finding.why.clone())]);
    }
    page.table(&shown);
    for note in &result.notes {
        page.line(format!("note: {note}"));
    }
}

fn markdown(study: StudyNumber, result: &StudyResult) -> String {
    let mut text = format!("# Study {}: {}\n\n", result.study, study.title());
    if let Some(pace) = &result.pace {
        let _ = writeln!(text, "Each drive was held to {pace}.\n");
    }
    for note in &result.notes {
        let _ = writeln!(text, "- {note}");
    }
    for table in &result.tables {
        let _ = writeln!(
            text,
            "\n## {}\n\n| | metric | here | of single | published | of single |\n|---|---|---|---|---|---|",
            table.table
        );
        for row in &table.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.row,
                row.metric,
                number(row.measured),
                percent(row.percent_of_single),
                number(row.published),
                percent(row.published_percent_of_single)
            );
        }
    }
    text += "\n## Findings\n\n| finding | what the study found | this run | why |\n|---|---|---|---|\n";
    for finding in &result.findings {
        let verdict = match finding.verdict {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::CannotTell => "cannot tell",
            Verdict::NotModelled => "not modelled",
        };
        let _ = writeln!(text, "| {} | {} | {verdict} | {} |", finding.id, finding.finding, finding.why);
    }
    text
}
