//! Makes images of pools in the present format, to be kept in `tests/images` and read by every
//! later version.
//!
//! `cargo run -p stripewise-pool --example make_image -- FOLDER` writes one folder for each pool
//! below; on the same code the same bytes each time. A folder that is there is never overwritten:
//! images stay as the version that made them left them (`docs/internals/format.md`, *Images*). All
//! pools are left in the middle of things, as a power cut leaves them: small writes that are only
//! in the journal, a drive away, a rebuild, a conversion.

#[path = "../tests/it/kit/images.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod images;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use futures_util::future::join_all;
use images::{BLOCK, Expected, VolumeContents, Written, contents, kept_status, label, open};
use stripewise_array::ArrayOptions;
use stripewise_array::tuning::Tuning;
use stripewise_drive::{
    Buffer, BufferPool, Context, CrashDrive, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec,
};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{
    DriveId, JobKind, OpenMode, Pool, PoolOptions, PoolSpec, Role, SnapshotPath, Volume, VolumeSpec, inspect,
};
use stripewise_pool::{Host, Pin};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const SMALL: u64 = 16 << 10;
/// Slow enough for something to be in the middle.
const SPEED: ModelSpec = ModelSpec { latency_ns: 2_000_000, bytes_per_second: 20_000_000, queue_depth: 4 };
/// The seed of what a power cut leaves of what was not flushed.
const CUT_SEED: u64 = 20_261_122;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: make_image FOLDER");
        return ExitCode::from(2);
    };
    for (name, make) in [
        ("away", away as fn() -> Made),
        ("rebuild", rebuild as fn() -> Made),
        ("convert", convert as fn() -> Made),
        ("back", back as fn() -> Made),
        ("moving", moving as fn() -> Made),
        ("bounded", bounded as fn() -> Made),
        ("staying", staying as fn() -> Made),
        ("long", long as fn() -> Made),
        ("lost", lost as fn() -> Made),
        ("destroyed", destroyed as fn() -> Made),
        ("slices", slices as fn() -> Made),
        ("snapshots", snapshots as fn() -> Made),
    ] {
        let folder = Path::new(&folder).join(name);
        if folder.exists() {
            eprintln!("{} is there already; images are never overwritten", folder.display());
            return ExitCode::FAILURE;
        }
        if let Err(error) = keep(&folder, make()) {
            eprintln!("cannot write {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A pool as power left it, and what its volumes hold.
struct Made {
    what: &'static str,
    drives: Vec<Rc<MemoryDrive>>,
    book: Book,
}

/// Written and flushed ranges, by volume.
#[derive(Default)]
struct Book {
    written: BTreeMap<String, Vec<Written>>,
    lost_bytes: BTreeMap<String, Vec<u64>>,
}

impl Book {
    async fn write(&mut self, volume: &Volume, offset_bytes: u64, length_bytes: u64, seed: u64) {
        for at in (offset_bytes..offset_bytes + length_bytes).step_by(16 * SMALL as usize) {
            let length = (offset_bytes + length_bytes - at).min(16 * SMALL);
            let data = Buffer::from_bytes(&contents(seed, at / BLOCK, length / BLOCK));
            volume.write(at, data, false).await.expect("written");
        }
        self.note(volume, offset_bytes, length_bytes, seed);
    }

    /// The first quarter of each MiB, whole stripes and parts of them: fewer blocks, smaller
    /// images.
    async fn write_quarters(&mut self, volume: &Volume, offset_bytes: u64, length_bytes: u64, seed: u64) {
        for at in (offset_bytes..offset_bytes + length_bytes).step_by(MIB as usize) {
            self.write(volume, at, (offset_bytes + length_bytes - at).min(MIB / 4), seed).await;
        }
    }

    /// Pieces that are less than a stripe, here and there: with write-back they stay in the journal
    /// for a while.
    async fn write_small(&mut self, volume: &Volume, seed: u64) {
        let places = (0..12).map(|piece| ((piece * 5 % 12) * 7 * SMALL + BLOCK, seed + piece));
        let write = |(at, seed): (u64, u64)| {
            volume.write(at, Buffer::from_bytes(&contents(seed, at / BLOCK, SMALL / BLOCK)), false)
        };
        let written = join_all(places.clone().map(write)).await;
        written.into_iter().for_each(|written| written.expect("written"));
        places.for_each(|(at, seed)| self.note(volume, at, SMALL, seed));
        volume.flush().await.expect("flushed");
    }

    /// Notes a snapshot of the volume `log` as it is now.
    fn keep(&mut self, snapshot: &str) {
        let written = self.written.get("log").cloned().unwrap_or_default();
        self.written.insert(snapshot.to_owned(), written);
    }

    fn note(&mut self, volume: &Volume, offset_bytes: u64, length_bytes: u64, seed: u64) {
        let of_volume = self.written.entry(volume.name().to_owned()).or_default();
        of_volume.push(Written { offset_bytes, length_bytes, seed });
    }
}

/// From power on to power off: an executor, and drives that take their time.
struct Life {
    executor: VirtualExecutor,
    context: Context,
    buffers: BufferPool,
    caches: Vec<Rc<CrashDrive>>,
    drives: Vec<Rc<dyn Drive>>,
}

impl Life {
    fn on(images: &[Rc<MemoryDrive>]) -> Self {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let caches: Vec<Rc<CrashDrive>> =
            images.iter().map(|image| CrashDrive::from_image(&image.info().label, image)).collect();
        let slow = |drive: &Rc<CrashDrive>| {
            let info = drive.info().clone();
            ModelDrive::new(&context, &info.label, info.capacity_bytes, SPEED, drive.clone()) as Rc<dyn Drive>
        };
        let drives = caches.iter().map(slow).collect();
        Self { executor, context, buffers: BufferPool::new(16 << 20), caches, drives }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.executor.block_on(work)
    }

    async fn open(&self, drives: impl Iterator<Item = usize>) -> Pool {
        let drives = drives.map(|index| self.drives[index].clone()).collect();
        Pool::open(&self.context, &self.buffers, drives, OpenMode::ReadWrite, options())
            .await
            .expect("opened")
    }

    /// Images of the drives after a power cut now.
    fn cut(&self) -> Vec<Rc<MemoryDrive>> {
        let left = |(index, drive): (usize, &Rc<CrashDrive>)| {
            drive.image_after_cut(&drive.info().label, CUT_SEED + index as u64)
        };
        self.caches.iter().enumerate().map(left).collect()
    }

    /// Lets jobs work until one of a kind is between a quarter and three quarters done.
    async fn until_half_way(&self, pool: &Pool, kind: JobKind) {
        pool.start_jobs();
        loop {
            self.context.sleep_ns(5_000_000).await;
            let jobs = pool.activity();
            match jobs.iter().find(|job| job.kind == kind) {
                Some(job) if job.percent > 75.0 => panic!("not caught half way: {job:?}"),
                Some(job) if job.percent > 25.0 => break,
                _ => {}
            }
        }
    }
}

fn options() -> PoolOptions {
    PoolOptions { id_seed: Some(2), ..PoolOptions::default() }
}

fn empty_drives(sizes_mib: &[u64]) -> Vec<Rc<MemoryDrive>> {
    let drive = |(index, mib): (usize, &u64)| MemoryDrive::new(&format!("drive{index}"), mib * MIB);
    sizes_mib.iter().enumerate().map(drive).collect()
}

fn pool_spec(name: &str, drives: &[Rc<dyn Drive>]) -> PoolSpec {
    PoolSpec { name: name.to_owned(), drives: drives.to_vec(), options: options(), ..PoolSpec::default() }
}

fn layout(name: &str, columns: usize) -> LayoutSpec {
    let layout = LayoutSpec::parse(name).expect("a layout");
    LayoutSpec { columns: Some(columns), interleave_bytes: Some(64 << 10), ..layout }
}

fn volume_spec(name: &str, level: &str, columns: usize, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { size_bytes: Some(size_bytes), ..VolumeSpec::new(name, layout(level, columns)) }
}

fn id_of(pool: &Pool, path: &str) -> DriveId {
    pool.status().drives.iter().find(|drive| drive.path == path).expect("a drive").id
}

/// One drive replaced and kept, one taken offline, and the others written to since; journal drives;
/// a thin volume.
fn away() -> Made {
    let mut book = Book::default();
    let images = empty_drives(&[32, 32, 32, 32, 40, 16, 16, 32]);
    let life = Life::on(&images);
    life.run(async {
        let spec = PoolSpec { journals: life.drives[5..7].to_vec(), ..pool_spec("away", &life.drives[..5]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let parity =
            VolumeSpec { write_back: Some(true), ..volume_spec("parity", "raid5", 4, 12 * MIB + BLOCK) };
        let thin = VolumeSpec { thin: true, ..volume_spec("thin", "raid5", 3, 96 * MIB) };
        for spec in [parity, thin, volume_spec("mirror", "raid1", 2, 4 * MIB)] {
            let volume = pool.create_volume(spec).await.expect("made");
            book.write_quarters(&volume, 0, 4 * MIB, 1).await;
            book.write(&volume, volume.capacity_bytes() - SMALL, SMALL, 2).await;
        }
        pool.start_jobs();
        pool.replace(id_of(&pool, "drive4"), life.drives[7].clone(), false).await.expect("begun");
        pool.wait(JobKind::Rebuild).await.expect("replaced");
        pool.close().await.expect("closed");
    });
    let life = Life::on(&life.cut());
    let drives = life.run(async {
        let pool = life.open((0..8).filter(|&index| index != 4)).await;
        pool.offline(id_of(&pool, "drive3")).await.expect("taken out");
        for name in ["thin", "mirror", "parity"] {
            let volume = pool.volume(name).expect("it is there");
            book.write(&volume, MIB, MIB / 4 + SMALL, 3).await;
            volume.flush().await.expect("flushed");
        }
        book.write_small(&pool.volume("thin").expect("it is there"), 20).await;
        book.write_small(&pool.volume("parity").expect("it is there"), 40).await;
        life.cut()
    });
    Made { what: "a drive replaced, one offline, writes only in the journal drives", drives, book }
}

/// A drive failed, a spare being filled, another drive to be emptied; journals on the pool's own
/// drives.
fn rebuild() -> Made {
    let mut book = Book::default();
    let images = empty_drives(&[24, 24, 24, 24, 24, 24, 24]);
    let life = Life::on(&images);
    life.run(async {
        let spec = PoolSpec { spares: life.drives[6..].to_vec(), ..pool_spec("rebuild", &life.drives[..6]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let six = VolumeSpec { write_back: Some(true), ..volume_spec("six", "raid6", 5, 12 * MIB) };
        for spec in [six, volume_spec("ten", "raid10", 3, 4 * MIB)] {
            let volume = pool.create_volume(spec).await.expect("made");
            book.write_quarters(&volume, SMALL, volume.capacity_bytes() - 2 * SMALL, 1).await;
        }
        pool.close().await.expect("closed");
    });
    let life = Life::on(&life.cut());
    let drives = life.run(async {
        let pool = life.open(0..7).await;
        let six = pool.volume("six").expect("it is there");
        pool.fail_drive(id_of(&pool, "drive1"), "taken out for the image").await.expect("recorded");
        pool.retire(id_of(&pool, "drive0")).await.expect("accepted");
        book.write_small(&six, 20).await;
        life.until_half_way(&pool, JobKind::Rebuild).await;
        life.cut()
    });
    Made { what: "a spare being filled for a failed drive, a drive to be emptied", drives, book }
}

/// A volume half converted, one with a lost block, one without checksums, one on fast drives; a
/// scrub begun.
fn convert() -> Made {
    let mut book = Book::default();
    let images = empty_drives(&[40, 40, 40, 40, 16, 16, 16]);
    let life = Life::on(&images);
    life.run(async {
        let spec = PoolSpec { fast: life.drives[4..].to_vec(), ..pool_spec("convert", &life.drives[..4]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let moving = VolumeSpec { write_back: Some(true), ..volume_spec("moving", "raid10", 4, 10 * MIB) };
        let bare = VolumeSpec { checksums: Some(false), ..volume_spec("bare", "raid1", 3, 2 * MIB) };
        let pinned = VolumeSpec { pin: Pin::Fast, ..volume_spec("pinned", "raid5", 3, 4 * MIB) };
        for spec in [moving, bare, pinned, volume_spec("hurt", "raid0", 2, 2 * MIB)] {
            let volume = pool.create_volume(spec).await.expect("made");
            book.write_quarters(&volume, 0, volume.capacity_bytes() - SMALL, 1).await;
        }
        pool.set_patrol(Some(2 * MIB), Some(86_400)).await.expect("set");
        pool.set_rebuild_priority(17).await.expect("set");
        pool.close().await.expect("closed");
    });
    let images = life.cut();
    let life = Life::on(&images);
    let place = life.run(async {
        let pool = life.open(0..7).await;
        let array = pool.volume("hurt").expect("it is there").array();
        let place = array.rows().run(0).expect("allocated").places_of(0)[0];
        place.drive as usize
    });
    // The first block of the volume is the only one on the drive that consists of this word from
    // its beginning.
    rot(&images[place], &contents(1, 0, 1));
    book.lost_bytes.insert("hurt".to_owned(), vec![0]);
    let life = Life::on(&images);
    let drives = life.run(async {
        let pool = life.open(0..7).await;
        pool.convert_volume("hurt", layout("raid5", 3)).await.expect("begun");
        pool.start_jobs();
        pool.wait(JobKind::Convert).await.expect("converted");
        pool.convert_volume("moving", layout("raid5", 4)).await.expect("begun");
        pool.scrub().await.expect("begun");
        life.until_half_way(&pool, JobKind::Convert).await;
        book.write_small(&pool.volume("moving").expect("it is there"), 20).await;
        life.cut()
    });
    Made { what: "a conversion half way, a lost block, a scrub begun, fast drives", drives, book }
}

/// A pool that a host has, with a conversion that was cancelled half way and is half way back.
fn back() -> Made {
    let mut book = Book::default();
    // In steps that are small enough to be caught between two of them, both ways.
    let tuning = Tuning { convert_window_bytes: MIB, convert_record_ns: 0, ..Tuning::default() };
    let array = ArrayOptions { tuning, ..ArrayOptions::default() };
    let images = empty_drives(&[40; 4]);
    let life = Life::on(&images);
    life.run(async {
        let host = Some(Host::new(0x0123_4567_89ab_cdef, "north"));
        let spec = PoolSpec { options: PoolOptions { host, ..options() }, ..pool_spec("back", &life.drives) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let spec = volume_spec("turning", "raid10", 4, 24 * MIB);
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes() - SMALL, 1).await;
        pool.close().await.expect("closed");
    });
    let images = life.cut();
    let life = Life::on(&images);
    let drives = life.run(async {
        let options = PoolOptions { array, ..options() };
        let opening =
            Pool::open(&life.context, &life.buffers, life.drives.clone(), OpenMode::ReadWrite, options);
        let pool = opening.await.expect("opened");
        pool.convert_volume("turning", layout("raid5", 4)).await.expect("begun");
        life.until_half_way(&pool, JobKind::Convert).await;
        pool.cancel_conversion("turning").await.expect("cancelled");
        life.until_half_way(&pool, JobKind::Convert).await;
        book.write_small(&pool.volume("turning").expect("it is there"), 20).await;
        life.cut()
    });
    Made { what: "a host, a conversion on its way back", drives, book }
}

/// A full pool that got a drive to spread over, while another one is half way replaced.
fn moving() -> Made {
    let mut book = Book::default();
    let tuning = Tuning { drain_batch_bytes: MIB, ..Tuning::default() };
    let array = ArrayOptions { tuning, background_bytes: 1, ..ArrayOptions::default() };
    let images = empty_drives(&[20; 5]);
    let life = Life::on(&images);
    let drives = life.run(async {
        let spec = PoolSpec {
            options: PoolOptions { array, ..options() },
            ..pool_spec("moving", &life.drives[..3])
        };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let spec = VolumeSpec { size_bytes: None, ..volume_spec("wide", "raid5", 3, MIB) };
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        volume.flush().await.expect("flushed");
        pool.add(life.drives[3].clone(), Role::Data, false).await.expect("added");
        pool.replace(id_of(&pool, "drive1"), life.drives[4].clone(), false).await.expect("begun");
        life.until_half_way(&pool, JobKind::Rebuild).await;
        book.write_small(&volume, 30).await;
        life.cut()
    });
    Made { what: "a drive that works half way replaced, a rebalance begun", drives, book }
}

/// A pool with a bound on what its jobs add to the clients' latency.
fn bounded() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[20; 3]));
    let drives = life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, pool_spec("bounded", &life.drives))
            .await
            .expect("made");
        let spec = VolumeSpec { write_back: Some(true), ..volume_spec("five", "raid5", 3, 4 * MIB) };
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        volume.flush().await.expect("flushed");
        pool.set_rebuild_latency(Some(20)).await.expect("set");
        book.write_small(&volume, 20).await;
        life.cut()
    });
    Made { what: "a bound on what jobs add to latencies", drives, book }
}

/// A volume whose parity stays on its columns for several rows, as on disks, with writes in the
/// journal and a drive away.
fn staying() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[20; 4]));
    let drives = life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, pool_spec("staying", &life.drives))
            .await
            .expect("made");
        let layout = LayoutSpec { rotation_rows: Some(4), ..layout("raid5", 4) };
        let spec = VolumeSpec { write_back: Some(true), layout, ..volume_spec("five", "raid5", 4, 6 * MIB) };
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        volume.flush().await.expect("flushed");
        pool.offline(id_of(&pool, "drive1")).await.expect("taken out");
        book.write_small(&volume, 20).await;
        life.cut()
    });
    Made { what: "parity that stays for four rows, a drive away", drives, book }
}

/// A drive that is offline through more changes of who takes part than the pool lists branches; a
/// session that was not closed.
fn long() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[16; 3]));
    let drives = life.run(async {
        let host = Some(Host::new(0x0123_4567_89ab_cdef, "north"));
        let spec = PoolSpec { options: PoolOptions { host, ..options() }, ..pool_spec("long", &life.drives) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let spec = VolumeSpec { write_back: Some(true), ..volume_spec("one", "raid1", 3, 2 * MIB) };
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        volume.flush().await.expect("flushed");
        pool.offline(id_of(&pool, "drive0")).await.expect("taken out");
        book.write(&volume, MIB / 2, SMALL, 2).await;
        let flapping = id_of(&pool, "drive2");
        for _ in 0..70 {
            pool.offline(flapping).await.expect("taken out");
            pool.online(flapping, Some(life.drives[2].clone())).await.expect("brought back");
        }
        pool.wait(JobKind::Rebuild).await.expect("caught up");
        book.write_small(&volume, 20).await;
        life.cut()
    });
    Made { what: "a drive away through 140 changes of who takes part, a session not closed", drives, book }
}

/// A volume with a block of a column that could not be rebuilt, and one with dead blocks.
fn lost() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[20; 4]));
    let place = life.run(async {
        let spec = pool_spec("lost", &life.drives[..3]);
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        for spec in [volume_spec("five", "raid5", 3, 4 * MIB), volume_spec("two", "raid1", 2, 2 * MIB)] {
            let volume = pool.create_volume(spec).await.expect("made");
            book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        }
        let array = pool.volume("five").expect("it is there").array();
        let places = array.rows().run(0).expect("allocated").places_of(0);
        let slab = places.iter().find(|place| place.drive == 0).expect("it is on all drives").slab;
        pool.close().await.expect("closed");
        2 * MIB + u64::from(slab) * MIB
    });
    let life = Life::on(&life.cut());
    let drives = life.run(async {
        let faults = FaultyDrive::new(&life.context, life.drives[0].clone(), 1);
        faults.make_unreadable(place..place + BLOCK);
        let drives = vec![faults as Rc<dyn Drive>, life.drives[1].clone(), life.drives[2].clone()];
        let pool = Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadWrite, options());
        let pool = pool.await.expect("opened");
        let dead = [3, 300, 301];
        pool.volume("two").expect("it is there").array().note_dead_blocks(dead);
        book.lost_bytes.insert("two".to_owned(), dead.iter().map(|block| block * BLOCK).collect());
        pool.fail_drive(id_of(&pool, "drive1"), "it broke").await.expect("taken out");
        pool.replace(id_of(&pool, "drive1"), life.drives[3].clone(), false).await.expect("begun");
        pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        let lost: Vec<u64> = pool.volumes().iter().map(|volume| volume.lost_blocks).collect();
        assert_eq!(lost, [1, 3]);
        life.cut()
    });
    Made { what: "a block that could not be rebuilt, dead blocks", drives, book }
}

/// A pool that was destroyed, and can be brought back.
fn destroyed() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[20; 3]));
    let drives = life.run(async {
        let host = Some(Host::new(0x0123_4567_89ab_cdef, "north"));
        let options = PoolOptions { host, ..options() };
        let spec = PoolSpec { options, ..pool_spec("destroyed", &life.drives) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let volume = pool.create_volume(volume_spec("five", "raid5", 3, 4 * MIB)).await.expect("made");
        book.write_quarters(&volume, 0, volume.capacity_bytes(), 1).await;
        volume.flush().await.expect("flushed");
        pool.destroy().await.expect("destroyed");
        life.cut()
    });
    Made { what: "a pool that was destroyed", drives, book }
}

/// A thin volume in three slices, with a drive away and writes that are only in the journals.
fn slices() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[32; 4]));
    let drives = life.run(async {
        let tuning = Tuning { slice_extent_bytes: 384 << 10, ..Tuning::default() };
        let array = ArrayOptions { tuning, ..ArrayOptions::default() };
        let spec = pool_spec("slices", &life.drives);
        let spec = PoolSpec { options: PoolOptions { array, ..options() }, ..spec };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("made");
        let five = volume_spec("five", "raid5", 4, 14 * MIB + BLOCK);
        let spec = VolumeSpec { slices: Some(3), write_back: Some(true), thin: true, ..five };
        let volume = pool.create_volume(spec).await.expect("made");
        book.write_quarters(&volume, 0, 5 * MIB, 1).await;
        volume.flush().await.expect("flushed");
        pool.offline(id_of(&pool, "drive1")).await.expect("taken out");
        book.write(&volume, 9 * MIB - SMALL, SMALL, 2).await;
        book.write_small(&volume, 20).await;
        life.cut()
    });
    Made { what: "a thin volume in slices, a drive away", drives, book }
}

/// A log volume with snapshots, one of them deleted; a drive away, writes only in the staging area.
fn snapshots() -> Made {
    let mut book = Book::default();
    let life = Life::on(&empty_drives(&[20; 4]));
    let drives = life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, pool_spec("snapshots", &life.drives))
            .await
            .expect("made");
        let spec = VolumeSpec { log: Some(15), ..volume_spec("log", "raid5", 4, 3 * MIB) };
        let volume = pool.create_volume(spec).await.expect("made");
        let path = |name: &str| SnapshotPath { volume: "log".to_owned(), snapshot: name.to_owned() };
        book.write_quarters(&volume, 0, 3 * MIB, 1).await;
        pool.create_snapshots(&[path("first"), path("gone")]).await.expect("taken");
        book.keep("log@first");
        book.write(&volume, MIB / 8, MIB, 2).await;
        pool.create_snapshots(&[path("second")]).await.expect("taken");
        book.keep("log@second");
        pool.delete_snapshots(&[path("gone")]).await.expect("deleted");
        pool.offline(id_of(&pool, "drive1")).await.expect("taken out");
        book.write_small(&volume, 20).await;
        life.cut()
    });
    Made { what: "a log volume with snapshots, a drive away", drives, book }
}

/// Changes a byte of the block that volume `hurt` begins with, of all blocks with these contents
/// the first in its slab.
fn rot(drive: &MemoryDrive, block: &[u8]) {
    let mut found = vec![0; BLOCK as usize];
    let places = (0..drive.info().capacity_bytes).step_by(BLOCK as usize);
    let mut last = None;
    for at in places {
        drive.peek(at, &mut found);
        if found == block {
            last = Some(at);
        }
    }
    drive.poke(last.expect("it is there") + 100, b"rotten");
}

fn keep(folder: &Path, made: Made) -> std::io::Result<()> {
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(16 << 20));
    let expected = executor.block_on(async {
        let mut labels = serde_json::Map::new();
        let mut format_version = 0;
        for drive in &made.drives {
            let label = label(drive).await;
            // A drive that was replaced while it worked holds nothing of the pool any more.
            if let Some(own) = inspect(&**drive).await.expect("readable") {
                format_version = own.format_version;
            }
            labels.insert(drive.info().label.to_string(), label);
        }
        let pool = open(&context, &buffers, &made.drives, OpenMode::ReadOnly).await.expect("opened");
        let contents = |(name, capacity_bytes): (String, u64)| VolumeContents {
            capacity_bytes,
            written: made.book.written.get(&name).cloned().unwrap_or_default(),
            lost_bytes: made.book.lost_bytes.get(&name).cloned().unwrap_or_default(),
            name,
        };
        let snapshots = pool.snapshots(None).expect("the pool is open").into_iter();
        let snapshots = snapshots.map(|snapshot| (snapshot.path.to_string(), snapshot.capacity_bytes));
        let volumes = pool.volumes().into_iter().map(|volume| (volume.name, volume.capacity_bytes));
        let volumes = volumes.chain(snapshots).map(contents).collect();
        let expected = Expected {
            format_version,
            made_by: format!("stripewise {}", env!("CARGO_PKG_VERSION")),
            what: made.what.to_owned(),
            labels,
            status: kept_status(&pool),
            volumes,
        };
        pool.close().await.expect("closed");
        let copies: Vec<_> = made.drives.iter().map(|drive| drive.duplicate(&drive.info().label)).collect();
        let pool = open(&context, &buffers, &copies, OpenMode::ReadWrite).await.expect("opened");
        expected.check_contents(&pool).await.expect("it holds what was written");
        pool.close().await.expect("closed");
        expected
    });
    std::fs::create_dir_all(folder)?;
    for drive in &made.drives {
        std::fs::write(folder.join(format!("{}.packed", drive.info().label)), drive.pack())?;
    }
    let text = serde_json::to_string_pretty(&expected).expect("JSON");
    std::fs::write(folder.join("expected.json"), text + "\n")?;
    println!("{}: {}", folder.display(), expected.what);
    Ok(())
}
