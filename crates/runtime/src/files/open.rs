//! Opening a drive: the kind of file at the path, its lock, and the I/O that it supports.
//!
//! Expected faults: no such path, a path that is neither file nor block device, no permission,
//! another process (or this one) that has the drive open, a file too small to hold anything, and
//! file systems that cannot bypass the page cache (then it is used, with a notice).

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use stripewise_drive::{DriveInfo, DriveKind};

use crate::files::alignment::{Alignment, direct_alignment};
use crate::files::block_device;
use crate::files::common::Common;
use crate::files::file_drive::FileDrive;
use crate::files::identity::DriveIdentity;
use crate::files::lock::{self, Holder};
use crate::files::open_handle::OpenHandle;
use crate::files::opened::{Notice, Opened, ZeroMethod};
use crate::files::small_file::OPEN_ANY_KIND;
use crate::process::means::{is_out_of_means, is_superuser};
use crate::ring::Ring;

/// Requests worth having in flight on one file or device. On a virtual disk fio's 4 KiB random
/// reads and writes gained at each step from depth 16 over 32 to 64 and nothing more at 128
/// (medians of 5 runs of 1 s: 78, 88, 102 and 109 thousand reads per second, 40, 57, 74 and 74
/// thousand writes, where single runs differ by a third).
const QUEUE_DEPTH: u32 = 64;
/// Bytes worth having in flight on one file or device.
const QUEUE_BYTES: u64 = 16 << 20;
/// Maximum length of merged requests, bytes.
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// Bytes that a rotating disk transfers in the time of one seek, a cautious figure: a virtual disk
/// on flash may call itself rotating, too.
const DISK_GAP_BYTES: u64 = 128 << 10;
/// Minimum size of a drive, bytes.
const LEAST_BYTES: u64 = 4096;
/// Time to wait for a drive whose user is gone: the kernel cleans up after a killed process a
/// little later.
const DEAD_HOLDER_PATIENCE: Duration = Duration::from_secs(2);
/// Time to wait for a drive with an unknown user: the lock may be stale.
const UNKNOWN_HOLDER_PATIENCE: Duration = Duration::from_millis(200);
/// Numbers of file systems.
type FileSystemType = i64;
/// Those that may wait for a server when a file is closed: FUSE, NFS, SMB (three drivers), Ceph and
/// 9P.
const MAY_WAIT: [FileSystemType; 7] =
    [0x6573_5546, 0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997];
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Options for opening a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Only reads are allowed; writes fail with `Denied`.
    pub read_only: bool,
    /// Keep every other process away (a shared lock when `read_only`), and fail if one has the
    /// drive open.
    pub lock: bool,
    /// Use the page cache even where it could be bypassed.
    pub buffered: bool,
}

impl Default for OpenOptions {
    /// For reading and writing, locked, bypassing the page cache where possible.
    fn default() -> Self {
        Self { read_only: false, lock: true, buffered: false }
    }
}

/// Error of opening a drive.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path does not exist.
    #[error("{}: no such file or device", path.display())]
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is not a file or block device.
    #[error("{}: this is {what}, not a drive", path.display())]
    NotADrive {
        /// The path asked for.
        path: PathBuf,
        /// The kind of file, with its article.
        what: &'static str,
    },
    /// No permission, or the file system is read-only.
    #[error("{}: opening it is not permitted", path.display())]
    Denied {
        /// The path asked for.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The drive is in use.
    #[error("{}: it is in use by {holder}", path.display())]
    Busy {
        /// The path asked for.
        path: PathBuf,
        /// The user of the drive, as far as the system reports it.
        holder: Holder,
    },
    /// The drive is too small.
    #[error("{}: it holds {size_bytes} bytes, and a drive needs at least {least_bytes}", path.display())]
    TooSmall {
        /// The path asked for.
        path: PathBuf,
        /// Its size, in bytes.
        size_bytes: u64,
        /// The minimum size, in bytes.
        least_bytes: u64,
    },
    /// The device's blocks are larger than supported.
    #[error("{}: its blocks of {block_bytes} bytes are larger than the 4096 bytes supported", path.display())]
    BlockTooLarge {
        /// The path asked for.
        path: PathBuf,
        /// Its logical block, in bytes.
        block_bytes: u32,
    },
    /// Any other error of the system.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// The path asked for.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn from_io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => Self::NotFound { path },
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Self::Denied { path, source },
            Some(libc::EBUSY) => Self::Busy { path, holder: Holder::Kernel },
            Some(libc::ETXTBSY) => Self::Busy { path, holder: Holder::Unknown },
            Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
                Self::NotADrive { path, what: "a device node with no device behind it" }
            }
            _ => Self::Io { path, action, source },
        }
    }

    pub(crate) fn not_a_drive(path: &Path, metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            "a directory"
        } else if kind.is_char_device() {
            "a character device"
        } else if kind.is_fifo() {
            "a pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "neither a file nor a block device"
        };
        Self::NotADrive { path: path.to_owned(), what }
    }

    /// True if the error concerns this process rather than the drive: the process lacks permission
    /// or resources to open it. Another process may be able to.
    pub fn is_of_this_process(&self) -> bool {
        match self {
            // The superuser is only refused because of the drive itself (a device that takes no
            // more writes, a file system of another user), and every user is refused by a file
            // system that became read-only.
            Self::Denied { source, .. } => source.raw_os_error() != Some(libc::EROFS) && !is_superuser(),
            Self::Io { source, .. } => is_out_of_means(source),
            _ => false,
        }
    }

    /// The remedy, if there is one to suggest.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some("`stripewise drive make DIR` makes file-backed drives".to_owned()),
            Self::NotADrive { what: "a directory", .. } => Some(
                "name a file or block device; `stripewise drive make DIR` makes drives in a directory"
                    .to_owned(),
            ),
            Self::Denied { .. } => {
                Some("check the owner and mode of the path, or run as a user who may".to_owned())
            }
            Self::Busy { holder: Holder::Kernel, .. } => {
                Some("it is mounted, or part of another array or volume; release it there first".to_owned())
            }
            Self::Busy { holder: Holder::ThisProcess, .. } => {
                Some("the same drive was named twice".to_owned())
            }
            Self::Busy { .. } => Some(
                "stop the program that uses it, or send commands to the daemon that has it open".to_owned(),
            ),
            _ => None,
        }
    }
}

/// Identity of the file or block device at `path`, without opening it: to find duplicate drives.
pub fn drive_identity(path: &Path) -> Result<DriveIdentity, OpenError> {
    let metadata = path.metadata().map_err(|error| OpenError::from_io(path, "looking at it", error))?;
    DriveIdentity::of(&metadata).ok_or_else(|| OpenError::not_a_drive(path, &metadata))
}

/// An open file or block device that is not a drive of an executor yet. Opening one waits for its
/// file system, for as long as that does not answer, and any thread can do so.
#[derive(Debug)]
pub struct OpenFile {
    file: OpenHandle,
    path: PathBuf,
    absolute: PathBuf,
    identity: DriveIdentity,
    options: OpenOptions,
    size_bytes: u64,
    alignment: Alignment,
    direct: bool,
    in_memory: bool,
}

impl OpenFile {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// If it is not there, no drive, not permitted, in use or too small.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let fail = |action| move |error| OpenError::from_io(path, action, error);
        let metadata = path.metadata().map_err(fail("looking at it"))?;
        let identity = DriveIdentity::of(&metadata).ok_or_else(|| OpenError::not_a_drive(path, &metadata))?;
        let (file, opened_direct) = open_file(path, identity, options)?;
        let metadata = file.metadata().map_err(fail("looking at it"))?;
        if DriveIdentity::of(&metadata) != Some(identity) {
            let source = io::Error::other("the path was replaced while it was being opened");
            return Err(OpenError::Io { path: path.to_owned(), action: "opening it", source });
        }
        // Requests on the drive wait until they are done.
        clear_flag(&file, libc::O_NONBLOCK).map_err(fail("opening it"))?;
        let is_file = matches!(identity, DriveIdentity::File { .. });
        let file_system = file_system_of(&file).map_err(fail("asking for its file system"))?;
        let mut file = OpenHandle::new(file, is_file && MAY_WAIT.contains(&file_system));
        if options.lock {
            take_lock(path, &file, identity, options.read_only)?;
            file.note_locked();
        }
        let size_bytes = match identity {
            DriveIdentity::File { .. } => metadata.len(),
            DriveIdentity::BlockDevice { .. } => {
                block_device::size_bytes(&file).map_err(fail("asking for its size"))?
            }
        };
        if size_bytes < LEAST_BYTES {
            let path = path.to_owned();
            return Err(OpenError::TooSmall { path, size_bytes, least_bytes: LEAST_BYTES });
        }

        let block_device_block = match identity {
            DriveIdentity::File { .. } => None,
            DriveIdentity::BlockDevice { .. } => {
                Some(block_device::logical_block_bytes(&file).map_err(fail("asking for its block size"))?)
            }
        };
        let direct = if opened_direct { direct_alignment(&file, block_device_block) } else { None };
        if direct.is_none() {
            clear_flag(&file, libc::O_DIRECT).map_err(fail("switching to the page cache"))?;
        }
        let alignment = direct
            .unwrap_or(Alignment { offset_bytes: block_device_block.unwrap_or(0).max(512), memory_bytes: 1 });
        if alignment.offset_bytes > 4096 {
            return Err(OpenError::BlockTooLarge {
                path: path.to_owned(),
                block_bytes: alignment.offset_bytes,
            });
        }
        let absolute = std::path::absolute(path).map_err(fail("finding its absolute path"))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            absolute,
            identity,
            options: *options,
            size_bytes,
            alignment,
            direct: direct.is_some(),
            in_memory: is_file && file_system == FileSystemType::from(libc::TMPFS_MAGIC),
        })
    }

    /// Identity of the file or device, independent of its path.
    pub fn identity(&self) -> DriveIdentity {
        self.identity
    }
}

/// Opens drives on one executor's ring; cheap to clone.
#[derive(Clone)]
pub struct DriveOpener {
    pub(crate) ring: Rc<Ring>,
}

impl DriveOpener {
    /// Opens the file or block device at `path`. Blocks for as long as its file system does not
    /// answer; [`OpenFile`] does not block the executor.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<Rc<FileDrive>, OpenError> {
        Ok(self.drive(OpenFile::open(path, options)?))
    }

    /// Makes an open file or block device a drive of the executor.
    pub fn drive(&self, opened: OpenFile) -> Rc<FileDrive> {
        let OpenFile { file, path, absolute, identity, options, size_bytes, alignment, direct, in_memory } =
            opened;
        let lacks_direct = !direct && !options.buffered;
        let notices = if lacks_direct { vec![Notice::PageCache { path: path.clone() }] } else { Vec::new() };
        let common = Common::new(file);
        let opened = Opened {
            info: describe(&path, identity, size_bytes, alignment.offset_bytes, direct),
            path: absolute,
            identity,
            notices,
            read_only: options.read_only,
            direct,
            in_memory,
            memory_alignment_bytes: alignment.memory_bytes,
            lengthening: common.opening(),
            common,
            compared_turn: Cell::new(0),
            discards: Cell::new(true),
            zeroing: Cell::new(ZeroMethod::Range),
        };
        Rc::new(FileDrive::new(self.ring.clone(), opened))
    }
}

/// Opens with direct I/O if that is wanted and possible; the flag says if it is. Never waits for a
/// writer: a pipe may have taken the path by now.
fn open_file(path: &Path, identity: DriveIdentity, options: &OpenOptions) -> Result<(File, bool), OpenError> {
    // Also keeps mounts and other arrays away, which advisory locks do not.
    let claims = options.lock && !options.read_only && matches!(identity, DriveIdentity::BlockDevice { .. });
    let exclusive = if claims { libc::O_EXCL } else { 0 };
    let begin = Instant::now();
    let open = |flags: libc::c_int| {
        loop {
            let result = std::fs::OpenOptions::new()
                .read(true)
                .write(!options.read_only)
                .custom_flags(OPEN_ANY_KIND | exclusive | flags)
                .open(path);
            match result {
                // May be only the claim of a process that has just ended.
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY)
                        && begin.elapsed() < UNKNOWN_HOLDER_PATIENCE =>
                {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                result => return result,
            }
        }
    };
    let fail = |error| OpenError::from_io(path, "opening it", error);
    if options.buffered {
        return Ok((open(0).map_err(fail)?, false));
    }
    match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(0).map_err(fail)?, false)),
        Err(error) => Err(fail(error)),
    }
}

/// The number by which the kernel knows the file's file system.
fn file_system_of(file: &File) -> io::Result<FileSystemType> {
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open; the structure is all zeros, a valid value of it, and is
    // written only within its size.
    let file_system = unsafe {
        if libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        answer.assume_init()
    };
    Ok(FileSystemType::from(file_system.f_type))
}

fn take_lock(path: &Path, file: &OpenHandle, identity: DriveIdentity, shared: bool) -> Result<(), OpenError> {
    let begin = Instant::now();
    loop {
        match lock::try_lock(file, shared) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(source) => {
                return Err(OpenError::Io { path: path.to_owned(), action: "locking it", source });
            }
        }
        let holder = lock::holder(identity, file);
        let patience = match holder {
            // A thread may still be closing it.
            Holder::ThisProcess if file.may_wait() => UNKNOWN_HOLDER_PATIENCE,
            Holder::Dead => DEAD_HOLDER_PATIENCE,
            Holder::Unknown => UNKNOWN_HOLDER_PATIENCE,
            _ => Duration::ZERO,
        };
        if begin.elapsed() >= patience {
            return Err(OpenError::Busy { path: path.to_owned(), holder });
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Clears a status flag of an open descriptor.
fn clear_flag(file: &File, flag: libc::c_int) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and give integers; the descriptor is open.
    let result = unsafe {
        let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || flags & flag == 0 {
            flags
        } else {
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !flag)
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn describe(
    path: &Path,
    identity: DriveIdentity,
    size_bytes: u64,
    block_bytes: u32,
    direct: bool,
) -> DriveInfo {
    let (kind, volatile_cache, cheap_zeroes, gap_bytes) = match identity {
        // Even on a drive without a cache a file's size and extents are durable only after a flush.
        DriveIdentity::File { .. } => (DriveKind::File, true, true, 0),
        DriveIdentity::BlockDevice { device } => {
            let says =
                |name, value: &str| block_device::queue_attribute(device, name).is_some_and(|v| v == value);
            let volatile = !(direct && says("write_cache", "write through"));
            let zeroes =
                block_device::queue_attribute(device, "write_zeroes_max_bytes").is_some_and(|v| v != "0");
            let gap_bytes = if says("rotational", "1") { DISK_GAP_BYTES } else { 0 };
            (DriveKind::BlockDevice, volatile, zeroes, gap_bytes)
        }
    };
    DriveInfo {
        label: path.display().to_string().into(),
        kind,
        capacity_bytes: size_bytes - size_bytes % u64::from(block_bytes),
        logical_block_bytes: block_bytes,
        queue_depth: QUEUE_DEPTH,
        queue_bytes: QUEUE_BYTES,
        max_request_bytes: MAX_REQUEST_BYTES,
        volatile_cache,
        cheap_zeroes,
        gap_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_a_drives_place_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for buffered in [true, false] {
            let options = OpenOptions { read_only: true, lock: false, buffered };
            let (sender, receiver) = std::sync::mpsc::channel();
            let path = pipe.clone();
            let identity = DriveIdentity::File { device: 0, inode: 0 };
            std::thread::spawn(move || sender.send(open_file(&path, identity, &options).map(drop)));
            let _ = receiver.recv_timeout(Duration::from_secs(5)).expect("it waits for a writer");
        }
    }

    #[test]
    fn requests_on_a_drive_wait_for_their_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        let executor = crate::RealExecutor::new().expect("io_uring");
        let drive = executor.open_drive(file.path(), &OpenOptions::default()).expect("opens");
        let handle = drive.handle().expect("a descriptor");
        // SAFETY: F_GETFL gives an integer; the descriptor is open.
        let flags = unsafe { libc::fcntl(handle.file.as_raw_fd(), libc::F_GETFL) };
        assert!(flags >= 0 && flags & libc::O_NONBLOCK == 0);
    }

    #[test]
    fn faults_of_a_path_are_the_drives() {
        let of_this_process = |code| {
            let path = Path::new("/d/0");
            OpenError::from_io(path, "opening it", io::Error::from_raw_os_error(code)).is_of_this_process()
        };
        for code in [
            libc::ELOOP,
            libc::ENOTCONN,
            libc::ENAMETOOLONG,
            libc::EINVAL,
            libc::EIO,
            libc::ESTALE,
            libc::ENXIO,
            libc::ENOENT,
            libc::EROFS,
        ] {
            assert!(!of_this_process(code), "{}", io::Error::from_raw_os_error(code));
        }
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(of_this_process(code), "{}", io::Error::from_raw_os_error(code));
        }
        for code in [libc::EACCES, libc::EPERM] {
            assert_eq!(of_this_process(code), !is_superuser(), "{}", io::Error::from_raw_os_error(code));
        }
    }
}
