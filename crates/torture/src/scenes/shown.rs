//! A drive that is shown to the engine as something else than it is: shorter, or on the network. It
//! may also notice, from some moment on, that it was cut, as files do.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::{Completion, Drive, DriveErrorKind, DriveInfo, DriveKind, IoRequest, MemoryDrive};

pub(super) struct Shown {
    image: Rc<MemoryDrive>,
    info: DriveInfo,
    /// Every request is answered with that error.
    pub is_cut: Cell<bool>,
}

impl Shown {
    /// As a drive of this kind.
    pub(super) fn of_kind(image: &Rc<MemoryDrive>, kind: DriveKind) -> Rc<Self> {
        Self::with(image, DriveInfo { kind, ..image.info().clone() })
    }

    /// With this length. What lies beyond is zeros, as in a file that is extended by the next
    /// write.
    pub(super) fn of_length(image: &Rc<MemoryDrive>, capacity_bytes: u64) -> Rc<Self> {
        Self::with(image, DriveInfo { capacity_bytes, ..image.info().clone() })
    }

    fn with(image: &Rc<MemoryDrive>, info: DriveInfo) -> Rc<Self> {
        Rc::new(Self { image: image.clone(), info, is_cut: Cell::new(false) })
    }
}

impl Drive for Shown {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if self.is_cut.get() {
            return Completion::ready(Err(request.error(&self.info.label, DriveErrorKind::Cut, None)));
        }
        self.image.submit(request)
    }
}
