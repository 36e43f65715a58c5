//! What a pool opened for reading only puts before each of its drives: no change gets through,
//! the caller. What is written stays in memory and is read from there, so that what a
//! crash left in a journal can be carried out for a reader.
//!
//! Memory: [`MOST_BYTES`] for each drive; what would take more is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveErrorKind, DriveInfo, IoRequest, IoResult, Operation, completion,
};

use crate::member::{Class, Member};
use crate::pool::Pool;

/// Kept for each drive.
const MOST_BYTES: usize = 512 << 20;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// What was written of 4 KiB.
struct Page {
    /// Which of its sectors were.
    sectors: u8,
    bytes: Box<[u8; PAGE_BYTES as usize]>,
}

type Pages = Rc<RefCell<BTreeMap<u64, Page>>>;

pub(crate) struct Shadow {
    context: Context,
    drive: Rc<dyn Drive>,
    pages: Pages,
}

impl Pool {
    /// Of a pool that is only read, and before anything is read: carries out in memory what a crash
    /// left in its journals. Whether there was anything, so that opening the pool for writing would
    /// put it in place. An array that cannot be recovered says so when it is read.
    pub async fn recover_in_memory(&self) -> bool {
        let arrays = self.0.volumes.arrays();
        let mut has_recovered = false;
        for array in &arrays {
            has_recovered |= array.recover_in_memory().await.unwrap_or(false);
        }
        has_recovered
    }
}

impl Shadow {
    pub(crate) fn over(context: &Context, drive: Rc<dyn Drive>) -> Rc<dyn Drive> {
        Rc::new(Self { context: context.clone(), drive, pages: Rc::default() })
    }

    /// The same before a drive that others go on using through its queue.
    pub(crate) fn over_member(context: &Context, member: &Rc<Member>) -> Rc<dyn Drive> {
        Self::over(context, Rc::new(Queued(member.clone())))
    }

    fn keep(&self, request: &IoRequest) -> IoResult {
        let refuse = || Err(request.error(&self.info().label, DriveErrorKind::Denied, None));
        let (start, end) = (request.offset_bytes, request.end_bytes());
        if !start.is_multiple_of(SECTOR_BYTES) || !end.is_multiple_of(SECTOR_BYTES) {
            return refuse();
        }
        let mut bytes = vec![0; request.length_bytes as usize];
        let mut at = 0;
        for segment in &request.segments {
            let to = &mut bytes[at..at + segment.len()];
            if segment.with(|from| to.copy_from_slice(from)).is_none() {
                // Models have no bytes to keep.
                return Ok(());
            }
            at += segment.len();
        }
        let mut pages = self.pages.borrow_mut();
        for (index, sector) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
            let place = start + index as u64 * SECTOR_BYTES;
            if !pages.contains_key(&(place / PAGE_BYTES))
                && (pages.len() + 1) * PAGE_BYTES as usize > MOST_BYTES
            {
                return refuse();
            }
            let page = pages
                .entry(place / PAGE_BYTES)
                .or_insert_with(|| Page { sectors: 0, bytes: Box::new([0; PAGE_BYTES as usize]) });
            let within = (place % PAGE_BYTES) as usize;
            page.sectors |= 1 << (within as u64 / SECTOR_BYTES);
            page.bytes[within..within + sector.len()].copy_from_slice(sector);
        }
        Ok(())
    }

    fn read(&self, request: IoRequest) -> Completion {
        let range = request.offset_bytes / PAGE_BYTES..request.end_bytes().div_ceil(PAGE_BYTES);
        if self.pages.borrow().range(range).next().is_none() {
            return self.drive.submit(request);
        }
        let (drive, pages) = (self.drive.clone(), self.pages.clone());
        let (sender, answer) = completion();
        let (start, segments) = (request.offset_bytes, request.segments.clone());
        self.context.spawn(async move {
            let result = drive.submit(request).await;
            if result.is_ok() {
                lay_over(&pages.borrow(), start, &segments);
            }
            sender.complete(result);
        });
        answer
    }
}

/// A drive that is reached through its queue.
struct Queued(Rc<Member>);

impl Drive for Queued {
    fn info(&self) -> &DriveInfo {
        self.0.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.0.submit(Class::Foreground, request)
    }
}

/// Puts what was written over what was read.
fn lay_over(pages: &BTreeMap<u64, Page>, start: u64, segments: &[Buffer]) {
    let mut from = start;
    for segment in segments {
        segment.with_mut(|bytes| {
            for (index, sector) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
                let place = from + index as u64 * SECTOR_BYTES;
                let within = (place % PAGE_BYTES) as usize;
                if let Some(page) = pages.get(&(place / PAGE_BYTES))
                    && page.sectors >> (within as u64 / SECTOR_BYTES) & 1 == 1
                {
                    sector.copy_from_slice(&page.bytes[within..within + sector.len()]);
                }
            }
        });
        from += segment.len() as u64;
    }
}

impl Drive for Shadow {
    fn info(&self) -> &DriveInfo {
        self.drive.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Write { .. } | Operation::WriteZeroes => Completion::ready(self.keep(&request)),
            // Nothing reaches the medium, so nothing is to be made durable there; a discard is
            // advice.
            Operation::Flush | Operation::Discard => Completion::ready(Ok(())),
        }
    }
}
