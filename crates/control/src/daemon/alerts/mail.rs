//! An alert as a mail, sent by this machine's `sendmail`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::daemon::alerts::processes::Processes;
use crate::daemon::alerts::{Alert, Outcome};

/// Maximum bytes of a line of a mail, without its end (RFC 5322).
const MAIL_LINE_BYTES: usize = 998;

pub(super) fn send_mail(processes: &mut Processes, address: &str, alert: &Alert) -> Outcome {
    let text = mail_text(address, alert);
    processes.run(Command::new(mailer()).args(["-t", "-oi"]), &text)
}

/// This machine's `sendmail`: of `PATH`, else of a folder that an ordinary user's `PATH` lacks.
fn mailer() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let of_path = env::split_paths(&path);
    let folders = of_path.chain(["/usr/sbin".into(), "/usr/lib".into()]);
    let mut mailers = folders.map(|folder| folder.join("sendmail"));
    mailers.find(|mailer| mailer.exists()).unwrap_or_else(|| "sendmail".into())
}

/// The mail: the subject has host, pool and state, the body what happened, the drives concerned,
/// what is left, and the next command.
fn mail_text(address: &str, alert: &Alert) -> String {
    let Alert { pool, kind, host, .. } = alert;
    let subject = match alert.state {
        Some(state) => format!("{host}: pool {pool} is {state} ({kind})"),
        None => format!("{host}: {kind}"),
    };
    let kind = "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit";
    let mut text = format!("To: {address}\nSubject: Stripewise on {subject}\n{kind}\n\n");
    lines(&alert.text).for_each(|line| text.push_str(&format!("{line}\n")));
    let mut add = |label: &str, value: &str| text.push_str(&format!("{label:>8}: {value}\n"));
    add("host", host);
    for drive in &alert.drives {
        let serial = drive.serial.as_ref().map_or_else(String::new, |serial| format!(", serial {serial}"));
        add("drive", &format!("{}{serial}, {}, ID {}", drive.path, drive.state, drive.id));
    }
    alert.left.iter().for_each(|left| add("left", left));
    if !alert.action.is_empty() {
        add("next", &alert.action);
    }
    text
}

/// A text in lines that a mail may have: of at most 998 bytes (RFC 5322), divided after a semicolon
/// if there is one.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.floor_char_boundary(MAIL_LINE_BYTES);
        let end = if end == rest.len() { end } else { rest[..end].rfind("; ").map_or(end, |at| at + 2) };
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::hardware::Hardware;
    use crate::messages::report::{DriveReport, DriveState, PoolReport, PoolState};

    #[test]
    fn a_mail_names_drive_rest_and_next_command() {
        let hardware = Hardware { serial: Some("Z1".into()), ..Hardware::default() };
        let drive = |path: &str, state| DriveReport {
            id: "7".into(),
            path: path.into(),
            state,
            hardware: hardware.clone(),
            ..DriveReport::default()
        };
        let report = PoolReport {
            name: "tank".into(),
            state: PoolState::Degraded,
            drives: vec![
                drive("/dev/sda", DriveState::Online),
                drive("/dev/sdb", DriveState::Missing),
                drive("/dev/sdc", DriveState::Online),
            ],
            action: "stripewise pool replace tank 7 NEW-DRIVE".into(),
            ..PoolReport::default()
        };
        let alert = Alert::of_pool(&report, "drive", "/dev/sdc had 2 read errors");
        let alert = Alert { host: "vm".into(), left: vec!["volume a can lose 1 more drive".into()], ..alert };
        assert_eq!(
            mail_text("root@localhost", &alert),
            "To: root@localhost\n\
             Subject: Stripewise on vm: pool tank is degraded (drive)\n\
             MIME-Version: 1.0\n\
             Content-Type: text/plain; charset=utf-8\n\
             Content-Transfer-Encoding: 8bit\n\n\
             /dev/sdc had 2 read errors\n    \
             host: vm\n   \
             drive: /dev/sdb, serial Z1, missing, ID 7\n   \
             drive: /dev/sdc, serial Z1, online, ID 7\n    \
             left: volume a can lose 1 more drive\n    \
             next: stripewise pool replace tank 7 NEW-DRIVE\n"
        );
    }

    #[test]
    fn no_line_of_a_mail_is_too_long() {
        let text = format!("{}; {}", "ä".repeat(400), "b".repeat(2500));
        let divided: Vec<&str> = lines(&text).collect();
        assert_eq!(divided[0], format!("{};", "ä".repeat(400)));
        assert!(divided.iter().all(|line| line.len() <= MAIL_LINE_BYTES && !line.is_empty()));
        assert_eq!(divided.concat(), text.replace(' ', ""));
    }
}
