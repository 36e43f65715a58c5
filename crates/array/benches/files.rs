//! Compares arrays over four file-backed drives with direct I/O to fio on the same four files at
//! the same total depth, alternately. Also compares an idle rebuild on paced files to the pace.
//!
//! The files (1 GiB each by default, `STRIPEWISE_BENCH_MIB` changes it) are created in the build
//! folder, or in `STRIPEWISE_BENCH_DIR`, and removed. Without fio only the array's rate is printed.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code)]
mod kit;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use kit::linear::{LinearSpec, SlotInit};
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{Buffer, BufferPool, Drive, Pace, PacedDrive, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file, process_cpu_ns};

const PAIRS: usize = 5;
const SECONDS: f64 = 2.0;
const DRIVES: usize = 4;

struct Case {
    name: &'static str,
    layout: &'static str,
    /// Name of the pattern in fio.
    pattern: &'static str,
    block_bytes: u64,
    depth: u64,
    /// Best possible rate of the array, as a share of fio's total on the four files.
    ideal: f64,
    target: f64,
}

const CASES: &[Case] = &[
    Case {
        name: "1m-sequential-read",
        layout: "raid0",
        pattern: "read",
        block_bytes: 1 << 20,
        depth: 64,
        ideal: 1.0,
        target: 0.9,
    },
    Case {
        name: "1m-sequential-write",
        layout: "raid0",
        pattern: "write",
        block_bytes: 1 << 20,
        depth: 64,
        ideal: 1.0,
        target: 0.9,
    },
    Case {
        name: "1m-sequential-read",
        layout: "raid5",
        pattern: "read",
        block_bytes: 1 << 20,
        depth: 64,
        ideal: 1.0,
        target: 0.9,
    },
    Case {
        name: "1m-sequential-write",
        layout: "raid5",
        pattern: "write",
        block_bytes: 1 << 20,
        depth: 64,
        ideal: 0.75,
        target: 0.9,
    },
    Case {
        name: "4k-random-read",
        layout: "raid5",
        pattern: "randread",
        block_bytes: 4096,
        depth: 128,
        ideal: 1.0,
        target: 0.85,
    },
    Case {
        name: "4k-random-write",
        layout: "raid5",
        pattern: "randwrite",
        block_bytes: 4096,
        depth: 128,
        ideal: 0.25,
        target: 0.85,
    },
];

fn noise(buffer: &Buffer, seed: u64) {
    let mut random = SplitMix64::new(seed);
    buffer.with_mut(|bytes| {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
    });
}

struct Files {
    directory: PathBuf,
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Files {
    fn make(directory: PathBuf, bytes: u64) -> Self {
        std::fs::create_dir_all(&directory).expect("a folder for the drives");
        let paths: Vec<PathBuf> = (0..=DRIVES).map(|i| directory.join(format!("drive{i}.img"))).collect();
        for path in &paths {
            let options =
                CreateOptions { allocate: true, replace_existing: true, ..CreateOptions::new(bytes) };
            create_drive_file(path, &options).expect("a drive file");
        }
        Self { directory, paths, bytes }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

async fn array(
    executor: &RealExecutor,
    files: &Files,
    layout: &str,
    pace: Option<Pace>,
) -> (Array, Vec<Rc<Member>>) {
    let context = executor.context();
    let shape = LayoutSpec::parse(layout).and_then(|spec| spec.resolve(DRIVES)).expect("a layout");
    let members: Vec<Rc<Member>> =
        files.paths[..DRIVES].iter().map(|path| member(executor, path, pace)).collect();
    let spec = LinearSpec {
        id: 1,
        shape,
        base_bytes: 1 << 20,
        space_bytes: files.bytes - (1 << 20),
        journal_slabs: 0,
        write_back: false,
        checksums: false,
    };
    let slots = members.iter().cloned().map(SlotInit::Active).collect();
    let buffers = BufferPool::new(64 << 20);
    let array = Array::create(
        &context,
        &buffers,
        spec.init(slots).expect("a possible array"),
        Rc::new(NoHost),
        ArrayOptions::default(),
    )
    .await
    .expect("an array");
    fill(executor, &array).await;
    (array, members)
}

fn member(executor: &RealExecutor, path: &Path, pace: Option<Pace>) -> Rc<Member> {
    let context = executor.context();
    let options = OpenOptions { lock: false, ..OpenOptions::default() };
    let mut drive: Rc<dyn Drive> = executor.open_drive(path, &options).expect("a drive");
    if let Some(pace) = pace {
        drive = PacedDrive::new(&context, drive, pace);
    }
    Member::new(&context, drive, MemberOptions::default())
}

async fn fill(executor: &RealExecutor, array: &Array) {
    let data = array.buffers().allocate(1 << 20);
    noise(&data, 1);
    let next = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (array, data, next) = (array.clone(), data.clone(), next.clone());
            executor.context().spawn(async move {
                while next.get() < array.capacity_bytes() {
                    let at = next.get();
                    let length = (array.capacity_bytes() - at).min(1 << 20);
                    next.set(at + length);
                    array.write(at, data.slice(0..length as usize), false).await.expect("filling");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    array.flush().await.expect("filling");
}

/// Throughput of the array, in bytes per second.
async fn ours(executor: &RealExecutor, array: &Array, case: &Case) -> f64 {
    let context = executor.context();
    let bytes = Rc::new(Cell::new(0u64));
    let next = Rc::new(Cell::new(0u64));
    let start = Instant::now();
    let tasks: Vec<_> = (0..case.depth)
        .map(|task| {
            let (array, bytes, next) = (array.clone(), bytes.clone(), next.clone());
            let (pattern, block) = (case.pattern, case.block_bytes);
            context.spawn(async move {
                let mut random = SplitMix64::new(task);
                let data = array.buffers().allocate(block as usize);
                noise(&data, task);
                let blocks = array.capacity_bytes() / block;
                while start.elapsed().as_secs_f64() < SECONDS {
                    let index = if pattern.starts_with("rand") {
                        random.below(blocks)
                    } else {
                        next.replace(next.get() + 1) % blocks
                    };
                    if pattern.ends_with("read") {
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
    bytes.get() as f64 / start.elapsed().as_secs_f64()
}

/// Throughput of fio on the same files, in bytes per second, with one job each and the same total
/// depth. `None` without fio.
fn fio(files: &Files, case: &Case) -> Option<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--output-format=json",
        "--group_reporting",
        "--ioengine=io_uring",
        "--direct=1",
        "--time_based",
    ]);
    command.args(["--norandommap", "--randrepeat=0", "--offset=1m", "--thread"]);
    command.arg(format!("--runtime={SECONDS}")).arg(format!("--rw={}", case.pattern));
    command
        .arg(format!("--bs={}", case.block_bytes))
        .arg(format!("--iodepth={}", case.depth / DRIVES as u64));
    command.arg(format!("--size={}", files.bytes - (1 << 20)));
    for (index, path) in files.paths[..DRIVES].iter().enumerate() {
        command.arg(format!("--name=job{index}")).arg(format!("--filename={}", path.display()));
    }
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // All other rates are zero, so the maximum is that of the direction that ran.
    let rates = text.match_indices("\"bw_bytes\" :").filter_map(|(at, found)| {
        let rest = text[at + found.len()..].trim_start();
        rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse::<f64>().ok()
    });
    rates.max_by(f64::total_cmp)
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only));
    let base = std::env::var_os("STRIPEWISE_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let mib = std::env::var("STRIPEWISE_BENCH_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(1024);
    let files = Files::make(base.join("bench-drives"), mib << 20);
    let executor = RealExecutor::new().expect("an executor");
    for layout in ["raid0", "raid5"] {
        if !CASES.iter().any(|case| case.layout == layout && wanted(&format!("{layout} {}", case.name))) {
            continue;
        }
        let (array, members) = executor.block_on(array(&executor, &files, layout, None));
        for case in
            CASES.iter().filter(|case| case.layout == layout && wanted(&format!("{layout} {}", case.name)))
        {
            compare(&executor, &files, &array, case);
        }
        for member in members {
            member.stop();
        }
    }
    if wanted("rebuild") {
        rebuild(&executor, &files);
    }
}

fn compare(executor: &RealExecutor, files: &Files, array: &Array, case: &Case) {
    let (mut rates, mut ratios, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let before = process_cpu_ns();
        let rate = executor.block_on(ours(executor, array, case));
        cpu.push((process_cpu_ns() - before) as f64 / 1e9 / SECONDS);
        executor.block_on(array.flush()).expect("a flush");
        rates.push(rate / 1e6);
        if let Some(theirs) = fio(files, case) {
            ratios.push(rate / (theirs * case.ideal));
        }
    }
    let (rate, low, high) = median(&mut rates);
    let against = if ratios.is_empty() {
        "fio is not installed".to_owned()
    } else {
        let (ratio, least, most) = median(&mut ratios);
        format!(
            "{ratio:.2} ({least:.2}..{most:.2}) of {} x fio on the four files, to reach {}",
            case.ideal, case.target
        )
    };
    println!(
        "bench engine-files {} {} depth {}: {rate:.0} MB/s ({low:.0}..{high:.0}), {against}, {:.2} processors, {PAIRS} pairs of {SECONDS} s",
        case.layout,
        case.name,
        case.depth,
        median(&mut cpu).0,
    );
}

/// Measures an idle rebuild of RAID 5 onto a replacement, with the same pace on every drive.
fn rebuild(executor: &RealExecutor, files: &Files) {
    let pace: Pace = "100MB/s,400iops".parse().expect("a pace");
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let ratio = executor.block_on(async {
            let (array, members) = array(executor, files, "raid5", None).await;
            for member in &members {
                member.stop();
            }
            drop(array);
            let context = executor.context();
            let members: Vec<_> = files.paths.iter().map(|path| member(executor, path, Some(pace))).collect();
            let shape = LayoutSpec::parse("raid5").and_then(|spec| spec.resolve(DRIVES)).expect("a layout");
            let spec = LinearSpec {
                id: 1,
                shape,
                base_bytes: 1 << 20,
                space_bytes: files.bytes - (1 << 20),
                journal_slabs: 0,
                write_back: false,
                checksums: false,
            };
            let slots = members[..DRIVES].iter().cloned().map(SlotInit::Active).collect();
            let buffers = BufferPool::new(64 << 20);
            let array = Array::open(
                &context,
                &buffers,
                spec.init(slots).expect("a possible array"),
                Rc::new(NoHost),
                ArrayOptions::default(),
            )
            .await
            .expect("it opens");
            members[1].fail("taken out");
            array.flush().await.expect("a flush excludes it");
            spec.attach(&array, 1, members[DRIVES].clone()).await.expect("attaching");
            let start = Instant::now();
            let report = kit::linear::rebuild(&array).await.expect("a rebuild");
            let rate = report.bytes as f64 / start.elapsed().as_secs_f64();
            for member in &members {
                member.stop();
            }
            rate / 100e6
        });
        ratios.push(ratio);
    }
    let (ratio, low, high) = median(&mut ratios);
    println!(
        "bench engine-files raid5 rebuild idle, drives paced {pace}: {ratio:.3} ({low:.3}..{high:.3}) of one drive's write speed, \
         to reach 0.9, 3 runs"
    );
}
