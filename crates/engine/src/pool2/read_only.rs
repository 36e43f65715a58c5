//! What a pool opened for reading only puts before each of its drives: no change gets through, whoever asks for it.

use std::rc::Rc;

use stripewise_drive::{Completion, Drive, DriveErrorKind, DriveInfo, IoRequest, Operation};

pub(crate) struct ReadOnly(Rc<dyn Drive>);

impl ReadOnly {
    pub fn over(drive: Rc<dyn Drive>) -> Rc<dyn Drive> {
        Rc::new(Self(drive))
    }
}

impl Drive for ReadOnly {
    fn info(&self) -> &DriveInfo {
        self.0.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        match request.operation {
            Operation::Read => self.0.submit(request),
            // Nothing was written, so nothing is to be made durable.
            Operation::Flush => Completion::ready(Ok(())),
            _ => {
                let label = &self.info().label;
                Completion::ready(Err(request.error(label, DriveErrorKind::Denied, None)))
            }
        }
    }
}
