//! A pool whose record has any numbers: sizes, rows, slabs, places, percentages, with lengths and
//! checksums right, the same on all drives. It is looked at, opened, written, checked and closed;
//! nothing may panic, hang or take memory out of proportion.
//!
//! The input is a list of changes: which number, and what it becomes.
#![no_main]

use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Drive, MemoryDrive};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolOptions, PoolSpec, VolumeSpec, fuzzing, inspect};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const DRIVE_BYTES: u64 = 14 * MIB;
/// In virtual time: whatever is asked of the pool ends before.
const LIMIT_NS: u64 = 48 * 3600 * 1_000_000_000;

thread_local! {
    static BASE: Vec<Vec<u8>> = make_base();
}

fn options() -> PoolOptions {
    PoolOptions { id_seed: Some(3), ..PoolOptions::default() }
}

/// Three drives of a pool with a volume that has all its room, and a thin one.
fn make_base() -> Vec<Vec<u8>> {
    let drives: Vec<_> =
        (0..3).map(|index| MemoryDrive::new(&format!("drive{index}"), DRIVE_BYTES)).collect();
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(4 << 20));
    executor.block_on(async {
        let all = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let spec = PoolSpec { name: "tank".into(), drives: all, options: options(), ..PoolSpec::default() };
        let pool = Pool::create(&context, &buffers, spec).await.expect("made");
        for (name, size_bytes, thin) in [("back", 4 * MIB, false), ("thin", 64 * MIB, true)] {
            let layout = LayoutSpec::parse("raid5").expect("a layout");
            let spec = VolumeSpec { size_bytes: Some(size_bytes), thin, ..VolumeSpec::new(name, layout) };
            let volume = pool.create_volume(spec).await.expect("made");
            volume.write(0, Buffer::from_bytes(&[7; 64 << 10]), false).await.expect("written");
            volume.flush().await.expect("flushed");
        }
        pool.close().await.expect("closed");
    });
    let bytes_of = |drive: &Rc<MemoryDrive>| {
        let mut bytes = vec![0; DRIVE_BYTES as usize];
        drive.peek(0, &mut bytes);
        bytes
    };
    drives.iter().map(bytes_of).collect()
}

/// New values of numbers, by the index of the number.
fn changes(input: &[u8]) -> BTreeMap<usize, u64> {
    let change = |bytes: &[u8]| {
        let value = u64::from_le_bytes(bytes[2..10].try_into().expect("eight bytes"));
        (usize::from(u16::from_le_bytes([bytes[0], bytes[1]]) % 512), value)
    };
    input.chunks_exact(10).map(change).collect()
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let changes = changes(input);
    let drives: Vec<Rc<MemoryDrive>> = BASE.with(|base| {
        let changed = base.iter().enumerate().map(|(index, bytes)| {
            let (mut bytes, mut at) = (bytes.clone(), 0);
            fuzzing::change_numbers(&mut bytes, |number| {
                at += 1;
                changes.get(&(at - 1)).copied().unwrap_or(number)
            });
            let drive = MemoryDrive::new(&format!("drive{index}"), DRIVE_BYTES);
            drive.poke(0, &bytes);
            drive
        });
        changed.collect()
    });
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(4 << 20));
    executor.block_on(async {
        let used = std::pin::pin!(use_pool(&context, &buffers, &drives));
        context.time_limit_ns(LIMIT_NS, used).await.expect("it ends");
    });
});

async fn use_pool(context: &stripewise_drive::Context, buffers: &BufferPool, drives: &[Rc<MemoryDrive>]) {
    let _ = inspect(&*drives[0]).await;
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let all = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let Ok(pool) = Pool::open(context, buffers, all, mode, options()).await else { return };
        let _ = pool.status();
        for name in ["back", "thin"] {
            let Ok(volume) = pool.volume(name) else { continue };
            let _ = volume.read(0, volume.capacity_bytes().min(64 << 10) as usize).await;
            if mode == OpenMode::ReadWrite && volume.capacity_bytes() >= 16_384 {
                let _ = volume.write(4096, Buffer::from_bytes(&[9; 8192]), true).await;
            }
        }
        if mode == OpenMode::ReadWrite {
            pool.start_jobs();
            let _ = pool.scrub().await;
            let _ = pool.wait(JobKind::Scrub).await;
        }
        let _ = pool.close().await;
    }
}
