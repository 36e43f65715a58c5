//! Methods on files instead of blocks: PostMark and bonnie, on a directory or on any target.
//!
//! Both work on a [`FileStore`]. [`Folder`] is a directory of the system; [`Extents`] keeps files
//! on a bare target with the simplest of allocators, so that the same method runs on a volume
//! without a file system, or in virtual time.

mod bonnie;
mod extents;
mod folder;
mod postmark;

use std::cell::Cell;
use std::future::Future;

use futures_util::future::try_join_all;

pub use bonnie::{Bonnie, run_bonnie};
pub use extents::Extents;
pub use folder::Folder;
pub(crate) use postmark::POSTMARK_FIGURES;
pub use postmark::{PostMark, run_postmark};

/// Where files are.
pub trait FileStore {
    /// What goes wrong there.
    type Error: std::error::Error + 'static;

    /// Makes an empty file; `number` names it.
    fn create(&self, number: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes `bytes` behind the end of a file, `block_bytes` at a time.
    fn append(
        &self,
        number: u64,
        bytes: u64,
        block_bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reads a whole file, `block_bytes` at a time; how many bytes there were.
    fn read_all(&self, number: u64, block_bytes: u64) -> impl Future<Output = Result<u64, Self::Error>>;

    /// Reads a block at an offset, and writes it back with a change if asked to.
    fn visit(
        &self,
        number: u64,
        offset_bytes: u64,
        block_bytes: u64,
        write_back: bool,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Visits places of a file, each with whether it is written back, by so many visitors at once
    /// that take the next place in turns.
    fn visit_by(
        &self,
        visitors: usize,
        number: u64,
        places: &[(u64, bool)],
        block_bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>> {
        async move {
            let next = Cell::new(0);
            let visitor = async || {
                while let Some((offset_bytes, write_back)) = places.get(next.replace(next.get() + 1)) {
                    self.visit(number, *offset_bytes, block_bytes, *write_back).await?;
                }
                Ok(())
            };
            try_join_all((0..visitors).map(|_| visitor())).await.map(drop)
        }
    }

    /// Takes a file away.
    fn delete(&self, number: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Makes durable what was written.
    fn sync(&self) -> impl Future<Output = Result<(), Self::Error>>;
}
