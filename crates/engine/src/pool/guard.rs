//! What stands between a member's queue and its drive: for a pool opened for reading only it lets no change through, and
//! when a drive is excluded it lets go of it, so that the drive can be closed, pulled, or given back under the same path.

use std::cell::RefCell;
use std::rc::Rc;

use stripewise_drive::{Completion, Drive, DriveErrorKind, DriveInfo, IoRequest, Operation};

pub(crate) struct Guard {
    info: DriveInfo,
    drive: RefCell<Option<Rc<dyn Drive>>>,
    read_only: bool,
}

impl Guard {
    pub fn new(drive: Rc<dyn Drive>, read_only: bool) -> Rc<Self> {
        Rc::new(Self { info: drive.info().clone(), drive: RefCell::new(Some(drive)), read_only })
    }

    /// Lets go of the drive: whoever asks from now on is told that it is gone.
    pub fn release(&self) {
        // Dropped outside the borrow: closing a drive may run code of its own.
        let drive = self.drive.borrow_mut().take();
        drop(drive);
    }

    pub fn is(&self, other: &Rc<dyn Drive>) -> bool {
        self.drive.borrow().as_ref().is_some_and(|drive| Rc::ptr_eq(drive, other))
    }
}

impl Drive for Guard {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if self.read_only {
            match request.operation {
                Operation::Read => {}
                // Nothing was written, so nothing is to be made durable.
                Operation::Flush => return Completion::ready(Ok(())),
                _ => return refused(&request, &self.info, DriveErrorKind::Denied),
            }
        }
        match &*self.drive.borrow() {
            Some(drive) => drive.submit(request),
            None => refused(&request, &self.info, DriveErrorKind::Gone),
        }
    }
}

fn refused(request: &IoRequest, info: &DriveInfo, kind: DriveErrorKind) -> Completion {
    Completion::ready(Err(request.error(&info.label, kind, None)))
}
