//! `lab study`: repeats a published study on this engine, with the study's tables, and checks its
//! findings.
//!
//! Expected faults: no space for the drives, a host too slow for them (all are slowed by one
//! factor, which is reported).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use stripewise_control::registry::replace_file;
use stripewise_control::size::duration_text;
use stripewise_drive::Pace;
use stripewise_lab::evaluate::DriveSource;
use stripewise_lab::study::{
    StudyNumber, StudyOptions, StudyProgress, StudyResult, Verdict, run_study, shown_tables, study_charts,
    study_html, study_markdown, study_summary,
};

use super::report::write_charts;
use super::text::number;
use crate::commands::App;
use crate::commands::evaluate::{self, Model, iso_8601, parse_model};
use crate::failure::{Exit, Failure, Result, system_text};
use crate::printer::{Page, Printer, Style, Table, plain};
use crate::progress::Progress;

/// Repeat a published study: its configurations, method and tables; check its findings
#[derive(Args)]
#[command(after_help = "Example: stripewise lab study 003 --quick")]
pub(crate) struct Options {
    /// Number of the study: 000, 001, 002, 003 or 004
    #[arg(value_name = "STUDY")]
    study: StudyNumber,
    /// One short run of each figure: sooner done, less precise
    #[arg(long)]
    quick: bool,
    /// A directory for temporary drive files, or drives to overwrite [default: the current
    /// directory]
    #[arg(long, value_name = "DIR|PATH", num_args = 1..)]
    drives: Vec<PathBuf>,
    /// Overwrite drives that hold data
    #[arg(long)]
    force: bool,
    /// Rate limit of each drive [default: the rates of the study's drives, reduced if the host
    /// cannot keep up]
    #[arg(long, value_name = "RATES")]
    pace: Option<Pace>,
    /// Use modelled drives in virtual time: a name from `model catalogue`, or
    /// fixed:LATENCY,RATE,DEPTH
    #[arg(long, value_name = "DRIVE", value_parser = parse_model, conflicts_with_all = ["drives", "pace"],
        num_args = 0..=1, default_missing_value = "fixed:8ms,200MB/s,4")]
    model: Option<Model>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for study-NUMBER.html, .md, .json and its charts
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let out = evaluate::prepare_output(&app.absolute(&options.out))?;
    let drives = match &options.model {
        Some(model) => model.source(),
        None => match options.drives.as_slice() {
            [] => DriveSource::Folder(app.absolute(Path::new("."))),
            [folder] if app.absolute(folder).is_dir() => DriveSource::Folder(app.absolute(folder)),
            [one] => {
                return Err(Failure::new(format!("{} is not a directory", app.absolute(one).display()))
                    .hint("--drives takes a directory for temporary drives, or several drives"));
            }
            several => DriveSource::Paths(evaluate::given(several, options.force, app)?),
        },
    };
    let asked = StudyOptions {
        study: options.study,
        drives,
        pace: options.pace,
        quick: options.quick,
        seed: options.seed,
        date: iso_8601(SystemTime::now()),
    };
    app.printer.note(format!("study {}: {}", options.study.text(), options.study.title()));
    let shown = Shown { printer: &app.printer, progress: RefCell::new(Progress::new(&app.printer)) };
    let result = run_study(&asked, &shown).map_err(|error| evaluate::failure(&error))?;
    let name = format!("study-{}", options.study.text());
    let json = serde_json::to_string_pretty(&result).expect("plain data becomes JSON") + "\n";
    write(&out.join(format!("{name}.json")), &json)?;
    write(&out.join(format!("{name}.md")), &study_markdown(options.study, &result))?;
    let report = out.join(format!("{name}.html"));
    write(&report, &study_html(options.study, &result))?;
    write_charts(&out.join(format!("{name}-charts")), &study_charts(&result))?;
    app.printer.result(&result, |page| page_of(&result, page))?;
    app.printer.note(format!("report: {}", report.display()));
    Ok(Exit::Success)
}

struct Shown<'a> {
    printer: &'a Printer,
    progress: RefCell<Progress<'a>>,
}

impl StudyProgress for Shown<'_> {
    fn update(&self, what: &str, done: f64, seconds_left: Option<f64>) {
        self.progress.borrow_mut().part(what, 100.0 * done, seconds_left);
    }

    fn planned(&self, seconds: f64) {
        self.printer.note(format!("estimated duration: {}", duration_text(seconds)));
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, text.as_bytes())
        .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error))))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{share:.0} %"))
}

/// Headings of the published figures of several systems.
const PUBLISHED: [[&str; 2]; 6] = [
    [">PUBLISHED 1", ">OF SINGLE"],
    [">PUBLISHED 2", ">OF SINGLE"],
    [">PUBLISHED 3", ">OF SINGLE"],
    [">PUBLISHED 4", ">OF SINGLE"],
    [">PUBLISHED 5", ">OF SINGLE"],
    [">PUBLISHED 6", ">OF SINGLE"],
];

/// Tables first, then the findings, and the verdict in a sentence.
fn page_of(result: &StudyResult, page: &mut Page) {
    for table in shown_tables(result) {
        page.line("");
        let systems = if table.is_published() { table.systems.len().min(PUBLISHED.len()) } else { 0 };
        // Several systems are numbered in the heading.
        let published = match systems {
            1 => &[[">PUBLISHED", ">OF SINGLE"]][..],
            several => &PUBLISHED[..several],
        };
        if systems > 1 {
            let names = table.systems.iter().zip(1..).map(|(name, number)| format!("{number}: {name}"));
            names.for_each(|name| page.line(format!("  {name}")));
        } else {
            page.line(table.title());
        }
        let heads = ["ROW", "METRIC", ">HERE", ">OF SINGLE"];
        let heads: Vec<&'static str> = heads.into_iter().chain(published.iter().flatten().copied()).collect();
        let mut shown = Table::new(&heads);
        for row in &table.rows {
            let mut cells = vec![
                plain(row.name.clone()),
                plain(row.ours.metric.clone()),
                plain(row.ours.here()),
                plain(percent(row.ours.percent_of_single)),
            ];
            for one in row.published.iter().take(systems) {
                cells.push(plain(number(one.and_then(|one| one.published))));
                cells.push(plain(percent(one.and_then(|one| one.published_percent_of_single))));
            }
            shown.row(cells);
        }
        page.table(&shown);
    }
    page.line("");
    for finding in &result.findings {
        let style = match finding.verdict {
            Verdict::Agrees => Style::Good,
            Verdict::Disagrees => Style::Bad,
            Verdict::CannotTell | Verdict::NotModelled => Style::Plain,
        };
        page.field(&finding.id, finding.verdict.text(), style);
        page.field("the study", &finding.finding, Style::Plain);
        page.field("this run", &finding.why, Style::Plain);
    }
    page.line("");
    page.line(study_summary(result));
    for note in &result.notes {
        page.line(format!("note: {note}"));
    }
}
