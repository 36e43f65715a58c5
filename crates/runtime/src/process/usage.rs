//! Processor time and memory used by this process, for reports.

/// Processor time of all threads of this process, in nanoseconds, in user and kernel mode together.
/// The kernel's io_uring workers count: they are threads of the process.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Peak resident memory of this process, in bytes.
pub fn max_resident_bytes() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure it is given; all-zero is a valid one, should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as u64 * 1024
}

/// Reading of a system clock, in nanoseconds.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec through the pointer. It cannot fail for the clocks
    // used here, which every Linux has.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns free memory that the allocator retains to the system. The cost grows with the number of
/// pages.
pub fn give_memory_back() {
    // SAFETY: changes nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_processor_time_and_memory() {
        let (before_ns, begin_ns) = (process_cpu_ns(), clock_ns(libc::CLOCK_MONOTONIC));
        let mut sum = 0_u64;
        while clock_ns(libc::CLOCK_MONOTONIC) < begin_ns + 20_000_000
            || process_cpu_ns() < before_ns + 5_000_000
        {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu_ns() - before_ns >= 5_000_000);
        let touched = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(max_resident_bytes() >= touched.len() as u64);
    }
}
