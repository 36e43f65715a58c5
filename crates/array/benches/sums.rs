//! Prints the cost of checksums: two arrays on file-backed drives with direct I/O that differ in
//! nothing else, measured alternately.
//!
//! Each has four files of its own (512 MiB each by default, `STRIPEWISE_BENCH_MIB` changes it),
//! created in the build folder, or in `STRIPEWISE_BENCH_DIR`, and removed. Both have a journal of
//! the same size. The checksum pages fit their cache.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code)]
mod kit;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use kit::linear::{LinearSpec, SlotInit};
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{Buffer, BufferPool, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file, process_cpu_ns};

const PAIRS: usize = 7;
const SECONDS: f64 = 1.0;
const DRIVES: usize = 4;

struct Case {
    name: &'static str,
    is_random: bool,
    is_read: bool,
    block_bytes: u64,
    depth: u64,
    /// Target rate, as a share of the rate without checksums.
    target: f64,
}

const CASES: &[Case] = &[
    Case {
        name: "1m-sequential-read",
        is_random: false,
        is_read: true,
        block_bytes: 1 << 20,
        depth: 16,
        target: 0.9,
    },
    Case {
        name: "1m-sequential-write",
        is_random: false,
        is_read: false,
        block_bytes: 1 << 20,
        depth: 16,
        target: 0.9,
    },
    Case {
        name: "4k-random-read",
        is_random: true,
        is_read: true,
        block_bytes: 4096,
        depth: 64,
        target: 0.9,
    },
    Case {
        name: "4k-random-write",
        is_random: true,
        is_read: false,
        block_bytes: 4096,
        depth: 64,
        target: 0.75,
    },
];

struct Files(Vec<PathBuf>);

impl Files {
    fn make(directory: &Path, name: &str, bytes: u64) -> Self {
        std::fs::create_dir_all(directory).expect("a folder for the drives");
        let path = |i| directory.join(format!("{name}{i}.img"));
        let paths: Vec<PathBuf> = (0..DRIVES).map(path).collect();
        for path in &paths {
            let options =
                CreateOptions { allocate: true, replace_existing: true, ..CreateOptions::new(bytes) };
            create_drive_file(path, &options).expect("a drive file");
        }
        Self(paths)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn noise(buffer: &Buffer, seed: u64) {
    let mut random = SplitMix64::new(seed);
    buffer.with_mut(|bytes| {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
    });
}

async fn array(
    executor: &RealExecutor,
    files: &Files,
    bytes: u64,
    layout: &str,
    checksums: bool,
) -> (Array, Vec<Rc<Member>>) {
    let context = executor.context();
    let shape = LayoutSpec::parse(layout).and_then(|spec| spec.resolve(DRIVES)).expect("a layout");
    let member = |path: &PathBuf| {
        let options = OpenOptions { lock: false, ..OpenOptions::default() };
        let drive = executor.open_drive(path, &options).expect("a drive");
        Member::new(&context, drive, MemberOptions::default())
    };
    let members: Vec<Rc<Member>> = files.0.iter().map(member).collect();
    let spec = LinearSpec {
        id: 1,
        shape,
        base_bytes: 1 << 20,
        space_bytes: bytes - (1 << 20),
        journal_slabs: 32,
        write_back: false,
        checksums,
    };
    let slots = members.iter().cloned().map(SlotInit::Active).collect();
    let buffers = BufferPool::new(64 << 20);
    let init = spec.init(slots).expect("a possible array");
    let array = Array::create(&context, &buffers, init, Rc::new(NoHost), ArrayOptions::default());
    let array = array.await.expect("an array");
    let data = array.buffers().allocate(1 << 20);
    noise(&data, 1);
    for at in (0..array.capacity_bytes()).step_by(1 << 20) {
        let length = (array.capacity_bytes() - at).min(1 << 20) as usize;
        array.write(at, data.slice(0..length), false).await.expect("filling");
    }
    array.flush().await.expect("filling");
    (array, members)
}

/// Throughput in bytes per second.
async fn rate(executor: &RealExecutor, array: &Array, case: &Case) -> f64 {
    let bytes = Rc::new(Cell::new(0u64));
    let next = Rc::new(Cell::new(0u64));
    let start = Instant::now();
    let tasks: Vec<_> = (0..case.depth)
        .map(|task| {
            let (array, bytes, next) = (array.clone(), bytes.clone(), next.clone());
            let (is_random, is_read, block) = (case.is_random, case.is_read, case.block_bytes);
            executor.context().spawn(async move {
                let mut random = SplitMix64::new(task);
                let data = array.buffers().allocate(block as usize);
                noise(&data, task);
                let blocks = array.capacity_bytes() / block;
                while start.elapsed().as_secs_f64() < SECONDS {
                    let index = match is_random {
                        true => random.below(blocks),
                        false => next.replace(next.get() + 1) % blocks,
                    };
                    if is_read {
                        drop(array.read(index * block, block as usize).await.expect("a read"));
                    } else {
                        array.write(index * block, data.clone(), false).await.expect("a write");
                    }
                    bytes.set(bytes.get() + block);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    // Deferred work of these writes counts.
    array.flush().await.expect("a flush");
    bytes.get() as f64 / start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let base = std::env::var_os("STRIPEWISE_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let mib = std::env::var("STRIPEWISE_BENCH_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(512);
    let executor = RealExecutor::new().expect("an executor");
    for layout in ["raid5", "raid10", "raid0"] {
        let wanted = |case: &&Case| {
            let name = format!("{layout} {}", case.name);
            only.as_ref().is_none_or(|only| name.contains(only))
        };
        if !CASES.iter().any(|case| wanted(&case)) {
            continue;
        }
        let directory = base.join("bench-sums");
        let (with, without) =
            (Files::make(&directory, "with", mib << 20), Files::make(&directory, "without", mib << 20));
        let (with, with_members) = executor.block_on(array(&executor, &with, mib << 20, layout, true));
        let (without, without_members) =
            executor.block_on(array(&executor, &without, mib << 20, layout, false));
        for case in CASES.iter().filter(wanted) {
            let (mut ratios, mut rates, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
            for pair in 0..PAIRS {
                let measure = |array: &Array| {
                    let before = process_cpu_ns();
                    let rate = executor.block_on(rate(&executor, array, case));
                    (rate, (process_cpu_ns() - before) as f64 / 1e9)
                };
                // Each goes first nearly as often as the other.
                let (a, b) = match pair % 2 {
                    0 => {
                        let a = measure(&with);
                        (a, measure(&without))
                    }
                    _ => {
                        let b = measure(&without);
                        (measure(&with), b)
                    }
                };
                ratios.push(a.0 / b.0);
                rates.push(a.0 / 1e6);
                cpu.push((a.1 / a.0) / (b.1 / b.0));
            }
            let (ratio, low, high) = median(&mut ratios);
            println!(
                "bench engine-sums {layout} {} depth {}: {ratio:.3} ({low:.3}..{high:.3}) of the rate without checksums, to \
                 reach {}; {:.0} MB/s, {:.2} times the processor time per byte, {PAIRS} pairs of {SECONDS} s",
                case.name,
                case.depth,
                case.target,
                median(&mut rates).0,
                median(&mut cpu).0,
            );
        }
        with_members.iter().chain(&without_members).for_each(|member| member.stop());
    }
}
