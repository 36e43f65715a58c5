//! Power is cut when data with copies at several places has reached only one of them. The pool is
//! reopened, continues, and acknowledges flushes; power is cut again, and exactly the drive with
//! that one copy is lost. All flushed data must survive: the copy that counted on reopening was
//! brought to the other places before anything relied on it.
//!
//! Tested for each kind of data with copies (region map, checksum pages, journal, the pool's
//! manifest), for several of its writes, and for each of its places.
//!
//! Invariant I9 (`docs/internals/invariants.md`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{
    Buffer, Completion, CompletionSender, Context, CrashDrive, Delay, Drive, DriveErrorKind, DriveInfo,
    FaultyDrive, IoRequest, MemoryDrive, Operation, completion,
};
use stripewise_pool::{Volume, VolumeSpec};

use crate::kit::pool::*;

/// Kinds of data with copies, and the magics of their writes.
const KINDS: [(&str, &[&[u8]]); 5] = [
    ("a page of the region map", &[b"SWREGMAP"]),
    ("a page of checksums", &[b"STRPSUMS"]),
    ("a batch of the journal", &[b"SWJBATCH"]),
    ("a header of the journal", &[b"SWJAREA\0"]),
    ("the pool's manifest", &[b"STRPWISE", b"SWCHANGE"]),
];
/// Numbers of the write, within a kind, at which power is cut.
const MOMENTS: [u64; 7] = [1, 2, 4, 7, 11, 16, 22];

const PIECE: u64 = 64 << 10;
const BLOCK: u64 = 4096;
/// Start of the first unwritten region, for any layout.
const NEW: u64 = 8 * MIB;
const NEW_BYTES: u64 = 2 * MIB;
const OLD_BYTES: u64 = 2 * MIB;

/// Drives that lose power at a write of a kind: of the writes submitted at that moment only one
/// reaches its drive.
struct Cutter {
    drives: Vec<Rc<CrashDrive>>,
    magics: &'static [&'static [u8]],
    /// Number of the write of the kind at which power is cut, and index of the one write of that
    /// moment that succeeds.
    at: u64,
    copy: usize,
    seen: Cell<u64>,
    held: RefCell<Vec<(usize, IoRequest, CompletionSender)>>,
    images: RefCell<Option<Vec<Rc<MemoryDrive>>>>,
    /// Drive with the only copy.
    landed_on: Cell<Option<usize>>,
}

impl Cutter {
    fn over(images: &[Rc<MemoryDrive>], kind: usize, at: u64, copy: usize) -> Rc<Self> {
        let drives = images.iter().map(|image| CrashDrive::from_image(&image.info().label, image));
        Rc::new(Self {
            drives: drives.collect(),
            magics: KINDS[kind].1,
            at,
            copy,
            seen: Cell::new(0),
            held: RefCell::default(),
            images: RefCell::default(),
            landed_on: Cell::new(None),
        })
    }

    fn tops(self: &Rc<Self>, context: &Context) -> Vec<Rc<dyn Drive>> {
        let top =
            |number| Rc::new(Top { number, context: context.clone(), cutter: self.clone() }) as Rc<dyn Drive>;
        (0..self.drives.len()).map(top).collect()
    }

    fn is_of_kind(&self, request: &IoRequest) -> bool {
        let Some(first) = request.segments.first() else { return false };
        let begins = |bytes: &[u8]| self.magics.iter().any(|magic| bytes.starts_with(magic));
        matches!(request.operation, Operation::Write { .. }) && first.with(begins).unwrap_or(false)
    }

    fn strike(&self) {
        let held = self.held.take();
        let of_kind = || held.iter().filter(|(_, request, _)| self.is_of_kind(request));
        if let Some((number, request, _)) = of_kind().nth(self.copy) {
            let durable = IoRequest { operation: Operation::Write { fua: true }, ..request.clone() };
            let _ = self.drives[*number].submit(durable).try_take();
            self.landed_on.set(Some(*number));
        }
        let seed = self.at * 31 + self.copy as u64;
        let image = |drive: &Rc<CrashDrive>| drive.image_after_cut(&drive.info().label, seed);
        *self.images.borrow_mut() = Some(self.drives.iter().map(image).collect());
        for (_, request, sender) in held {
            sender.complete(Err(request.error(&"cut".into(), DriveErrorKind::Gone, None)));
        }
    }
}

struct Top {
    number: usize,
    context: Context,
    cutter: Rc<Cutter>,
}

impl Drive for Top {
    fn info(&self) -> &DriveInfo {
        self.cutter.drives[self.number].info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let cutter = &self.cutter;
        if cutter.images.borrow().is_some() {
            return Completion::ready(Err(request.error(&self.info().label, DriveErrorKind::Gone, None)));
        }
        if request.operation == Operation::Read {
            return cutter.drives[self.number].submit(request);
        }
        let is_due = cutter.is_of_kind(&request) && {
            cutter.seen.set(cutter.seen.get() + 1);
            cutter.seen.get() == cutter.at
        };
        let has_begun = !cutter.held.borrow().is_empty();
        if !is_due && !has_begun {
            return cutter.drives[self.number].submit(request);
        }
        if !has_begun {
            let cutter = cutter.clone();
            self.context.spawn(async move { cutter.strike() });
        }
        let (sender, answer) = completion();
        cutter.held.borrow_mut().push((self.number, request, sender));
        answer
    }
}

/// Creates a volume of 16 MiB whose beginning was written.
fn prepared(spec: &VolumeSpec) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(spec.clone()).await.unwrap();
        fill(&volume, 1, 0, OLD_BYTES).await;
        pool.close().await.unwrap();
    });
    images
}

/// Scattered blocks in the part that was written before.
fn places() -> impl Iterator<Item = u64> {
    (0..OLD_BYTES / PIECE).step_by(5).map(|piece| piece * PIECE + BLOCK)
}

async fn write(volume: &Volume, seed: u64, at: u64, length: u64) -> bool {
    volume.write(at, Buffer::from_bytes(&contents(seed, at, length as usize)), false).await.is_ok()
}

/// Makes all kinds of writes until power is cut. `true` if it was not.
async fn first_life(life: &Life, drives: &[Rc<dyn Drive>]) -> bool {
    let Ok(pool) = life.open(drives).await else { return false };
    let Ok(volume) = pool.volume("data") else { return false };
    let mut is_fine = true;
    for at in (NEW..NEW + NEW_BYTES).step_by(4 * PIECE as usize) {
        is_fine &= write(&volume, 2, at, 4 * PIECE).await;
    }
    is_fine &= volume.flush().await.is_ok();
    for at in places() {
        is_fine &= write(&volume, 2, at, BLOCK).await;
    }
    is_fine &= volume.flush().await.is_ok();
    is_fine &= pool.set_rebuild_priority(40).await.is_ok();
    // Write-intent bits are cleared, and deferred writes are destaged.
    life.context.sleep_ns(12_000_000_000).await;
    for at in places() {
        is_fine &= write(&volume, 2, at + BLOCK, BLOCK).await;
    }
    is_fine &= volume.flush().await.is_ok();
    is_fine & pool.close().await.is_ok()
}

/// Rewrites everything and flushes it.
async fn second_life(life: &Life, drives: &[Rc<dyn Drive>]) -> Result<(), String> {
    let pool = life.open(drives).await.map_err(|error| error.to_string())?;
    let volume = pool.volume("data").map_err(|error| error.to_string())?;
    for _ in 0..2 {
        for at in (NEW..NEW + NEW_BYTES).step_by(PIECE as usize) {
            write(&volume, 3, at, PIECE).await;
        }
        for at in places() {
            write(&volume, 3, at, 2 * BLOCK).await;
        }
        volume.flush().await.map_err(|error| error.to_string())?;
        life.context.sleep_ns(1_000_000_000).await;
    }
    Ok(())
}

async fn is_all_there(life: &Life, drives: &[Rc<dyn Drive>]) -> Result<(), String> {
    let pool = life.open(drives).await.map_err(|error| error.to_string())?;
    let volume = pool.volume("data").map_err(|error| error.to_string())?;
    holds(&volume, 3, NEW, NEW_BYTES).await?;
    let mut from = 0;
    for at in places() {
        holds(&volume, 1, from, at - from).await?;
        holds(&volume, 3, at, 2 * BLOCK).await?;
        from = at + 2 * BLOCK;
    }
    holds(&volume, 1, from, OLD_BYTES - from).await
}

/// `true` if power was cut with exactly one copy written.
fn cut_and_lose(start: &[Rc<MemoryDrive>], kind: usize, at: u64, copy: usize) -> Result<bool, String> {
    let life = Life::new();
    let cutter = Cutter::over(start, kind, at, copy);
    let drives = cutter.tops(&life.context);
    let went_through = life.run(first_life(&life, &drives));
    let Some(landed_on) = cutter.landed_on.get() else { return Ok(false) };
    assert!(!went_through, "power was cut unnoticed");
    let images = cutter.images.take().expect("power was cut");

    let life = Life::new();
    let cut = Cut::over(&images, at);
    let drives = cut.drives(&life.context);
    cut.arm(u64::MAX);
    life.run(second_life(&life, &drives)).map_err(|why| format!("opened again: {why}"))?;
    let mut rest = cut.images();
    rest.remove(landed_on);

    let life = Life::new();
    let found = life.run(is_all_there(&life, &as_drives(&rest)));
    found.map_err(|why| format!("without drive{landed_on}: {why}")).map(|()| true)
}

fn every_copy_of_every_kind(spec: VolumeSpec, kinds: &[usize]) {
    let start = prepared(&spec);
    for &kind in kinds {
        let mut cuts = 0;
        for at in MOMENTS {
            for copy in 0..3 {
                match cut_and_lose(&start, kind, at, copy) {
                    Ok(false) => break,
                    Ok(true) => cuts += 1,
                    Err(why) => {
                        let name = KINDS[kind].0;
                        panic!("{:?}: write {at} of {name}, copy {copy} alone: {why}", spec.layout.level)
                    }
                }
            }
        }
        assert!(cuts > 3, "{cuts} cuts at {}", KINDS[kind].0);
    }
}

fn spec(layout: &str, checksums: bool, write_back: bool) -> VolumeSpec {
    VolumeSpec {
        checksums: Some(checksums),
        write_back: Some(write_back),
        ..volume_spec("data", layout, Some(16 * MIB))
    }
}

#[test]
fn raid5_copies_agree_before_use_after_a_cut() {
    every_copy_of_every_kind(spec("raid5", true, false), &[0, 1, 2, 3, 4]);
}

#[test]
fn raid6_copies_agree_before_use_after_a_cut() {
    every_copy_of_every_kind(spec("raid6", true, true), &[0, 1, 2, 3, 4]);
}

#[test]
fn raid10_copies_agree_before_use_after_a_cut() {
    every_copy_of_every_kind(spec("raid10", true, false), &[0, 1, 2, 3, 4]);
}

#[test]
fn copies_agree_before_use_without_checksums() {
    every_copy_of_every_kind(spec("raid5", false, true), &[0, 2, 3, 4]);
    every_copy_of_every_kind(spec("raid10", false, false), &[0, 4]);
}

/// While a drive is missing, copies are not compared, and concurrent reads could be spread over
/// them.
#[test]
fn differing_copies_read_alike_until_the_resync() {
    let life = Life::new();
    let crash: Vec<_> = (0..3).map(|index| CrashDrive::new(&format!("drive{index}"), 24 * MIB)).collect();
    let images: Vec<Rc<MemoryDrive>> = life.run(async {
        let pool = life.create(&as_drives(&crash), &[]).await.expect("a pool");
        let mut spec = volume_spec("data", "raid1", Some(2 * MIB));
        spec.layout.columns = Some(3);
        spec.checksums = Some(false);
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.expect("flushed");
        fill(&volume, 2, 0, BLOCK).await;
        volume.flush().await.expect("flushed");
        crash.iter().map(|drive| drive.image_after_cut(&drive.info().label, 1)).collect()
    });
    // As if this drive had not received the last write.
    let (new, old) = (contents(2, 0, BLOCK as usize), contents(1, 0, BLOCK as usize));
    let at =
        image(&images[1]).chunks(BLOCK as usize).position(|block| block == new).expect("it has the block");
    images[1].poke(at as u64 * BLOCK, &old);
    let life = Life::new();
    life.run(async {
        let slow = |image: &Rc<MemoryDrive>| {
            let drive = FaultyDrive::new(&life.context, image.clone(), 1);
            drive.set_delay(Delay::Exponential { mean_ns: 100_000 });
            drive as Rc<dyn Drive>
        };
        let pool = life.open(&images[..2].iter().map(slow).collect::<Vec<_>>()).await.expect("opened");
        let volume = pool.volume("data").expect("open");
        assert!(volume.needs_resync(), "a resync is needed after the cut");
        let reads = join_all((0..8).map(|_| volume.read(0, BLOCK as usize))).await;
        let found: Vec<Vec<u8>> = reads.into_iter().map(|read| read.expect("read").to_vec()).collect();
        assert!(found[0] == new || found[0] == old);
        assert!(found.iter().all(|other| *other == found[0]), "two reads of the same block differ");
    });
}
