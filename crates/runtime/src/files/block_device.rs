//! Properties of block devices: size, logical block, and queue attributes from `/sys`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `_IOR(0x12, 114, size_t)`: the device's size in bytes.
const BLKGETSIZE64: libc::c_ulong =
    2 << 30 | (size_of::<libc::size_t>() as libc::c_ulong) << 16 | 0x12 << 8 | 114;
/// `_IO(0x12, 104)`: the device's logical block in bytes.
const BLKSSZGET: libc::c_ulong = 0x12 << 8 | 104;

/// The kernel's folder about the block device at `path`, `/sys/devices/…/block/sda`, or
/// `…/sda/sda1` for a partition. `None` if `path` is no block device.
pub fn block_device_folder(path: &Path) -> Option<PathBuf> {
    let about = std::fs::metadata(path).ok().filter(|about| about.file_type().is_block_device())?;
    let (major, minor) = (libc::major(about.rdev()), libc::minor(about.rdev()));
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The number of a device or file system as the kernel writes it, `MAJOR:MINOR`.
pub fn device_name(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// The device's size in bytes.
pub(crate) fn size_bytes(device: &File) -> io::Result<u64> {
    let mut size = 0_u64;
    // SAFETY: BLKGETSIZE64 writes one u64 through the pointer; the descriptor is open for the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64 as _, &raw mut size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(size) }
}

/// The smallest unit the device transfers, in bytes.
pub(crate) fn logical_block_bytes(device: &File) -> io::Result<u32> {
    let mut block: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int through the pointer; the descriptor is open for the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET as _, &raw mut block) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(block as u32) }
}

/// The contents of `/sys/dev/block/MAJOR:MINOR/queue/NAME`, for a partition those of its whole
/// device. `None` if the kernel does not have the attribute.
pub(crate) fn queue_attribute(device_number: u64, name: &str) -> Option<String> {
    let (major, minor) = (libc::major(device_number), libc::minor(device_number));
    let device = format!("/sys/dev/block/{major}:{minor}");
    [format!("{device}/queue/{name}"), format!("{device}/../queue/{name}")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .map(|line| line.trim().to_owned())
}
