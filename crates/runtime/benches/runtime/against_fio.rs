//! Stripewise file drives against fio's io_uring engine, in turn: same file, same depth, both
//! bypassing the page cache. On disk only: on tmpfs the result depends on how the scheduler places
//! the kernel's workers.

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use stripewise_drive::{Buffer, BufferPool, Drive, IoRequest};
use stripewise_runtime::{OpenOptions, RealExecutor, process_cpu_ns};

use crate::files::{self, TestFile};

#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    /// Pattern as fio names it.
    pattern: &'static str,
    writes: bool,
    sequential: bool,
    block_bytes: u64,
    depth: usize,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "4 KiB random read, depth 32",
        pattern: "randread",
        writes: false,
        sequential: false,
        block_bytes: 4096,
        depth: 32,
    },
    Workload {
        name: "4 KiB random write, depth 32",
        pattern: "randwrite",
        writes: true,
        sequential: false,
        block_bytes: 4096,
        depth: 32,
    },
    Workload {
        name: "1 MiB sequential read, depth 16",
        pattern: "read",
        writes: false,
        sequential: true,
        block_bytes: 1 << 20,
        depth: 16,
    },
    Workload {
        name: "1 MiB sequential write, depth 16",
        pattern: "write",
        writes: true,
        sequential: true,
        block_bytes: 1 << 20,
        depth: 16,
    },
];

/// Requests per second, and microseconds of processor time per request.
#[derive(Clone, Copy)]
struct Outcome {
    per_second: f64,
    cpu_us: f64,
}

/// Runs fio. `start_us`: processor time of fio's start and end, which is subtracted.
fn fio(file: &TestFile, workload: Workload, seconds: f64, start_us: f64) -> Option<Outcome> {
    let cpu_before_us = children_cpu_us();
    let text = run_fio(file, workload, &format!("--runtime={}ms", (seconds * 1e3) as u64))?;
    let side = text.split(if workload.writes { "\"write\" : {" } else { "\"read\" : {" }).nth(1)?;
    let number = |key: &str| -> Option<f64> {
        let rest = side.split(&format!("\"{key}\" : ")).nth(1)?;
        rest.split([',', '\n']).next()?.trim().parse().ok()
    };
    let per_second = number("iops")?;
    let requests = per_second * number("runtime")? / 1e3;
    Some(Outcome { per_second, cpu_us: (children_cpu_us() - cpu_before_us - start_us) / requests })
}

/// JSON output of one fio run; `limit` is the option for its length.
fn run_fio(file: &TestFile, workload: Workload, limit: &str) -> Option<String> {
    let output = Command::new("fio")
        .args(["--name=pair", "--ioengine=io_uring", "--direct=1", "--time_based", "--norandommap"])
        .args(["--gtod_reduce=1", "--output-format=json", "--thread", limit])
        .arg(format!("--filename={}", file.path.display()))
        .arg(format!("--size={}", file.size_bytes))
        .arg(format!("--rw={}", workload.pattern))
        .arg(format!("--bs={}", workload.block_bytes))
        .arg(format!("--iodepth={}", workload.depth))
        .output()
        .ok()?;
    output.status.success().then_some(())?;
    String::from_utf8(output.stdout).ok()
}

/// Processor time of all ended children, including the kernel workers of their rings.
fn children_cpu_us() -> f64 {
    // SAFETY: getrusage fills the structure it is given; all-zero is valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 * 1e6 + time.tv_usec as f64).sum()
}

fn ours(file: &TestFile, workload: Workload, seconds: f64) -> Outcome {
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&file.path, &OpenOptions::default()).expect("opens");
    assert!(drive.is_direct(), "{} has no direct I/O: nothing to compare", file.place);
    let context = executor.context();
    let pool = BufferPool::new(64 << 20);
    let blocks = file.size_bytes / workload.block_bytes;
    let (done, position, random) =
        (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0x5EED_u64)));
    let begin = Instant::now();
    let until_ns = context.now_ns() + (seconds * 1e9) as u64;
    let cpu_before_ns = process_cpu_ns();
    let workers: Vec<_> = (0..workload.depth)
        .map(|_| {
            let (drive, context) = (drive.clone(), context.clone());
            let (done, position, random) = (done.clone(), position.clone(), random.clone());
            let buffer: Buffer = pool.allocate(workload.block_bytes as usize);
            buffer.fill(0xA5);
            executor.context().spawn(async move {
                while context.now_ns() < until_ns {
                    let block = if workload.sequential {
                        position.replace(position.get() + 1) % blocks
                    } else {
                        let mut state = random.get();
                        let number = files::next(&mut state);
                        random.set(state);
                        number % blocks
                    };
                    let offset = block * workload.block_bytes;
                    let request = if workload.writes {
                        IoRequest::write(offset, buffer.clone(), false)
                    } else {
                        IoRequest::read(offset, buffer.clone())
                    };
                    drive.submit(request).await.expect("the drive works");
                    done.set(done.get() + 1);
                }
            })
        })
        .collect();
    executor.block_on(async {
        for worker in workers {
            worker.await;
        }
    });
    let (cpu_ns, elapsed) = (process_cpu_ns() - cpu_before_ns, begin.elapsed());
    Outcome {
        per_second: done.get() as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu_ns as f64 / 1e3 / done.get() as f64,
    }
}

/// Runs the comparison and prints the ratios.
pub fn run(quick: bool) {
    let (seconds, pairs) = if quick { (0.5, 3) } else { (1.0, 11) };
    if Command::new("fio").arg("--version").output().is_err() {
        println!("Against fio: fio is not installed (Debian: apt install fio); nothing to compare with");
        return;
    }
    println!(
        "Against fio (io_uring, direct): {pairs} pairs of {seconds} s in turn; ours / fio, median (quartiles)"
    );
    for file in files::make(1 << 30, None) {
        println!("  {} ({} MiB file)", file.place, file.size_bytes >> 20);
        for workload in WORKLOADS {
            let mut rates = Vec::new();
            let mut processor = Vec::new();
            let mut shown = None;
            let before_us = children_cpu_us();
            let start_us =
                run_fio(&file, workload, "--runtime=1ms").map_or(0.0, |_| children_cpu_us() - before_us);
            for pair in 0..pairs {
                // The order alternates, so that a drift of the machine favours neither.
                let (one, other) = if pair % 2 == 0 {
                    (Some(ours(&file, workload, seconds)), fio(&file, workload, seconds, start_us))
                } else {
                    let theirs = fio(&file, workload, seconds, start_us);
                    std::thread::sleep(Duration::from_millis(20));
                    (Some(ours(&file, workload, seconds)), theirs)
                };
                let (Some(our), Some(their)) = (one, other) else {
                    println!("    {}: fio gave no figure", workload.name);
                    return;
                };
                rates.push(our.per_second / their.per_second);
                processor.push(our.cpu_us / their.cpu_us);
                shown = Some((our, their));
            }
            let (rate, cpu) = (crate::spread(&rates), crate::spread(&processor));
            let (our, their) = shown.expect("at least one pair");
            println!(
                "    {:32} rate {:.3} ({:.3} to {:.3})   processor time {:.2} ({:.2} to {:.2})   last pair {:.0} and \
                 {:.0} per s, {:.2} and {:.2} us of processor each",
                workload.name,
                rate.0,
                rate.1,
                rate.2,
                cpu.0,
                cpu.1,
                cpu.2,
                our.per_second,
                their.per_second,
                our.cpu_us,
                their.cpu_us
            );
        }
    }
}
