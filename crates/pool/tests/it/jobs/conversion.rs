//! Conversion of volumes to other layouts: every byte in the right place for all layouts, slabs
//! freed, lack of space refused with numbers, losses reported, and a consistent view for clients
//! during the conversion.
//!
//! Invariants I25 and I30 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::kit::pool::*;
use futures_util::future::join3;
use stripewise_drive::{
    Buffer, Completion, CompletionSender, Drive, DriveInfo, FaultyDrive, IoRequest, MemoryDrive, Operation,
    completion,
};
use stripewise_layout::{LayoutSpec, Level};
use stripewise_pool::{Condition, JobKind, Pin, Pool, PoolError, PoolSpec, PoolState, Volume, VolumeSpec};

fn layout(name: &str, columns: usize) -> LayoutSpec {
    let columns = Some(columns);
    LayoutSpec { columns, interleave_bytes: Some(64 << 10), ..LayoutSpec::parse(name).expect("a layout") }
}

/// A volume on `columns` drives.
fn on(name: &str, level: &str, columns: usize, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { size_bytes: Some(size_bytes), ..VolumeSpec::new(name, layout(level, columns)) }
}

async fn pool_of(life: &Life, count: usize, mib: u64) -> Pool {
    let drives = as_drives(&memory_drives(count, mib));
    life.create(&drives, &[]).await.expect("a pool")
}

async fn converted(pool: &Pool, name: &str, to: LayoutSpec) {
    pool.convert_volume(name, to).await.expect("begun");
    pool.wait(JobKind::Convert).await.expect("converted");
}

fn shape_of(volume: &Volume) -> (String, usize) {
    let shape = volume.info().expect("it is there").shape;
    (shape.level.to_string(), shape.width)
}

/// Checks that a scrub finds no error and no mismatch.
async fn is_clean(volume: &Volume) {
    let report = volume.array().scrub(&|_, _| {}).await.expect("a scrub");
    assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{report:?}");
    assert!(report.blamed.is_empty(), "{report:?}");
}

#[test]
fn every_layout_becomes_every_other() {
    let life = Life::new();
    life.run(async {
        let steps: [(&str, usize); 12] = [
            ("single", 1),
            ("raid5", 4),
            ("raid10", 4),
            ("raid5", 3),
            ("raid6", 5),
            ("raid10", 5),
            ("raid0", 2),
            ("raid1", 2),
            ("raid1", 3),
            ("raid7", 5),
            ("raid0", 5),
            ("raid4", 4),
        ];
        for (checksums, write_back, thin) in
            [(true, false, false), (false, true, false), (true, true, true), (false, false, true)]
        {
            let pool = pool_of(&life, 5, 96).await;
            let (level, columns) = steps[0];
            let size_bytes = if thin { 40 * MIB + 4096 } else { 11 * MIB + 4096 };
            let spec = VolumeSpec {
                checksums: Some(checksums),
                write_back: Some(write_back),
                thin,
                ..on("data", level, columns, size_bytes)
            };
            let volume = pool.create_volume(spec).await.expect("a volume");
            // Unwritten ranges in between stay unwritten.
            fill(&volume, 1, 0, 3 * MIB).await;
            fill(&volume, 2, 5 * MIB + 8192, MIB).await;
            fill(&volume, 3, 11 * MIB, 4096).await;
            for (level, columns) in &steps[1..] {
                converted(&pool, "data", layout(level, *columns)).await;
                let what = format!("{level} over {columns}, thin: {thin}");
                assert_eq!(shape_of(&volume), ((*level).to_owned(), *columns), "{what}");
                let held = async || -> Result<(), String> {
                    holds(&volume, 1, 0, 3 * MIB).await?;
                    holds(&volume, 2, 5 * MIB + 8192, MIB).await?;
                    holds(&volume, 3, 11 * MIB, 4096).await
                };
                held().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                let zeros = volume.read(8 * MIB, MIB as usize).await.expect("read").to_vec();
                assert!(zeros.iter().all(|byte| *byte == 0), "{what}");
                is_clean(&volume).await;
                let info = volume.info().expect("it is there");
                assert_eq!((info.conversion, info.lost_blocks), (None, 0), "{what}");
                assert_eq!(info.thin && info.rows.0 < info.rows.1, thin, "{what}: {:?}", info.rows);
            }
            let status = pool.status();
            assert_eq!((status.state, status.activity.len()), (PoolState::Online, 0), "{status:#?}");
            pool.delete_volume("data").await.expect("deleted");
            assert_eq!(pool.status().allocated_bytes, 0, "every slab came back");
            pool.close().await.expect("closed");
        }
    });
}

#[test]
fn conversion_works_with_less_space_than_the_volume() {
    let life = Life::new();
    life.run(async {
        let drives = memory_drives(4, 64);
        let spec = PoolSpec { slab_bytes: Some(MIB), ..spec("tank", &as_drives(&drives), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let free = pool.status().capacity_bytes;
        // As copies; as parity it is smaller, but both do not fit at once.
        let size_bytes = free * 4 / 5 / 2;
        let volume = pool.create_volume(on("data", "raid10", 4, size_bytes)).await.expect("a volume");
        fill(&volume, 7, 0, volume.capacity_bytes()).await;
        let before = pool.status().allocated_bytes;
        converted(&pool, "data", layout("raid5", 4)).await;
        holds(&volume, 7, 0, volume.capacity_bytes()).await.expect("all of it");
        let after = pool.status().allocated_bytes;
        assert!(after < before * 3 / 4, "{before} became {after}");
        is_clean(&volume).await;
        // It cannot be converted back: the error has the numbers, and nothing changes.
        let filler = on("filler", "raid0", 4, (free - after) / MIB / 4 * MIB * 4 - 40 * MIB);
        pool.create_volume(filler).await.expect("a filler");
        let (generation, allocated) = (pool.generation(), pool.status().allocated_bytes);
        let refused = pool.convert_volume("data", layout("raid10", 4)).await.expect_err("no room");
        let PoolError::NoRoomToConvert { needed_slabs, free_slabs, returned_slabs, .. } = refused else {
            panic!("{refused}")
        };
        assert!(needed_slabs > free_slabs + returned_slabs, "{needed_slabs} {free_slabs} {returned_slabs}");
        assert_eq!((pool.generation(), pool.status().allocated_bytes), (generation, allocated));
        pool.close().await.expect("closed");
        let pool = life.open(&as_drives(&drives)).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        holds(&volume, 7, 0, volume.capacity_bytes()).await.expect("all of it");
    });
}

#[test]
fn invalid_conversions_are_refused_without_change() {
    let life = Life::new();
    life.run(async {
        let pool = pool_of(&life, 4, 64).await;
        let volume = pool.create_volume(on("data", "raid5", 4, 8 * MIB)).await.expect("a volume");
        fill(&volume, 5, 0, 8 * MIB).await;
        let generation = pool.generation();
        let refused = async |name: &str, to: LayoutSpec| {
            let error = pool.convert_volume(name, to).await.expect_err("refused");
            error.to_string()
        };
        let what = refused("data", layout("raid5", 4)).await;
        assert!(what.contains("is raid5 over 4 drives, interleave 64 KiB already"), "{what}");
        let what = refused("data", layout("raid6", 5)).await;
        assert!(what.contains('5') && what.contains('4'), "{what}");
        let what = refused("other", layout("raid6", 4)).await;
        assert!(what.contains("no volume other"), "{what}");
        assert_eq!(pool.generation(), generation, "nothing was committed");

        pool.convert_volume("data", layout("raid6", 4)).await.expect("begun");
        let what = refused("data", layout("raid10", 4)).await;
        assert!(what.contains("is being converted"), "{what}");
        let error = pool.resize_volume("data", 4 * MIB).await.expect_err("refused");
        assert!(matches!(error, PoolError::Converting { .. }), "{error}");
        let status = pool.status();
        assert!(
            matches!(&status.condition, Condition::Converting { from, waits: None, .. } if from.level == Level::Raid5),
            "{:?}",
            status.condition
        );
        assert_eq!(status.activity.iter().map(|job| job.kind).collect::<Vec<_>>(), [JobKind::Convert]);
        pool.wait(JobKind::Convert).await.expect("converted");
        holds(&volume, 5, 0, 8 * MIB).await.expect("all of it");
        let kinds: Vec<String> = pool.events().iter().map(|event| format!("{:?}", event.kind)).collect();
        assert_eq!(kinds.iter().filter(|kind| *kind == "Convert").count(), 2, "{:?}", pool.events());

        // Deletion half-way frees everything.
        pool.convert_volume("data", layout("raid10", 4)).await.expect("begun");
        pool.delete_volume("data").await.expect("deleted");
        assert_eq!(pool.status().allocated_bytes, 0);
        pool.wait(JobKind::Convert).await.expect("nothing to do");
        pool.close().await.expect("closed");
    });
}

#[test]
fn deletion_during_conversion_frees_everything() {
    for us in [0, 300, 1_000, 3_000, 10_000, 30_000] {
        let life = Life::new();
        life.run(async {
            let slow: Vec<Rc<FaultyDrive>> = memory_drives(4, 64)
                .into_iter()
                .map(|drive| {
                    let drive = FaultyDrive::new(&life.context, drive, 3);
                    drive.set_delay(stripewise_drive::Delay::Exponential { mean_ns: 100_000 });
                    drive
                })
                .collect();
            let pool = life.create(&as_drives(&slow), &[]).await.expect("a pool");
            let volume = pool.create_volume(on("data", "raid10", 4, 24 * MIB)).await.expect("a volume");
            fill(&volume, 5, 0, 24 * MIB).await;
            pool.start_jobs();
            pool.convert_volume("data", layout("raid6", 4)).await.expect("begun");
            life.context.sleep_ns(us * 1000).await;
            pool.delete_volume("data").await.expect("deleted");
            assert_eq!(pool.status().allocated_bytes, 0, "after {us} us");
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn conversion_out_of_space_waits_for_space() {
    let life = Life::new();
    life.run(async {
        let drives = memory_drives(5, 64);
        let spec = PoolSpec { slab_bytes: Some(MIB), ..spec("tank", &as_drives(&drives[..4]), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let volume = pool.create_volume(on("data", "raid5", 4, 48 * MIB)).await.expect("a volume");
        fill(&volume, 9, 0, 48 * MIB).await;
        pool.convert_volume("data", layout("raid10", 4)).await.expect("begun");
        // Another volume takes the space that was free.
        let taken = pool.create_volume(volume_spec("taker", "raid0", None)).await.expect("all there is");
        drop(taken);
        let error = pool.wait(JobKind::Convert).await.expect_err("no room");
        assert!(error.to_string().contains("there is no room for more of it"), "{error}");
        let condition = pool.status().condition;
        assert!(
            matches!(&condition, Condition::Converting { waits: Some(wait), .. } if wait.is_for_space),
            "{condition:?}"
        );
        assert!(volume.info().expect("there").conversion.expect("running").waits.is_some());
        // Everything else continues, also after reopening.
        holds(&volume, 9, 0, 48 * MIB).await.expect("all of it");
        fill(&volume, 10, 0, 24 * MIB).await;
        fill(&volume, 10, 40 * MIB, 8 * MIB).await;
        pool.close().await.expect("closed");
        let pool = life.open(&as_drives(&drives[..4])).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        holds(&volume, 10, 0, 24 * MIB).await.expect("the beginning");
        holds(&volume, 9, 24 * MIB, 16 * MIB).await.expect("the middle");
        pool.wait(JobKind::Convert).await.expect_err("still no room");
        pool.delete_volume("taker").await.expect("deleted");
        pool.wait(JobKind::Convert).await.expect("converted");
        assert_eq!(shape_of(&volume), ("raid10".to_owned(), 4));
        holds(&volume, 10, 0, 24 * MIB).await.expect("the beginning");
        holds(&volume, 9, 24 * MIB, 16 * MIB).await.expect("the middle");
        holds(&volume, 10, 40 * MIB, 8 * MIB).await.expect("the end");
        is_clean(&volume).await;
    });
}

/// A drive that holds back reads while `keeps_waiting` is set.
struct SlowReader {
    below: Rc<MemoryDrive>,
    keeps_waiting: Cell<bool>,
    waiting: RefCell<Vec<(IoRequest, CompletionSender)>>,
}

impl SlowReader {
    fn answer(&self) {
        self.keeps_waiting.set(false);
        for (request, sender) in self.waiting.take() {
            let answer = self.below.submit(request).try_take().ok().expect("memory answers at once");
            sender.complete(answer);
        }
    }
}

impl Drive for SlowReader {
    fn info(&self) -> &DriveInfo {
        self.below.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if !self.keeps_waiting.get() || request.operation != Operation::Read {
            return self.below.submit(request);
        }
        let (sender, answer) = completion();
        self.waiting.borrow_mut().push((request, sender));
        answer
    }
}

#[test]
fn conversion_waits_for_slabs_with_long_reads() {
    let life = Life::new();
    life.run(async {
        let slow = |below| {
            let (keeps_waiting, waiting) = (Cell::new(false), RefCell::default());
            Rc::new(SlowReader { below, keeps_waiting, waiting })
        };
        let drives: Vec<Rc<SlowReader>> = memory_drives(4, 64).into_iter().map(slow).collect();
        let spec = PoolSpec { slab_bytes: Some(MIB), ..spec("tank", &as_drives(&drives), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let volume = pool.create_volume(on("data", "raid5", 4, 48 * MIB)).await.expect("a volume");
        fill(&volume, 9, 0, 48 * MIB).await;
        pool.convert_volume("data", layout("raid10", 4)).await.expect("begun");
        // Another volume takes all free space, and is deleted; one of its reads began before that
        // and takes longer than a client would wait for space.
        let taker = pool.create_volume(volume_spec("taker", "raid0", None)).await.expect("all there is");
        fill(&taker, 3, 0, MIB).await;
        drives.iter().for_each(|drive| drive.keeps_waiting.set(true));
        let reading = life.context.spawn(async move { taker.read(0, 4096).await.map(drop) });
        while drives.iter().all(|drive| drive.waiting.borrow().is_empty()) {
            life.context.sleep_ns(1000).await;
        }
        drives.iter().for_each(|drive| drive.keeps_waiting.set(false));
        let conversion = || volume.info().expect("there").conversion;
        let answering = async {
            life.context.sleep_ns(5_000_000_000).await;
            assert!(conversion().is_some(), "space is free only when no read of the slabs is in flight");
            drives.iter().for_each(|drive| drive.answer());
        };
        let (deleted, converted, ()) =
            join3(pool.delete_volume("taker"), pool.wait(JobKind::Convert), answering).await;
        deleted.expect("deleted");
        converted.expect("it waits, and continues");
        reading.await.expect("the read had begun before");
        assert_eq!(conversion(), None);
        holds(&volume, 9, 0, 48 * MIB).await.expect("all of it");
        is_clean(&volume).await;
    });
}

#[test]
fn conversion_ends_despite_a_pin_to_too_few_drives() {
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&memory_drives(7, 64));
        let spec =
            PoolSpec { slab_bytes: Some(MIB), fast: drives[4..].to_vec(), ..spec("tank", &drives[..4], &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let volume = pool.create_volume(on("data", "raid5", 3, 16 * MIB)).await.expect("a volume");
        fill(&volume, 9, 0, 16 * MIB).await;
        pool.convert_volume("data", layout("raid5", 4)).await.expect("begun");
        // Its current rows of three columns fit there; its new rows have four.
        pool.set_pin("data", Pin::Fast).await.expect("there is space for its current rows");
        pool.wait(JobKind::Convert).await.expect("converted");
        assert_eq!(shape_of(&volume), ("raid5".to_owned(), 4));
        holds(&volume, 9, 0, 16 * MIB).await.expect("all of it");
        is_clean(&volume).await;
    });
}

#[test]
fn lost_block_stays_lost_and_is_reported() {
    let life = Life::new();
    life.run(async {
        let faulty: Vec<Rc<FaultyDrive>> =
            memory_drives(4, 64).into_iter().map(|drive| FaultyDrive::new(&life.context, drive, 3)).collect();
        let pool = life.create(&as_drives(&faulty), &[]).await.expect("a pool");
        let spec = VolumeSpec { checksums: Some(false), ..on("data", "raid0", 2, 8 * MIB) };
        let volume = pool.create_volume(spec).await.expect("a volume");
        fill(&volume, 4, 0, 8 * MIB).await;
        volume.flush().await.expect("flushed");
        let place = volume.array().rows().place(0, 0).expect("a row");
        let status = pool.status();
        let path = status.drives[place.drive as usize].path.clone();
        let bad =
            faulty.iter().find(|drive| stripewise_drive::Drive::info(&***drive).label.to_string() == path);
        let bad = bad.expect("one of them");
        // The block at 8 KiB of the first column is byte 8192 of the volume. Slabs follow a
        // superblock area and a checksum area of 1 MiB each.
        let at = 2 * MIB + u64::from(place.slab) * pool.slab_bytes() + 8192;
        bad.make_unreadable(at..at + 4096);
        volume.read(8192, 4096).await.expect_err("it cannot be read");
        converted(&pool, "data", layout("raid5", 4)).await;
        let check = async |volume: &Volume| {
            volume.read(8192, 4096).await.expect_err("lost, not zeros");
            holds(volume, 4, 0, 8192).await.expect("before it");
            holds(volume, 4, 12288, 8 * MIB - 12288).await.expect("behind it");
            assert_eq!(volume.info().expect("there").lost_blocks, 1);
        };
        check(&volume).await;
        assert_eq!(pool.status().condition, Condition::LostBlocks { blocks: 1 });
        pool.close().await.expect("closed");
        let pool = life.open(&as_drives(&faulty)).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        check(&volume).await;
        // Another conversion does not recover it; a write does.
        converted(&pool, "data", layout("raid10", 4)).await;
        check(&volume).await;
        fill(&volume, 4, 8192, 4096).await;
        volume.flush().await.expect("flushed");
        holds(&volume, 4, 0, 8 * MIB).await.expect("all of it");
        assert_eq!(volume.info().expect("there").lost_blocks, 0);
    });
}

#[test]
fn requests_across_the_frontier_see_one_volume() {
    let life = Life::new();
    life.run(async {
        let pool = pool_of(&life, 5, 96).await;
        let spec = VolumeSpec { thin: true, ..on("data", "raid10", 4, 32 * MIB) };
        let volume = pool.create_volume(spec).await.expect("a volume");
        fill(&volume, 1, 0, 32 * MIB).await;
        pool.start_jobs();
        pool.convert_volume("data", layout("raid5", 5)).await.expect("begun");
        let mut seed = 2;
        while volume.info().expect("there").conversion.is_some() {
            let data = Buffer::from_bytes(&contents(seed, 0, (32 * MIB) as usize));
            volume.write(0, data, seed.is_multiple_of(2)).await.expect("written");
            let read = volume.read(0, (32 * MIB) as usize).await.expect("read");
            assert!(read.to_vec() == contents(seed, 0, (32 * MIB) as usize), "write {seed}");
            seed += 1;
        }
        assert!(seed > 2, "it was written during the conversion");
        holds(&volume, seed - 1, 0, 32 * MIB).await.expect("the last of it");
        is_clean(&volume).await;
    });
}

#[test]
fn cancelled_conversion_restores_the_layout() {
    let life = Life::new();
    life.run(async {
        let drives: Vec<Rc<FaultyDrive>> = memory_drives(5, 96)
            .into_iter()
            .map(|drive| {
                let drive = FaultyDrive::new(&life.context, drive, 3);
                drive.set_delay(stripewise_drive::Delay::Exponential { mean_ns: 400_000 });
                drive
            })
            .collect();
        let pool = life.create(&as_drives(&drives), &[]).await.expect("a pool");
        let volume = pool.create_volume(on("data", "raid6", 5, 40 * MIB)).await.expect("a volume");
        fill(&volume, 1, 0, 40 * MIB).await;
        let allocated = pool.status().allocated_bytes;
        let is_half_way = |percent: f64| (20.0..80.0).contains(&percent);
        let percent = |pool: &Pool| {
            let jobs = pool.activity();
            jobs.iter().find(|job| job.kind == JobKind::Convert).map_or(100.0, |job| job.percent)
        };
        let plan = pool.plan_conversion("data", layout("raid5", 4)).expect("possible");
        assert_eq!((plan.from.fault_tolerance(), plan.to.fault_tolerance()), (2, 1));
        // Before anything was copied, cancelling is immediate.
        pool.convert_volume("data", layout("raid5", 4)).await.expect("begun");
        pool.cancel_conversion("data").await.expect("cancelled");
        assert_eq!(shape_of(&volume), ("raid6".to_owned(), 5));
        assert_eq!((volume.info().expect("there").conversion, pool.status().activity.len()), (None, 0));
        assert_eq!(pool.status().allocated_bytes, allocated, "every slab came back");
        let refused = pool.cancel_conversion("data").await.expect_err("no conversion is running").to_string();
        assert!(refused.contains("is not being converted"), "{refused}");

        // Half-way: converted rows are moved back, including writes since then.
        pool.start_jobs();
        pool.convert_volume("data", layout("raid5", 4)).await.expect("begun");
        while volume.info().expect("there").conversion.is_some_and(|done| done.percent < 20.0) {
            life.context.sleep_ns(1_000_000).await;
        }
        assert!(is_half_way(percent(&pool)), "{}", percent(&pool));
        fill(&volume, 2, 3 * MIB, 5 * MIB).await;
        pool.cancel_conversion("data").await.expect("cancelled");
        let back = volume.info().expect("there").conversion.expect("on its way back");
        assert!(back.is_cancelled && back.from.level.to_string() == "raid5", "{back:?}");
        assert_eq!(shape_of(&volume), ("raid6".to_owned(), 5), "the target layout");
        assert!(pool.cancel_conversion("data").await.is_err(), "going back is not cancelled");
        fill(&volume, 3, 30 * MIB, 5 * MIB).await;
        // The next opening resumes it.
        pool.close().await.expect("closed");
        let pool = life.open(&as_drives(&drives)).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        assert!(volume.info().expect("there").conversion.is_some_and(|back| back.is_cancelled));
        let held = async |volume: &Volume| {
            holds(volume, 1, 0, 3 * MIB).await.expect("the beginning");
            holds(volume, 2, 3 * MIB, 5 * MIB).await.expect("written before");
            holds(volume, 1, 8 * MIB, 22 * MIB).await.expect("the middle");
            holds(volume, 3, 30 * MIB, 5 * MIB).await.expect("written on the way back");
            holds(volume, 1, 35 * MIB, 5 * MIB).await.expect("the end");
        };
        held(&volume).await;
        pool.wait(JobKind::Convert).await.expect("back");
        held(&volume).await;
        assert_eq!(volume.info().expect("there").conversion, None);
        assert_eq!(pool.status().allocated_bytes, allocated, "every slab came back");
        is_clean(&volume).await;
        pool.close().await.expect("closed");
    });
}
