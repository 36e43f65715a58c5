//! A server that closes a connection with a write in hand and carries the write out some time
//! later: newer data must not be there by then.
//!
//! Invariant I36 (`docs/internals/invariants.md`).

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::members::{agreement, at, opened, simple};
use stripewise_array::mutation::{self, Mutation};
use stripewise_drive::{Buffer, Drive, DriveErrorKind, IoRequest};
use stripewise_export::nbd::client::{NbdUri, NetworkDrive};
use stripewise_runtime::RealExecutor;

/// From getting a write that is kept back to carrying it out.
const DELAY: Duration = Duration::from_millis(900);
/// Longer, and as long as a request may take.
const TIMEOUT: &str = "1800ms";
const TIMEOUT_MS: u128 = 1800;
/// Begins writes that are kept back.
const KEPT_BACK: u8 = 0xbb;

/// A megabyte behind a socket.
#[derive(Clone)]
struct Late {
    bytes: Arc<Mutex<Vec<u8>>>,
    is_done: Arc<AtomicBool>,
    /// Waits from getting a write that is kept back to carrying it out.
    wait: Arc<dyn Fn() + Send + Sync>,
}

impl Late {
    fn serve(socket: &Path, wait: impl Fn() + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(socket).expect("listens");
        let bytes = Arc::new(Mutex::new(vec![0; 1 << 20]));
        let late = Self { bytes, is_done: Arc::default(), wait: Arc::new(wait) };
        let server = late.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.converse(stream));
            }
        });
        late
    }

    /// Until the connection ends, or a write comes that is to be kept back.
    fn converse(&self, mut stream: UnixStream) {
        let greeted = stream.write_all(&agreement());
        let mut negotiation = vec![0; 4 + 16 + 16 + 8];
        let (mut request, mut open) =
            ([0; 28], stream.read_exact(&mut negotiation).is_ok() && greeted.is_ok());
        while open && stream.read_exact(&mut request).is_ok() {
            let from = u64::from_be_bytes(request[16..24].try_into().expect("an offset")) as usize;
            let length = u32::from_be_bytes(request[24..28].try_into().expect("a length")) as usize;
            let mut data = Vec::new();
            match request[7] {
                0 => data.extend_from_slice(&self.bytes.lock().expect("unpoisoned")[from..from + length]),
                1 => {
                    let mut written = vec![0; length];
                    if stream.read_exact(&mut written).is_err() {
                        return;
                    }
                    if written[0] == KEPT_BACK {
                        return self.carry_out_later(from, written);
                    }
                    self.bytes.lock().expect("unpoisoned")[from..from + length].copy_from_slice(&written);
                }
                _ => {}
            }
            open = stream.write_all(&simple(&request, 0, &data)).is_ok();
        }
    }

    fn carry_out_later(&self, from: usize, written: Vec<u8>) {
        let server = self.clone();
        std::thread::spawn(move || {
            (server.wait)();
            server.bytes.lock().expect("unpoisoned")[from..from + written.len()].copy_from_slice(&written);
            server.is_done.store(true, Ordering::SeqCst);
        });
    }
}

/// The drive at `uri`, lost with a write in the hand of its server.
async fn lost(executor: &RealExecutor, uri: &NbdUri) -> Rc<NetworkDrive> {
    let drive = opened(executor, uri).await.expect("open");
    drive.submit(write(1)).await.expect("written");
    let answer = drive.submit(write(KEPT_BACK)).await.expect_err("the server may carry it out yet");
    assert_eq!(answer.kind, DriveErrorKind::Gone);
    drive
}

fn write(value: u8) -> IoRequest {
    IoRequest::write(4096, Buffer::from_bytes(&[value; 4096]), true)
}

async fn read(drive: &NetworkDrive) -> Vec<u8> {
    let block = Buffer::from_bytes(&[0; 4096]);
    drive.submit(IoRequest::read(4096, block.clone())).await.expect("read");
    block.to_vec()
}

#[test]
fn late_writes_come_before_newer_ones() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let socket = folder.path().join("late.sock");
    let server = Late::serve(&socket, || std::thread::sleep(DELAY));
    let executor = RealExecutor::new().expect("io_uring");
    let uri = at(&socket, "", TIMEOUT);
    executor.block_on(async {
        let begin = Instant::now();
        let drive = lost(&executor, &uri).await;
        assert!(
            drive.lost().expect("lost").contains("before the server answered writes"),
            "{:?}",
            drive.lost()
        );
        assert_eq!(drive.reconnections(), 0);

        // Looking at it writes nothing, and need not wait.
        let looking = NetworkDrive::open(&executor.context(), &executor.network(), &uri, true).await;
        drop(looking.expect("open"));
        assert!(begin.elapsed().as_millis() < TIMEOUT_MS, "{:?}", begin.elapsed());

        let again = opened(&executor, &uri).await.expect("open");
        assert!(begin.elapsed().as_millis() >= TIMEOUT_MS, "{:?}", begin.elapsed());
        again.submit(write(2)).await.expect("written");
        again.submit(IoRequest::flush()).await.expect("flushed");
        assert!(server.is_done.load(Ordering::SeqCst));
        assert!(read(&again).await == [2; 4096], "an old write came over it");

        // Nothing is in hand any more: the next time there is nothing to wait for.
        drop(again);
        let begin = Instant::now();
        let third = opened(&executor, &uri).await.expect("open");
        assert!(begin.elapsed().as_millis() < TIMEOUT_MS, "{:?}", begin.elapsed());
        drop(third);
    });
}

#[test]
fn servers_that_are_asked_too_early_are_found() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let socket = folder.path().join("late.sock");
    let told = Arc::new(Barrier::new(2));
    let server = Late::serve(&socket, {
        let told = told.clone();
        move || {
            told.wait();
        }
    });
    let executor = RealExecutor::new().expect("io_uring");
    let uri = at(&socket, "", TIMEOUT);
    mutation::choose(Some(Mutation::UnsettledServerAsked));
    executor.block_on(async {
        drop(lost(&executor, &uri).await);
        let again = opened(&executor, &uri).await.expect("open");
        again.submit(write(2)).await.expect("written");
        again.submit(IoRequest::flush()).await.expect("flushed");
        told.wait();
        while !server.is_done.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(read(&again).await == [KEPT_BACK; 4096], "the wait is not what keeps newer data");
    });
}
