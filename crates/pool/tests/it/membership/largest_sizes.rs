//! Sizes beyond all drives and volumes: refused in words that say so.

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Completion, Drive, DriveInfo, IoRequest, MemoryDrive};
use stripewise_pool::{PoolError, Role};

/// A small drive that says that it has another size.
struct Claiming(Rc<MemoryDrive>, DriveInfo);

impl Claiming {
    fn drive(label: &str, capacity_bytes: u64) -> Rc<dyn Drive> {
        let drive = MemoryDrive::new(label, 16 * MIB);
        let info = DriveInfo { capacity_bytes, ..drive.info().clone() };
        Rc::new(Self(drive, info))
    }
}

impl Drive for Claiming {
    fn info(&self) -> &DriveInfo {
        &self.1
    }

    fn submit(&self, request: IoRequest) -> Completion {
        self.0.submit(request)
    }
}

#[test]
fn a_drive_beyond_the_limit_is_too_large() {
    let life = Life::new();
    life.run(async {
        let huge: Vec<Rc<dyn Drive>> = vec![Claiming::drive("huge", 1 << 63)];
        let error = life.create(&huge, &[]).await.map(drop).expect_err("refused");
        assert!(matches!(error, PoolError::DriveTooLarge { .. }), "{error}");
        assert!(error.to_string().contains("huge is too large: it has 9223372036854775808 bytes"), "{error}");
        let pool = life.create(&as_drives(&memory_drives(2, 16)), &[]).await.expect("made");
        let error = pool.add(huge[0].clone(), Role::Data, false).await.expect_err("refused");
        assert!(matches!(error, PoolError::DriveTooLarge { .. }), "{error}");
        pool.close().await.expect("closed");
    });
}

#[test]
fn no_size_of_a_volume_overflows() {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&memory_drives(3, 16)), &[]).await.expect("made");
        let volume = pool.create_volume(volume_spec("data", "raid5", Some(4 * MIB))).await.expect("made");
        for size in [0, (1 << 60) + 1, 1 << 63, u64::MAX - 4095, u64::MAX] {
            let error = pool.resize_volume("data", size).await.expect_err("refused");
            assert!(matches!(error, PoolError::BadSetting(_)), "{size}: {error}");
            assert!(error.to_string().contains(&size.to_string()), "{size}: {error}");
        }
        let error = pool.resize_volume("data", 1 << 60).await.expect_err("no room");
        assert!(matches!(error, PoolError::NoSpace { .. }), "{error}");
        assert_eq!(volume.capacity_bytes(), 4 * MIB);
        pool.close().await.expect("closed");
    });
}
