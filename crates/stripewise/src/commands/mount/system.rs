//! `mount -o LIST`: a mount as mount(8) asks for it, from a line in `/etc/fstab` or `mount -t
//! stripewise`. The daemon mounts; at boot it may still be starting, so it is waited for.
//!
//! Expected faults: no daemon, or one that serves the pool too late; options with wrong values;
//! options that the file system does not know (its `mount` refuses them).

use std::io;
use std::str::FromStr;

use stripewise_control::file_system::FileSystem;
use stripewise_control::request::Mount;

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::pass_on::pass_on;

/// Default time to wait for the daemon and the pool, seconds: less than systemd's limit of 90 s.
const WAIT_SECONDS: u64 = 60;
/// Interval between attempts to connect to the daemon.
const CONNECT_AGAIN_NS: u64 = 100_000_000;
/// Options for mount(8), for systemd and for the network: they do not concern the file system.
const PASSED_OVER: [&str; 10] =
    ["defaults", "rw", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "group"];
const PASSED_OVER_BEGINNINGS: [&str; 3] = ["x-", "X-", "comment="];

/// Options as in `/etc/fstab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemOptions {
    /// Type of the file system on the volume.
    pub file_system: Option<FileSystem>,
    /// Maximum time to wait for the daemon, and for the pool, seconds.
    pub wait_seconds: u64,
    /// Options of the file system's own mount.
    pub of_mount: Vec<String>,
}

impl FromStr for SystemOptions {
    type Err = String;

    fn from_str(list: &str) -> std::result::Result<Self, String> {
        let mut options = Self { file_system: None, wait_seconds: WAIT_SECONDS, of_mount: Vec::new() };
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let is_passed_over = PASSED_OVER.contains(&option)
                || PASSED_OVER_BEGINNINGS.iter().any(|beginning| option.starts_with(beginning));
            match option.split_once('=') {
                Some(("fs", kind)) => options.file_system = Some(kind.parse()?),
                Some(("wait", seconds)) => {
                    let wrong = |_| format!("`{option}` is not a number of seconds, as in wait=120");
                    options.wait_seconds = seconds.parse().map_err(wrong)?;
                }
                _ if is_passed_over => {}
                _ => options.of_mount.push(option.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Has the daemon mount, after waiting for it.
pub(super) async fn by_daemon(request: Mount, wait_seconds: u64, app: &App) -> Result<Exit> {
    let (socket, executor) = (app.registry()?.control_path()?, app.executor()?);
    let context = executor.context();
    let end_ns = context.now_ns().saturating_add(wait_seconds.saturating_mul(1_000_000_000));
    loop {
        let error = match executor.network().connect_unix(&socket).await {
            Ok(_) => return pass_on(&socket, request.into(), app).await,
            Err(error) => error,
        };
        let may_be_starting =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        if !may_be_starting || context.now_ns() >= end_ns {
            let what =
                format!("no daemon mounts it: no answer at {} within {wait_seconds} s", socket.display());
            return Err(Failure::because(what, &error)
                .hint("start the daemon: systemctl start stripewise, or stripewise serve"));
        }
        context.sleep_ns(CONNECT_AGAIN_NS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_are_read_or_passed_over() {
        let read = "rw,fs=ext4,nofail,_netdev,x-systemd.requires=stripewise.service,noatime,wait=5,comment=a";
        let options: SystemOptions = read.parse().expect("options");
        assert_eq!((options.file_system, options.wait_seconds), (Some(FileSystem::Ext4), 5));
        assert_eq!(options.of_mount, ["noatime"]);
        let none: SystemOptions = "defaults".parse().expect("options");
        assert_eq!((none.file_system, none.wait_seconds, none.of_mount.len()), (None, WAIT_SECONDS, 0));
        assert!("fs=ntfs".parse::<SystemOptions>().is_err_and(|why| why.contains("xfs, ext4, btrfs")));
        assert!("wait=long".parse::<SystemOptions>().is_err_and(|why| why.contains("wait=120")));
    }
}
