//! Pages that are wrong, outdated, torn or missing, and caches that overflow.

use stripewise_drive::{Delay, WriteFault};

use super::*;
use crate::checksums::audit::AuditReport;

const BOTH: ChecksumOptions = ChecksumOptions { prefer_newest: true, ..OPTIONS };

fn id(column: u16, page: u16) -> PageId {
    PageId { row: 0, column, page }
}

async fn verify(sums: &Checksums, column: u16, offset: u64, data: &Buffer) -> Verdict {
    sums.verify(column, offset, data).await.expect("a verdict")
}

/// Creates checksums with a durable block in each of the four pages of column 1.
async fn filled(context: &Context) -> (Bed, Buffer) {
    let bed = Bed::new(context, 3, OPTIONS);
    let block = data(1, 1);
    for page in 0..4 {
        record(&bed.sums, 1, page * MIB, &block, 1).await;
    }
    bed.sums.checkpoint().await.expect("a checkpoint");
    assert_eq!(bed.sums.dirty_bytes(), 0);
    (bed, block)
}

/// Applies a damage to own pages: the copies must serve, and a checkpoint must restore both places.
fn survives(damage: impl Fn(&Bed)) {
    for options in [OPTIONS, BOTH] {
        run(|context| {
            let damage = &damage;
            async move {
                let (mut bed, block) = filled(&context).await;
                let whole: Vec<_> = (0..4).map(|page| bed.peek(id(1, page), Side::Own)).collect();
                damage(&bed);
                bed.reopen(options);
                let wrong = data(2, 1);
                for page in 0..4 {
                    let verdict = verify(&bed.sums, 1, page * MIB, &block).await;
                    assert_eq!((verdict.is_good(), verdict.unrecorded_blocks), (true, 0), "page {page}");
                    assert!(!verify(&bed.sums, 1, page * MIB, &wrong).await.is_good());
                }
                assert!(bed.sums.counters().repaired_pages > 0);
                assert_eq!(bed.sums.counters().lost_pages, 0);
                assert!(bed.sums.dirty_bytes() > 0, "the damaged page is dirty");
                bed.sums.checkpoint().await.expect("a checkpoint");
                for (page, whole) in (0..).zip(whole) {
                    assert!(bed.peek(id(1, page), Side::Own) == whole, "own {page}");
                    assert!(bed.peek(id(1, page), Side::Copy) == whole, "copy {page}");
                }
            }
        });
    }
}

#[test]
fn damaged_own_pages_are_repaired_from_the_copy() {
    survives(|bed| {
        let mut page = bed.peek(id(1, 2), Side::Own);
        page[70] ^= 1;
        bed.poke(id(1, 2), Side::Own, &page);
    });
    survives(|bed| {
        let torn = [&bed.peek(id(1, 2), Side::Own)[..512], &vec![0; 3584]].concat();
        bed.poke(id(1, 2), Side::Own, &torn);
    });
    survives(|bed| {
        let (a, b) = (bed.peek(id(1, 2), Side::Own), bed.peek(id(1, 3), Side::Own));
        bed.poke(id(1, 3), Side::Own, &a);
        bed.poke(id(1, 2), Side::Own, &b);
    });
    survives(|bed| bed.poke(id(1, 0), Side::Own, &[0; PAGE_BYTES]));
    survives(|bed| {
        let (drive, offset) = place(3, id(1, 1), Side::Own);
        bed.faults[drive].make_unreadable(offset..offset + 512);
    });
}

#[test]
fn wrong_page_is_attributed_to_its_drive() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.poke(id(1, 2), Side::Own, &[7; PAGE_BYTES]);
        bed.reopen(OPTIONS);
        for page in 0..4 {
            verify(&bed.sums, 1, page * MIB, &block).await;
        }
        assert_eq!(*bed.places.wrong.borrow(), [(id(1, 2), Side::Own)]);
    });
}

#[test]
fn newer_copy_replaces_an_outdated_own_page() {
    for options in [OPTIONS, BOTH] {
        run(|context| async move {
            let (mut bed, _) = filled(&context).await;
            let old = bed.peek(id(1, 0), Side::Own);
            let newer = data(2, 1);
            record(&bed.sums, 1, 0, &newer, 2).await;
            bed.sums.checkpoint().await.expect("a checkpoint");
            bed.poke(id(1, 0), Side::Own, &old);
            bed.reopen(options);
            // Changing another block of the page before any read must not prevent reading the copy.
            record(&bed.sums, 1, 5 * BLOCK_BYTES, &data(3, 1), 3).await;
            assert!(verify(&bed.sums, 1, 0, &newer).await.is_good());
            assert_eq!(verify(&bed.sums, 1, 5 * BLOCK_BYTES, &data(3, 1)).await, Verdict::default());
            assert!(!verify(&bed.sums, 1, 0, &data(1, 1)).await.is_good(), "the block as it was");
            assert_eq!(*bed.places.wrong.borrow(), [(id(1, 0), Side::Own)]);
            bed.sums.checkpoint().await.expect("a checkpoint");
            assert!(bed.peek(id(1, 0), Side::Own) == bed.peek(id(1, 0), Side::Copy));
        });
    }
}

/// A drive that lost the write of a block and that of its page: only the copy is current.
#[test]
fn lost_block_and_page_are_found_by_read_or_audit() {
    for (options, audits, is_seen) in [(OPTIONS, false, false), (BOTH, false, true), (OPTIONS, true, true)] {
        run(|context| async move {
            let (mut bed, old) = filled(&context).await;
            record(&bed.sums, 1, 0, &data(2, 1), 2).await;
            let (drive, offset) = place(3, id(1, 0), Side::Own);
            bed.faults[drive].arm_write_fault_at(offset..offset + 4096, WriteFault::Lost);
            bed.sums.checkpoint().await.expect("a checkpoint");
            bed.reopen(options);
            if audits {
                let report = bed.sums.audit(0, 1, &|_| true).await.expect("an audit");
                assert_eq!(report, AuditReport { pages: 4, repaired: 1, lost: 0 });
            }
            assert_eq!(verify(&bed.sums, 1, 0, &old).await.is_good(), !is_seen);
        });
    }
}

/// Pages in memory hold the expected contents: an audit repairs both places if both were damaged.
#[test]
fn an_audit_of_pages_in_memory_repairs_both_places() {
    run(|context| async move {
        let (bed, _) = filled(&context).await;
        let whole = bed.peek(id(1, 3), Side::Own);
        bed.poke(id(1, 3), Side::Own, &[1; PAGE_BYTES]);
        bed.poke(id(1, 3), Side::Copy, &[1; PAGE_BYTES]);
        let report = bed.sums.audit(0, 1, &|page| page != 0).await.expect("an audit");
        assert_eq!(report, AuditReport { pages: 3, repaired: 1, lost: 0 });
        bed.sums.checkpoint().await.expect("a checkpoint");
        assert!(bed.peek(id(1, 3), Side::Own) == whole && bed.peek(id(1, 3), Side::Copy) == whole);
    });
}

#[test]
fn page_lost_in_both_places_is_counted() {
    run(|context| async move {
        let (mut bed, _) = filled(&context).await;
        bed.poke(id(1, 0), Side::Own, &[1; PAGE_BYTES]);
        bed.poke(id(1, 0), Side::Copy, &[1; PAGE_BYTES]);
        bed.reopen(OPTIONS);
        let verdict = verify(&bed.sums, 1, 0, &data(9, 1)).await;
        assert_eq!((verdict.is_good(), verdict.unrecorded_blocks), (true, 1));
        assert_eq!(bed.sums.counters().lost_pages, 1);
        // A page that was never written is not lost.
        verify(&bed.sums, 2, 0, &data(9, 1)).await;
        assert_eq!(bed.sums.counters().lost_pages, 1);
    });
}

#[test]
fn pages_survive_a_missing_drive_and_fill_a_new_one() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        record(&bed.sums, 0, 2 * MIB, &block, 1).await;
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.places.missing.borrow_mut()[1] = true;
        bed.reopen(OPTIONS);
        assert!(
            !verify(&bed.sums, 1, 0, &data(2, 1)).await.is_good(),
            "the copy shows that the block is wrong"
        );
        record(&bed.sums, 1, MIB, &data(4, 1), 2).await;
        bed.sums.checkpoint().await.expect("with one place");
        // Replace the drive with a new one.
        bed.images[1] = MemoryDrive::new("new", 8 << 20);
        bed.places.drives.borrow_mut()[1] = bed.images[1].clone();
        bed.places.missing.borrow_mut()[1] = false;
        bed.sums.rewrite(0, 1, &|page| page < 3).await.expect("rewriting");
        bed.sums.checkpoint().await.expect("a checkpoint");
        for (column, pages) in [(1, 0..3), (0, 2..3)] {
            for page in pages {
                let (own, copy) =
                    (bed.peek(id(column, page), Side::Own), bed.peek(id(column, page), Side::Copy));
                assert!(own == copy && own[..8] == *b"STRPSUMS", "column {column} page {page}");
            }
        }
        assert_eq!(bed.peek(id(1, 3), Side::Own), [0; PAGE_BYTES], "holds no data");
        // The drive with the other places may be lost now.
        bed.places.missing.borrow_mut()[2] = true;
        bed.reopen(OPTIONS);
        assert!(verify(&bed.sums, 1, MIB, &data(4, 1)).await.is_good());
        assert!(!verify(&bed.sums, 1, 0, &data(2, 1)).await.is_good());
    });
}

/// Unlike a rewrite, filling does not write the drives with the other places, unless a page
/// changed.
#[test]
fn filling_writes_the_new_place_and_changes_only() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        record(&bed.sums, 0, 2 * MIB, &block, 1).await;
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.images[1] = MemoryDrive::new("new", 8 << 20);
        bed.places.drives.borrow_mut()[1] = bed.images[1].clone();
        bed.reopen(OPTIONS);
        // Places of the new drive do not count while it is being filled.
        bed.places.missing.borrow_mut()[1] = true;
        // One page changes during the fill; a page queued twice is written once.
        record(&bed.sums, 1, 3 * MIB, &data(2, 1), 2).await;
        for _ in 0..2 {
            bed.sums.fill_places(0, 1, &|page| page != 1).await.expect("pages");
        }
        bed.places.missing.borrow_mut()[1] = false;
        bed.places.log.borrow_mut().clear();
        bed.sums.checkpoint().await.expect("a checkpoint");
        let written: Vec<(PageId, Side)> =
            bed.places.log.borrow().iter().map(|entry| (entry.0, entry.1)).collect();
        let on_new = |page| [(id(1, page), Side::Own), (id(0, page), Side::Copy)];
        let mut expected: Vec<(PageId, Side)> = [on_new(0), on_new(2)].concat();
        expected.extend([(id(0, 3), Side::Copy), (id(1, 3), Side::Own), (id(1, 3), Side::Copy)]);
        assert_eq!(written, expected);
        for page in [(1, 0), (1, 2), (1, 3), (0, 2)] {
            let (own, copy) =
                (bed.peek(id(page.0, page.1), Side::Own), bed.peek(id(page.0, page.1), Side::Copy));
            assert!(own == copy && own[..8] == *b"STRPSUMS", "{page:?}");
        }
        // The next checkpoint retries the failed write.
        bed.places.missing.borrow_mut()[1] = true;
        bed.sums.fill_places(0, 1, &|page| page == 1).await.expect("pages");
        bed.places.missing.borrow_mut()[1] = false;
        let (_, offset) = place(3, id(1, 1), Side::Own);
        let faulty = FaultyDrive::new(&context, bed.images[1].clone(), 1);
        faulty.make_unwritable(offset..offset + 4096);
        bed.places.drives.borrow_mut()[1] = faulty;
        bed.sums.checkpoint().await.expect_err("it cannot be written");
        bed.places.drives.borrow_mut()[1] = bed.images[1].clone();
        bed.sums.checkpoint().await.expect("a checkpoint");
        assert!(bed.peek(id(1, 1), Side::Own) == bed.peek(id(1, 1), Side::Copy));
        bed.places.log.borrow_mut().clear();
        bed.sums.checkpoint().await.expect("a checkpoint");
        assert!(bed.places.log.borrow().is_empty(), "no page is dirty");
    });
}

#[test]
fn write_errors_are_reported_until_drive_is_excluded() {
    run(|context| async move {
        let (bed, _) = filled(&context).await;
        let (drive, offset) = place(3, id(1, 0), Side::Copy);
        bed.faults[drive].make_unwritable(offset..offset + 4096);
        record(&bed.sums, 1, 0, &data(5, 1), 2).await;
        bed.sums.checkpoint().await.expect_err("the drive gives errors and is not excluded");
        assert!(bed.places.reports.get() > 1);
        assert!(bed.sums.dirty_bytes() > 0, "the page stays dirty");
        bed.places.strict.set(true);
        bed.sums.checkpoint().await.expect("without the drive");
        assert_eq!(bed.sums.dirty_bytes(), 0);
        assert!(bed.places.missing.borrow()[drive]);
    });
}

#[test]
fn eviction_keeps_sums_and_memory_bounded() {
    for seed in 0..20 {
        run(|context| async move {
            let options = ChecksumOptions { cache_bytes: 48 << 10, ..OPTIONS };
            let bed = Bed::new(&context, 3, options);
            let mut random = SplitMix64::new(seed);
            let mut model = std::collections::BTreeMap::new();
            for step in 1..600 {
                let column = random.below(3) as u16;
                let offset = random.below(48 * 8) * (MIB / 8);
                if random.chance(0.6) {
                    record(&bed.sums, column, offset, &data(step, 1), step as u32).await;
                    model.insert((column, offset), step);
                } else if let Some(&version) = model.get(&(column, offset)) {
                    let verdict = verify(&bed.sums, column, offset, &data(version, 1)).await;
                    assert_eq!((verdict.is_good(), verdict.unrecorded_blocks), (true, 0), "seed {seed}");
                    assert!(!verify(&bed.sums, column, offset, &data(9999, 1)).await.is_good());
                }
                // The page in use may exceed the limit.
                assert!(bed.sums.memory_bytes() <= (48 << 10) + 4096, "{}", bed.sums.memory_bytes());
            }
            let counters = bed.sums.counters();
            assert!(counters.evictions > 100 && counters.checkpoints > 3, "{counters:?}");
            assert_eq!(counters.lost_pages + counters.repaired_pages, 0);
            for ((column, offset), version) in model {
                assert!(verify(&bed.sums, column, offset, &data(version, 1)).await.is_good());
            }
        });
    }
}

#[test]
fn a_pinned_page_stays() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.reopen(ChecksumOptions { cache_bytes: 0, ..OPTIONS });
        let pin = bed.sums.pin(1, 0, BLOCK_BYTES).await.expect("pages");
        for page in 0..100 {
            verify(&bed.sums, 2, page * MIB, &block).await;
        }
        assert!(bed.sums.counters().evictions > 50);
        assert!(bed.sums.try_verify(1, 0, &block).expect("still there").is_good());
        assert!(pin.covers(1, 0, MIB) && !pin.covers(1, 0, MIB + 1) && !pin.covers(0, 0, 1));
        drop(pin);
        for page in 0..100 {
            verify(&bed.sums, 2, page * MIB, &block).await;
        }
        assert!(bed.sums.try_verify(1, 0, &block).is_none());
    });
}

#[test]
fn page_is_read_once_for_all_waiting_tasks() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.reopen(OPTIONS);
        bed.faults.iter().for_each(|drive| drive.set_delay(Delay::Fixed(1_000_000)));
        let tasks: Vec<_> = (0..50)
            .map(|i| {
                let (sums, block) = (bed.sums.clone(), block.clone());
                context.spawn(async move { verify(&sums, 1, i % 4 * MIB, &block).await.is_good() })
            })
            .collect();
        for task in tasks {
            assert!(task.await);
        }
        assert_eq!(bed.places.reads(), 4);
        assert_eq!(context.now_ns(), 1_000_000, "all four at the same time");
    });
}

#[test]
fn fresh_pages_forget_earlier_sums() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.sums.forget(1, 0, MIB);
        bed.reopen(ChecksumOptions { first_stamp: 1 << 32, ..OPTIONS });
        let pin = bed.sums.fresh(1, 0, MIB).await.expect("a page");
        assert_eq!((bed.places.reads(), bed.sums.expected(&pin, 0)), (0, None));
        assert_eq!(verify(&bed.sums, 1, 0, &data(2, 1)).await.unrecorded_blocks, 1);
        record(&bed.sums, 1, BLOCK_BYTES, &block, 9).await;
        // Only the copy reaches its drive: it is newer than the old own page.
        let (drive, offset) = place(3, id(1, 0), Side::Own);
        bed.faults[drive].arm_write_fault_at(offset..offset + 4096, WriteFault::Lost);
        bed.sums.checkpoint().await.expect("a checkpoint");
        drop(pin);
        bed.reopen(BOTH);
        let verdict = verify(&bed.sums, 1, 0, &data(2, 1)).await;
        assert_eq!((verdict.is_good(), verdict.unrecorded_blocks), (true, 1));
        assert!(!verify(&bed.sums, 1, BLOCK_BYTES, &data(2, 1)).await.is_good());
    });
}

/// The result of a read that missed the returned place is neither used nor counted.
#[test]
fn page_is_reread_if_a_place_returns_during_load() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.poke(id(1, 0), Side::Own, &[7; PAGE_BYTES]);
        let (with_copy, _) = place(3, id(1, 0), Side::Copy);
        bed.places.missing.borrow_mut()[with_copy] = true;
        bed.reopen(BOTH);
        bed.faults.iter().for_each(|drive| drive.set_delay(Delay::Fixed(1_000_000)));
        let (sums, wrong) = (bed.sums.clone(), data(2, 1));
        let reader = context.spawn(async move { verify(&sums, 1, 0, &wrong).await });
        context.sleep_ns(500_000).await;
        bed.places.missing.borrow_mut()[with_copy] = false;
        bed.sums.reload_incomplete();
        let verdict = reader.await;
        assert_eq!(
            (verdict.is_good(), verdict.unrecorded_blocks),
            (false, 0),
            "the copy shows that the block is wrong"
        );
        assert!(verify(&bed.sums, 1, 0, &block).await.is_good());
        assert_eq!((bed.sums.counters().loads, bed.sums.counters().lost_pages), (1, 0));
    });
}

#[test]
fn fresh_page_wins_over_a_load_in_flight() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.reopen(OPTIONS);
        bed.faults.iter().for_each(|drive| drive.set_delay(Delay::Fixed(1_000_000)));
        let (sums, old) = (bed.sums.clone(), block.clone());
        let reader = context.spawn(async move { verify(&sums, 1, 0, &old).await });
        context.sleep_ns(1000).await;
        drop(bed.sums.fresh(1, 0, MIB).await.expect("a page"));
        assert_eq!(reader.await.unrecorded_blocks, 1);
        assert_eq!(verify(&bed.sums, 1, 0, &block).await.unrecorded_blocks, 1);
    });
}

#[test]
fn forgotten_pages_are_unwritten_or_emptied_if_pinned() {
    run(|context| async move {
        let (bed, block) = filled(&context).await;
        record(&bed.sums, 1, 0, &block, 2).await;
        record(&bed.sums, 1, MIB, &block, 2).await;
        let pin = bed.sums.pin(1, MIB, BLOCK_BYTES).await.expect("pages");
        bed.sums.forget(1, 0, 1 << 40);
        assert_eq!(bed.sums.expected(&pin, MIB), None);
        assert_eq!(bed.sums.checkpoint().await.expect("a checkpoint").pages, 1);
        assert!(bed.sums.try_verify(1, 0, &block).is_none());
    });
}

#[test]
fn returning_drive_makes_one_place_pages_reload() {
    run(|context| async move {
        let (mut bed, block) = filled(&context).await;
        bed.reopen(BOTH);
        assert!(verify(&bed.sums, 1, 0, &block).await.is_good());
        // The drive with the copies goes missing: pages loaded or written now may lack a place.
        let (with_copy, _) = place(3, id(1, 0), Side::Copy);
        bed.places.missing.borrow_mut()[with_copy] = true;
        assert!(verify(&bed.sums, 1, MIB, &block).await.is_good());
        record(&bed.sums, 1, 2 * MIB, &block, 3).await;
        bed.sums.reload_incomplete();
        let is_loaded = |at: u64| bed.sums.has_pages(1, at, BLOCK_BYTES);
        assert!(is_loaded(0), "read from both places");
        assert!(!is_loaded(MIB), "read from one place");
        assert!(is_loaded(2 * MIB), "dirty");
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.sums.reload_incomplete();
        assert!(!is_loaded(2 * MIB), "written to one place");
        bed.places.missing.borrow_mut()[with_copy] = false;
        assert!(verify(&bed.sums, 1, MIB, &block).await.is_good());
        bed.sums.reload_incomplete();
        assert!(is_loaded(MIB));
    });
}

#[test]
fn page_read_ahead_continues_only_while_used() {
    run(|context| async move {
        let loads_of = async |used: u64| {
            let bed = Bed::new(&context, 3, ChecksumOptions { cache_bytes: 256 << 10, ..OPTIONS });
            for stretch in 0..16 {
                bed.sums.load_beside(1, stretch * 64..(stretch + 1) * 64).await;
                bed.sums.has_pages(1, stretch * 64 * MIB, used * MIB);
            }
            bed.sums.counters().loads
        };
        assert_eq!(loads_of(16).await, 16 * 64);
        // Read-ahead fills the cache once, and stops when no page is used.
        let unused = loads_of(0).await;
        assert!((64..=256).contains(&unused), "{unused}");
    });
}

#[test]
fn many_dirty_pages_trigger_a_checkpoint() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, ChecksumOptions { cache_bytes: 256 << 10, ..OPTIONS });
        let mut most = 0;
        for page in 0..100 {
            record(&bed.sums, (page % 2) as u16, page / 2 * MIB, &data(1, 1), 1).await;
            most = most.max(bed.sums.dirty_bytes());
        }
        // A dirty page takes about 2 KiB of memory; dirty pages may take half of the cache.
        assert!((50 * 4096..=64 * 4096).contains(&most), "{most}");
        assert!(bed.sums.dirty_bytes() < 50 * 4096, "a checkpoint has written most of them");
    });
}

#[test]
fn first_place_is_durable_before_second_is_written() {
    run(|context| async move {
        let (bed, block) = filled(&context).await;
        bed.places.log.borrow_mut().clear();
        record(&bed.sums, 1, 0, &block, 2).await;
        record(&bed.sums, 0, 0, &block, 2).await;
        let before = bed.places.flushes.get();
        bed.sums.checkpoint().await.expect("a checkpoint");
        assert_eq!(bed.places.flushes.get() - before, 3);
        let order: Vec<_> = bed
            .places
            .log
            .borrow()
            .iter()
            .filter(|entry| entry.2 != Operation::Read)
            .map(|entry| (entry.0, entry.1))
            .collect();
        // By drive, then in on-drive order. The last of three columns is a neighbour of the first
        // and has its own turn.
        let (first, second) = (id(0, 0), id(1, 0));
        assert_eq!(
            order,
            [(first, Side::Own), (second, Side::Own), (first, Side::Copy), (second, Side::Copy)]
        );
        assert_eq!(bed.sums.checkpoint().await.expect("a checkpoint").pages, 0);
        assert_eq!(bed.places.flushes.get() - before, 3, "nothing to do costs nothing");
    });
}

#[test]
fn page_changed_during_its_write_stays_dirty() {
    run(|context| async move {
        let (bed, block) = filled(&context).await;
        record(&bed.sums, 1, 0, &block, 2).await;
        for drive in &bed.faults {
            drive.set_delay(Delay::Fixed(1_000_000));
        }
        let sums = bed.sums.clone();
        let checkpoint = context.spawn(async move { sums.checkpoint().await.expect("a checkpoint") });
        // The first places are answered at 1 ms and durable at 2 ms, the others answered at 3 ms
        // and durable at 4 ms.
        context.sleep_ns(1_500_000).await;
        record(&bed.sums, 1, BLOCK_BYTES, &data(6, 1), 3).await;
        // A checkpoint requested while the first is running must not end with it.
        let sums = bed.sums.clone();
        let second = context.spawn(async move { sums.checkpoint().await.expect("a checkpoint") });
        context.sleep_ns(1).await;
        assert_eq!(checkpoint.await.pages, 1);
        assert_eq!(bed.sums.dirty_bytes(), 4096);
        assert_eq!(second.await.pages, 1);
        assert_eq!(bed.sums.dirty_bytes(), 0);
        assert!(bed.peek(id(1, 0), Side::Own) == bed.peek(id(1, 0), Side::Copy));
    });
}

#[test]
fn written_page_is_newer_than_the_page_read() {
    run(|context| async move {
        let (mut bed, _) = filled(&context).await;
        for _ in 0..50 {
            record(&bed.sums, 1, 0, &data(2, 1), 2).await;
            bed.sums.checkpoint().await.expect("a checkpoint");
        }
        bed.reopen(ChecksumOptions { first_stamp: 0, ..OPTIONS });
        record(&bed.sums, 1, 0, &data(3, 1), 3).await;
        let (drive, offset) = place(3, id(1, 0), Side::Own);
        bed.faults[drive].arm_write_fault_at(offset..offset + 4096, WriteFault::Lost);
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.reopen(BOTH);
        assert!(verify(&bed.sums, 1, 0, &data(3, 1)).await.is_good());
        assert_eq!(*bed.places.wrong.borrow(), [(id(1, 0), Side::Own)]);
    });
}

#[test]
fn memory_is_counted_as_pages_grow_and_go() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        record(&bed.sums, 0, 0, &data(1, 256), 1).await;
        let small = bed.sums.memory_bytes();
        assert!((1024..1400).contains(&small), "{small}");
        for block in 0..256 {
            record(&bed.sums, 0, block * BLOCK_BYTES, &data(1, 1), block as u32 + 1).await;
        }
        let large = bed.sums.memory_bytes();
        assert!((2048..2400).contains(&large), "{large}");
        bed.sums.forget(0, 0, MIB);
        assert_eq!(bed.sums.memory_bytes(), 0);
    });
}

/// Own places of column 1 that a checkpoint writes when the first and the last of four pages have
/// changed and up to `between` clean pages are written along. Clean pages must stay the same.
async fn own_places_written(context: &Context, between: u64, change: impl AsyncFn(&mut Bed)) -> Vec<u16> {
    let (mut bed, block) = filled(context).await;
    bed.places.between.set(between);
    change(&mut bed).await;
    bed.places.log.borrow_mut().clear();
    let unchanged = |bed: &Bed| [1, 2].map(|page| bed.peek(id(1, page), Side::Own));
    let before = unchanged(&bed);
    for page in [0, 3] {
        record(&bed.sums, 1, page * MIB, &block, 2).await;
    }
    bed.sums.checkpoint().await.expect("a checkpoint");
    assert_eq!(unchanged(&bed), before, "byte for byte");
    let log = bed.places.log.borrow();
    let is_own_write = |(id, side, operation): &&(PageId, Side, Operation)| {
        id.column == 1 && *side == Side::Own && matches!(operation, Operation::Write { .. })
    };
    log.iter().filter(is_own_write).map(|(id, _, _)| id.page).collect()
}

#[test]
fn clean_pages_are_written_along_where_it_saves_seeks() {
    run(|context| async move {
        assert_eq!(own_places_written(&context, 0, async |_| ()).await, [0, 3]);
        assert_eq!(own_places_written(&context, 1, async |_| ()).await, [0, 3], "two are too many");
        assert_eq!(own_places_written(&context, 2, async |_| ()).await, [0, 1, 2, 3]);
        let lose_copies = async |bed: &mut Bed| bed.places.missing.borrow_mut()[2] = true;
        assert_eq!(own_places_written(&context, 2, lose_copies).await, [0, 1, 2, 3], "also degraded");
    });
}

#[test]
fn loaded_pages_are_written_along_unchanged() {
    run(|context| async move {
        let reload = async |bed: &mut Bed| {
            bed.reopen(BOTH);
            for page in 0..4 {
                verify(&bed.sums, 1, page * MIB, &data(1, 1)).await;
            }
        };
        assert_eq!(own_places_written(&context, 2, reload).await, [0, 1, 2, 3]);
    });
}

/// The place to be filled lies between dirty pages of the same turn and must not be written twice.
#[test]
fn page_being_filled_is_written_once() {
    run(|context| async move {
        let (bed, block) = filled(&context).await;
        bed.places.between.set(2);
        for page in 0..4 {
            record(&bed.sums, 0, page * MIB, &block, 2).await;
        }
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.sums.fill_places(0, 0, &|page| page == 1).await.expect("a page");
        bed.places.log.borrow_mut().clear();
        for page in [0, 3] {
            record(&bed.sums, 0, page * MIB, &block, 3).await;
        }
        bed.sums.checkpoint().await.expect("a checkpoint");
        let log = bed.places.log.borrow();
        let own_writes = log.iter().filter(|(id, side, _)| id.column == 0 && *side == Side::Own);
        let mut pages: Vec<u16> = own_writes.map(|(id, _, _)| id.page).collect();
        pages.sort_unstable();
        assert_eq!(pages, [0, 1, 2, 3]);
    });
}

#[test]
fn nothing_is_written_along_at_places_without_a_drive() {
    run(|context| async move {
        let lose_own = async |bed: &mut Bed| bed.places.missing.borrow_mut()[1] = true;
        assert_eq!(own_places_written(&context, 2, lose_own).await, [0, 3], "attempted on the missing drive");
    });
}
