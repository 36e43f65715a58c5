//! Drives added, removed, retired, replaced by larger and smaller ones, taken offline and back
//! under client load: missing data is rebuilt, current data is kept, and nothing is lost.
//!
//! Invariants I10 and I14 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Context, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec, SplitMix64};
use stripewise_pool::{Condition, JobKind, Notice, Pool, PoolError, PoolState, Role, Volume, inspect};

const SECOND_NS: u64 = 1_000_000_000;
const SPEED: ModelSpec = ModelSpec { latency_ns: 50_000, bytes_per_second: 100_000_000, queue_depth: 8 };

/// Modelled drives over others.
fn modelled<D: Drive + 'static>(life: &Life, below: &[Rc<D>]) -> Vec<Rc<dyn Drive>> {
    let model = |drive: &Rc<D>| {
        let info = drive.info();
        ModelDrive::new(&life.context, &info.label, info.capacity_bytes, SPEED, drive.clone())
            as Rc<dyn Drive>
    };
    below.iter().map(model).collect()
}

/// A client that makes random writes and reads, and records its writes.
struct Client {
    over: Rc<Cell<bool>>,
    /// Seed of the last write of each block of 64 KiB.
    blocks: Rc<RefCell<Vec<u64>>>,
    ended: stripewise_drive::JoinHandle<()>,
}

const BLOCK: u64 = 64 << 10;

impl Client {
    async fn start(context: &Context, volume: &Volume, seed: u64) -> Self {
        fill(volume, seed, 0, volume.capacity_bytes() / BLOCK * BLOCK).await;
        volume.flush().await.unwrap();
        let blocks = Rc::new(RefCell::new(vec![seed; (volume.capacity_bytes() / BLOCK) as usize]));
        let over = Rc::new(Cell::new(false));
        let work = Self::work(context.clone(), volume.clone(), blocks.clone(), over.clone(), seed);
        Self { ended: context.spawn(work), over, blocks }
    }

    async fn work(
        context: Context,
        volume: Volume,
        blocks: Rc<RefCell<Vec<u64>>>,
        over: Rc<Cell<bool>>,
        seed: u64,
    ) {
        let mut random = SplitMix64::new(seed);
        let mut next = seed * 1000;
        while !over.get() {
            let count = blocks.borrow().len() as u64;
            let block = random.below(count);
            next += 1;
            let data = Buffer::from_bytes(&contents(next, block * BLOCK, BLOCK as usize));
            volume.write(block * BLOCK, data, false).await.expect("a write");
            blocks.borrow_mut()[block as usize] = next;
            let other = random.below(count);
            let expected = blocks.borrow()[other as usize];
            holds(&volume, expected, other * BLOCK, BLOCK).await.expect("a read");
            if random.chance(0.05) {
                volume.flush().await.expect("a flush");
            }
            context.sleep_ns(2_000_000).await;
        }
        volume.flush().await.expect("a flush");
    }

    /// Stops the client; returns the seeds of its blocks.
    async fn end(self) -> Vec<u64> {
        self.over.set(true);
        self.ended.await;
        self.blocks.take()
    }
}

async fn check(volume: &Volume, blocks: &[u64]) {
    for (index, &seed) in blocks.iter().enumerate() {
        holds(volume, seed, index as u64 * BLOCK, BLOCK).await.unwrap();
    }
}

/// Checks that the pool is online and that data and redundancy agree.
async fn check_sound(pool: &Pool, volume: &Volume, blocks: &[u64]) {
    assert_eq!(pool.status().state, PoolState::Online, "{:#?}", pool.status());
    check(volume, blocks).await;
    let report = volume.array().scrub(&|_, _| {}).await.unwrap();
    assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
}

#[test]
fn added_drive_is_rebuilt_onto_at_once_when_degraded() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images);
        let pool = life.create(&drives[..3], &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", Some(24 * MIB))).await.unwrap();
        let client = Client::start(&life.context, &volume, 1).await;
        pool.start_jobs();
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        life.context.sleep_ns(SECOND_NS / 10).await;
        assert_eq!(pool.status().state, PoolState::Degraded, "there is no spare");
        pool.add(drives[3].clone(), Role::Data, false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let blocks = client.end().await;
        check_sound(&pool, &volume, &blocks).await;
        // The failed drive holds no data any more, and can be removed.
        pool.remove(id_of(&pool.status(), "drive1")).await.unwrap();
        assert_eq!(pool.status().drives.len(), 3);
        pool.close().await.unwrap();
    });
}

#[test]
fn free_slabs_of_all_drives_replace_a_failed_drive() {
    for (layout, columns, drives) in [("raid5", 4, 7), ("raid6", 5, 8), ("raid1", 2, 5), ("raid10", 4, 6)] {
        let images = memory_drives(drives, 32);
        let life = Life::new();
        let blocks = life.run(async {
            let drives = modelled(&life, &images);
            let pool = life.create(&drives, &[]).await.unwrap();
            let mut spec = volume_spec("data", layout, Some(30 * MIB));
            spec.layout.columns = Some(columns);
            let volume = pool.create_volume(spec).await.unwrap();
            let client = Client::start(&life.context, &volume, 1).await;
            pool.start_jobs();
            for victim in 0..2 {
                pool.fail_drive(id_of(&pool.status(), &format!("drive{victim}")), "a test").await.unwrap();
                let began = life.context.now_ns();
                pool.wait(JobKind::Rebuild).await.unwrap();
                assert!(life.context.now_ns() - began < 60 * SECOND_NS);
                assert_eq!(pool.status().state, PoolState::Online, "{layout} {:#?}", pool.status());
            }
            let blocks = client.end().await;
            check_sound(&pool, &volume, &blocks).await;
            pool.close().await.unwrap();
            blocks
        });
        drop(life);
        // The maps and the journal were moved, too: without the two drives the pool opens, and is
        // online.
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images[2..])).await.unwrap();
            let volume = pool.volume("data").unwrap();
            check_sound(&pool, &volume, &blocks).await;
            pool.fail_drive(id_of(&pool.status(), "drive3"), "a test").await.unwrap();
            check(&volume, &blocks).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn spare_is_used_before_free_slabs() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images);
        let pool = life.create(&drives[..5], &drives[5..]).await.unwrap();
        let mut spec = volume_spec("data", "raid5", Some(30 * MIB));
        spec.layout.columns = Some(3);
        let volume = pool.create_volume(spec).await.unwrap();
        let client = Client::start(&life.context, &volume, 1).await;
        pool.start_jobs();
        let before = volume.array().rows();
        pool.fail_drive(id_of(&pool.status(), "drive2"), "a test").await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        let spare = status.drives.iter().find(|drive| drive.path == "drive5").unwrap();
        assert_eq!((spare.role, spare.state.word()), (Role::Data, "online"));
        assert!(status.drives.iter().all(|drive| drive.path != "drive2"), "its record is gone");
        let after = volume.array().rows();
        for row in 0..before.rows() {
            let slabs = |rows: &stripewise_array::rows::RowTable| -> Vec<u32> {
                rows.run(row).unwrap().places_of(row).iter().map(|place| place.slab).collect()
            };
            assert_eq!(slabs(&before), slabs(&after), "row {row}");
        }
        let blocks = client.end().await;
        check_sound(&pool, &volume, &blocks).await;
        pool.close().await.unwrap();

        // An automatic replacement is reported until it is acknowledged, also by the next process.
        let pool = life.open(&drives).await.unwrap();
        let status = pool.status();
        let Condition::SpareInUse(takeover) = &status.condition else { panic!("{status:?}") };
        assert_eq!((takeover.spare.as_str(), takeover.drive.as_str()), ("drive5", "drive2"));
        assert!(status.notices.contains(&Notice::SpareInUse(takeover.clone())), "{status:?}");
        pool.clear(None).await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&drives).await.unwrap();
        let status = pool.status();
        assert_eq!(status.condition, Condition::AllThere);
        pool.close().await.unwrap();
    });
}

#[test]
fn replacements_may_be_larger_or_smaller() {
    for (mib, works) in [(14, false), (24, false), (64, false), (24, true), (64, true)] {
        let mut images = memory_drives(5, 32);
        images.push(MemoryDrive::new("new", mib * MIB));
        let life = Life::new();
        life.run(async {
            let drives = modelled(&life, &images);
            let pool = life.create(&drives[..5], &[]).await.unwrap();
            let mut spec = volume_spec("data", "raid5", Some(36 * MIB));
            spec.layout.columns = Some(4);
            let volume = pool.create_volume(spec).await.unwrap();
            let client = Client::start(&life.context, &volume, 1).await;
            match works {
                true => {
                    let old = id_of(&pool.status(), "drive1");
                    pool.replace(old, drives[5].clone(), false).await.unwrap();
                }
                false => replace_failed(&pool, "drive1", &drives[5]).await,
            }
            pool.start_jobs();
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{mib}: {status:#?}");
            let new = status.drives.iter().find(|drive| drive.path == "new").unwrap();
            assert!(new.allocated_bytes > 0 && new.role == Role::Data);
            let blocks = client.end().await;
            check_sound(&pool, &volume, &blocks).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn retired_drive_is_emptied_under_load_and_wiped() {
    for (layout, columns) in [("raid5", 4), ("raid0", 3), ("raid10", 4)] {
        let images = memory_drives(6, 32);
        let life = Life::new();
        life.run(async {
            let drives = modelled(&life, &images);
            let pool = life.create(&drives, &[]).await.unwrap();
            let mut spec = volume_spec("data", layout, Some(36 * MIB));
            spec.layout.columns = Some(columns);
            let volume = pool.create_volume(spec).await.unwrap();
            let client = Client::start(&life.context, &volume, 1).await;
            let id = id_of(&pool.status(), "drive2");
            let refused = pool.remove(id).await.err().unwrap();
            assert!(matches!(&refused, PoolError::DriveInUse { slabs, .. } if *slabs > 0), "{refused}");
            pool.retire(id).await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert_eq!(status.drives.len(), 5, "{layout}: {status:#?}");
            assert!(status.drives.iter().all(|drive| drive.path != "drive2"));
            assert_eq!(inspect(&*drives[2]).await.unwrap(), None, "nothing of the pool is left on it");
            let blocks = client.end().await;
            check_sound(&pool, &volume, &blocks).await;
            // It can be added again, as a new drive.
            pool.add(drives[2].clone(), Role::Spare, false).await.unwrap();
            pool.remove(id_of(&pool.status(), "drive2")).await.unwrap();
            assert_eq!(pool.status().drives.len(), 5);
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn impossible_changes_are_refused_with_the_numbers() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..3], &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(24 * MIB)), 1).await;
        let generation = pool.generation();
        let id = id_of(&pool.status(), "drive1");
        let refused = pool.retire(id).await.err().unwrap();
        assert!(
            matches!(refused, PoolError::NoRoomElsewhere { homeless_slabs, useless_slabs, .. } if homeless_slabs >= 12 && useless_slabs > 0),
            "every other drive is in the row already: {refused}"
        );
        let tiny = MemoryDrive::new("tiny", MIB) as Rc<dyn Drive>;
        let refused = pool.add(tiny, Role::Data, false).await.err().unwrap();
        assert!(matches!(refused, PoolError::DriveTooSmall { .. }), "{refused}");
        let refused = pool.online(id, None).await.err().unwrap();
        assert!(matches!(refused, PoolError::DriveStanding { .. }), "{refused}");
        assert!(matches!(pool.add(drives[0].clone(), Role::Data, true).await, Err(PoolError::DriveInPool { .. })));
        pool.offline(id).await.unwrap();
        let refused = pool.offline(id_of(&pool.status(), "drive0")).await.err().unwrap();
        assert!(matches!(&refused, PoolError::NeedsRedundancy { volumes, .. } if volumes == &["data"]));
        let refused = pool.retire(id).await.err().unwrap();
        assert!(matches!(refused, PoolError::DriveStanding { .. }), "{refused}");
        let refused = pool.online(id, Some(drives[3].clone())).await.err().unwrap();
        assert!(matches!(refused, PoolError::DriveStanding { .. }), "{refused}");
        assert_eq!(pool.generation(), generation + 2, "only the change that succeeded, with its two commits");
        holds(&volume, 1, 0, 24 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

/// Bytes written to a drive so far.
fn written(pool: &Pool, path: &str) -> u64 {
    pool.member(id_of(&pool.status(), path)).unwrap().counters().written_bytes
}

#[test]
fn offline_drive_catches_up_with_changes() {
    for (layout, restart) in [("raid5", false), ("raid6", true), ("raid10", true), ("raid10", false)] {
        let images = memory_drives(4, 64);
        let life = Life::new();
        let blocks = life.run(async {
            let drives = modelled(&life, &images);
            let pool = life.create(&drives, &[]).await.unwrap();
            let volume = pool.create_volume(volume_spec("data", layout, Some(64 * MIB))).await.unwrap();
            let client = Client::start(&life.context, &volume, 1).await;
            let blocks = client.end().await;
            life.context.sleep_ns(20 * SECOND_NS).await;
            pool.start_jobs();
            let id = id_of(&pool.status(), "drive1");
            pool.offline(id).await.unwrap();
            assert_eq!(state_of(&pool.status(), "drive1"), "offline");
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Degraded, "an offline drive is not replaced");
            fill(&volume, 9, 8 * MIB, MIB).await;
            let mut blocks = blocks;
            blocks[128..144].fill(9);
            check(&volume, &blocks).await;
            if !restart {
                pool.online(id, Some(drives[1].clone())).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                assert!(written(&pool, "drive1") < 8 * MIB, "{}", written(&pool, "drive1"));
                check_sound(&pool, &volume, &blocks).await;
            }
            pool.close().await.unwrap();
            blocks
        });
        drop(life);
        let life = Life::new();
        life.run(async {
            let drives = modelled(&life, &images);
            let pool = life.open(&drives).await.unwrap();
            let volume = pool.volume("data").unwrap();
            if restart {
                pool.wait(JobKind::Rebuild).await.unwrap();
                assert_eq!(
                    state_of(&pool.status(), "drive1"),
                    "offline",
                    "it stays offline until it is brought online"
                );
                pool.online(id_of(&pool.status(), "drive1"), None).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                assert!(written(&pool, "drive1") < 8 * MIB, "{}", written(&pool, "drive1"));
            }
            check_sound(&pool, &volume, &blocks).await;
            for other in ["drive0", "drive2"].into_iter().take(volume.geometry().fault_tolerance()) {
                pool.fail_drive(id_of(&pool.status(), other), "to see").await.unwrap();
            }
            check(&volume, &blocks).await;
        });
    }
}

#[test]
fn missing_drive_catches_up_and_failed_one_on_request() {
    let images = memory_drives(3, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", Some(80 * MIB)), 1).await;
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[..2])).await.unwrap();
        let volume = pool.volume("data").unwrap();
        fill(&volume, 2, 10 * MIB, MIB).await;
        pool.close().await.unwrap();
        let pool = life.open(&modelled(&life, &images)).await.unwrap();
        let volume = pool.volume("data").unwrap();
        assert_eq!(state_of(&pool.status(), "drive2"), "behind");
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        assert!(written(&pool, "drive2") < 8 * MIB, "only what changed");
        fill(&volume, 1, 10 * MIB, MIB).await;
        let id = id_of(&pool.status(), "drive0");
        pool.fail_drive(id, "it made noises").await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Degraded);
        pool.online(id, Some(images[0].clone())).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert!(written(&pool, "drive0") > 40 * MIB, "the contents of a failed drive are not trusted");
        let blocks = vec![1; 80 * 16];
        check_sound(&pool, &volume, &blocks).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn drive_failing_during_rebuild_gives_way_to_others() {
    let images = memory_drives(7, 32);
    let life = Life::new();
    life.run(async {
        let faults: Vec<_> = modelled(&life, &images)
            .into_iter()
            .map(|drive| FaultyDrive::new(&life.context, drive, 1))
            .collect();
        let drives = as_drives(&faults);
        let pool = life.create(&drives, &[]).await.unwrap();
        let mut spec = volume_spec("data", "raid6", Some(40 * MIB));
        spec.layout.columns = Some(4);
        let volume = pool.create_volume(spec).await.unwrap();
        let client = Client::start(&life.context, &volume, 1).await;
        pool.start_jobs();
        faults[1].unplug();
        life.context.sleep_ns(SECOND_NS / 10).await;
        faults[4].unplug();
        life.context.sleep_ns(SECOND_NS / 10).await;
        pool.wait(JobKind::Rebuild).await.unwrap();
        let blocks = client.end().await;
        check_sound(&pool, &volume, &blocks).await;
        // A drive that is being emptied fails: its columns are rebuilt instead.
        pool.retire(id_of(&pool.status(), "drive2")).await.unwrap();
        life.context.sleep_ns(SECOND_NS / 20).await;
        faults[2].unplug();
        pool.wait(JobKind::Rebuild).await.unwrap();
        check(&volume, &blocks).await;
        assert_eq!(pool.status().state, PoolState::Online, "{:#?}", pool.status());
        pool.close().await.unwrap();
    });
}

#[test]
fn patrol_respects_its_rate_and_schedule() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images);
        let pool = life.create(&drives, &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(20 * MIB)), 1).await;
        volume.flush().await.unwrap();
        assert!(
            pool.set_patrol(Some(1), None).await.is_err() && pool.set_patrol(None, Some(1)).await.is_err()
        );
        pool.start_jobs();
        pool.set_patrol(Some(3 * MIB), Some(3600)).await.unwrap();
        assert_eq!(pool.patrol().0, Some(3 * MIB));
        life.context.sleep_ns(3500 * SECOND_NS).await;
        assert!(pool.scrub_reports().is_empty() && pool.activity().is_empty());
        let mut began = None;
        for _ in 0..400 {
            life.context.sleep_ns(SECOND_NS).await;
            if began.is_none() && !pool.activity().is_empty() {
                began = Some(life.context.now_ns());
            }
            if !pool.scrub_reports().is_empty() {
                break;
            }
        }
        // 30 MiB on three drives at 3 MiB per second.
        let took_s = (life.context.now_ns() - began.expect("it began by itself")) / SECOND_NS;
        assert!((7..=13).contains(&took_s), "{took_s}");
        let report = &pool.scrub_reports()[0].report;
        assert!((30 * MIB..33 * MIB).contains(&report.checked_bytes), "{report:?}");
        let events = pool.events();
        assert!(events.iter().any(|event| event.text.contains("nothing wrong")), "{events:?}");
        assert!(pool.patrol().2.is_some());
        // The next patrol begins an hour after the end of this one.
        life.context.sleep_ns(3000 * SECOND_NS).await;
        assert!(pool.activity().is_empty());
        pool.close().await.unwrap();
    });
}

#[test]
fn a_scrub_takes_little_of_the_drives_time() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images);
        let pool = life.create(&drives, &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", Some(20 * MIB)), 1).await;
        pool.set_rebuild_priority(60).await.unwrap();
        pool.set_patrol(Some(3 * MIB), None).await.unwrap();
        let member = pool.member(pool.status().drives[0].id).expect("it is there");
        pool.start_jobs();
        pool.scrub().await.unwrap();
        life.context.sleep_ns(3 * SECOND_NS).await;
        assert!(!pool.activity().is_empty() && member.background_share() == 0.1);
        let status = pool.status();
        assert_eq!((status.patrol_interval_s, status.next_scrub_unix_s), (None, None));
        pool.set_patrol(None, Some(60)).await.unwrap();
        pool.wait(JobKind::Scrub).await.unwrap();
        assert_eq!(member.background_share(), 0.6, "the priority of rebuilds again");
        let status = pool.status();
        let ended = status.last_scrub.expect("it ended").ended_unix_s;
        assert_eq!(status.next_scrub_unix_s, Some(ended + 60));
        pool.close().await.unwrap();
    });
}

#[test]
fn mirror_survives_successive_drive_losses() {
    let images = memory_drives(2, 32);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images);
        let pool = life.create(&drives, &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid1", Some(8 * MIB)), 1).await;
        for round in 0..4 {
            let away = id_of(&pool.status(), &format!("drive{}", round % 2));
            pool.offline(away).await.unwrap();
            fill(&volume, 2 + round, 0, MIB).await;
            volume.flush().await.unwrap();
            pool.online(away, Some(drives[round as usize % 2].clone())).await.unwrap();
            // The journal, too, is on both drives again.
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online);
        }
        holds(&volume, 5, 0, MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}
