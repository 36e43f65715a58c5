//! Drives that are files on a file system that becomes full: writes stop with an error that names
//! the cause, reads continue, flushed data stays, volumes can be deleted, and nothing is missing
//! when there is space again.
//!
//! Invariant I29 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_array::ArrayError;
use stripewise_drive::{
    Completion, Drive, DriveErrorKind, DriveInfo, DriveKind, IoRequest, MemoryDrive, Operation,
};
use stripewise_pool::{Condition, DriveState, OpenMode, Pool, PoolState, Volume, VolumeSpec};

const PAGE: u64 = 4096;
/// Free space that does not even allow overwriting pages, as on a copy-on-write file system.
const NONE_TO_OVERWRITE: u64 = 1;

/// A sparse file on a shared file system: pages that were never written take free space.
struct SparseFile {
    inner: Rc<MemoryDrive>,
    info: DriveInfo,
    taken: RefCell<HashSet<u64>>,
    room: Rc<Cell<u64>>,
}

impl SparseFile {
    fn over(inner: &Rc<MemoryDrive>, room: &Rc<Cell<u64>>) -> Rc<Self> {
        let info = DriveInfo { kind: DriveKind::File, ..inner.info().clone() };
        Rc::new(Self { inner: inner.clone(), info, taken: RefCell::default(), room: room.clone() })
    }
}

impl Drive for SparseFile {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let pages = request.offset_bytes / PAGE..request.end_bytes().div_ceil(PAGE);
        let mut taken = self.taken.borrow_mut();
        match request.operation {
            Operation::Write { .. } | Operation::WriteZeroes => {
                for page in pages {
                    let is_new = !taken.contains(&page);
                    if self.room.get() == NONE_TO_OVERWRITE || is_new && self.room.get() < PAGE {
                        let full = request.error(&self.info.label, DriveErrorKind::NoSpace, Some(28));
                        return Completion::ready(Err(full));
                    }
                    if taken.insert(page) {
                        self.room.set(self.room.get() - PAGE);
                    }
                }
            }
            Operation::Discard => {
                let freed = pages.filter(|page| taken.remove(page)).count() as u64;
                self.room.set(self.room.get() + freed * PAGE);
            }
            Operation::Read | Operation::Flush => {}
        }
        self.inner.submit(request)
    }
}

fn sparse_files(count: usize, mib: u64, room: &Rc<Cell<u64>>) -> Vec<Rc<dyn Drive>> {
    memory_drives(count, mib).iter().map(|drive| SparseFile::over(drive, room) as Rc<dyn Drive>).collect()
}

/// Writes pieces of 64 KiB until one is refused; returns its offset and the error.
async fn write_until_refused(volume: &Volume, seed: u64) -> (u64, ArrayError) {
    let piece = 64 << 10;
    let mut at = 0;
    loop {
        let data = stripewise_drive::Buffer::from_bytes(&contents(seed, at, piece as usize));
        if let Err(error) = volume.write(at, data, false).await {
            return (at, error);
        }
        at += piece;
    }
}

fn spec_of(name: &str, layout: &str, write_back: bool, checksums: bool) -> VolumeSpec {
    let mut spec = volume_spec(name, layout, Some(40 * MIB));
    spec.layout.columns = match layout {
        "single" => Some(1),
        "raid1" => Some(2),
        _ => None,
    };
    VolumeSpec { write_back: Some(write_back), checksums: Some(checksums), ..spec }
}

/// Fills the file system under one layout and checks all guarantees.
fn runs_full(layout: &str, write_back: bool, checksums: bool) {
    let room = Rc::new(Cell::new(u64::MAX / 2));
    let drives = sparse_files(4, 96, &room);
    let life = Life::new();
    let durable = life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        let kept = pool.create_volume(spec_of("kept", layout, write_back, checksums)).await.unwrap();
        fill(&kept, 1, 0, 6 * MIB).await;
        kept.flush().await.unwrap();
        let volume = pool.create_volume(spec_of("data", layout, write_back, checksums)).await.unwrap();
        room.set(14 * MIB);
        let (at, error) = write_until_refused(&volume, 2).await;
        assert!(matches!(error, ArrayError::FileSystemFull { .. }), "{layout}: {error}");
        assert!(error.to_string().contains("ENOSPC"), "{error}");
        let durable = volume.durable_until(0, at).await;
        // Data written in place may take all the space before the region map gets any: then none of
        // it is durable.
        assert!(durable <= at && (durable > 0 || !write_back), "{layout}: {durable} of {at}");

        // Every drive is still in use, and everything can be read.
        let status = pool.status();
        assert_eq!(status.state, PoolState::Degraded);
        assert!(matches!(status.condition, Condition::FileSystemFull { .. }), "{status:?}");
        assert!(status.drives.iter().all(|drive| drive.state == DriveState::Online), "{status:?}");
        assert!(pool.events().iter().any(|event| event.text.contains("ENOSPC")));
        holds(&kept, 1, 0, 6 * MIB).await.unwrap();
        holds(&volume, 2, 0, at).await.unwrap();
        // Not closed, as after a kill.
        durable
    });
    let life = Life::new();
    life.run(async {
        let looked = life.open_as(&drives, OpenMode::ReadOnly).await.unwrap();
        holds(&looked.volume("kept").unwrap(), 1, 0, 6 * MIB).await.unwrap();
        holds(&looked.volume("data").unwrap(), 2, 0, durable).await.unwrap();
        looked.close().await.unwrap();

        let before = room.get();
        let pool = life.open(&drives).await.unwrap();
        holds(&pool.volume("kept").unwrap(), 1, 0, 6 * MIB).await.unwrap();
        holds(&pool.volume("data").unwrap(), 2, 0, durable).await.unwrap();
        pool.delete_volume("data").await.unwrap();
        assert!(room.get() > before + 4 * MIB, "a deleted volume frees its space");
        pool.close().await.unwrap();

        let pool = life.open(&drives).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.status());
        let kept = pool.volume("kept").unwrap();
        fill(&kept, 3, 0, 4 * MIB).await;
        kept.flush().await.unwrap();
        holds(&kept, 3, 0, 4 * MIB).await.unwrap();
        holds(&kept, 1, 4 * MIB, 2 * MIB).await.unwrap();
        scrub_finds_nothing(&pool).await;
        pool.close().await.unwrap();
    });
}

async fn scrub_finds_nothing(pool: &Pool) {
    pool.start_jobs();
    pool.scrub().await.unwrap();
    pool.wait(stripewise_pool::JobKind::Scrub).await.unwrap();
    for summary in pool.scrub_reports() {
        let report = &summary.report;
        let is_clean = summary.error.is_none() && report.blamed.is_empty() && report.unattributed_blocks == 0;
        assert!(is_clean, "{summary:?}");
    }
}

#[test]
fn full_file_system_stops_writes_only() {
    for layout in ["single", "raid1", "raid5", "raid6"] {
        for checksums in [true, false] {
            runs_full(layout, false, checksums);
        }
    }
}

#[test]
fn full_file_system_stops_write_back_only() {
    for checksums in [true, false] {
        runs_full("raid5", true, checksums);
        runs_full("raid6", true, checksums);
    }
}

#[test]
fn writes_resume_when_there_is_space_again() {
    let room = Rc::new(Cell::new(u64::MAX / 2));
    let drives = sparse_files(4, 96, &room);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&drives, &[]).await.unwrap();
        let volume = pool.create_volume(spec_of("data", "raid5", true, true)).await.unwrap();
        room.set(10 * MIB);
        let (at, _) = write_until_refused(&volume, 1).await;
        room.set(u64::MAX / 2);
        let again = volume.write(0, stripewise_drive::Buffer::from_bytes(&[0; 4096]), false).await;
        assert!(matches!(again, Err(ArrayError::FileSystemFull { .. })), "stripes must be repaired first");
        pool.close().await.unwrap();
        let pool = life.open(&drives).await.unwrap();
        let volume = pool.volume("data").unwrap();
        fill(&volume, 2, at, 8 * MIB).await;
        volume.flush().await.unwrap();
        holds(&volume, 2, at, 8 * MIB).await.unwrap();
        scrub_finds_nothing(&pool).await;
        assert_eq!(pool.status().state, PoolState::Online);
        pool.close().await.unwrap();
    });
}

#[test]
fn failed_discard_leaves_data_unchanged() {
    for (layout, checksums) in [("single", false), ("raid1", false), ("raid1", true), ("raid5", true)] {
        let room = Rc::new(Cell::new(u64::MAX / 2));
        let drives = sparse_files(4, 96, &room);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&drives, &[]).await.unwrap();
            let volume = pool.create_volume(spec_of("data", layout, false, checksums)).await.unwrap();
            fill(&volume, 1, 0, 12 * MIB).await;
            volume.flush().await.unwrap();
            room.set(NONE_TO_OVERWRITE);
            let refused = volume.discard(0, 12 * MIB).await;
            assert!(matches!(refused, Err(ArrayError::FileSystemFull { .. })), "{layout}: {refused:?}");
            holds(&volume, 1, 0, 12 * MIB).await.unwrap();
        });
    }
}
