//! Power is cut at every single write of every operation on a pool: afterwards the pool is found as
//! before or as after, intact, with all flushed data.
//!
//! Invariants I21 and I22 (`docs/internals/invariants.md`).

use std::pin::Pin;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::{JobKind, Pool, PoolError, PoolState, PoolStatus, Role, VolumeState};

/// Data of a stripe of RAID 5 on four drives.
const STRIPE: u64 = 3 * (64 << 10);

/// Maximum number of cuts per operation.
const MOST_CUTS: u64 = 120;

type Step<'a> = Pin<Box<dyn Future<Output = Result<(), PoolError>> + 'a>>;

/// State of a pool as far as these tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    volumes: Vec<String>,
    priority: u32,
    /// Path and role; not the state, since a cut may leave a rebuild at any point.
    drives: Vec<(String, String)>,
    /// Number of drives that are out of service.
    out: usize,
}

fn shape_of(status: &PoolStatus) -> Shape {
    let mut drives: Vec<_> = status
        .drives
        .iter()
        .filter(|drive| !matches!(drive.state.word(), "failed" | "stale" | "missing" | "behind"))
        .map(|drive| (drive.path.clone(), format!("{:?}", drive.role)))
        .collect();
    drives.sort();
    let volumes = status.volumes.iter().map(|volume| volume.name.clone()).collect();
    let out = status.drives.len() - drives.len();
    Shape { volumes, priority: status.rebuild_priority_percent, drives, out }
}

/// Creates a pool of four drives with a spare, one unused drive, and two volumes with flushed
/// contents.
fn prepared() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(6, 24);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &drives[4..5]).await.unwrap();
        let one = pool.create_volume(volume_spec("one", "raid5", Some(3 * MIB))).await.unwrap();
        let two = pool.create_volume(volume_spec("two", "raid10", Some(2 * MIB))).await.unwrap();
        fill(&one, 1, 0, 2 * MIB).await;
        fill(&two, 2, 0, MIB).await;
        pool.close().await.unwrap();
    });
    images
}

/// Cuts power at every write of `step` on a pool opened from `start`; afterwards the pool must be
/// as before or as after, with at most `may_be_out` drives out of service, and hold its data, also
/// after its jobs have run.
fn cut_everywhere(
    may_be_out: usize,
    start: &[Rc<MemoryDrive>],
    step: impl for<'a> Fn(&'a Life, &'a [Rc<dyn Drive>]) -> Step<'a>,
) {
    let total = {
        let cut = Cut::over(start, 1);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        cut.arm(u64::MAX);
        life.run(step(&life, &drives)).expect("the step works when nothing is cut");
        cut.writes()
    };
    assert!(total > 2, "a step of {total} writes proves little");
    println!("{total} writes");
    let before = reopened(start).expect("it was fine before");
    let mut seen = Vec::new();
    // The first write several times: the seed decides whether its sectors are kept, torn or lost.
    // Of a long step a sample.
    let stride = (total / MOST_CUTS).max(1);
    let sample = (2..=total + 1).step_by(stride as usize).map(|at| (at, at));
    let seeds = (0..5).map(|seed| (1, seed)).chain(sample).chain([(total + 1, 1)]);
    let more_seeds = (5..60).map(|seed| (1, seed));
    for (at, seed) in seeds.chain(more_seeds) {
        if at == 1 && seed >= 5 && seen.contains(&before) {
            break;
        }
        let cut = Cut::over(start, seed);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        cut.arm(at);
        let _ = life.run(step(&life, &drives));
        let images = cut.images();
        drop(life);
        let shape = reopened(&images)
            .unwrap_or_else(|error| panic!("cut at write {at} of {total}, seed {seed}: {error}"));
        if !seen.contains(&shape) {
            seen.push(shape);
        }
    }
    let after = {
        let cut = Cut::over(start, 1);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        life.run(step(&life, &drives)).unwrap();
        reopened(&cut.images()).unwrap()
    };
    assert!(seen.contains(&before) && seen.contains(&after), "{seen:#?}");
    // A step of several commits may be found half-way, but only in the roles of drives.
    let priorities = [30, 40, 50, 60];
    for shape in &seen {
        let known = [&before, &after].iter().any(|known| known.volumes == shape.volumes);
        let known = known && shape.out <= may_be_out;
        assert!(known && priorities.contains(&shape.priority), "{shape:?}: not {before:?}, not {after:?}");
    }
}

/// Opens the pool after a cut, checks all contents, lets jobs run, and checks again.
fn reopened(images: &[Rc<MemoryDrive>]) -> Result<Shape, String> {
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.map_err(|error| error.to_string())?;
        let shape = shape_of(&pool.status());
        if pool.status().state == PoolState::Failed {
            return Err(format!("failed: {:#?}", pool.status()));
        }
        check_contents(&pool).await?;
        pool.wait(JobKind::Rebuild).await.map_err(|error| error.to_string())?;
        pool.wait(JobKind::Scrub).await.map_err(|error| error.to_string())?;
        pool.wait(JobKind::Rebalance).await.map_err(|error| error.to_string())?;
        check_contents(&pool).await?;
        if pool.volumes().iter().any(|volume| volume.state != VolumeState::Online) {
            return Err(format!("not online after its jobs: {:#?}", pool.status()));
        }
        pool.close().await.map_err(|error| error.to_string())?;
        Ok(shape)
    })
}

async fn check_contents(pool: &Pool) -> Result<(), String> {
    for (name, seed, length) in [("one", 1, 2 * MIB), ("two", 2, MIB)] {
        if pool.volumes().iter().any(|volume| volume.name == name) {
            let volume = pool.volume(name).map_err(|error| error.to_string())?;
            holds(&volume, seed, 0, length).await.map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn volume_creation_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.create_volume(volume_spec("three", "raid6", Some(2 * MIB))).await?;
            Ok(())
        })
    });
}

#[test]
fn log_creation_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            let spec =
                stripewise_pool::VolumeSpec { log: Some(15), ..volume_spec("new", "raid5", Some(4 * MIB)) };
            pool.create_volume(spec).await?;
            pool.close().await
        })
    });
}

#[test]
fn volume_deletion_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.delete_volume("one").await
        })
    });
}

#[test]
fn setting_change_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            for percent in [40, 50, 60] {
                pool.set_rebuild_priority(percent).await?;
            }
            Ok(())
        })
    });
}

#[test]
fn adding_a_spare_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.add_spare(drives[5].clone(), false).await?;
            Ok(())
        })
    });
}

#[test]
fn drive_replacement_survives_any_cut() {
    cut_everywhere(0, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.replace(id_of(&pool.status(), "drive1"), drives[5].clone(), false).await?;
            pool.wait(JobKind::Rebuild).await?;
            pool.close().await
        })
    });
}

#[test]
fn rebalance_onto_new_drive_survives_any_cut() {
    let start = prepared();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&start[..5])).await.unwrap();
        let rest = pool.create_volume(volume_spec("rest", "raid5", None)).await.unwrap();
        fill(&rest, 3, 0, 2 * MIB).await;
        pool.close().await.unwrap();
    });
    cut_everywhere(0, &start, |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.add(drives[5].clone(), Role::Data, false).await?;
            assert!(pool.activity().iter().any(|job| job.kind == JobKind::Rebalance));
            pool.wait(JobKind::Rebalance).await?;
            pool.close().await
        })
    });
}

#[test]
fn return_of_diverged_drive_survives_any_cut() {
    // Its region map is newer than that of the volume it joins, and has all regions as unwritten.
    let images = memory_drives(2, 16);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("one", "raid1", None)).await.unwrap();
        fill(&volume, 1, 0, 2 * MIB).await;
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[..1])).await.unwrap();
        let volume = pool.volume("one").unwrap();
        for _ in 0..10 {
            fill(&volume, 5, 0, volume.capacity_bytes()).await;
            volume.discard(0, volume.capacity_bytes()).await.unwrap();
        }
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[1..])).await.unwrap();
        pool.close().await.unwrap();
    });
    // Until the drive has been returned, the two drives are diverged halves.
    let (wanderer, home) = (&images[..1], &images[1..]);
    let give_back = |cut: &Rc<Cut>| {
        let life = Life::new();
        let drives = cut.drives(&life.context);
        life.run(async {
            let pool = life.open(&drives[1..]).await?;
            pool.replace(id_of(&pool.status(), "drive0"), drives[0].clone(), false).await?;
            Ok::<_, PoolError>(())
        })
    };
    let both = [wanderer, home].concat();
    let cut = Cut::over(&both, 0);
    give_back(&cut).unwrap();
    let total = cut.writes();
    for at in 1..=total + 1 {
        let cut = Cut::over(&both, at);
        cut.arm(at);
        let _ = give_back(&cut);
        let images = cut.images();
        let life = Life::new();
        life.run(async {
            let pool = match life.open(&as_drives(&images)).await {
                Err(PoolError::Diverged { .. }) => life.open(&as_drives(&images[1..])).await.unwrap(),
                other => other.unwrap(),
            };
            check_contents(&pool)
                .await
                .unwrap_or_else(|error| panic!("cut at write {at} of {total}: {error}"));
            pool.wait(JobKind::Rebuild).await.unwrap();
            check_contents(&pool)
                .await
                .unwrap_or_else(|error| panic!("cut at write {at} of {total}: {error}"));
        });
    }
}

#[test]
fn spare_activation_survives_any_cut() {
    cut_everywhere(1, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[..5]).await?;
            pool.start_jobs();
            pool.fail_drive(id_of(&pool.status(), "drive2"), "a test").await?;
            pool.wait(JobKind::Rebuild).await?;
            pool.close().await
        })
    });
}

#[test]
fn degraded_open_survives_any_cut() {
    cut_everywhere(1, &prepared(), |life, drives| {
        Box::pin(async {
            let pool = life.open(&drives[1..5]).await?;
            let volume = pool.volume("one")?;
            volume.write(2 * MIB, pool.buffers().allocate_zeroed(MIB as usize), false).await?;
            volume.flush().await?;
            Ok(())
        })
    });
}

#[test]
fn pool_creation_survives_any_cut() {
    let images = memory_drives(3, 16);
    let make = |cut: &Rc<Cut>, at: u64| {
        let life = Life::new();
        let drives = cut.drives(&life.context);
        cut.arm(at);
        life.run(async {
            let pool = life.create(&drives, &[]).await?;
            pool.close().await
        })
    };
    let cut = Cut::over(&images, 1);
    make(&cut, u64::MAX).unwrap();
    let total = cut.writes();
    for at in 1..=total {
        let cut = Cut::over(&images, at);
        assert!(make(&cut, at).is_err());
        let life = Life::new();
        life.run(async {
            let drives = as_drives(&cut.images());
            match life.open(&drives).await {
                Ok(pool) => {
                    assert_eq!(pool.status().volumes, []);
                    pool.close().await.unwrap();
                }
                Err(PoolError::NoPool { .. }) => {}
                Err(error) => panic!("cut at {at}: {error}"),
            }
            // Whatever is left of the pool, `force` must replace it.
            let again = stripewise_pool::PoolSpec { force: true, ..spec("again", &drives, &[]) };
            let pool = Pool::create(&life.context, &life.buffers, again).await.unwrap();
            pool.close().await.unwrap();
            let pool = life.open(&drives).await.unwrap();
            assert_eq!((pool.name().as_str(), pool.notices()), ("again", Vec::new()));
        });
    }
}

#[test]
fn writes_after_drive_loss_survive_any_cut() {
    // A drive is pulled in use; power is cut at each later write. Flushed data must be found with
    // all drives, and with any set of drives that includes an up-to-date one.
    let start = prepared();
    let run = |cut: &Rc<Cut>, at: u64| {
        let life = Life::new();
        let drives = cut.drives(&life.context);
        life.run(async {
            let pulled = stripewise_drive::FaultyDrive::new(&life.context, drives[0].clone(), 1);
            let mut with_fault = drives[..5].to_vec();
            with_fault[0] = pulled.clone();
            let pool = life.open(&with_fault).await.unwrap();
            let one = pool.volume("one").unwrap();
            pulled.unplug();
            cut.arm(at);
            let mut flushed = 0;
            // Full stripes: without a journal a partial stripe write is not safe while a drive is
            // missing.
            for step in 0..6 {
                let data = stripewise_drive::Buffer::from_bytes(&contents(9, step * STRIPE, STRIPE as usize));
                if one.write(step * STRIPE, data, false).await.is_err() || one.flush().await.is_err() {
                    break;
                }
                flushed = (step + 1) * STRIPE;
            }
            flushed
        })
    };
    let cut = Cut::over(&start, 1);
    assert_eq!(run(&cut, u64::MAX), 6 * STRIPE);
    let total = cut.writes();
    for at in 1..=total {
        let cut = Cut::over(&start, at);
        let flushed = run(&cut, at);
        let images = cut.images();
        for absent in 0..6 {
            let mut present: Vec<Rc<dyn Drive>> = Vec::new();
            for image in
                images.iter().enumerate().filter(|(index, _)| *index != absent).map(|(_, image)| image)
            {
                present.push(image.duplicate(&image.info().label));
            }
            let life = Life::new();
            life.run(async {
                let pool = life.open(&present).await.unwrap();
                let Ok(one) = pool.volume("one") else {
                    // The pulled drive and another: two of a volume that tolerates one loss. Must
                    // be reported, not read wrong.
                    assert!((1..4).contains(&absent), "cut at {at}, without {absent}");
                    return;
                };
                holds(&one, 9, 0, flushed).await.unwrap_or_else(|error| {
                    panic!("cut at {at}, without drive{absent}, {flushed} flushed: {error}");
                });
                // Not in flight, so untouched.
                holds(&one, 1, 6 * STRIPE, 2 * MIB - 6 * STRIPE).await.unwrap();
            });
        }
    }
}

fn cut_commit_and_divide(seed: u64) {
    let images = memory_drives(3, 24);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let spec = volume_spec("data", "mirror3", Some(2 * MIB));
        let volume = pool.create_volume(spec).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        pool.close().await.unwrap();
    });
    let (mut alone, mut pairs) = (0, 0);
    for at in 1..28 {
        let cut = Cut::over(&images, seed);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        cut.arm(at);
        let _ = life.run(async {
            let pool = life.open(&drives).await?;
            // A commit of its own, and one that changes membership.
            pool.set_rebuild_priority(77).await?;
            pool.fail_drive(id_of(&pool.status(), "drive2"), "a test").await
        });
        for away in 0..3 {
            let duplicate = |image: &Rc<MemoryDrive>| image.duplicate(&image.info().label);
            let images: Vec<Rc<MemoryDrive>> = cut.images().iter().map(duplicate).collect();
            let drives = as_drives(&images);
            let others: Vec<Rc<dyn Drive>> =
                (0..3).filter(|drive| *drive != away).map(|drive| drives[drive].clone()).collect();
            let life = Life::new();
            life.run(async {
                let when = format!("cut at write {at}, seed {seed}, without drive{away}");
                let pool = life.open(&others).await.unwrap_or_else(|error| panic!("{when}: {error}"));
                fill(&pool.volume("data").unwrap(), 2, 0, MIB).await;
                let status = pool.status();
                pool.close().await.unwrap();
                // One of the drives that went on is enough, even if it did not take part in a
                // commit that the other one had received.
                for one in
                    (0..3).filter(|&one| one != away && state_of(&status, &format!("drive{one}")) == "online")
                {
                    let pair = as_drives(&[duplicate(&images[away]), duplicate(&images[one])]);
                    let pool = life
                        .open(&pair)
                        .await
                        .unwrap_or_else(|error| panic!("{when}, then with drive{one}: {error}"));
                    holds(&pool.volume("data").unwrap(), 2, 0, MIB).await.unwrap();
                    pool.close().await.unwrap();
                    pairs += 1;
                }
                let pool =
                    life.open(&drives).await.unwrap_or_else(|error| panic!("{when}, then all: {error}"));
                holds(&pool.volume("data").unwrap(), 2, 0, MIB).await.unwrap();
                alone += u64::from(state_of(&pool.status(), &format!("drive{away}")) == "behind");
                pool.wait(JobKind::Rebuild).await.unwrap();
                holds(&pool.volume("data").unwrap(), 2, 0, MIB).await.unwrap();
                pool.close().await.unwrap();
                // Commits since then count, whatever the drive had received before.
                let pool =
                    life.open(&drives).await.unwrap_or_else(|error| panic!("{when}, at last: {error}"));
                assert_ne!(state_of(&pool.status(), &format!("drive{away}")), "behind", "{when}");
                pool.close().await.unwrap();
            });
        }
    }
    assert!(alone > 4 && pairs > 20, "{alone} {pairs}");
}

test_cases! {
    /// Each keeps other unflushed sectors at the cut.
    interrupted_commit_does_not_split_the_pool = cut_commit_and_divide {
        seed_0: 0,
        seed_1: 1,
        seed_2: 2,
        seed_3: 3,
        seed_4: 4,
    }
}
