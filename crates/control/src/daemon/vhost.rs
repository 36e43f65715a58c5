//! The daemon's server for vhost-user-blk: a socket for each volume in a folder.
//!
//! Expected faults: a folder that cannot be made or written; sockets of another process in it.

use std::path::Path;

use stripewise_export::budget::Budget;
use stripewise_export::vhost::{VhostLimits, VhostNotice, VhostServer};

use crate::control::Control;
use crate::daemon::refusals::Refusals;
use crate::failure::{Failure, Result};
use crate::pools::served::ServedExports;

/// Serves each volume at `folder/POOL/VOL`. Sockets appear as pools are opened.
pub fn open_vhost(folder: &Path, budget: &Budget, control: &Control) -> Result<VhostServer<ServedExports>> {
    let folder = control.absolute(folder);
    std::fs::create_dir_all(&folder).map_err(|error| {
        Failure::because(format!("cannot make sockets in {}", folder.display()), &error)
            .hint("use --vhost-user DIR with a folder that can be made or written, such as one in /run")
    })?;
    let refusals = Refusals::default();
    let notices = Box::new(move |notice: &VhostNotice| match notice {
        VhostNotice::Connected { peer, export } | VhostNotice::Ended { peer, export } => {
            tracing::info!(target: "client", peer, volume = export, "{notice}");
        }
        VhostNotice::TooMany { peer, .. } => {
            refusals.tell("vhost-user", peer, "too many front ends are connected");
        }
        // A front end that reconnects at once must not fill the log.
        VhostNotice::GivenUp { peer, export, why } => {
            refusals.tell("vhost-user", peer, &format!("as a client of {export}: {why}"));
        }
        VhostNotice::NotAccepted { place, .. } => tracing::warn!(target: "client", place, "{notice}"),
        VhostNotice::NoSocket { export, .. } => {
            tracing::warn!(target: "client", volume = export, "{notice}");
        }
    });
    let executor = control.executor()?;
    let exports = control.served.for_clients(control.registry()?);
    let limits = VhostLimits::default();
    let server = VhostServer::start(
        &executor.context(),
        &executor.network(),
        exports,
        &folder,
        limits,
        budget,
        notices,
    );
    control.note(format!("vhost-user sockets in {}", folder.display()));
    let mut listeners = control.served.listeners().borrow_mut();
    listeners.vhost = Some(server.clone());
    listeners.vhost_folder = Some(folder);
    Ok(server)
}
