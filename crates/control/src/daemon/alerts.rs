//! Alerts: telling when a pool's condition changes, a drive errs, space runs out, something is
//! lost, a scrub finds something or the daemon's folder is unmounted: by a command, by mail through
//! the machine's own mailer, by a request to a web address.
//!
//! What is to be told is seen by looking at the served pools once a second (`watch.rs`). It is sent
//! from a thread of its own, one after the other, each within a limit of time.
//!
//! Expected faults: commands that fail or never end, no mailer, addresses that do not answer; more
//! to tell than can be sent (the rest is left out, and that is said).

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use serde::Serialize;

use crate::failure::{Failure, Result, system_text};

mod watch;

pub use watch::{Watch, tell};

/// Alerts that wait to be sent.
const MAX_WAITING: usize = 64;
/// One way of sending may take so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a process is looked at that is to end.
const LOOK: Duration = Duration::from_millis(20);

/// How alerts are sent; nothing is where no way is given.
#[derive(Clone, Debug, Default)]
pub struct AlertWays {
    /// Run with `sh -c`.
    pub commands: Vec<String>,
    /// Sent to by mail.
    pub mails: Vec<MailAddress>,
    /// Sent to as JSON in a POST request.
    pub webhooks: Vec<WebAddress>,
}

impl AlertWays {
    /// Whether there is any way.
    pub fn is_some(&self) -> bool {
        !(self.commands.is_empty() && self.mails.is_empty() && self.webhooks.is_empty())
    }
}

/// An address for mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress(String);

impl FromStr for MailAddress {
    type Err = String;

    /// What goes into a header must not end it.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_plain = text.chars().all(|letter| letter.is_ascii_graphic());
        match text.contains('@') && is_plain && !text.starts_with('-') {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("`{text}` is no mail address")),
        }
    }
}

/// An address for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAddress(String);

impl FromStr for WebAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.starts_with("http://") || text.starts_with("https://") {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("`{text}` is no web address; as in https://HOST/PATH")),
        }
    }
}

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// The pool; empty where it is none's matter.
    pub pool: String,
    /// `state`, `drive`, `space`, `loss`, `scrub`, `mount` or `test`.
    pub kind: &'static str,
    /// What happened, in one line.
    pub text: String,
}

/// What came of one way of sending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// The command, mail address or web address.
    pub way: String,
    /// Why it could not be sent; `null`: it was.
    pub error: Option<String>,
}

struct Order {
    alert: Alert,
    answer: oneshot::Sender<Vec<Sent>>,
}

/// The thread that sends, as seen from the executor.
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

    /// Has it sent; what came of it comes later. `None` where too much waits already.
    pub fn send(&self, alert: Alert) -> Option<oneshot::Receiver<Vec<Sent>>> {
        let (answer, answered) = oneshot::channel();
        match self.orders.try_send(Order { alert, answer }) {
            Ok(()) => Some(answered),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }
}

fn send_all(ways: &AlertWays, orders: &Receiver<Order>) {
    while let Ok(Order { alert, answer }) = orders.recv() {
        let commands = ways.commands.iter().map(|way| (way, run_command(way, &alert)));
        let mails = ways.mails.iter().map(|MailAddress(way)| (way, send_mail(way, &alert)));
        let webhooks = ways.webhooks.iter().map(|WebAddress(way)| (way, post(way, &alert)));
        let sent = commands.chain(mails).chain(webhooks);
        let sent = sent.map(|(way, result)| Sent { way: way.clone(), error: result.err() }).collect();
        // Whoever asked may have left.
        let _ = answer.send(sent);
    }
}

type Outcome = std::result::Result<(), String>;

fn as_json(alert: &Alert) -> String {
    serde_json::to_string(alert).expect("plain data becomes JSON")
}

fn run_command(command: &str, alert: &Alert) -> Outcome {
    let mut child = Command::new("sh");
    child.args(["-c", command]);
    child.env("STRIPEWISE_POOL", &alert.pool).env("STRIPEWISE_KIND", alert.kind);
    child.env("STRIPEWISE_TEXT", &alert.text);
    give_and_wait(&mut child, &as_json(alert))
}

fn send_mail(address: &str, alert: &Alert) -> Outcome {
    let subject = match alert.pool.as_str() {
        "" => format!("Stripewise: {}", alert.kind),
        pool => format!("Stripewise: pool {pool}"),
    };
    let text = format!("To: {address}\nSubject: {subject}\n\n{}\n", alert.text);
    // Where mailers are that are not on everybody's path.
    let known = ["/usr/sbin/sendmail", "/usr/lib/sendmail"];
    let mailer = known.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("sendmail");
    give_and_wait(Command::new(mailer).args(["-t", "-oi"]), &text)
}

fn post(url: &str, alert: &Alert) -> Outcome {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
    let request = agent.post(url).content_type("application/json");
    request.send(as_json(alert)).map(|_| ()).map_err(|error| error.to_string())
}

/// Runs a process with `input`, to its end or that of our patience.
fn give_and_wait(command: &mut Command, input: &str) -> Outcome {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| system_text(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Short enough for a pipe; a process that does not read it may have its reasons.
        let _ = stdin.write_all(input.as_bytes());
    }
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Ok(None) => {
                end(&mut child);
                return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(system_text(&error)),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        // As much as a person reads; a process left behind may hold the other end open.
        let _ = stderr.take(500).read_to_string(&mut said);
    }
    Err(format!("{status}: {}", said.trim()))
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> Alert {
        Alert { pool: "tank".to_owned(), kind: "state", text: "it's degraded\"".to_owned() }
    }

    #[test]
    fn alert_commands_get_every_field_and_report_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("said");
        let command = format!(
            "cat > {0}; echo \"$STRIPEWISE_POOL $STRIPEWISE_KIND $STRIPEWISE_TEXT\" >> {0}",
            path.display()
        );
        assert_eq!(run_command(&command, &alert()), Ok(()));
        let said = std::fs::read_to_string(&path).expect("written");
        let expected = "{\"pool\":\"tank\",\"kind\":\"state\",\"text\":\"it's degraded\\\"\"}tank state it's degraded\"\n";
        assert_eq!(said, expected);
        let failed = run_command("echo no way >&2; exit 3", &alert()).expect_err("it failed");
        assert!(failed.contains('3') && failed.contains("no way"), "{failed}");
    }

    #[test]
    fn invalid_alert_addresses_are_refused() {
        assert!("root@localhost".parse::<MailAddress>().is_ok());
        for wrong in ["root", "a@b\nBcc: c@d", "a@b c", "-oQ/tmp@x"] {
            assert!(wrong.parse::<MailAddress>().is_err(), "{wrong}");
        }
        assert!("https://example.org/hook".parse::<WebAddress>().is_ok());
        assert!("file:///etc/passwd".parse::<WebAddress>().is_err());
    }
}
