//! Percent done, rate and time to go on standard error: a bar on a terminal, a line every few seconds elsewhere, nothing
//! with `--quiet` or for work that takes less than two seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;
use crate::size::duration_text;

/// Work shorter than this shows nothing.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Between lines where standard error is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

enum Mode {
    Silent,
    Bar(Option<ProgressBar>),
    Lines { last: Option<Instant> },
}

/// The progress of one piece of work.
pub struct Progress<'a> {
    printer: &'a Printer,
    what: String,
    started: Instant,
    mode: Mode,
}

impl<'a> Progress<'a> {
    /// Begins; `what` is shown in front: `rebuild of tank`.
    pub fn new(printer: &'a Printer, what: impl Into<String>) -> Self {
        let mode = match () {
            () if printer.is_quiet() => Mode::Silent,
            () if std::io::stderr().is_terminal() => Mode::Bar(None),
            () => Mode::Lines { last: None },
        };
        Self { printer, what: what.into(), started: Instant::now(), mode }
    }

    /// Shows how it stands. Cheap enough to be called for every piece of work.
    pub fn update(&mut self, percent: f64, mb_per_s: f64, seconds_left: Option<f64>) {
        if self.started.elapsed() < FIRST_AFTER {
            return;
        }
        let text = progress_text(percent, mb_per_s, seconds_left);
        match &mut self.mode {
            Mode::Silent => {}
            Mode::Bar(bar) => {
                let bar = bar.get_or_insert_with(|| new_bar(&self.what));
                bar.set_position((percent * 10.0) as u64);
                bar.set_message(text);
            }
            Mode::Lines { last } => {
                if last.is_none_or(|last| last.elapsed() >= BETWEEN_LINES) {
                    *last = Some(Instant::now());
                    self.printer.note(format!("{}: {text}", self.what));
                }
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

fn new_bar(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}").expect("a constant template");
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(5));
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what.to_owned());
    bar
}

fn progress_text(percent: f64, mb_per_s: f64, seconds_left: Option<f64>) -> String {
    let left = seconds_left.map_or_else(String::new, |seconds| format!(", {} left", duration_text(seconds)));
    format!("{percent:5.1} %, {mb_per_s:.0} MB/s{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_percent_rate_and_time_to_go() {
        assert_eq!(progress_text(42.0, 180.4, Some(200.0)), " 42.0 %, 180 MB/s, 3 min 20 s left");
        assert_eq!(progress_text(100.0, 0.0, None), "100.0 %, 0 MB/s");
    }
}
