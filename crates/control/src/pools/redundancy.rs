//! Notes on the redundancy that remains without a drive. Determined before it leaves, and shown
//! once it has left: a refused command changes nothing.

use stripewise_pool::{DriveId, PoolError};

use crate::failure::{Result, pool_failure};
use crate::messages::report::counted;
use crate::pools::session::Session;

/// Describes the remaining redundancy of the volumes on a drive without that drive. `when` begins
/// the sentence: "while /d/1 is offline".
pub(crate) fn notes_without(session: &Session, id: DriveId, when: &str) -> Result<Vec<String>> {
    let failed = |error: PoolError| {
        pool_failure(format!("cannot determine the redundancy of pool `{}`", session.name()), &error)
    };
    let left = session.pool.redundancy_without(id).map_err(failed)?;
    let note = |(volume, left): (String, usize)| {
        let can = match left {
            0 => "has no redundancy left".to_owned(),
            left => format!("survives the loss of {}", counted(left, "more drive")),
        };
        format!("{when}, volume {}/{volume} {can}", session.name())
    };
    Ok(left.into_iter().map(note).collect())
}
