//! The two executors that poll the engine, and drives over files and block devices.
//!
//! [`VirtualExecutor`] runs tasks in virtual time, deterministically; [`RealExecutor`] runs the same tasks in real time, with
//! one io_uring, on which [`FileDrive`]s transfer past the page cache. Both are single-threaded; one per core is meant to
//! be used. Beside them: what a command needs of the system around drives (making their files, locks, the pace stored with a
//! file, interrupts, the process's own use of processor and memory).

mod alignment;
mod attribute;
mod block_device;
mod errno;
mod file_drive;
mod identity;
mod lock;
mod make;
mod open;
mod real_time;
mod ring;
mod signals;
mod tasks;
mod timers;
mod uring;
mod usage;
mod virtual_time;
mod waker;

pub use attribute::{AttributeError, clear_pace_attribute, pace_attribute, set_pace_attribute};
pub use file_drive::FileDrive;
pub use identity::{DriveIdentity, Vanished, drive_identity};
pub use lock::Holder;
pub use make::{CreateError, CreateOptions, create_drive_file, free_space_bytes};
pub use open::{DriveOpener, Notice, OpenError, OpenOptions};
pub use real_time::RealExecutor;
pub use signals::interrupt_requested;
pub use usage::{max_resident_bytes, process_cpu_ns};
pub use virtual_time::VirtualExecutor;
