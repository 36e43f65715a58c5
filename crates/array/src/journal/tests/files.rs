//! Areas in files are preallocated before use; areas on other drives are not.

use std::rc::Rc;

use stripewise_drive::{Completion, Drive, DriveInfo, DriveKind, IoRequest, MemoryDrive};
use stripewise_runtime::VirtualExecutor;

use super::{BASE, area, create};

/// A memory drive that reports another kind.
struct MemoryOfKind {
    info: DriveInfo,
    memory: Rc<MemoryDrive>,
}

impl Drive for MemoryOfKind {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.memory.submit(request)
    }
}

/// Number of bytes after the headers that a new journal has overwritten.
fn overwritten(kind: DriveKind, bytes: u64) -> u64 {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let memory = MemoryDrive::new("m", BASE + bytes + 4096);
        memory.poke(0, &vec![0xff; (BASE + bytes + 4096) as usize]);
        let info = DriveInfo { kind, ..memory.info().clone() };
        let drive = Rc::new(MemoryOfKind { info, memory: memory.clone() });
        let journal = create(&context, vec![area(&context, 0, drive, bytes)], 1, &Rc::default()).await;
        journal.close().await.expect("closing");
        let read = |at: u64, length: u64| {
            let mut bytes = vec![0; length as usize];
            memory.peek(at, &mut bytes);
            bytes
        };
        assert!(read(BASE + bytes, 4096).iter().all(|byte| *byte == 0xff), "behind the area");
        assert!(read(0, BASE).iter().all(|byte| *byte == 0xff), "in front of the area");
        read(BASE + 8192, bytes - 8192).iter().filter(|byte| **byte != 0xff).count() as u64
    })
}

#[test]
fn file_area_is_overwritten_once_before_use() {
    // Not a multiple of the write size.
    let bytes = (2 << 20) + (256 << 10);
    assert_eq!(overwritten(DriveKind::File, bytes), bytes - 8192);
    assert_eq!(overwritten(DriveKind::BlockDevice, bytes), 0);
}
