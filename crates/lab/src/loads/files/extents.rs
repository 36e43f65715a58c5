//! Files on a bare target: first fit in runs of 4 KiB blocks, without metadata on the target.
//!
//! The host's page cache is simulated as far as streams need it: sequential writes are sent in
//! requests of 2 MiB, sequential reads in requests of 1 MiB. Other parts of a file system
//! (directories, a log, cached data) are left out on purpose: figures are those of the data alone,
//! and the method's notes say so. Expects a target that becomes full.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use super::FileStore;
use crate::loads::target::Target;

const BLOCK_BYTES: u64 = 4096;
/// Size of combined sequential writes.
const BEHIND_BYTES: u64 = 2 << 20;
/// Size of read-ahead for sequential reads.
const AHEAD_BYTES: u64 = 1 << 20;

/// An error of files on a target.
#[derive(Debug, thiserror::Error)]
pub enum ExtentError<E: std::error::Error + 'static> {
    /// Error of the target.
    #[error(transparent)]
    Target(E),
    /// No free block.
    #[error("the target is full")]
    Full,
    /// Unknown file, or an offset beyond its end.
    #[error("file {0} does not exist or is shorter")]
    NoPlace(u64),
}

#[derive(Default)]
struct OneFile {
    length_bytes: u64,
    /// Runs of blocks: first, count.
    runs: Vec<(u64, u64)>,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    number: u64,
    from: u64,
    to: u64,
}

impl Part {
    fn overlaps(self, other: Self) -> bool {
        self.number == other.number && self.from < other.to && other.from < self.to
    }

    fn covers(self, other: Self) -> bool {
        self.number == other.number && self.from <= other.from && other.to <= self.to
    }

    fn ends_where(self, other: Self) -> bool {
        self.number == other.number && self.to == other.from
    }
}

/// Files on a target.
pub struct Extents<T: Target> {
    target: T,
    /// Written, not yet sent.
    behind: Cell<Option<Part>>,
    /// Last part read.
    ahead: Cell<Option<Part>>,
    /// Free runs: first block, count.
    free: RefCell<BTreeMap<u64, u64>>,
    files: RefCell<HashMap<u64, OneFile>>,
}

impl<T: Target> Extents<T> {
    /// Creates a store without files.
    pub fn new(target: T) -> Self {
        let blocks = target.capacity_bytes() / BLOCK_BYTES;
        let free = RefCell::new(BTreeMap::from([(0, blocks)]));
        Self { target, behind: Cell::new(None), ahead: Cell::new(None), free, files: RefCell::default() }
    }

    /// Allocates the first free run, cut to `wanted` blocks.
    fn take(&self, wanted: u64) -> Result<(u64, u64), ExtentError<T::Error>> {
        let mut free = self.free.borrow_mut();
        let fitting = free.iter().find(|(_, count)| **count >= wanted).or_else(|| free.iter().next());
        let (first, count) = fitting.map(|(first, count)| (*first, *count)).ok_or(ExtentError::Full)?;
        free.remove(&first);
        let taken = count.min(wanted);
        if count > taken {
            free.insert(first + taken, count - taken);
        }
        Ok((first, taken))
    }

    fn give_back(&self, (mut first, mut count): (u64, u64)) {
        let mut free = self.free.borrow_mut();
        if let Some(behind) = free.remove(&(first + count)) {
            count += behind;
        }
        if let Some((&before, &length)) =
            free.range(..first).next_back().filter(|(at, length)| *at + **length == first)
        {
            free.remove(&before);
            (first, count) = (before, count + length);
        }
        free.insert(first, count);
    }

    /// Offset on the target of a file's bytes at `offset_bytes`, and the contiguous length from
    /// there.
    fn place(&self, number: u64, offset_bytes: u64) -> Option<(u64, u64)> {
        let files = self.files.borrow();
        let mut skipped = 0;
        for &(first, count) in &files.get(&number)?.runs {
            let bytes = count * BLOCK_BYTES;
            if offset_bytes < skipped + bytes {
                let inside = offset_bytes - skipped;
                return Some((first * BLOCK_BYTES + inside, bytes - inside));
            }
            skipped += bytes;
        }
        None
    }

    fn length_bytes(&self, number: u64) -> Result<u64, ExtentError<T::Error>> {
        let files = self.files.borrow();
        files.get(&number).map(|file| file.length_bytes).ok_or(ExtentError::NoPlace(number))
    }

    /// Reads or writes a range of a file in runs of at most `block_bytes`, in whole blocks of the
    /// target.
    async fn transfer(
        &self,
        number: u64,
        offset_bytes: u64,
        length_bytes: u64,
        block_bytes: u64,
        writes: bool,
    ) -> Result<(), ExtentError<T::Error>> {
        let end = (offset_bytes + length_bytes).div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        let mut at = offset_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let step = block_bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        while at < end {
            let (place, together) = self.place(number, at).ok_or(ExtentError::NoPlace(number))?;
            let length = step.min(end - at).min(together);
            if writes {
                let buffer = self.target.buffers().allocate(length as usize);
                self.target.write(place, buffer).await.map_err(ExtentError::Target)?;
            } else {
                self.target.read(place, length).await.map_err(ExtentError::Target)?;
            }
            at += length;
        }
        Ok(())
    }
}

impl<T: Target> Extents<T> {
    async fn write(&self, part: Part) -> Result<(), ExtentError<T::Error>> {
        let together = match self.behind.get() {
            Some(behind) if behind.ends_where(part) => Part { from: behind.from, ..part },
            _ => {
                self.write_behind().await?;
                part
            }
        };
        self.behind.set(Some(together));
        if together.to - together.from >= BEHIND_BYTES {
            self.write_behind().await?;
        }
        Ok(())
    }

    async fn write_behind(&self) -> Result<(), ExtentError<T::Error>> {
        // Other tasks may set it again during the write.
        while let Some(part) = self.behind.take() {
            self.transfer(part.number, part.from, part.to - part.from, BEHIND_BYTES, true).await?;
        }
        Ok(())
    }

    async fn read_part(&self, part: Part) -> Result<(), ExtentError<T::Error>> {
        if self.behind.get().is_some_and(|behind| behind.overlaps(part)) {
            self.write_behind().await?;
        }
        let before = self.ahead.get();
        if before.is_some_and(|ahead| ahead.covers(part)) {
            return Ok(());
        }
        let end = self.length_bytes(part.number)?;
        let part = match before.is_some_and(|ahead| ahead.ends_where(part)) {
            true => Part { to: part.to.max(part.from + AHEAD_BYTES).min(end.max(part.to)), ..part },
            false => part,
        };
        self.transfer(part.number, part.from, part.to - part.from, AHEAD_BYTES, false).await?;
        self.ahead.set(Some(part));
        Ok(())
    }
}

impl<T: Target> FileStore for Extents<T> {
    type Error = ExtentError<T::Error>;

    async fn create(&self, number: u64) -> Result<(), Self::Error> {
        self.files.borrow_mut().insert(number, OneFile::default());
        Ok(())
    }

    async fn append(&self, number: u64, bytes: u64, block_bytes: u64) -> Result<(), Self::Error> {
        let length = self.length_bytes(number)?;
        let mut missing = (length + bytes).div_ceil(BLOCK_BYTES) - length.div_ceil(BLOCK_BYTES);
        while missing > 0 {
            let run = self.take(missing)?;
            missing -= run.1;
            let mut files = self.files.borrow_mut();
            let runs = &mut files.entry(number).or_default().runs;
            match runs.last_mut().filter(|last| last.0 + last.1 == run.0) {
                Some(last) => last.1 += run.1,
                None => runs.push(run),
            }
        }
        self.files.borrow_mut().entry(number).or_default().length_bytes += bytes;
        for from in (length..length + bytes).step_by(block_bytes.max(1) as usize) {
            self.write(Part { number, from, to: (from + block_bytes).min(length + bytes) }).await?;
        }
        Ok(())
    }

    async fn read(
        &self,
        number: u64,
        offset_bytes: u64,
        bytes: u64,
        block_bytes: u64,
    ) -> Result<(), Self::Error> {
        let end = offset_bytes + bytes;
        for from in (offset_bytes..end).step_by(block_bytes.max(1) as usize) {
            self.read_part(Part { number, from, to: (from + block_bytes).min(end) }).await?;
        }
        Ok(())
    }

    async fn visit(
        &self,
        number: u64,
        offset_bytes: u64,
        block_bytes: u64,
        write_back: bool,
    ) -> Result<(), Self::Error> {
        let part = Part { number, from: offset_bytes, to: offset_bytes + block_bytes };
        self.read_part(part).await?;
        if write_back {
            self.write(part).await?;
        }
        Ok(())
    }

    async fn delete(&self, number: u64) -> Result<(), Self::Error> {
        let file = self.files.borrow_mut().remove(&number).ok_or(ExtentError::NoPlace(number))?;
        file.runs.into_iter().for_each(|run| self.give_back(run));
        for last in [&self.behind, &self.ahead] {
            last.set(last.get().filter(|part| part.number != number));
        }
        Ok(())
    }

    async fn sync(&self) -> Result<(), Self::Error> {
        self.write_behind().await?;
        self.target.flush().await.map_err(ExtentError::Target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::metered::MeteredDrive;
    use crate::loads::target::DriveTarget;
    use crate::testing::SlowDrive;
    use stripewise_drive::{BufferPool, MemoryDrive};
    use stripewise_runtime::VirtualExecutor;

    #[test]
    fn concurrent_small_writes_are_all_performed() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, MemoryDrive::new("memory", 1 << 20), 100_000);
        let metered = MeteredDrive::new("metered", drive);
        let files = Extents::new(DriveTarget::new(metered.clone(), BufferPool::new(1 << 20)));
        executor.block_on(async {
            files.create(1).await.expect("made");
            files.append(1, 1 << 20, 1 << 20).await.expect("written");
            files.sync().await.expect("durable");
            let before = metered.traffic();
            // No two are adjacent, so that none are combined.
            let places: Vec<(u64, bool)> = (0..128).map(|place| (place % 64 * 16_384, place < 64)).collect();
            files.visit_by(3, 1, &places, 4096).await.expect("visited");
            files.sync().await.expect("durable");
            let since = metered.traffic().since(&before);
            assert_eq!(since.written_bytes, 64 * 4096, "{since:?}");
            assert_eq!(since.reads, 128, "{since:?}");
        });
    }

    #[test]
    fn extents_are_allocated_once_and_freed_whole() {
        let executor = VirtualExecutor::new();
        let target = DriveTarget::new(MemoryDrive::new("memory", 1 << 20), BufferPool::new(1 << 20));
        let files = Extents::new(target);
        executor.block_on(async {
            for number in 0..8 {
                files.create(number).await.expect("made");
                files.append(number, 100_000, 8192).await.expect("written");
            }
            let mut blocks: Vec<u64> = files
                .files
                .borrow()
                .values()
                .flat_map(|file| file.runs.clone())
                .flat_map(|(first, count)| first..first + count)
                .collect();
            let all = blocks.len();
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!((blocks.len(), all), (8 * 25, 8 * 25), "no block twice");
            files.read(3, 0, 100_000, 4096).await.expect("read");
            assert!(files.read(3, 0, 110_000, 4096).await.is_err());
            for number in [1, 3, 5] {
                files.delete(number).await.expect("deleted");
            }
            files.create(9).await.expect("made");
            files.append(9, 250_000, 65536).await.expect("fits in several runs");
            assert!(files.files.borrow()[&9].runs.len() > 1);
            files.visit(9, 240_000, 4096, true).await.expect("visited");
            assert!(files.visit(9, 400_000, 4096, false).await.is_err());
            assert!(matches!(files.append(9, 1 << 20, 4096).await, Err(ExtentError::Full)));
            for number in [0, 2, 4, 6, 7, 9] {
                files.delete(number).await.expect("deleted");
            }
            assert_eq!(*files.free.borrow(), BTreeMap::from([(0, 256)]));
        });
    }
}
