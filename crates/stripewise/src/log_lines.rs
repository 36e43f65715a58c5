//! Writes the lines of the log to standard error. A thread does, so that a pipe that is not read
//! holds up the log and nothing else: lines beyond the buffer are dropped, and their number is
//! logged as soon as there is room. Characters that a terminal would act on are escaped, except the
//! log's own colours.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use stripewise_control::plain::is_unsafe;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Maximum lines waiting to be written.
const MAX_WAITING: usize = 8192;
/// Time that the process waits for a reader when it ends.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

static WAY: OnceLock<SyncSender<Item>> = OnceLock::new();
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

enum Item {
    Line(Vec<u8>),
    /// Completed once everything before it is written.
    Mark(SyncSender<()>),
}

/// True if this process keeps a log.
pub(crate) fn is_kept() -> bool {
    WAY.get().is_some()
}

/// Starts the thread that writes.
pub(crate) fn begin(lines: Lines) -> io::Result<Lines> {
    let (way, items) = sync_channel(MAX_WAITING);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&items))?;
    // A process keeps one log.
    let _ = WAY.set(way);
    Ok(lines)
}

fn write_all(items: &Receiver<Item>) {
    // Only a panic also writes there, and must not wait for a lock.
    let mut to = io::stderr();
    while let Ok(item) = items.recv() {
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = writeln!(to, "{left_out} log lines were dropped: the log is not being read");
        }
        match item {
            // A reader that has left does not end the process.
            Item::Line(line) => drop(to.write_all(&line)),
            Item::Mark(written) => drop(written.send(())),
        }
    }
}

fn send(line: Vec<u8>) {
    let Some(way) = WAY.get() else { return };
    if let Err(TrySendError::Full(_)) = way.try_send(Item::Line(line)) {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends a line from outside the log.
pub(crate) fn write_line(text: &[u8]) {
    send([text, b"\n"].concat());
}

/// Waits until all lines are written, for a bounded time.
pub(crate) fn flush() {
    let Some(way) = WAY.get() else { return };
    let (written, all_written) = sync_channel(1);
    if way.try_send(Item::Mark(written)).is_ok() {
        let _ = all_written.recv_timeout(LAST_PATIENCE);
    }
}

/// Makes a writer for each line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines {
    /// Each line begins with its level, as the journal of systemd reads it.
    pub levels: bool,
    /// Each line is a JSON document.
    pub are_json: bool,
    /// Lines have colours. Colours begin with an escape, which is therefore not escaped.
    pub have_colours: bool,
}

impl Lines {
    fn begun_with(&self, level: Option<&Level>) -> Line {
        let mark = match level.copied() {
            Some(Level::ERROR) => "<3>",
            Some(Level::WARN) => "<4>",
            Some(Level::INFO) => "<6>",
            _ => "<7>",
        };
        Line { bytes: if self.levels { mark.into() } else { Vec::new() }, of: *self }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        self.begun_with(None)
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line {
        self.begun_with(Some(of.level()))
    }
}

/// A line that is sent when it is complete.
pub(crate) struct Line {
    bytes: Vec<u8>,
    of: Lines,
}

impl Lines {
    /// Escapes characters that a terminal would act on. The log's own layer has escaped escapes.
    fn safe(self, line: &[u8]) -> String {
        let line = String::from_utf8_lossy(line);
        let line = line.strip_suffix('\n').unwrap_or(&line);
        let is_fit = |letter: char| !is_unsafe(letter) || (letter == '\x1b' && self.have_colours);
        let mut safe = String::with_capacity(line.len() + 1);
        for letter in line.chars() {
            let code = u32::from(letter);
            let _ = match (is_fit(letter), self.are_json) {
                (true, _) => {
                    safe.push(letter);
                    Ok(())
                }
                (false, true) => write!(safe, "\\u{code:04x}"),
                (false, false) => write!(safe, "\\u{{{code:x}}}"),
            };
        }
        safe.push('\n');
        safe
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        send(self.of.safe(&self.bytes).into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_one_line() {
        let text = Lines::default();
        assert_eq!(text.safe(b"a\nb\x1b[2J\xe2\x80\xaec\n"), "a\\u{a}b\\u{1b}[2J\\u{202e}c\n");
        let coloured = Lines { have_colours: true, ..text };
        assert_eq!(coloured.safe(b"\x1b[32mINFO\x1b[0m a\r\n"), "\x1b[32mINFO\x1b[0m a\\u{d}\n");
        let json = Lines { are_json: true, ..text };
        let line = json.safe("{\"path\":\"a\u{202e}b\"}\n".as_bytes());
        assert_eq!(line, "{\"path\":\"a\\u202eb\"}\n");
    }
}
