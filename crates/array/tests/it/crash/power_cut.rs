//! Power is cut at any instant: writes, flushes and rebuilds stop half-way, each drive keeps, loses
//! or tears unflushed sectors, and the array is assembled again from the drives.
//!
//! Invariants I1, I7 and I12 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::kit::array::{Model, SECTOR, dirty, shape, space, version_of};
use crate::kit::linear::{LinearSpec, SlotInit, rebuild};
use crate::kit::seeds::sweep;
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{BufferPool, CrashDrive, Delay, Drive, MemoryDrive, SplitMix64};
use stripewise_runtime::VirtualExecutor;

/// Durable version and newest written version of each sector.
struct History {
    durable: RefCell<Vec<u32>>,
    written: RefCell<Vec<u32>>,
    next: Cell<u32>,
}

impl History {
    fn new(sectors: usize) -> Self {
        Self {
            durable: RefCell::new(vec![0; sectors]),
            written: RefCell::new(vec![0; sectors]),
            next: Cell::new(1),
        }
    }
}

fn open_slots(drives: &[Rc<dyn Drive>], context: &stripewise_drive::Context) -> Vec<SlotInit> {
    drives
        .iter()
        .map(|drive| SlotInit::Active(Member::new(context, drive.clone(), MemberOptions::default())))
        .collect()
}

async fn open(
    context: &stripewise_drive::Context,
    spec: &LinearSpec,
    slots: Vec<SlotInit>,
) -> Result<Array, stripewise_array::ArrayError> {
    let buffers = BufferPool::new(8 << 20);
    let init = spec.init(slots)?;
    Array::open(context, &buffers, init, Rc::new(NoHost), ArrayOptions::default()).await
}

/// A client that writes, flushes and makes FUA writes to its own sectors, and records what must
/// survive.
async fn client(array: Array, history: Rc<History>, number: u64, clients: u64, seed: u64) {
    let mut random = SplitMix64::new(seed * 977 + number);
    let chunk = 24;
    let chunks = history.durable.borrow().len() as u64 / (chunk * clients);
    loop {
        let first = (random.below(chunks) * clients + number) * chunk + random.below(chunk);
        let count = 1 + random.below(chunk - first % chunk);
        let range = first as usize..(first + count) as usize;
        if random.chance(0.15) {
            // All writes before this flush are durable when it ends, unless they were overwritten
            // since.
            let before = history.written.borrow().clone();
            let mine: Vec<usize> =
                (0..before.len()).filter(|sector| *sector as u64 / chunk % clients == number).collect();
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
        array.write(first * SECTOR, Model::data(first, count, version), fua).await.expect("a write");
        if fua {
            history.durable.borrow_mut()[range].fill(version);
        }
    }
}

/// Checks that every sector holds its durable version or a later one, in any state of the array.
async fn check(array: &Array, history: &History, seed: u64, what: &str) -> Vec<u32> {
    let sectors = history.durable.borrow().len() as u64;
    let data = array
        .read(0, (sectors * SECTOR) as usize)
        .await
        .unwrap_or_else(|e| panic!("seed {seed}: {what}: {e}"));
    let bytes = data.to_vec();
    let mut found = Vec::new();
    for (sector, content) in bytes.chunks_exact(SECTOR as usize).enumerate() {
        let (durable, newest) = (history.durable.borrow()[sector], history.written.borrow()[sector]);
        let version = version_of(sector as u64, content);
        let version = version.filter(|version| (durable..=newest).contains(version)).unwrap_or_else(|| {
            panic!("seed {seed}: {what}: sector {sector} should hold version {durable}..={newest}, holds {version:?}")
        });
        found.push(version);
    }
    found
}

fn cut_while_writing(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let layouts =
        [("raid0", 3), ("raid1", 2), ("raid1", 3), ("raid5", 4), ("raid6", 5), ("raid7", 6), ("raid10", 5)];
    let (level, width) = layouts[random.below(layouts.len() as u64) as usize];
    let shape = shape(level, width, 4096 << random.below(4));
    let spec = space(&shape, u128::from(seed), 6 << 20);
    let capacity = spec.base_bytes + spec.space_bytes;
    let clients = 1 + random.below(4);

    let (images, history) = {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        let drives: Vec<Rc<CrashDrive>> = (0..width)
            .map(|i| {
                let image = MemoryDrive::new("before", capacity);
                dirty(&image, seed + i as u64);
                let drive = CrashDrive::from_image(&format!("crash{i}"), &image);
                // A torn sector would be lost in any layout that writes in place.
                drive.set_tears_sectors(false);
                drive
            })
            .collect();
        let tops: Vec<Rc<dyn Drive>> = drives
            .iter()
            .map(|drive| {
                let faults = stripewise_drive::FaultyDrive::new(&context, drive.clone(), seed);
                faults.set_delay(Delay::Exponential { mean_ns: 100_000 });
                faults as Rc<dyn Drive>
            })
            .collect();
        let instant = if random.chance(0.5) { random.below(6_000_000) } else { random.below(60_000_000) };
        let history = executor.block_on(async {
            let buffers = BufferPool::new(8 << 20);
            let slots = open_slots(&tops, &context);
            let options = ArrayOptions::default();
            let array = Array::create(
                &context,
                &buffers,
                spec.init(slots).expect("possible"),
                Rc::new(NoHost),
                options,
            )
            .await
            .expect("a new array");
            let sectors = (array.capacity_bytes().min(8 << 20) / SECTOR) as usize;
            let history = Rc::new(History::new(sectors));
            // In half of the runs the array was written and closed before: then no region is marked
            // as being written.
            let array = if seed.is_multiple_of(2) {
                array.write(0, Model::data(0, sectors as u64, 1), false).await.expect("a write");
                history.durable.borrow_mut().fill(1);
                history.written.borrow_mut().fill(1);
                history.next.set(2);
                array.close().await.expect("closing");
                open(&context, &spec, open_slots(&tops, &context)).await.expect("it opens again")
            } else {
                array
            };
            for number in 0..clients {
                context.spawn(client(array.clone(), history.clone(), number, clients, seed));
            }
            context.sleep_ns(instant).await;
            history
        });
        let images: Vec<Rc<MemoryDrive>> = drives
            .iter()
            .enumerate()
            .map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), seed + i as u64))
            .collect();
        (images, history)
    };

    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let drives: Vec<Rc<dyn Drive>> = images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect();
        let array =
            open(&context, &spec, open_slots(&drives, &context)).await.expect("it opens after the cut");
        let before = check(&array, &history, seed, "after the cut").await;
        array.resync(&|_, _| {}).await.expect("a resync");
        assert!(!array.needs_resync());
        let after = check(&array, &history, seed, "after the resync").await;
        // A resync may choose another copy, but single-copy data must not change.
        if shape.copies() <= 1 {
            assert_eq!(before, after, "seed {seed}: the resync changed data");
        }
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "seed {seed}: {report:?}");
        // Now the data must be the same after every tolerated loss.
        for first in 0..width {
            let mut slots = open_slots(&drives, &context);
            for lost in 0..shape.fault_tolerance() {
                slots[(first + lost) % width] = SlotInit::Missing;
            }
            array.flush().await.expect("a flush");
            let degraded = open(&context, &spec, slots).await.expect("it opens degraded");
            let then = check(&degraded, &history, seed, "degraded after the resync").await;
            assert_eq!(after, then, "seed {seed}: data and redundancy agree after the resync");
        }
    });
}

fn cut_while_writing_each(seeds: Range<u64>) {
    sweep(seeds).for_each(cut_while_writing);
}

test_cases! {
    flushed_data_survives_power_cut_and_resync = cut_while_writing_each {
        from_1: 1..31,
        from_31: 31..61,
        from_61: 61..91,
        from_91: 91..121,
    }
}

/// Cuts power after `steps` writes to the replacement. `true` if the rebuild was complete by then.
fn cut_while_rebuilding(level: &str, width: usize, steps: u64) -> bool {
    let shape = shape(level, width, 16384);
    let spec = space(&shape, 5, 3 << 20);
    let capacity = spec.base_bytes + spec.space_bytes;
    let slot = 1;
    let checkpoint = Rc::new(Cell::new(0));
    let done = Rc::new(Cell::new(false));
    let model = Rc::new(RefCell::new(None));

    let images: Vec<Rc<MemoryDrive>> = {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drives: Vec<Rc<CrashDrive>> =
            (0..=width).map(|i| CrashDrive::new(&format!("crash{i}"), capacity)).collect();
        let replacement = drives[width].clone();
        let replacement_top = stripewise_drive::CheckedDrive::new(&context, {
            let faults = stripewise_drive::FaultyDrive::new(&context, replacement, 3);
            faults.set_delay(Delay::Fixed(100_000));
            faults
        });
        executor.block_on(async {
            let tops: Vec<Rc<dyn Drive>> =
                drives[..width].iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
            let buffers = BufferPool::new(8 << 20);
            let slots = open_slots(&tops, &context);
            let options = ArrayOptions { background_bytes: 1 << 20, ..ArrayOptions::default() };
            let array = Array::create(
                &context,
                &buffers,
                spec.init(slots).expect("possible"),
                Rc::new(NoHost),
                options,
            )
            .await
            .expect("a new array");
            let truth = Model::new(array.capacity_bytes());
            // Some regions stay unwritten.
            for (number, first) in (0..truth.sectors() - 300).step_by(700).enumerate() {
                array
                    .write(first * SECTOR, Model::data(first, 300, number as u32 + 1), false)
                    .await
                    .expect("a write");
                truth.set(first, 300, number as u32 + 1);
            }
            array.member(slot as u32).expect("a member").fail("taken out");
            array.flush().await.expect("a flush excludes it");
            *model.borrow_mut() = Some(truth);
            let member = Member::new(&context, replacement_top.clone(), MemberOptions::default());
            spec.attach(&array, slot, member).await.expect("attaching");
            array.flush().await.expect("a flush");
            let before = replacement_top.requests();
            let rebuild = {
                let (array, done) = (array.clone(), done.clone());
                context.spawn(async move {
                    rebuild(&array).await.expect("a rebuild");
                    done.set(true);
                })
            };
            while replacement_top.requests() < before + steps && !rebuild.is_finished() {
                context.sleep_ns(20_000).await;
                if replacement_top.requests().is_multiple_of(3) {
                    // The progress that a pool would record: rows filled without a gap from the
                    // first on.
                    let filled = array.rebuilt();
                    let rows = (0..).take_while(|row| filled.contains(&(*row, slot))).count() as u64;
                    checkpoint.set(checkpoint.get().max(rows));
                }
            }
        });
        let mut images: Vec<_> = drives
            .iter()
            .enumerate()
            .map(|(i, drive)| drive.image_after_cut(&format!("after{i}"), steps + i as u64))
            .collect();
        images.swap_remove(slot); // puts the replacement, the last drive, in its place
        images
    };

    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let truth = model.borrow_mut().take().expect("made above");
        let drives: Vec<Rc<dyn Drive>> = images.iter().map(|image| image.clone() as Rc<dyn Drive>).collect();
        let mut slots = open_slots(&drives, &context);
        let SlotInit::Active(member) = slots[slot].clone() else { unreachable!("all active") };
        slots[slot] = SlotInit::Rebuilding(member, checkpoint.get());
        let array = open(&context, &spec, slots).await.expect("it opens after the cut");
        let what = format!("{level} cut after {steps} steps, resumed at {}", checkpoint.get());
        truth.check_all(&array, steps, &what).await;
        array.resync(&|_, _| {}).await.expect("a resync");
        rebuild(&array).await.expect("the rebuild resumes");
        truth.check_all(&array, steps, &what).await;
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "{what}: {report:?}");
        // The new member holds its part: another one can be lost.
        array.member(((slot + 2) % width) as u32).expect("a member").fail("taken out");
        array.flush().await.expect("a flush excludes it");
        truth.check_all(&array, steps, &what).await;
    });
    done.get()
}

/// Cuts at every [`PARTS`]th step of a rebuild, from one of the first on.
fn cut_rebuild_at_each_step((level, width, first): (&str, usize, u64)) {
    let mut steps = first;
    while !cut_while_rebuilding(level, width, steps) {
        steps += PARTS;
        assert!(steps < 1000, "{level}: the rebuild never ends");
    }
    assert!(steps > 4, "{level}: only {steps} steps were interrupted");
}

/// Tests that share the steps of the rebuild of a layout.
const PARTS: u64 = 4;

test_cases! {
    rebuild_cut_at_every_step_completes = cut_rebuild_at_each_step {
        raid5_0: ("raid5", 4, 0),
        raid5_1: ("raid5", 4, 1),
        raid5_2: ("raid5", 4, 2),
        raid5_3: ("raid5", 4, 3),
        raid6_0: ("raid6", 5, 0),
        raid6_1: ("raid6", 5, 1),
        raid6_2: ("raid6", 5, 2),
        raid6_3: ("raid6", 5, 3),
        raid10_0: ("raid10", 4, 0),
        raid10_1: ("raid10", 4, 1),
        raid10_2: ("raid10", 4, 2),
        raid10_3: ("raid10", 4, 3),
    }
}
