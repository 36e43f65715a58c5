//! Limits on a daemon's memory for connections, and on the volumes that they see.
//!
//! Invariant I6 (`docs/internals/invariants.md`).

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::{Client, READ, WRITE, request_bytes};

const MIB: u64 = 1 << 20;
/// Maximum memory of 60 connections that announced 32 MiB each and sent next to nothing: 100 KiB
/// each, and a few pieces of 1 MiB.
const FOR_NEXT_TO_NOTHING: u64 = 120 * MIB;

fn resident_bytes(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("readable");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn announced_lengths_take_no_memory() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 1GiB --thin");
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
    let socket = sandbox.path("nbd.sock");
    let mut other = Client::ready(&socket, "tank/a");
    let data = unique_bytes(1 << 20, 1);
    other.write(0, &data);
    let before = resident_bytes(daemon.id());
    let mut announcers: Vec<Client> = (0..60).map(|_| Client::ready(&socket, "tank/a")).collect();
    for client in &mut announcers {
        client.send(&[&request_bytes(WRITE, 0, 1, 64 * MIB, 32 << 20)[..], &[7; 1000]].concat());
    }
    // A client that comes after all of them.
    assert!(other.read(0, 1 << 20) == data);
    let during = resident_bytes(daemon.id());
    assert!(during < before + FOR_NEXT_TO_NOTHING, "{} MiB for nothing", (during - before) / MIB);
    drop(announcers);
    other.write(MIB, &data);
    assert!(other.read(MIB, 1 << 20) == data);
    daemon.end();
}

#[test]
fn many_clients_share_one_memory_budget() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid0 --size 64MiB");
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock --connection-memory 64MiB");
    let socket = sandbox.path("nbd.sock");
    let before = resident_bytes(daemon.id());
    // Each sends half of 8 MiB, in total more than the memory limit; then the other half.
    let data = unique_bytes(8 << 20, 2);
    let mut writers: Vec<Client> = (0..20).map(|_| Client::ready(&socket, "tank/a")).collect();
    for writer in &mut writers {
        let half = [&request_bytes(WRITE, 0, 1, 0, 8 << 20)[..], &data[..64 << 10]].concat();
        writer.send(&half);
    }
    std::thread::scope(|scope| {
        for writer in &mut writers {
            let rest = &data[64 << 10..];
            scope.spawn(move || {
                writer.send(rest);
                let (cookie, kind, payload) = writer.answer();
                assert!(cookie == 1 && kind & 0x8000 == 0 && payload.iter().all(|byte| *byte == 0));
            });
        }
    });
    assert!(Client::ready(&socket, "tank/a").read(0, 8 << 20) == data);
    // Clients that read no replies neither block others forever nor exceed the limit.
    for writer in &mut writers {
        for cookie in 0..4 {
            writer.send(&request_bytes(READ, 0, cookie, 0, 8 << 20));
        }
    }
    until("the budget is in use", || resident_bytes(daemon.id()) > before + 16 * MIB);
    let most = resident_bytes(daemon.id());
    assert!(most < before + 256 * MIB, "{} MiB", (most - before) / MIB);
    drop(writers);
    assert!(Client::ready(&socket, "tank/a").read(0, 8 << 20) == data);
    daemon.end();
}

#[test]
fn an_oversized_body_is_refused_at_once() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let daemon = Daemon::start(&sandbox, "");
    let mut stream = Web::own(&sandbox).connect();
    let head =
        "PUT /api/v1/pools/tank/volumes/a/bytes HTTP/1.1\r\nHost: x\r\nContent-Length: 16777217\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("answered before anything of it was sent");
    assert_eq!(&answer, b"HTTP/1.1 413");
    daemon.end();
}

#[test]
fn a_socket_shows_only_its_own_volumes() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    for volume in ["a", "b", "shared-1"] {
        sandbox.ok(&format!("volume create tank/{volume} --layout raid5 --size 4MiB"));
    }
    let words = "--nbd unix:a.sock --nbd unix:b.sock --nbd unix:none.sock --nbd-volumes unix:a.sock=tank/a,tank/shared-* \
                 --nbd-volumes unix:b.sock=tank/b";
    let daemon = Daemon::start(&sandbox, words);
    for (socket, found) in [("a.sock", &["a", "shared-1"][..]), ("b.sock", &["b"]), ("none.sock", &[])] {
        for volume in ["a", "b", "shared-1"] {
            let opened = Client::try_ready(&sandbox.path(socket), &format!("tank/{volume}"));
            assert_eq!(opened.is_ok(), found.contains(&volume), "{socket} {volume}");
        }
    }
    daemon.end();
    let wrong = sandbox.run("serve --nbd unix:a.sock --nbd-volumes cert:vm=tank/a").expect_code(2).err;
    assert!(wrong.contains("requires client certificates") && wrong.contains("hint: "), "{wrong}");
    sandbox.run("serve --nbd unix:a.sock --nbd-volumes unix:a.sock").expect_code(2);
}
