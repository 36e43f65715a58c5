//! Interface from an array to the owner of its drives and slabs: the pool.
//!
//! An array may be on another thread than its pool. So its requests are data that can be sent, and
//! a drive is named by its member's label, which is the same on every thread.

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;

use crate::member::{Member, MemberLabel};

/// A boxed future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A request of an array to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Record durably on every other drive that this one is out, then notify every array with
    /// [`Array::drive_gone`](crate::Array::drive_gone). Until this is done no write that the drive
    /// lacks is acknowledged. Repeated requests for the same drive have the first result.
    Exclude {
        /// The drive.
        drive: MemberLabel,
        /// Why it is out, for people.
        reason: String,
    },
    /// Record durably which blocks of the array are lost no more, of those that
    /// [`Array::lost_blocks`](crate::Array::lost_blocks) had, and which are lost, as far as there
    /// is room. Made before a flush is acknowledged, when they changed: a block that was lost and
    /// is written again must not be lost after a restart.
    RecordLost,
    /// As [`Self::RecordLost`], before something relies on every lost block being recorded; an
    /// error where the record has no room for all of them.
    RecordLosses,
    /// Note that the file system under a drive is full: the array writes nothing more. Made once.
    NoteFull {
        /// The drive.
        drive: MemberLabel,
    },
    /// Check whether the drives are still the pool's: a gate holds requests back until then. It
    /// concerns no array.
    CheckSession,
    /// Go on checking, and marking the drives, while they are used. It concerns no array.
    KeepSession,
    /// Give slabs to rows that have none, record it durably and call
    /// [`Array::set_rows`](crate::Array::set_rows). For thin volumes; an error says why there is no
    /// space.
    AllocateRows {
        /// The first row.
        first_row: u64,
        /// Number of rows.
        rows: u64,
    },
}

/// Keeps the record of an array's drives and slabs.
pub trait ArrayHost {
    /// Executes a request of the array with this identity.
    fn ask(&self, array: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>>;

    /// The queue of a drive on this thread; `None` if the drive is not at hand.
    fn member(&self, drive: &MemberLabel) -> Option<Rc<Member>> {
        let _ = drive;
        None
    }
}

/// Records nothing: for tests and benchmarks of an array without a pool.
pub struct NoHost;

impl ArrayHost for NoHost {
    fn ask(&self, _: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        let answer = match request {
            HostRequest::AllocateRows { .. } => Err("this volume has all the rows it can have".to_owned()),
            _ => Ok(()),
        };
        Box::pin(ready(answer))
    }
}
