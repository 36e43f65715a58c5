//! Exports as drives: our client against our server, over unix sockets, TCP and TLS; against
//! nbdkit, which answers in other ways; through connections that are cut or stall; and against
//! servers that lie.
//!
//! Invariant I36 (`docs/internals/invariants.md`).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::kit::certificates::{certificates, files, without_certificate};
use crate::kit::{Served, Wanted, contents, has};
use stripewise_drive::{Buffer, Drive, DriveErrorKind, IoRequest, IoResult, Operation, Segments, SplitMix64};
use stripewise_export::nbd::TlsPolicy;
use stripewise_export::nbd::client::{ConnectError, ConnectFault, NbdUri, NetworkDrive};
use stripewise_runtime::RealExecutor;

const BLOCK: u64 = 4096;

fn parsed(text: &str) -> NbdUri {
    NbdUri::parse(text, Path::new("/")).unwrap_or_else(|error| panic!("{error}"))
}

pub fn at(socket: &Path, export: &str, timeout: &str) -> NbdUri {
    parsed(&format!("nbd+unix:///{export}?socket={}&timeout={timeout}", socket.display()))
}

pub async fn opened(executor: &RealExecutor, uri: &NbdUri) -> Result<Rc<NetworkDrive>, ConnectError> {
    NetworkDrive::open(&executor.context(), &executor.network(), uri, false).await
}

fn fault(uri: &NbdUri) -> ConnectFault {
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.block_on(opened(&executor, uri));
    drive.err().unwrap_or_else(|| panic!("{uri} is of no use")).why
}

/// Contents of a drive by block, as they must be.
#[derive(Default)]
struct Model(HashMap<u64, u8>);

/// Many requests at once, of all kinds, in rounds that do not overlap; what is read is compared.
async fn exercise(drive: &NetworkDrive, model: &mut Model, random: &mut SplitMix64, rounds: u64) {
    let blocks = drive.info().capacity_bytes / BLOCK;
    for _ in 0..rounds {
        let mut in_flight = Vec::new();
        let lanes = 16;
        for lane in 0..lanes {
            let first = lane * (blocks / lanes) + random.below(blocks / lanes - 300);
            let count = if random.below(8) == 0 { 300 } else { 1 + random.below(20) };
            let bytes = (count * BLOCK) as usize;
            let value = random.below(256) as u8;
            let offset = first * BLOCK;
            let (request, becomes) = match random.below(6) {
                0 => (IoRequest::range(Operation::WriteZeroes, offset, bytes as u64), Some(0)),
                1 | 2 => {
                    let parts =
                        [bytes / 4, bytes - bytes / 4].map(|part| Buffer::from_bytes(&vec![value; part]));
                    let write = Operation::Write { fua: random.below(2) == 0 };
                    (IoRequest::with_segments(write, offset, Segments::from_iter(parts)), Some(value))
                }
                3 => (IoRequest::flush(), None),
                _ => (IoRequest::read(offset, Buffer::from_bytes(&vec![0xEE; bytes])), None),
            };
            in_flight.push((drive.submit(request.clone()), request, becomes, first..first + count));
        }
        for (answer, request, becomes, range) in in_flight {
            answer.await.unwrap_or_else(|error| panic!("{error} ({:?})", drive.lost()));
            if let Some(value) = becomes {
                model.0.extend(range.map(|block| (block, value)));
            } else if request.operation == Operation::Read {
                let data = request.segments[0].to_vec();
                for (index, block) in range.enumerate() {
                    let expected = *model.0.get(&block).unwrap_or(&0);
                    let got = &data[index * BLOCK as usize..(index + 1) * BLOCK as usize];
                    assert!(got.iter().all(|byte| *byte == expected), "block {block}");
                }
            }
        }
    }
}

fn exercise_all(uri: &NbdUri, seed: u64) {
    let executor = RealExecutor::new().expect("io_uring");
    executor.block_on(async {
        let drive = opened(&executor, uri).await.unwrap_or_else(|error| panic!("{error}"));
        let (mut model, mut random) = (Model::default(), SplitMix64::new(seed));
        // An earlier run may have left data.
        let all = IoRequest::range(Operation::WriteZeroes, 0, drive.info().capacity_bytes);
        drive.submit(all).await.expect("zeroed");
        exercise(&drive, &mut model, &mut random, 30).await;
        let info = drive.info();
        let beyond = IoRequest::read(info.capacity_bytes, Buffer::from_bytes(&[0; 4096]));
        assert_eq!(drive.submit(beyond).await.expect_err("refused").kind, DriveErrorKind::OutOfRange);
        let askew = IoRequest::read(512, Buffer::from_bytes(&[0; 4096]));
        assert_eq!(drive.submit(askew).await.expect_err("refused").kind, DriveErrorKind::Misaligned);
        assert!(drive.submit(IoRequest::range(Operation::Discard, 0, BLOCK)).await.is_ok());
        assert_eq!((drive.lost(), drive.reconnections()), (None, 0));
    });
}

#[test]
fn our_client_and_server_interoperate() {
    let served = Served::start(Wanted { tcp: true, ..Wanted::default() });
    exercise_all(&at(&served.socket, "tank/data", "10s"), 1);
    exercise_all(&parsed(&format!("nbd://localhost:{}/tank/data", served.port)), 2);
}

#[test]
fn our_client_and_server_interoperate_over_tls() {
    let Some(folder) = certificates() else { return };
    let start = |policy, with_clients| {
        let tls = Some(files(folder.path(), policy, with_clients));
        Served::start(Wanted { tls, tcp: true, ..Wanted::default() })
    };
    let uri = |scheme: &str, served: &Served, folder: &Path| {
        let certificates =
            if scheme == "nbds" { format!("?tls-certificates={}", folder.display()) } else { String::new() };
        parsed(&format!("{scheme}://localhost:{}/tank/data{certificates}", served.port))
    };
    let bare = without_certificate(folder.path());
    let required = start(TlsPolicy::Required, true);
    exercise_all(&uri("nbds", &required, folder.path()), 3);
    assert!(matches!(fault(&uri("nbd", &required, folder.path())), ConnectFault::WantsTls));
    let refused = fault(&uri("nbds", &required, &bare));
    assert!(matches!(refused, ConnectFault::Tls { .. } | ConnectFault::BrokenOff { .. }), "{refused}");
    let offered = start(TlsPolicy::Offered, false);
    exercise_all(&uri("nbds", &offered, &bare), 4);
    exercise_all(&uri("nbd", &offered, folder.path()), 5);
    // Signed by another authority, or for another name.
    let other = certificates().expect("once more");
    let foreign = fault(&uri("nbds", &offered, other.path()));
    assert!(matches!(foreign, ConnectFault::Tls { .. }), "{foreign}");
    let mut misnamed = uri("nbds", &offered, folder.path());
    misnamed.certificate_name = Some("elsewhere".to_owned());
    assert!(matches!(fault(&misnamed), ConnectFault::Tls { .. }));
    let unix = at(&offered.socket, "tank/data", "5s").to_string().replace("nbd+", "nbds+");
    exercise_all(&parsed(&format!("{unix}&tls-certificates={}", bare.display())), 6);
    let plain = Served::start(Wanted { tcp: true, ..Wanted::default() });
    assert!(matches!(fault(&uri("nbds", &plain, folder.path())), ConnectFault::NoTls { .. }));
}

#[test]
fn missing_exports_and_read_only_are_reported() {
    let served = Served::start(Wanted { volumes: vec![("data", 16), ("more", 16)], ..Wanted::default() });
    match fault(&at(&served.socket, "tank/none", "5s")) {
        ConnectFault::NoExport { export, said } => {
            assert_eq!(export, "tank/none");
            assert!(said.contains("no export"), "the server's own words: {said}");
        }
        other => panic!("{other}"),
    }
    let read_only = Served::start(Wanted { read_only: true, ..Wanted::default() });
    let uri = at(&read_only.socket, "tank/data", "5s");
    assert!(matches!(fault(&uri), ConnectFault::ReadOnly));
    let executor = RealExecutor::new().expect("io_uring");
    executor.block_on(async {
        let drive = NetworkDrive::open(&executor.context(), &executor.network(), &uri, true).await;
        let drive = drive.expect("to be read");
        let write = IoRequest::write(0, Buffer::from_bytes(&[0; 4096]), false);
        assert_eq!(drive.submit(write).await.expect_err("refused").kind, DriveErrorKind::Denied);
        assert!(drive.submit(IoRequest::flush()).await.is_ok());
    });
}

/// nbdkit for the time of a test.
struct Kit(Child);

impl Kit {
    fn start(socket: &Path, words: &[&str]) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(words).stdin(Stdio::null()).stderr(Stdio::null());
        let kit = Self(command.spawn().expect("nbdkit starts"));
        for _ in 0..1000 {
            // The socket is there before it listens.
            if UnixStream::connect(socket).is_ok() {
                return kit;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nbdkit does not listen");
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_with_other_features_are_supported() {
    if !has("nbdkit") {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for (number, words) in [
        &["memory", "64M"][..],
        &["--no-sr", "memory", "64M"],
        &["--filter=nozero", "memory", "64M"],
        &["--filter=fua", "memory", "64M"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "64M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=8192",
            "blocksize-error-policy=error",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let socket = folder.path().join(format!("{number}.sock"));
        let _kit = Kit::start(&socket, words);
        exercise_all(&at(&socket, "", "10s"), 10 + number as u64);
    }
}

/// Passes bytes on between clients and a server's socket, until it cuts them, or holds them back.
struct Wire {
    socket: PathBuf,
    ends: Arc<Mutex<Vec<UnixStream>>>,
    held: Arc<AtomicBool>,
}

impl Wire {
    fn to(server: &Path, name: &str) -> Self {
        let socket = server.with_file_name(name);
        let listener = UnixListener::bind(&socket).expect("listens");
        let wire = Self { socket, ends: Arc::default(), held: Arc::default() };
        let (ends, held, server) = (wire.ends.clone(), wire.held.clone(), server.to_owned());
        // Lives as long as the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { return };
                let both = [&client, &server].map(|end| end.try_clone().expect("cloned"));
                ends.lock().expect("unpoisoned").extend(both);
                for (mut from, mut to) in [
                    (client.try_clone().expect("cloned"), server.try_clone().expect("cloned")),
                    (server, client),
                ] {
                    let held = held.clone();
                    std::thread::spawn(move || {
                        let mut bytes = vec![0; 64 << 10];
                        while let Ok(count) = from.read(&mut bytes) {
                            while held.load(Ordering::SeqCst) {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
            }
        });
        wire
    }

    fn cut(&self) {
        for end in self.ends.lock().expect("unpoisoned").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_disconnect_without_unflushed_data_is_recovered() {
    let served = Served::start(Wanted::default());
    let wire = Wire::to(&served.socket, "wire.sock");
    let executor = RealExecutor::new().expect("io_uring");
    executor.block_on(async {
        let drive = opened(&executor, &at(&wire.socket, "tank/data", "10s")).await.expect("open");
        let (mut model, mut random) = (Model::default(), SplitMix64::new(20));
        let context = executor.context();
        for round in 0..10 {
            exercise(&drive, &mut model, &mut random, 3).await;
            drive.submit(IoRequest::flush()).await.expect("flushed");
            // Reads in flight are sent again.
            let read = Buffer::from_bytes(&vec![0; 8 << 20]);
            let reading = drive.submit(IoRequest::read(0, read.clone()));
            if round % 2 == 0 {
                context.sleep_ns(500_000 * round).await;
            }
            wire.cut();
            reading.await.expect("asked again");
            for (block, got) in read.to_vec().chunks(BLOCK as usize).enumerate() {
                let expected = *model.0.get(&(block as u64)).unwrap_or(&0);
                assert!(got.iter().all(|byte| *byte == expected), "block {block}");
            }
        }
        assert_eq!(drive.lost(), None);
        assert!(drive.reconnections() >= 5, "{}", drive.reconnections());
    });
}

#[test]
fn a_disconnect_with_unflushed_data_loses_the_drive() {
    let served = Served::start(Wanted::default());
    let wire = Wire::to(&served.socket, "wire.sock");
    let executor = RealExecutor::new().expect("io_uring");
    executor.block_on(async {
        let drive = opened(&executor, &at(&wire.socket, "tank/data", "10s")).await.expect("open");
        let write = |value: u8| IoRequest::write(0, Buffer::from_bytes(&[value; 4096]), false);
        drive.submit(write(1)).await.expect("written");
        wire.cut();
        let flushed: IoResult = drive.submit(IoRequest::flush()).await;
        assert_eq!(flushed.expect_err("durability is unknown").kind, DriveErrorKind::Gone);
        assert!(
            drive.lost().expect("lost").contains("before acknowledged writes were flushed"),
            "{:?}",
            drive.lost()
        );
        assert_eq!(drive.submit(write(2)).await.expect_err("stays so").kind, DriveErrorKind::Gone);
        // Reopened it is a drive as before.
        let again = opened(&executor, &at(&wire.socket, "tank/data", "10s")).await.expect("open");
        let block = Buffer::from_bytes(&[0; 4096]);
        again.submit(IoRequest::read(0, block.clone())).await.expect("read");
        assert_eq!(block.to_vec(), [1; 4096]);
    });
}

#[test]
fn a_silent_server_times_out_even_without_requests() {
    let served = Served::start(Wanted::default());
    let wire = Wire::to(&served.socket, "wire.sock");
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    executor.block_on(async {
        for asks in [true, false] {
            let drive = opened(&executor, &at(&wire.socket, "tank/data", "1s")).await.expect("open");
            // Longer than the time allowed, and nothing is lost: it answers when it is asked
            // whether it is there.
            context.sleep_ns(2_000_000_000).await;
            assert_eq!(drive.lost(), None);
            wire.held.store(true, Ordering::SeqCst);
            let begin = Instant::now();
            if asks {
                let data = Buffer::from_bytes(&vec![7; 1 << 20]);
                let answers = [
                    drive.submit(IoRequest::read(0, Buffer::from_bytes(&[0; 4096]))),
                    drive.submit(IoRequest::write(0, data, false)),
                    drive.submit(IoRequest::flush()),
                ];
                for answer in answers {
                    assert_eq!(answer.await.expect_err("lost").kind, DriveErrorKind::Gone);
                }
            }
            while drive.lost().is_none() {
                assert!(begin.elapsed() < Duration::from_secs(20), "it is noticed");
                context.sleep_ns(10_000_000).await;
            }
            assert!(begin.elapsed() >= Duration::from_millis(900), "not before its time");
            assert!(drive.lost().expect("lost").contains("no answer for 1 s"));
            wire.held.store(false, Ordering::SeqCst);
            wire.cut();
        }
        wire.held.store(true, Ordering::SeqCst);
        let silent = opened(&executor, &at(&wire.socket, "tank/data", "200ms")).await;
        assert!(matches!(silent.err().expect("silent").why, ConnectFault::Silent { .. }));
        wire.held.store(false, Ordering::SeqCst);
    });
}

#[test]
fn after_a_stall_replies_are_read_before_the_timeout() {
    let served = Served::start(Wanted::default());
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    executor.block_on(async {
        let drive = opened(&executor, &at(&served.socket, "tank/data", "2s")).await.expect("open");
        // More to answer than one look at the connection takes, or the kernel keeps.
        let data = Buffer::from_bytes(&vec![7; 4 << 20]);
        drive.submit(IoRequest::write(0, data, true)).await.expect("written");
        let answers: Vec<_> = (0..64)
            .map(|index| drive.submit(IoRequest::read(index << 16, Buffer::from_bytes(&[0; 64 << 10]))))
            .collect();
        // They are asked for, and nothing was heard yet.
        context.sleep_ns(100_000).await;
        std::thread::sleep(Duration::from_millis(2_400));
        for answer in answers {
            answer.await.unwrap_or_else(|error| panic!("{error} ({:?})", drive.lost()));
        }
        assert_eq!(drive.lost(), None);
    });
}

/// Reply of a server to a request.
type Answers = fn(&[u8; 28]) -> Vec<u8>;

/// A server with scripted replies: it sends `greets` to each client, then `answers` of each
/// request.
fn liar(folder: &Path, name: &str, greets: Vec<u8>, answers: Answers) -> PathBuf {
    let socket = folder.join(name);
    let listener = UnixListener::bind(&socket).expect("listens");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The greeting does not depend on the client's part of the negotiation.
            let _ = stream.write_all(&greets);
            let mut negotiation = vec![0; 4 + 16 + 16 + 8];
            let mut request = [0; 28];
            let heard = stream.read_exact(&mut negotiation);
            while heard.is_ok() && stream.read_exact(&mut request).is_ok() {
                if stream.write_all(&answers(&request)).is_err() {
                    break;
                }
            }
        }
    });
    socket
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let head = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &head, data].concat()
}

/// A negotiation about an export of 1 MiB, without structured replies.
pub fn agreement() -> Vec<u8> {
    let export = [&0_u16.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &0x0d_u16.to_be_bytes()].concat();
    [
        b"NBDMAGICIHAVEOPT".to_vec(),
        vec![0, 3],
        option_reply(8, (1 << 31) + 1, b""),
        option_reply(7, 3, &export),
        option_reply(7, 1, b""),
    ]
    .concat()
}

pub fn simple(request: &[u8; 28], error: u32, data: &[u8]) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &request[8..16], data].concat()
}

fn reads_zeros(request: &[u8; 28]) -> Vec<u8> {
    let length = u32::from_be_bytes(request[24..28].try_into().expect("a length"));
    simple(request, 0, &vec![0; length as usize])
}

#[test]
fn malicious_servers_cannot_harm_the_client() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let executor = RealExecutor::new().expect("io_uring");
    // In the negotiation.
    let honest = agreement();
    let mut cases: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        [b"NBDMAGIC", &0x0000_4202_8186_1253_u64.to_be_bytes()[..], &[0; 200]].concat(),
        [b"NBDMAGICIHAVEOPT".as_slice(), &[0, 0]].concat(),
        [&honest[..18], &option_reply(8, 3, &[])].concat().repeat(1),
        [&honest[..18], &[0xff; 40][..]].concat(),
        [
            &honest[..18],
            &[&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &[0, 0, 0, 8, 0, 0, 0, 1, 255, 255, 255, 255]]
                .concat(),
        ]
        .concat(),
        [&honest[..18], &option_reply(8, 1, b""), &option_reply(7, 1, b"")[..]].concat(),
    ];
    for seed in 0..40 {
        let mut broken = honest.clone();
        let noise = contents(seed, 3);
        for byte in noise {
            let at = usize::from(byte) * 7 % broken.len();
            broken[at] ^= byte | 1;
        }
        cases.push(broken);
    }
    for (number, greets) in cases.into_iter().enumerate() {
        let socket = liar(folder.path(), &format!("n{number}"), greets, reads_zeros);
        let drive = executor.block_on(opened(&executor, &at(&socket, "", "200ms")));
        // Some of the noise is in fields that the client ignores.
        if let Err(error) = drive {
            assert!(!error.to_string().is_empty() && !error.why.hint().is_empty());
        }
    }
    // In its answers: the connection ends, and with it the drive.
    let lies: [(&str, Answers); 5] = [
        ("garbage", |_| vec![0xab; 64]),
        ("another's", |request| {
            let mut other = *request;
            other[15] ^= 0x40;
            simple(&other, 0, &[])
        }),
        ("a chunk beyond", |request| {
            let head = [0x668e_33ef_u32.to_be_bytes(), [0, 1, 0, 1]].concat();
            [&head, &request[8..16], &(8 + 4096_u32).to_be_bytes(), &(1_u64 << 40).to_be_bytes(), &[1; 4096]]
                .concat()
        }),
        ("a part", |request| {
            let head = [0x668e_33ef_u32.to_be_bytes(), [0, 1, 0, 1]].concat();
            [&head, &request[8..16], &(8 + 512_u32).to_be_bytes(), &request[16..24], &[1; 512]].concat()
        }),
        ("too much said", |request| {
            let head = [0x668e_33ef_u32.to_be_bytes(), [0, 1, 128, 1]].concat();
            [&head, &request[8..16], &u32::MAX.to_be_bytes()].concat()
        }),
    ];
    for (name, lie) in lies {
        let socket = liar(folder.path(), name, agreement(), lie);
        let drive = executor.block_on(opened(&executor, &at(&socket, "", "1s")));
        assert!(
            matches!(drive.err().expect("its first block").why, ConnectFault::BrokenOff { .. }),
            "{name}"
        );
    }
    let socket = liar(folder.path(), "refuses", agreement(), |request| match request[7] {
        0 => reads_zeros(request),
        1 => [simple(request, 5, b"")].concat(),
        _ => simple(request, 28, b""),
    });
    executor.block_on(async {
        let drive = opened(&executor, &at(&socket, "", "2s")).await.expect("open");
        let flushed = drive.submit(IoRequest::flush()).await.expect_err("refused");
        assert_eq!((flushed.kind, flushed.os_code), (DriveErrorKind::NoSpace, Some(28)));
        assert_eq!(drive.lost(), None, "it answers");
    });
}
