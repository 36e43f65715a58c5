//! Progress on standard error: percentage, rate and time left. A bar on a terminal, a line every
//! few seconds elsewhere, nothing with `--quiet` or for work of less than two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stripewise_control::daemon::socket::frames::Step;
use stripewise_control::size::{ByteSize, duration_text};

use crate::printer::{Printer, plain};

/// Time before the first output.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Interval between lines if standard error is not a terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Interval between messages to a client that shows the progress.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);

enum Mode {
    Silent,
    /// The client of this daemon shows the progress.
    Caller {
        last: Option<Instant>,
    },
    Bar(Option<ProgressBar>),
    Lines {
        last: Option<Instant>,
    },
}

/// The progress of one command.
pub(crate) struct Progress<'a> {
    printer: &'a Printer,
    started: Instant,
    mode: Mode,
}

impl<'a> Progress<'a> {
    /// Starts the clock.
    pub(crate) fn new(printer: &'a Printer) -> Self {
        let mode = match () {
            () if printer.is_quiet() => Mode::Silent,
            () if printer.caller().is_some() => Mode::Caller { last: None },
            () if std::io::stderr().is_terminal() => Mode::Bar(None),
            () => Mode::Lines { last: None },
        };
        Self { printer, started: Instant::now(), mode }
    }

    /// Shows the progress of `what`, as in "rebuild of tank/data". Cheap enough to call after every
    /// piece of work.
    pub(crate) fn update(&mut self, what: &str, percent: f64, mb_per_s: f64, seconds_left: Option<f64>) {
        if self.is_due() {
            let left =
                seconds_left.map_or_else(String::new, |seconds| format!(", {} left", duration_text(seconds)));
            let rate = rate_text(mb_per_s);
            self.show(what, Some(percent), &format!("{percent:.1} %, {rate} MB/s{left}"));
        }
    }

    /// As [`Self::update`], with a text that is formatted only when it is shown.
    pub(crate) fn live(&mut self, what: &str, percent: f64, text: impl FnOnce() -> String) {
        if self.is_due() {
            self.show(what, Some(percent), &text());
        }
    }

    /// True if the progress is a bar on a terminal.
    pub(crate) fn is_on_terminal(&self) -> bool {
        matches!(self.mode, Mode::Bar(_))
    }

    /// As [`Self::update`], for work without a rate.
    pub(crate) fn part(&mut self, what: &str, percent: f64, seconds_left: Option<f64>) {
        if self.is_due() {
            let left =
                seconds_left.map_or_else(String::new, |seconds| format!(", {} left", duration_text(seconds)));
            self.show(what, Some(percent), &format!("{percent:.1} %{left}"));
        }
    }

    /// As [`Self::update`], for a transfer of known or unknown length, started with this progress.
    pub(crate) fn bytes(&mut self, what: &str, done_bytes: u64, total_bytes: Option<u64>) {
        if !self.is_due() {
            return;
        }
        let rate = done_bytes as f64 / self.started.elapsed().as_secs_f64();
        match total_bytes {
            Some(total) if rate > 0.0 && total > 0 => {
                let percent = 100.0 * done_bytes as f64 / total as f64;
                self.update(what, percent, rate / 1e6, Some(total.saturating_sub(done_bytes) as f64 / rate));
            }
            _ => {
                let rate = rate_text(rate / 1e6);
                self.show(what, None, &format!("{} so far, {rate} MB/s", ByteSize(done_bytes)));
            }
        }
    }

    /// As [`Self::update`], for counted work, started with this progress: `done` of `total`
    /// `things`.
    pub(crate) fn count(&mut self, what: &str, things: &str, done: u64, total: u64) {
        if !self.is_due() || done == 0 {
            return;
        }
        let rate = done as f64 / self.started.elapsed().as_secs_f64();
        let percent = 100.0 * done as f64 / total.max(1) as f64;
        let left = duration_text(total.saturating_sub(done) as f64 / rate);
        let text = format!("{percent:.1} %, {done} of {total} {things}, {rate:.1}/s, {left} left");
        self.show(what, Some(percent), &text);
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn suspended<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.mode {
            Mode::Bar(Some(bar)) => bar.suspend(print),
            _ => print(),
        }
    }

    fn is_due(&self) -> bool {
        self.started.elapsed() >= FIRST_AFTER
            && match &self.mode {
                Mode::Silent => false,
                Mode::Bar(_) => true,
                Mode::Lines { last } => last.is_none_or(|last| last.elapsed() >= BETWEEN_LINES),
                Mode::Caller { last } => last.is_none_or(|last| last.elapsed() >= BETWEEN_FRAMES),
            }
    }

    /// Shows the progress that a daemon reports to this client.
    pub(crate) fn relay(&mut self, step: &Step) {
        if self.is_due() {
            self.show(&step.what, step.percent, &step.text);
        }
    }

    fn show(&mut self, what: &str, percent: Option<f64>, text: &str) {
        match &mut self.mode {
            Mode::Silent => {}
            Mode::Caller { last } => {
                *last = Some(Instant::now());
                if let Some(caller) = self.printer.caller() {
                    caller.progress(&Step { what: what.to_owned(), percent, text: text.to_owned() });
                }
            }
            Mode::Bar(bar) => {
                let bar = bar.get_or_insert_with(new_bar);
                bar.set_prefix(plain::page(what, false));
                bar.set_position((percent.unwrap_or(0.0) * 10.0) as u64);
                bar.set_message(plain::page(text, false));
            }
            Mode::Lines { last } => {
                *last = Some(Instant::now());
                self.printer.note(format!("{what}: {text}"));
            }
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Mode::Bar(Some(bar)) = &self.mode {
            bar.finish_and_clear();
        }
    }
}

/// A rate with two digits at least: slow is not 0.
fn rate_text(rate: f64) -> String {
    match rate {
        10.0.. => format!("{rate:.0}"),
        0.1.. => format!("{rate:.1}"),
        _ => format!("{rate:.3}"),
    }
}

fn new_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}").expect("a constant template");
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(5));
    bar.set_style(style.progress_chars("=> "));
    bar
}
