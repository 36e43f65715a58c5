//! Drives that are cut short: they are left out, and nothing that they hold counts when they have
//! their length again, since a part of it is zeros.
//!
//! Invariant I10 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Completion, Drive, DriveErrorKind, DriveInfo, IoRequest, MemoryDrive};
use stripewise_pool::{JobKind, PoolState, VolumeSpec};

/// A drive that notices at its next request that it was cut, and stays lost.
struct Cuttable {
    inner: Rc<MemoryDrive>,
    info: DriveInfo,
    is_cut: Cell<bool>,
}

impl Cuttable {
    fn over(inner: &Rc<MemoryDrive>) -> Rc<Self> {
        Rc::new(Self { inner: inner.clone(), info: inner.info().clone(), is_cut: Cell::new(false) })
    }

    /// As it is opened while it is shorter.
    fn short(inner: &Rc<MemoryDrive>, capacity_bytes: u64) -> Rc<Self> {
        let info = DriveInfo { capacity_bytes, ..inner.info().clone() };
        Rc::new(Self { inner: inner.clone(), info, is_cut: Cell::new(false) })
    }
}

impl Drive for Cuttable {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if self.is_cut.get() {
            let cut = request.error(&self.info.label, DriveErrorKind::Cut, None);
            return Completion::ready(Err(cut));
        }
        self.inner.submit(request)
    }
}

const LEFT: u64 = 6 * MIB;
const SIZE: u64 = 20 * MIB;

fn spec() -> VolumeSpec {
    let mut spec = volume_spec("data", "raid1", Some(SIZE));
    spec.layout.columns = Some(2);
    VolumeSpec { checksums: Some(false), ..spec }
}

/// A pool with a mirror on its two drives, written and closed.
fn made() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(2, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = full_volume(&pool, spec(), 1).await;
        volume.flush().await.unwrap();
        pool.close().await.unwrap();
    });
    images
}

/// Replaces everything behind the cut with zeros.
fn lose_the_rest(image: &MemoryDrive) {
    image.poke(LEFT, &vec![0; (image.info().capacity_bytes - LEFT) as usize]);
}

/// Whole again in length it is of no use, and everything is read from the other.
fn is_not_believed(images: &[Rc<MemoryDrive>], rewritten: u64) {
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.unwrap();
        pool.start_jobs();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive0"), "stale");
        let volume = pool.volume("data").unwrap();
        for _ in 0..3 {
            holds(&volume, 2, 0, rewritten).await.unwrap();
            holds(&volume, 1, rewritten, SIZE - rewritten).await.unwrap();
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn a_drive_cut_in_use_counts_for_nothing() {
    for by_request in [true, false] {
        let images = made();
        let drives: Vec<Rc<Cuttable>> = images.iter().map(Cuttable::over).collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&drives)).await.unwrap();
            let volume = pool.volume("data").unwrap();
            drives[0].is_cut.set(true);
            lose_the_rest(&images[0]);
            if !by_request {
                let id = id_of(&pool.status(), "drive0");
                pool.drive_cut(id, "it was cut short").await.unwrap();
            }
            fill(&volume, 2, 0, MIB).await;
            volume.flush().await.unwrap();
            let status = pool.status();
            assert_eq!((status.state, state_of(&status, "drive0")), (PoolState::Degraded, "failed"));
            holds(&volume, 1, MIB, SIZE - MIB).await.unwrap();
            pool.close().await.unwrap();
        });
        drop(life);
        is_not_believed(&images, MIB);
    }
}

#[test]
fn a_drive_found_short_counts_for_nothing() {
    let images = made();
    lose_the_rest(&images[0]);
    let life = Life::new();
    life.run(async {
        let short: Rc<dyn Drive> = Cuttable::short(&images[0], LEFT);
        let pool = life.open(&[short, images[1].clone()]).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive0"), "failed");
        let notices = pool.notices();
        assert!(notices.iter().any(|notice| notice.contains("has shrunk")), "{notices:?}");
        let volume = pool.volume("data").unwrap();
        fill(&volume, 2, 0, MIB).await;
        volume.flush().await.unwrap();
        pool.close().await.unwrap();
    });
    drop(life);
    is_not_believed(&images, MIB);
}
