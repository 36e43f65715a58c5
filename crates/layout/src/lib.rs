//! Address arithmetic and I/O plans of every RAID layout, as plain data.
//!
//! This crate says *where* bytes lie and *which* strips to read and write; it does no I/O, knows no
//! drives and computes no parity, so that all of it can be tested exhaustively. The order to read
//! it in:
//!
//! 1. [`Level`] and [`LayoutSpec`]: what a user asks for; [`LayoutSpec::resolve`] checks it against
//!    the drives.
//! 2. [`Shape`]: the checked answer, which is what metadata stores.
//! 3. [`Geometry`]: a shape over members of a size: volume offset → stripe → member and offset, and
//!    back.
//! 4. [`plan_read`], [`plan_write`], [`plan_reconstruct`]: what to read and write for a request
//!    when some members are missing, with the fewest I/Os.
//!
//! A *member* is one of the drives of a volume, numbered from 0. A *strip* is `interleave_bytes`
//! of one member. A *stripe* is one redundancy set of strips; its strips are called *units*, data
//! units `0..k` first, then parity `k..k+m` (P, Q, R). For mirrors, and for layouts without
//! redundancy, a stripe is one strip of data (`k = 1`), and its units are the copies of it.
//!
//! Faults expected: impossible wishes ([`LayoutError`], with a hint), metadata that holds nonsense
//! (the same checks again in [`Geometry::new`]), and more members missing than the layout survives
//! ([`Unreadable`], [`Unwritable`]). A stripe number out of range or an unsorted request is a
//! caller's bug and asserts.
//!
//! ```
//! use stripewise_layout::{Geometry, LayoutSpec, MemberSet, WriteMethod, plan_write};
//!
//! let shape = LayoutSpec::parse("raid5")?.resolve(4)?;
//! let geometry = Geometry::new(shape, 1 << 40)?;
//! assert_eq!(geometry.capacity_bytes(), 3 << 40);
//!
//! // 4 KiB at the volume's offset 1 MiB, with no member missing: read old data and parity, write
//! // them new.
//! for segment in geometry.segments(1 << 20, 4096) {
//!     let stripe = geometry.stripe(segment.stripe);
//!     let written: Vec<_> = geometry.data_ranges(segment.from, segment.to).collect();
//!     let plan = plan_write(&geometry, &stripe, &written, &MemberSet::EMPTY)?;
//!     assert_eq!(plan.method, WriteMethod::ReadModifyWrite);
//!     assert_eq!((plan.reads.len(), plan.writes.len()), (2, 2));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(unreachable_pub)]

mod by_drives;
mod divisor;
mod error;
mod geometry;

mod level;
mod limits;
mod members;
mod names;
mod plan;
mod read;
mod slicing;
mod spec;
mod unit_range;
mod write;

pub use by_drives::InterleaveReason;
pub use error::LayoutError;
pub use geometry::{Geometry, Location, Place, Segment, Stripe, UnitAt};
pub use level::Level;
pub use limits::MAXIMUM_WIDTH;
pub use members::{MemberSet, Members};
pub use plan::{Decode, LostRange, ReadPlan, Unreadable, Unwritable};
pub use read::{plan_read, plan_reconstruct};
pub use slicing::{ExtentPiece, Slicing};
pub use spec::{LayoutSpec, Shape};
pub use unit_range::UnitRange;
pub use write::{WriteMethod, WritePlan, plan_write};
