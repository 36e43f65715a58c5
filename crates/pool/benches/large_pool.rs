//! Prints what a pool of sixty drives of 20 TB costs: wall time to make it and to ask how it is,
//! modelled time of a small change of its record, and memory; new, reopened, and after writing
//! all over it. Drives are modelled, in virtual time; the memory of their contents is not counted
//! but where that is said.
//!
//! Each run is a process of its own, since the most memory that a process ever had is what counts.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod kit;

use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use futures_util::future::join_all;
use kit::pool::{Life, options, spec, volume_spec};
use stripewise_drive::{BufferPool, Drive, MemoryDrive, ModelDrive, ModelSpec, NullDrive};
use stripewise_pool::{OpenMode, Pool};

const DRIVES: usize = 60;
const GROUPS: usize = 6;
const DRIVE_BYTES: u64 = 20_000_000_000_000;
const DISK: ModelSpec = ModelSpec { latency_ns: 5_000_000, bytes_per_second: 250_000_000, queue_depth: 32 };
const RUNS: usize = 5;
/// Stripes written, spread evenly over the volume: each is in a region of its own, and in a page of
/// checksums of each of sixty drives, so that there are many times as many pages as are kept in
/// memory.
const STRIPES: u64 = 8_000;
const DEPTH: u64 = 32;
/// Writes between flushes.
const UNFLUSHED: u64 = 1_000;
/// Set for the processes that take the figures.
const ONE_RUN: &str = "STRIPEWISE_BENCH_ONE_RUN";
/// Its values.
const PARTS: [&str; 2] = ["without contents", "with contents"];

/// Its name, and the goal where there is one.
const FIGURES: [(&str, &str, Option<f64>); 13] = [
    ("pool and volume made, wall time", "ms", Some(2000.0)),
    ("small change recorded, modelled time, longest of 20", "ms", Some(50.0)),
    ("status as JSON, wall time, longest of 20", "ms", Some(100.0)),
    ("most memory so far", "MiB", Some(1024.0)),
    ("8,000 stripes written over the whole volume, wall time", "s", None),
    ("small change recorded after that, modelled time, longest of 20", "ms", Some(50.0)),
    ("status after that, wall time, longest of 20", "ms", Some(100.0)),
    ("most memory", "MiB", Some(1024.0)),
    ("made on drives that keep what is written, processor time", "ms", None),
    ("reopened for reading, wall time", "ms", None),
    ("reopened for reading, processor time", "ms", None),
    ("status, processor time", "ms", None),
    ("most memory with what the drives hold", "MiB", Some(1024.0)),
];

fn main() {
    if let Some(part) = std::env::var_os(ONE_RUN) {
        let figures = if part == PARTS[0] { without_contents() } else { with_contents() };
        println!("{}", figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let figures_of = |part: &str| -> Vec<f64> {
        let output = Command::new(&program).env(ONE_RUN, part).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(|figure| figure.parse().expect("a number")).collect()
    };
    let runs: Vec<Vec<f64>> =
        (0..RUNS).map(|_| PARTS.iter().flat_map(|part| figures_of(part)).collect()).collect();
    println!(
        "{DRIVES} drives of 20 TB (5 ms, 250 MB/s), RAID 60 of {GROUPS} groups; {RUNS} runs: median (least..most)"
    );
    for (index, (name, unit, goal)) in FIGURES.iter().enumerate() {
        let mut of_runs: Vec<f64> = runs.iter().map(|run| run[index]).collect();
        of_runs.sort_by(f64::total_cmp);
        let (least, median, most) = (of_runs[0], of_runs[RUNS / 2], of_runs[RUNS - 1]);
        let goal = goal.map_or_else(String::new, |goal| format!(", goal {goal}"));
        println!("{name:64} {median:8.1} {unit} ({least:.1}..{most:.1}){goal}");
    }
}

fn drives<D: Drive + 'static>(life: &Life, below: impl Fn(&str) -> Rc<D>) -> Vec<Rc<dyn Drive>> {
    let one = |index: usize| {
        let label = format!("model{index}");
        ModelDrive::new(&life.context, &label, DRIVE_BYTES, DISK, below(&label)) as Rc<dyn Drive>
    };
    (0..DRIVES).map(one).collect()
}

async fn make(life: &Life, buffers: &BufferPool, drives: &[Rc<dyn Drive>]) -> Pool {
    let pool = Pool::create(&life.context, buffers, spec("large", drives, &[])).await.expect("a pool");
    let mut volume = volume_spec("data", "raid60", None);
    volume.layout.groups = Some(GROUPS);
    pool.create_volume(volume).await.expect("a volume");
    pool
}

fn without_contents() -> Vec<f64> {
    let life = Life::new();
    let buffers = BufferPool::phantom();
    life.run(async {
        let drives = drives(&life, |label| NullDrive::new(label, DRIVE_BYTES));
        let began = Instant::now();
        let pool = make(&life, &buffers, &drives).await;
        let made_ms = ms_since(began);
        let mut figures = vec![made_ms, change_ms(&life, &pool).await, status_ms(&pool), most_memory_mib()];
        let began = Instant::now();
        write_all_over(&pool, &buffers).await;
        figures.push(ms_since(began) / 1000.0);
        figures.extend([change_ms(&life, &pool).await, status_ms(&pool), most_memory_mib()]);
        pool.close().await.expect("closed");
        figures
    })
}

/// Opening needs what was written before, so drives keep it here.
fn with_contents() -> Vec<f64> {
    let below: Vec<Rc<MemoryDrive>> =
        (0..DRIVES).map(|index| MemoryDrive::new(&format!("model{index}"), DRIVE_BYTES)).collect();
    let of = |label: &str| below[label["model".len()..].parse::<usize>().expect("a number")].clone();
    let life = Life::new();
    let made_ms = life.run(async {
        let began_ms = processor_ms();
        let pool = make(&life, &life.buffers, &drives(&life, of)).await;
        let made_ms = processor_ms() - began_ms;
        pool.close().await.expect("closed");
        made_ms
    });
    let life = Life::new();
    let figures = life.run(async {
        let drives = drives(&life, of);
        let (began, began_ms) = (Instant::now(), processor_ms());
        let open = Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadOnly, options(7));
        let pool = open.await.expect("opened");
        let (opened_ms, opened_processor_ms) = (ms_since(began), processor_ms() - began_ms);
        let began_ms = processor_ms();
        std::hint::black_box(pool.status());
        let status_ms = processor_ms() - began_ms;
        pool.close().await.expect("closed");
        vec![made_ms, opened_ms, opened_processor_ms, status_ms, most_memory_mib()]
    });
    // Giving back the tables of sixty such drives would take longer than all before.
    below.into_iter().for_each(std::mem::forget);
    figures
}

async fn write_all_over(pool: &Pool, buffers: &BufferPool) {
    let volume = pool.volume("data").expect("it is there");
    let stripe_bytes = volume.geometry().stripe_data_bytes();
    let apart = volume.capacity_bytes() / stripe_bytes / STRIPES;
    for first in (0..STRIPES).step_by(DEPTH as usize) {
        let write = |index: u64| {
            volume.write(index * apart * stripe_bytes, buffers.allocate(stripe_bytes as usize), false)
        };
        let written = join_all((first..(first + DEPTH).min(STRIPES)).map(write)).await;
        written.into_iter().for_each(|written| written.expect("written"));
        if first % UNFLUSHED < DEPTH {
            volume.flush().await.expect("flushed");
        }
    }
    volume.flush().await.expect("flushed");
}

async fn change_ms(life: &Life, pool: &Pool) -> f64 {
    let mut longest_ns = 0;
    for percent in 1..=20 {
        let began_ns = life.context.now_ns();
        pool.set_rebuild_priority(percent).await.expect("recorded");
        longest_ns = longest_ns.max(life.context.now_ns() - began_ns);
    }
    longest_ns as f64 / 1e6
}

fn status_ms(pool: &Pool) -> f64 {
    let once = |_| {
        let began = Instant::now();
        std::hint::black_box(pool.status());
        ms_since(began)
    };
    (0..20).map(once).fold(0.0, f64::max)
}

fn ms_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// Time that this process had a processor, milliseconds: says more than wall time where others
/// work, too.
fn processor_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e6
}

/// The most memory that this process ever had, as the kernel counts it.
fn most_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}
