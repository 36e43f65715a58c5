//! What redundancy remains when a drive goes: said before it does.

use stripewise_engine::pool::{DriveId, PoolError};

use crate::commands::App;
use crate::failure::Result;
use crate::report::{DriveReport, counted, takes_part};
use crate::session::{Session, pool_failure};

/// Tells what the volumes on a drive can lose without it. `when` begins the sentence: "while /d/1
/// is offline".
pub fn tell_without(
    app: &App,
    session: &Session,
    drive: &DriveReport,
    id: DriveId,
    when: &str,
) -> Result<()> {
    let failed = |error: PoolError| {
        pool_failure(format!("cannot tell what remains of pool `{}`", session.name()), &error)
    };
    for (volume, left) in session.pool.redundancy_without(id).map_err(failed)? {
        let name = format!("{}/{volume}", session.name());
        let can = match left {
            0 => "survives the loss of no drive".to_owned(),
            left => format!("survives the loss of {}", counted(left, "more drive")),
        };
        // A drive that is out already takes nothing with it.
        let when = if takes_part(&drive.state) { when } else { "as it is now" };
        app.printer.note(format!("{when}, volume {name} {can}"));
    }
    Ok(())
}
