//! Volumes on other threads than their pool, and clients whose requests go to the arrays there at
//! once. The drives are files.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stripewise_drive::{BufferPool, Drive, SplitMix64};
use stripewise_export::fuse::{FuseMount, Host, Tree};
use stripewise_export::nbd::{Server, ServerOptions};
use stripewise_export::{PoolExports, start_threads};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{DriveState, JobKind, OpenMode, Pool, PoolOptions, PoolSpec, RequestKind, VolumeSpec};
use stripewise_runtime::{CreateOptions, OWNER_ONLY, OpenOptions, RealExecutor, create_drive_file};

use crate::kit::client::{Client, FLUSH, FUA, TRIM, WRITE};
use crate::kit::{MIB, contents};

const THREADS: usize = 3;
const DRIVE_BYTES: u64 = 96 << 20;
/// Bytes of a client's place. Places of different clients share sectors.
const PLACE: u64 = 1300;

struct Folder(tempfile::TempDir);

impl Folder {
    /// With files for this number of drives.
    fn new(drives: usize) -> Self {
        let folder = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder"));
        (0..drives).for_each(|number| {
            create_drive_file(&folder.drive(number), &CreateOptions::new(DRIVE_BYTES)).expect("room");
        });
        folder
    }

    fn drive(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("drive{number}.img"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("nbd.sock")
    }
}

fn open(executor: &RealExecutor, path: &Path) -> Rc<dyn Drive> {
    executor.open_drive(path, &OpenOptions::default()).expect("opens")
}

/// A pool of four drives with the volumes `sliced`, in RAID 5 and four slices, and `whole`, a
/// mirror.
async fn make(executor: &RealExecutor, buffers: &BufferPool, folder: &Folder) -> Pool {
    let drives = (0..4).map(|number| open(executor, &folder.drive(number))).collect();
    let spec = PoolSpec { name: "tank".into(), drives, ..PoolSpec::default() };
    let pool = Pool::create(&executor.context(), buffers, spec).await.expect("a pool");
    for (name, layout, slices, mib) in [("sliced", "raid5", Some(4), 64), ("whole", "raid1", None, 16)] {
        let layout = LayoutSpec::parse(layout).expect("a layout");
        let size_bytes = Some(mib * MIB);
        pool.create_volume(VolumeSpec { size_bytes, slices, ..VolumeSpec::new(name, layout) })
            .await
            .expect("a volume");
    }
    pool
}

/// Runs `work` with a pool on several threads.
fn with_pool(threads: usize, folder: &Folder, work: impl AsyncFnOnce(&RealExecutor, &BufferPool, Pool)) {
    let executor = RealExecutor::new().expect("io_uring");
    start_threads(&executor, threads).expect("threads");
    let buffers = BufferPool::new(16 << 20);
    executor.block_on(async {
        let pool = make(&executor, &buffers, folder).await;
        work(&executor, &buffers, pool).await;
    });
}

/// Serves the pool to `clients`, each on a thread of its own, and does `beside` in the meantime.
async fn serve(
    executor: &RealExecutor,
    pool: Pool,
    folder: &Folder,
    clients: Vec<Box<dyn FnOnce() + Send>>,
    beside: impl AsyncFnOnce(&PoolExports),
) {
    let context = executor.context();
    let exports = PoolExports::new();
    exports.add(pool, false);
    let server = Server::new(&context, exports, ServerOptions::default());
    server.use_shards();
    server.listen(executor.network().listen_unix(&folder.socket(), OWNER_ONLY).expect("listens"));
    let clients: Vec<_> = clients.into_iter().map(thread::spawn).collect();
    beside(server.exports()).await;
    while !clients.iter().all(thread::JoinHandle::is_finished) {
        context.sleep_ns(1_000_000).await;
    }
    assert!(server.end().await, "all clients have left");
    clients.into_iter().for_each(|client| client.join().expect("a client's data"));
}

/// Random writes, reads, discards and flushes of places that only this client uses; what it read
/// last is in all of them at the end.
fn use_places(socket: &Path, number: u64, steps: u64) -> Vec<u64> {
    let mut client = Client::ready(socket, "tank/sliced");
    let (mut random, mut seeds) = (SplitMix64::new(number), vec![0; 64]);
    for step in 1..=steps {
        let place = random.below(64);
        let offset = offset_of(number, place);
        match random.below(10) {
            0 => assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0),
            1..4 => assert_place(&mut client, number, place, seeds[place as usize]),
            kind => {
                let bytes = contents(step, PLACE as usize);
                let flags = FUA * u16::from(kind == 9);
                assert_eq!(client.ask(WRITE, flags, offset, PLACE as u32, &bytes), 0);
                seeds[place as usize] = step;
            }
        }
        // Whole blocks of its own, which go to the arrays at once.
        let block = (40 << 20) + (number * 1024 + random.below(1024)) * 4096;
        let bytes = contents(step, 4096);
        client.write(block, &bytes);
        assert!(client.read(block, 4096) == bytes, "client {number}, step {step}");
        if step % 16 == 0 {
            assert_eq!(client.ask(TRIM, 0, block, 4096, &[]), 0);
        }
    }
    for place in 0..64 {
        assert_place(&mut client, number, place, seeds[place as usize]);
    }
    seeds
}

/// Places lie in all slices: a new one begins every 257 KiB, those of all clients side by side.
fn offset_of(client: u64, place: u64) -> u64 {
    place * (257 << 10) + client * PLACE
}

fn assert_place(client: &mut Client, number: u64, place: u64, seed: u64) {
    let bytes = client.read(offset_of(number, place), PLACE as u32);
    let wanted = if seed == 0 { vec![0; PLACE as usize] } else { contents(seed, PLACE as usize) };
    assert!(bytes == wanted, "client {number}, place {place}");
}

#[test]
fn volumes_on_threads_keep_data_through_changes() {
    let folder = Folder::new(6);
    with_pool(THREADS, &folder, async |executor, _, pool| {
        let socket = folder.socket();
        let client = |number| {
            let socket = socket.clone();
            Box::new(move || drop(use_places(&socket, number, 400))) as Box<dyn FnOnce() + Send>
        };
        let beside = async |_: &PoolExports| {
            pool.start_jobs();
            let context = executor.context();
            context.sleep_ns(50_000_000).await;
            pool.resize_volume("sliced", 80 * MIB).await.expect("larger");
            // A drive fails under load; another one takes its place.
            let file = std::fs::File::options().write(true).open(folder.drive(1)).expect("a file");
            file.set_len(MIB).expect("cut");
            let failed = pool.status().drives[1].id;
            while pool.status().drives[1].state == DriveState::Online {
                context.sleep_ns(1_000_000).await;
            }
            pool.replace(failed, open(executor, &folder.drive(4)), false).await.expect("replaced");
            pool.wait(JobKind::Rebuild).await.expect("rebuilt");
            pool.add(open(executor, &folder.drive(5)), stripewise_pool::Role::Data, false)
                .await
                .expect("added");
            let layout = LayoutSpec::parse("raid6").expect("a layout");
            pool.convert("sliced", Some(layout), Some(2)).await.expect("begun");
            pool.wait(JobKind::Convert).await.expect("converted");
        };
        serve(executor, pool.clone(), &folder, (0..4).map(client).collect(), beside).await;
        let loads = pool.volume_loads();
        assert!(loads[0].of(RequestKind::Write).succeeded() >= 4 * 400, "{loads:?}");
        pool.close().await.expect("closed");
    });
    // One thread finds the same, and nothing to mend.
    let executor = RealExecutor::new().expect("io_uring");
    let buffers = BufferPool::new(16 << 20);
    executor.block_on(async {
        let drives = [0, 2, 3, 4, 5].map(|number| open(&executor, &folder.drive(number))).to_vec();
        let options = PoolOptions::default();
        let pool = Pool::open(&executor.context(), &buffers, drives, OpenMode::ReadWrite, options)
            .await
            .expect("opens");
        pool.start_jobs();
        pool.scrub().await.expect("begun");
        pool.wait(JobKind::Scrub).await.expect("scrubbed");
        let reports = pool.scrub_reports();
        assert_eq!(reports.len(), 2);
        for summary in reports {
            let report = summary.report;
            let wrong = (report.blamed.len(), report.unattributed_blocks, report.checksum_errors);
            assert_eq!((summary.error, wrong, report.unreadable_strips), (None, (0, 0, 0), 0));
        }
        pool.close().await.expect("closed");
    });
}

/// Ends the other clients, also if this one fails.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn unaligned_writes_keep_bytes_of_other_threads() {
    let folder = Folder::new(4);
    with_pool(THREADS, &folder, async |executor, _, pool| {
        let is_over = Arc::new(AtomicBool::new(false));
        let whole = {
            let (socket, over) = (folder.socket(), Over(is_over.clone()));
            move || {
                let _over = over;
                let mut client = Client::ready(&socket, "tank/whole");
                for step in 1..50 {
                    let sectors: Vec<Vec<u8>> =
                        (0..8).map(|sector| contents(8 * step + sector, 512)).collect();
                    for (sector, bytes) in (0..).zip(&sectors) {
                        client.write(512 * sector, bytes);
                    }
                    for (sector, bytes) in (0..).zip(&sectors) {
                        let half = client.read(512 * sector, 256);
                        assert!(half == bytes[..256], "step {step}, sector {sector}");
                    }
                }
            }
        };
        let part = || {
            let (socket, is_over) = (folder.socket(), is_over.clone());
            move || {
                let mut client = Client::ready(&socket, "tank/whole");
                for sector in (0..8).cycle().take_while(|_| !is_over.load(Ordering::SeqCst)) {
                    client.write(512 * sector + 300, &[7; 100]);
                }
            }
        };
        let (first, second) = (Box::new(part()), Box::new(part()));
        let clients: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(whole), first, second];
        serve(executor, pool.clone(), &folder, clients, async |_: &PoolExports| {}).await;
        pool.close().await.expect("closed");
    });
}

#[test]
fn lost_writes_of_other_threads_are_reported() {
    let folder = Folder::new(4);
    with_pool(THREADS, &folder, async |executor, buffers, pool| {
        let stage = Arc::new(AtomicU64::new(0));
        let client = {
            let (socket, stage) = (folder.socket(), stage.clone());
            move || {
                let mut client = Client::ready(&socket, "tank/whole");
                client.write(0, &contents(1, 4096));
                assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0);
                client.write(4096, &contents(2, 4096));
                stage.store(1, Ordering::SeqCst);
                while stage.load(Ordering::SeqCst) < 2 {
                    thread::sleep(Duration::from_millis(1));
                }
                let mut client = Client::ready(&socket, "tank/whole");
                assert!(client.read(0, 4096) == contents(1, 4096));
                assert_eq!(client.ask(WRITE, 0, 8192, 4096, &contents(3, 4096)), 5, "some may be lost");
                assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0, "reported once");
                client.write(8192, &contents(3, 4096));
            }
        };
        let beside = async |exports: &PoolExports| {
            let context = executor.context();
            while stage.load(Ordering::SeqCst) < 1 {
                context.sleep_ns(1_000_000).await;
            }
            exports.remove("tank");
            // As if the process had ended: nothing is closed. The drives are free when the client's
            // connection has ended on its thread.
            let first = folder.drive(0);
            while executor.open_drive(&first, &OpenOptions::default()).is_err() {
                context.sleep_ns(1_000_000).await;
            }
            let drives = (0..4).map(|number| open(executor, &folder.drive(number))).collect();
            let options = PoolOptions::default();
            let pool = Pool::open(&context, buffers, drives, OpenMode::ReadWrite, options).await;
            exports.add(pool.expect("no thread has the drives"), false);
            stage.store(2, Ordering::SeqCst);
        };
        serve(executor, pool, &folder, vec![Box::new(client)], beside).await;
    });
}

struct NoHost;

impl Host for NoHost {
    fn keeps_from_writing(&self, _volume: &str) -> Option<String> {
        None
    }

    fn remark(&self, text: String) {
        panic!("{text}");
    }
}

/// Random writes and reads of a file's blocks that only this client uses, and beyond its end.
fn use_file(path: &Path, number: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("opens");
    let size = file.metadata().expect("a size").len();
    let (mut random, mut seeds) = (SplitMix64::new(number), vec![0; 256]);
    for step in 1..=100 {
        let index = random.below(256);
        let offset = (4 * index + number) * 60 * 1024;
        match random.below(8) {
            0 => file.sync_data().expect("durable"),
            1..4 => {
                let mut bytes = vec![0; 4096];
                file.read_exact_at(&mut bytes, offset).expect("read");
                let seed = seeds[index as usize];
                let wanted = if seed == 0 { vec![0; 4096] } else { contents(seed, 4096) };
                assert!(bytes == wanted, "client {number}, step {step}");
            }
            _ => {
                file.write_all_at(&contents(step, 4096), offset).expect("written");
                seeds[index as usize] = step;
            }
        }
        let mut bytes = [0; 100];
        assert_eq!(file.read_at(&mut bytes, size - 10).expect("read"), 10);
        file.write_all_at(&[1; 77], 62_000_000 + 77 * number).expect("written");
        file.read_exact_at(&mut bytes[..77], 62_000_000 + 77 * number).expect("read");
        assert_eq!(bytes[..77], [1; 77]);
    }
    assert!(file.write_all_at(&[1; 4096], size).is_err(), "beyond the end");
}

#[test]
fn files_are_served_by_all_threads() {
    serve_files(THREADS, false);
}

/// Has the kernel offer FUSE over io_uring, if it can, until it is dropped.
struct OfferedRing(String);

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

impl OfferedRing {
    fn new() -> Self {
        let before = std::fs::read_to_string(PARAMETER).unwrap_or_default();
        if before.trim() == "N" {
            let _ = std::fs::write(PARAMETER, "Y");
        }
        Self(before)
    }

    fn is_there(&self) -> bool {
        std::fs::read_to_string(PARAMETER).is_ok_and(|now| now.trim() == "Y")
    }
}

impl Drop for OfferedRing {
    fn drop(&mut self) {
        let _ = std::fs::write(PARAMETER, self.0.trim());
    }
}

#[test]
fn files_are_served_over_io_uring() {
    let offered = OfferedRing::new();
    serve_files(1, offered.is_there());
}

/// Has four clients use the file of a volume, and unmounts it.
fn serve_files(threads: usize, is_over_ring: bool) {
    let folder = Folder::new(4);
    let mount = folder.0.path().join("mount");
    std::fs::create_dir(&mount).expect("a folder");
    with_pool(threads, &folder, async |executor, _, pool| {
        let context = executor.context();
        let exports = PoolExports::new();
        exports.add(pool.clone(), false);
        let (network, tree) = (executor.network(), Tree::Volumes("tank".to_owned()));
        let mounted = FuseMount::new(&context, &network, exports.clone(), tree, &mount, Rc::new(NoHost));
        let mounted = match mounted {
            Err(error) => return eprintln!("skipped: this test needs FUSE: {error}"),
            Ok(mounted) => mounted,
        };
        assert_eq!(mounted.is_over_ring(), is_over_ring);
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let path = mount.join("sliced");
                thread::spawn(move || use_file(&path, number))
            })
            .collect();
        while !clients.iter().all(thread::JoinHandle::is_finished) {
            context.sleep_ns(1_000_000).await;
        }
        clients.into_iter().for_each(|client| client.join().expect("a client's data"));
        let load = mounted.load();
        assert!(load.answered() >= 4 * 100 * 4, "on whichever thread: {}", load.answered());
        assert_eq!(load.in_flight(), 0);
        let at = mount.clone();
        let unmounting = thread::spawn(move || Command::new("umount").arg(at).status());
        mounted.until_ended().await;
        assert!(unmounting.join().expect("no panic").expect("umount runs").success());
        exports.remove("tank");
        pool.close().await.expect("closed");
    });
}
