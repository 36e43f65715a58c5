//! Methods on files instead of blocks: PostMark and bonnie, on a directory or on any target.
//!
//! Both work on a [`FileStore`]. [`Folder`] is a directory of the system; [`Extents`] keeps files
//! on a bare target with a minimal allocator, so that the same method runs on a volume without a
//! file system, or in virtual time.

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

/// A store of numbered files.
pub trait FileStore {
    /// Error of the store.
    type Error: std::error::Error + 'static;

    /// Creates an empty file named by `number`.
    fn create(&self, number: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Appends `bytes` to a file, `block_bytes` at a time.
    fn append(
        &self,
        number: u64,
        bytes: u64,
        block_bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reads a whole file, `block_bytes` at a time; returns its length in bytes.
    fn read_all(&self, number: u64, block_bytes: u64) -> impl Future<Output = Result<u64, Self::Error>>;

    /// Reads a block at an offset, and optionally changes it and writes it back.
    fn visit(
        &self,
        number: u64,
        offset_bytes: u64,
        block_bytes: u64,
        write_back: bool,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Visits places of a file with several concurrent visitors, each of which takes the next place
    /// in turn. Each place has a flag for writing it back.
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

    /// Deletes a file.
    fn delete(&self, number: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Makes all writes durable.
    fn sync(&self) -> impl Future<Output = Result<(), Self::Error>>;
}
