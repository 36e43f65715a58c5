//! Prints the cost of checksums: time to verify a 4 KiB block whose page is in memory, next to the
//! bare CRC-32C of the same block, and the rate of computing checksums of large buffers. One core,
//! CPU time, medians over rounds with their range, since the machine may be shared.

use std::hint::black_box;
use std::rc::Rc;

use stripewise_array::checksums::{
    BLOCK_BYTES, ChecksumOptions, ChecksumSpec, Checksums, PageId, PageIo, Side,
};
use stripewise_array::{ArrayError, LocalFuture};
use stripewise_drive::{Buffer, BufferPool, Completion, DriveError, SplitMix64};
use stripewise_runtime::VirtualExecutor;

const ROUNDS: usize = 9;

/// Drives that read as never written and accept all writes.
struct EmptyPages;

impl PageIo for EmptyPages {
    fn read(&self, _: PageId, _: Side, into: Buffer) -> Completion {
        into.fill(0);
        Completion::ready(Ok(()))
    }

    fn write(&self, _: PageId, _: Side, _: Buffer) -> Completion {
        Completion::ready(Ok(()))
    }

    fn flush(&self) -> LocalFuture<'_, Result<(), ArrayError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn report<'a>(
        &'a self,
        _: PageId,
        _: Side,
        _: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>> {
        unreachable!("nothing fails here")
    }
}

fn cpu_ns() -> f64 {
    stripewise_runtime::process_cpu_ns() as f64
}

/// Median, minimum and maximum time per call, over rounds in which `f` makes `count` calls.
fn rounds(count: u64, mut f: impl FnMut()) -> (f64, f64, f64) {
    let mut each: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu_ns();
            f();
            (cpu_ns() - start) / count as f64
        })
        .collect();
    each.sort_by(f64::total_cmp);
    (each[ROUNDS / 2], each[0], each[ROUNDS - 1])
}

fn print(name: &str, (median, least, most): (f64, f64, f64)) {
    println!("bench checksums {name}: {median:.1} ns ({least:.1}..{most:.1}), {ROUNDS} rounds");
}

/// Verifies random blocks of `column_bytes` of each of four columns from memory, all with the same
/// bytes.
fn verify_at_random(name: &str, column_bytes: u64, bytes: &Buffer) {
    let executor = VirtualExecutor::new();
    let spec = ChecksumSpec { volume_id: 1 << 100 | 7, width: 4, slab_bytes: 64 << 20 };
    let options =
        ChecksumOptions { cache_bytes: 256 << 20, window_pages: 256, prefer_newest: false, first_stamp: 1 };
    let sums = Checksums::new(&BufferPool::new(8 << 20), spec, options, Rc::new(EmptyPages));
    let blocks = column_bytes / BLOCK_BYTES;
    executor.block_on(async {
        for column in 0..4 {
            for block in 0..blocks {
                let offset = block * BLOCK_BYTES;
                let pin = sums.pin(column, offset, BLOCK_BYTES).await.expect("pages");
                sums.set(&pin, offset, &sums.compute(column, offset, bytes), 1);
            }
        }
        sums.checkpoint().await.expect("a checkpoint");
    });
    let count = 400_000;
    let mut random = SplitMix64::new(3);
    let measured = rounds(count, || {
        for _ in 0..count {
            let at = random.below(4 * blocks);
            let verdict = sums.try_verify((at % 4) as u16, at / 4 * BLOCK_BYTES, black_box(bytes));
            assert!(verdict.expect("in memory").is_good());
        }
    });
    let pages = 4 * column_bytes / (1 << 20);
    print(name, measured);
    println!(
        "bench checksums {name}: {pages} pages in {:.2} MiB, {} bytes each",
        sums.memory_bytes() as f64 / 1048576.0,
        sums.memory_bytes() as u64 / pages
    );
}

fn main() {
    let bytes = Buffer::from_bytes(&(0..4096).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>());
    let count = 400_000;
    let bare = rounds(count, || {
        for _ in 0..count {
            black_box(&bytes).with(|bytes| black_box(crc_fast::crc32_iscsi(bytes)));
        }
    });
    print("bare CRC-32C of a block in the processor's cache", bare);
    verify_at_random("verify a 4 KiB block, 64 MiB of data", 16 << 20, &bytes);
    verify_at_random("verify a 4 KiB block, 32 GiB of data", 8 << 30, &bytes);

    let spec = ChecksumSpec { volume_id: 1, width: 4, slab_bytes: 64 << 20 };
    let options =
        ChecksumOptions { cache_bytes: 1 << 20, window_pages: 256, prefer_newest: false, first_stamp: 1 };
    let sums = Checksums::new(&BufferPool::new(8 << 20), spec, options, Rc::new(EmptyPages));
    for (name, length, times) in [("64 KiB", 64 << 10, 8192_u64), ("256 MiB", 256 << 20, 2)] {
        let data = Buffer::from_bytes(&vec![0x5a; length]);
        let (median, least, most) = rounds(times * length as u64, || {
            for _ in 0..times {
                black_box(sums.compute(1, 0, black_box(&data)));
            }
        });
        println!(
            "bench checksums compute {name}: {:.1} GB/s ({:.1}..{:.1}), {ROUNDS} rounds",
            1.0 / median,
            1.0 / most,
            1.0 / least
        );
    }
}
