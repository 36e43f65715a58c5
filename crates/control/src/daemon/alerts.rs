//! Alerts: notifications that a pool's condition changed, a drive had errors, space ran out, data
//! was lost, a scrub found something or the daemon's folder was unmounted. Channels are a command,
//! mail through the machine's own mailer, and a request to a web address.
//!
//! `watch.rs` polls the served pools once a second. A dedicated thread sends one alert after the
//! other, each within a time limit.
//!
//! Expected faults: commands that fail or never end, no mailer, addresses that do not answer; more
//! alerts than can be sent (the rest is dropped and logged).

use std::process::Command;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use futures_channel::oneshot;
use serde::Serialize;

use crate::failure::{Failure, Result, system_text};
use crate::notation::plain::{cut, one_line};

mod processes;
mod watch;
mod web;

use processes::Processes;
pub use watch::{Watch, tell};
pub use web::WebAddress;
use web::post;

/// Maximum number of queued alerts.
const MAX_WAITING: usize = 64;
/// Time limit of one delivery.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval of checks for processes that alert commands left behind.
const SWEEP: Duration = Duration::from_millis(200);
/// Maximum bytes of an alert's text; a process gets it in its environment.
const MOST_TEXT_BYTES: usize = 8000;

/// Configured alert channels; without one, no alert is sent.
#[derive(Clone, Debug, Default)]
pub struct AlertWays {
    /// Commands to run with `sh -c`.
    pub commands: Vec<String>,
    /// Recipients of mail.
    pub mails: Vec<MailAddress>,
    /// Addresses that get the alert as JSON in a POST request.
    pub webhooks: Vec<WebAddress>,
}

impl AlertWays {
    /// True if at least one channel is configured.
    pub fn is_some(&self) -> bool {
        !(self.commands.is_empty() && self.mails.is_empty() && self.webhooks.is_empty())
    }
}

/// An address for mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl FromStr for MailAddress {
    type Err = String;

    /// Accepts graphic ASCII only: the address goes into a header and must not end it.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_plain = text.chars().all(|letter| letter.is_ascii_graphic());
        match text.contains('@') && is_plain && !text.starts_with('-') {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("`{text}` is not a mail address")),
        }
    }
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The pool; empty if the alert concerns no pool.
    pub pool: String,
    /// `state`, `drive`, `space`, `loss`, `scrub`, `mount` or `test`.
    pub kind: &'static str,
    /// The event, in one line.
    pub text: String,
}

impl Alert {
    /// Makes an alert of a pool, or of none. Names and reasons come from drives: characters that a
    /// terminal or a mailer would act on are escaped.
    pub fn new(pool: &str, kind: &'static str, text: &str) -> Self {
        Self { pool: one_line(pool), kind, text: cut(&one_line(text), MOST_TEXT_BYTES) }
    }
}

/// Outcome of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// The command, mail address or web address.
    pub way: String,
    /// Reason of the failure; `null` if it was sent.
    pub error: Option<String>,
}

struct Order {
    alert: Alert,
    answer: oneshot::Sender<Vec<Sent>>,
}

/// Handle of the sending thread, used by the executor.
pub struct Alerts {
    orders: SyncSender<Order>,
}

impl Alerts {
    /// Starts the thread.
    pub fn start(ways: AlertWays) -> Result<Self> {
        let (orders, taken) = sync_channel(MAX_WAITING);
        let thread =
            std::thread::Builder::new().name("alerts".to_owned()).spawn(move || send_all(&ways, &taken));
        thread
            .map_err(|error| Failure::new(format!("cannot start sending alerts: {}", system_text(&error))))?;
        Ok(Self { orders })
    }

    /// Queues an alert; the receiver yields the outcome. `None` if the queue is full.
    pub fn send(&self, alert: Alert) -> Option<oneshot::Receiver<Vec<Sent>>> {
        let (answer, answered) = oneshot::channel();
        match self.orders.try_send(Order { alert, answer }) {
            Ok(()) => Some(answered),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }
}

fn send_all(ways: &AlertWays, orders: &Receiver<Order>) {
    let mut processes = Processes::with_limit(PATIENCE);
    loop {
        let order = match processes.are_left_behind() {
            true => orders.recv_timeout(SWEEP),
            false => orders.recv().map_err(RecvTimeoutError::from),
        };
        processes.sweep();
        let Order { alert, answer } = match order {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut sent = Vec::new();
        let mut record = |way: &str, outcome: Outcome| {
            sent.push(Sent { way: way.to_owned(), error: outcome.err() });
        };
        for way in &ways.commands {
            record(way, run_command(&mut processes, way, &alert));
        }
        for MailAddress(way) in &ways.mails {
            record(way, send_mail(&mut processes, way, &alert));
        }
        for way in &ways.webhooks {
            record(&way.shown, post(way, &as_json(&alert), PATIENCE));
        }
        // The client that sent the alert may have disconnected.
        let _ = answer.send(sent);
    }
}

type Outcome = std::result::Result<(), String>;

fn as_json(alert: &Alert) -> String {
    serde_json::to_string(alert).expect("plain data becomes JSON")
}

fn run_command(processes: &mut Processes, command: &str, alert: &Alert) -> Outcome {
    let mut child = Command::new("sh");
    child.args(["-c", command]);
    child.env("STRIPEWISE_POOL", &alert.pool).env("STRIPEWISE_KIND", alert.kind);
    child.env("STRIPEWISE_TEXT", &alert.text);
    processes.run(&mut child, &as_json(alert))
}

fn send_mail(processes: &mut Processes, address: &str, alert: &Alert) -> Outcome {
    let subject = match alert.pool.as_str() {
        "" => format!("Stripewise: {}", alert.kind),
        pool => format!("Stripewise: pool {pool}"),
    };
    let text = format!("To: {address}\nSubject: {subject}\n\n{}\n", alert.text);
    // Mailers are often in folders that are not in an ordinary user's PATH.
    let known = ["/usr/sbin/sendmail", "/usr/lib/sendmail"];
    let mailer = known.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("sendmail");
    processes.run(Command::new(mailer).args(["-t", "-oi"]), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> Alert {
        Alert::new("tank", "state", "it's degraded\"")
    }

    fn run(command: &str) -> Outcome {
        run_command(&mut Processes::with_limit(PATIENCE), command, &alert())
    }

    #[test]
    fn alerts_hold_nothing_that_a_terminal_acts_on() {
        let alert = Alert::new("tank", "drive", "/d/a\nBcc: x\r\u{202e}gpj\x1b[2J");
        assert_eq!(alert.text, "/d/a\\u{a}Bcc: x\\u{d}\\u{202e}gpj\\u{1b}[2J");
        assert!(Alert::new("", "test", &"ä".repeat(100_000)).text.len() < MOST_TEXT_BYTES + 100);
    }

    #[test]
    fn alert_commands_get_every_field_and_report_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("said");
        let command = format!(
            "cat > {0}; echo \"$STRIPEWISE_POOL $STRIPEWISE_KIND $STRIPEWISE_TEXT\" >> {0}",
            path.display()
        );
        assert_eq!(run(&command), Ok(()));
        let said = std::fs::read_to_string(&path).expect("written");
        let expected = "{\"pool\":\"tank\",\"kind\":\"state\",\"text\":\"it's degraded\\\"\"}tank state it's degraded\"\n";
        assert_eq!(said, expected);
        let failed = run("echo no way >&2; exit 3").expect_err("it failed");
        assert!(failed.contains('3') && failed.contains("no way"), "{failed}");
    }

    #[test]
    fn invalid_alert_addresses_are_refused() {
        assert!("root@localhost".parse::<MailAddress>().is_ok());
        for wrong in ["root", "a@b\nBcc: c@d", "a@b c", "-oQ/tmp@x"] {
            assert!(wrong.parse::<MailAddress>().is_err(), "{wrong}");
        }
    }
}
