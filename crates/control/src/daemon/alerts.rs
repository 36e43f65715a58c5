//! Alerts: notifications that a pool's condition changed, a drive had errors, a spare took over,
//! space ran out, data was lost, a rebuild or scrub began or ended, or the daemon's folder was
//! unmounted. Channels are a command, mail through the machine's own mailer, and a request to a web
//! address.
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
use utoipa::ToSchema;

use crate::failure::{Failure, Result, system_text};
use crate::messages::report::condition::left as redundancy_left;
use crate::messages::report::{DriveReport, DriveState, PoolReport, PoolState, VolumeReport, VolumeState};
use crate::notation::plain::{cut, one_line};
use crate::registry::this_host::this_host;

mod mail;
mod processes;
mod watch;
mod web;

use mail::send_mail;
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

/// Maximum number of drives, and of volumes, that an alert lists.
const MOST_LISTED: usize = 16;

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
    /// The channels; secrets in web addresses from files are left out.
    fn channels(&self) -> Vec<Channel> {
        let channel = |kind, to: &str| Channel { kind, to: to.to_owned() };
        let commands = self.commands.iter().map(|command| channel("command", command));
        let mails = self.mails.iter().map(|MailAddress(address)| channel("mail", address));
        let webhooks = self.webhooks.iter().map(|address| channel("webhook", &address.shown));
        commands.chain(mails).chain(webhooks).collect()
    }

    /// True if at least one channel is configured.
    pub fn is_some(&self) -> bool {
        !(self.commands.is_empty() && self.mails.is_empty() && self.webhooks.is_empty())
    }
}

/// A configured channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// `command`, `mail` or `webhook`.
    pub kind: &'static str,
    /// The command, mail address or web address.
    pub to: String,
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
    /// `state`, `drive`, `space`, `loss`, `spare`, `rebuild`, `scrub`, `mount` or `test`.
    pub kind: &'static str,
    /// The event, in one line.
    pub text: String,
    /// Name of this host.
    pub host: String,
    /// State of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PoolState>,
    /// Drives that the text names, and drives out of service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<AlertDrive>,
    /// Redundancy left, by volume, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Next command to run; empty if none is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The log has it already.
    #[serde(skip)]
    is_logged: bool,
}

/// A drive that an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlertDrive {
    /// Drive identity.
    pub id: String,
    /// Path of the drive.
    pub path: String,
    /// Serial number, if known.
    pub serial: Option<String>,
    /// State of the drive.
    pub state: DriveState,
}

impl Alert {
    /// Makes an alert that concerns no pool. Names and reasons come from drives: characters that a
    /// terminal or a mailer would act on are escaped.
    pub fn new(kind: &'static str, text: &str) -> Self {
        Self {
            pool: String::new(),
            kind,
            text: cut(&one_line(text), MOST_TEXT_BYTES),
            host: one_line(this_host().name()),
            state: None,
            drives: Vec::new(),
            left: Vec::new(),
            action: String::new(),
            is_logged: false,
        }
    }

    /// Makes an alert of a pool: with its state, the drives concerned, what can still be lost, and
    /// the next command.
    pub(crate) fn of_pool(pool: &PoolReport, kind: &'static str, text: &str) -> Self {
        let concerns = |drive: &&DriveReport| !drive.state.takes_part() || watch::names(text, &drive.path);
        let drive = |drive: &DriveReport| AlertDrive {
            id: drive.id.clone(),
            path: one_line(&drive.path),
            serial: drive.hardware.serial.clone(),
            state: drive.state,
        };
        let left = |volume: &VolumeReport| {
            let left = match volume.state {
                VolumeState::Failed => "has failed".to_owned(),
                _ => redundancy_left(volume.redundancy_left),
            };
            one_line(&format!("volume {} {left}", volume.name))
        };
        Self {
            pool: one_line(&pool.name),
            state: Some(pool.state),
            drives: pool.drives.iter().filter(concerns).take(MOST_LISTED).map(drive).collect(),
            left: pool.volumes.iter().take(MOST_LISTED).map(left).collect(),
            action: one_line(&pool.action),
            ..Self::new(kind, text)
        }
    }

    /// Marks an alert about an event that the log has anyway.
    fn logged(self) -> Self {
        Self { is_logged: true, ..self }
    }
}

/// Outcome of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
    channels: Vec<Channel>,
}

impl Alerts {
    /// Starts the thread.
    pub fn start(ways: AlertWays) -> Result<Self> {
        let (orders, taken) = sync_channel(MAX_WAITING);
        let channels = ways.channels();
        let thread =
            std::thread::Builder::new().name("alerts".to_owned()).spawn(move || send_all(&ways, &taken));
        thread
            .map_err(|error| Failure::new(format!("cannot start sending alerts: {}", system_text(&error))))?;
        Ok(Self { orders, channels })
    }

    /// The configured channels.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
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
    child.env("STRIPEWISE_TEXT", &alert.text).env("STRIPEWISE_HOST_NAME", &alert.host);
    child.env("STRIPEWISE_STATE", alert.state.map_or_else(String::new, |state| state.to_string()));
    child.env("STRIPEWISE_ACTION", &alert.action);
    processes.run(&mut child, &as_json(alert))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> Alert {
        let host = "vm".to_owned();
        Alert { pool: "tank".to_owned(), host, ..Alert::new("state", "it's degraded\"") }
    }

    fn run(command: &str) -> Outcome {
        run_command(&mut Processes::with_limit(PATIENCE), command, &alert())
    }

    #[test]
    fn alerts_hold_nothing_that_a_terminal_acts_on() {
        let alert = Alert::new("drive", "/d/a\nBcc: x\r\u{202e}gpj\x1b[2J");
        assert_eq!(alert.text, "/d/a\\u{a}Bcc: x\\u{d}\\u{202e}gpj\\u{1b}[2J");
        assert!(Alert::new("test", &"ä".repeat(100_000)).text.len() < MOST_TEXT_BYTES + 100);
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
        let expected = "{\"pool\":\"tank\",\"kind\":\"state\",\"text\":\"it's degraded\\\"\",\
                        \"host\":\"vm\"}tank state it's degraded\"\n";
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
