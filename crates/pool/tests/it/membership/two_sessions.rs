//! Two processes want one pool: two hosts that go by one identity, or one that was away while the
//! other took over. Drives on the network know no lock.
//!
//! Invariant I20 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Completion, Drive, DriveInfo, DriveKind, IoRequest, MemoryDrive};
use stripewise_pool::{Host, Pool, PoolOptions};
use stripewise_pool::{OpenMode, PoolError, PoolSpec, PoolState, VolumeSpec};

const SIZE: u64 = 4 * MIB;
const SECOND_NS: u64 = 1_000_000_000;
const BLOCK: u64 = 4096;

/// A way to a drive that other hosts have, too.
struct Export {
    drive: Rc<MemoryDrive>,
    info: DriveInfo,
}

impl Drive for Export {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.drive.submit(request)
    }
}

fn reached(images: &[Rc<MemoryDrive>], kind: DriveKind) -> Vec<Rc<dyn Drive>> {
    let reach = |drive: &Rc<MemoryDrive>| {
        let info = DriveInfo { kind, ..drive.info().clone() };
        Rc::new(Export { drive: drive.clone(), info }) as Rc<dyn Drive>
    };
    images.iter().map(reach).collect()
}

fn exports(images: &[Rc<MemoryDrive>]) -> Vec<Rc<dyn Drive>> {
    reached(images, DriveKind::Network)
}

fn as_host(id: u64, seed: u64, force: bool) -> PoolOptions {
    PoolOptions { host: Some(Host::new(id, "alpha")), take_from_host: force, ..options(seed) }
}

async fn open(life: &Life, drives: Vec<Rc<dyn Drive>>, options: PoolOptions) -> Result<Pool, PoolError> {
    Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadWrite, options).await
}

/// A pool of three drives, that host 1 has open, with a volume full of what seed 1 gives.
async fn made(life: &Life, drives: Vec<Rc<dyn Drive>>, layout: &str) -> Pool {
    let spec = PoolSpec { options: as_host(1, 5, false), ..spec("tank", &drives, &[]) };
    let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
    let mut spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", layout, Some(SIZE)) };
    spec.layout.columns = Some(3);
    full_volume(&pool, spec, 1).await.flush().await.unwrap();
    pool
}

/// Writes and flushes one block after the other, with what `seed` gives, until it is refused. Gives
/// the blocks that were acknowledged.
async fn write_until_refused(pool: &Pool, seed: u64) -> Vec<u64> {
    let volume = pool.volume("data").unwrap();
    let mut acknowledged = Vec::new();
    for block in 0.. {
        let at = block % (SIZE / BLOCK) * BLOCK;
        let data = Buffer::from_bytes(&contents(seed, at, BLOCK as usize));
        if volume.write(at, data, false).await.is_err() || volume.flush().await.is_err() {
            break;
        }
        acknowledged.push(at);
        pool.context().sleep_ns(20_000_000).await;
    }
    acknowledged
}

#[test]
fn a_pool_in_use_elsewhere_is_not_opened() {
    let images = memory_drives(3, 16);
    let life = Life::new();
    life.run(async {
        let first = made(&life, exports(&images), "raid5").await;
        // However long it has had nothing to do.
        for idle_s in [0, 1000] {
            life.context.sleep_ns(idle_s * SECOND_NS).await;
            let refused = open(&life, exports(&images), as_host(1, 6, false)).await.err().expect("in use");
            assert!(matches!(refused, PoolError::InUse { .. }), "{refused}");
        }
        holds(&first.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
        first.volume("data").unwrap().flush().await.unwrap();
        first.close().await.unwrap();
        let began_ns = life.context.now_ns();
        let second = open(&life, exports(&images), as_host(1, 6, false)).await.unwrap();
        assert_eq!(life.context.now_ns(), began_ns, "it was closed: nothing is waited for");
        holds(&second.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
        second.close().await.unwrap();
    });
}

#[test]
fn a_dead_session_is_waited_for_on_the_network_only() {
    for (kind, waits) in [(DriveKind::Network, true), (DriveKind::BlockDevice, false)] {
        let images = memory_drives(3, 16);
        let life = Life::new();
        drop(life.run(made(&life, reached(&images, kind), "raid5")));
        drop(life);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, reached(&images, kind), as_host(1, 6, false)).await.unwrap();
            assert_eq!(life.context.now_ns() > SECOND_NS, waits, "{kind:?}");
            holds(&pool.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn the_session_taken_over_acknowledges_nothing() {
    for (kind, host) in [(DriveKind::Network, 1), (DriveKind::Network, 2), (DriveKind::BlockDevice, 2)] {
        for layout in ["raid5", "raid1"] {
            let images = memory_drives(3, 16);
            let life = Life::new();
            life.run(async {
                let first = made(&life, reached(&images, kind), layout).await;
                let writing = {
                    let first = first.clone();
                    life.context.spawn(async move { write_until_refused(&first, 2).await })
                };
                life.context.sleep_ns(3 * SECOND_NS).await;
                let second = open(&life, reached(&images, kind), as_host(host, 6, true)).await.unwrap();
                let volume = second.volume("data").unwrap();
                let acknowledged = writing.await;
                assert!(first.is_taken_over() && acknowledged.len() > 100);
                for at in &acknowledged {
                    holds(&volume, 2, *at, BLOCK).await.expect("what was acknowledged");
                }
                fill(&volume, 3, 0, SIZE).await;
                volume.flush().await.unwrap();
                let refused = first.volume("data").unwrap().flush().await;
                assert!(refused.is_err() && first.close().await.is_err());
                life.context.sleep_ns(60 * SECOND_NS).await;
                holds(&volume, 3, 0, SIZE).await.unwrap();
                assert_eq!(second.status().state, PoolState::Online);
                second.close().await.unwrap();
                let again = open(&life, reached(&images, kind), as_host(host, 7, false)).await.unwrap();
                holds(&again.volume("data").unwrap(), 3, 0, SIZE).await.unwrap();
                assert_eq!(again.status().state, PoolState::Online);
                again.close().await.unwrap();
            });
        }
    }
}

#[test]
fn after_a_takeover_the_older_session_writes_nothing() {
    for kind in [DriveKind::Network, DriveKind::BlockDevice] {
        let images = memory_drives(3, 16);
        let life = Life::new();
        life.run(async {
            let first = made(&life, reached(&images, kind), "raid5").await;
            let writing = {
                let volume = first.volume("data").unwrap();
                life.context.spawn(async move {
                    // Without a flush, which would report the other session.
                    for at in (0..).map(|block| block % (SIZE / BLOCK) * BLOCK) {
                        let data = Buffer::from_bytes(&contents(2, at, BLOCK as usize));
                        if volume.write(at, data, false).await.is_err() {
                            break;
                        }
                        volume.pool().context().sleep_ns(5_000_000).await;
                    }
                })
            };
            life.context.sleep_ns(SECOND_NS).await;
            let second = open(&life, reached(&images, kind), as_host(2, 6, true)).await.unwrap();
            let volume = second.volume("data").unwrap();
            fill(&volume, 3, 0, SIZE).await;
            volume.flush().await.unwrap();
            writing.await;
            assert!(first.is_taken_over());
            holds(&volume, 3, 0, SIZE).await.unwrap();
            let report = volume.array().scrub(&|_, _| {}).await.unwrap();
            assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0));
            second.close().await.unwrap();
        });
    }
}

#[test]
fn a_paused_machine_acknowledges_nothing() {
    let images = memory_drives(3, 16);
    let paused = Life::new();
    let first = paused.run(made(&paused, exports(&images), "raid5"));
    let life = Life::new();
    let second = life.run(open(&life, exports(&images), as_host(1, 6, false))).unwrap();
    // Its own clock stands still and does not show that time has passed.
    paused.run(async {
        let volume = first.volume("data").unwrap();
        assert!(volume.flush().await.is_err() && first.is_taken_over());
        let data = Buffer::from_bytes(&contents(3, 0, BLOCK as usize));
        assert!(volume.write(0, data, true).await.is_err());
    });
    life.run(second.close()).unwrap();
}

#[test]
fn a_host_that_slept_does_not_write_on() {
    let images = memory_drives(3, 16);
    let asleep = Life::new();
    let first = asleep.run(made(&asleep, exports(&images), "raid5"));
    let awake = Life::new();
    // It shows no sign of life, so its pool is opened without force.
    let second = awake.run(open(&awake, exports(&images), as_host(1, 6, false))).unwrap();
    awake.run(fill(&second.volume("data").unwrap(), 2, 0, SIZE));
    awake.run(second.volume("data").unwrap().flush()).unwrap();
    asleep.executor.suspend_ns(60 * SECOND_NS);
    let before: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
    asleep.run(async {
        let volume = first.volume("data").unwrap();
        let data = Buffer::from_bytes(&contents(3, 0, BLOCK as usize));
        assert!(volume.write(0, data, true).await.is_err() && volume.flush().await.is_err());
        assert!(first.is_taken_over());
        first.context().sleep_ns(60 * SECOND_NS).await;
        let _ = first.close().await;
    });
    let now: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
    assert!(before == now, "it wrote to drives that another session has");
    awake.run(async {
        holds(&second.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
        second.close().await.unwrap();
    });
}

#[test]
fn a_drive_that_another_session_took_is_left_out() {
    let images = memory_drives(3, 16);
    let life = Life::new();
    life.run(async {
        let first = made(&life, exports(&images), "raid1").await;
        let writing = {
            let first = first.clone();
            life.context.spawn(async move { write_until_refused(&first, 2).await })
        };
        life.context.sleep_ns(SECOND_NS).await;
        // One of three, by force: it goes on alone, and the first on the other two.
        let second = open(&life, exports(&images[2..]), as_host(1, 6, true)).await.unwrap();
        fill(&second.volume("data").unwrap(), 3, 0, SIZE).await;
        second.close().await.unwrap();
        life.context.sleep_ns(5 * SECOND_NS).await;
        assert!(!first.is_taken_over());
        assert_eq!(first.status().state, PoolState::Degraded);
        first.close().await.unwrap();
        assert!(writing.await.len() > 100);
        let refused = open(&life, exports(&images), as_host(1, 7, false)).await.err().expect("halves");
        assert!(matches!(refused, PoolError::Diverged { .. }), "{refused}");
        let second = open(&life, exports(&images[2..]), as_host(1, 8, false)).await.unwrap();
        holds(&second.volume("data").unwrap(), 3, 0, SIZE).await.unwrap();
        second.close().await.unwrap();
    });
}
