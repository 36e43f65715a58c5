//! `alert test`: has the daemon send a test alert, and reports the outcome.
//!
//! Expected faults: no daemon, a daemon without channels for alerts, channels that fail.

use crate::control::Control;
use crate::daemon::alerts::Alert;
use crate::failure::{Failure, Reason, Result};
use crate::messages::request::TestAlerts;
use crate::messages::response::{AlertsTested, Response};

/// Sends a test alert.
pub async fn run(_asked: &TestAlerts, control: &Control) -> Result<Response> {
    if control.commands_at().is_none() {
        return Err(elsewhere(control)?);
    }
    let nothing = || {
        Failure::new("the daemon was given no way to send alerts").hint(
            "start it with --alert-command COMMAND, --alert-mail ADDRESS, --alert-webhook URL or \
             --alert-webhook-file FILE; each may be given several times",
        )
    };
    let alerts = control.alerts().ok_or_else(nothing)?;
    let text = "this is a test: alerts of this machine's pools arrive here";
    let answered = alerts.send(Alert::new("test", text));
    let answered = answered.ok_or_else(|| Failure::new("too many alerts are queued already"))?;
    let ended = |_| Failure::new("alerts are no longer sent: the daemon is shutting down");
    Ok(Response::AlertsTested(AlertsTested { sent: control.without_turn(answered).await.map_err(ended)? }))
}

/// The failure that refers the command to the daemon, if one runs.
fn elsewhere(control: &Control) -> Result<Failure> {
    let path = control.registry()?.control_path()?;
    let failure = Failure::new("no daemon is running to send alerts").hint("`stripewise serve` starts one");
    Ok(if path.exists() { Failure { reason: Reason::TakenAt(path), ..failure } } else { failure })
}
