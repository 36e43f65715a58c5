//! Work on a pool's jobs in the foreground, with progress as people see it.

use stripewise_control::jobs::{self, Done};
use stripewise_control::pools::session::Session;
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::progress::Progress;

/// Works until no job of the kind is left, and shows how that goes on.
pub(crate) async fn work(app: &App, session: &Session, kind: JobKind) -> Result<Done> {
    let name = session.pool.name();
    let mut progress = Progress::new(&app.printer);
    let working = jobs::work(app, session, kind, |job| {
        let what = match job.volume.as_str() {
            "" => format!("{kind} of {name}"),
            volume => format!("{kind} of {name}/{volume}"),
        };
        progress.update(&what, job.percent, job.mb_per_s, job.seconds_left);
    });
    working.await
}
