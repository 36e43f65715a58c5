//! Power is cut and drives are lost at the same instant: flushed data is intact, data that no
//! client was writing is untouched, and a block in flight reads as some version of it or as an
//! error, never as anything else.
//!
//! Invariants I1, I2 and I13 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, dirty, shape, version_of};
use crate::kit::linear::{LinearSpec, SlotInit};
use crate::kit::seeds::sweep;
use stripewise_array::{Array, ArrayError, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{
    BufferPool, CheckedDrive, Context, CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64,
};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const BLOCK_SECTORS: u64 = 8;

/// Durable version and newest written version of each sector, and the range that each client is
/// writing.
struct History {
    durable: RefCell<Vec<u32>>,
    written: RefCell<Vec<u32>>,
    writing: RefCell<Vec<(u64, u64)>>,
    next: Cell<u32>,
}

async fn client(array: Array, history: Rc<History>, number: u64, clients: u64, seed: u64) {
    let mut random = SplitMix64::new(seed * 977 + number);
    let chunk = 96;
    let chunks = history.durable.borrow().len() as u64 / (chunk * clients);
    loop {
        let first = (random.below(chunks) * clients + number) * chunk + random.below(chunk);
        let count = 1 + random.below(chunk - first % chunk);
        // Whole blocks half of the time: replay can distinguish old ones from new ones.
        let (first, count) = if random.chance(0.5) {
            let first = first / BLOCK_SECTORS * BLOCK_SECTORS;
            (first, count.next_multiple_of(BLOCK_SECTORS).min(chunk - first % chunk))
        } else {
            (first, count)
        };
        let range = first as usize..(first + count) as usize;
        if random.chance(0.15) {
            let before = history.written.borrow().clone();
            let mine = (0..before.len()).filter(|sector| *sector as u64 / chunk % clients == number);
            array.flush().await.expect("a flush");
            let mut durable = history.durable.borrow_mut();
            for sector in mine {
                durable[sector] = durable[sector].max(before[sector]);
            }
            continue;
        }
        let version = history.next.get();
        history.next.set(version + 1);
        let fua = random.chance(0.1);
        history.written.borrow_mut()[range.clone()].fill(version);
        history.writing.borrow_mut()[number as usize] = (first, count);
        array.write(first * SECTOR, Model::data(first, count, version), fua).await.expect("a write");
        if fua {
            history.durable.borrow_mut()[range].fill(version);
        }
    }
}

fn slots(context: &Context, drives: &[Rc<dyn Drive>], lost: &[usize]) -> Vec<SlotInit> {
    let slot = |(index, drive): (usize, &Rc<dyn Drive>)| match lost.contains(&index) {
        true => SlotInit::Missing,
        false => SlotInit::Active(Member::new(context, drive.clone(), MemberOptions::default())),
    };
    drives.iter().enumerate().map(slot).collect()
}

async fn open(context: &Context, spec: &LinearSpec, slots: Vec<SlotInit>) -> Result<Array, ArrayError> {
    let buffers = BufferPool::new(8 << 20);
    Array::open(context, &buffers, spec.init(slots)?, Rc::new(NoHost), ArrayOptions::default()).await
}

/// Checks that every block holds versions that it may hold; returns the number of unreadable ones.
async fn check(array: &Array, history: &History, seed: u64, what: &str) -> u64 {
    let sectors = history.durable.borrow().len() as u64;
    let mut errors = 0;
    for first in (0..sectors).step_by(BLOCK_SECTORS as usize) {
        let data = match array.read(first * SECTOR, (BLOCK_SECTORS * SECTOR) as usize).await {
            Ok(data) => data.to_vec(),
            Err(error) => {
                // Only undurable data may be lost: its last write was in flight, or not flushed
                // since.
                let (durable, written) = (history.durable.borrow(), history.written.borrow());
                let in_doubt =
                    (first..first + BLOCK_SECTORS).any(|s| durable[s as usize] < written[s as usize]);
                assert!(in_doubt, "seed {seed}: {what}: sector {first} was flushed and is lost: {error}");
                errors += 1;
                continue;
            }
        };
        for (index, content) in data.chunks_exact(SECTOR as usize).enumerate() {
            let sector = first + index as u64;
            let (durable, newest) =
                (history.durable.borrow()[sector as usize], history.written.borrow()[sector as usize]);
            let version = version_of(sector, content);
            assert!(
                version.is_some_and(|version| (durable..=newest).contains(&version)),
                "seed {seed}: {what}: sector {sector} should hold version {durable}..={newest}, holds {version:?}"
            );
        }
    }
    errors
}

const WITH_PARITY: &[(&str, usize)] =
    &[("raid5", 3), ("raid5", 5), ("raid4", 4), ("raid6", 5), ("raid7", 6), ("raid50", 6)];
/// Further layouts that have a journal with checksums.
const WITHOUT_PARITY: &[(&str, usize)] =
    &[("raid1", 2), ("raid1", 3), ("raid10", 4), ("raid10", 5), ("raid0", 3), ("single", 1)];

fn cut_and_lose(seed: u64, checksums: bool) -> u64 {
    let mut random = SplitMix64::new(seed);
    let layouts = match checksums && random.chance(0.5) {
        true => WITHOUT_PARITY,
        false => WITH_PARITY,
    };
    let (level, width) = layouts[random.below(layouts.len() as u64) as usize];
    let shape = shape(level, width, 4096 << random.below(4));
    // Checksums distinguish old blocks from new ones as a whole. Drives that write blocks whole
    // lose nothing; on others, several blocks of a row may be torn at once, and blocks in flight
    // are lost.
    let tears = checksums && random.chance(0.4);
    let spec = LinearSpec {
        id: u128::from(seed),
        shape,
        base_bytes: MIB,
        space_bytes: if checksums { 8 } else { 7 } * MIB,
        journal_slabs: 2 + random.below(3),
        write_back: random.chance(0.5) && shape.parity_units() > 0,
        checksums,
    };
    let capacity = spec.base_bytes + spec.space_bytes;
    let clients = 1 + random.below(6);
    let (images, history) = {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        let drives: Vec<Rc<CrashDrive>> = (0..width)
            .map(|i| {
                let logical_block = if checksums && !tears { 4096 } else { 512 };
                let image = MemoryDrive::with_block("before", capacity, logical_block);
                dirty(&image, seed + i as u64);
                let drive = CrashDrive::from_image(&format!("crash{i}"), &image);
                drive.set_tears_sectors(tears);
                drive
            })
            .collect();
        let tops: Vec<Rc<dyn Drive>> = drives
            .iter()
            .map(|drive| {
                let faults = FaultyDrive::new(&context, drive.clone(), seed);
                faults.set_delay(Delay::Exponential { mean_ns: 100_000 });
                CheckedDrive::new(&context, faults) as Rc<dyn Drive>
            })
            .collect();
        let instant = if random.chance(0.5) { random.below(6_000_000) } else { random.below(60_000_000) };
        let history = executor.block_on(async {
            let buffers = BufferPool::new(8 << 20);
            let init = spec.init(slots(&context, &tops, &[])).expect("possible");
            let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
                .await
                .expect("a new array");
            let sectors = (array.capacity_bytes().min(2 * MIB) / SECTOR) as usize;
            let history = Rc::new(History {
                durable: RefCell::new(vec![0; sectors]),
                written: RefCell::new(vec![0; sectors]),
                writing: RefCell::new(vec![(0, 0); clients as usize]),
                next: Cell::new(2),
            });
            // Mostly the array was written before: the first write of a stripe needs no journal.
            if !seed.is_multiple_of(4) {
                array.write(0, Model::data(0, sectors as u64, 1), false).await.expect("a write");
                array.flush().await.expect("a flush");
                history.durable.borrow_mut().fill(1);
                history.written.borrow_mut().fill(1);
            }
            for number in 0..clients {
                context.spawn(client(array.clone(), history.clone(), number, clients, seed));
            }
            context.sleep_ns(instant).await;
            history
        });
        let images: Vec<Rc<dyn Drive>> = (drives.iter().enumerate())
            .map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), seed + i as u64) as Rc<dyn Drive>)
            .collect();
        (images, history)
    };

    let lost: Vec<usize> = (0..random.below(shape.fault_tolerance() as u64 + 1) as usize)
        .map(|i| (seed as usize + i * (1 + width / shape.groups.max(1))) % width)
        .collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let what = format!("{level} on {width}, {lost:?} lost in the cut");
        let array = open(&context, &spec, slots(&context, &images, &lost)).await.expect("it opens");
        let errors = check(&array, &history, seed, &what).await;
        if checksums {
            let wrong: Vec<_> = (0..width as u32)
                .filter_map(|drive| array.member(drive))
                .filter(|member| member.counters().checksum_errors > 0)
                .map(|member| member.label().clone())
                .collect();
            assert!(wrong.is_empty(), "seed {seed}: {what}: {wrong:?} are blamed");
        }
        assert!(
            errors == 0 || !lost.is_empty() || tears,
            "seed {seed}: {what}: no drive was lost, yet {errors} errors"
        );
        if lost.is_empty() {
            assert!(!array.needs_resync());
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "seed {seed}: {report:?}");
            assert_eq!((report.checksum_errors, report.pages_lost), (0, 0), "seed {seed}: {report:?}");
        }
        // The array works again: new writes are stored, and survive the same loss once more.
        array.write(0, Model::data(0, 64, u32::MAX), true).await.expect("a write");
        array.close().await.expect("closing");
        let array = open(&context, &spec, slots(&context, &images, &lost)).await.expect("it opens again");
        let data = array.read(0, 64 * SECTOR as usize).await.expect("a read").to_vec();
        assert_eq!(data, Model::data(0, 64, u32::MAX).to_vec(), "seed {seed}: {what}");
        errors
    })
}

#[test]
fn flush_fails_without_enough_drives() {
    let spec = LinearSpec {
        id: 5,
        shape: shape("raid5", 3, 16384),
        base_bytes: MIB,
        space_bytes: 8 * MIB,
        journal_slabs: 2,
        write_back: false,
        checksums: true,
    };
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let images = (0..3).map(|i| MemoryDrive::new(&format!("m{i}"), spec.base_bytes + spec.space_bytes));
        let faults: Vec<_> = images.map(|image| FaultyDrive::new(&context, image, 1)).collect();
        let drives: Vec<Rc<dyn Drive>> = faults.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let buffers = BufferPool::new(8 << 20);
        let init = spec.init(slots(&context, &drives, &[])).expect("possible");
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("a new array");
        for version in 1..3 {
            array.write(0, Model::data(0, 64, version), false).await.expect("a write");
            array.flush().await.expect("a flush");
        }
        array.write(0, Model::data(0, 64, 3), false).await.expect("a write");
        faults.iter().for_each(|drive| drive.set_delay(Delay::Fixed(100_000)));
        let flushing = array.clone();
        let flush = context.spawn(async move { flushing.flush().await });
        context.sleep_ns(50_000).await;
        // A pool protects the array before it removes such drives: the remaining ones flush
        // successfully.
        array.protect();
        assert!(matches!(flush.await, Err(ArrayError::Protected)));
    });
}

/// A full stripe is being written, and a block of it was then written again and acknowledged from
/// the journal, when power is cut and a drive is lost with it: replay must not need the parts of
/// the first write that cannot be reconstructed.
fn cut_behind_the_journal(seed: u64, checksums: bool, lost: &[usize]) {
    let spec = LinearSpec {
        id: u128::from(seed) + 1,
        shape: shape("raid5", 3, 16384),
        base_bytes: MIB,
        space_bytes: 8 * MIB,
        journal_slabs: 2,
        write_back: true,
        checksums,
    };
    let drives: Vec<Rc<CrashDrive>> =
        (0..3).map(|i| CrashDrive::new(&format!("crash{i}"), spec.base_bytes + spec.space_bytes)).collect();
    let tops: Vec<Rc<dyn Drive>> = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    let stripe = spec.shape.interleave_bytes / SECTOR * 2;
    let block = SplitMix64::new(seed).below(stripe / BLOCK_SECTORS) * BLOCK_SECTORS;
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let buffers = BufferPool::new(8 << 20);
        let init = spec.init(slots(&context, &tops, &[])).expect("possible");
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("a new array");
        array.write(0, Model::data(0, stripe, 1), false).await.expect("a write");
        array.flush().await.expect("a flush");
        array.write(0, Model::data(0, stripe, 2), false).await.expect("a write");
        let again = Model::data(block, BLOCK_SECTORS, 3);
        array.write(block * SECTOR, again, true).await.expect("a write");
    });
    let images: Vec<Rc<dyn Drive>> = (drives.iter().enumerate())
        .map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), seed + i as u64) as Rc<dyn Drive>)
        .collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let array = open(&context, &spec, slots(&context, &images, lost)).await.expect("it opens");
        for step in ["after the cut", "in its place"] {
            let found = array.read(block * SECTOR, (BLOCK_SECTORS * SECTOR) as usize).await;
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, {lost:?} lost, {step}: {error}"));
            let expected = Model::data(block, BLOCK_SECTORS, 3).to_vec();
            assert!(found.to_vec() == expected, "seed {seed}, {lost:?} lost, {step}");
            array.destage().await.expect("destaging");
        }
    });
}

#[test]
fn journaled_block_survives_loss_of_its_old_version() {
    for seed in 0..40 {
        cut_behind_the_journal(seed, true, &[]);
        for (checksums, lost) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
            cut_behind_the_journal(seed, checksums, &[lost]);
        }
    }
}

/// Power is cut and a drive is lost during a full stripe write; some of its blocks are dead. One
/// block of it is then written durably, and power is cut again. Returns the number of dead blocks.
fn cut_again_after_a_loss(seed: u64, checksums: bool, lost: usize) -> usize {
    let spec = LinearSpec {
        id: u128::from(seed) + 1,
        shape: shape("raid5", 3, 16384),
        base_bytes: MIB,
        space_bytes: 8 * MIB,
        journal_slabs: 2,
        write_back: false,
        checksums,
    };
    let capacity = spec.base_bytes + spec.space_bytes;
    let stripe = spec.shape.interleave_bytes / SECTOR * 2;
    let block = SplitMix64::new(seed).below(stripe / BLOCK_SECTORS) * BLOCK_SECTORS;
    let newest = Model::data(block, BLOCK_SECTORS, 3).to_vec();
    let cut = |drives: &[Rc<CrashDrive>]| -> Vec<Rc<MemoryDrive>> {
        let images = drives.iter().enumerate();
        images.map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), seed + i as u64)).collect()
    };
    let as_drives = |drives: &[Rc<CrashDrive>]| -> Vec<Rc<dyn Drive>> {
        drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
    };
    let drives: Vec<Rc<CrashDrive>> =
        (0..3).map(|i| CrashDrive::new(&format!("crash{i}"), capacity)).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let init = spec.init(slots(&context, &as_drives(&drives), &[])).expect("possible");
        let buffers = BufferPool::new(8 << 20);
        let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default())
            .await
            .expect("a new array");
        array.write(0, Model::data(0, stripe, 1), false).await.expect("a write");
        array.flush().await.expect("a flush");
        array.write(0, Model::data(0, stripe, 2), false).await.expect("a write");
    });
    let drives: Vec<Rc<CrashDrive>> =
        cut(&drives).iter().map(|image| CrashDrive::from_image("again", image)).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let dead = executor.block_on(async {
        let array =
            open(&context, &spec, slots(&context, &as_drives(&drives), &[lost])).await.expect("it opens");
        let dead = array.dead_blocks();
        array.write(block * SECTOR, Model::data(block, BLOCK_SECTORS, 3), true).await.expect("a write");
        dead.len()
    });
    let images: Vec<Rc<dyn Drive>> = cut(&drives).into_iter().map(|image| image as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let array = open(&context, &spec, slots(&context, &images, &[lost])).await.expect("it opens");
        let found = array.read(block * SECTOR, (BLOCK_SECTORS * SECTOR) as usize).await;
        let found = found.unwrap_or_else(|error| panic!("seed {seed}, {lost} lost, {dead} dead: {error}"));
        assert!(found.to_vec() == newest, "seed {seed}, {lost} lost, {dead} dead");
    });
    dead
}

#[test]
fn writes_over_dead_blocks_survive_another_cut() {
    let mut dead = 0;
    for seed in 0..40 {
        for (checksums, lost) in [(true, 0), (true, 1), (true, 2), (false, 0), (false, 1), (false, 2)] {
            dead += cut_again_after_a_loss(seed, checksums, lost);
        }
    }
    assert!(dead > 100, "{dead}");
}

fn cut_and_lose_each(checksums: bool, seeds: Range<u64>) {
    let errors: u64 = sweep(seeds).map(|seed| cut_and_lose(seed, checksums)).sum();
    println!("{errors} blocks in flight were lost with their drives");
}

fn without_checksums(seeds: Range<u64>) {
    cut_and_lose_each(false, seeds);
}

fn with_checksums(seeds: Range<u64>) {
    cut_and_lose_each(true, seeds);
}

test_cases! {
    there_is_no_write_hole = without_checksums {
        from_1: 1..31,
        from_31: 31..61,
        from_61: 61..91,
        from_91: 91..121,
        from_121: 121..151,
    }
}

test_cases! {
    no_write_hole_with_checksums_in_any_layout = with_checksums {
        from_1: 1..31,
        from_31: 31..61,
        from_61: 61..91,
        from_91: 91..121,
        from_121: 121..151,
    }
}

/// Seed 2584: after the loss of an area, restored copies filled the remaining one, which had no
/// space left to record releases: the opening never ended.
#[test]
fn restored_journal_copies_leave_room_for_releases() {
    cut_and_lose(2584, true);
}
