//! Cost of the laboratory itself: nanoseconds per request of the native driver over a null drive,
//! and the rates of generating and comparing verifiable contents, beside memcpy in the same run.
//! One core. Limits: the virtual executor's clock is a memory access; the real one adds a read of
//! the system's clock (about 25 ns) per request.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use stripewise_drive::{Buffer, BufferPool, NullDrive};
use stripewise_lab::{Contents, DriveTarget, Load, Surroundings, Verification, WindowLimits, Workload};
use stripewise_runtime::VirtualExecutor;

const REQUEST_BYTES: usize = 1 << 20;
const REQUESTS: usize = 256;

fn main() {
    for (name, workload) in [
        ("4 KiB random reads", Workload::random_read(32)),
        ("4 KiB random writes", Workload::random_write(32)),
    ] {
        let mut runs: Vec<f64> = (0..5).map(|_| driver_ns_per_request(&workload)).collect();
        println!("driver, {name}, depth 32: {} ns a request", spread(&mut runs));
    }
    let memory = REQUEST_BYTES * REQUESTS;
    let contents = Contents::new(1, memory as u64);
    contents.next_phase();
    let buffers: Vec<Buffer> = (0..REQUESTS).map(|_| Buffer::from_bytes(&vec![1; REQUEST_BYTES])).collect();
    let from = vec![7u8; REQUEST_BYTES];
    let each = |work: &mut dyn FnMut(u64, &Buffer)| {
        let mut runs: Vec<f64> = (0..5)
            .map(|_| {
                let start = Instant::now();
                for (index, buffer) in buffers.iter().enumerate() {
                    work((index * REQUEST_BYTES) as u64, buffer);
                }
                memory as f64 / start.elapsed().as_secs_f64() / 1e9
            })
            .collect();
        spread(&mut runs)
    };
    println!("memcpy, 1 MiB from the cache: {} GB/s", {
        each(&mut |_, buffer| {
            buffer.with_mut(|to| to.copy_from_slice(black_box(&from)));
        })
    });
    println!("contents made: {} GB/s", {
        each(&mut |at, buffer| {
            contents.write_begins(at, buffer);
            contents.write_ended(at, buffer.len(), true);
        })
    });
    let mut report = Verification::default();
    println!("contents compared: {} GB/s", each(&mut |at, buffer| contents.check(at, buffer, &mut report)));
    assert!(report.is_clean() && report.verified_bytes == 5 * memory as u64);
}

fn driver_ns_per_request(workload: &Workload) -> f64 {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let target = DriveTarget::new(NullDrive::new("null", 1 << 40), BufferPool::new(64 << 20));
    let limits = WindowLimits { least_ns: 4_000_000, least_latencies: 1.0, most_ns: 4_000_000 };
    executor.block_on(async {
        let load = Load::start(&context, &target, workload, None, &Rc::default()).expect("a valid workload");
        let start = Instant::now();
        load.measure(&limits, &Surroundings::unknown()).await;
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
        let requests = load.completed();
        load.stop(u64::MAX).await;
        nanoseconds / requests as f64
    })
}

/// Median, minimum and maximum.
fn spread(runs: &mut [f64]) -> String {
    runs.sort_by(f64::total_cmp);
    format!(
        "{:.1} ({:.1} to {:.1} in {} runs)",
        runs[runs.len() / 2],
        runs[0],
        runs[runs.len() - 1],
        runs.len()
    )
}
