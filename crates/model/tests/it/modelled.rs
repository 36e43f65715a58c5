//! Drives of the catalogue behind the `Drive` trait, in virtual time.

use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Drive, IoRequest, MemoryDrive, SplitMix64};
use stripewise_model::catalogue::{drive, drives};
use stripewise_model::modelled::ModelledDrive;
use stripewise_runtime::VirtualExecutor;

const CAPACITY_BYTES: u64 = 1 << 30;

#[test]
fn contents_survive_and_time_passes_as_modelled() {
    for entry in drives() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let memory = MemoryDrive::new("contents", CAPACITY_BYTES);
        let modelled: Rc<dyn Drive> = ModelledDrive::new(&context, "one", entry, memory, 1).unwrap();
        assert_eq!(modelled.info().capacity_bytes, CAPACITY_BYTES);
        let buffers = BufferPool::new(1 << 20);
        executor.block_on(async {
            let data = Buffer::from_bytes(&[7; 8192]);
            modelled.submit(IoRequest::write(4096, data, false)).await.unwrap();
            modelled.submit(IoRequest::flush()).await.unwrap();
            let flushed_ns = context.now_ns();
            let buffer = buffers.allocate(8192);
            modelled.submit(IoRequest::read(4096, buffer.clone())).await.unwrap();
            assert!(buffer.to_vec() == [7; 8192], "{}", entry.name);
            let read_ns = context.now_ns() - flushed_ns;
            assert!(flushed_ns > 20_000 && read_ns < 20_000_000, "{}: {flushed_ns} {read_ns}", entry.name);
        });
    }
}

#[test]
fn phantom_data_take_the_same_time_and_no_memory() {
    let elapsed_ns = |buffers: BufferPool| {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let memory = MemoryDrive::new("contents", CAPACITY_BYTES);
        let entry = drive("mg08ada400e").unwrap();
        let modelled = ModelledDrive::new(&context, "one", entry, memory, 1).unwrap();
        executor.block_on(async {
            for index in 0..64u64 {
                let offset_bytes = index * 7919 % 1000 * (1 << 20);
                modelled
                    .submit(IoRequest::write(offset_bytes, buffers.allocate(1 << 20), true))
                    .await
                    .unwrap();
            }
            context.now_ns()
        })
    };
    let phantom_ns = elapsed_ns(BufferPool::phantom());
    assert_eq!(phantom_ns, elapsed_ns(BufferPool::new(1 << 20)));
    assert!(phantom_ns > 64 * 4_000_000, "{phantom_ns}");
}

#[test]
fn a_drive_larger_than_its_entry_is_refused() {
    let executor = VirtualExecutor::new();
    let entry = drive("x25e").unwrap();
    let memory = MemoryDrive::new("contents", 1 << 40);
    let refused = ModelledDrive::new(&executor.context(), "one", entry, memory, 1).err().unwrap();
    assert!(refused.to_string().contains("x25e has 64000000000 bytes"), "{refused}");
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4096
}

#[test]
fn sixty_20_tb_drives_take_less_than_1_gib() {
    let before = resident_bytes();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let entry = drive("hdd20tb").unwrap();
    let capacity_bytes = entry.capacity_bytes() / 4096 * 4096;
    assert!(capacity_bytes >= 20_000_000_000_000);
    let drives: Vec<Rc<dyn Drive>> = (0..60)
        .map(|number| {
            let memory = MemoryDrive::new("contents", capacity_bytes);
            ModelledDrive::new(&context, "one", entry, memory, number).unwrap() as Rc<dyn Drive>
        })
        .collect();
    let most = executor.block_on(async {
        let mut random = SplitMix64::new(1);
        let mut most = 0;
        for _ in 0..50 {
            let mut requests = Vec::new();
            for drive in &drives {
                for turn in 0..32 {
                    let offset_bytes = random.below(capacity_bytes / 65_536) * 65_536;
                    let buffer = BufferPool::phantom().allocate(65_536);
                    requests.push(drive.submit(match turn % 2 {
                        0 => IoRequest::read(offset_bytes, buffer),
                        _ => IoRequest::write(offset_bytes, buffer, false),
                    }));
                }
            }
            for request in requests {
                request.await.unwrap();
            }
            most = resident_bytes().max(most);
        }
        most
    });
    // Other tests run in the same process, so this is an upper bound.
    let taken = most.saturating_sub(before);
    println!("{} MiB for 60 drives and 96000 requests", taken >> 20);
    assert!(taken < 1 << 30, "{taken} bytes");
}
