//! Replacement of working drives: a drive stays a member until the new one has all of its data, so
//! redundancy is complete at any time, whichever drive is lost during it; an impossible replacement
//! is refused with the reason.
//!
//! Invariant I32 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_array::rows::{SlotPlace, SlotState};
use stripewise_drive::{
    Buffer, Drive, FaultyDrive, IoRequest, MemoryDrive, ModelDrive, ModelSpec, Operation,
};
use stripewise_pool::{
    Condition, JobKind, OpenMode, Pool, PoolError, PoolSpec, PoolState, Role, Volume, VolumeSpec, inspect,
};

const SECOND_NS: u64 = 1_000_000_000;
/// 4 MB/s: a replacement takes some seconds.
const SPEED: ModelSpec = ModelSpec { latency_ns: 50_000, bytes_per_second: 4_000_000, queue_depth: 8 };

/// A pool of three slow drives with a full RAID 5, and further drives; each can be unplugged.
struct Rig {
    life: Life,
    images: Vec<Rc<MemoryDrive>>,
    drives: Vec<Rc<FaultyDrive>>,
}

impl Rig {
    fn new(sizes_mib: &[u64], spares: usize) -> Self {
        let image = |(index, mib): (usize, &u64)| MemoryDrive::new(&format!("drive{index}"), mib * MIB);
        let images: Vec<_> = sizes_mib.iter().enumerate().map(image).collect();
        let life = Life::new();
        life.run(async {
            let drives = as_drives(&images);
            let pool = life.create(&drives[..3], &drives[3..3 + spares]).await.unwrap();
            full_volume(&pool, volume_spec("data", "raid5", Some(24 * MIB)), 1).await;
            pool.close().await.unwrap();
        });
        Self::over(images)
    }

    fn over(images: Vec<Rc<MemoryDrive>>) -> Self {
        let life = Life::new();
        let slow = |image: &Rc<MemoryDrive>| {
            let (label, bytes) = (image.info().label.clone(), image.info().capacity_bytes);
            let model = ModelDrive::new(&life.context, &label, bytes, SPEED, image.clone());
            FaultyDrive::new(&life.context, model, 1)
        };
        let drives = images.iter().map(slow).collect();
        Self { life, images, drives }
    }

    fn drive(&self, index: usize) -> Rc<dyn Drive> {
        self.drives[index].clone()
    }

    /// Opens the pool with few rows rebuilt concurrently, so that some have moved early.
    async fn open(&self, count: usize) -> (Pool, Volume) {
        let mut options = options(7);
        options.array.background_bytes = 1;
        options.array.tuning.drain_batch_bytes = 2 * MIB;
        let Life { context, buffers, .. } = &self.life;
        let drives = as_drives(&self.drives[..count]);
        let pool = Pool::open(context, buffers, drives, OpenMode::ReadWrite, options).await.unwrap();
        let volume = pool.volume("data").unwrap();
        (pool, volume)
    }

    /// Replaces drive 1 by drive 3, up to about half-way.
    async fn half_way(&self, pool: &Pool) {
        pool.replace(id_of(&pool.status(), "drive1"), self.drive(3), false).await.unwrap();
        pool.start_jobs();
        for _ in 0..1000 {
            if pool.activity().first().is_some_and(|job| job.percent > 40.0) {
                return;
            }
            self.life.context.sleep_ns(SECOND_NS / 50).await;
        }
        panic!("it does not reach half-way: {:#?}", pool.status());
    }
}

async fn check(volume: &Volume) {
    holds(volume, 1, 0, volume.capacity_bytes()).await.unwrap();
}

async fn check_sound(pool: &Pool, volume: &Volume) {
    assert_eq!(pool.status().volumes[0].state, stripewise_pool::VolumeState::Online, "{:#?}", pool.status());
    check(volume).await;
    let report = volume.array().scrub(&|_, _| {}).await.unwrap();
    assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
}

/// Number of rows with a current column on a drive.
fn rows_on(pool: &Pool, volume: &Volume, path: &str) -> u64 {
    let rows = volume.array().rows();
    let status = pool.status();
    // Drive numbers are assigned in the order in which drives were added.
    let number = |place: u32| {
        status.drives.iter().any(|drive| drive.path == path && path.ends_with(&place.to_string()))
    };
    let is_on = |place: &SlotPlace| place.state == SlotState::Active && number(place.drive);
    rows.runs().filter(|run| run.places.iter().any(is_on)).map(|run| run.rows).sum()
}

#[test]
fn replaced_drive_stays_until_its_successor_is_filled() {
    for is_spare in [false, true] {
        let rig = Rig::new(&[32, 32, 32, 32], usize::from(is_spare));
        rig.life.run(async {
            let (pool, volume) = rig.open(if is_spare { 4 } else { 3 }).await;
            let old = id_of(&pool.status(), "drive1");
            let new = match is_spare {
                true => {
                    let spare = id_of(&pool.status(), "drive3");
                    pool.replace_by_spare(old, spare).await.unwrap();
                    spare
                }
                false => pool.replace(old, rig.drive(3), false).await.unwrap(),
            };
            let (before, over) = (rows_on(&pool, &volume, "drive1"), Rc::new(Cell::new(false)));
            pool.start_jobs();
            let looking = {
                let (pool, over, context) = (pool.clone(), over.clone(), rig.life.context.clone());
                async move {
                    let mut percents = Vec::new();
                    while !over.get() {
                        let status = pool.status();
                        let on_old = status.drives.iter().find(|drive| drive.path == "drive1");
                        if let Some(drive) = on_old {
                            assert_eq!((drive.state.word(), drive.successor), ("replacing", Some(new)));
                            let Condition::Replacing(replacing) = &status.condition else {
                                panic!("{status:#?}")
                            };
                            assert_eq!((&*replacing[0].from, &*replacing[0].to), ("drive1", "drive3"));
                        }
                        assert_eq!(status.state, PoolState::Online);
                        assert_eq!(status.volumes[0].redundancy_left, 1, "{status:#?}");
                        if let Some(job) = pool.activity().first() {
                            assert_eq!((job.kind, job.drive), (JobKind::Rebuild, Some(new)));
                            percents.push(job.percent);
                        }
                        context.sleep_ns(SECOND_NS / 10).await;
                    }
                    percents
                }
            };
            let looking = rig.life.context.spawn(looking);
            // Clients write and read the old drive as before.
            fill(&volume, 1, 0, 8 * MIB).await;
            pool.wait(JobKind::Rebuild).await.unwrap();
            over.set(true);
            let percents = looking.await;
            assert!(
                percents.len() > 10 && percents.windows(2).all(|pair| pair[0] <= pair[1]),
                "{percents:?}"
            );
            assert!(percents[0] < 10.0 && percents[percents.len() - 1] > 80.0, "{percents:?}");
            let status = pool.status();
            assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{status:#?}");
            assert_eq!(rows_on(&pool, &volume, "drive3"), before);
            assert_eq!((status.drives[2].role, status.drives[2].state.word()), (Role::Data, "online"));
            assert_eq!(inspect(&*rig.images[1]).await.unwrap(), None, "no pool data is left on it");
            check_sound(&pool, &volume).await;
            rig.drives[0].unplug();
            check(&volume).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn drive_loss_during_replacement_keeps_data_readable() {
    for moment in 0..8 {
        let rig = Rig::new(&[32, 32, 32, 32], 0);
        rig.life.run(async {
            let (pool, volume) = rig.open(3).await;
            pool.replace(id_of(&pool.status(), "drive1"), rig.drive(3), false).await.unwrap();
            pool.start_jobs();
            rig.life.context.sleep_ns(moment * SECOND_NS / 2).await;
            rig.drives[0].unplug();
            check(&volume).await;
            assert_eq!(pool.status().state, PoolState::Degraded);
            fill(&volume, 1, 5 * MIB, 4 * MIB).await;
            // The replacement continues, without redundancy.
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{moment}: {status:#?}");
            check(&volume).await;
            pool.close().await.unwrap();
        });
        let after = Rig::over(rig.images.clone());
        after.life.run(async {
            let drives = [after.drive(2), after.drive(3)];
            let pool = after.life.open(&drives).await.unwrap();
            check(&pool.volume("data").unwrap()).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn old_drive_failing_half_way_rebuilds_only_the_rest() {
    let rig = Rig::new(&[32, 32, 32, 32], 0);
    rig.life.run(async {
        let (pool, volume) = rig.open(3).await;
        rig.half_way(&pool).await;
        let new = pool.member(id_of(&pool.status(), "drive3")).unwrap();
        let moved_bytes = new.counters().written_bytes;
        let (moved, all) = (rows_on(&pool, &volume, "drive3"), volume.array().rows());
        rig.drives[1].unplug();
        check(&volume).await;
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{status:#?}");
        check_sound(&pool, &volume).await;
        // Rows that had moved were not written again: there are 12 rows, plus their checksums, a
        // map and a journal.
        let rebuilt_bytes = new.counters().written_bytes - moved_bytes;
        let left = all.rows() - moved;
        assert!(moved >= 4 && rebuilt_bytes < (left + 4) * MIB, "{moved} of {}: {rebuilt_bytes}", all.rows());
        rig.drives[0].unplug();
        check(&volume).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn new_drive_failing_half_way_keeps_the_old_one() {
    let rig = Rig::new(&[32, 32, 32, 32, 32], 0);
    rig.life.run(async {
        let (pool, volume) = rig.open(3).await;
        rig.half_way(&pool).await;
        rig.drives[3].unplug();
        check(&volume).await;
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        assert_eq!(state_of(&status, "drive1"), "online");
        let is_reported = |text: &String| text.contains("drive1 with drive3 was cancelled");
        assert!(pool.events().iter().any(|event| is_reported(&event.text)), "{:#?}", pool.events());
        assert!(pool.notices().iter().any(is_reported), "{status:#?}");
        // Rows that had moved are back on the old drive.
        assert_eq!(rows_on(&pool, &volume, "drive3"), 0);
        check_sound(&pool, &volume).await;
        pool.remove(id_of(&status, "drive3")).await.unwrap();
        // It can still be replaced by another drive.
        pool.replace(id_of(&status, "drive1"), rig.drive(4), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().drives.len(), 3);
        check_sound(&pool, &volume).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn replacement_resumes_after_a_cut_or_close() {
    let rig = Rig::new(&[32, 32, 32, 32], 0);
    let percent = rig.life.run(async {
        let (pool, _) = rig.open(3).await;
        rig.half_way(&pool).await;
        let percent = pool.activity()[0].percent;
        pool.close().await.unwrap();
        percent
    });
    let rig = Rig::over(rig.images.clone());
    rig.life.run(async {
        let (pool, volume) = rig.open(4).await;
        let job = &pool.activity()[0];
        assert!(job.percent > percent - 25.0 && job.percent < 100.0, "{job:?}, before {percent}");
        assert_eq!(pool.status().state, PoolState::Online);
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().drives.len(), 3);
        check_sound(&pool, &volume).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn invalid_replacements_are_refused_with_the_reason() {
    let rig = Rig::new(&[32, 32, 32, 32, 12, 32], 1);
    rig.life.run(async {
        let (pool, volume) = rig.open(4).await;
        let id = |path: &str| id_of(&pool.status(), path);
        let before = pool.generation();
        let refused = pool.replace(id("drive1"), rig.drive(4), false).await.unwrap_err();
        let PoolError::DriveTooSmall { needed_bytes, capacity_bytes, .. } = &refused else {
            panic!("{refused}")
        };
        assert!(*needed_bytes > 12 * MIB && *capacity_bytes == 12 * MIB, "{refused}");
        assert_eq!((pool.generation(), pool.status().drives.len()), (before, 4), "refusals change nothing");
        pool.replace_by_spare(id("drive1"), id("drive3")).await.unwrap();
        for drive in ["drive1", "drive3"] {
            let refused = pool.replace(id(drive), rig.drive(5), false).await.unwrap_err();
            assert_eq!(refused.to_string(), "drive1 is being replaced with drive3 already");
            assert!(matches!(&refused, PoolError::BeingReplaced { by, .. } if by == "drive3"), "{refused}");
        }
        let refused = pool.retire(id("drive1")).await.unwrap_err();
        assert!(matches!(refused, PoolError::BeingReplaced { .. }), "{refused}");
        let refused = pool.remove(id("drive1")).await.unwrap_err();
        assert!(matches!(refused, PoolError::DriveInUse { .. }), "{refused}");
        // Cancelled by the administrator.
        pool.retire(id("drive3")).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive1"), "online");
        pool.wait(JobKind::Rebuild).await.unwrap();
        let left: Vec<String> = pool.status().drives.into_iter().map(|drive| drive.path).collect();
        assert_eq!(left, ["drive0", "drive1", "drive2"]);
        check_sound(&pool, &volume).await;
        let gone = id("drive0");
        pool.replace(gone, rig.drive(5), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let refused = pool.replace(gone, rig.drive(3), false).await.unwrap_err();
        assert!(matches!(refused, PoolError::NoSuchDrive { .. }), "{refused}");
        pool.close().await.unwrap();
    });
}

#[test]
fn striped_volume_moves_completely_to_a_replacement() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid0", Some(16 * MIB)), 1).await;
        pool.replace(id_of(&pool.status(), "drive0"), drives[2].clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let left: Vec<String> = pool.status().drives.into_iter().map(|drive| drive.path).collect();
        assert_eq!(left, ["drive1", "drive2"]);
        check(&volume).await;
        pool.close().await.unwrap();
    });
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images[1..])).await.unwrap();
        check(&pool.volume("data").unwrap()).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn drives_of_every_role_can_be_replaced() {
    let images = memory_drives(13, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let spec = PoolSpec {
            journals: drives[3..5].to_vec(),
            fast: drives[5..8].to_vec(),
            ..spec("tank", &drives[..3], &drives[8..9])
        };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let slow = VolumeSpec { write_back: Some(true), ..volume_spec("slow", "raid5", Some(8 * MIB)) };
        let slow = full_volume(&pool, slow, 1).await;
        let fast =
            VolumeSpec { pin: stripewise_pool::Pin::Fast, ..volume_spec("fast", "raid5", Some(8 * MIB)) };
        let fast = full_volume(&pool, fast, 1).await;
        pool.start_jobs();
        for (old, new, role) in [
            ("drive4", 9, Role::Journal),
            ("drive6", 10, Role::Fast),
            ("drive8", 11, Role::Spare),
            ("drive2", 12, Role::Data),
        ] {
            pool.replace(id_of(&pool.status(), old), drives[new].clone(), false).await.unwrap();
            fill(&slow, 1, 0, 4 * MIB).await;
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert_eq!(status.state, PoolState::Online, "{old}: {status:#?}");
            assert!(status.drives.iter().all(|drive| drive.path != old), "{old}: {status:#?}");
            let taker = status.drives.iter().find(|drive| drive.path == format!("drive{new}")).unwrap();
            assert_eq!((taker.role, taker.state.word()), (role, "online"), "{status:#?}");
            assert_eq!(taker.allocated_bytes > 0, role != Role::Spare, "{status:#?}");
        }
        check(&slow).await;
        check(&fast).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn thin_volume_grows_during_a_replacement() {
    let rig = Rig::new(&[32, 32, 32, 32], 0);
    rig.life.run(async {
        let (pool, volume) = rig.open(3).await;
        let thin = VolumeSpec { thin: true, ..volume_spec("thin", "raid5", Some(40 * MIB)) };
        let thin = pool.create_volume(thin).await.unwrap();
        let free = |pool: &Pool| {
            let status = pool.status();
            status.capacity_bytes - status.allocated_bytes
        };
        let before = free(&pool);
        rig.half_way(&pool).await;
        assert!(free(&pool) <= before);
        // All rows that the free space before allowed.
        let row_bytes = 2 * MIB;
        let rows = before / (3 * MIB);
        assert!(rows > 5, "{before}");
        let data = Buffer::from_bytes(&contents(1, 0, 4096));
        for row in 0..rows {
            thin.write(row * row_bytes, data.clone(), false)
                .await
                .unwrap_or_else(|why| panic!("row {row} of {rows}: {why}"));
        }
        assert!(thin.write(rows * row_bytes, data.clone(), false).await.is_err(), "there is no more space");
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{status:#?}");
        assert_eq!(status.state, PoolState::Online);
        check(&volume).await;
        for row in 0..rows {
            assert_eq!(thin.read(row * row_bytes, 4096).await.unwrap().to_vec(), contents(1, 0, 4096));
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn unanswered_reads_are_served_by_the_successor() {
    let all: Vec<Rc<Holding>> = memory_drives(2, 32).into_iter().map(Holding::over).collect();
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&all);
        let pool = life.create(&drives[..1], &[]).await.unwrap();
        let spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", "single", Some(6 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.unwrap();
        let first_row = Rc::new(Cell::new(0));
        let found = first_row.clone();
        all[0]
            .hold(move |request| {
                found.set(request.offset_bytes);
                false
            })
            .await;
        volume.read(0, 4096).await.unwrap();
        let row = first_row.get()..first_row.get() + MIB;
        pool.replace(id_of(&pool.status(), "drive0"), drives[1].clone(), false).await.unwrap();
        // Only the first row is copied, and reads of single blocks are held back.
        let is_block =
            |request: &IoRequest| request.operation == Operation::Read && request.length_bytes == 4096;
        let copied = Rc::new(Cell::new(0));
        let (passed, in_row) = (copied.clone(), row.clone());
        all[0]
            .hold(move |request| {
                let is_copying = request.operation == Operation::Read && request.length_bytes > 4096;
                if is_copying && in_row.contains(&request.offset_bytes) {
                    passed.set(passed.get() + request.length_bytes);
                }
                is_block(request) || (is_copying && !in_row.contains(&request.offset_bytes))
            })
            .await;
        pool.start_jobs();
        let until = async |what: &str, is_so: &dyn Fn() -> bool| {
            for _ in 0..1000 {
                if is_so() {
                    return;
                }
                life.context.sleep_ns(SECOND_NS / 1000).await;
            }
            panic!("{what}: {:#?}", pool.status());
        };
        until("the first row is copied", &|| copied.get() >= MIB).await;
        // Write a part of a block: the rest of it is read from the old drive.
        let writer = volume.clone();
        let part = Buffer::from_bytes(&[7; 512]);
        let writing = life.context.spawn(async move { writer.write(8192 + 512, part, false).await });
        until("the block is being read", &|| all[0].held(is_block) > 0).await;
        all[0].hold(is_block).await;
        writing.await.expect("the block is on the successor");
        pool.wait(JobKind::Rebuild).await.unwrap();
        let mut expected = contents(1, 8192, 4096);
        expected[512..1024].fill(7);
        assert_eq!(volume.read(8192, 4096).await.unwrap().to_vec(), expected);
        holds(&volume, 1, 12288, volume.capacity_bytes() - 12288).await.unwrap();
    });
}
