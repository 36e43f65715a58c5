//! Memory and eventfds that another process shares, and sockets that pass descriptors. The other
//! process is this one.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::pin;

use stripewise_runtime::{RealExecutor, SharedMemory, make_event_file, make_shared_file};

const PAGE: usize = 4096;

fn in_memory(pages: usize) -> File {
    let file = tempfile::tempfile_in("/dev/shm").expect("a file in tmpfs");
    file.set_len((pages * PAGE) as u64).expect("extended");
    file
}

#[test]
fn shared_memory_is_that_of_the_file() {
    let file: OwnedFd = make_shared_file(3 * PAGE as u64).expect("a memfd");
    let all = SharedMemory::new(&file, 0, 3 * PAGE as u64).expect("mapped");
    let part = SharedMemory::new(&file, PAGE as u64 + 8, 16).expect("mapped");
    all.write(PAGE + 8, &[7; 16]);
    part.store_u16(2, 0x102);
    let mut bytes = [0; 4];
    part.read(0, &mut bytes);
    assert_eq!((bytes, part.load_u16(2), part.len()), ([7, 7, 2, 1], 0x102, 16));
    File::from(file).set_len(PAGE as u64).expect_err("its size cannot be changed");
}

#[test]
fn shared_memory_outside_its_file_is_refused() {
    let file = in_memory(2);
    for (offset, length) in
        [(0, 0), (0, 2 * PAGE as u64 + 1), (2 * PAGE as u64, 1), (u64::MAX, 2), (8, u64::MAX)]
    {
        let refused = SharedMemory::new(&file, offset, length).err().expect("outside");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{offset} {length}: {refused}");
    }
    let program = File::open(std::env::current_exe().expect("this program")).expect("opened");
    let refused = SharedMemory::new(&program, 0, 1).err().expect("a file on a disk");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let huge = in_memory(1);
    huge.set_len(100 << 40).expect("a sparse file");
    let refused = SharedMemory::new(&huge, 0, 100 << 40).err().expect("beyond the limit");
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn truncated_memory_becomes_zeros() {
    let (file, other) = (in_memory(4), in_memory(1));
    let memory = SharedMemory::new(&file, 0, 4 * PAGE as u64).expect("mapped");
    let stays = SharedMemory::new(&other, 0, PAGE as u64).expect("mapped");
    memory.write(0, &[1; 4 * PAGE]);
    stays.write(0, &[2; PAGE]);
    file.set_len(PAGE as u64).expect("truncated");
    let mut bytes = vec![9; 4 * PAGE];
    memory.read(0, &mut bytes[..PAGE]);
    assert!(!memory.is_lost() && bytes[..PAGE] == [1; PAGE], "this part is still there");
    memory.read(0, &mut bytes);
    assert!(memory.is_lost() && bytes[PAGE..].iter().all(|byte| *byte == 0));
    memory.write(3 * PAGE, &[3; PAGE]);
    assert_eq!(memory.load_u16(3 * PAGE), 0x303, "it can still be used");
    stays.read(0, &mut bytes[..PAGE]);
    assert!(!stays.is_lost() && bytes[..PAGE] == [2; PAGE]);
    drop(memory);
    // The guard is free for another file, which is not lost.
    let file = in_memory(1);
    assert!(!SharedMemory::new(&file, 0, PAGE as u64).expect("mapped").is_lost());
}

#[test]
fn eventfds_are_waited_for_and_signalled() {
    let executor = RealExecutor::new().expect("io_uring");
    let (network, context) = (executor.network(), executor.context());
    executor.block_on(async {
        let file = make_event_file().expect("an eventfd");
        let there = network.event_file(file.try_clone().expect("a descriptor")).expect("an eventfd");
        let here = network.event_file(file).expect("an eventfd");
        for _ in 0..3 {
            there.signal().await.expect("signalled");
            there.signal().await.expect("signalled");
            here.wait().await.expect("one wait takes both");
        }
        let limited = context.time_limit_ns(1_000_000, pin!(here.wait())).await;
        limited.expect_err("nothing signals it");
    });
}

#[test]
fn a_full_eventfd_keeps_no_thread_waiting() {
    let executor = RealExecutor::new().expect("io_uring");
    let (network, context) = (executor.network(), executor.context());
    executor.block_on(async {
        let file = make_event_file().expect("an eventfd");
        let full = File::from(file.try_clone().expect("a descriptor"));
        (&full).write_all(&(u64::MAX - 1).to_ne_bytes()).expect("counted");
        let event = network.event_file(file).expect("an eventfd");
        let limited = context.time_limit_ns(1_000_000, pin!(event.signal())).await;
        limited.expect_err("it waits, and can be dropped");
        event.wait().await.expect("its count is there");
    });
}

#[test]
fn other_files_are_no_eventfds() {
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    let (socket, _other) = UnixStream::pair().expect("sockets");
    for file in [OwnedFd::from(in_memory(1)), socket.into()] {
        let refused = network.event_file(file).err().expect("no eventfd");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn descriptors_come_with_their_bytes() {
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    executor.block_on(async {
        let (here, there) = UnixStream::pair().expect("sockets");
        let (here, there) = (network.adopt_unix(here.into()), network.adopt_unix(there.into()));
        let sent = in_memory(1);
        there.send_at_once(b"plain", None).expect("sent");
        there.send_at_once(b"with", Some(sent.as_fd())).expect("sent");
        let (mut bytes, mut files) = ([0; 16], Vec::new());
        let received = here.receive_with_descriptors(&mut bytes[..5], &mut files).await.expect("received");
        assert_eq!((&bytes[..received], files.len()), (&b"plain"[..], 0));
        let received = here.receive_with_descriptors(&mut bytes, &mut files).await.expect("received");
        assert_eq!((&bytes[..received], files.len()), (&b"with"[..], 1));
        File::from(files.remove(0)).set_len(7).expect("changed");
        assert_eq!(sent.metadata().expect("there").len(), 7, "it is the same file");
        let full = loop {
            if let Err(error) = there.send_at_once(&[0; 4096], None) {
                break error;
            }
        };
        assert!(matches!(full.kind(), ErrorKind::WouldBlock | ErrorKind::WriteZero), "{full}");
        drop(there);
        while here.receive_with_descriptors(&mut bytes, &mut files).await.expect("the rest") > 0 {}
    });
}
