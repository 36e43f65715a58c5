//! `alert test`: has the daemon send an alert, and tells what came of it.
//!
//! Expected faults: no daemon, a daemon without any way to send, ways that fail.

use clap::Args;
use stripewise_control::daemon::alerts::Alert;
use stripewise_control::request::TestAlerts;
use stripewise_control::response::{AlertsTested, Response};

use crate::commands::App;
use crate::failure::{Failure, Reason, Result};

/// Send a test alert through every configured channel
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> TestAlerts {
        TestAlerts {}
    }
}

/// Runs it.
pub(crate) async fn run(_asked: &TestAlerts, app: &App) -> Result<Response> {
    if app.commands_at().is_none() {
        return Err(elsewhere(app)?);
    }
    let nothing = || {
        Failure::new("the daemon was given no way to send alerts").hint(
            "start it with --alert-command COMMAND, --alert-mail ADDRESS or --alert-webhook URL, each as often as you like",
        )
    };
    let alerts = app.alerts().ok_or_else(nothing)?;
    let text = "this is a test: alerts of this machine's pools arrive here".to_owned();
    let answered = alerts.send(Alert { pool: String::new(), kind: "test", text });
    let answered = answered.ok_or_else(|| Failure::new("too many alerts wait to be sent already"))?;
    let ended = |_| Failure::new("alerts are sent no more: the daemon is ending");
    Ok(Response::AlertsTested(AlertsTested { sent: answered.await.map_err(ended)? }))
}

/// That the daemon is to do this, if one runs.
fn elsewhere(app: &App) -> Result<Failure> {
    let path = app.home()?.control_path()?;
    let failure = Failure::new("no daemon runs that could send alerts").hint("`stripewise serve` starts one");
    Ok(if path.exists() { Failure { reason: Reason::TakenAt(path), ..failure } } else { failure })
}
