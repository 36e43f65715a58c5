//! `drive show` on a drive whose first and last MiB hold any bytes, with the checksums of headers
//! and entries right, and the same drive opened as a pool, for reading only.
#![no_main]

use stripewise_drive::{BufferPool, MemoryDrive};
use stripewise_pool::{OpenMode, Pool, PoolOptions, fuzzing, inspect};
use stripewise_runtime::VirtualExecutor;

const DRIVE_BYTES: usize = 4 << 20;
const END_BYTES: usize = 1 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut image = vec![0; DRIVE_BYTES];
    let length = bytes.len().min(END_BYTES);
    image[..length].copy_from_slice(&bytes[..length]);
    image[DRIVE_BYTES - END_BYTES..][..length].copy_from_slice(&bytes[..length]);
    // Each slot records its own offset and the drive's size.
    for place in [0, END_BYTES / 2, DRIVE_BYTES - END_BYTES, DRIVE_BYTES - END_BYTES / 2] {
        image[place + 72..place + 80].copy_from_slice(&(place as u64).to_le_bytes());
        image[place + 64..place + 72].copy_from_slice(&(DRIVE_BYTES as u64).to_le_bytes());
        image[place + 4096 + 40..place + 4096 + 48].copy_from_slice(&(place as u64 + 4096).to_le_bytes());
    }
    fuzzing::reseal_slots(&mut image);
    let drive = MemoryDrive::new("drive", DRIVE_BYTES as u64);
    drive.poke(0, &image);
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(1 << 20));
    executor.block_on(async {
        let _ = inspect(&*drive).await;
        let drives = vec![drive.clone() as _];
        if let Ok(pool) =
            Pool::open(&context, &buffers, drives, OpenMode::ReadOnly, PoolOptions::default()).await
        {
            let _ = (pool.status(), pool.close().await);
        }
    });
});
