//! Set-ups for server tests: a server on a thread of its own, over a pool on drives in memory, and
//! a scripted client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use stripewise_drive::{BufferPool, Context, Drive, FaultyDrive, MemoryDrive};
use stripewise_export::PoolExports;
use stripewise_export::budget::Budget;
use stripewise_export::nbd::{Limits, Rule, Server, ServerOptions, Tls, TlsPolicy};
use stripewise_export::start_threads;
use stripewise_layout::LayoutSpec;
use stripewise_pool::{OpenMode, Pool, PoolSpec, VolumeSpec};
use stripewise_runtime::{OWNER_ONLY, RealExecutor};
use tempfile::TempDir;

pub mod certificates;
pub mod client;
#[path = "../../../../../tests/contents.rs"]
mod contents;

pub use contents::contents;

pub const MIB: u64 = 1 << 20;

/// Options of a test server.
#[derive(Clone)]
pub struct Wanted {
    pub layout: &'static str,
    pub drives: usize,
    pub drive_mib: u64,
    /// Name and MiB.
    pub volumes: Vec<(&'static str, u64)>,
    pub thin: bool,
    pub checksums: bool,
    pub read_only: bool,
    pub limits: Limits,
    pub tls: Option<TlsFiles>,
    pub rules: Option<Vec<Rule>>,
    pub tcp: bool,
    pub memory_bytes: u64,
    /// Threads that serve connections.
    pub cores: usize,
    /// Time that the server's thread stalls in every turn, milliseconds, as on an overloaded
    /// machine.
    pub stands_still_ms: u64,
}

#[derive(Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_authority: Option<PathBuf>,
    pub policy: TlsPolicy,
}

/// One, or `STRIPEWISE_TEST_CORES`: every test holds for any number.
fn cores_by_default() -> usize {
    std::env::var("STRIPEWISE_TEST_CORES").map_or(1, |cores| cores.parse().expect("a number of cores"))
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            layout: "raid5",
            drives: 4,
            drive_mib: 128,
            volumes: vec![("data", 64)],
            thin: false,
            checksums: true,
            read_only: false,
            limits: Limits::default(),
            tls: None,
            rules: None,
            tcp: false,
            memory_bytes: 256 * MIB,
            cores: cores_by_default(),
            stands_still_ms: 0,
        }
    }
}

/// A test server; ends on drop, or when asked.
pub struct Served {
    pub folder: TempDir,
    pub socket: PathBuf,
    pub port: u16,
    pub notices: Arc<Mutex<Vec<String>>>,
    pub memory: Budget,
    stop: Arc<AtomicBool>,
    close_pool: Arc<AtomicBool>,
    reopen_pool: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl Served {
    pub fn start(wanted: Wanted) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        let socket = folder.path().join("nbd.sock");
        let (stop, notices) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<String>>>::default());
        let [close_pool, reopen_pool] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (ready, is_ready) = mpsc::channel();
        let memory = Budget::new(wanted.memory_bytes);
        let their_memory = memory.clone();
        let (theirs, their_socket, their_notices) = (stop.clone(), socket.clone(), notices.clone());
        let (closes, reopens) = (close_pool.clone(), reopen_pool.clone());
        let thread = std::thread::spawn(move || {
            let tell = move |notice: &str| their_notices.lock().expect("unpoisoned").push(notice.to_owned());
            run(&wanted, their_memory, &their_socket, [&theirs, &closes, &reopens], tell, &ready)
        });
        let port = is_ready.recv().expect("the server begins");
        Self { folder, socket, port, notices, memory, stop, close_pool, reopen_pool, thread: Some(thread) }
    }

    /// The URI `nbd+unix:///NAME?socket=...`.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    /// Ends the server; true if all its clients are gone.
    pub fn end(&mut self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().is_none_or(|thread| thread.join().expect("the server ends without a panic"))
    }

    /// Closes the pool under its clients.
    pub fn close_pool(&self) {
        self.close_pool.store(true, Ordering::SeqCst);
    }

    /// Takes all drives from the pool, closes it under its clients, and opens it again.
    pub fn lose_and_reopen(&self) {
        self.reopen_pool.store(true, Ordering::SeqCst);
        for _ in 0..7000 {
            if !self.reopen_pool.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the pool is not open again");
    }

    pub fn ask_to_end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Number of notices that contain `part`.
    pub fn notices_of(&self, part: &str) -> usize {
        self.notices.lock().expect("unpoisoned").iter().filter(|notice| notice.contains(part)).count()
    }

    /// Waits (10 s at most) for a notice that contains `part`.
    pub fn wait_for_notice(&self, part: &str) {
        for _ in 0..1000 {
            if self.notices.lock().expect("unpoisoned").iter().any(|notice| notice.contains(part)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no notice of {part:?} in {:?}", self.notices.lock());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the server panicked");
        }
    }
}

/// Drives in memory, for a pool.
pub fn memory_drives(count: usize, mib: u64) -> Vec<Rc<dyn Drive>> {
    (0..count).map(|index| MemoryDrive::new(&format!("drive{index}"), mib * MIB) as Rc<dyn Drive>).collect()
}

fn faulty_drives(context: &Context, drives: &[Rc<dyn Drive>]) -> Vec<Rc<FaultyDrive>> {
    drives.iter().map(|drive| FaultyDrive::new(context, drive.clone(), 1)).collect()
}

fn as_drives(drives: &[Rc<FaultyDrive>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

fn run(
    wanted: &Wanted,
    budget: Budget,
    socket: &Path,
    [stop, close_pool, reopen_pool]: [&Arc<AtomicBool>; 3],
    tell: impl Fn(&str) + 'static,
    ready: &mpsc::Sender<u16>,
) -> bool {
    let executor = RealExecutor::new().expect("io_uring");
    start_threads(&executor, wanted.cores).expect("threads");
    let (context, buffers) = (executor.context(), BufferPool::new(64 << 20));
    executor.block_on(async {
        let drives = memory_drives(wanted.drives, wanted.drive_mib);
        let mut faulty = faulty_drives(&context, &drives);
        let spec = PoolSpec { name: "tank".into(), drives: as_drives(&faulty), ..PoolSpec::default() };
        let mut pool = Pool::create(&context, &buffers, spec).await.expect("a pool");
        for (name, mib) in &wanted.volumes {
            let layout = LayoutSpec::parse(wanted.layout).expect("a layout");
            let size_bytes = Some(mib * MIB);
            let checksums = Some(wanted.checksums);
            let spec =
                VolumeSpec { size_bytes, thin: wanted.thin, checksums, ..VolumeSpec::new(name, layout) };
            pool.create_volume(spec).await.expect("a volume");
        }
        let exports = PoolExports::new();
        exports.add(pool.clone(), wanted.read_only);
        let tls = wanted.tls.as_ref().map(|files| {
            Tls::load(&files.certificate, &files.key, files.client_authority.as_deref())
                .expect("certificates")
        });
        let options = ServerOptions {
            limits: wanted.limits,
            tls,
            tls_policy: wanted.tls.as_ref().map_or(TlsPolicy::None, |files| files.policy),
            rules: wanted.rules.clone(),
            budget,
            notices: Box::new(move |notice| tell(&notice.to_string())),
        };
        let server = Server::new(&context, exports, options);
        server.use_shards();
        let network = executor.network();
        server.listen(network.listen_unix(socket, OWNER_ONLY).expect("listens"));
        let mut port = 0;
        if wanted.tcp {
            let listener = network.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
            port = listener.address().expect("TCP has one").port();
            server.listen(listener);
        }
        if wanted.stands_still_ms > 0 {
            let (of_task, stop) = (context.clone(), stop.clone());
            let pause = std::time::Duration::from_millis(wanted.stands_still_ms);
            drop(context.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    std::thread::sleep(pause);
                    // Too short for a client's answer to arrive in the same turn.
                    of_task.sleep_ns(20_000).await;
                }
            }));
        }
        ready.send(port).expect("the test waits");
        while !stop.load(Ordering::SeqCst) {
            context.sleep_ns(2_000_000).await;
            if close_pool.swap(false, Ordering::SeqCst) {
                server.exports().remove("tank");
                pool.close().await.expect("closed");
            }
            if reopen_pool.load(Ordering::SeqCst) {
                faulty.iter().for_each(|drive| drive.unplug());
                let volume = pool.volume(wanted.volumes[0].0).expect("a volume");
                volume.read(0, 4096).await.expect_err("no drive is there");
                server.exports().remove("tank");
                // Without any drive it may fail.
                let _ = pool.close().await;
                assert!(!volume.closing().was_in_order());
                faulty = faulty_drives(&context, &drives);
                let (mode, options) = (OpenMode::ReadWrite, Default::default());
                let opened = Pool::open(&context, &buffers, as_drives(&faulty), mode, options);
                pool = opened.await.expect("opened again");
                server.exports().add(pool.clone(), wanted.read_only);
                reopen_pool.store(false, Ordering::SeqCst);
            }
        }
        let all_gone = server.end().await;
        pool.close().await.expect("closed");
        all_gone
    })
}

/// True if a program is installed; prints a note if not.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program} here (scripts/need.sh test installs it)");
    }
    found
}

/// Runs a program for at most two minutes; returns its standard output if it succeeds.
pub fn try_run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("timeout").arg("120").arg(program).args(arguments).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{program} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// As [`try_run`], for a program that must succeed.
pub fn run_program(program: &str, arguments: &[&str]) -> String {
    try_run(program, arguments).unwrap_or_else(|error| panic!("{error}"))
}
