//! A drive refuses one flush after dropping its cache, and accepts the next flush, as files do on
//! Linux after a write-back error. Whichever volume issued the flush, every volume on the drive
//! that lost data either continues without the drive or returns an error to its client.
//!
//! Invariant I8 (`docs/internals/invariants.md`).

use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::{Buffer, Context, Delay, Drive, FaultyDrive, IoRequest};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, Pool, PoolState, Role, Volume, VolumeSpec};

use crate::kit::forgetful::Forgetful;
use crate::kit::pool::*;

const PIECE: u64 = 64 << 10;
const BLOCK: usize = 4096;
/// Longer than the engine leaves anything in a drive's cache by itself.
const LONG_NS: u64 = 30_000_000_000;

fn forgetful_drives(count: usize) -> Vec<Rc<Forgetful>> {
    memory_drives(count, 32).into_iter().map(Forgetful::over).collect()
}

fn spec(name: &str, layout: &str, columns: Option<usize>, checksums: bool, write_back: bool) -> VolumeSpec {
    let mut spec = volume_spec(name, layout, Some(6 * MIB));
    spec.layout.columns = columns;
    VolumeSpec { checksums: Some(checksums), write_back: Some(write_back), ..spec }
}

/// A volume in which everything was written, flushed, and is quiet.
async fn quiet_volume(life: &Life, pool: &Pool, spec: VolumeSpec) -> Volume {
    let volume = full_volume(pool, spec, 1).await;
    volume.flush().await.unwrap();
    life.context.sleep_ns(LONG_NS).await;
    volume
}

/// Blocks all over the volume.
async fn put_blocks(volume: &Volume, seed: u64) {
    for at in (0..volume.capacity_bytes()).step_by(PIECE as usize) {
        let data = Buffer::from_bytes(&contents(seed, at, BLOCK));
        volume.write(at, data, false).await.expect("written");
    }
}

async fn has_blocks(volume: &Volume, seed: u64) -> Result<(), String> {
    for at in (0..volume.capacity_bytes()).step_by(PIECE as usize) {
        holds(volume, seed, at, BLOCK as u64).await?;
        holds(volume, 1, at + BLOCK as u64, PIECE - BLOCK as u64).await?;
    }
    Ok(())
}

/// Source of the flush that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetBy {
    TheClientOfTheOther,
    TheEngine,
}

#[test]
fn refused_flush_concerns_every_volume_on_the_drive() {
    for (layout, checksums, write_back) in [
        ("raid1", false, false),
        ("raid1", true, false),
        ("raid5", false, false),
        ("raid5", true, false),
        ("raid5", true, true),
    ] {
        for met_by in [MetBy::TheClientOfTheOther, MetBy::TheEngine] {
            let case = format!("{layout}, checksums {checksums}, write-back {write_back}, {met_by:?}");
            let all = forgetful_drives(3);
            let life = Life::new();
            life.run(async {
                let pool = life.create(&as_drives(&all), &[]).await.unwrap();
                let whole =
                    quiet_volume(&life, &pool, spec("whole", layout, Some(3), checksums, write_back)).await;
                let bare = quiet_volume(&life, &pool, spec("bare", "raid0", Some(3), false, false)).await;
                put_blocks(&whole, 2).await;
                put_blocks(&bare, 2).await;
                all[0].refuse_next();
                match met_by {
                    MetBy::TheClientOfTheOther => {
                        bare.flush().await.expect_err("it cannot do without the drive");
                    }
                    MetBy::TheEngine => life.context.sleep_ns(LONG_NS).await,
                }
                assert_eq!(all[0].refused.get(), 1, "{case}");
                whole.flush().await.unwrap_or_else(|error| panic!("{case}: {error}"));
                has_blocks(&whole, 2).await.unwrap_or_else(|why| panic!("{case}: {why}"));
                assert_eq!(state_of(&pool.status(), "drive0"), "failed", "{case}");
                bare.flush().await.expect_err(&case);
            });
        }
    }
}

#[test]
fn a_log_goes_on_without_a_drive_that_lost_its_writes() {
    let all = forgetful_drives(3);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&all), &[]).await.unwrap();
        let log = VolumeSpec { log: Some(15), ..volume_spec("whole", "raid5", Some(6 * MIB)) };
        let whole = quiet_volume(&life, &pool, log).await;
        let bare = quiet_volume(&life, &pool, spec("bare", "raid0", Some(3), false, false)).await;
        put_blocks(&whole, 2).await;
        put_blocks(&bare, 2).await;
        life.context.sleep_ns(1_000_000).await;
        all[0].refuse_next();
        bare.flush().await.expect_err("it cannot do without the drive");
        whole.flush().await.unwrap();
        has_blocks(&whole, 2).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive0"), "failed");
    });
}

#[test]
fn lost_writes_are_read_from_other_drives_at_once() {
    for (layout, checksums, write_back) in
        [("raid1", false, false), ("raid5", false, false), ("raid5", true, true), ("raid6", false, false)]
    {
        for partial_writes in [false, true] {
            let case = format!("{layout}, checksums {checksums}, partial writes {partial_writes}");
            let all = forgetful_drives(4);
            let life = Life::new();
            life.run(async {
                let pool = life.create(&as_drives(&all), &[]).await.unwrap();
                let whole =
                    quiet_volume(&life, &pool, spec("whole", layout, Some(4), checksums, write_back)).await;
                let bare = quiet_volume(&life, &pool, spec("bare", "raid0", Some(4), false, false)).await;
                put_blocks(&whole, 2).await;
                put_blocks(&bare, 2).await;
                all[0].refuse_next();
                bare.flush().await.expect_err("it cannot do without the drive");
                if partial_writes {
                    // Parity that is updated from what the drive lost would be wrong for good.
                    put_blocks(&whole, 3).await;
                }
                let seed = if partial_writes { 3 } else { 2 };
                has_blocks(&whole, seed).await.unwrap_or_else(|why| panic!("{case}: {why}"));
                whole.flush().await.unwrap_or_else(|error| panic!("{case}: {error}"));
                has_blocks(&whole, seed).await.unwrap_or_else(|why| panic!("{case}: {why}"));
            });
        }
    }
}

#[test]
fn internal_refusal_is_reported_by_next_client_flush() {
    for (layout, columns, checksums, write_back) in [
        ("single", 1, false, false),
        ("single", 1, true, false),
        ("raid0", 3, false, false),
        ("raid0", 3, true, false),
        ("raid5", 3, false, false),
        ("raid5", 3, true, false),
        ("raid5", 3, false, true),
        ("raid5", 3, true, true),
    ] {
        let case = format!("{layout}, checksums {checksums}, write-back {write_back}");
        let all = forgetful_drives(columns);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&as_drives(&all), &[]).await.unwrap();
            let spec = spec("data", layout, Some(columns), checksums, write_back);
            let volume = quiet_volume(&life, &pool, spec).await;
            if layout == "raid5" {
                pool.fail_drive(id_of(&pool.status(), "drive2"), "a test").await.unwrap();
            }
            put_blocks(&volume, 2).await;
            all[0].refuse_next();
            life.context.sleep_ns(LONG_NS).await;
            assert_eq!(all[0].refused.get(), 1, "{case}: the engine flushes by itself");
            volume.flush().await.expect_err(&case);
            volume.flush().await.unwrap_or_else(|error| panic!("{case}: reported twice: {error}"));
            // New writes are as safe as before.
            fill(&volume, 3, 0, volume.capacity_bytes()).await;
            volume.flush().await.unwrap_or_else(|error| panic!("{case}: {error}"));
            holds(&volume, 3, 0, volume.capacity_bytes()).await.unwrap_or_else(|why| panic!("{case}: {why}"));
            pool.close().await.unwrap_or_else(|error| panic!("{case}: {error}"));
        });
    }
}

#[test]
fn unreported_refusal_is_reported_at_close() {
    let all = forgetful_drives(1);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&all), &[]).await.unwrap();
        let volume = quiet_volume(&life, &pool, spec("data", "single", None, false, false)).await;
        put_blocks(&volume, 2).await;
        all[0].refuse_next();
        life.context.sleep_ns(LONG_NS).await;
        assert_eq!(all[0].refused.get(), 1);
        pool.close().await.expect_err("writes were lost");
    });
}

#[test]
fn volume_ignores_refusals_of_unused_drives() {
    let all = forgetful_drives(4);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&all);
        let pool = life.create(&drives[..2], &[]).await.unwrap();
        let mirror = quiet_volume(&life, &pool, spec("mirror", "raid1", Some(2), true, false)).await;
        for drive in &drives[2..] {
            pool.add(drive.clone(), Role::Data, false).await.unwrap();
        }
        // The two new drives are the emptiest.
        let bare = quiet_volume(&life, &pool, spec("bare", "raid0", Some(2), false, false)).await;
        put_blocks(&bare, 2).await;
        put_blocks(&mirror, 2).await;
        all[3].refuse_next();
        bare.flush().await.expect_err("it has lost writes");
        assert_eq!(all[3].refused.get(), 1);
        mirror.flush().await.unwrap();
        has_blocks(&mirror, 2).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive3"), "online");
        put_blocks(&bare, 3).await;
        bare.flush().await.expect("the drive works again");
        has_blocks(&bare, 3).await.unwrap();
    });
}

#[test]
fn deleted_volume_excludes_no_drive_in_need() {
    let all = forgetful_drives(2);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&all), &[]).await.unwrap();
        let mirror = quiet_volume(&life, &pool, spec("mirror", "raid1", Some(2), true, false)).await;
        let bare = quiet_volume(&life, &pool, spec("bare", "raid0", Some(2), false, false)).await;
        put_blocks(&bare, 2).await;
        pool.delete_volume("mirror").await.unwrap();
        all[0].refuse_next();
        bare.flush().await.expect_err("it has lost writes");
        assert_eq!(all[0].refused.get(), 1);
        assert_eq!(state_of(&pool.status(), "drive0"), "online");
        put_blocks(&bare, 3).await;
        bare.flush().await.expect("the drive works again");
        has_blocks(&bare, 3).await.unwrap();
        // A client that still had it open.
        drop(mirror);
    });
}

#[test]
fn refusal_before_first_use_does_not_exclude_a_drive() {
    let all = forgetful_drives(3);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&all);
        let pool = life.create(&drives[..2], &[]).await.unwrap();
        let mirror = quiet_volume(&life, &pool, spec("mirror", "raid1", Some(2), false, false)).await;
        // The new drive is the emptiest.
        let new = pool.add(drives[2].clone(), Role::Data, false).await.unwrap();
        let bare = quiet_volume(&life, &pool, spec("bare", "single", Some(1), false, false)).await;
        put_blocks(&bare, 2).await;
        all[2].refuse_next();
        bare.flush().await.expect_err("it has lost writes");
        assert_eq!(all[2].refused.get(), 1);
        // A column of the mirror moves there.
        pool.retire(id_of(&pool.status(), "drive0")).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert!(mirror.info().unwrap().slots.iter().any(|slot| slot.drive == new));
        put_blocks(&mirror, 2).await;
        mirror.flush().await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive2"), "online");
        has_blocks(&mirror, 2).await.unwrap();
        put_blocks(&bare, 3).await;
        bare.flush().await.expect("the drive works again");
        has_blocks(&bare, 3).await.unwrap();
    });
}

/// Drives that take their time, so that a flush from elsewhere finds a job in the middle of its
/// work.
fn slow(context: &Context, all: &[Rc<Forgetful>]) -> Vec<Rc<FaultyDrive>> {
    let over = |(seed, drive): (usize, &Rc<Forgetful>)| {
        FaultyDrive::new(context, drive.clone() as Rc<dyn Drive>, seed as u64)
    };
    all.iter().enumerate().map(over).collect()
}

fn slow_down(drives: &[Rc<FaultyDrive>]) {
    drives.iter().for_each(|drive| drive.set_delay(Delay::Exponential { mean_ns: 1_000_000 }));
}

/// Waits, for a limited time, until the drive has at least `writes` writes in its cache.
async fn until_cached(life: &Life, drive: &Forgetful, writes: usize) {
    for _ in 0..5_000 {
        if drive.cache.borrow().len() >= writes {
            return;
        }
        life.context.sleep_ns(20_000).await;
    }
}

/// As another array's flush: the drive's last writes are lost, and only the drive's queue knows.
async fn lose_cache(pool: &Pool, drive: &Rc<Forgetful>) {
    drive.refuse_next();
    let id = id_of(&pool.status(), &drive.info().label);
    let Some(member) = pool.member(id) else { return };
    let _ = member.submit(Class::Upkeep, IoRequest::flush()).await;
    drive.refuses_next.set(false);
}

#[test]
fn rebuilt_rows_before_a_refusal_are_rebuilt_again() {
    let mut refused = 0;
    for moment in 0..16 {
        let checksums = moment % 2 == 1;
        let all = forgetful_drives(4);
        let life = Life::new();
        life.run(async {
            let drives = slow(&life.context, &all);
            let tops = as_drives(&drives);
            let pool = life.create(&tops[..3], &[]).await.unwrap();
            let volume = full_volume(&pool, spec("data", "raid5", Some(3), checksums, false), 1).await;
            volume.flush().await.unwrap();
            slow_down(&drives);
            replace_failed(&pool, "drive0", &tops[3]).await;
            pool.start_jobs();
            until_cached(&life, &all[3], 1 + moment * 3).await;
            lose_cache(&pool, &all[3]).await;
            refused += all[3].refused.get();
            let _ = pool.wait(JobKind::Rebuild).await;
            if pool.status().state == PoolState::Online {
                pool.fail_drive(id_of(&pool.status(), "drive1"), "to see").await.unwrap();
            }
            let found = holds(&volume, 1, 0, volume.capacity_bytes()).await;
            found.unwrap_or_else(|why| panic!("moment {moment}: {why}"));
        });
    }
    assert!(refused > 4, "{refused}");
}

#[test]
fn rows_moved_before_a_refusal_are_not_read_there() {
    let mut refused = 0;
    for moment in 0..16 {
        let checksums = moment % 2 == 1;
        let all = forgetful_drives(4);
        let life = Life::new();
        life.run(async {
            let drives = slow(&life.context, &all);
            let tops = as_drives(&drives);
            let pool = life.create(&tops[..3], &[]).await.unwrap();
            let volume = full_volume(&pool, spec("data", "raid5", Some(3), checksums, false), 1).await;
            volume.flush().await.unwrap();
            pool.add(tops[3].clone(), Role::Data, false).await.unwrap();
            slow_down(&drives);
            pool.retire(id_of(&pool.status(), "drive0")).await.unwrap();
            pool.start_jobs();
            until_cached(&life, &all[3], 1 + moment * 3).await;
            lose_cache(&pool, &all[3]).await;
            refused += all[3].refused.get();
            let _ = pool.wait(JobKind::Rebuild).await;
            let found = holds(&volume, 1, 0, volume.capacity_bytes()).await;
            found.unwrap_or_else(|why| panic!("moment {moment}: {why}"));
        });
    }
    assert!(refused > 4, "{refused}");
}

#[test]
fn rows_converted_before_a_refusal_convert_again() {
    let mut refused = 0;
    for moment in 0..16 {
        let checksums = moment % 2 == 1;
        let all = forgetful_drives(3);
        let life = Life::new();
        life.run(async {
            let drives = slow(&life.context, &all);
            let tops = as_drives(&drives);
            let pool = life.create(&tops[..2], &[]).await.unwrap();
            let volume = full_volume(&pool, spec("data", "raid0", Some(2), checksums, false), 1).await;
            volume.flush().await.unwrap();
            pool.add(tops[2].clone(), Role::Data, false).await.unwrap();
            slow_down(&drives);
            let mut wider = LayoutSpec::parse("raid0").expect("a layout");
            (wider.columns, wider.interleave_bytes) = (Some(3), Some(PIECE));
            pool.convert_volume("data", wider).await.unwrap();
            pool.start_jobs();
            life.context.sleep_ns(moment * 2_000_000).await;
            lose_cache(&pool, &all[2]).await;
            refused += all[2].refused.get();
            // It may have stopped at the refusal; then it goes on when it is asked to.
            let converted = match pool.wait(JobKind::Convert).await {
                Ok(()) => Ok(()),
                Err(_) => pool.wait(JobKind::Convert).await,
            };
            converted.unwrap_or_else(|error| panic!("moment {moment}: {error}"));
            assert_eq!(volume.info().unwrap().shape.width, 3, "moment {moment}");
            let found = holds(&volume, 1, 0, volume.capacity_bytes()).await;
            found.unwrap_or_else(|why| panic!("moment {moment}: {why}"));
        });
    }
    assert!(refused > 4, "{refused}");
}
