//! A wrapper for tests that panics when the engine breaks the rules of the [`Drive`] trait.
//!
//! No two writes in flight overlap (a read beside a write may see either); offsets and lengths are
//! whole blocks within the drive; the memory adds up and is aligned as direct I/O wants. Breaking
//! them is a bug, so it is an assertion, not an error. Put it directly under the engine, above any
//! wrapper that changes requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::completion::{Completion, completion};
use crate::context::Context;
use crate::operation::Operation;
use crate::request::{Drive, DriveInfo, IoRequest};

/// The least alignment of memory, and of the lengths of its pieces, in bytes.
const MEMORY_ALIGNMENT: usize = 512;

struct InFlight {
    id: u64,
    operation: Operation,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Watch {
    in_flight: RefCell<Vec<InFlight>>,
    next_id: Cell<u64>,
    bytes: Cell<u64>,
    most_requests: Cell<usize>,
    most_bytes: Cell<u64>,
    seen: Cell<u64>,
}

/// A drive that asserts the rules.
pub struct CheckedDrive {
    context: Context,
    inner: Rc<dyn Drive>,
    watch: Rc<Watch>,
}

impl CheckedDrive {
    /// Watches what is asked of `inner`.
    pub fn new(context: &Context, inner: Rc<dyn Drive>) -> Rc<Self> {
        Rc::new(Self { context: context.clone(), inner, watch: Rc::default() })
    }

    /// Requests seen so far.
    pub fn requests(&self) -> u64 {
        self.watch.seen.get()
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.watch.in_flight.borrow().len()
    }

    /// The most requests ever in flight at once.
    pub fn most_in_flight(&self) -> usize {
        self.watch.most_requests.get()
    }

    /// The most bytes ever in flight at once.
    pub fn most_bytes_in_flight(&self) -> u64 {
        self.watch.most_bytes.get()
    }
}

fn writes(operation: Operation) -> bool {
    match operation {
        Operation::Read | Operation::Flush => false,
        Operation::Write { .. } | Operation::Discard | Operation::WriteZeroes => true,
    }
}

impl Watch {
    fn enter(&self, request: &IoRequest, label: &str) -> u64 {
        let id = self.next_id.replace(self.next_id.get() + 1);
        let mut in_flight = self.in_flight.borrow_mut();
        let (start, end) = (request.offset_bytes, request.end_bytes());
        let clash = in_flight.iter().find(|other| {
            other.start < end && start < other.end && writes(request.operation) && writes(other.operation)
        });
        if let Some(other) = clash {
            panic!(
                "{label}: {} of bytes {start}..{end} while a {} of {}..{} is in flight",
                request.operation, other.operation, other.start, other.end
            );
        }
        in_flight.push(InFlight { id, operation: request.operation, start, end });
        self.bytes.set(self.bytes.get() + request.length_bytes);
        self.most_requests.set(self.most_requests.get().max(in_flight.len()));
        self.most_bytes.set(self.most_bytes.get().max(self.bytes.get()));
        id
    }

    fn leave(&self, id: u64) {
        let mut in_flight = self.in_flight.borrow_mut();
        let index = in_flight.iter().position(|request| request.id == id).expect("entered, and leaves once");
        let left = in_flight.swap_remove(index);
        self.bytes.set(self.bytes.get() - (left.end - left.start));
    }
}

fn assert_well_formed(request: &IoRequest, info: &DriveInfo) {
    if let Err(error) = request.check(info) {
        panic!("{error}");
    }
    let moves_memory = matches!(request.operation, Operation::Read | Operation::Write { .. });
    if !moves_memory {
        assert!(request.segments.is_empty(), "{}: a {} has no memory", info.label, request.operation);
        let flush = request.operation == Operation::Flush;
        assert!(!flush || request.length_bytes == 0, "{}: a flush has no range", info.label);
        return;
    }
    let memory: u64 = request.segments.iter().map(|segment| segment.len() as u64).sum();
    assert_eq!(memory, request.length_bytes, "{}: memory and length of a {}", info.label, request.operation);
    for segment in request.segments.iter().filter(|segment| !segment.is_phantom()) {
        let address = segment.as_ptr().expect("not a phantom").as_ptr() as usize;
        assert!(
            address.is_multiple_of(MEMORY_ALIGNMENT) && segment.len().is_multiple_of(MEMORY_ALIGNMENT),
            "{}: memory of a {} at {} is not aligned to {MEMORY_ALIGNMENT} bytes: {} bytes at {address:#x}",
            info.label,
            request.operation,
            request.offset_bytes,
            segment.len(),
        );
    }
}

impl Drive for CheckedDrive {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        assert_well_formed(&request, self.inner.info());
        let id = self.watch.enter(&request, &self.inner.info().label);
        self.watch.seen.set(self.watch.seen.get() + 1);
        match self.inner.submit(request).try_take() {
            Ok(result) => {
                self.watch.leave(id);
                Completion::ready(result)
            }
            Err(answer) => {
                let (sender, completion) = completion();
                let watch = self.watch.clone();
                self.context.spawn(async move {
                    let result = answer.await;
                    watch.leave(id);
                    sender.complete(result);
                });
                completion
            }
        }
    }
}
