//! FUSE mounts of volumes: checking the folder, mounting and unmounting.
//!
//! Expected faults: folders that are missing, not empty or in use; a stale mount of a killed
//! process; no FUSE; programs with open files at shutdown (the unmount waits for them).
//!
//! The executor's thread serves the mounted files, so it must not touch them: it would wait for
//! itself. Only external programs and other threads do.

pub mod file_system;
mod mounts;
mod program;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_export::fuse::{FuseLoad, FuseMount, Host, Tree};

use crate::control::Control;
use crate::failure::{Failure, Result, system_text};
use crate::registry::stacking::refuse_if_used;
use crate::registry::{Registry, running_as_root};

pub(crate) use self::mounts::what_is_mounted_at;
use self::program::{UTIL_LINUX, run};

/// Interval between attempts to unmount a folder in use.
const RETRY_NS: u64 = 1_000_000_000;

/// Resolves the folder that the caller typed, and checks that it can be a mount point.
pub fn free_folder(control: &Control, typed: &Path) -> Result<PathBuf> {
    let folder = control.absolute(typed);
    let shown = folder.display();
    let metadata = std::fs::metadata(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("cannot mount at {shown}: there is no such folder"))
            .hint(format!("mkdir {shown}")),
        io::ErrorKind::NotConnected => Failure::new(format!(
            "cannot mount at {shown}: a killed process left a stale mount there ({})",
            system_text(&error)
        ))
        .hint(format!("remove it with `fusermount3 -u {shown}`, or as root with `umount {shown}`")),
        _ => Failure::because(format!("cannot mount at {shown}"), &error),
    })?;
    if !metadata.is_dir() {
        return Err(Failure::new(format!("cannot mount at {shown}: it is not a folder"))
            .hint("name an empty folder, in which the volumes will appear"));
    }
    let unusable = |error: io::Error| Failure::because(format!("cannot mount at {shown}"), &error);
    let folder = std::fs::canonicalize(&folder).map_err(unusable)?;
    if let Some(mounted) = what_is_mounted_at(&folder).map_err(unusable)? {
        return Err(Failure::new(format!("cannot mount at {shown}: {mounted} is mounted there"))
            .hint(format!("unmount it with `umount {shown}`, or name another folder")));
    }
    if std::fs::read_dir(&folder).map_err(unusable)?.next().is_some() {
        return Err(Failure::new(format!("cannot mount at {shown}: the folder is not empty"))
            .hint("a mount would hide its contents; name an empty folder"));
    }
    Ok(folder)
}

/// Mounts volumes of the served pools as files at `folder`, as returned by [`free_folder`].
pub fn mount_fuse(control: &Control, tree: Tree, folder: &Path) -> Result<FuseMount> {
    // When this process allocates memory, the kernel must not wait for writeback through it.
    stripewise_runtime::become_io_flusher();
    let host = Rc::new(MountHost { control: control.clone(), registry: control.registry()? });
    let executor = control.executor()?;
    let (context, network) = (executor.context(), executor.network());
    let mounted = FuseMount::new(&context, &network, control.served.exports(), tree, folder, host);
    if let Ok(mount) = &mounted {
        control.own().note_mount(folder);
        control.served.listeners().borrow_mut().fuse.push(mount.load());
    }
    mounted.map_err(|error| {
        let failure = Failure::because(format!("cannot mount at {}", folder.display()), &error);
        match Path::new("/dev/fuse").exists() {
            false => Failure::new(format!("cannot mount at {}: there is no /dev/fuse", folder.display())).hint(
                "load FUSE with `modprobe fuse`; a container needs --device /dev/fuse and the right to mount",
            ),
            true => failure.hint(
                "mounting requires root, or fusermount3 (Debian package fuse3) and a folder that you own",
            ),
        }
    })
}

/// Unmounts, and waits while programs use the files; warns once about that. Returns when the mount
/// is gone, however it was removed. Fails if requests are pending and none has completed for
/// `seconds`.
pub async fn unmount_fuse(control: &Control, mount: &FuseMount, folder: &Path, seconds: u64) -> Result<()> {
    let unmounting = async {
        let unmounted = unmount(control, folder, || Ok(!mount.has_ended())).await;
        mount.until_ended().await;
        unmounted
    };
    match select(pin!(unmounting), pin!(until_stuck(control, &mount.load(), seconds))).await {
        Either::Left((unmounted, _)) => unmounted,
        Either::Right((stuck, _)) => {
            stuck?;
            Err(Failure::new(format!(
                "cannot unmount {}: no request to it has completed for {seconds} s",
                folder.display()
            ))
            .hint(format!(
                "the process exits as in a crash; `umount {}` removes the stale mount",
                folder.display()
            )))
        }
    }
}

/// Returns when requests are in flight and none has completed for `seconds`.
async fn until_stuck(control: &Control, load: &FuseLoad, seconds: u64) -> Result<()> {
    let context = control.executor()?.context();
    let (mut answered, mut since_ns) = (load.answered(), context.now_ns());
    loop {
        context.sleep_ns(RETRY_NS).await;
        if load.in_flight() == 0 || load.answered() != answered {
            (answered, since_ns) = (load.answered(), context.now_ns());
        } else if context.now_ns() - since_ns >= seconds.saturating_mul(1_000_000_000) {
            return Ok(());
        }
    }
}

/// Retries to unmount `folder` while `is_mounted`.
async fn unmount(control: &Control, folder: &Path, is_mounted: impl Fn() -> Result<bool>) -> Result<()> {
    let context = control.executor()?.context();
    let place = folder.as_os_str();
    let mut has_warned = false;
    while is_mounted()? {
        let unmounted = match running_as_root() {
            true => run("umount", UTIL_LINUX, &[place]).await,
            false => run("fusermount3", "fuse3", &["-u".as_ref(), place]).await,
        };
        match unmounted {
            Ok(_) => return Ok(()),
            Err(failure) if !has_warned => {
                has_warned = true;
                control.warning(format!("{}; retrying until it is no longer in use", failure.message));
                control.note(format!(
                    "hint: `fuser -vm {}` lists the programs that use it; a second signal exits at once, as in a crash",
                    folder.display()
                ));
            }
            Err(_) => {}
        }
        context.sleep_ns(RETRY_NS).await;
    }
    Ok(())
}

/// Connects the mount to the registry and to the output of this process.
struct MountHost {
    control: Control,
    registry: Registry,
}

impl Host for MountHost {
    fn keeps_from_writing(&self, volume: &str) -> Option<String> {
        let (pool, name) = volume.split_once('/')?;
        let what = format!("open {volume} for writing");
        refuse_if_used(&self.registry, &what, pool, Some(name)).err().map(|failure| failure.message)
    }

    fn remark(&self, text: String) {
        self.control.warning(text);
    }
}
