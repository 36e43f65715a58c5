//! One pass through a whole target: filling it with verifiable contents, and comparing every byte
//! with them.
//!
//! Both keep a fixed number of large requests in flight. Expects write errors (the fill stops and
//! reports them) and read errors (read again block by block, to report the exact extent of the
//! damage).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use stripewise_drive::Context;

use crate::evaluate::first_of;
use crate::loads::contents::{BLOCK_BYTES, Contents, Verification};
use crate::loads::target::Target;

/// Parameters of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Requests in flight.
    pub depth: u32,
    /// Length of a request; a multiple of 4 KiB.
    pub request_bytes: u64,
}

/// A write of a fill failed, or its data could not be made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filling the array failed at {offset_bytes}: {why}")]
pub struct FillError {
    /// Offset in bytes from the target's start.
    pub offset_bytes: u64,
    /// Message of the target.
    pub why: String,
}

/// Interval of looks at a sweep.
const LOOK_NS: u64 = 100_000_000;

/// Performs `sweep` and passes the bytes done to `look` at short intervals. Returns `None` once
/// `look` returns false.
pub async fn watched<R>(
    context: &Context,
    done_bytes: &Cell<u64>,
    look: impl Fn(u64) -> bool,
    sweep: impl Future<Output = R>,
) -> Option<R> {
    let watch = async {
        while look(done_bytes.get()) {
            context.sleep_ns(LOOK_NS).await;
        }
        None
    };
    first_of(async { Some(sweep.await) }, watch).await
}

/// Next range of a sweep, shared by its tasks.
struct Cursor {
    at: Cell<u64>,
    end: u64,
    step: u64,
}

impl Cursor {
    fn new(end: u64, step: u64) -> Rc<Self> {
        assert!(
            step > 0 && step.is_multiple_of(BLOCK_BYTES as u64),
            "a sweep's step must be whole blocks of 4 KiB"
        );
        Rc::new(Self { at: Cell::new(0), end, step })
    }

    fn take(&self) -> Option<(u64, u64)> {
        let offset = self.at.get();
        let length = self.step.min(self.end - offset);
        self.at.set(offset + length);
        (length > 0).then_some((offset, length))
    }

    fn stop(&self) {
        self.at.set(self.end);
    }
}

/// Writes the current phase of `contents` over all of `target` and flushes. `done_bytes` reports
/// progress. Returns the duration in nanoseconds of the context's clock.
pub async fn fill<T: Target>(
    context: &Context,
    target: &T,
    contents: &Rc<Contents>,
    options: SweepOptions,
    done_bytes: &Rc<Cell<u64>>,
) -> Result<u64, FillError> {
    let start_ns = context.now_ns();
    let cursor = Cursor::new(contents.covered_bytes(), options.request_bytes);
    let failed: Rc<RefCell<Option<FillError>>> = Rc::default();
    let tasks: Vec<_> = (0..options.depth.max(1))
        .map(|_| {
            let (target, contents, cursor) = (target.clone(), contents.clone(), cursor.clone());
            let (failed, done_bytes) = (failed.clone(), done_bytes.clone());
            context.spawn(async move {
                while let Some((offset_bytes, length)) = cursor.take() {
                    let buffer = target.buffers().allocate(length as usize);
                    contents.write_begins(offset_bytes, &buffer);
                    let result = target.write(offset_bytes, buffer).await;
                    contents.write_ended(offset_bytes, length as usize, result.is_ok());
                    if let Err(error) = result {
                        cursor.stop();
                        failed.borrow_mut().get_or_insert(FillError { offset_bytes, why: error.to_string() });
                    }
                    done_bytes.set(done_bytes.get() + length);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    if let Some(error) = failed.take() {
        return Err(error);
    }
    target.flush().await.map_err(|error| FillError { offset_bytes: 0, why: error.to_string() })?;
    Ok(context.now_ns() - start_ns)
}

/// Reads all of `target` and compares every byte with `contents`. No writes may be in flight.
/// `done_bytes` reports progress.
pub async fn verify<T: Target>(
    context: &Context,
    target: &T,
    contents: &Rc<Contents>,
    options: SweepOptions,
    done_bytes: &Rc<Cell<u64>>,
) -> Verification {
    let start_ns = context.now_ns();
    let cursor = Cursor::new(contents.covered_bytes(), options.request_bytes);
    let report: Rc<RefCell<Verification>> = Rc::default();
    let tasks: Vec<_> = (0..options.depth.max(1))
        .map(|_| {
            let (target, contents, cursor) = (target.clone(), contents.clone(), cursor.clone());
            let (report, done_bytes) = (report.clone(), done_bytes.clone());
            context.spawn(async move {
                while let Some((offset_bytes, length)) = cursor.take() {
                    match target.read(offset_bytes, length).await {
                        Ok(buffer) => contents.check(offset_bytes, &buffer, &mut report.borrow_mut()),
                        Err(_) => check_by_block(&target, &contents, offset_bytes, length, &report).await,
                    }
                    done_bytes.set(done_bytes.get() + length);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let mut report = report.take();
    report.places.sort_by_key(|place| place.offset_bytes);
    report.seconds = (context.now_ns() - start_ns) as f64 / 1e9;
    report
}

async fn check_by_block<T: Target>(
    target: &T,
    contents: &Contents,
    offset_bytes: u64,
    length: u64,
    report: &RefCell<Verification>,
) {
    for offset_bytes in (offset_bytes..offset_bytes + length).step_by(BLOCK_BYTES) {
        match target.read(offset_bytes, BLOCK_BYTES as u64).await {
            Ok(buffer) => contents.check(offset_bytes, &buffer, &mut report.borrow_mut()),
            Err(error) => {
                let why = error.to_string();
                contents.unreadable(offset_bytes, BLOCK_BYTES, &why, &mut report.borrow_mut());
            }
        }
    }
}
