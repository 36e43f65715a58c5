//! The modelled drive against its formula, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::kit::{Executor, pattern};
use stripewise_drive::{
    Buffer, Context, Drive, DriveErrorKind, DriveKind, IoRequest, MemoryDrive, ModelDrive, ModelSpec,
    NullDrive, Operation,
};

const SPEC: ModelSpec = ModelSpec { latency_ns: 100_000, bytes_per_second: 1_000_000_000, queue_depth: 4 };

fn phantom_drive(context: &Context, spec: ModelSpec) -> Rc<ModelDrive> {
    ModelDrive::new(context, "model", 1 << 40, spec, NullDrive::new("null", 1 << 40))
}

/// When each of the requests, submitted together, is answered.
fn answer_times(spec: ModelSpec, requests: Vec<IoRequest>) -> Vec<u64> {
    let executor = Executor::new();
    let context = executor.context();
    let drive = phantom_drive(&context, spec);
    let times = Rc::new(RefCell::new(vec![0; requests.len()]));
    for (index, request) in requests.into_iter().enumerate() {
        let (answer, times, clock) = (drive.submit(request), times.clone(), context.clone());
        context.spawn(async move {
            answer.await.unwrap();
            times.borrow_mut()[index] = clock.now_ns();
        });
    }
    executor.run_until_idle();
    times.take()
}

fn read(bytes: usize) -> IoRequest {
    IoRequest::read(0, Buffer::phantom(bytes))
}

#[test]
fn one_request_takes_latency_and_transfer() {
    assert_eq!(answer_times(SPEC, vec![read(1_000_448)]), [100_000 + 1_000_448]);
}

#[test]
fn latencies_overlap_and_transfers_are_serial() {
    // Each transfer takes 1024 ns of the link; the fifth enters when the first has ended.
    let times = answer_times(SPEC, (0..6).map(|_| read(1024)).collect());
    assert_eq!(times, [101_024, 102_048, 103_072, 104_096, 101_024 + 101_024, 102_048 + 101_024]);
    let deep = ModelSpec { queue_depth: 1000, ..SPEC };
    let times = answer_times(deep, (0..1000).map(|_| read(1 << 20)).collect());
    assert_eq!(*times.last().unwrap(), 100_000 + (1000 << 20), "bound by the link");
    let shallow = ModelSpec { queue_depth: 1, ..SPEC };
    let times = answer_times(shallow, (0..10).map(|_| read(512)).collect());
    assert_eq!(*times.last().unwrap(), 10 * 100_512, "bound by the latency");
}

#[test]
fn flush_ends_after_earlier_writes() {
    let times = answer_times(
        SPEC,
        vec![
            IoRequest::write(0, Buffer::phantom(1 << 20), false),
            IoRequest::flush(),
            IoRequest::range(Operation::Discard, 0, 1 << 30),
            IoRequest::range(Operation::WriteZeroes, 0, 1 << 30),
        ],
    );
    assert_eq!(times, [100_000 + (1 << 20); 4]);
    assert_eq!(answer_times(SPEC, vec![IoRequest::flush()]), [100_000]);
}

#[test]
fn an_idle_drive_forgets_the_past() {
    let executor = Executor::new();
    let context = executor.context();
    let drive = phantom_drive(&context, SPEC);
    let clock = context.clone();
    executor.block_on(async move {
        for _ in 0..10 {
            drive.submit(read(512)).await.unwrap();
        }
        clock.sleep_ns(5_000_000).await;
        let start_ns = clock.now_ns();
        drive.submit(read(512)).await.unwrap();
        assert_eq!(clock.now_ns() - start_ns, 100_512);
    });
}

#[test]
fn rates_over_a_long_run_are_exact() {
    // 3 GB/s does not divide a request's bytes into whole nanoseconds.
    let spec = ModelSpec { latency_ns: 80_000, bytes_per_second: 3_000_000_000, queue_depth: 32 };
    let executor = Executor::new();
    let context = executor.context();
    let drive = phantom_drive(&context, spec);
    let left = Rc::new(Cell::new(30_000));
    for _ in 0..32 {
        let (drive, left) = (drive.clone(), left.clone());
        context.spawn(async move {
            while left.get() > 0 {
                left.set(left.get() - 1);
                drive.submit(read(131_072)).await.unwrap();
            }
        });
    }
    executor.run_until_idle();
    assert_eq!(context.now_ns(), 80_000 + 30_000 * 131_072 / 3);
}

#[test]
fn contents_are_kept_by_the_drive_beneath() {
    let executor = Executor::new();
    let context = executor.context();
    let memory = MemoryDrive::new("memory", 1 << 20);
    let drive = ModelDrive::new(&context, "model", 1 << 19, SPEC, memory);
    assert_eq!((drive.info().kind, drive.info().capacity_bytes), (DriveKind::Model, 1 << 19));
    executor.block_on(async move {
        let written = pattern(8192, 1);
        drive.submit(IoRequest::write(4096, Buffer::from_bytes(&written), true)).await.unwrap();
        let buffer = Buffer::from_bytes(&[0; 8192]);
        drive.submit(IoRequest::read(4096, buffer.clone())).await.unwrap();
        assert_eq!(buffer.to_vec(), written);
        let beyond = drive.submit(IoRequest::read(1 << 19, buffer)).await.unwrap_err();
        assert_eq!((beyond.kind, &*beyond.drive), (DriveErrorKind::OutOfRange, "model"));
    });
    executor.run_until_idle();
    assert_eq!(executor.tasks(), 0, "nothing is left running once the drive is dropped");
}
