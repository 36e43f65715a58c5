//! A pool that was left in the middle of things, with any bytes in its metadata: superblocks,
//! region maps, checksum pages and the journal, their own checksums right. It is opened, read,
//! written, checked and closed; nothing may panic or hang.
//!
//! The input is a list of changes: which block of those that hold something, of one drive or of all
//! that have the same there, from where in it, and the bytes.
#![no_main]

use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Drive, MemoryDrive};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolOptions, PoolSpec, VolumeSpec, fuzzing};
use stripewise_layout::LayoutSpec;
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const DRIVE_BYTES: u64 = 14 * MIB;
const VOLUME_BYTES: u64 = 4 * MIB;
const SLOTS_BYTES: u64 = MIB;
const LONGEST_CHANGE: usize = 32;
/// In virtual time: whatever is asked of the pool ends before.
const LIMIT_NS: u64 = 48 * 3600 * 1_000_000_000;

struct Base {
    drives: Vec<Rc<MemoryDrive>>,
    /// Blocks that hold something and are changed together: drive and offset.
    groups: Vec<Vec<(usize, u64)>>,
}

thread_local! {
    static BASE: Base = make_base();
}

fn options() -> PoolOptions {
    PoolOptions { id_seed: Some(3), ..PoolOptions::default() }
}

fn as_drives(drives: &[Rc<MemoryDrive>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

/// Three drives of a pool with a volume written back and one thin, dropped without being closed.
fn make_base() -> Base {
    let drives: Vec<_> =
        (0..3).map(|index| MemoryDrive::new(&format!("drive{index}"), DRIVE_BYTES)).collect();
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(4 << 20));
    executor.block_on(async {
        let spec = PoolSpec {
            name: "tank".into(),
            drives: as_drives(&drives),
            options: options(),
            ..PoolSpec::default()
        };
        let pool = Pool::create(&context, &buffers, spec).await.expect("made");
        let layout =
            LayoutSpec { interleave_bytes: Some(16 << 10), ..LayoutSpec::parse("raid5").expect("a layout") };
        let back = VolumeSpec {
            write_back: Some(true),
            size_bytes: Some(VOLUME_BYTES),
            ..VolumeSpec::new("back", layout)
        };
        let volume = pool.create_volume(back).await.expect("made");
        let data = |seed: u8, length: usize| Buffer::from_bytes(&vec![seed; length]);
        volume.write(0, data(1, 300 << 10), false).await.expect("written");
        volume.flush().await.expect("flushed");
        for index in 0..6u64 {
            volume.write(index * 20_480, data(2 + index as u8, 8192), false).await.expect("written");
        }
        volume.flush().await.expect("flushed");
    });
    let groups = groups_of(&drives);
    Base { drives, groups }
}

fn groups_of(drives: &[Rc<MemoryDrive>]) -> Vec<Vec<(usize, u64)>> {
    let mut groups: BTreeMap<Vec<u8>, Vec<(usize, u64)>> = BTreeMap::new();
    for (index, drive) in drives.iter().enumerate() {
        for at in (0..DRIVE_BYTES).step_by(BLOCK) {
            let mut block = vec![0; BLOCK];
            drive.peek(at, &mut block);
            if block.iter().all(|&byte| byte == 0) {
                continue;
            }
            // Blocks of superblocks say where they are: those at the same place in their slot
            // belong together.
            let key = match at {
                _ if at < SLOTS_BYTES => at.to_le_bytes().to_vec(),
                _ if at >= DRIVE_BYTES - SLOTS_BYTES => {
                    (at - (DRIVE_BYTES - SLOTS_BYTES)).to_le_bytes().to_vec()
                }
                _ => block,
            };
            groups.entry(key).or_default().push((index, at));
        }
    }
    groups.into_values().collect()
}

fn change(base: &Base, mut input: &[u8]) -> Vec<Rc<MemoryDrive>> {
    let copy = |drive: &Rc<MemoryDrive>| drive.duplicate(&drive.info().label);
    let drives: Vec<_> = base.drives.iter().map(copy).collect();
    let mut slots_changed = [false; 3];
    while let Some((head, rest)) = input.split_first_chunk::<5>() {
        let group = &base.groups[usize::from(u16::from_le_bytes([head[0], head[1]])) % base.groups.len()];
        let from = usize::from(u16::from_le_bytes([head[2], head[3]])) % BLOCK;
        let length = (usize::from(head[4] & 31) + 1).min(LONGEST_CHANGE).min(BLOCK - from).min(rest.len());
        let (bytes, behind) = rest.split_at(length);
        input = behind;
        // All that are alike, or one of them.
        let only = (head[4] & 0x80 != 0).then_some(usize::from(head[4] >> 5 & 3) % group.len());
        for (index, &(drive, at)) in group.iter().enumerate() {
            if only.is_some_and(|only| only != index) {
                continue;
            }
            let mut block = vec![0; BLOCK];
            drives[drive].peek(at, &mut block);
            block[from..from + length].copy_from_slice(bytes);
            fuzzing::reseal_page(&mut block);
            drives[drive].poke(at, &block);
            slots_changed[drive] |= at < SLOTS_BYTES || at >= DRIVE_BYTES - SLOTS_BYTES;
        }
    }
    for (drive, _) in drives.iter().zip(slots_changed).filter(|(_, changed)| *changed) {
        let mut image = vec![0; DRIVE_BYTES as usize];
        drive.peek(0, &mut image);
        fuzzing::reseal_slots(&mut image);
        drive.poke(0, &image[..SLOTS_BYTES as usize]);
        let end = DRIVE_BYTES - SLOTS_BYTES;
        drive.poke(end, &image[end as usize..]);
    }
    drives
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let drives = BASE.with(|base| change(base, input));
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(4 << 20));
    executor.block_on(async {
        let used = std::pin::pin!(use_pool(&context, &buffers, &drives));
        context.time_limit_ns(LIMIT_NS, used).await.expect("it ends");
    });
});

async fn use_pool(context: &stripewise_drive::Context, buffers: &BufferPool, drives: &[Rc<MemoryDrive>]) {
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let Ok(pool) = Pool::open(context, buffers, as_drives(drives), mode, options()).await else { return };
        let _ = pool.status();
        if let Ok(volume) = pool.volume("back") {
            let most = volume.capacity_bytes().min(VOLUME_BYTES);
            for at in (0..most).step_by(64 << 10) {
                let _ = volume.read(at, (most - at).min(64 << 10) as usize).await;
            }
            if mode == OpenMode::ReadWrite && most >= 16_384 {
                let _ = volume.write(4096, Buffer::from_bytes(&[9; 8192]), true).await;
                let _ = volume.flush().await;
                pool.start_jobs();
                let _ = pool.scrub().await;
                let _ = pool.wait(JobKind::Scrub).await;
                let _ = pool.status();
            }
        }
        let _ = pool.close().await;
    }
}
