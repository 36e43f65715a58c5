//! `lab study`: repeats a published study on this engine, with the study's tables, and checks its
//! findings.
//!
//! Expected faults: no space for the drives, a host too slow for them (all are slowed by one
//! factor, which is reported).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::Args;
use stripewise_control::registry::replace_file;
use stripewise_control::size::duration_text;
use stripewise_drive::Pace;
use stripewise_lab::evaluate::DriveSource;
use stripewise_lab::study::{
    StudyNumber, StudyOptions, StudyProgress, StudyResult, Verdict, run_study, study_charts, study_html,
    study_markdown,
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
pub(crate) struct Options {
    /// Number of the study: 000, 001, 002, 003 or 004
    #[arg(value_name = "STUDY")]
    study: StudyNumber,
    /// Finish in under five minutes, with less precise results
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
    let shown = Shown {
        printer: &app.printer,
        began: Instant::now(),
        progress: RefCell::new(Progress::new(&app.printer)),
    };
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
    began: Instant,
    progress: RefCell<Progress<'a>>,
}

impl StudyProgress for Shown<'_> {
    fn update(&self, what: &str, done: f64) {
        let left = (done > 0.02).then(|| self.began.elapsed().as_secs_f64() * (1.0 / done - 1.0));
        self.progress.borrow_mut().part(what, 100.0 * done, left.map(|left| left.max(0.0)));
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

fn page_of(result: &StudyResult, page: &mut Page) {
    for table in &result.tables {
        page.line("");
        page.line(&table.table);
        let mut shown = Table::new(&["ROW", "METRIC", ">HERE", ">OF SINGLE", ">PUBLISHED", ">OF SINGLE"]);
        for row in &table.rows {
            shown.row([
                plain(row.row.clone()),
                plain(row.metric.clone()),
                plain(row.here()),
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
        let style = match finding.verdict {
            Verdict::Agrees => Style::Good,
            Verdict::Disagrees => Style::Bad,
            Verdict::CannotTell | Verdict::NotModelled => Style::Plain,
        };
        let verdict = (finding.verdict.text().to_owned(), style);
        shown.row([plain(finding.id.clone()), verdict, plain(finding.why.clone())]);
    }
    page.table(&shown);
    for note in &result.notes {
        page.line(format!("note: {note}"));
    }
}
