//! fio beside the native driver: the same load on the same file, and fio's own servers on several
//! hosts.
//!
//! Skipped if fio is not installed; a host is a network namespace if the test may create one.

use std::cell::{Cell, RefCell};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use stripewise_drive::BufferPool;
use stripewise_lab::driver::fio::{self, Asked, Host};
use stripewise_lab::method::{
    Circumstances, Observer, Profile, RunError, RunSettings, Runner, Step, run_profile,
};
use stripewise_lab::record::MeasurementRecord;
use stripewise_lab::store::Sample;
use stripewise_lab::{Contents, DriveTarget, SweepOptions, fill};
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 32 * MIB;

fn is_here() -> bool {
    let found = fio::version().is_ok();
    if !found {
        eprintln!("skipped: this test needs fio");
    }
    found
}

fn profile(text: &str) -> Profile {
    let start =
        "name = \"x\"\nruns = 1\nseconds = 0.25\n[[measurement]]\nname = \"{depth}\"\nblocks = [\"4KiB\"]\n";
    Profile::parse(&(start.to_owned() + text)).expect("a profile")
}

fn made(folder: &Path) -> PathBuf {
    let path = folder.join("file");
    create_drive_file(&path, &CreateOptions { allocate: true, ..CreateOptions::new(SIZE) }).expect("made");
    path
}

fn asked<'a>(path: &'a Path, hosts: &'a [Host]) -> Asked<'a> {
    let circumstances = Circumstances { filled_before: true, ..Circumstances::default() };
    Asked {
        path,
        size_bytes: SIZE,
        runs: 1,
        within: None,
        seconds: 0.25,
        may_write: true,
        circumstances,
        seed: 1,
        hosts,
    }
}

struct Unobserved;

impl Observer for Unobserved {
    fn begins(&self, _: &Step, _: usize, _: usize, _: u32) {}
    fn moved(&self, _: u64, _: &stripewise_lab::Pulse) {}
    fn measured(&self, _: usize, _: &MeasurementRecord, _: &Sample) -> Result<(), RunError> {
        Ok(())
    }
    fn is_interrupted(&self) -> bool {
        false
    }
}

#[test]
fn native_and_fio_rates_agree_with_their_latencies() {
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = made(folder.path());
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("open");
    if !drive.is_direct() {
        eprintln!("skipped: no direct I/O here");
        return;
    }
    let target = DriveTarget::new(drive, BufferPool::new(8 << 20));
    let context = executor.context();
    let contents = Rc::new(Contents::new(1, SIZE));
    contents.next_phase();
    let sweep = SweepOptions { depth: 8, request_bytes: MIB };
    executor.block_on(fill(&context, &target, &contents, sweep, &Rc::default())).expect("filled");
    let profile = profile("ops = [\"read\"]\npattern = \"random\"\ndepths = [1, 8]\n");
    // Requests in flight are their rate times their duration, on an idle machine and on a busy one.
    // A wrong unit or depth is a factor of 8 and more.
    let has_depth = |step: &Step, figure: &MeasurementRecord| {
        let latency_us = figure.latency_us.and_then(|latency| latency.mean).expect("a latency");
        let in_flight = figure.iops.expect("a rate") * latency_us / 1e6;
        let share = in_flight / step.workload.outstanding() as f64;
        assert!((0.3..2.5).contains(&share), "{figure:?}: {in_flight} requests in flight");
    };
    let settings = RunSettings {
        runs: None,
        within: None,
        most_runs: 0,
        seconds: None,
        size_bytes: SIZE,
        may_write: false,
        fills: false,
        ramp_seconds: 0.0,
        virtual_time: false,
        seed: 1,
        circumstances: Circumstances::default(),
    };
    let runner = Runner { context, target, settings, observer: &Unobserved, cpu_seconds: &|| None };
    let (figures, _) = executor.block_on(run_profile(&profile, &runner)).expect("it runs");
    assert_eq!(figures.len(), profile.steps.len());
    for (step, figure) in profile.steps.iter().zip(&figures) {
        has_depth(step, figure);
        let keep = |_: usize, figure: &MeasurementRecord, sample: &Sample, _: &[(String, f64)]| {
            // Requests in flight at the end of the ramp are in one of the two only.
            let off = sample.bytes.abs_diff(4096 * sample.requests);
            let most = (sample.bytes / 20).max(4096 * step.workload.outstanding());
            assert!(off <= most, "{} bytes, {} requests", sample.bytes, sample.requests);
            has_depth(step, figure);
            Ok(())
        };
        fio::measure(&profile, step, &asked(&path, &[]), &|_, _| true, keep).expect("fio measures it");
    }
}

/// A server of fio's, killed in the end with its namespace.
struct Server {
    process: Child,
    host: Host,
    namespace: Option<Namespace>,
}

impl Server {
    fn start(namespace: Option<Namespace>) -> Self {
        let address = namespace.as_ref().map_or_else(|| "127.0.0.1".to_owned(), |one| one.address.clone());
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = &namespace {
            // `ip netns exec` would make a mount namespace, which keeps others' mounts alive.
            words.extend(["nsenter".to_owned(), format!("--net=/run/netns/{}", namespace.name)]);
        }
        words.extend(["fio".to_owned(), format!("--server=ip:{address},{port}")]);
        let process = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let host: Host = format!("{address}:{port}").parse().expect("a host");
        let server = Self { process, host, namespace };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect((address.as_str(), port)).is_err() {
            assert!(Instant::now() < deadline, "fio serves within 20 s");
            std::thread::yield_now();
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        drop(self.namespace.take());
    }
}

/// A network namespace with one virtual cable to this one.
struct Namespace {
    name: String,
    address: String,
}

impl Namespace {
    /// `None` if creation is not permitted.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let (name, cable) = (format!("lab{id}"), format!("lab{}", id % 100_000));
        // Addresses for measuring devices (RFC 2544), which no network uses.
        let net = format!("198.19.{}", id % 250);
        let made = Self { name: name.clone(), address: format!("{net}.2") };
        let all = [
            format!("netns add {name}"),
            format!("link add {cable} type veth peer name far netns {name}"),
            format!("addr add {net}.1/30 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {name} addr add {net}.2/30 dev far"),
            format!("-n {name} link set far up"),
            format!("-n {name} link set lo up"),
        ];
        let is_made = all.iter().all(|words| ip(words));
        if !is_made {
            eprintln!("partly skipped: no network namespace may be created here");
        }
        is_made.then_some(made)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
    }
}

fn ip(words: &str) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("ip");
    command.args(words.split(' ')).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn fio_repeats_until_the_interval_is_narrow_or_capped() {
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = made(folder.path());
    let profile = profile("ops = [\"read\"]\npattern = \"random\"\n");
    let count = |within| {
        let within = Some((within, 4));
        let asked = Asked { runs: 2, within, seconds: 0.05, may_write: false, ..asked(&path, &[]) };
        let runs = Cell::new(0);
        let keep = |_: usize, figure: &MeasurementRecord, _: &Sample, _: &[(String, f64)]| {
            runs.set(figure.runs.len());
            Ok(())
        };
        fio::measure(&profile, &profile.steps[0], &asked, &|_, _| true, keep).expect("fio measures it");
        runs.get()
    };
    assert_eq!(count(1e-12), 4, "never narrow enough");
    assert_eq!(count(1e12), 3, "three runs have an interval");
}

#[test]
fn hosts_measure_concurrently_and_are_summed() {
    if !is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = made(folder.path());
    let servers = [Server::start(None), Server::start(Namespace::new())];
    let hosts: Vec<Host> = servers.iter().map(|server| server.host.clone()).collect();
    let profile = profile("read_percents = [50]\npattern = \"random\"\ndepths = [4]\n");
    let seen = RefCell::new(None);
    let keep = |_: usize, figure: &MeasurementRecord, sample: &Sample, by_host: &[(String, f64)]| {
        *seen.borrow_mut() = Some((figure.clone(), sample.clone(), by_host.to_vec()));
        Ok(())
    };
    fio::measure(&profile, &profile.steps[0], &asked(&path, &hosts), &|_, _| true, keep)
        .expect("both measure");
    let (figure, sample, by_host) = seen.into_inner().expect("a figure");
    let names: Vec<&str> = by_host.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(names, [hosts[0].to_string(), hosts[1].to_string()]);
    let sum: f64 = by_host.iter().map(|(_, rate)| rate).sum();
    let all = figure.mb_per_s.expect("a rate");
    // Each host's rate is over the time that it measured; both do not begin at the same instant.
    let largest = by_host.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    assert!(
        by_host.iter().all(|(_, rate)| *rate > 0.0) && all > largest && all < sum * 1.1,
        "{all} {by_host:?}"
    );
    let merged: u64 =
        [&sample.read_latency, &sample.write_latency].into_iter().flatten().map(|one| one.len()).sum();
    // Each host had four in flight at the start and at the end of its counting.
    let at_the_ends = 2 * 2 * 4;
    let most = sample.requests / 50 + at_the_ends;
    assert!(merged.abs_diff(sample.requests) <= most, "{merged} of {}", sample.requests);
    let gone = Host { name: "127.0.0.1".into(), port: 1 };
    let with_one_gone = [hosts[0].clone(), gone];
    let keep = |_: usize, _: &MeasurementRecord, _: &Sample, _: &[(String, f64)]| Ok(());
    let error = fio::measure(&profile, &profile.steps[0], &asked(&path, &with_one_gone), &|_, _| true, keep)
        .expect_err("one host does not exist")
        .to_string();
    assert!(error.contains("127.0.0.1:1"), "{error}");
}
