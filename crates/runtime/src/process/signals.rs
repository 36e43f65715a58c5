//! Clean shutdown on the first SIGINT, SIGTERM or SIGHUP: the signal sets a flag and makes a
//! descriptor permanently readable, which wakes every executor that waits for it. The second signal
//! has its default action and kills the process, so that a hung command can be ended.
//!
//! Handlers are installed on the first request: a command that never asks is killed by the first
//! signal.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// True once a signal has requested shutdown (only after a call of `RealExecutor::interrupted`).
pub fn interrupt_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

extern "C" fn on_signal(_signal: libc::c_int) {
    REQUESTED.store(true, Ordering::SeqCst);
    let descriptor = DESCRIPTOR.load(Ordering::SeqCst);
    let one = 1_u64.to_ne_bytes();
    // SAFETY: only write and the thread's error number are used; both are allowed in a signal
    // handler, and the error number is restored for the interrupted code.
    unsafe {
        let saved = *libc::__errno_location();
        libc::write(descriptor, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = saved;
    }
}

/// Installs the handlers, once, and returns the descriptor that becomes readable with the first
/// signal. It is never closed.
pub(crate) fn descriptor() -> io::Result<RawFd> {
    static INSTALLED: OnceLock<Result<RawFd, i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
        .map_err(io::Error::from_raw_os_error)
}

fn install() -> io::Result<RawFd> {
    // SAFETY: makes a new descriptor, owned by this module for the rest of the process.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    DESCRIPTOR.store(descriptor, Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a zeroed sigaction is valid; the handler only does what signal handlers may.
        // SA_RESETHAND: the second signal gets the default action.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                // The parent (nohup, a shell's background job) wants the signal ignored.
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(descriptor)
}
