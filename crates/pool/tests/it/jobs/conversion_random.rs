//! Conversions under load: clients write, discard, read and flush while a volume is converted,
//! power is cut at random moments, drives are lost during the conversion or together with the
//! power. The process that opens the pool next resumes the conversion; flushed data is intact,
//! unflushed writes are there or not, block by block, and no other data is found.
//!
//! Runs are repeatable: what fails names its seed.
//!
//! Invariant I30 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::kit::pool::*;
use crate::kit::seeds::sweep;
use stripewise_drive::{
    Buffer, BufferPool, Context, CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64,
};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, Pool, Volume, VolumeSpec};
use stripewise_runtime::VirtualExecutor;

const DRIVES: usize = 6;
const BLOCK: u64 = 4096;
/// Number of adjacent blocks of one client, before those of the next: only one client writes a
/// block, so it knows what it must read, yet clients share stripes, windows and frontiers.
const STRIP: u64 = 24;
const CLIENTS: u64 = 4;
/// Blocks of the largest strip of the layouts: writes in flight at a cut whose blocks are neither
/// old nor new are lost in whole strips; that is reported.
const LOSS: u64 = 16;

/// Possible contents of a block: versions, 0 for zeros. The first entry was durable at the last
/// flush; one more for each write since.
#[derive(Clone, Debug)]
struct Block {
    history: Vec<Vec<u64>>,
    /// Number of acknowledged entries.
    acknowledged: usize,
}

struct Model {
    blocks: RefCell<Vec<Block>>,
    next_version: Cell<u64>,
}

impl Model {
    fn new(blocks: u64) -> Rc<Self> {
        let block = Block { history: vec![vec![0]], acknowledged: 1 };
        Rc::new(Self { blocks: RefCell::new(vec![block; blocks as usize]), next_version: Cell::new(1) })
    }

    fn version(&self) -> u64 {
        self.next_version.replace(self.next_version.get() + 1)
    }

    /// Begins a write or discard: afterwards the blocks hold the version, or with `or_kept`
    /// possibly their old contents.
    fn begin(&self, first: u64, count: u64, version: u64, or_kept: bool) {
        for block in &mut self.blocks.borrow_mut()[first as usize..(first + count) as usize] {
            let mut may = vec![version];
            if or_kept {
                may.extend(block.history.last().expect("never empty"));
            }
            block.history.push(may);
        }
    }

    fn acknowledge(&self, first: u64, count: u64) {
        for block in &mut self.blocks.borrow_mut()[first as usize..(first + count) as usize] {
            block.acknowledged = block.history.len();
        }
    }

    fn before_flush(&self) -> Vec<usize> {
        self.blocks.borrow().iter().map(|block| block.acknowledged).collect()
    }

    fn after_flush(&self, acknowledged: &[usize], forgotten: &[Cell<usize>]) {
        for (index, block) in self.blocks.borrow_mut().iter_mut().enumerate() {
            // Another flush may have ended in between.
            let durable = (acknowledged[index] - 1).saturating_sub(forgotten[index].get());
            let durable = durable.min(block.history.len() - 1);
            block.history.drain(..durable);
            block.acknowledged -= durable;
            forgotten[index].set(forgotten[index].get() + durable);
        }
    }
}

/// The version that a block's bytes are.
fn version_of(bytes: &[u8], block: u64, versions: impl Iterator<Item = u64>) -> Option<u64> {
    let mut versions = versions;
    versions.find(|version| match version {
        0 => bytes.iter().all(|byte| *byte == 0),
        version => bytes == contents(*version, block * BLOCK, BLOCK as usize),
    })
}

struct World {
    random: SplitMix64,
    seed: u64,
    from: (&'static str, usize),
    to: (&'static str, usize),
    thin: bool,
    checksums: bool,
    /// Mean time of a drive per request.
    delay_ns: u64,
    model: Rc<Model>,
    /// Number of power cuts in the middle of the conversion.
    cuts_within: u64,
    /// Index of the lost drive, if any.
    lost: Option<usize>,
    /// True if the conversion may be cancelled.
    may_cancel: bool,
    /// True once a cancellation was tried; power may have been cut before it was committed.
    was_cancelling: bool,
    /// True once the cancellation was committed.
    is_cancelled: Rc<Cell<bool>>,
    log: Vec<String>,
}

const LAYOUTS: [(&str, usize); 10] = [
    ("raid10", 4),
    ("raid5", 4),
    ("raid6", 5),
    ("raid5", 3),
    ("raid1", 2),
    ("raid10", 5),
    ("raid7", 5),
    ("raid4", 3),
    ("raid0", 3),
    ("single", 1),
];

fn tolerance(level: &str) -> usize {
    match level {
        "raid0" | "single" => 0,
        "raid6" => 2,
        "raid7" => 3,
        _ => 1,
    }
}

fn layout(wanted: (&str, usize)) -> LayoutSpec {
    let spec = LayoutSpec::parse(wanted.0).expect("a layout");
    LayoutSpec { columns: Some(wanted.1), interleave_bytes: Some(64 << 10), ..spec }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let from = LAYOUTS[random.below(LAYOUTS.len() as u64) as usize];
        let mut to = from;
        while to == from {
            to = LAYOUTS[random.below(LAYOUTS.len() as u64) as usize];
        }
        let (thin, blocks) = (random.below(3) == 0, 1500 + random.below(2500));
        let (checksums, delay_ns) = (random.below(3) > 0, 100_000 + random.below(1_400_000));
        Self {
            random,
            seed,
            from,
            to,
            thin,
            checksums,
            delay_ns,
            cuts_within: 0,
            model: Model::new(blocks),
            lost: None,
            may_cancel: false,
            was_cancelling: false,
            is_cancelled: Rc::default(),
            log: Vec::new(),
        }
    }

    fn may_lose(&self) -> bool {
        // A thin volume without a drive for a column of a new row refuses to write there.
        let has_room = !self.thin || self.from.1.max(self.to.1) < DRIVES - 1;
        self.lost.is_none() && has_room && tolerance(self.from.0).min(tolerance(self.to.0)) > 0
    }

    /// Checks that every block reads as one of its possible versions; from then on that is the only
    /// one.
    async fn verify(&mut self, volume: &Volume, after_cut: bool) {
        let mut blocks = self.model.blocks.borrow().clone();
        let was_open: Vec<bool> = blocks.iter().map(|block| block.history.len() > 1).collect();
        for (index, block) in blocks.iter_mut().enumerate() {
            let strip = index as u64 / LOSS * LOSS;
            let may_fail =
                after_cut && (strip..strip + LOSS).any(|near| was_open.get(near as usize) == Some(&true));
            let at = index as u64 * BLOCK;
            let found = match volume.read(at, BLOCK as usize).await {
                Ok(read) => {
                    let versions = block.history.iter().flatten().copied();
                    let version = version_of(&read.to_vec(), index as u64, versions);
                    // Without checksums a torn block cannot be detected.
                    let may_be_torn = after_cut && was_open[index] && !self.checksums;
                    assert!(
                        version.is_some() || may_be_torn,
                        "block {index} holds none of {:?}",
                        block.history
                    );
                    version
                }
                Err(error) => {
                    assert!(may_fail, "block {index}: {error}");
                    None
                }
            };
            let version = found.unwrap_or_else(|| self.model.version());
            if found.is_none() {
                let data = Buffer::from_bytes(&contents(version, at, BLOCK as usize));
                volume.write(at, data, false).await.expect("written");
            }
            *block = Block { history: vec![vec![version]], acknowledged: 1 };
        }
        volume.flush().await.expect("flushed");
        *self.model.blocks.borrow_mut() = blocks;
    }
}

/// Makes random requests to its own blocks. Panics on an unexpected error.
async fn client(
    volume: Volume,
    model: Rc<Model>,
    forgotten: Rc<Vec<Cell<usize>>>,
    clock: Context,
    number: u64,
    mut random: SplitMix64,
    is_over: Rc<Cell<bool>>,
) {
    let blocks = model.blocks.borrow().len() as u64;
    while !is_over.get() {
        clock.sleep_ns(random.below(400_000)).await;
        let strips = blocks.div_ceil(STRIP * CLIENTS);
        let first = (random.below(strips) * CLIENTS + number) * STRIP + random.below(STRIP);
        if first >= blocks {
            continue;
        }
        let count = (1 + random.below(STRIP)).min(STRIP - first % STRIP).min(blocks - first);
        let (at, length) = (first * BLOCK, count * BLOCK);
        let action = random.below(16);
        let result = match action {
            0..=7 => {
                let (version, fua) = (model.version(), random.below(6) == 0);
                model.begin(first, count, version, false);
                let data = Buffer::from_bytes(&contents(version, at, length as usize));
                volume.write(at, data, fua).await
            }
            8 => {
                model.begin(first, count, 0, true);
                volume.discard(at, length).await
            }
            9 => {
                model.begin(first, count, 0, false);
                volume.write_zeroes(at, length).await
            }
            10 => {
                let acknowledged = model.before_flush();
                let before: Vec<usize> = forgotten.iter().map(Cell::get).collect();
                let flushed = volume.flush().await;
                if flushed.is_ok() {
                    let absolute: Vec<usize> =
                        acknowledged.iter().zip(&before).map(|(count, before)| count + before).collect();
                    model.after_flush(&absolute, &forgotten);
                }
                flushed.map(drop)
            }
            _ => volume.read(at, length as usize).await.map(|read| {
                let bytes = read.to_vec();
                let mut all = model.blocks.borrow_mut();
                for (index, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
                    let block = &mut all[index as usize];
                    let now = block.history.last().expect("never empty");
                    let version = version_of(bytes, index, now.iter().copied());
                    let version = version.unwrap_or_else(|| panic!("block {index} holds none of {now:?}"));
                    // Once read, the version is fixed.
                    *block.history.last_mut().expect("never empty") = vec![version];
                }
            }),
        };
        if is_over.get() {
            return;
        }
        result.unwrap_or_else(|error| panic!("client {number}, action {action} at block {first}: {error}"));
        if action < 10 {
            model.acknowledge(first, count);
        }
    }
}

async fn open(world: &mut World, life: &Life, drives: &[Rc<FaultyDrive>], number: usize) -> Pool {
    if number == 0 {
        let pool = life.create(&as_drives(&drives[..DRIVES - 1]), &[]).await.expect("a pool");
        let spec = VolumeSpec {
            size_bytes: Some(world.model.blocks.borrow().len() as u64 * BLOCK),
            thin: world.thin,
            write_back: Some(world.random.below(2) == 0),
            checksums: Some(world.checksums),
            ..VolumeSpec::new("data", layout(world.from))
        };
        pool.create_volume(spec).await.expect("a volume");
        return pool;
    }
    if world.may_lose() && world.random.below(3) == 0 {
        let lost = world.random.below(DRIVES as u64 - 1) as usize;
        world.log.push(format!("drive{lost} is lost with the power"));
        world.lost = Some(lost);
    }
    let all = drives[..DRIVES - 1].iter().enumerate();
    let chosen: Vec<Rc<dyn Drive>> = all
        .filter(|(index, _)| Some(*index) != world.lost)
        .map(|(_, drive)| drive.clone() as Rc<dyn Drive>)
        .collect();
    life.open(&chosen).await.expect("opened")
}

/// Runs one life from the images of the previous one; returns the images it leaves, and whether the
/// conversion is complete.
fn live(world: &mut World, images: &[Rc<MemoryDrive>], number: usize) -> (Vec<Rc<MemoryDrive>>, bool) {
    let shuffle = world.random.next_u64();
    let executor = VirtualExecutor::shuffled(shuffle);
    let context = executor.context();
    let life = Life { executor, context, buffers: BufferPool::new(8 << 20) };
    let crash: Vec<_> =
        images.iter().map(|image| CrashDrive::from_image(&image.info().label, image)).collect();
    let faulty: Vec<_> = crash
        .iter()
        .enumerate()
        .map(|(index, drive)| {
            let drive = FaultyDrive::new(&life.context, drive.clone(), shuffle + index as u64);
            drive.set_delay(Delay::Exponential { mean_ns: world.delay_ns });
            drive
        })
        .collect();
    let done = life.run(async {
        let pool = open(world, &life, &faulty, number).await;
        let volume = pool.volume("data").expect("open");
        world.verify(&volume, number > 0).await;
        let is_over = Rc::new(Cell::new(false));
        let forgotten: Rc<Vec<Cell<usize>>> =
            Rc::new(world.model.blocks.borrow().iter().map(|_| Cell::new(0)).collect());
        for client_number in 0..CLIENTS {
            let (volume, model, clock) = (volume.clone(), world.model.clone(), life.context.clone());
            let random = SplitMix64::new(world.random.next_u64());
            let (forgotten, is_over) = (forgotten.clone(), is_over.clone());
            life.context.spawn(async move {
                client(volume, model, forgotten, clock, client_number, random, is_over).await
            });
        }
        if number == 0 {
            life.context.sleep_ns(40_000_000).await;
            pool.convert_volume("data", layout(world.to)).await.expect("begun");
        }
        pool.start_jobs();
        life.context.sleep_ns(world.random.below(60_000_000)).await;
        if world.may_lose() && world.random.below(3) == 0 {
            let lost = world.random.below(DRIVES as u64 - 1) as usize;
            world.log.push(format!("drive{lost} is unplugged"));
            world.lost = Some(lost);
            faulty[lost].unplug();
        }
        if world.may_cancel && !world.was_cancelling && world.random.below(2) == 0 {
            world.was_cancelling = true;
            let (pool, is_cancelled) = (pool.clone(), world.is_cancelled.clone());
            // Power may be cut before this ends.
            life.context.spawn(async move {
                is_cancelled.set(pool.cancel_conversion("data").await.is_ok());
            });
        }
        life.context.sleep_ns(world.random.below(60_000_000)).await;
        is_over.set(true);
        let info = volume.info().expect("it is there");
        let is_within = |done: &stripewise_pool::ConversionStatus| done.percent > 0.0;
        world.cuts_within += u64::from(info.conversion.as_ref().is_some_and(is_within));
        world.log.push(format!("cut in life {number}; {:?}", info.conversion.map(|done| done.percent)));
        let is = |wanted| info.shape == layout(wanted).resolve(DRIVES - 1).expect("a shape");
        number > 0 && (is(world.to) || world.was_cancelling && is(world.from)) && {
            let is_due = |job: &stripewise_pool::Activity| job.kind == JobKind::Convert;
            !pool.activity().iter().any(is_due)
        }
    });
    let seed = world.random.next_u64();
    let images = crash.iter().map(|drive| drive.image_after_cut(&drive.info().label, seed)).collect();
    (images, done)
}

/// Runs the last life: the conversion completes, a lost drive is replaced, and a scrub finds no
/// mismatch.
fn end(world: &mut World, images: &[Rc<MemoryDrive>]) {
    let life = Life::new();
    life.run(async {
        let chosen: Vec<Rc<dyn Drive>> = (0..DRIVES - 1)
            .filter(|index| Some(*index) != world.lost)
            .map(|index| images[index].clone() as Rc<dyn Drive>)
            .collect();
        let pool = life.open(&chosen).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        world.verify(&volume, true).await;
        if let Some(lost) = world.lost {
            let id = id_of(&pool.status(), &format!("drive{lost}"));
            pool.replace(id, images[DRIVES - 1].clone(), false).await.expect("replaced");
            pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        }
        pool.wait(JobKind::Convert).await.expect("converted");
        pool.wait(JobKind::Scrub).await.expect("scrubbed");
        world.verify(&volume, false).await;
        let info = volume.info().expect("it is there");
        assert_eq!((info.conversion, info.lost_blocks), (None, 0));
        let level = info.shape.level.to_string();
        let shape = (level.as_str(), info.shape.width);
        match (world.was_cancelling, world.is_cancelled.get()) {
            (false, _) => assert_eq!(shape, world.to),
            (true, true) => assert_eq!(shape, world.from, "cancelled"),
            (true, false) => assert!([world.from, world.to].contains(&shape), "{shape:?}"),
        }
        let report = volume.array().scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{report:?}");
        pool.delete_volume("data").await.expect("deleted");
        assert_eq!(pool.status().allocated_bytes, 0, "every slab came back");
        pool.close().await.expect("closed");
    });
}

/// Runs one seed; returns the number of power cuts in the middle of the conversion.
fn run(seed: u64) -> u64 {
    run_world(World::new(seed))
}

/// As [`run`], but usually cancels the conversion.
fn run_with_cancellation(seed: u64) -> u64 {
    run_world(World { may_cancel: true, ..World::new(seed) })
}

fn run_world(mut world: World) -> u64 {
    let (from, to, thin, checksums) = (world.from, world.to, world.thin, world.checksums);
    world.log.push(format!("{from:?} to {to:?}, thin: {thin}, checksums: {checksums}"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut images = memory_drives(DRIVES, 48);
        for number in 0..6 {
            let done;
            (images, done) = live(&mut world, &images, number);
            if done {
                break;
            }
        }
        end(&mut world, &images);
    }));
    if outcome.is_err() {
        panic!("seed {}, after:\n{}", world.seed, world.log.join("\n"));
    }
    world.cuts_within
}

fn convert_each(seeds: Range<u64>) {
    let (mut runs, mut cuts_within) = (0, 0);
    for seed in sweep(seeds) {
        (runs, cuts_within) = (runs + 1, cuts_within + run(seed));
    }
    assert!(
        runs == 1 || cuts_within > runs / 4,
        "only {cuts_within} cuts within the conversions of {runs} runs"
    );
    println!("{runs} runs, {cuts_within} cuts within their conversions");
}

test_cases! {
    flushed_data_survives_conversion_under_faults = convert_each {
        from_1: 1..7,
        from_7: 7..13,
        from_13: 13..19,
        from_19: 19..25,
    }
}

fn cancel_each(seeds: Range<u64>) {
    for seed in sweep(seeds) {
        run_with_cancellation(seed);
    }
}

test_cases! {
    flushed_data_survives_cancelled_conversion = cancel_each {
        from_1: 1..5,
        from_5: 5..9,
        from_9: 9..13,
        from_13: 13..17,
    }
}

#[test]
fn conversion_regressions_stay_fixed() {
    // Rows freed at the start of the conversion were still counted as the volume's.
    run(78);
    // With a drive missing, a mirror's copies are not compared, and reads alternated between them:
    // the data copied to the new array differed from earlier reads.
    run(15);
}
