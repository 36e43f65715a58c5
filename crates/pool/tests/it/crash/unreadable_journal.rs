//! Data that only the journal has, on a drive that is away and on a page that cannot be read: an
//! error, or an event of kind loss, never silently the former data.
//!
//! Invariant I3 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Context, Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::VolumeSpec;

const BLOCK: u64 = 4096;
/// The block that is written last but for those after it.
const WRITTEN: u64 = 700;

/// Drives of a pool whose journal alone has the new content of a block, and the two drives and
/// places where it is.
fn with_a_pending_block(checksums: bool, blocks_after: u64) -> (Vec<Rc<MemoryDrive>>, [(usize, u64); 2]) {
    for seed in 0..20 {
        let images = memory_drives(5, 64);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
            let spec = VolumeSpec {
                checksums: Some(checksums),
                write_back: Some(true),
                ..volume_spec("v", "raid5", Some(8 * MIB))
            };
            full_volume(&pool, spec, 1).await;
            pool.close().await.expect("closed");
        });
        let cut = Cut::over(&images, seed);
        let life = Life::new();
        let left = life.run(async {
            let pool = life.open(&cut.drives(&life.context)).await.expect("opened");
            let volume = pool.volume("v").expect("open");
            for block in (WRITTEN..).step_by(300).take(1 + blocks_after as usize) {
                fill(&volume, 2, block * BLOCK, BLOCK).await;
                volume.flush().await.expect("flushed");
            }
            std::mem::forget(pool);
            cut.images()
        });
        let wanted = contents(2, WRITTEN * BLOCK, BLOCK as usize);
        let places: Vec<(usize, u64)> = left
            .iter()
            .enumerate()
            .flat_map(|(drive, image)| {
                let bytes = self::image(image);
                let holds = |at: &usize| bytes[*at..].starts_with(&wanted);
                let found: Vec<_> = (0..bytes.len()).step_by(512).filter(holds).collect();
                found.into_iter().map(move |at| (drive, at as u64))
            })
            .collect();
        if let [first, second] = places[..]
            && first.0 != second.0
        {
            return (left, [first, second]);
        }
    }
    panic!("the block is never in two journals only");
}

/// Drives without the one that is away, with a page of the other that cannot be read.
fn damaged(
    context: &Context,
    drives: &[Rc<dyn Drive>],
    (away, left): (usize, usize),
    unreadable: u64,
) -> Vec<Rc<dyn Drive>> {
    let mut drives = drives.to_vec();
    let faulty = FaultyDrive::new(context, drives[left].clone(), 1);
    faulty.make_unreadable(unreadable..unreadable + BLOCK);
    drives[left] = faulty;
    drives.remove(away);
    drives
}

/// The power is cut while the pool is opened and records the loss: it is found again.
#[test]
fn a_cut_while_a_loss_is_recorded_forgets_nothing() {
    for checksums in [false, true] {
        let (images, [away, left]) = with_a_pending_block(checksums, 0);
        let (places, page) = ((away.0, left.0), left.1 / BLOCK * BLOCK);
        let mut interrupted = 0;
        for at in 1.. {
            let cut = Cut::over(&Cut::over(&images, 0).images(), at);
            cut.arm(at);
            let life = Life::new();
            let left = life.run(async {
                let drives = damaged(&life.context, &cut.drives(&life.context), places, page);
                std::mem::forget(life.open(&drives).await);
                cut.images()
            });
            if cut.writes() < at {
                break;
            }
            interrupted += 1;
            let life = Life::new();
            life.run(async {
                let drives = damaged(&life.context, &as_drives(&left), places, page);
                let pool = life.open(&drives).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                let read = volume.read(WRITTEN * BLOCK, BLOCK as usize).await;
                assert!(read.is_err(), "checksums {checksums}, cut at write {at}: the loss is forgotten");
                pool.close().await.expect("closed");
            });
        }
        assert!(interrupted > 10, "{interrupted}");
    }
}

#[test]
fn unreadable_journal_page_is_an_error_or_a_loss() {
    for (checksums, after) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let (images, [away, left]) = with_a_pending_block(checksums, after);
        let mut errors = 0;
        let page = left.1 / BLOCK * BLOCK;
        for unreadable in [page, page - BLOCK] {
            let images: Vec<_> = Cut::over(&images, 0).images();
            let life = Life::new();
            life.run(async {
                let drives = damaged(&life.context, &as_drives(&images), (away.0, left.0), unreadable);
                let pool = life.open(&drives).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                let is_told = pool.events().iter().any(|event| event.text.contains("acknowledged"));
                match holds(&volume, 2, WRITTEN * BLOCK, BLOCK).await {
                    Ok(()) => {}
                    Err(what) if what.contains("wrong") => {
                        assert!(
                            is_told,
                            "silent: checksums {checksums}, {after} after, {unreadable}: {what}"
                        );
                    }
                    Err(_) => errors += 1,
                }
                // It can be written again, and what was not written is as it was.
                fill(&volume, 3, WRITTEN * BLOCK, BLOCK).await;
                holds(&volume, 3, WRITTEN * BLOCK, BLOCK).await.expect("written again");
                holds(&volume, 1, 0, WRITTEN * BLOCK).await.expect("the rest");
                pool.close().await.expect("closed");
            });
        }
        assert!(errors > 0, "checksums {checksums}, {after} after: the block's place in the record is known");
    }
}
