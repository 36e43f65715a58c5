//! What redundancy remains when a drive goes: said before it does.

use stripewise_engine::pool::{DriveId, PoolError};

use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::report::{DriveReport, counted};
use crate::pools::session::Session;

/// Tells what the volumes on a drive can lose without it. `when` begins the sentence: "while /d/1
/// is offline".
pub(crate) fn tell_without(
    control: &Control,
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
        let when = if drive.state.takes_part() { when } else { "as it is now" };
        control.note(format!("{when}, volume {name} {can}"));
    }
    Ok(())
}
