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

mod event_file;
mod files;
mod fuse_mount;
mod fuse_ring;
mod message_file;
mod net;
mod process;
mod real_time;
mod ring;
mod shards;
mod shared_memory;
mod tasks;
mod virtual_time;

pub use event_file::{EventFile, make_event_file};
pub use files::attribute::{AttributeError, clear_pace_attribute, pace_attribute, set_pace_attribute};
pub use files::block_device::{block_device_folder, device_name};
pub use files::extents::next_data;
pub use files::file_drive::{DriveHandle, FileDrive};
pub use files::identity::{DriveIdentity, PathCheck, Vanished};
pub use files::lock::Holder;
pub use files::make::{CreateError, CreateOptions, create_drive_file, free_space_bytes};
pub use files::open::{DriveOpener, OpenError, OpenFile, OpenOptions, drive_identity};
pub use files::opened::Notice;
pub use files::small_file::{open_regular_file, read_small_file};
pub use fuse_mount::FuseMountPoint;
pub use fuse_ring::FuseRing;
pub use message_file::MessageFile;
pub use net::{HandedStream, ListenError, Listener, Network, OWNER_ONLY, SocketFile, Stream, bind_unix};
pub use process::group::{do_not_wait, end_process_group};
pub use process::io_flusher::become_io_flusher;
pub use process::means::is_out_of_means;
pub use process::signals::interrupt_requested;
pub use process::usage::{give_memory_back, max_resident_bytes, process_cpu_ns};
pub use real_time::RealExecutor;
pub use ring::piece::Piece;
pub use shared_memory::{SharedMemory, make_shared_file};
pub use tasks::visitor::Visitor;
pub use tasks::visits::Ended;
pub use virtual_time::VirtualExecutor;
