//! The two executors that poll the engine, drives over files and block devices, and sockets.
//!
//! [`VirtualExecutor`] runs tasks in virtual time, deterministically; [`RealExecutor`] runs the
//! same tasks in real time, with one io_uring, on which [`FileDrive`]s transfer past the page cache
//! and [`Stream`]s of its [`Network`] send and receive. Both are single-threaded; one per core is
//! meant to be used. Beside them: what a command needs of the system around drives (making their
//! files, locks, the pace stored with a file, interrupts, the process's own use of processor and
//! memory).
//!
//! Choices that were measured (`docs/history/performance.md`, *The runtime: what a request costs*):
//! requests go to the kernel in batches of eight; registered files and buffers are not used.

#![warn(unreachable_pub)]

mod alignment;
mod attribute;
mod block_device;
mod errno;
mod file_drive;
mod fuse_mount;
mod identity;
mod io_flusher;
mod lock;
mod make;
mod message_file;
mod message_op;
mod net;
mod open;
mod opened;
mod piece;
mod real_time;
mod ring;
mod signals;
mod socket_future;
mod socket_op;
mod task_key;
mod task_table;
mod tasks;
mod timers;
mod uring;
mod usage;
mod virtual_time;
mod waker;

pub use attribute::{AttributeError, clear_pace_attribute, pace_attribute, set_pace_attribute};
pub use file_drive::FileDrive;
pub use fuse_mount::FuseMountPoint;
pub use identity::{DriveIdentity, Vanished};
pub use io_flusher::become_io_flusher;
pub use lock::Holder;
pub use make::{CreateError, CreateOptions, create_drive_file, free_space_bytes};
pub use message_file::MessageFile;
pub use net::{ListenError, Listener, Network, OWNER_ONLY, SocketFile, Stream, bind_unix};
pub use open::{DriveOpener, OpenError, OpenOptions, drive_identity};
pub use opened::Notice;
pub use piece::Piece;
pub use real_time::RealExecutor;
pub use signals::interrupt_requested;
pub use usage::{give_memory_back, max_resident_bytes, process_cpu_ns};
pub use virtual_time::VirtualExecutor;
