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

/// A part of a method on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Name for readers.
    pub name: &'static str,
    /// Unit of the amounts: `bytes`, or things that are counted.
    pub unit: &'static str,
    /// Amount of the whole phase.
    pub total: u64,
}

/// Follows a method on files.
pub trait FileWatch {
    /// The method is in `phase`, of which `done` is complete.
    fn at(&self, phase: Phase, done: u64);

    /// True to stop in an orderly way.
    fn is_interrupted(&self) -> bool;
}

/// Shows nothing and never stops.
pub struct Unwatched;

impl FileWatch for Unwatched {
    fn at(&self, _: Phase, _: u64) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Reason for ending a method on files early.
#[derive(Debug, thiserror::Error)]
pub enum FileError<E: std::error::Error + 'static> {
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] E),
    /// The watch asked for it.
    #[error("interrupted")]
    Interrupted,
}

/// Reports a phase to the watch, and stops at its request.
fn proceed<E: std::error::Error>(watch: &dyn FileWatch, phase: Phase, done: u64) -> Result<(), FileError<E>> {
    watch.at(phase, done);
    if watch.is_interrupted() { Err(FileError::Interrupted) } else { Ok(()) }
}

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

    /// Reads `bytes` of a file from an offset on, `block_bytes` at a time.
    fn read(
        &self,
        number: u64,
        offset_bytes: u64,
        bytes: u64,
        block_bytes: u64,
    ) -> impl Future<Output = Result<(), Self::Error>>;

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
