//! The light of a drive's slot: by the enclosure's file in `/sys`, else by `ledctl` (ledmon).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::sysfs;
use crate::drives::programs;
use crate::failure::{Failure, Result};

/// Places of `ledctl`: a daemon must not run what another user puts on its path.
const PROGRAMS: [&str; 2] = ["/usr/sbin/ledctl", "/usr/bin/ledctl"];

/// Enclosures answer in less.
const LIMIT: Duration = Duration::from_secs(10);

/// Switches the light of the slot of a block device on or off. Blocks the thread.
///
/// # Errors
/// If the drive is no block device, or nothing here can reach its light.
pub(crate) fn set_light(device: &Path, on: bool) -> Result<()> {
    let shown = device.display();
    let Some(folder) = sysfs::folder_of(device) else {
        return Err(Failure::new(format!("{shown} is no block device: it has no light"))
            .hint("`stripewise drive show` says where a drive is"));
    };
    if let Some(slot) = sysfs::enclosure_folder(&folder) {
        let value = if on { "1" } else { "0" };
        return fs::write(slot.join("locate"), value).map_err(|error| {
            Failure::because(format!("cannot switch the light of {shown}"), &error)
                .hint("run it as root; `ledctl` of the package ledmon reaches other enclosures")
        });
    }
    let Some(program) = PROGRAMS.into_iter().find(|program| Path::new(program).exists()) else {
        return Err(Failure::new(format!("the slot of {shown} has no light that the kernel knows"))
            .hint("install ledmon, whose `ledctl` reaches lights of backplanes"));
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let order = format!("{}=/dev/{name}", if on { "locate" } else { "locate_off" });
    match programs::run(Command::new(program).arg(order).stdin(Stdio::null()), device, LIMIT, 0) {
        Some((status, _)) if status.success() => Ok(()),
        Some((status, _)) => {
            Err(Failure::new(format!("cannot switch the light of {shown}: {program}: {status}"))
                .hint("run it as root; `ledctl` by hand says more"))
        }
        None => Err(Failure::new(format!("cannot switch the light of {shown}: {program} does not end"))),
    }
}
