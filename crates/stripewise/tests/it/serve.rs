//! A daemon: it executes commands for its pools with the same output as without a daemon, shuts
//! down in order, and loses no durable data if it is killed.
//!
//! Invariant I35 (`docs/internals/invariants.md`).

use crate::nbd_client;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::kit::daemon::{Daemon, until};
use crate::kit::nbd_servers::write_after_loss;
use crate::kit::{Sandbox, corrupt, unique_bytes};

#[test]
fn commands_are_the_same_with_a_daemon_and_without() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("volume create tank/a --layout raid5 --size 20MiB");
    let data = unique_bytes(9 << 20, 1);
    sandbox.write("tank/a", 12_345, &data);
    assert!(sandbox.read("tank/a", 12_345, data.len()) == data);
    // Current state, not that of a second ago.
    let status = sandbox.json("pool status tank");
    assert!(status["pools"][0]["volumes"][0]["written_bytes"].as_u64().expect("a number") >= 9 << 20);
    assert_eq!(sandbox.json("volume list")["volumes"][0]["name"], "a");
    assert_eq!(sandbox.json("volume show tank/a")["volumes"][0]["layout"], "raid5");

    // Messages, hints and exit codes are the same, also for usage errors.
    let wrong = sandbox.run("volume create tank/b --layout raid9").expect_code(2);
    assert!(wrong.err.contains("there is no layout \"raid9\""), "{}", wrong.err);
    let unknown = sandbox.fails("volume delete tank/none --yes");
    assert!(unknown.starts_with("error: ") && unknown.contains("hint: "), "{unknown}");
    let document = sandbox.run("volume delete tank/none --yes --json").expect_code(1).json();
    assert!(document["error"].as_str().expect("text").contains("none"));
    let short = sandbox.run("volume read tank/a --offset 20MiB --length 1").expect_code(1);
    assert!(short.out.is_empty() && short.err.contains("it ends at"), "{}", short.err);

    // Relative paths are relative to the client's directory.
    std::fs::create_dir(sandbox.path("elsewhere")).expect("made");
    sandbox.ok("drive make @elsewhere --count 1 --size 32MiB");
    let mut add = sandbox.command("pool add tank drive0.img --as spare");
    let output = add.current_dir(sandbox.path("elsewhere")).output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drives = sandbox.json("pool status tank")["pools"][0]["drives"].as_array().expect("drives").clone();
    assert!(drives.iter().any(|drive| drive["path"] == sandbox.text("elsewhere/drive0.img")));

    let said = daemon.end();
    assert!(said.contains("all pools are closed"), "{said}");
    assert!(!sandbox.path("home/control.sock").exists());
    assert!(sandbox.read("tank/a", 12_345, data.len()) == data, "without it all is as it was");
}

#[test]
fn serve_reports_why_it_cannot_start() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let unknown = sandbox.fails("serve nothing");
    assert!(unknown.contains("there is no pool `nothing`") && unknown.contains("hint: "), "{unknown}");
    let daemon = Daemon::start(&sandbox, "tank");
    let second = sandbox.fails("serve tank");
    assert!(second.contains("a daemon runs already") && second.contains("hint: "), "{second}");
    sandbox.ok("pool status tank");
    // The remains of a killed daemon do not block a new one.
    daemon.kill();
    assert!(sandbox.path("home/control.sock").exists());
    sandbox.ok("pool status tank");
    let daemon = Daemon::start(&sandbox, "tank");
    sandbox.ok("pool status tank");
    daemon.end();
    std::fs::write(sandbox.path("home/control.sock"), "not a socket").expect("written");
    let refused = sandbox.fails("serve tank");
    assert!(refused.contains("not a socket"), "{refused}");
}

#[test]
fn written_data_survives_a_killed_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid6 --size 20MiB");
    sandbox.ok("volume create tank/b --layout raid5 --size 20MiB --write-back");
    let daemon = Daemon::start(&sandbox, "");
    let (kept, under_way) = (unique_bytes(7 << 20, 2), unique_bytes(8 << 20, 3));
    sandbox.write("tank/a", 4096, &kept);
    sandbox.write("tank/b", 4096, &kept);
    // More input keeps coming, from a client that is disconnected by the kill.
    let mut writer =
        sandbox.command("volume write tank/a --offset 8MiB").stdin(Stdio::piped()).spawn().expect("started");
    let mut input = writer.stdin.take().expect("piped");
    input.write_all(&under_way[..4 << 20]).expect("taken");
    until("the write has begun", || sandbox.read("tank/a", 9 << 20, 1 << 20) == under_way[1 << 20..2 << 20]);
    daemon.kill();
    drop(input);
    let output = writer.wait_with_output().expect("ended");
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{says}");
    assert!(says.contains("exited before the command was complete") && says.contains("hint: "), "{says}");

    let daemon = Daemon::start(&sandbox, "");
    for volume in ["tank/a", "tank/b"] {
        assert!(sandbox.read(volume, 4096, kept.len()) == kept, "{volume}");
    }
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert_eq!(scrub.text().matches("no errors found").count(), 2, "{}", scrub.text());
    daemon.end();
}

#[test]
fn the_daemon_runs_jobs_and_waiters_block_no_others() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 80MiB");
    sandbox.ok("drive make @d --count 1 --size 80MiB --first 2 --pace 8MB/s");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("volume create tank/a --layout raid1 --size 60MiB");
    let data = unique_bytes(40 << 20, 4);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("pool offline tank @d/drive1.img");
    let due = sandbox.ok("pool replace tank @d/drive1.img @d/drive2.img");
    assert!(due.text().contains("running in the daemon"), "{}", due.text());

    let waiter = sandbox.command("pool wait tank rebuild").spawn().expect("started");
    until("the daemon works on it by itself", || {
        let answer = sandbox.run("pool status tank --json").json();
        answer["pools"][0]["activity"][0]["percent"].as_f64() > Some(1.0)
    });
    // Other clients are served at the same time.
    sandbox.ok("volume create tank/b --layout raid1 --size 4MiB");
    assert!(sandbox.read("tank/a", 0, 1 << 20) == data[..1 << 20]);
    // After a kill, the next daemon resumes the job automatically.
    daemon.kill();
    assert_eq!(waiter.wait_with_output().expect("ended").status.code(), Some(1));
    let daemon = Daemon::start(&sandbox, "");
    until("the rebuild ends", || sandbox.run("pool status tank").code == 0);
    let wait = sandbox.ok("pool wait tank rebuild");
    assert!(wait.text().contains("no rebuild is pending"), "{}", wait.text());
    std::fs::remove_file(sandbox.path("d/drive0.img")).expect("there");
    assert!(sandbox.read("tank/a", 0, data.len()) == data, "from the new drive alone");
    daemon.end();
}

#[test]
fn drives_go_and_come_back_under_a_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 40MiB");
    let daemon = Daemon::start(&sandbox, "");
    let data = unique_bytes(20 << 20, 5);
    sandbox.write("tank/a", 0, &data);
    sandbox.ok("pool offline tank @d/drive1.img");
    sandbox.run("pool status tank").expect_code(3);
    sandbox.write("tank/a", 0, &data[1 << 20..2 << 20]);
    sandbox.ok("pool online tank @d/drive1.img --wait");
    sandbox.run("pool status tank").expect_code(0);

    // A drive is unplugged and plugged in again.
    std::fs::rename(sandbox.path("d/drive2.img"), sandbox.path("pulled.img")).expect("moved");
    until("that is noticed", || sandbox.run("pool status tank").code == 3);
    sandbox.write("tank/a", 1 << 20, &data[..1 << 20]);
    // A file in its place is refused, and not kept locked.
    std::fs::write(sandbox.path("d/drive2.img"), vec![7; 32 << 20]).expect("written");
    sandbox.fails("pool online tank @d/drive2.img");
    let file = std::fs::File::open(sandbox.path("d/drive2.img")).expect("there");
    file.try_lock().expect("the daemon has closed it");
    std::fs::rename(sandbox.path("pulled.img"), sandbox.path("d/drive2.img")).expect("moved");
    sandbox.ok("pool online tank @d/drive2.img --wait");
    sandbox.run("pool status tank").expect_code(0);

    // A refused drive is not kept locked.
    std::fs::write(sandbox.path("diary.img"), vec![7; 32 << 20]).expect("written");
    assert!(sandbox.fails("pool add tank @diary.img").contains("data of an unknown kind"));
    sandbox.ok("pool create other @diary.img --force");

    // Bit rot is found and repaired.
    corrupt(&sandbox.path("d/drive3.img"), sandbox.place_of(3, &data[..400_000]), 1 << 14);
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("repaired from the other drives"), "{}", scrub.text());
    daemon.end();
    let mut expected = data.clone();
    expected[..1 << 20].copy_from_slice(&data[1 << 20..2 << 20]);
    expected[1 << 20..2 << 20].copy_from_slice(&data[..1 << 20]);
    assert!(sandbox.read("tank/a", 0, data.len()) == expected);
}

/// Waits until a command that writes to a volume through a daemon has written its first bytes.
fn until_begun(sandbox: &Sandbox, volume: &str, bytes: &[u8]) {
    until("the command has begun", || sandbox.read(volume, 0, bytes.len()) == bytes);
}

#[test]
fn no_client_opens_a_volume_that_a_command_writes_to() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 24MiB");
    sandbox.ok("volume create tank/b --layout raid5 --size 8MiB");
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    let socket = sandbox.path("nbd.sock");
    let mut command = sandbox.command("volume write tank/a");
    let mut writing = command.stdin(Stdio::piped()).spawn().expect("started");
    let mut input = writing.stdin.take().expect("piped");
    let data = unique_bytes(12 << 20, 3);
    input.write_all(&data).expect("taken");
    until_begun(&sandbox, "tank/a", &data[..4096]);

    let open = |name: &str| {
        let mut client = nbd_client::Client::connect(&socket);
        let replies = client.option(nbd_client::OPT_GO, &nbd_client::info(name, &[]));
        (replies.last().expect("an answer").0, client)
    };
    assert_ne!(open("tank/a").0, nbd_client::ACK, "it would be changed under the client");
    assert_eq!(open("tank/b").0, nbd_client::ACK);
    drop(input);
    assert!(writing.wait().expect("it ends").success());
    let (answer, client) = open("tank/a");
    assert_eq!(answer, nbd_client::ACK);
    let refused = sandbox.fails("volume delete tank/a --yes");
    assert!(refused.contains("a client has tank/a open"), "{refused}");
    drop(client);
    daemon.end();
}

#[test]
fn commands_writing_within_one_sector_lose_nothing() {
    let sandbox = Sandbox::new();
    // Slow drives: a read-modify-write of a sector takes long enough for another command to
    // interfere.
    sandbox.ok("drive make @d --count 2 --size 32MiB --pace 20iops");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB --checksums off");
    sandbox.write("tank/a", 0, &[0; 4096]);
    let daemon = Daemon::start(&sandbox, "tank");
    let start = |offset: usize| {
        let mut command = sandbox.command(&format!("volume write tank/a --offset {offset}"));
        let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
        let input = child.stdin.take().expect("piped");
        (offset, child, input)
    };
    let mut writers: Vec<_> = (0..4).map(|index| start(1000 + index * 10)).collect();
    for (offset, _, input) in &mut writers {
        input.write_all(&[*offset as u8; 10]).expect("taken");
    }
    for (_, mut child, input) in writers {
        drop(input);
        assert!(child.wait().expect("it ends").success());
    }
    let read = sandbox.read("tank/a", 1000, 40);
    let expected: Vec<u8> = (0..40).map(|at| (1000 + at / 10 * 10) as u8).collect();
    assert_eq!(read, expected);
    daemon.end();
}

/// Writes pieces from 16 MiB on until a write fails. Records the durable pieces by offset and
/// returns their number. The last piece may be written or not.
fn write_until_it_fails(client: &mut nbd_client::Client, durable: &mut BTreeMap<u64, Vec<u8>>) -> u64 {
    for number in 0.. {
        let (at, bytes) = ((16 << 20) + number % 300 * 65536, unique_bytes(65536, 1000 + number));
        if client.ask(nbd_client::WRITE, nbd_client::FUA, at, 65536, &bytes) != 0 {
            durable.remove(&at);
            break;
        }
        durable.insert(at, bytes);
    }
    durable.len() as u64
}

/// Twice, two of four drives of a RAID 5 fail while a client writes, and return: the command in the
/// status makes the daemon continue with all acknowledged data.
#[test]
fn a_pool_resumes_after_losing_too_many_drives() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 40MiB");
    let data = unique_bytes(16 << 20, 5);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    let socket = sandbox.path("nbd.sock");
    let mut durable = BTreeMap::new();
    for pair in [[1, 2], [3, 0]] {
        let mut client = nbd_client::Client::ready(&socket, "tank/a");
        let away = |index: usize| sandbox.path(&format!("away{index}.img"));
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| write_until_it_fails(&mut client, &mut durable));
            std::thread::sleep(std::time::Duration::from_millis(300));
            for index in pair {
                std::fs::rename(sandbox.drive_path(index), away(index)).expect("moved");
            }
            assert!(writing.join().expect("no panic") > 0);
        });
        let mut status = serde_json::Value::Null;
        until("it is noticed", || {
            let answer = sandbox.run("pool status tank --json");
            status = answer.json()["pools"][0].clone();
            answer.code == 1
        });
        let action = status["action"].as_str().expect("text").to_owned();
        let words = action.strip_prefix("stripewise ").expect("a command").to_owned();
        assert!(words.starts_with("pool online tank "), "{status:#}");
        // A missing drive does not close the pool.
        sandbox.fails(&words);
        assert!(!daemon.said().contains("is reopened") || pair == [3, 0], "{}", daemon.said());
        for index in pair {
            std::fs::rename(away(index), sandbox.drive_path(index)).expect("moved");
        }
        let done = sandbox.ok(&words);
        assert!(done.text().contains("was reopened"), "{}", done.text());
        // The client is disconnected, so that it reconnects.
        assert!(client.is_closed(), "a client of the closed pool is disconnected");
        let mut again = nbd_client::Client::ready(&socket, "tank/a");
        assert!(again.read(0, data.len() as u32) == data);
        for (at, bytes) in &durable {
            assert!(again.read(*at, 65536) == *bytes, "acknowledged data at {at} survives");
        }
        write_after_loss(&mut again, 0, &data);
        until("the pool is whole again", || sandbox.run("pool status tank").code == 0);
    }
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("no errors found"), "{}", scrub.text());
    daemon.end();
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}

#[test]
fn pools_come_and_go_while_the_daemon_runs() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, "");
    sandbox.pool(2);
    let lock_names_it = || {
        let locks = std::fs::read_dir(sandbox.path("home/pools")).into_iter().flatten().flatten();
        locks
            .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
            .any(|text| text.contains("control.sock"))
    };
    until("the new pool is served", lock_names_it);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    sandbox.ok("pool export tank");
    assert!(sandbox.json("pool list")["pools"].as_array().expect("pools").is_empty());
    sandbox.ok("pool import --dir @d tank");
    until("it is served again", lock_names_it);
    assert_eq!(sandbox.json("volume list")["volumes"][0]["name"], "a");
    sandbox.ok("pool destroy tank --yes");
    assert!(sandbox.json("pool list")["pools"].as_array().expect("pools").is_empty());
    daemon.end();
}

#[test]
fn a_pool_on_a_served_volume_is_served() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 5 --size 160MiB");
    sandbox.ok("pool create below @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create below/x --layout raid5 --size 64MiB");
    sandbox.ok("pool create above below/x @d/drive3.img");
    sandbox.ok("volume create above/a --layout raid1 --size 24MiB");
    let data = unique_bytes(9 << 20, 6);
    let daemon = Daemon::start(&sandbox, "above");
    sandbox.write("above/a", 0, &data);
    // The pool below is served as well.
    sandbox.ok("volume create below/y --layout raid5 --size 64MiB");
    // A new pool is created in the daemon, which alone can access the volume.
    sandbox.ok("pool create other below/y @d/drive4.img --force");
    assert!(sandbox.read("above/a", 0, data.len()) == data);
    daemon.end();
    std::fs::remove_file(sandbox.path("d/drive3.img")).expect("there");
    assert!(sandbox.read("above/a", 0, data.len()) == data);
}

#[test]
fn malformed_commands_do_not_harm_the_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 16MiB");
    let daemon = Daemon::start(&sandbox, "");
    let path = sandbox.path("home/control.sock");
    let connect = || UnixStream::connect(&path).expect("it listens");
    // More connections than the daemon accepts at a time: idle ones give way to waiting ones.
    let silent: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
    let begin = std::time::Instant::now();
    sandbox.ok("volume list tank");
    assert!(
        begin.elapsed() < std::time::Duration::from_secs(20),
        "behind 200 that are silent: {:?}",
        begin.elapsed()
    );
    for seed in 0..50 {
        let mut stream = connect();
        let mut bytes = unique_bytes(300, seed);
        if seed % 2 == 0 {
            bytes[..5].copy_from_slice(&[b'C', 200, 0, 0, 0]);
        }
        // The daemon may have closed the connection already.
        let _ = stream.write_all(&bytes);
    }
    // A client that requests much and reads nothing, and a client that leaves during a request.
    let ask = |words: &[&str]| {
        let command = serde_json::json!({
            "version": 1, "words": words, "folder": "/", "colours": {"out": false, "err": false}, "input_bytes": null
        });
        let body = command.to_string();
        let mut frame = vec![b'C'];
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend(body.as_bytes());
        let mut stream = connect();
        stream.write_all(&frame).expect("sent");
        stream
    };
    let deaf = ask(&["volume", "read", "tank/a"]);
    drop(ask(&["volume", "read", "tank/a"]));
    drop(ask(&["volume", "write", "tank/a"]));
    drop(ask(&["pool", "wait", "tank", "destage"]));
    let data = unique_bytes(1 << 20, 7);
    sandbox.write("tank/a", 0, &data);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    drop((silent, deaf));
    // Only the owner may connect.
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    daemon.end();
}
