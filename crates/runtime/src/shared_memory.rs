//! Memory that another process shares as a file, such as that of a virtual machine.
//!
//! The other process may change the memory at any moment, so no reference to it is ever made:
//! bytes are copied out or in. It may also truncate the file, after which an access of the mapping
//! raises SIGBUS; `bus_errors.rs` then puts zeros in the mapping's place.
//!
//! Expected faults: files of other kinds and shorter files than announced (refused, since an access
//! to a file system of the other process's own would wait for it), a truncated file
//! ([`SharedMemory::is_lost`]), and mappings that take up all addresses (limited).

mod bus_errors;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use bus_errors::Guard;

/// Maximum of all mappings together; a process has 128 TiB of addresses.
const MAX_MAPPED_BYTES: u64 = 64 << 40;
/// Magic numbers of the file systems in memory (`statfs`).
const TMPFS_MAGIC: i64 = 0x0102_1994;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// A part of a file in memory, mapped here and in other processes.
pub struct SharedMemory {
    guard: Guard,
    /// Address of the part's first byte.
    start: NonNull<u8>,
    length_bytes: usize,
    mapped: Mapped,
}

/// A mapping; unmapped on drop, which comes after that of its guard.
struct Mapped {
    address: NonNull<libc::c_void>,
    length_bytes: usize,
    _counted: Counted,
}

/// Bytes counted in [`MAPPED_BYTES`].
struct Counted(u64);

impl Counted {
    fn new(bytes: u64) -> io::Result<Self> {
        let before = MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        let counted = Self(bytes);
        if before.saturating_add(bytes) > MAX_MAPPED_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "clients share more than 64 TiB of memory",
            ));
        }
        Ok(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        MAPPED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and is unmapped once, here.
        unsafe { libc::munmap(self.address.as_ptr(), self.length_bytes) };
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Size and unit of allocation of a file in memory, bytes.
fn size_in_memory(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    // SAFETY: both structures are plain numbers, for which zeros are valid.
    let (mut about, mut system): (libc::stat, libc::statfs) = unsafe { std::mem::zeroed() };
    // SAFETY: both calls fill in a structure that lives across them.
    let answers = unsafe {
        (libc::fstat(file.as_raw_fd(), &raw mut about), libc::fstatfs(file.as_raw_fd(), &raw mut system))
    };
    if answers != (0, 0) {
        return Err(io::Error::last_os_error());
    }
    let is_file = about.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !is_file || ![TMPFS_MAGIC, HUGETLBFS_MAGIC].contains(&system.f_type) {
        return Err(invalid("shared memory must be a memfd, or a file in tmpfs or hugetlbfs"));
    }
    Ok((about.st_size as u64, about.st_blksize.max(4096) as u64))
}

impl SharedMemory {
    /// Maps `length_bytes` of `file` from `offset_bytes` on.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not in memory or shorter; the system's error if it cannot be
    /// mapped; `OutOfMemory` beyond the limits.
    pub fn new(file: impl AsFd, offset_bytes: u64, length_bytes: u64) -> io::Result<Self> {
        let file = file.as_fd();
        let (size_bytes, unit_bytes) = size_in_memory(file)?;
        let end = offset_bytes.checked_add(length_bytes).filter(|end| *end <= size_bytes);
        let Some(end) = end.filter(|_| length_bytes > 0) else {
            return Err(invalid("the shared memory is not within its file"));
        };
        // Huge pages are mapped as a whole.
        let from = offset_bytes / unit_bytes * unit_bytes;
        let to = end
            .checked_next_multiple_of(unit_bytes)
            .ok_or_else(|| invalid("the shared memory is too long"))?;
        let mapped_bytes =
            usize::try_from(to - from).map_err(|_| invalid("the shared memory is too long"))?;
        let counted = Counted::new(to - from)?;
        // SAFETY: a new mapping overlaps no other memory; the result is checked before use.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        let mapped = Mapped { address, length_bytes: mapped_bytes, _counted: counted };
        let guard = Guard::new(address.as_ptr().addr(), mapped_bytes)?;
        // SAFETY: within the mapping, as `from <= offset_bytes < end <= to`.
        let start = unsafe { address.cast::<u8>().add((offset_bytes - from) as usize) };
        Ok(Self { guard, start, length_bytes: length_bytes as usize, mapped })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length_bytes
    }

    /// True if the length is zero; it never is.
    pub fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// True if the file was truncated and an access has noticed it: all of the memory is zeros, and
    /// no longer shared.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Address of `length_bytes` from `at` on.
    ///
    /// # Panics
    /// If they are not within the memory.
    fn place(&self, at: usize, length_bytes: usize) -> *mut u8 {
        let is_within = at.checked_add(length_bytes).is_some_and(|end| end <= self.length_bytes);
        assert!(is_within, "{length_bytes} bytes at {at} of {}", self.length_bytes);
        debug_assert!(self.length_bytes <= self.mapped.length_bytes);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not within the memory.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: both are in bounds, and `into` is no part of the mapping. Another process may
        // write at the same time: then the bytes are arbitrary.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not within the memory.
    pub fn write(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    fn number(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned(), "a shared number is aligned");
        // SAFETY: in bounds, aligned, and mapped as long as `self` lives; atomic accesses are what
        // the other process may make as well.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Reads a little-endian number; later reads of this thread come after it.
    ///
    /// # Panics
    /// If it is not within the memory or not aligned.
    pub fn load_u16(&self, at: usize) -> u16 {
        u16::from_le(self.number(at).load(Ordering::Acquire))
    }

    /// Writes a little-endian number, after all earlier writes of this thread.
    ///
    /// # Panics
    /// If it is not within the memory or not aligned.
    pub fn store_u16(&self, at: usize, value: u16) {
        self.number(at).store(value.to_le(), Ordering::Release);
    }
}

/// Makes a file in memory without a name, filled with zeros, whose size cannot be changed.
///
/// # Errors
/// The system's.
pub fn make_shared_file(length_bytes: u64) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: makes a new descriptor, which `OwnedFd` then owns alone; the name ends with a zero.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"stripewise".as_ptr(), flags);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let file = std::fs::File::from(file);
    file.set_len(length_bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes a descriptor and a number.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}
