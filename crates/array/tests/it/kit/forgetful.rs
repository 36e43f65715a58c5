//! A drive that loses its cache when it refuses a flush, and accepts the next flush, as files do on
//! Linux after a write-back error.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Completion, CompletionSender, Drive, DriveErrorKind, DriveInfo, IoRequest, MemoryDrive, Operation,
    completion,
};

/// A drive with a cache that is lost when it refuses a flush.
pub struct Forgetful {
    pub inner: Rc<MemoryDrive>,
    info: DriveInfo,
    pub refuses_next: Cell<bool>,
    pub refused: Cell<u32>,
    /// Previous content of the range of each write since the last flush.
    pub cache: RefCell<Vec<(u64, Vec<u8>)>>,
    pub answers_late: Cell<bool>,
    /// Completions of executed writes that are not answered yet.
    pub unanswered: RefCell<Vec<CompletionSender>>,
}

impl Forgetful {
    pub fn over(inner: Rc<MemoryDrive>) -> Rc<Self> {
        let info = DriveInfo { volatile_cache: true, ..inner.info().clone() };
        Rc::new(Self {
            inner,
            info,
            refuses_next: Cell::new(false),
            refused: Cell::new(0),
            cache: RefCell::default(),
            answers_late: Cell::new(false),
            unanswered: RefCell::default(),
        })
    }

    /// Answers the executed writes, and later ones at once.
    pub fn answer(&self) {
        self.answers_late.set(false);
        for waiting in self.unanswered.take() {
            waiting.complete(Ok(()));
        }
    }

    /// The next flush that has anything to make durable is refused.
    pub fn refuse_next(&self) {
        self.refuses_next.set(true);
    }
}

impl Drive for Forgetful {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        match request.operation {
            Operation::Write { fua: false } | Operation::WriteZeroes | Operation::Discard => {
                let mut before = vec![0; request.length_bytes as usize];
                self.inner.peek(request.offset_bytes, &mut before);
                self.cache.borrow_mut().push((request.offset_bytes, before));
            }
            Operation::Flush => {
                let cache = self.cache.take();
                if !cache.is_empty() && self.refuses_next.replace(false) {
                    self.refused.set(self.refused.get() + 1);
                    for (at, before) in cache.into_iter().rev() {
                        self.inner.poke(at, &before);
                    }
                    let error = request.error(&self.info.label, DriveErrorKind::Medium, Some(5));
                    return Completion::ready(Err(error));
                }
            }
            _ => {}
        }
        let is_late = self.answers_late.get() && matches!(request.operation, Operation::Write { .. });
        let answer = self.inner.submit(request);
        if is_late {
            let (sender, late) = completion();
            self.unanswered.borrow_mut().push(sender);
            return late;
        }
        answer
    }
}
