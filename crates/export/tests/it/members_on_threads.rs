//! Members of one drive on two real threads, each with its own executor and ring.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use stripewise_array::{Class, Member, MemberAgain, MemberOptions};
use stripewise_drive::{
    Buffer, Completion, Drive, DriveErrorKind, DriveInfo, DriveKind, IoRequest, MemoryDrive, OpenAgain,
    Operation, PacedDrive, SplitMix64,
};
use stripewise_runtime::{CreateOptions, OpenError, OpenOptions, RealExecutor, create_drive_file};

const BLOCK: u64 = 4096;
const OPTIONS: MemberOptions =
    MemberOptions { timeout_ns: 30_000_000_000, max_read_errors: 64, merged_segments: 64, threads: 2 };

fn write(place: u64, value: u8) -> IoRequest {
    IoRequest::write(place * BLOCK, Buffer::from_bytes(&[value; BLOCK as usize]), false)
}

async fn value(member: &Rc<Member>, place: u64) -> u8 {
    let block = Buffer::from_bytes(&[0; BLOCK as usize]);
    member.submit(Class::Foreground, IoRequest::read(place * BLOCK, block.clone())).await.expect("read");
    block.to_vec()[0]
}

/// Runs `work` with the member on a thread of its own.
fn on_thread<T: Send + 'static>(
    again: MemberAgain,
    work: impl AsyncFnOnce(Rc<Member>) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        let executor = RealExecutor::new().expect("io_uring");
        executor.block_on(async {
            let member = again.open(&executor.context());
            let result = work(member.clone()).await;
            member.stop();
            member.release();
            result
        })
    })
}

#[test]
fn threads_share_a_file_and_its_end() {
    for folder in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let Ok(folder) = tempfile::tempdir_in(folder) else { continue };
        let path = folder.path().join("drive.img");
        create_drive_file(&path, &CreateOptions::new(1 << 20)).expect("room");
        let executor = RealExecutor::new().expect("io_uring");
        let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
        let member = Member::new(&executor.context(), drive, OPTIONS);
        let again = member.for_another_thread().expect("a file can be opened twice");
        let (is_written, is_cut) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let other = on_thread(again, {
            let (is_written, is_cut) = (is_written.clone(), is_cut.clone());
            async move |member| {
                for place in 0..16 {
                    member.submit(Class::Foreground, write(place, place as u8)).await.expect("written");
                }
                member.submit(Class::Upkeep, IoRequest::flush()).await.expect("flushed");
                is_written.wait();
                is_cut.wait();
                let error = member.submit(Class::Upkeep, IoRequest::flush()).await.expect_err("cut");
                error.kind
            }
        });
        executor.block_on(async {
            is_written.wait();
            for place in 0..16 {
                assert_eq!(value(&member, place).await, place as u8);
            }
            let counters = member.counters();
            assert_eq!((counters.written_bytes, counters.read_bytes), (16 * BLOCK, 16 * BLOCK));
            // The lock is there as long as one of them has the drive.
            member.stop();
            member.release();
            let reopened = executor.open_drive(&path, &OpenOptions::default());
            assert!(matches!(reopened, Err(OpenError::Busy { .. })), "{:?}", reopened.err());
            std::fs::File::options().write(true).open(&path).expect("a file").set_len(4096).expect("cut");
            is_cut.wait();
        });
        assert_eq!(other.join().expect("ends well"), DriveErrorKind::Cut);
        executor.open_drive(&path, &OpenOptions::default()).expect("no thread has it");
    }
}

#[test]
fn failure_on_one_thread_answers_the_other() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("drive.img");
    create_drive_file(&path, &CreateOptions::new(1 << 20)).expect("room");
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    let member = Member::new(&executor.context(), drive, OPTIONS);
    let (begun, begins) = mpsc::channel();
    let other = on_thread(member.for_another_thread().expect("a file"), async move |member| {
        begun.send(()).expect("awaited");
        // Until the other thread fails the drive.
        loop {
            if let Err(error) = member.submit(Class::Foreground, write(1, 1)).await {
                return (error.kind, member.failed(), Arc::as_ptr(&error.drive).addr());
            }
        }
    });
    begins.recv().expect("it begins");
    member.fail("a test");
    let (kind, reason, label) = other.join().expect("ends well");
    assert_eq!((kind, reason.as_deref()), (DriveErrorKind::Gone, Some("a test")));
    assert_eq!(label, Arc::as_ptr(member.label()).addr(), "one label for all threads");
}

#[test]
fn only_files_and_devices_are_for_several_threads() {
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    let memory = MemoryDrive::new("memory", 1 << 20);
    assert!(Member::new(&context, memory, OPTIONS).for_another_thread().is_none());
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.as_file().set_len(1 << 20).expect("room");
    let drive = executor.open_drive(file.path(), &OpenOptions::default()).expect("opens");
    assert!(Member::new(&context, drive.clone(), OPTIONS).for_another_thread().is_some());
    let paced = PacedDrive::new(&context, drive, "100MB/s,100iops".parse().expect("a pace"));
    assert!(Member::new(&context, paced, OPTIONS).for_another_thread().is_none());
}

/// Blocks of a drive with a cache that all threads share.
#[derive(Default)]
struct Blocks {
    durable: Vec<u64>,
    cached: Vec<u64>,
    random: SplitMix64Of,
    refused: u64,
}

struct SplitMix64Of(SplitMix64);

impl Default for SplitMix64Of {
    fn default() -> Self {
        Self(SplitMix64::new(1))
    }
}

/// A drive that refuses some flushes, and drops its cache then. A block begins with the number of
/// its write.
struct Forgetful {
    info: DriveInfo,
    blocks: Arc<Mutex<Blocks>>,
}

impl Forgetful {
    fn over(blocks: &Arc<Mutex<Blocks>>) -> Rc<dyn Drive> {
        let info = MemoryDrive::new("forgetful", 64 * BLOCK).info().clone();
        Rc::new(Self { info: DriveInfo { kind: DriveKind::Model, ..info }, blocks: blocks.clone() })
    }
}

impl Drive for Forgetful {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let mut blocks = self.blocks.lock().expect("unpoisoned");
        let place = (request.offset_bytes / BLOCK) as usize;
        match request.operation {
            Operation::Write { .. } => {
                let bytes = request.segments[0].to_vec();
                blocks.cached[place] = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
            }
            Operation::Flush if blocks.random.0.below(4) == 0 => {
                blocks.refused += 1;
                blocks.cached = blocks.durable.clone();
                let refused = request.error(&self.info.label, DriveErrorKind::Medium, Some(5));
                return Completion::ready(Err(refused));
            }
            Operation::Flush => blocks.durable = blocks.cached.clone(),
            _ => unreachable!("only writes and flushes"),
        }
        Completion::ready(Ok(()))
    }

    fn for_another_thread(&self) -> Option<OpenAgain> {
        let blocks = self.blocks.clone();
        Some(Box::new(move || Self::over(&blocks)))
    }
}

/// Writes and flushes; each flush that succeeds without a refusal since before the write must have
/// made it durable. Gives the number of these.
async fn write_and_flush(member: &Rc<Member>, place: usize, blocks: &Arc<Mutex<Blocks>>) -> u64 {
    let good = Cell::new(0);
    for version in 1..3000_u64 {
        let failures = member.flush_failures().count();
        let buffer = Buffer::from_bytes(&[0; BLOCK as usize]);
        buffer.with_mut(|bytes| bytes[..8].copy_from_slice(&version.to_le_bytes()));
        let written = IoRequest::write(place as u64 * BLOCK, buffer, false);
        member.submit(Class::Foreground, written).await.expect("written");
        if member.flush_since(failures).await.is_ok() {
            let durable = blocks.lock().expect("unpoisoned").durable[place];
            assert_eq!(durable, version, "acknowledged as durable, and lost");
            good.set(good.get() + 1);
        }
    }
    good.get()
}

#[test]
fn acknowledged_flushes_lose_nothing_on_two_threads() {
    let blocks = Blocks { durable: vec![0; 64], cached: vec![0; 64], ..Blocks::default() };
    let blocks = Arc::new(Mutex::new(blocks));
    let executor = RealExecutor::new().expect("io_uring");
    let member = Member::new(&executor.context(), Forgetful::over(&blocks), OPTIONS);
    let other = on_thread(member.for_another_thread().expect("for all threads"), {
        let blocks = blocks.clone();
        async move |member| write_and_flush(&member, 9, &blocks).await
    });
    let good = executor.block_on(write_and_flush(&member, 3, &blocks));
    let good = good + other.join().expect("ends well");
    let refused = blocks.lock().expect("unpoisoned").refused;
    assert_eq!(member.flush_failures().count(), refused, "each refusal is counted once");
    assert!(good > 0 && refused > 0, "{good} good flushes, {refused} refused");
}
