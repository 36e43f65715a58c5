//! Checksums over drives in memory that lie, fail and lose power.

mod blocks;
mod cuts;
mod pages;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Buffer, BufferPool, Completion, Context, Drive, DriveError, DriveErrorKind, FaultyDrive, IoRequest,
    MemoryDrive, Operation, SplitMix64,
};
use stripewise_runtime::VirtualExecutor;

use super::*;
use crate::array::LocalFuture;

pub(super) const SLAB_BYTES: u64 = 4 << 20;
pub(super) const PAGES_PER_SLAB: u64 = SLAB_BYTES / PAGE_COVERS_BYTES;
pub(super) const MIB: u64 = 1 << 20;

/// Location of a page in these tests: drives hold an own place and a copy place for each page of
/// each row, alternately.
pub(super) fn place(width: u16, id: PageId, side: Side) -> (usize, u64) {
    let drive = match side {
        Side::Own => id.column,
        Side::Copy => (id.column + 1) % width,
    };
    let index = (id.row * PAGES_PER_SLAB + u64::from(id.page)) * 2 + u64::from(side == Side::Copy);
    (usize::from(drive), index * PAGE_BYTES as u64)
}

/// Pages on drives, with a log of the requests.
pub(super) struct Places {
    pub width: u16,
    pub drives: RefCell<Vec<Rc<dyn Drive>>>,
    /// True for each missing drive; its places are missing too.
    pub missing: RefCell<Vec<bool>>,
    pub log: RefCell<Vec<(PageId, Side, Operation)>>,
    pub flushes: Cell<u64>,
    pub reports: Cell<u64>,
    /// Excludes a drive at its first error.
    pub strict: Cell<bool>,
    pub wrong: RefCell<Vec<(PageId, Side)>>,
    /// Value of [`PageIo::most_between`].
    pub between: Cell<u64>,
}

impl Places {
    pub(super) fn new(drives: Vec<Rc<dyn Drive>>) -> Rc<Self> {
        Rc::new(Self {
            width: drives.len() as u16,
            missing: RefCell::new(vec![false; drives.len()]),
            drives: RefCell::new(drives),
            log: RefCell::default(),
            flushes: Cell::new(0),
            reports: Cell::new(0),
            strict: Cell::new(false),
            wrong: RefCell::default(),
            between: Cell::new(0),
        })
    }

    fn ask(&self, id: PageId, side: Side, request: impl FnOnce(u64) -> IoRequest) -> Completion {
        let (drive, offset) = place(self.width, id, side);
        let request = request(offset);
        self.log.borrow_mut().push((id, side, request.operation));
        if self.missing.borrow()[drive] {
            return Completion::ready(Err(request.error(&"missing".into(), DriveErrorKind::Gone, None)));
        }
        let drive = self.drives.borrow()[drive].clone();
        drive.submit(request)
    }

    pub(super) fn reads(&self) -> usize {
        self.log.borrow().iter().filter(|entry| entry.2 == Operation::Read).count()
    }
}

impl PageIo for Places {
    fn read(&self, page: PageId, side: Side, into: Buffer) -> Completion {
        self.ask(page, side, |offset| IoRequest::read(offset, into))
    }

    fn write(&self, page: PageId, side: Side, data: Buffer) -> Completion {
        self.ask(page, side, |offset| IoRequest::write(offset, data, false))
    }

    fn flush(&self) -> LocalFuture<'_, Result<(), ArrayError>> {
        self.flushes.set(self.flushes.get() + 1);
        Box::pin(async {
            let drives = self.drives.borrow().clone();
            let missing = self.missing.borrow().clone();
            let answers: Vec<_> = drives
                .iter()
                .zip(missing)
                .filter(|(_, missing)| !missing)
                .map(|(drive, _)| drive.submit(IoRequest::flush()))
                .collect();
            for answer in answers {
                answer.await?;
            }
            Ok(())
        })
    }

    fn report<'a>(
        &'a self,
        page: PageId,
        side: Side,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>> {
        assert_ne!(error.kind, DriveErrorKind::Gone, "a missing drive is not reported");
        self.reports.set(self.reports.get() + 1);
        if self.strict.get() {
            self.missing.borrow_mut()[place(self.width, page, side).0] = true;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn most_between(&self) -> u64 {
        self.between.get()
    }

    fn is_there(&self, page: PageId, side: Side) -> bool {
        !self.missing.borrow()[place(self.width, page, side).0]
    }

    fn found_wrong(&self, page: PageId, side: Side) {
        self.wrong.borrow_mut().push((page, side));
    }
}

/// A volume's checksums on faulty drives.
pub(super) struct Bed {
    pub images: Vec<Rc<MemoryDrive>>,
    pub faults: Vec<Rc<FaultyDrive>>,
    pub places: Rc<Places>,
    pub sums: Rc<Checksums>,
}

pub(super) const OPTIONS: ChecksumOptions =
    ChecksumOptions { cache_bytes: 1 << 20, window_pages: 256, prefer_newest: false, first_stamp: 1 };
pub(super) const VOLUME: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

pub(super) fn open(places: &Rc<Places>, options: ChecksumOptions) -> Rc<Checksums> {
    let spec = ChecksumSpec { volume_id: VOLUME, width: places.width, slab_bytes: SLAB_BYTES };
    Checksums::new(&BufferPool::new(1 << 20), spec, options, places.clone())
}

impl Bed {
    pub(super) fn new(context: &Context, width: u16, options: ChecksumOptions) -> Self {
        let images: Vec<_> = (0..width).map(|i| MemoryDrive::new(&format!("drive{i}"), 8 << 20)).collect();
        let faults: Vec<_> = images.iter().map(|image| FaultyDrive::new(context, image.clone(), 1)).collect();
        let places = Places::new(faults.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect());
        let sums = open(&places, options);
        Self { images, faults, places, sums }
    }

    /// Discards the state in memory and opens the checksums again.
    pub(super) fn reopen(&mut self, options: ChecksumOptions) {
        self.sums = open(&self.places, options);
        self.places.log.borrow_mut().clear();
    }

    pub(super) fn peek(&self, id: PageId, side: Side) -> Vec<u8> {
        let (drive, offset) = place(self.places.width, id, side);
        let mut bytes = vec![0; PAGE_BYTES];
        self.images[drive].peek(offset, &mut bytes);
        bytes
    }

    pub(super) fn poke(&self, id: PageId, side: Side, bytes: &[u8]) {
        let (drive, offset) = place(self.places.width, id, side);
        self.images[drive].poke(offset, bytes);
    }
}

/// Random contents, from a seed.
pub(super) fn data(seed: u64, blocks: usize) -> Buffer {
    let mut random = SplitMix64::new(seed);
    let bytes: Vec<u8> =
        (0..blocks * BLOCK_BYTES as usize / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    Buffer::from_bytes(&bytes)
}

/// Records checksums of contents, as a write does.
pub(super) async fn record(sums: &Checksums, column: u16, offset: u64, data: &Buffer, sequence: u32) {
    let pin = sums.pin(column, offset, data.len() as u64).await.expect("pages");
    sums.set(&pin, offset, &sums.compute(column, offset, data), sequence);
}

pub(super) fn run<F: Future<Output = ()>>(test: impl FnOnce(Context) -> F) {
    let executor = VirtualExecutor::new();
    executor.block_on(test(executor.context()));
}
