//! The roots: everything that recovery starts from, replaced as a whole by one commit.
//!
//! The log does not know where they are kept: [`slots::SlotRoots`] keeps them in two alternating
//! slots on each member, and a pool also records there which drives miss writes.

pub(crate) mod codec;
pub(crate) mod slots;

use std::future::Future;
use std::pin::Pin;

use stripewise_layout::MemberSet;

use crate::error::LogError;

/// A boxed future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Keeper of the roots.
pub trait RootStore {
    /// Largest roots that it keeps, bytes.
    fn room_bytes(&self) -> u64;

    /// Replaces the roots; durable on every drive that is not excluded when it returns.
    fn commit(&self, roots: Vec<u8>) -> LocalFuture<'_, Result<(), LogError>>;

    /// Records that these members miss writes from now on.
    fn exclude(&self, missing: MemberSet) -> LocalFuture<'_, Result<(), LogError>>;

    /// Records that a member misses nothing any more. Takes effect after what was asked for before.
    fn include(&self, member: usize) -> LocalFuture<'_, Result<(), LogError>>;
}
