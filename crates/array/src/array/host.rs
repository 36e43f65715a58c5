//! Interface from an array to the owner of its drives and slabs: the pool.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::member::Member;

/// A boxed future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Keeps the record of an array's drives and slabs.
pub trait ArrayHost {
    /// Records durably on every other drive that `member` is out, then notifies every array with
    /// [`Array::drive_gone`](crate::Array::drive_gone). Until this is done no write that `member`
    /// lacks is acknowledged. Repeated calls for the same member return the first result.
    fn exclude<'a>(&'a self, member: &'a Rc<Member>, reason: &'a str) -> LocalFuture<'a, Result<(), String>>;

    /// Records durably which blocks of array `id` are lost no more, of those that
    /// [`Array::lost_blocks`](crate::Array::lost_blocks) had, and which are lost, as far as there
    /// is room. Asked before a flush is acknowledged, when they changed: a block that was lost and
    /// is written again must not be lost after a restart.
    fn record_lost(&self, id: u128) -> LocalFuture<'_, Result<(), String>> {
        let _ = id;
        Box::pin(std::future::ready(Ok(())))
    }

    /// As [`Self::record_lost`], before something relies on every lost block being recorded; an
    /// error where the record has no room for all of them.
    fn record_losses(&self, id: u128) -> LocalFuture<'_, Result<(), String>> {
        self.record_lost(id)
    }

    /// The file system under a drive is full: the array writes nothing more. Called once.
    fn file_system_full(&self, drive: &str) {
        let _ = drive;
    }

    /// Gives slabs to rows that have none, records it durably and calls
    /// [`Array::set_rows`](crate::Array::set_rows). For thin volumes; an error says why there is no
    /// space.
    fn allocate_rows(&self, id: u128, first_row: u64, rows: u64) -> LocalFuture<'_, Result<(), String>> {
        let _ = (id, first_row, rows);
        Box::pin(std::future::ready(Err("this volume has all the rows it can have".to_owned())))
    }
}

/// Records nothing: for tests and benchmarks of an array without a pool.
pub struct NoHost;

impl ArrayHost for NoHost {
    fn exclude<'a>(&'a self, _: &'a Rc<Member>, _: &'a str) -> LocalFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
