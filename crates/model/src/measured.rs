//! Drives as they were measured: response tables instead of a mechanism, for files, devices and
//! paced drives alike.
//!
//! [`measure`] characterises any [`stripewise_drive::Drive`], in real or in virtual time, and gives
//! [`MeasuredParameters`]; [`MeasuredQueue`] behaves like what was measured.
//! `catalogue::drive_text` writes both down as an entry.
//!
//! - [`parameters`]: the numbers, and which of them are impossible.
//! - [`response`]: time per request by block size and by how many are inside.
//! - [`queue`]: commands in the order they come, served at the rate that the tables give for so
//!   many.
//! - [`load`]: a load, and where its requests go.
//! - [`measure`](mod@measure): which loads are run, for how long, and what is made of them.
//!
//! What a mechanism would know and tables do not: which of the waiting commands a disk prefers, so
//! the spread of latencies, and how several streams share an arm.

mod load;
mod measure;
mod parameters;
mod queue;
mod response;

pub use measure::{MeasureError, MeasureOptions, MeasureProgress, Taken, measure};
pub use parameters::MeasuredParameters;
pub use queue::MeasuredQueue;
pub use response::{Response, ResponseTable};
