//! The two executors that poll the engine, drives over files and block devices, and sockets.
//!
//! [`VirtualExecutor`] runs tasks in virtual time, deterministically; [`RealExecutor`] runs the
//! same tasks in real time, with one io_uring, on which [`FileDrive`]s transfer past the page cache
//! and [`Stream`]s of its [`Network`] send and receive. Both are single-threaded; one per core is
//! meant to be used. Beside them: what a command needs of the system around drives (making their
//! files, locks, the pace stored with a file, interrupts, the process's own use of processor and
//! memory).
//!
//! # What a request costs, and what was tried
//!
//! Figures from `cargo bench -p stripewise-runtime` on two virtual cores shared with other work, a
//! virtual disk with ext4 and Linux 6.18; medians (quartiles) of pairs measured in turn.
//!
//! - Requests go to the kernel in batches of eight. The obvious way, everything in one system call
//!   per turn, lost 15 to 20 % of the rate of small random reads: the drive idles while the kernel
//!   prepares a large batch.
//! - Ours against fio's io_uring engine, 11 pairs of 1 s, other load kept away by real-time
//!   priority for both: 4 KiB random reads at depth 32 reach 0.99 (0.94 to 1.11) of its rate,
//!   random writes 1.00 (0.74 to 1.06), 1 MiB sequential reads at depth 16 1.02 (0.97 to 1.07),
//!   writes 1.06 (1.01 to 1.10). With the other load the random reads came out at 0.86, 0.95 and
//!   1.05 in three runs; the processor time per small read is 1.03 to 1.27 of fio's.
//! - Collecting answers only on request (DEFER_TASKRUN), cooperatively or by interrupt made no
//!   difference beyond the noise in 15 rounds in turn; the first is used.
//! - A task switch takes 20 to 35 ns with a thousand tasks, a timer set and taken back 90 to 180
//!   ns, of which most is reading the clock, a trip to another thread and back 2.5 to 3 us.
//! - One piece of memory and several: a vectored read of one piece cost 1.01 (0.96 to 1.03) times
//!   the processor time of a plain one, so scattered memory costs nothing extra, and neighbours are
//!   joined anyway.
//! - Registered files did not pay: processor time 0.99 (0.96 to 1.07) of plain descriptors, rate
//!   within the noise. They are not used: they would also keep files open, and drives locked, for a
//!   while after the process is killed.
//! - Registered buffers save the kernel's pinning of pages: 0.93 (0.91 to 0.96) of the processor
//!   time of 4 KiB reads, which is 0.2 us each, and 0.67 (0.65 to 0.74) of that of 1 MiB reads,
//!   which is 17 us each; the rates rose by 3 % (0 to 8 %) and 6 % (3 to 11 %). They are not used
//!   yet: every buffer would have to come from an arena registered as a whole, and what is
//!   registered counts against the locked-memory limit, 8 MiB for ordinary users.

#![warn(unreachable_pub)]

mod alignment;
mod attribute;
mod block_device;
mod errno;
mod file_drive;
mod identity;
mod io_flusher;
mod lock;
mod make;
mod message_file;
mod net;
mod open;
mod real_time;
mod ring;
mod signals;
mod socket_op;
mod tasks;
mod timers;
mod uring;
mod usage;
mod virtual_time;
mod waker;

pub use attribute::{AttributeError, clear_pace_attribute, pace_attribute, set_pace_attribute};
pub use file_drive::FileDrive;
pub use identity::{DriveIdentity, Vanished, drive_identity};
pub use io_flusher::become_io_flusher;
pub use lock::Holder;
pub use make::{CreateError, CreateOptions, create_drive_file, free_space_bytes};
pub use message_file::MessageFile;
pub use net::{ListenError, Listener, Network, OWNER_ONLY, SocketFile, Stream, bind_unix};
pub use open::{DriveOpener, Notice, OpenError, OpenOptions};
pub use real_time::RealExecutor;
pub use signals::interrupt_requested;
pub use socket_op::Piece;
pub use usage::{give_memory_back, max_resident_bytes, process_cpu_ns};
pub use virtual_time::VirtualExecutor;
