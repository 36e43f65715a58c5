//! The rules of the trait, each broken once.

use std::rc::Rc;

use crate::kit::{Executor, at_once};
use stripewise_drive::{
    Buffer, CheckedDrive, Drive, IoRequest, MemoryDrive, ModelDrive, ModelSpec, Operation, Segments,
};

const WRITE: Operation = Operation::Write { fua: false };

/// Over a drive that takes a while, so that requests are in flight together.
fn drive(executor: &Executor) -> Rc<CheckedDrive> {
    let context = executor.context();
    let memory = MemoryDrive::with_block("memory", 1 << 20, 4096);
    let spec = ModelSpec { latency_ns: 1000, bytes_per_second: 1 << 40, queue_depth: 8 };
    CheckedDrive::new(&context, ModelDrive::new(&context, "model", 1 << 20, spec, memory))
}

fn write(offset: u64, length: usize) -> IoRequest {
    IoRequest::write(offset, Buffer::from_bytes(&vec![1; length]), false)
}

fn read(offset: u64, length: usize) -> IoRequest {
    IoRequest::read(offset, Buffer::from_bytes(&vec![0; length]))
}

fn submit_all(requests: Vec<IoRequest>) {
    let executor = Executor::new();
    let drive = drive(&executor);
    let answers: Vec<_> = requests.into_iter().map(|request| drive.submit(request)).collect();
    executor.block_on(async move {
        for answer in answers {
            answer.await.unwrap();
        }
    });
}

#[test]
fn requests_within_the_rules_pass_and_are_counted() {
    let executor = Executor::new();
    let drive = drive(&executor);
    let inside = drive.clone();
    executor.block_on(async move {
        let together =
            [write(0, 4096), write(4096, 8192), read(12288, 4096), read(12288, 8192), IoRequest::flush()];
        let answers = together.map(|request| inside.submit(request));
        assert_eq!(inside.in_flight(), 5);
        for answer in answers {
            answer.await.unwrap();
        }
        inside.submit(write(0, 4096)).await.unwrap();
    });
    assert_eq!((drive.in_flight(), drive.requests()), (0, 6));
    assert_eq!((drive.most_in_flight(), drive.most_bytes_in_flight()), (5, 24576));
    let context = executor.context();
    let quick = CheckedDrive::new(&context, MemoryDrive::new("memory", 1 << 20));
    at_once(quick.submit(write(0, 512))).unwrap();
    assert_eq!(quick.in_flight(), 0);
}

#[test]
fn abandoned_request_stays_in_flight() {
    let executor = Executor::new();
    let drive = drive(&executor);
    drop(drive.submit(write(0, 4096)));
    assert_eq!(drive.in_flight(), 1);
    executor.run_until_idle();
    assert_eq!(drive.in_flight(), 0);
}

#[test]
#[should_panic(expected = "write of bytes 4096..8192 while a write of 0..8192 is in flight")]
fn a_write_over_a_write_in_flight() {
    submit_all(vec![write(0, 8192), write(4096, 4096)]);
}

#[test]
#[should_panic(expected = "while a discard of 0..8192 is in flight")]
fn write_over_a_discard_in_flight() {
    submit_all(vec![IoRequest::range(Operation::Discard, 0, 8192), write(4096, 4096)]);
}

#[test]
#[should_panic(expected = "beyond the end")]
fn beyond_the_end() {
    submit_all(vec![read(1 << 20, 4096)]);
}

#[test]
#[should_panic(expected = "not aligned to the drive's block size")]
fn off_the_blocks() {
    submit_all(vec![read(512, 4096)]);
}

#[test]
#[should_panic(expected = "is not aligned to 512 bytes")]
fn memory_off_its_alignment() {
    let buffer = Buffer::from_bytes(&[0; 8192]);
    submit_all(vec![IoRequest::read(0, buffer.slice(100..4196))]);
}

#[test]
#[should_panic(expected = "is not aligned to 512 bytes")]
fn memory_in_odd_pieces() {
    let buffer = Buffer::from_bytes(&[0; 4096]);
    let segments: Segments = [buffer.slice(0..1000), buffer.slice(1000..4096)].into_iter().collect();
    submit_all(vec![IoRequest::with_segments(WRITE, 0, segments)]);
}

#[test]
#[should_panic(expected = "memory and length of a write")]
fn memory_that_does_not_add_up() {
    submit_all(vec![IoRequest { length_bytes: 8192, ..write(0, 4096) }]);
}

#[test]
#[should_panic(expected = "a flush has no range")]
fn a_flush_of_a_range() {
    submit_all(vec![IoRequest::range(Operation::Flush, 0, 4096)]);
}
