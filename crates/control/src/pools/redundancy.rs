//! Notes on the redundancy that remains without a drive, shown before it leaves.

use stripewise_pool::{DriveId, PoolError};

use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::report::{DriveReport, counted};
use crate::pools::session::Session;

/// Notes the remaining redundancy of the volumes on a drive without that drive. `when` begins the
/// sentence: "while /d/1 is offline".
pub(crate) fn tell_without(
    control: &Control,
    session: &Session,
    drive: &DriveReport,
    id: DriveId,
    when: &str,
) -> Result<()> {
    let failed = |error: PoolError| {
        pool_failure(format!("cannot determine the redundancy of pool `{}`", session.name()), &error)
    };
    for (volume, left) in session.pool.redundancy_without(id).map_err(failed)? {
        let name = format!("{}/{volume}", session.name());
        let can = match left {
            0 => "has no redundancy left".to_owned(),
            left => format!("survives the loss of {}", counted(left, "more drive")),
        };
        // The loss of a drive that is already out of service changes nothing.
        match drive.state.takes_part() {
            true => control.note(format!("{when}, volume {name} {can}")),
            false => control.note(format!("volume {name} {can}")),
        }
    }
    Ok(())
}
