//! Mounts that the daemon keeps: `mount` for a pool that a daemon has, and `umount`.
//!
//! Expected faults: folders that cannot be mount points, volumes with other contents, mounts in
//! use, no daemon.

use crate::control::Control;
use crate::daemon::mounting::kept;
use crate::failure::{Failure, Reason, Result};
use crate::messages::request::{Mount, Unmount};
use crate::messages::response::{Mounted, Response};

/// Mounts in the daemon.
pub async fn mount(asked: &Mount, control: &Control) -> Result<Response> {
    // Several seconds for a new file system: other commands go on.
    control.without_turn(kept::mount(control, asked)).await?;
    let target = asked.volume.as_ref().map_or_else(|| asked.pool.0.clone(), ToString::to_string);
    Ok(Response::Mounted(Mounted { target, folder: control.absolute(&asked.folder), mounted: true }))
}

/// Ends a mount of the daemon.
pub async fn unmount(asked: &Unmount, control: &Control) -> Result<Response> {
    if control.commands_at().is_none() {
        let path = control.registry()?.control_path()?;
        let failure = Failure::new("no daemon is running, so none has mounted anything")
            .hint("`stripewise mount` in the foreground ends with Ctrl-C; `umount DIR` ends any mount");
        return Err(if path.exists() {
            Failure { reason: Reason::TakenAt(path), ..failure }
        } else {
            failure
        });
    }
    let kept = control.without_turn(kept::unmount(control, &asked.target)).await?;
    Ok(Response::Mounted(Mounted { target: kept.target(), folder: kept.folder, mounted: false }))
}
