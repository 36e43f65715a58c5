//! A drive that keeps nothing: every request within it succeeds at once, and reads leave their
//! buffers as they are.
//!
//! For performance models, where contents do not matter, and to measure what the engine alone
//! costs. It lies about data by design and must never stand where contents are read back.

use std::rc::Rc;

use crate::completion::Completion;
use crate::drives::memory::memory_info;
use crate::request::{Drive, DriveInfo, IoRequest};

/// Accepts everything, keeps nothing.
pub struct NullDrive {
    info: DriveInfo,
}

impl NullDrive {
    /// A drive of `capacity_bytes` (a multiple of 512) with blocks of 512 bytes.
    pub fn new(label: &str, capacity_bytes: u64) -> Rc<Self> {
        Rc::new(Self { info: memory_info(label, capacity_bytes, 512) })
    }
}

impl Drive for NullDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        Completion::ready(request.check(&self.info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::error::DriveErrorKind;

    #[test]
    fn reads_leave_buffers_alone_and_the_end_is_kept() {
        let drive = NullDrive::new("null", 1 << 40);
        let buffer = Buffer::from_bytes(&[5; 512]);
        let Ok(result) = drive.submit(IoRequest::read(0, buffer.clone())).try_take() else {
            panic!("at once")
        };
        assert!(result.is_ok());
        assert_eq!(buffer.to_vec(), [5; 512]);
        let Ok(result) = drive.submit(IoRequest::read(1 << 40, buffer)).try_take() else { panic!("at once") };
        assert_eq!(result.unwrap_err().kind, DriveErrorKind::OutOfRange);
    }
}
