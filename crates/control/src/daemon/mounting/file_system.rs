//! A file system on a volume, mounted: the volume as a file in a private folder, a loop device on
//! it with direct I/O, a file system created if the volume is empty, and the mount. Undone from the
//! top when it ends, or when a step fails.
//!
//! The loop device is detached lazily as soon as it is mounted: it goes with its last user, so that
//! after a kill -9 `umount DIR` is all there is to do. Other leftovers of a killed process are
//! removed by the next one.
//!
//! Expected faults: a volume that holds other data, programs missing or failing, a volume that is
//! resized while it is mounted (the loop device follows), a mount that is in use at the end (waited
//! for).

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::{Either, select};
use stripewise_export::bridge::off_thread;
use stripewise_export::fuse::{FuseMount, Tree};

use super::program::{UTIL_LINUX, run};
use super::{mount_fuse, unmount, unmount_fuse, what_is_mounted_at};
use crate::control::Control;
use crate::daemon::serving::END_WITHIN_SECONDS;
use crate::drives::emptiness::{UNKNOWN_DATA, samples_hold_data};
use crate::drives::signatures;
use crate::failure::{Failure, Result};
pub use crate::notation::file_system::FileSystem;
use crate::notation::names::VolumeName;
use crate::notation::size::ByteSize;

impl FileSystem {
    /// Its name in `signatures.rs`.
    fn signature(self) -> &'static str {
        match self {
            Self::Xfs => "an XFS file system",
            Self::Ext4 => "an ext4 file system",
            Self::Btrfs => "a btrfs file system",
        }
    }

    /// The command that checks it for damage.
    fn checker(self) -> &'static str {
        match self {
            Self::Xfs => "xfs_repair -f",
            Self::Ext4 => "e2fsck -f",
            Self::Btrfs => "btrfs check",
        }
    }

    /// The command that grows it to the size of its device.
    fn grower(self, device: &str, folder: &Path) -> String {
        match self {
            Self::Xfs => format!("xfs_growfs {}", folder.display()),
            Self::Ext4 => format!("resize2fs {device}"),
            Self::Btrfs => format!("btrfs filesystem resize max {}", folder.display()),
        }
    }

    /// The program that creates it, and its package.
    fn maker(self) -> (&'static str, &'static str) {
        match self {
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }
}

/// Number of file systems that this process has mounted.
static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// A volume's file system to be mounted at a folder.
pub struct Wanted<'a> {
    /// The volume; its pool is served.
    pub volume: &'a VolumeName,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// The file system wanted.
    pub kind: FileSystem,
    /// The mount point: a folder that was checked to be free.
    pub folder: &'a Path,
    /// Options of `mount`.
    pub options: &'a [String],
}

impl Wanted<'_> {
    /// Mounts it, does `work`, and unmounts everything again. `work` has to end when
    /// [`Self::until_unmounted`] does.
    pub async fn mounted(&self, control: &Control, work: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let number = MOUNTS.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            remove_what_killed_ones_left(control).await?;
        }
        let private = make_private_folder(control, number)?;
        let mounted = mount_fuse(control, Tree::Volumes(self.volume.pool.clone()), &private);
        let result = match mounted {
            Ok(fuse) => {
                let result = self.on_a_loop_device(control, &fuse, &private, work).await;
                result.and(unmount_fuse(control, &fuse, &private, END_WITHIN_SECONDS).await)
            }
            Err(failure) => Err(failure),
        };
        // The next process removes what is left of it.
        let _ = std::fs::remove_dir(&private);
        result
    }

    /// Waits until another process has unmounted it.
    pub async fn until_unmounted(&self, control: &Control) -> Result<()> {
        let context = control.executor()?.context();
        while self.is_mounted()? {
            context.sleep_ns(super::RETRY_NS).await;
        }
        Ok(())
    }

    /// True while something is mounted at the folder.
    pub(super) fn is_mounted(&self) -> Result<bool> {
        let mounted = what_is_mounted_at(self.folder);
        Ok(mounted.map_err(|error| Failure::because("cannot list mounts", &error))?.is_some())
    }

    async fn on_a_loop_device(
        &self,
        control: &Control,
        fuse: &FuseMount,
        private: &Path,
        work: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let file = private.join(&self.volume.volume);
        let is_empty = self.holds_nothing(&file).await?;
        let words: [&OsStr; 4] =
            ["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), file.as_ref()];
        let device = run("losetup", UTIL_LINUX, &words).await?.trim().to_owned();
        let result = self.on(control, (&device, &file), is_empty, work).await;
        // It has gone with its mount, unless there was none.
        while !fuse.has_ended() && is_attached(&device, &file) {
            if let Err(failure) = run("losetup", UTIL_LINUX, &["--detach".as_ref(), device.as_ref()]).await {
                control.warning(failure.message);
            }
            control.executor()?.context().sleep_ns(super::RETRY_NS / 10).await;
        }
        result
    }

    async fn on(
        &self,
        control: &Control,
        (device, file): (&str, &Path),
        is_empty: bool,
        work: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let kind = self.kind.name();
        if is_empty {
            let (maker, package) = self.kind.maker();
            control.note(format!("{} is empty: creating {} on it", self.volume, self.kind.signature()));
            run(maker, package, &["-q".as_ref(), device.as_ref()]).await?;
        }
        let options = self.options.join(",");
        let words: [&OsStr; 6] = [
            "-t".as_ref(),
            kind.as_ref(),
            "-o".as_ref(),
            if options.is_empty() { "rw" } else { options.as_str() }.as_ref(),
            device.as_ref(),
            self.folder.as_ref(),
        ];
        run("mount", UTIL_LINUX, &words).await.map_err(|failure| {
            let message =
                format!("cannot mount {} at {}: {}", self.volume, self.folder.display(), failure.message);
            let hint = failure.hint.unwrap_or_else(|| {
                format!(
                    "`dmesg` says why: the kernel does not know {kind} (`modprobe {kind}`), or the file system is damaged (`stripewise \
                     mount {} DIR` shows it as a file for {})",
                    self.volume.pool,
                    self.kind.checker()
                )
            });
            Failure::new(message).hint(hint)
        })?;
        // The device is in use, so this only makes it go with its last user.
        let detached = run("losetup", UTIL_LINUX, &["--detach".as_ref(), device.as_ref()]).await;
        let result = match detached {
            Ok(_) => match select(pin!(work()), pin!(self.follow_size(control, device, file))).await {
                Either::Left((done, _)) => done,
                Either::Right((failed, _)) => failed,
            },
            Err(failure) => Err(failure),
        };
        result.and(unmount(control, self.folder, || self.is_mounted()).await)
    }

    /// Resizes the loop device with the volume, and names the command that grows the file system,
    /// which is the user's decision. Ends only on an error.
    async fn follow_size(&self, control: &Control, device: &str, file: &Path) -> Result<()> {
        let context = control.executor()?.context();
        let (name, mut known) = (self.volume.to_string(), self.size_bytes);
        loop {
            context.sleep_ns(super::RETRY_NS).await;
            // A pool that is closed for a while has no sizes.
            let size = control.served.exports().size_bytes(&name).unwrap_or(known);
            if size == known {
                continue;
            }
            known = size;
            // The kernel does not ask for the file's size by itself.
            let looked_at = file.to_owned();
            let _ = off_thread(move || std::fs::metadata(looked_at)).await;
            match run("losetup", UTIL_LINUX, &["--set-capacity".as_ref(), device.as_ref()]).await {
                Ok(_) => control.note(format!(
                    "volume {name} is resized to {}, and {device} with it; to grow the file system: `{}`",
                    ByteSize(size),
                    self.kind.grower(device, self.folder)
                )),
                Err(failure) => control.warning(format!(
                    "volume {name} is resized to {}, but {device} keeps its size until it is \
                     mounted again: {}",
                    ByteSize(size),
                    failure.message
                )),
            }
        }
    }

    /// True if the volume is empty and a file system is to be created; an error if it holds
    /// anything but the one wanted.
    async fn holds_nothing(&self, file: &Path) -> Result<bool> {
        let (path, size_bytes) = (file.to_owned(), self.size_bytes);
        let looked = off_thread(move || -> io::Result<_> {
            let file = File::open(path)?;
            let found = signatures::find(&file, size_bytes)?;
            let has_data = found.is_empty() && samples_hold_data(&file, size_bytes, &AtomicBool::new(false))?;
            Ok((found, has_data))
        });
        let (found, has_data) = looked
            .await
            .and_then(|looked| looked)
            .map_err(|error| Failure::because(format!("cannot read what {} holds", self.volume), &error))?;
        let what: Vec<String> = found.iter().map(ToString::to_string).collect();
        match found.as_slice() {
            [] if !has_data => Ok(true),
            [one] if one.what == self.kind.signature() => Ok(false),
            [] => Err(self.refused(UNKNOWN_DATA)),
            _ => Err(self.refused(&what.join(" and "))),
        }
    }

    fn refused(&self, what: &str) -> Failure {
        let (volume, kind) = (self.volume, self.kind.name());
        Failure::new(format!("cannot mount {volume} as {kind}: it holds {what}")).hint(format!(
            "name its file system with --fs; or, to destroy all data on it, \
             `stripewise volume delete {volume} --yes` and create it again"
        ))
    }
}

/// True if the loop device still has the file.
fn is_attached(device: &str, file: &Path) -> bool {
    backing_file(device).is_some_and(|backing| backing == file)
}

/// The file of a loop device.
pub(super) fn backing_file(device: &str) -> Option<PathBuf> {
    let name = Path::new(device).file_name()?;
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    Some(PathBuf::from(std::fs::read_to_string(backing).ok()?.trim_end()))
}

/// Creates HOME/mounts/PID.NUMBER, for this user only.
fn make_private_folder(control: &Control, number: u64) -> Result<PathBuf> {
    let folder = control.registry()?.mounts_path().join(format!("{}.{number}", std::process::id()));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // Resolved, as the kernel will name it.
    made.and_then(|()| std::fs::canonicalize(&folder))
        .map_err(|error| Failure::because(format!("cannot create the folder {}", folder.display()), &error))
}

/// Unmounts folders left by killed processes; they serve nothing any more. Called before the first
/// mount of a process, so that a folder with its number is an earlier process's.
async fn remove_what_killed_ones_left(control: &Control) -> Result<()> {
    let Ok(folders) = std::fs::read_dir(control.registry()?.mounts_path()) else { return Ok(()) };
    for folder in folders.flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let process = name.split('.').next().unwrap_or_default();
        let is_dead = !Path::new("/proc").join(process).exists();
        let folder = folder.path();
        if is_dead || process == std::process::id().to_string() {
            // It fails where it is unmounted already, or a file system on it is still mounted.
            let _ = run("umount", UTIL_LINUX, &[folder.as_os_str()]).await;
            let _ = std::fs::remove_dir(&folder);
        }
    }
    Ok(())
}
