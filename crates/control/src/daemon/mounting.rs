//! Folders where volumes are mounted: whether one can take them, mounting, and unmounting again in
//! order.
//!
//! Expected faults: folders that are not there, not empty or in use; what a killed process left
//! mounted; no FUSE; programs that have files open when everything is to end (they are waited for:
//! nothing is taken from under them).
//!
//! While something is mounted, nothing here touches the files in it on the executor's thread, which
//! would wait for itself: what does is a program, or a thread of its own.

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

/// How often it is tried again to unmount what somebody uses.
const RETRY_NS: u64 = 1_000_000_000;

/// The folder that the caller means by `typed`, if something can be mounted there.
pub fn free_folder(control: &Control, typed: &Path) -> Result<PathBuf> {
    let folder = control.absolute(typed);
    let shown = folder.display();
    let metadata = std::fs::metadata(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("cannot mount at {shown}: there is no such folder"))
            .hint(format!("mkdir {shown}")),
        io::ErrorKind::NotConnected => Failure::new(format!(
            "cannot mount at {shown}: a process that was killed left its mount there ({})",
            system_text(&error)
        ))
        .hint(format!("remove what it left: `fusermount3 -u {shown}`, or as root `umount {shown}`")),
        _ => Failure::because(format!("cannot mount at {shown}"), &error),
    })?;
    if !metadata.is_dir() {
        return Err(Failure::new(format!("cannot mount at {shown}: it is not a folder"))
            .hint("name an empty folder; the volumes appear in it"));
    }
    let unusable = |error: io::Error| Failure::because(format!("cannot mount at {shown}"), &error);
    let folder = std::fs::canonicalize(&folder).map_err(unusable)?;
    if let Some(mounted) = what_is_mounted_at(&folder).map_err(unusable)? {
        return Err(Failure::new(format!("cannot mount at {shown}: {mounted} is mounted there"))
            .hint(format!("`umount {shown}` ends that; or name another folder")));
    }
    if std::fs::read_dir(&folder).map_err(unusable)?.next().is_some() {
        return Err(Failure::new(format!("cannot mount at {shown}: the folder is not empty"))
            .hint("what is in it would be hidden; name an empty folder"));
    }
    Ok(folder)
}

/// Mounts volumes of the pools served as files at `folder`, which was found free.
pub fn mount_fuse(control: &Control, tree: Tree, folder: &Path) -> Result<FuseMount> {
    // The kernel must not wait for what is written through this process while it gives it memory.
    stripewise_runtime::become_io_flusher();
    let host = Rc::new(Told { control: control.clone(), registry: control.registry()? });
    let executor = control.executor()?;
    let (context, network) = (executor.context(), executor.network());
    let mounted = FuseMount::new(&context, &network, control.served.exports(), tree, folder, host);
    if let Ok(mount) = &mounted {
        control.served.listeners().borrow_mut().fuse.push(mount.load());
    }
    mounted.map_err(|error| {
        let failure = Failure::because(format!("cannot mount at {}", folder.display()), &error);
        match Path::new("/dev/fuse").exists() {
            false => Failure::new(format!("cannot mount at {}: there is no /dev/fuse", folder.display())).hint(
                "FUSE is needed: `modprobe fuse`; in a container, --device /dev/fuse with the right to mount",
            ),
            true => failure.hint(
                "mounting needs root, or fusermount3 (Debian's package fuse3), and a folder of your own",
            ),
        }
    })
}

/// Unmounts; waits while programs use what is mounted, and says so once. Ends when it is mounted no
/// more, whatever unmounted it; with an error if none of the requests there is answered for so many
/// seconds.
pub async fn unmount_fuse(control: &Control, mount: &FuseMount, folder: &Path, seconds: u64) -> Result<()> {
    let unmounting = async {
        let told = unmount(control, folder, || Ok(!mount.has_ended())).await;
        mount.until_ended().await;
        told
    };
    match select(pin!(unmounting), pin!(until_stuck(control, &mount.load(), seconds))).await {
        Either::Left((told, _)) => told,
        Either::Right((stuck, _)) => {
            stuck?;
            Err(Failure::new(format!(
                "{} could not be unmounted: requests of its users are not answered for {seconds} s",
                folder.display()
            ))
            .hint(format!("it ends as after a crash; `umount {}` removes what is left", folder.display())))
        }
    }
}

/// Ends when requests are under way and none was answered for so many seconds.
async fn until_stuck(control: &Control, load: &FuseLoad, seconds: u64) -> Result<()> {
    let context = control.executor()?.context();
    let (mut answered, mut since_ns) = (load.answered(), context.now_ns());
    loop {
        context.sleep_ns(RETRY_NS).await;
        if load.under_way() == 0 || load.answered() != answered {
            (answered, since_ns) = (load.answered(), context.now_ns());
        } else if context.now_ns() - since_ns >= seconds.saturating_mul(1_000_000_000) {
            return Ok(());
        }
    }
}

/// Unmounts what is at `folder`, for as long as `is_mounted`.
async fn unmount(control: &Control, folder: &Path, is_mounted: impl Fn() -> Result<bool>) -> Result<()> {
    let context = control.executor()?.context();
    let place = folder.as_os_str();
    let mut said = false;
    while is_mounted()? {
        let unmounted = match running_as_root() {
            true => run("umount", UTIL_LINUX, &[place]).await,
            false => run("fusermount3", "fuse3", &["-u".as_ref(), place]).await,
        };
        match unmounted {
            Ok(_) => return Ok(()),
            Err(failure) if !said => {
                said = true;
                control.warning(format!("{}; trying on until nobody uses it", failure.message));
                control.note(format!(
                    "hint: `fuser -vm {}` shows who does; a second signal ends this at once, as a crash would",
                    folder.display()
                ));
            }
            Err(_) => {}
        }
        context.sleep_ns(RETRY_NS).await;
    }
    Ok(())
}

/// Whoever runs this process is told.
struct Told {
    control: Control,
    registry: Registry,
}

impl Host for Told {
    fn keeps_from_writing(&self, volume: &str) -> Option<String> {
        let (pool, name) = volume.split_once('/')?;
        let what = format!("open {volume} for writing");
        refuse_if_used(&self.registry, &what, pool, Some(name)).err().map(|failure| failure.message)
    }

    fn remark(&self, text: String) {
        self.control.warning(text);
    }
}
