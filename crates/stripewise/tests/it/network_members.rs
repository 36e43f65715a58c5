//! Pools on drives behind NBD servers (nbdkit) that are slow, return errors, hang, die and return,
//! and behind hosts that are disconnected. Skipped with a message without nbdkit; tests with hosts
//! also without network namespaces.

use crate::nbd_client;

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::kit::daemon::{Daemon, PATIENCE, until, wait};
use crate::kit::nbd_servers::{
    Kit, MIB, MOST_UNDER_WAY, TIMEOUT, drive_state, has, is_whole, nothing_is_wrong, served, status,
    until_whole, until_whole_with, uri, wakes_up, write_after_loss, write_over, written_bytes,
};
use crate::kit::{Sandbox, unique_bytes};
use nbd_client::Client;
use serde_json::Value;

#[test]
fn a_dead_server_is_a_lost_drive_and_resyncs_later() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, mut data) = served("raid5", 1);
    let daemon = Daemon::start(&sandbox, "tank");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_over(&sandbox, &mut data, 0..20));
        std::thread::sleep(Duration::from_millis(100));
        kits[1].take().expect("there").kill();
        writing.join().expect("every write is taken");
    });
    until("the drive is missing", || drive_state(&sandbox, 1) == "missing");
    assert_eq!(status(&sandbox)["state"], "degraded");
    assert!(sandbox.read("tank/a", 0, data.len()) == data, "degraded, every byte is right");
    write_over(&sandbox, &mut data, 30..33);

    kits[1] = Some(Kit::start(&sandbox, 1, ""));
    until_whole(&sandbox, &daemon);
    assert!(written_bytes(&sandbox, 1) > MIB as u64, "what changed is copied");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    // The drive counts again: another one may fail.
    kits[3].take().expect("there").kill();
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    kits[3] = Some(Kit::start(&sandbox, 3, ""));
    until_whole(&sandbox, &daemon);
    nothing_is_wrong(&sandbox);
    daemon.end();
}

#[test]
fn a_hung_server_is_lost_after_its_timeout() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, mut data) = served("raid6", 2);
    let daemon = Daemon::start(&sandbox, "tank");
    kits[2].as_ref().expect("there").signal("-STOP");
    let begin = Instant::now();
    write_over(&sandbox, &mut data, 0..5);
    assert!(begin.elapsed() < Duration::from_secs(25), "long before the engine's own patience would end");
    until("it counts as missing, not as broken", || drive_state(&sandbox, 2) == "missing");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    wakes_up(&sandbox, &mut kits[2]);
    until_whole(&sandbox, &daemon);
    let copied = written_bytes(&sandbox, 2);
    assert!(copied < 12 << 20, "only what changed is copied: {copied} bytes of some 20 MiB");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);

    // Also without client I/O.
    kits[2].as_ref().expect("there").signal("-STOP");
    until("an idle pool misses the drive", || drive_state(&sandbox, 2) == "missing");
    wakes_up(&sandbox, &mut kits[2]);
    until_whole(&sandbox, &daemon);
    nothing_is_wrong(&sandbox);
    daemon.end();
}

#[test]
fn shutdown_is_timely_with_unresponsive_drives() {
    if !has("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 64MiB");
    let kits: Vec<Kit> = (0..3).map(|index| Kit::start(&sandbox, index, "")).collect();
    // Requests hang for much longer than a shutdown may take.
    let uris: Vec<String> =
        (0..3).map(|index| format!("nbd+unix:///?socket=n{index}.sock&timeout=25s")).collect();
    sandbox.ok(&format!("pool create tank {}", uris.join(" ")));
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let daemon = Daemon::start(&sandbox, "tank --end-within 2");
    let data = unique_bytes(MIB, 3);
    // Leaves work for the closing of the pool.
    sandbox.write("tank/a", 0, &data);
    kits.iter().for_each(|kit| kit.signal("-STOP"));
    let begin = Instant::now();
    let (status, said) = daemon.end_anyhow();
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}: {said}", begin.elapsed());
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("not all pools could be closed within 2 s") && said.contains("hint: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");

    kits.into_iter().for_each(Kit::kill);
    let _kits: Vec<Kit> = (0..3).map(|index| Kit::start(&sandbox, index, "")).collect();
    assert!(sandbox.read("tank/a", 0, data.len()) == data, "flushed data survives");
    nothing_is_wrong(&sandbox);
}

/// Kills too many servers for the pool to continue while data is written from the start of the
/// volume, then restarts them.
fn die_while_written(
    sandbox: &Sandbox,
    daemon: &Daemon,
    kits: &mut [Option<Kit>],
    which: &[usize],
    bytes: &[u8],
) {
    let mut writing =
        sandbox.command("volume write tank/a --offset 0").stdin(Stdio::piped()).spawn().expect("started");
    let mut input = writing.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(input.write_all(bytes)));
        std::thread::sleep(Duration::from_millis(60));
        which.iter().for_each(|index| kits[*index].take().expect("there").kill());
        let ended = wait(&mut writing, 3 * PATIENCE);
        if ended.is_none() {
            let _ = writing.kill();
        }
        assert!(ended.is_some(), "the command hangs: {}", daemon.said());
    });
    until("they are missed", || !matches!(sandbox.run("pool status tank").code, 0 | 3));
    for &index in which {
        kits[index] = Some(Kit::start(sandbox, index, ""));
    }
}

#[test]
fn a_pool_resumes_when_all_its_lost_drives_return() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid5", 9);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    // Each piece is written or not; the piece in flight at the failure may be either.
    let piece = unique_bytes(20 * MIB, 4);
    let all: Vec<usize> = (0..kits.len()).collect();
    die_while_written(&sandbox, &daemon, &mut kits, &all, &piece);
    let mut client = served_again(&sandbox, &daemon);
    old_or_new(&mut client, &data, &piece);
    client.write(0, &piece);
    nothing_is_wrong(&sandbox);
    daemon.end();
}

/// Connects to the volume once the daemon has reopened the pool. The status shows the drives online
/// before that.
fn served_again(sandbox: &Sandbox, daemon: &Daemon) -> Client {
    until_whole(sandbox, daemon);
    let mut client = None;
    until("the volume is served again", || {
        client = Client::try_ready(&sandbox.path("nbd.sock"), "tank/a").ok();
        client.is_some()
    });
    client.expect("until it is there")
}

/// Checks that data outside of the writes is unchanged. A block that was being written may be
/// refused: servers die one after the other, which is like a power cut of two drives.
fn old_or_new(client: &mut Client, data: &[u8], piece: &[u8]) {
    let mut refused = 0;
    for at in (0..data.len()).step_by(4096) {
        let before = &data[at..at + 4096];
        match client.try_read(at as u64, 4096) {
            Ok(got) => {
                assert!(got == before || piece.get(at..at + 4096) == Some(got.as_slice()), "block at {at}");
            }
            Err(error) => {
                assert!(at < piece.len(), "the block at {at} was not being written: {error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused * 4096 <= MOST_UNDER_WAY, "{refused} blocks refused");
}

/// The servers of two of four drives of a RAID 5 die while a client writes. When they return, the
/// drives are reconnected automatically, and one command makes the volume writable.
#[test]
fn a_pool_past_its_tolerance_resumes_by_a_command() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, mut data) = served("raid5", 10);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    let piece = unique_bytes(20 * MIB, 4);
    for pair in [[1, 2], [0, 3]] {
        let mut before = Client::ready(&sandbox.path("nbd.sock"), "tank/a");
        die_while_written(&sandbox, &daemon, &mut kits, &pair, &piece);
        // Before or after the automatic reconnect.
        let action = sandbox.run("pool status tank --json").json()["pools"][0]["action"]
            .as_str()
            .expect("text")
            .to_owned();
        assert!(action.starts_with("stripewise pool online tank "), "{action}");
        let done = sandbox.ok(action.strip_prefix("stripewise ").expect("a command"));
        assert!(done.text().contains("was reopened"), "{}", done.text());
        assert!(before.is_closed(), "it has to come again");
        let mut client = served_again(&sandbox, &daemon);
        old_or_new(&mut client, &data, &piece);
        // Acknowledged writes may be lost: each client learns it once. Rewritten blocks are good.
        write_after_loss(&mut client, 0, &piece);
        data[..piece.len()].copy_from_slice(&piece);
        assert!(client.read(0, (40 * MIB) as u32 / 2) == data[..20 * MIB]);
        nothing_is_wrong(&sandbox);
    }
    daemon.end();
}

#[test]
fn an_idle_lost_connection_is_reestablished() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid0", 3);
    let daemon = Daemon::start(&sandbox, "tank");
    let generation = |sandbox: &Sandbox| {
        sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"]["generation"].clone()
    };
    let before = generation(&sandbox);
    for (index, kit) in kits.iter_mut().enumerate() {
        kit.take().expect("there").kill();
        *kit = Some(Kit::start(&sandbox, index, ""));
    }
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    assert!(is_whole(&sandbox), "even where no drive may be lost");
    assert_eq!(generation(&sandbox), before, "no drive was excluded");
    daemon.end();
}

#[test]
fn reopening_a_pool_waits_for_late_server_writes() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid5", 31);
    let daemon = Daemon::start(&sandbox, "tank");
    for index in [1, 2] {
        kits[index].take().expect("there").kill();
    }
    // Beyond the redundancy: the pool suspends I/O until it is reopened.
    until("that is noticed", || sandbox.run("pool status tank").code == 1);
    for index in [1, 2] {
        kits[index] = Some(Kit::start(&sandbox, index, ""));
    }
    let action = status_of_any_state(&sandbox)["action"].as_str().expect("text").to_owned();
    let begin = Instant::now();
    let done = sandbox.ok(action.strip_prefix("stripewise ").expect("a command"));
    assert!(done.text().contains("reopened") || done.err.contains("reopened"), "{}", done.err);
    // A write received earlier by a server may not have reached its disk yet.
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    until_whole(&sandbox, &daemon);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}

fn status_of_any_state(sandbox: &Sandbox) -> Value {
    sandbox.run("pool status tank --json").json()["pools"][0].clone()
}

#[test]
fn a_server_without_its_data_is_not_readmitted() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid5", 4);
    let daemon = Daemon::start(&sandbox, "tank");
    kits[0].take().expect("there").kill();
    kits[0] = Some(Kit::start_with(&sandbox, 0, "", "memory 64M"));
    until("it is left out", || drive_state(&sandbox, 0) == "missing");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    // The server is back, but its drive is recognised as another one.
    until("its server is seen", || daemon.said().contains("not taken back"));
    assert_eq!(drive_state(&sandbox, 0), "missing");
    // It may replace the missing drive as a new one.
    let refused = sandbox.fails(&format!("pool online tank {}", uri(0)));
    assert!(refused.contains("is not there"), "{refused}");
    sandbox.ok(&format!("pool replace tank {} {} --wait", uri(0), uri(0)));
    until_whole(&sandbox, &daemon);
    nothing_is_wrong(&sandbox);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    let said = daemon.end();
    assert!(said.contains("not taken back"), "{said}");
}

#[test]
fn slow_servers_cause_no_errors() {
    if !has("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 64MiB");
    let _kits = [
        Kit::start(&sandbox, 0, "--filter=delay rdelay=30ms wdelay=30ms"),
        Kit::start(&sandbox, 1, "--filter=rate rate=400M"),
        Kit::start(&sandbox, 2, ""),
        Kit::start(
            &sandbox,
            3,
            "--filter=blocksize-policy blocksize-minimum=4096 blocksize-preferred=4096 blocksize-maximum=64K",
        ),
    ];
    let uris: Vec<String> = (0..4).map(uri).collect();
    sandbox.ok(&format!("pool create tank {}", uris.join(" ")));
    sandbox.ok("volume create tank/a --layout raid5 --size 32MiB");
    let data = unique_bytes(24 * MIB + 4321, 5);
    sandbox.write("tank/a", 777, &data);
    assert!(sandbox.read("tank/a", 777, data.len()) == data);
    let status = status(&sandbox);
    assert_eq!(status["state"], "online");
    for drive in status["drives"].as_array().expect("drives") {
        assert_eq!((&drive["read_errors"], &drive["write_errors"]), (&0.into(), &0.into()), "{drive}");
    }
}

#[test]
fn server_errors_are_counted_and_repaired() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid5", 6);
    let daemon_free = kits[1].take().expect("there");
    daemon_free.kill();
    let trigger = sandbox.text("errors");
    let words = format!("--filter=error error=EIO error-pread-rate=5% error-file={trigger}");
    kits[1] = Some(Kit::start(&sandbox, 1, &words));
    let daemon = Daemon::start(&sandbox, "tank");
    std::fs::write(&trigger, "").expect("written");
    let errors = |sandbox: &Sandbox| status(sandbox)["drives"][1]["read_errors"].as_u64().expect("a number");
    until("some are seen", || {
        assert!(sandbox.read("tank/a", 0, data.len()) == data, "what one drive cannot read the others have");
        errors(&sandbox) > 0
    });
    std::fs::remove_file(&trigger).expect("there");
    assert_eq!(drive_state(&sandbox, 1), "online", "a few errors are no loss");
    nothing_is_wrong(&sandbox);
    daemon.end();
}

#[test]
fn exports_are_found_and_named_like_other_drives() {
    if !has("nbdkit") {
        return;
    }
    let (sandbox, mut kits, data) = served("raid5", 7);
    let full = format!("nbd+unix:///?socket={}&{TIMEOUT}", sandbox.text("n0.sock"));
    assert_eq!(
        status(&sandbox)["drives"][0]["path"],
        full.as_str(),
        "relative paths are relative to the client's directory"
    );
    let shown = sandbox.json(&format!("drive show {}", uri(0)));
    assert_eq!(shown["drives"][0]["kind"], "NBD export");
    assert_eq!(shown["drives"][0]["superblock"]["pool_name"], "tank");
    // One of the drives leads to all others.
    sandbox.ok("pool export tank");
    sandbox.ok(&format!("pool import --drive {} tank", uri(2)));
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    // A different timeout does not make it another drive; nor is a drive of the pool a new one.
    sandbox.ok("pool offline tank nbd+unix:///?socket=n1.sock");
    let twice = sandbox.fails(&format!("pool create new {} nbd+unix:///?socket=n1.sock", uri(1)));
    assert!(twice.contains("are the same drive"), "{twice}");
    let taken = sandbox.fails(&format!("pool create new {}", uri(1)));
    assert!(taken.contains("holds a drive of pool `tank`"), "{taken}");
    sandbox.ok("pool online tank nbd+unix:///?socket=n1.sock --wait");

    // A drive may move to another address, and be replaced by a file.
    kits[3].take().expect("there").kill();
    std::fs::rename(sandbox.drive_path(3), sandbox.path("d/drive9.img")).expect("moved");
    let _moved = Kit::start(&sandbox, 9, "");
    sandbox.ok(&format!("pool online tank {} --wait", uri(9)));
    assert!(is_whole(&sandbox));
    sandbox.ok("drive make @e --count 1 --size 64MiB");
    sandbox.ok(&format!("pool replace tank {} @e/drive0.img --wait", uri(0)));
    sandbox.ok(&format!("pool add tank {} --as spare --force", uri(0)));
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    nothing_is_wrong(&sandbox);
}

#[test]
fn unusable_servers_are_refused_with_a_reason() {
    if !has("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 64MiB");
    let _kits = [
        Kit::start(&sandbox, 0, "--read-only"),
        Kit::start(&sandbox, 1, "--filter=blocksize-policy blocksize-minimum=8192 blocksize-preferred=8192"),
        Kit::start_with(&sandbox, 2, "", "memory 64K"),
    ];
    let stopped = Kit::start_with(&sandbox, 3, "", "memory 64M");
    stopped.signal("-STOP");
    let free_port =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    std::fs::write(sandbox.path("file"), "").expect("written");
    for (uri, parts) in [
        (
            format!("nbd://127.0.0.1:{free_port}/x"),
            ["cannot be reached: Connection refused", "check that the server runs"],
        ),
        (
            "nbd://no-such-host.invalid/x".to_owned(),
            ["unknown host `no-such-host.invalid`", "give the address"],
        ),
        (uri(7), ["cannot be reached: No such file", "check that the server runs"]),
        ("nbd+unix:///?socket=file".to_owned(), ["cannot be reached: Connection refused", "check that"]),
        (uri(0), ["the export is read-only", "for writing"]),
        (uri(1), ["requires blocks of at least 8192 bytes", "something else"]),
        (uri(2), ["65536 bytes", ""]),
        (
            "nbd+unix:///?socket=n3.sock&timeout=500ms".to_owned(),
            ["no answer for 0.5 s", "serves one client at a time"],
        ),
        ("nbds+unix:///?socket=n2.sock".to_owned(), ["no certificate authority", "tls-certificates=DIR"]),
        ("nbds+unix:///?socket=n2.sock&tls-certificates=d".to_owned(), ["ca-cert.pem", "client-key.pem"]),
    ] {
        let said = sandbox.fails(&format!("pool create tank {uri}"));
        assert!(said.starts_with("error: ") && parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
    for (uri, part) in [
        ("nbd:///x", "has no host"),
        ("nbd+unix:///x", "has no socket"),
        ("nbd+vsock:///x", "is not one of nbd"),
        ("nbd://h/x?timeout=1h", "from 100ms to 25s"),
    ] {
        let said = sandbox.run(&format!("pool create tank {uri}")).expect_code(2).err;
        assert!(said.contains(part) && said.contains("hint: "), "{said}");
    }
    assert!(sandbox.json("pool list")["pools"].as_array().expect("a list").is_empty());
    stopped.signal("-CONT");
}

/// Runs `ip` with these arguments, to build hosts from network namespaces.
fn ip(words: &str) -> bool {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let done = Command::new("ip").env("PATH", path).args(words.split_whitespace()).output();
    done.is_ok_and(|output| output.status.success())
}

/// A host behind a network cable; removed on drop.
struct Host {
    name: String,
    cable: String,
    address: String,
}

impl Host {
    /// Creates a host. Returns `None` and prints a message if the system does not allow it.
    fn new(index: usize) -> Option<Self> {
        let number = std::process::id() % 10_000;
        let name = format!("stripewise-{number}-{index}");
        let cable = format!("sw{number}x{index}");
        let net = format!("10.{}.{}", 80 + number / 250, number % 250);
        let (ours, address) = (format!("{net}.{}", 4 * index + 1), format!("{net}.{}", 4 * index + 2));
        let host = Self { name: name.clone(), cable: cable.clone(), address: address.clone() };
        let made = ip(&format!("netns add {name}"))
            && ip(&format!("link add {cable} type veth peer name far netns {name}"))
            && ip(&format!("addr add {ours}/30 dev {cable}"))
            && ip(&format!("link set {cable} up"))
            && ip(&format!("-n {name} addr add {address}/30 dev far"))
            && ip(&format!("-n {name} link set far up"));
        if !made {
            println!("skipped: network namespaces cannot be made here (root and iproute2 are needed)");
            return None;
        }
        Some(host)
    }

    fn serve(&self, file: &Path) -> Kit {
        // `ip netns exec` would also make a mount namespace, which keeps other tests' mounts alive.
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.name))
            .args(["nbdkit", "-f", "-p", "10809", "file"])
            .arg(file);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let kit = Kit { child };
        until("nbdkit listens", || std::net::TcpStream::connect((self.address.as_str(), 10809)).is_ok());
        kit
    }

    fn uri(&self) -> String {
        format!("nbd://{}/?{TIMEOUT}", self.address)
    }

    /// Disconnects or reconnects the cable.
    fn cable(&self, state: &str) {
        assert!(ip(&format!("-n {} link set far {state}", self.name)));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.cable));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn a_disconnected_host_resyncs_when_it_returns() {
    if !has("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 64MiB");
    let mut hosts = Vec::new();
    for index in 0..3 {
        match Host::new(index) {
            Some(host) => hosts.push(host),
            None => return,
        }
    }
    let serve = |index: usize| hosts[index].serve(&sandbox.drive_path(index));
    let mut kits: Vec<Kit> = (0..hosts.len()).map(serve).collect();
    // nbdkit may abort when its host is disconnected (see `wakes_up`).
    let mut revive = || {
        for (index, kit) in kits.iter_mut().enumerate() {
            if kit.has_ended() {
                *kit = serve(index);
            }
        }
    };
    let uris: Vec<String> = hosts.iter().map(Host::uri).collect();
    sandbox.ok(&format!("pool create tank {}", uris.join(" ")));
    sandbox.ok("volume create tank/a --layout raid5 --size 48MiB");
    let mut data = unique_bytes(40 * MIB, 8);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "");

    hosts[1].cable("down");
    write_over(&sandbox, &mut data, 0..5);
    until("it is missing", || drive_state(&sandbox, 1) == "missing");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    hosts[1].cable("up");
    until_whole_with(&sandbox, &daemon, &mut revive);
    let copied = written_bytes(&sandbox, 1);
    assert!(copied < 12 << 20, "only what changed is copied: {copied} bytes");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    nothing_is_wrong(&sandbox);

    // A daemon that starts during the disconnection runs without the drive, and adds it later.
    daemon.end();
    hosts[2].cable("down");
    let daemon = Daemon::start(&sandbox, "tank");
    write_over(&sandbox, &mut data, 10..12);
    hosts[2].cable("up");
    until_whole_with(&sandbox, &daemon, &mut revive);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    nothing_is_wrong(&sandbox);
    daemon.end();
}

/// Only the pool of a hung drive waits for it, for the timeout of its URI.
#[test]
fn an_unresponsive_drive_does_not_delay_a_start() {
    if !has("nbdkit") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 64MiB");
    let kit = Kit::start(&sandbox, 3, "");
    sandbox.ok(
        "pool create tank @d/drive0.img @d/drive1.img @d/drive2.img nbd+unix:///?socket=n3.sock&timeout=12s",
    );
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    sandbox.ok("drive make @e --count 2 --size 32MiB");
    sandbox.ok("pool create other @e/drive0.img @e/drive1.img");
    kit.signal("-STOP");
    let begin = Instant::now();
    let daemon = Daemon::start(&sandbox, "");
    assert!(begin.elapsed() < Duration::from_secs(11), "{:?}", begin.elapsed());
    until("the delay is logged", || daemon.said().contains("pool tank is served later"));
    sandbox.ok("pool status other");
    until("it is served without the member", || daemon.said().contains("pool tank is now served"));
    assert_eq!(drive_state(&sandbox, 3), "missing");
    daemon.end();
}
