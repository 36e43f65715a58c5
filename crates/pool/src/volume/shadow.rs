//! Keeps writes to the drives of a read-only pool in memory. No change reaches the drive; reads
//! return the data in memory. This allows the journal replay after a crash in a read-only pool.
//!
//! Memory: at most [`MOST_BYTES`] per drive; writes beyond that are refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveErrorKind, DriveInfo, IoRequest, IoResult, Operation, completion,
};

use crate::Pool;
use stripewise_array::{Class, Member};

/// Maximum kept for each drive.
const MOST_BYTES: usize = 512 << 20;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// Written data of one 4 KiB page.
struct Page {
    /// Bitmap of the sectors that were written.
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
    /// Replays the journals of a read-only pool in memory, before anything is read. True if there
    /// was anything to replay, which opening the pool for writing would put in place. An array that
    /// cannot be recovered reports that when it is read.
    pub async fn recover_in_memory(&self) -> bool {
        let arrays = self.0.volumes.arrays();
        let mut has_recovered = false;
        for array in &arrays {
            let recovered = array.call(async |array| array.recover_in_memory().await).await;
            has_recovered |= recovered.unwrap_or(false);
        }
        has_recovered
    }
}

impl Shadow {
    pub(crate) fn over(context: &Context, drive: Rc<dyn Drive>) -> Rc<dyn Drive> {
        Rc::new(Self { context: context.clone(), drive, pages: Rc::default() })
    }

    /// As [`Self::over`], for a drive that others go on using through its queue.
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
                // The buffers of performance models have no bytes to keep.
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

/// A drive that is accessed through its queue.
struct Queued(Rc<Member>);

impl Drive for Queued {
    fn info(&self) -> &DriveInfo {
        self.0.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.0.submit(Class::Foreground, request)
    }
}

/// Copies written sectors over data that was read.
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
            // Nothing reaches the medium, so nothing has to be made durable; a discard is advisory.
            Operation::Flush | Operation::Discard => Completion::ready(Ok(())),
        }
    }
}
