//! Hard disks: seek curve, rotation, zones, cache and command queue, without I/O and without a
//! clock of their own.
//!
//! Three layers, each usable alone; times are nanoseconds since any origin (`u64`), addresses are
//! sectors of `sector_bytes` (mechanics) or bytes (queue):
//!
//! - [`HddParameters`]: the full description. [`DataSheet::parameters`] derives one from the few
//!   numbers that a data sheet gives; the catalogue and the replay make others.
//! - [`Hdd`]: geometry and arm. `hdd.target(lba)` finds cylinder, head and angle;
//!   `hdd.positioned_ns(now, &target, write)` says when the first sector is under the head if the
//!   arm starts now from where it is; `hdd.plan(now, lba, sectors, write)` says that and when the
//!   last sector has passed; `hdd.commit(&plan)` moves the arm there. `positioned_ns` and `plan`
//!   change nothing, so a scheduler compares as many requests as it likes. A plan that starts at
//!   the end of the one before, with the next sector, waits for nothing: streams run at the
//!   medium's rate.
//! - [`HddQueue`]: command queue, read cache with read-ahead, write cache with destage over one
//!   [`Hdd`]. An event loop uses three calls: `queue.submit(now, HddRequest { .. })`,
//!   `queue.next_event_ns()` (when to look again; `None`: idle until the next request),
//!   `queue.advance(now, &mut completed)`. Time never goes back. More requests than the drive has
//!   tags wait in the order they came.
//!
//! ```
//! use stripewise_model::hdd::{DataSheet, HddOperation, HddQueue, HddRequest};
//!
//! let parameters = DataSheet::generic_8tb_7200().parameters().unwrap();
//! let mut queue = HddQueue::new(&parameters, 1).unwrap();
//! let operation = HddOperation::Read;
//! queue.submit(0, HddRequest { id: 7, operation, offset_bytes: 1 << 40, length_bytes: 4096 });
//! let mut completed = Vec::new();
//! while let Some(now_ns) = queue.next_event_ns() {
//!     queue.advance(now_ns, &mut completed);
//! }
//! assert_eq!(completed[0].id, 7);
//! ```
//!
//! The same parameters and seed give the same times, everywhere: the arithmetic is of integers. The
//! seed sets the rotational phase only. A drive has no faults of its own.

mod cache;
mod data_sheet;
mod geometry;
mod mechanics;
mod parameter_error;
mod parameters;
mod queue;
mod seek;

pub use data_sheet::DataSheet;
pub(crate) use geometry::hold_capacity;
pub use geometry::{Geometry, Target};
pub use mechanics::{Hdd, Plan, Progress};
pub use parameter_error::ParameterError;
pub use parameters::{HddParameters, HeadOrder, ReadCacheParameters, WriteCacheParameters, ZoneParameters};
pub use queue::{Completed, HddOperation, HddQueue, HddRequest, HddStatistics};
pub use seek::SeekCurve;
