//! The handler of SIGBUS for shared memory: an access beyond the end of a truncated file puts
//! anonymous zeros in place of the whole mapping, records that, and goes on. The owner of the
//! mapping checks the record.
//!
//! Expected faults: errors in other memory, which get the handler that was there before.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Maximum mappings at a time.
const MAX_GUARDED: usize = 4096;

/// A guarded mapping. A length of 0 marks a place that is being taken or freed.
struct Place {
    /// 0: free.
    start: AtomicUsize,
    length_bytes: AtomicUsize,
    is_lost: AtomicBool,
}

static PLACES: [Place; MAX_GUARDED] = [const {
    Place { start: AtomicUsize::new(0), length_bytes: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; MAX_GUARDED];

/// The handler that was there before.
static EARLIER: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Guards a mapping until it is dropped, which must come before the mapping ends.
pub(super) struct Guard(&'static Place);

impl Guard {
    /// Guards the mapping that begins at `start`.
    ///
    /// # Errors
    /// `OutOfMemory` if there are too many; the system's if the handler cannot be set.
    pub(super) fn new(start: usize, length_bytes: usize) -> io::Result<Self> {
        static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
        let installed =
            INSTALLED.get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or(0)));
        (*installed).map_err(io::Error::from_raw_os_error)?;
        let takes = |place: &&Place| {
            place.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(place) = PLACES.iter().find(takes) else {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "clients share too many pieces of memory",
            ));
        };
        place.is_lost.store(false, Ordering::Relaxed);
        place.length_bytes.store(length_bytes, Ordering::Release);
        Ok(Self(place))
    }

    /// True if the mapping was replaced.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.length_bytes.store(0, Ordering::Release);
        self.0.start.store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    // SAFETY: both are plain numbers and pointers, for which zeros are valid.
    let (mut own, mut earlier): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    own.sa_sigaction = on_bus_error as *const () as usize;
    // With the stack for signals, which this program's threads have.
    own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: reads the present handler into a structure that lives across the call.
    let is_read = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut earlier) };
    // Never freed: a handler may run at any moment.
    EARLIER.store(Box::leak(Box::new(earlier)), Ordering::Release);
    // SAFETY: the handler does only what signal handlers may (see there).
    let is_set = unsafe { libc::sigaction(libc::SIGBUS, &raw const own, std::ptr::null_mut()) };
    if is_read < 0 || is_set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Handles the signal. It may interrupt any code, so it uses atomics and system calls only.
extern "C" fn on_bus_error(_: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a filled structure, which lives while the handler runs.
    let address = unsafe { (*about).si_addr() }.addr();
    let is_hit = |place: &&Place| {
        let (length, start) =
            (place.length_bytes.load(Ordering::Acquire), place.start.load(Ordering::Acquire));
        address >= start && address - start < length
    };
    if let Some(place) = PLACES.iter().find(is_hit) {
        let start = place.start.load(Ordering::Acquire) as *mut libc::c_void;
        let length = place.length_bytes.load(Ordering::Acquire);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces a mapping that its owner has registered for this, and that stays until
        // the owner unmaps it: the thread that is interrupted here is using it. Nothing refers to
        // its contents, which are copied only.
        let replaced = unsafe { libc::mmap(start, length, access, flags, -1, 0) };
        if replaced != libc::MAP_FAILED {
            place.is_lost.store(true, Ordering::Release);
            return;
        }
    }
    // The access is repeated, and meets the earlier handler.
    // SAFETY: the pointer is that of a structure which is never freed.
    unsafe { libc::sigaction(libc::SIGBUS, EARLIER.load(Ordering::Acquire), std::ptr::null_mut()) };
}
