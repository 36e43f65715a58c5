//! The engine's own cost: arrays over drives in memory, in this process, on one core.
//!
//! Prints IOPS and MB/s of each case and, for large writes, the ratio to a memcpy of the same
//! bytes, taken in turns. Small runs in pairs with a fixed yardstick, because the machine may be
//! shared: medians over the rounds, with the range.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code)]
mod kit;

use std::hint::black_box;
use std::rc::Rc;

use kit::linear::{LinearSpec, SlotInit};
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{BufferPool, Context, MemoryDrive, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::VirtualExecutor;

const ROUNDS: usize = 7;
/// 256 MiB in all: random access over more measures the memory of the machine rather than the
/// engine.
const MEMBER_BYTES: u64 = 64 << 20;
const DEPTH: usize = 32;

async fn array(context: &Context, layout: &str, drives: usize) -> Array {
    let shape = LayoutSpec::parse(layout).and_then(|spec| spec.resolve(drives)).expect("a layout");
    let spec = LinearSpec {
        id: 1,
        shape,
        base_bytes: 1 << 20,
        space_bytes: MEMBER_BYTES,
        journal_slabs: 0,
        write_back: false,
        checksums: false,
    };
    let slots = (0..drives)
        .map(|i| MemoryDrive::new(&format!("memory{i}"), MEMBER_BYTES + (1 << 20)))
        .map(|drive| SlotInit::Active(Member::new(context, drive, MemberOptions::default())))
        .collect();
    let buffers = BufferPool::new(64 << 20);
    let array = Array::create(
        context,
        &buffers,
        spec.init(slots).expect("a possible array"),
        Rc::new(NoHost),
        ArrayOptions::default(),
    )
    .await
    .expect("an array");
    let mut random = SplitMix64::new(1);
    let data = array.buffers().allocate(1 << 20);
    data.with_mut(|bytes| {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
    });
    let mut at = 0;
    while at < array.capacity_bytes() {
        let length = (array.capacity_bytes() - at).min(1 << 20);
        array.write(at, data.slice(0..length as usize), false).await.expect("filling");
        at += length;
    }
    array.flush().await.expect("filling");
    array
}

/// Seconds of processor time of this process: one thread, so it is what one core does, however busy
/// the machine is.
fn cpu() -> f64 {
    stripewise_runtime::process_cpu_ns() as f64 / 1e9
}

#[derive(Clone, Copy)]
enum Case {
    RandomRead4K,
    RandomWrite4K,
    SequentialRead1M,
    SequentialWrite1M,
}

/// Seconds for `operations` requests at depth 32 (4 KiB) or 16 (1 MiB).
async fn timed(context: &Context, array: &Array, case: Case, operations: u64) -> f64 {
    let start = cpu();
    let tasks = match case {
        Case::RandomRead4K | Case::RandomWrite4K => DEPTH as u64,
        _ => 16,
    };
    let mut running = Vec::new();
    for task in 0..tasks {
        let array = array.clone();
        let each = operations / tasks;
        running.push(context.spawn(async move {
            let mut random = SplitMix64::new(task);
            let small = array.buffers().allocate(4096);
            let large = array.buffers().allocate(1 << 20);
            let blocks = array.capacity_bytes() / 4096;
            let megabytes = array.capacity_bytes() >> 20;
            for index in 0..each {
                let block = random.below(blocks) * 4096;
                let megabyte = ((index * tasks + task) % megabytes) << 20;
                match case {
                    Case::RandomRead4K => drop(black_box(array.read(block, 4096).await.expect("a read"))),
                    Case::RandomWrite4K => array.write(block, small.clone(), false).await.expect("a write"),
                    Case::SequentialRead1M => {
                        drop(black_box(array.read(megabyte, 1 << 20).await.expect("a read")))
                    }
                    Case::SequentialWrite1M => {
                        array.write(megabyte, large.clone(), false).await.expect("a write")
                    }
                }
            }
        }));
    }
    for task in running {
        task.await;
    }
    cpu() - start
}

/// Seconds to copy `bytes` between two large areas, neither of which fits the cache with the other.
fn timed_memcpy(from: &[u8], to: &mut [u8], bytes: u64) -> f64 {
    let start = cpu();
    let mut done = 0;
    while done < bytes {
        let length = from.len().min((bytes - done) as usize);
        to[..length].copy_from_slice(black_box(&from[..length]));
        black_box(&mut to[..length]);
        done += length as u64;
    }
    cpu() - start
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let from = vec![1u8; 768 << 20];
    let mut to = vec![2u8; 768 << 20];
    for (layout, drives) in [("raid0", 4), ("raid5", 4), ("raid6", 6), ("raid10", 4)] {
        let array = executor.block_on(array(&context, layout, drives));
        for (name, case, operations, bytes) in [
            ("4k-random-read", Case::RandomRead4K, 400_000, 4096u64),
            ("4k-random-write", Case::RandomWrite4K, 200_000, 4096),
            ("1m-sequential-read", Case::SequentialRead1M, 1024, 1 << 20),
            ("1m-sequential-write", Case::SequentialWrite1M, 1024, 1 << 20),
        ] {
            if only.as_ref().is_some_and(|only| !format!("{layout} {name}").contains(only)) {
                continue;
            }
            let mut rates = Vec::new();
            let mut ratios = Vec::new();
            for _ in 0..ROUNDS {
                let seconds = executor.block_on(timed(&context, &array, case, operations));
                rates.push(operations as f64 / seconds);
                let copied = timed_memcpy(&from, &mut to, operations * bytes);
                ratios.push(copied / seconds);
            }
            let (iops, least, most) = median(&mut rates);
            let (ratio, low, high) = median(&mut ratios);
            println!(
                "bench engine-memory {layout} {drives} drives {name}: {iops:.0} IOPS ({least:.0}..{most:.0}) \
                 {:.0} MB/s, {:.2} of memcpy ({low:.2}..{high:.2}), {ROUNDS} rounds",
                iops * bytes as f64 / 1e6,
                ratio,
            );
        }
    }
}
