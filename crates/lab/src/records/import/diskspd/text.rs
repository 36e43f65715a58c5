//! diskspd's text: input parameters, and for each time span tables with a row per thread and
//! target. Sizes are powers of 1024; rates are computed from bytes and time, as the tables round.

use super::{Document, Span, Wish, Work};
use crate::records::import::kit::Numbers;
use crate::records::import::{ImportError, broken};
use crate::records::record::Latencies;

const FORMAT: &str = "diskspd text";

/// The documents in a text; `None` if there are none.
pub(super) fn documents(text: &str) -> Result<Option<Vec<Document>>, ImportError> {
    let is_result = text.contains("thread |") && text.contains("I/Os");
    let is_input = text.contains("Command Line:") && text.contains("Input parameters:");
    if !is_result && !is_input {
        return Ok(None);
    }
    let mut reading = Reading::default();
    for (at, line) in text.lines().enumerate() {
        reading.line(at, line)?;
    }
    reading.documents.retain(|document| document.spans.iter().any(|span| !span.work.is_empty()));
    for span in reading.documents.iter().flat_map(|document| &document.spans) {
        if span.seconds <= 0.0 {
            return Err(broken(FORMAT, "a time span has no `actual test time`"));
        }
    }
    match reading.documents.is_empty() {
        true => Err(broken(FORMAT, "it has no table `Read IO` or `Write IO` with work in it")),
        false => Ok(Some(reading.documents)),
    }
}

#[derive(Default)]
struct Reading {
    documents: Vec<Document>,
    /// Settings of the time spans that follow, by their number.
    wishes: Vec<Vec<(String, Wish)>>,
    /// Table that is being read: 0 of reads, 1 of writes.
    side: Option<usize>,
    /// Column of the mean latency.
    mean_at: Option<usize>,
    /// Columns of the percentiles of reads and writes.
    percentiles: Option<[Option<usize>; 2]>,
}

impl Reading {
    fn line(&mut self, at: usize, line: &str) -> Result<(), ImportError> {
        let text = line.trim();
        if text.starts_with("Command Line:") || (self.documents.is_empty() && text == "Input parameters:") {
            *self = Self { documents: std::mem::take(&mut self.documents), ..Self::default() };
            self.documents.push(Document::default());
        } else if text.starts_with("timespan:") {
            self.wishes.push(Vec::new());
        } else if let Some(path) = text.strip_prefix("path:") {
            if self.wishes.is_empty() {
                self.wishes.push(Vec::new());
            }
            let path = path.trim().trim_matches('\'').to_owned();
            self.wishes.last_mut().expect("it has one").push((path, Wish::default()));
        } else if text.starts_with("Results for timespan") || text.starts_with("actual test time:") {
            self.result(text);
        } else if text.starts_with("Total IO") || text.starts_with("Read IO") || text.starts_with("Write IO")
        {
            self.side = ["Read IO", "Write IO"].iter().position(|title| text.starts_with(title));
            self.percentiles = None;
        } else if text.starts_with("thread |") {
            let columns: Vec<&str> = text.split('|').map(str::trim).collect();
            self.mean_at = columns.iter().position(|column| *column == "AvgLat");
        } else if text.starts_with("%-ile") {
            let columns: Vec<&str> = text.split('|').map(str::trim).collect();
            let at = |title: &str| columns.iter().position(|column| column.starts_with(title));
            self.percentiles = Some([at("Read"), at("Write")]);
            self.side = None;
        } else if text.contains('|') {
            self.row(at, text)?;
        } else {
            self.setting(text);
        }
        Ok(())
    }

    /// A time span begins at its title, in old versions at its time.
    fn result(&mut self, text: &str) {
        (self.side, self.percentiles) = (None, None);
        if self.documents.is_empty() {
            self.documents.push(Document::default());
        }
        let spans = &mut self.documents.last_mut().expect("pushed above").spans;
        let has_title = text.starts_with("Results");
        let is_open = spans.last().is_some_and(|span| span.seconds == 0.0);
        if has_title || !is_open {
            let wishes = self.wishes.get(spans.len()).or(self.wishes.last()).cloned().unwrap_or_default();
            spans.push(Span { wishes, ..Span::default() });
        }
        if let Some(seconds) = text.strip_prefix("actual test time:") {
            let seconds = Numbers::default().read(seconds.trim().trim_end_matches('s'));
            spans.last_mut().expect("pushed above").seconds = seconds.unwrap_or(0.0);
        }
    }

    fn setting(&mut self, text: &str) {
        let Some((_, wish)) = self.wishes.last_mut().and_then(|wishes| wishes.last_mut()) else { return };
        let Some((name, value)) = text.split_once(':') else { return };
        let whole = || value.trim().parse::<u32>().ok();
        match name {
            "block size" => wish.block_bytes = bytes_of(value),
            _ if name.starts_with("number of outstanding I/O operations") => wish.queue_depth = whole(),
            "threads per file" => wish.threads = whole(),
            _ => {}
        }
    }

    /// `0 | 20480 | 5 | 0.01 | 0.50 | 3.200 | 1.100 | t.dat (1GiB)`, the total of a table, or a
    /// percentile.
    fn row(&mut self, at: usize, text: &str) -> Result<(), ImportError> {
        let cells: Vec<&str> = text.split('|').map(str::trim).collect();
        let Some(span) = self.documents.last_mut().and_then(|document| document.spans.last_mut()) else {
            return Ok(());
        };
        if let Some(columns) = self.percentiles {
            percentile(&cells, columns, span);
            return Ok(());
        }
        let Some(side) = self.side else { return Ok(()) };
        let total = cells[0].strip_prefix("total:");
        let number = |text: &str| Numbers::default().read(text);
        let (bytes, requests) = match total {
            Some(bytes) => (bytes, cells.get(1)),
            None if cells[0].parse::<u32>().is_ok() => {
                (cells.get(1).copied().unwrap_or_default(), cells.get(2))
            }
            None => return Ok(()),
        };
        let unreadable = || broken(FORMAT, format!("line {}: {text}", at + 1));
        let bytes = number(bytes).ok_or_else(unreadable)?;
        let requests = requests.and_then(|text| number(text)).ok_or_else(unreadable)?;
        // The cell of bytes in a total shares the first cell.
        let mean_at = self.mean_at.map(|at| if total.is_some() { at - 1 } else { at });
        let mean = mean_at.and_then(|at| number(cells.get(at)?)).map(|ms| ms * 1e3);
        if total.is_some() {
            total_of(span, side, bytes, requests, mean);
        } else {
            let file = cells.last().copied().unwrap_or_default();
            // The size in brackets is not part of the path.
            let path = file.rsplit_once(" (").map_or(file, |(path, _)| path).to_owned();
            let mut work = Work { path, ..Work::default() };
            (work.bytes[side], work.requests[side], work.mean_us[side]) = (bytes, requests, mean);
            span.work.push(work);
        }
        Ok(())
    }
}

/// The total has the latency of the whole, and the work if the table has no rows.
fn total_of(span: &mut Span, side: usize, bytes: f64, requests: f64, mean: Option<f64>) {
    if requests > 0.0 {
        if let Some(mean) = mean {
            let known = span.latencies[side].unwrap_or_default();
            span.latencies[side] = Some(Latencies { mean: Some(mean), ..known });
        }
        if span.work.iter().all(|work| work.requests[side] == 0.0) {
            let paths: Vec<&str> = span.wishes.iter().map(|(path, _)| path.as_str()).collect();
            let mut work = Work { path: paths.join(", "), ..Work::default() };
            (work.bytes[side], work.requests[side]) = (bytes, requests);
            span.work.push(work);
        }
    }
}

/// `50th | 1.200 | 3.400 | 2.000`, in milliseconds; `3-nines` is 99.9 %.
fn percentile(cells: &[&str], columns: [Option<usize>; 2], span: &mut Span) {
    for (side, column) in columns.into_iter().enumerate() {
        let cell = column.and_then(|at| cells.get(at).copied()).unwrap_or_default();
        let Some(time) = Numbers::default().read(cell).map(|ms| ms * 1e3) else { continue };
        let mut latency = span.latencies[side].unwrap_or_default();
        match cells[0] {
            "50th" => latency.p50 = Some(time),
            "99th" => latency.p99 = Some(time),
            "3-nines" => latency.p999 = Some(time),
            "max" => latency.max = Some(time),
            _ => continue,
        }
        span.latencies[side] = Some(latency);
    }
}

/// Bytes of `8KiB`, `64KiB`, `1MiB`, and of old versions' `8192`.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[end..].trim() {
        "" | "B" => 0,
        "KiB" | "K" | "KB" => 10,
        "MiB" | "M" | "MB" => 20,
        "GiB" | "G" | "GB" => 30,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(1 << shift)
}
