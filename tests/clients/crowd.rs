//! A hundred clients connect, misbehave and leave, over NBD, HTTP and the control socket, while
//! well-behaved clients work. These read back what they wrote, and none of their requests takes
//! longer than the daemon's longest timeout. When the crowd has left, the daemon has released its
//! files, threads and memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stripewise_drive::SplitMix64;

use crate::damage::damage;
use crate::drives::Alarm;
use crate::http_rubbish::{ask_for_pools, connect, malformed, rest, send_and_be_left};
use crate::kit::daemon::{Daemon, until, until_within};
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::{Client, OPT_GO, OPT_STARTTLS, READ, WRITE, info, option_bytes, request_bytes};
use crate::span::Span;

const CROWD: u64 = 100;
const MALFORMED: u64 = 1000;
const MIB: u64 = 1 << 20;
/// Longest timeout of the daemon (`docs/nbd.md`, `docs/http.md`): no other client may be delayed
/// for longer.
const BOUND: Duration = Duration::from_secs(60);
/// Timeout of a request head.
const HEAD_BOUND: Duration = Duration::from_secs(20);
/// Memory that may remain after a crowd: reused buffers, and what the allocator has not returned. A
/// sixth of what a hundred clients may have in flight (`docs/nbd.md`).
const KEPT_BYTES: u64 = 512 * MIB;
/// Memory that may be added from one crowd to the next, since their requests differ.
const GROWTH_BYTES: u64 = 128 * MIB;

/// Addresses of a daemon.
struct Ways {
    nbd: PathBuf,
    control: PathBuf,
    nbd_port: u16,
    http: PathBuf,
    http_port: u16,
}

/// Connects with timeouts.
fn connect_tcp(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(BOUND)).expect("set");
    stream.set_write_timeout(Some(BOUND)).expect("set");
    stream
}

/// Finds a free port.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Ways {
    fn start(sandbox: &Sandbox) -> (Self, Daemon) {
        let ways = Self {
            nbd: sandbox.path("nbd.sock"),
            control: sandbox.path("home/control.sock"),
            nbd_port: free_port(),
            http: sandbox.path("home/http.sock"),
            http_port: free_port(),
        };
        let words = format!("--nbd unix:nbd.sock --nbd tcp:{} --http {}", ways.nbd_port, ways.http_port);
        let daemon = Daemon::start(sandbox, &words);
        (ways, daemon)
    }

    /// Runs a client that misbehaves and leaves after a while.
    fn misbehave(&self, random: &mut SplitMix64, longest_stay: Duration) {
        let pause = Duration::from_millis(random.below(longest_stay.as_millis() as u64));
        let noise = unique_bytes(1 + random.below(5000) as usize, random.next_u64());
        match random.below(15) {
            0 => send_and_leave(&mut Client::connect_silently(&self.nbd).stream, &noise, pause),
            1 => send_and_leave(&mut connect_tcp(self.nbd_port), &noise, pause),
            // Half a request; half the data of a write; an option that never ends.
            2 => self.after_greeting(&request_bytes(READ, 0, 1, 0, 512)[..27], pause),
            3 => self
                .after_greeting(&[&request_bytes(WRITE, 0, 1, 3 * MIB, 1 << 20)[..], &noise].concat(), pause),
            4 => {
                let mut client = Client::connect_silently(&self.nbd);
                let half = &option_bytes(OPT_GO, &info("tank/a", &[]))[..20];
                send_and_leave(&mut client.stream, &[&3_u32.to_be_bytes()[..], half].concat(), pause);
            }
            // Requests much data and reads none of it.
            5 => {
                let much: Vec<u8> =
                    (0..20).flat_map(|cookie| request_bytes(READ, 0, cookie, 0, 1 << 20)).collect();
                self.after_greeting(&much, pause);
            }
            // Leaves with writes in flight, to ranges that no other client uses.
            6 => {
                let write =
                    [&request_bytes(WRITE, 0, 1, 4 * MIB + random.below(64) * 4096, 4096)[..], &[7; 4096]]
                        .concat();
                self.after_greeting(&write.repeat(10), Duration::ZERO);
            }
            // TLS on a listener without TLS, with and without negotiation.
            7 => send_and_leave(
                &mut connect_tcp(self.nbd_port),
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                pause,
            ),
            8 => {
                let mut client = Client::connect_silently(&self.nbd);
                let hello =
                    [&3_u32.to_be_bytes()[..], &option_bytes(OPT_STARTTLS, &[]), b"\x16\x03\x01"].concat();
                send_and_leave(&mut client.stream, &hello, pause);
            }
            9 => {
                let bytes = malformed(random.next_u64());
                send_and_leave(&mut connect(&self.http), &bytes, pause);
            }
            // A client without a token.
            14 => {
                let bytes = malformed(random.next_u64());
                send_and_leave(&mut connect_tcp(self.http_port), &bytes, pause);
            }
            // A head that arrives byte by byte; a body that never arrives.
            10 => {
                let mut stream = connect(&self.http);
                for letter in b"GET /metr" {
                    let _ = stream.write_all(&[*letter]);
                    std::thread::sleep(pause / 10);
                }
            }
            11 => {
                let head = "PUT /api/v1/pools/tank/volumes/a/bytes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n";
                send_and_leave(&mut connect(&self.http), &[head.as_bytes(), &noise].concat(), pause);
            }
            12 => send_and_leave(&mut self.caller(), &noise, pause),
            _ => {
                let words = [
                    &["volume", "read", "tank/a"][..],
                    &["pool", "wait", "tank", "scrub"],
                    &["volume", "write", "tank/a"],
                ];
                let command = command_frame(words[random.below(3) as usize]);
                send_and_leave(&mut self.caller(), &command, pause);
            }
        }
    }

    /// Completes the negotiation, then sends these bytes. The server may answer that there are too
    /// many clients: departed clients keep their slots until their requests are complete, and
    /// drives may be slow.
    fn after_greeting(&self, bytes: &[u8], pause: Duration) {
        match Client::try_ready(&self.nbd, "tank/a") {
            Ok(mut client) => send_and_leave(&mut client.stream, bytes, pause),
            Err(why) => assert!(why.contains("too many clients"), "{why}"),
        }
    }

    fn caller(&self) -> UnixStream {
        UnixStream::connect(&self.control).expect("it listens")
    }
}

fn send_and_leave(stream: &mut impl Write, bytes: &[u8], pause: Duration) {
    // The server may have disconnected before.
    let _ = stream.write_all(bytes);
    std::thread::sleep(pause);
}

/// A command in the format of the control socket.
fn command_frame(words: &[&str]) -> Vec<u8> {
    let command = serde_json::json!({
        "version": 1, "words": words, "folder": "/", "colours": {"out": false, "err": false}, "input_bytes": null
    });
    frame(b'C', command.to_string().as_bytes())
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32).to_le_bytes(), body].concat()
}

/// Longest duration of a well-behaved client's requests, by kind, in milliseconds.
#[derive(Default)]
struct Longest {
    nbd: AtomicU64,
    http: AtomicU64,
    command: AtomicU64,
}

fn time<T>(longest: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    longest.fetch_max(begin.elapsed().as_millis() as u64, Ordering::Relaxed);
    done
}

/// Opens the volume, which keeps `volume write` commands of the crowd away from it; one of the
/// previous crowd may still have it.
fn opened(socket: &Path) -> Client {
    let mut client = None;
    until("the volume can be opened", || {
        client = Client::try_ready(socket, "tank/a").ok();
        client.is_some()
    });
    client.expect("it was opened")
}

/// Writes and reads back over NBD, in its own 16 MiB. Returns the number of rounds.
fn works_over_nbd(mut client: Client, goes_on: &AtomicBool, longest: &Longest) -> u64 {
    let _alarm = Alarm(goes_on);
    let mut rounds = 0;
    while goes_on.load(Ordering::Relaxed) {
        let (at, bytes) = (8 * MIB + rounds % 64 * 256 * 1024, unique_bytes(200_000, rounds));
        time(&longest.nbd, || client.write(at, &bytes));
        assert!(time(&longest.nbd, || client.read(at, 200_000)) == bytes, "round {rounds}");
        rounds += 1;
    }
    rounds
}

/// Sends requests over HTTP and by commands.
fn asks(sandbox: &Sandbox, ways: &Ways, goes_on: &AtomicBool, longest: &Longest) {
    let _alarm = Alarm(goes_on);
    while goes_on.load(Ordering::Relaxed) {
        let answer = time(&longest.http, || ask_for_pools(&ways.http));
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        time(&longest.command, || sandbox.ok("pool status tank"));
    }
}

/// Resources of a process.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    files: usize,
    threads: usize,
    resident_bytes: u64,
}

impl Holdings {
    fn of(process: u32) -> Self {
        let place = PathBuf::from(format!("/proc/{process}"));
        let files = std::fs::read_dir(place.join("fd")).expect("readable").count();
        // The kernel has its own workers for each ring, and ends them at any time.
        let is_own = |thread: &std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| !name.starts_with("iou-"))
        };
        let threads =
            std::fs::read_dir(place.join("task")).expect("readable").flatten().filter(is_own).count();
        let status = std::fs::read_to_string(place.join("status")).expect("readable");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line VmRSS");
        let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        Self { files, threads, resident_bytes: kib << 10 }
    }
}

/// In a long run, some clients stay until the daemon disconnects them.
fn longest_stay(place: u64, span: Span) -> Duration {
    if span.is_long() && place < 10 { Duration::from_secs(75) } else { Duration::from_millis(700) }
}

/// Runs a hundred clients at a time for the duration of the test. Returns the number of clients.
fn crowd(ways: &Ways, goes_on: &AtomicBool, span: Span) -> u64 {
    let came = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for place in 0..CROWD {
            let came = &came;
            scope.spawn(move || {
                let _alarm = Alarm(goes_on);
                let mut random = SplitMix64::new(place);
                while goes_on.load(Ordering::Relaxed) {
                    ways.misbehave(&mut random, longest_stay(place, span));
                    came.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    came.into_inner()
}

#[test]
fn a_hundred_hostile_clients_leave_no_trace() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 32MiB");
    let (ways, daemon) = Ways::start(&sandbox);
    // Resources before the crowd, with every listener used once.
    let (goes_on, longest) = (AtomicBool::new(false), Longest::default());
    works_over_nbd(opened(&ways.nbd), &goes_on, &longest);
    sandbox.ok("pool status tank");
    let before = Holdings::of(daemon.id());

    let mut after = Vec::new();
    let mut came = 0;
    let mut rounds = 0;
    let whole = Span::begin();
    for part in 0..2 {
        let begin = Instant::now();
        goes_on.store(true, Ordering::Relaxed);
        let peak = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let _end = Alarm(&goes_on);
            let client = opened(&ways.nbd);
            let worker = scope.spawn(|| works_over_nbd(client, &goes_on, &longest));
            scope.spawn(|| asks(&sandbox, &ways, &goes_on, &longest));
            let crowd = scope.spawn(|| crowd(&ways, &goes_on, whole));
            while begin.elapsed() < whole.length() / 2 && goes_on.load(Ordering::Relaxed) {
                peak.fetch_max(Holdings::of(daemon.id()).resident_bytes, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
            goes_on.store(false, Ordering::Relaxed);
            let crowd = crowd.join();
            assert!(crowd.is_ok(), "a client was refused: {}", daemon.said());
            came += crowd.expect("no panic");
            rounds += worker.join().expect("no panic");
        });
        until("nothing of the crowd is left", || {
            let now = Holdings::of(daemon.id());
            now.files <= before.files && now.threads <= before.threads
        });
        let now = Holdings::of(daemon.id());
        println!(
            "crowd {part}: {came} came so far; resident {} MiB at most, {} MiB after",
            peak.into_inner() / MIB,
            now.resident_bytes / MIB
        );
        after.push(now);
    }
    let said = daemon.end();
    let [nbd, http, command] = [longest.nbd, longest.http, longest.command].map(AtomicU64::into_inner);
    println!(
        "a crowd of {CROWD}: {} s, {came} came and left; {rounds} times 200 kB written and read back, longest wait \
         {nbd} ms over NBD, {http} ms over HTTP, {command} ms for a command; {} clients were refused",
        whole.elapsed().as_secs(),
        said.lines().filter(|line| line.contains("too many clients")).count()
    );
    let most = nbd.max(http).max(command);
    assert!(u128::from(most) < BOUND.as_millis(), "a client waited {most} ms");
    let [first, second] = after[..] else { unreachable!("two parts") };
    assert!(second.resident_bytes < before.resident_bytes + KEPT_BYTES, "{before:?} {first:?} {second:?}");
    assert!(
        second.resident_bytes < first.resident_bytes + GROWTH_BYTES,
        "it grows: {before:?} {first:?} {second:?}"
    );
}

#[test]
fn the_daemon_survives_malformed_http_requests() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let data = unique_bytes(1 << 20, 1);
    sandbox.write("tank/a", 1 << 20, &data);
    let (ways, daemon) = Ways::start(&sandbox);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= MALFORMED {
                        return;
                    }
                    let answer = send_and_be_left(&ways.http, &malformed(seed));
                    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "seed {seed}");
                }
            });
        }
    });
    assert!(sandbox.read("tank/a", 1 << 20, data.len()) == data);
    assert!(ask_for_pools(&ways.http).starts_with(b"HTTP/1.1 200"));
    daemon.end();
}

#[test]
fn the_daemon_survives_malformed_commands() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let (ways, daemon) = Ways::start(&sandbox);
    for seed in 0..MALFORMED {
        let mut random = SplitMix64::new(seed);
        let words =
            [&["pool", "status"][..], &["volume", "list"], &["no", "such", "command"], &["\u{0}", "--json"]];
        let mut bytes = command_frame(words[random.below(4) as usize]);
        // More frames after it: unrequested input, and kinds that only the server sends.
        for _ in 0..random.below(3) {
            let kind = b"CIOMPWX?"[random.below(8) as usize];
            bytes.extend(frame(kind, &unique_bytes(random.below(300) as usize, seed)));
        }
        damage(&mut bytes, &mut random);
        let mut stream = ways.caller();
        stream.set_read_timeout(Some(BOUND)).expect("set");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "seed {seed}: {error}")
            }
        }
    }
    sandbox.ok("volume list");
    daemon.end();
}

/// Each client is answered or disconnected in time, while others are served.
#[test]
fn slow_http_clients_are_disconnected() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 24MiB");
    let (ways, daemon) = Ways::start(&sandbox);
    let mut silent = connect(&ways.http);
    let mut idle = connect(&ways.http);
    idle.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let of_half = ways.http.clone();
    let half = std::thread::spawn(move || {
        let mut stream = connect(&of_half);
        let begin = Instant::now();
        // Sending one byte per second does not extend the timeout.
        while begin.elapsed() < HEAD_BOUND * 2 && stream.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
        begin.elapsed()
    });
    // A user has 64 connections. More are refused, and there is room again when the first are gone.
    let mut many: Vec<_> = (0..100).map(|_| connect(&ways.http)).collect();
    many.last_mut().expect("many").set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    assert!(rest(many.last_mut().expect("many")).starts_with(b"HTTP/1.1 503"));
    drop(many);
    until("there is room again", || ask_for_pools(&ways.http).starts_with(b"HTTP/1.1 200"));
    assert!(rest(&mut silent).is_empty());
    assert!(rest(&mut idle).starts_with(b"HTTP/1.1 200"));
    assert!(half.join().expect("no panic") < HEAD_BOUND);

    // Only a long run covers timeouts of a minute: half a body, and a reply that the client does
    // not read.
    if Span::begin().is_long() {
        let before = Holdings::of(daemon.id());
        let mut stalled = connect(&ways.http);
        stalled.set_read_timeout(Some(Duration::from_secs(90))).expect("set");
        let head = "PUT /api/v1/pools/tank/volumes/a/bytes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\nhalf of it";
        stalled.write_all(head.as_bytes()).expect("sent");
        let mut deaf = connect(&ways.http);
        let ask = "GET /api/v1/pools/tank/volumes/a/bytes?offset=0&length=16777216 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        deaf.write_all(ask.as_bytes()).expect("sent");
        assert!(rest(&mut stalled).starts_with(b"HTTP/1.1 408"));
        until_within(BOUND, "both are given up", || Holdings::of(daemon.id()).files <= before.files);
    }
    daemon.end();
}
