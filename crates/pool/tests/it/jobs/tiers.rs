//! Tiering in virtual time: hot rows move to fast drives and are served there, cold ones return,
//! within the rate limit and as pins allow; through power cuts and drive losses during the moves.
//!
//! Invariant I34 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec, SplitMix64};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolError, PoolOptions, PoolState, Role, Volume, VolumeSpec};
use stripewise_pool::{Pin, TierInfo, TierOptions};

const SECOND_NS: u64 = 1_000_000_000;
const DISK: ModelSpec = ModelSpec { latency_ns: 5_000_000, bytes_per_second: 150_000_000, queue_depth: 8 };
const FLASH: ModelSpec = ModelSpec { latency_ns: 80_000, bytes_per_second: 900_000_000, queue_depth: 16 };
/// Data bytes of a row of a volume with three columns, one of them parity.
const ROW: u64 = 2 * MIB;

fn tier_options(seed: u64) -> PoolOptions {
    let tiers = TierOptions { period_ns: SECOND_NS, half_life_ns: 10 * SECOND_NS };
    PoolOptions { tiers, ..options(seed) }
}

/// Modelled drives over images: the first `disks` as disks, the others as flash.
fn modelled<D: Drive + 'static>(life: &Life, below: &[Rc<D>], disks: usize) -> Vec<Rc<dyn Drive>> {
    let model = |(index, drive): (usize, &Rc<D>)| {
        let (info, speed) = (drive.info(), if index < disks { DISK } else { FLASH });
        ModelDrive::new(&life.context, &info.label, info.capacity_bytes, speed, drive.clone())
            as Rc<dyn Drive>
    };
    below.iter().enumerate().map(model).collect()
}

/// Images of disks of 64 MiB and fast drives of 16 MiB.
fn images(disks: usize, fast: usize) -> Vec<Rc<MemoryDrive>> {
    let image = |index: usize| {
        let mib = if index < disks { 64 } else { 16 };
        MemoryDrive::new(&format!("drive{index}"), mib * MIB)
    };
    (0..disks + fast).map(image).collect()
}

async fn create(life: &Life, drives: &[Rc<dyn Drive>], disks: usize) -> Pool {
    let mut spec = spec("tank", &drives[..disks], &[]);
    spec.fast = drives[disks..].to_vec();
    spec.options = tier_options(9);
    Pool::create(&life.context, &life.buffers, spec).await.unwrap()
}

async fn open(life: &Life, drives: &[Rc<dyn Drive>]) -> Pool {
    Pool::open(&life.context, &life.buffers, drives.to_vec(), OpenMode::ReadWrite, tier_options(7))
        .await
        .unwrap()
}

fn three_columns(size_mib: u64, pin: Pin) -> VolumeSpec {
    let mut spec = volume_spec("data", "raid5", Some(size_mib * MIB));
    spec.layout.columns = Some(3);
    VolumeSpec { pin, ..spec }
}

fn tiers(volume: &Volume) -> TierInfo {
    volume.info().unwrap().tiers
}

/// Rows with all columns on fast drives, which are numbered from `first_fast` on.
fn rows_up(volume: &Volume, first_fast: u32) -> BTreeSet<u64> {
    let rows = volume.array().rows();
    let is_up = |row: &u64| {
        let places = rows.run(*row).expect("no holes").places_of(*row);
        places.iter().all(|place| place.drive >= first_fast)
    };
    (0..rows.rows()).filter(is_up).collect()
}

/// Reads 4 KiB at random places in these rows every 5 ms.
async fn ask_for(life: &Life, volume: &Volume, rows: std::ops::Range<u64>, seconds: f64) {
    let end_ns = life.context.now_ns() + (seconds * SECOND_NS as f64) as u64;
    let mut random = SplitMix64::new(end_ns);
    while life.context.now_ns() < end_ns {
        let row = rows.start + random.below(rows.end - rows.start);
        let at = row * ROW + random.below(ROW / 4096) * 4096;
        holds(volume, 1, at, 4096).await.unwrap();
        life.context.sleep_ns(5_000_000).await;
    }
}

fn read_bytes(pool: &Pool, role: Role) -> u64 {
    let drives = pool.status().drives.into_iter().filter(|drive| drive.role == role);
    drives.map(|drive| pool.member(drive.id).unwrap().counters().read_bytes).sum()
}

/// Checks that the pool is online and redundant, and that all data is correct.
async fn check_sound(pool: &Pool, volume: &Volume, seed: u64) {
    assert_eq!(pool.status().state, PoolState::Online, "{:#?}", pool.status());
    holds(volume, seed, 0, volume.capacity_bytes()).await.unwrap();
    let report = volume.array().scrub(&|_, _| {}).await.unwrap();
    assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
}

#[test]
fn hot_rows_move_up_and_yield_to_hotter_ones() {
    let images = images(4, 3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = create(&life, &drives, 4).await;
        let volume = full_volume(&pool, three_columns(60, Pin::None), 1).await;
        pool.start_jobs();
        life.context.sleep_ns(30 * SECOND_NS).await;
        assert_eq!(tiers(&volume).fast_rows, 0, "a single write does not make a row hot");
        ask_for(&life, &volume, 10..15, 8.0).await;
        assert_eq!(rows_up(&volume, 4), (10..15).collect(), "{:?}", tiers(&volume));
        // Reads of these rows use the fast drives only.
        let before = (read_bytes(&pool, Role::Data), read_bytes(&pool, Role::Fast));
        ask_for(&life, &volume, 10..15, 1.0).await;
        assert_eq!(read_bytes(&pool, Role::Data), before.0);
        assert!(read_bytes(&pool, Role::Fast) > before.1 + 100 * 4096);
        let info = tiers(&volume);
        assert_eq!((info.fast_rows, info.data_rows, info.mixed_rows), (5, 25, 0));
        assert_eq!((info.fast_bytes, info.data_bytes), (15 * MIB, 75 * MIB));
        assert!(info.fast_heat > 10.0 * info.data_heat && info.hottest_row_heat > 12.0, "{info:?}");
        // A steady load causes no further moves.
        let generation = pool.generation();
        ask_for(&life, &volume, 10..15, 30.0).await;
        assert_eq!(pool.generation(), generation, "rows moved back and forth");
        // Another set of rows that does not fit beside the first: 12 rows fit.
        ask_for(&life, &volume, 18..30, 60.0).await;
        let up = rows_up(&volume, 4);
        assert_eq!(up, (18..30).collect(), "cold rows returned");
        check_sound(&pool, &volume, 1).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn equally_warm_rows_do_not_swap() {
    let images = images(4, 3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = create(&life, &drives, 4).await;
        let volume = full_volume(&pool, three_columns(60, Pin::None), 1).await;
        pool.start_jobs();
        // Twice as many hot rows as fit.
        ask_for(&life, &volume, 0..24, 40.0).await;
        let up = rows_up(&volume, 4);
        assert_eq!(up.len(), 12, "{:?}", tiers(&volume));
        let generation = pool.generation();
        ask_for(&life, &volume, 0..24, 120.0).await;
        let swaps = pool.generation() - generation;
        assert!(swaps <= 4, "{swaps} commits although nothing changed");
        // A sequential scan makes no rows hot.
        for _ in 0..2 {
            for at in (0..60 * MIB).step_by(256 << 10) {
                holds(&volume, 1, at, 256 << 10).await.unwrap();
            }
        }
        life.context.sleep_ns(3 * SECOND_NS).await;
        assert!(rows_up(&volume, 4).is_subset(&(0..24).collect()));
        pool.close().await.unwrap();
    });
}

#[test]
fn tier_rate_is_respected_and_can_be_set() {
    let images = images(4, 3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = create(&life, &drives, 4).await;
        assert_eq!(pool.tier_rate(), Some(100_000_000));
        assert!(matches!(pool.set_tier_rate(Some(1000)).await, Err(PoolError::BadSetting(_))));
        pool.set_tier_rate(Some(3 * MIB)).await.unwrap();
        let volume = full_volume(&pool, three_columns(20, Pin::None), 1).await;
        volume.flush().await.unwrap();
        pool.set_pin("data", Pin::Fast).await.unwrap();
        let began_ns = life.context.now_ns();
        let copied = || (tiers(&volume).fast_rows * 3 * MIB) as f64;
        pool.start_jobs();
        while tiers(&volume).data_rows > 0 {
            life.context.sleep_ns(SECOND_NS / 4).await;
            let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
            assert!(
                copied() <= (seconds + 0.5) * 3.0 * MIB as f64,
                "{} MiB in {seconds} s",
                copied() / MIB as f64
            );
            assert!(seconds < 12.0, "the rate is used: {:?}", tiers(&volume));
            if seconds < 4.0 {
                let activity = pool.activity();
                assert!(
                    activity.iter().all(|job| job.kind == JobKind::Tier && job.mb_per_s < 5.0),
                    "{activity:?}"
                );
            }
        }
        pool.wait(JobKind::Tier).await.unwrap();
        pool.set_tier_rate(None).await.unwrap();
        pool.set_pin("data", Pin::Slow).await.unwrap();
        let began_ns = life.context.now_ns();
        pool.wait(JobKind::Tier).await.unwrap();
        assert!(life.context.now_ns() - began_ns < 3 * SECOND_NS, "there is no rate limit");
        assert_eq!(tiers(&volume).data_rows, 10);
        pool.close().await.unwrap();
        let pool = open(&life, &drives).await;
        assert_eq!(pool.tier_rate(), None, "the setting persists");
        check_sound(&pool, &pool.volume("data").unwrap(), 1).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn pins_decide_the_tier_of_rows() {
    let images = images(4, 3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = create(&life, &drives, 4).await;
        let slow = full_volume(&pool, three_columns(12, Pin::Slow), 1).await;
        let refused = pool.create_volume(VolumeSpec { name: "big".to_owned(), ..three_columns(40, Pin::Fast) }).await;
        let refused = refused.err().expect("13 slabs of each fast drive are not enough for 20 rows");
        assert!(
            matches!(refused, PoolError::NoSpace { needed_rows: 20, free_rows, .. } if (8..13).contains(&free_rows)),
            "{refused}"
        );
        let fast = VolumeSpec { name: "fast".to_owned(), ..three_columns(8, Pin::Fast) };
        let fast = pool.create_volume(fast).await.unwrap();
        assert_eq!((tiers(&fast).fast_rows, tiers(&fast).data_rows), (4, 0));
        pool.start_jobs();
        ask_for(&life, &slow, 0..6, 10.0).await;
        assert_eq!((tiers(&slow).fast_rows, tiers(&slow).data_rows), (0, 6), "pinned, however hot");
        // Six rows do not fit beside the other four, with their maps and journals.
        let refused = pool.set_pin("data", Pin::Fast).await.expect_err("no room");
        assert!(matches!(refused, PoolError::NoSpace { needed_rows: 6, .. }), "{refused}");
        pool.set_pin("fast", Pin::Slow).await.unwrap();
        pool.set_pin("data", Pin::Fast).await.unwrap_or_else(|error| println!("{error}"));
        pool.wait(JobKind::Tier).await.unwrap();
        assert_eq!(tiers(&fast).data_rows, 4);
        pool.set_pin("data", Pin::Fast).await.unwrap();
        pool.wait(JobKind::Tier).await.unwrap();
        assert_eq!(tiers(&slow).fast_rows, 6);
        check_sound(&pool, &slow, 1).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn too_few_fast_drives_are_reported_and_left_alone() {
    let images = images(4, 2);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = create(&life, &drives, 4).await;
        let volume = full_volume(&pool, three_columns(20, Pin::None), 1).await;
        pool.start_jobs();
        ask_for(&life, &volume, 0..3, 10.0).await;
        let info = tiers(&volume);
        assert_eq!(info.fast_rows + info.mixed_rows, 0);
        assert!(info.note.expect("a note").contains("need 3 fast drives"));
        pool.close().await.unwrap();
    });
}

/// Creates a closed pool with a full volume on fast drives.
fn partly_up(fast: usize) -> Vec<Rc<MemoryDrive>> {
    let images = images(4, fast);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives, 4).await;
        let volume = full_volume(&pool, three_columns(16, Pin::None), 1).await;
        pool.set_pin("data", Pin::Fast).await.unwrap();
        pool.wait(JobKind::Tier).await.unwrap();
        pool.set_pin("data", Pin::None).await.unwrap();
        assert_eq!(tiers(&volume).fast_rows, 8);
        pool.close().await.unwrap();
    });
    images
}

#[test]
fn rows_return_from_retiring_fast_drives() {
    let images = partly_up(3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = open(&life, &drives).await;
        let volume = pool.volume("data").unwrap();
        for drive in ["drive4", "drive5", "drive6"] {
            pool.retire(id_of(&pool.status(), drive)).await.unwrap();
        }
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().drives.len(), 4, "{:#?}", pool.status());
        assert_eq!(tiers(&volume).data_rows, 8);
        check_sound(&pool, &volume, 1).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn failed_fast_drive_is_rebuilt_onto_data_drives() {
    let images = partly_up(3);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &images, 4);
        let pool = open(&life, &drives).await;
        let volume = pool.volume("data").unwrap();
        pool.set_pin("data", Pin::Fast).await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "drive4"), "a test").await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        pool.wait(JobKind::Tier).await.unwrap();
        // Two fast drives are left for rows of three columns: redundancy takes precedence over the
        // pin.
        assert_eq!(pool.status().state, PoolState::Online, "{:#?}", pool.status());
        let info = tiers(&volume);
        assert_eq!(info.fast_rows, 0, "{info:?}");
        assert!(info.note.expect("a note").contains("no room"), "it is reported");
        check_sound(&pool, &volume, 1).await;
        pool.add(MemoryDrive::new("new", 24 * MIB), Role::Fast, false).await.unwrap();
        pool.wait(JobKind::Tier).await.unwrap();
        life.context.sleep_ns(3 * SECOND_NS).await;
        pool.wait(JobKind::Tier).await.unwrap();
        assert_eq!(tiers(&volume).fast_rows, 8, "{:?}", tiers(&volume));
        check_sound(&pool, &volume, 1).await;
        pool.close().await.unwrap();
    });
}

/// Moves a volume up (or down) while a client writes and flushes; `flushed` receives the flushed
/// seed of each block of 64 KiB.
async fn move_under_load(life: &Life, pool: &Pool, pin: Pin, seed: u64, flushed: &RefCell<Vec<u64>>) {
    let Ok(volume) = pool.volume("data") else { return };
    if pool.set_pin("data", pin).await.is_err() {
        return;
    }
    pool.start_jobs();
    let (mut random, mut blocks) = (SplitMix64::new(seed), flushed.borrow().clone());
    for round in 0..40 {
        let block = random.below(blocks.len() as u64);
        let new = seed * 1000 + round;
        let data = Buffer::from_bytes(&contents(new, block << 16, 1 << 16));
        if volume.write(block << 16, data, false).await.is_err() {
            return;
        }
        blocks[block as usize] = new;
        if round % 3 == 0 {
            if volume.flush().await.is_err() {
                return;
            }
            *flushed.borrow_mut() = blocks.clone();
        }
        life.context.sleep_ns(random.below(SECOND_NS)).await;
    }
    let _ = pool.wait(JobKind::Tier).await;
}

/// Checks that every block holds its flushed contents or a later write, and that all are redundant.
async fn check_flushed(volume: &Volume, flushed: &[u64], seed: u64) {
    for (index, &block) in flushed.iter().enumerate() {
        let at = (index as u64) << 16;
        if holds(volume, block, at, 1 << 16).await.is_ok() {
            continue;
        }
        // Each 4 KiB of a write in flight is old or new on its own.
        let read = volume.read(at, 1 << 16).await.unwrap().to_vec();
        for (part, bytes) in read.chunks(4096).enumerate() {
            let at = at + part as u64 * 4096;
            let is = |seed: &u64| bytes == &contents(*seed, at, 4096)[..];
            let later: Vec<u64> = (0..40).map(|round| seed * 1000 + round).collect();
            assert!(is(&block) || later.iter().any(is), "block {index} part {part}");
        }
    }
    let report = volume.array().scrub(&|_, _| {}).await.unwrap();
    assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
}

#[test]
fn power_cut_during_tier_moves_loses_nothing() {
    let start = partly_up(3);
    let run = |seed: u64, at: u64, pin: Pin| {
        let cut = Cut::over(&start, seed);
        let flushed = RefCell::new(vec![1; 16 * 16]);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        life.run(async {
            let pool = open(&life, &drives).await;
            // Two rows per batch.
            pool.set_tier_rate(Some(MIB)).await.unwrap();
            cut.arm(at);
            move_under_load(&life, &pool, pin, seed, &flushed).await;
        });
        (cut.writes(), cut.images(), flushed.take())
    };
    let total = run(1, u64::MAX, Pin::Slow).0;
    let (mut moments, mut half_way) = (SplitMix64::new(5), 0);
    for seed in 2..42 {
        let (_, images, flushed) = run(seed, 1 + moments.below(total), Pin::Slow);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &as_drives(&images)).await;
            let volume = pool.volume("data").unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "seed {seed}: {:#?}", pool.status());
            let info = tiers(&volume);
            half_way += u64::from(info.fast_rows < 8 && info.data_rows < 8);
            check_flushed(&volume, &flushed, seed).await;
            // The next opening resumes the moves; then any drive may be lost.
            pool.wait(JobKind::Tier).await.unwrap();
            if volume.info().unwrap().pin == Pin::Slow {
                assert_eq!(tiers(&volume).data_rows, 8, "seed {seed}");
            }
            let victim = format!("drive{}", seed % 7);
            pool.fail_drive(id_of(&pool.status(), &victim), "a test").await.unwrap();
            check_flushed(&volume, &flushed, seed).await;
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "seed {seed}: {:#?}", pool.status());
            pool.close().await.unwrap();
        });
    }
    assert!(half_way >= 5, "only {half_way} cuts were during the moves");
}

#[test]
fn drive_loss_during_tier_moves_costs_only_a_rebuild() {
    for seed in 0..14 {
        let images = partly_up(3);
        let life = Life::new();
        life.run(async {
            let victim = (seed % 7) as usize;
            let below: Vec<Rc<dyn Drive>> = modelled(&life, &images, 4);
            let faulty: Vec<Rc<FaultyDrive>> =
                below.iter().map(|drive| FaultyDrive::new(&life.context, drive.clone(), seed)).collect();
            let drives = as_drives(&faulty);
            let pool = open(&life, &drives).await;
            pool.set_tier_rate(Some(2 * MIB)).await.unwrap();
            let (context, done) = (life.context.clone(), Rc::new(Cell::new(false)));
            let (drive, flag) = (faulty[victim].clone(), done.clone());
            drop(life.context.spawn(async move {
                context.sleep_ns(SECOND_NS / 10 + seed * 700_000_000).await;
                drive.unplug();
                flag.set(true);
            }));
            let flushed = RefCell::new(vec![1; 16 * 16]);
            move_under_load(&life, &pool, Pin::Slow, seed + 1, &flushed).await;
            assert!(done.get());
            pool.wait(JobKind::Rebuild).await.unwrap();
            pool.wait(JobKind::Tier).await.unwrap();
            let volume = pool.volume("data").unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "seed {seed}: {:#?}", pool.status());
            assert_eq!(tiers(&volume).data_rows, 8, "seed {seed}: {:#?}", pool.status());
            check_flushed(&volume, &flushed.take(), seed + 1).await;
            pool.close().await.unwrap();
        });
    }
}
