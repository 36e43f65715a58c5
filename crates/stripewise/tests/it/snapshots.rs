//! Snapshots as the command line takes, lists, reads and refuses them, with and without a daemon.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use serde_json::json;

use crate::kit::daemon::{Daemon, until};
use crate::kit::mount::Mount;
use crate::kit::programs::is_possible;
use crate::kit::web::Web;
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::{self, Client, FLUSH, TRIM, WRITE, WRITE_ZEROES};

const LENGTH: usize = 1 << 20;

fn names(document: &serde_json::Value) -> Vec<String> {
    let of = |snapshot: &serde_json::Value| {
        let [volume, name] = ["volume", "name"].map(|key| snapshot[key].as_str().expect("a name"));
        format!("{volume}@{name}")
    };
    document["snapshots"].as_array().expect("a list").iter().map(of).collect()
}

#[test]
fn snapshots_live_from_creation_to_deletion() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    for name in ["a", "b"] {
        sandbox.ok(&format!("volume create tank/{name} --layout raid5 --size 4MiB --log"));
        sandbox.write(&format!("tank/{name}"), 0, &unique_bytes(LENGTH, 1));
    }
    assert_eq!(sandbox.json("snapshot list")["snapshots"], json!([]));
    let created = sandbox.json("snapshot create tank/a@monday tank/b@monday");
    assert_eq!(names(&created), ["a@monday", "b@monday"]);
    let first = &created["snapshots"][0];
    assert_eq!((&first["pool"], &first["capacity_bytes"]), (&json!("tank"), &json!(4 << 20)));
    assert!(first["created_unix_ms"].as_u64().expect("a time") > 1_700_000_000_000);
    sandbox.write("tank/a", 0, &unique_bytes(LENGTH, 2));
    let taken = sandbox.ok("snapshot create tank/a@tuesday");
    assert!(taken.text().contains("snapshot tank/a@tuesday taken"), "{}", taken.text());
    assert_eq!(names(&sandbox.json("snapshot list tank/a")), ["a@monday", "a@tuesday"]);
    assert_eq!(names(&sandbox.json("snapshot list tank")), ["a@monday", "a@tuesday", "b@monday"]);
    let listed = sandbox.ok("snapshot list -o snapshot,created");
    assert!(listed.text().contains("tank/b@monday"), "{}", listed.text());
    let log = &sandbox.json("volume show tank/a")["volumes"][0]["log"];
    assert_eq!(log["snapshots"], 2);
    assert!(log["snapshot_bytes"].as_u64().expect("a number") <= LENGTH as u64, "{log}");
    let status = sandbox.ok("pool status tank");
    assert!(status.text().contains("2 snapshots holding at least"), "{}", status.text());
    let events = sandbox.ok("pool events tank");
    assert!(events.text().contains("snapshot a@monday was taken"), "{}", events.text());
    let left = sandbox.json("snapshot delete tank/a@monday tank/a@tuesday");
    assert_eq!(names(&left), Vec::<String>::new());
    assert_eq!(names(&sandbox.json("snapshot list tank")), ["b@monday"]);
    sandbox.ok("volume delete tank/a --yes");
}

#[test]
fn wrong_snapshots_are_refused_with_a_hint() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/log --layout raid5 --size 4MiB --log");
    sandbox.ok("volume create tank/plain --layout raid5 --size 4MiB");
    sandbox.ok("snapshot create tank/log@one");
    for (command, reason) in [
        ("snapshot create tank/log@one", "already has a snapshot log@one"),
        ("snapshot create tank/log@two tank/log@two", "already has a snapshot log@two"),
        ("snapshot create tank/plain@one", "has no snapshots"),
        ("snapshot create tank/none@one", "has no volume none"),
        ("snapshot list tank/plain", "has no snapshots"),
        ("snapshot delete tank/log@two", "has no snapshot log@two"),
        ("volume delete tank/log --yes", "has snapshots: 1"),
    ] {
        let refused = sandbox.fails(command);
        assert!(refused.contains(reason) && refused.contains("hint:"), "{command}: {refused}");
    }
    for wrong in ["tank/log", "tank@one", "tank/log@", "tank/log@a@b", "tank/log@a/b", "tank/log@-x"] {
        sandbox.run(&format!("snapshot create {wrong}")).expect_code(2);
    }
    assert_eq!(names(&sandbox.json("snapshot list")), ["log@one"]);
}

/// A pool with a log volume and a snapshot of its first contents; the second contents, and all.
fn with_snapshot(sandbox: &Sandbox) -> (Vec<u8>, Vec<u8>) {
    let (old, new) = (unique_bytes(LENGTH, 1), unique_bytes(LENGTH, 2));
    sandbox.pool(4);
    sandbox.ok("volume create tank/log --layout raid5 --size 4MiB --log");
    sandbox.write("tank/log", 4096, &old);
    sandbox.ok("snapshot create tank/log@old");
    sandbox.write("tank/log", 4096, &new);
    (old, new)
}

#[test]
fn snapshots_are_exports_that_cannot_be_written() {
    let sandbox = Sandbox::new();
    let (old, new) = with_snapshot(&sandbox);
    assert!(sandbox.read("tank/log@old", 4096, LENGTH) == old);
    assert!(sandbox.read("tank/log", 4096, LENGTH) == new);
    sandbox.run_with_input("volume write tank/log@old --offset 0", &[1; 4096]).expect_code(2);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock --http unix:http.sock");
    let socket = sandbox.path("nbd.sock");
    let mut lister = Client::connect(&socket);
    let listed: Vec<String> = lister
        .option(nbd_client::OPT_LIST, &[])
        .into_iter()
        .map(|(_, entry)| String::from_utf8_lossy(entry.get(4..).unwrap_or_default()).into_owned())
        .collect();
    assert_eq!(listed, ["tank/log", "tank/log@old", ""]);
    let mut only = Client::ready(&socket, "");
    assert!(only.read(4096, LENGTH as u32) == new, "the volume is meant");
    let mut client = Client::ready(&socket, "tank/log@old");
    assert!(client.read(4096, LENGTH as u32) == old);
    assert!(client.read(4000, 200)[96..] == old[..104]);
    for (kind, payload) in [(WRITE, &[7; 4096][..]), (TRIM, &[]), (WRITE_ZEROES, &[])] {
        assert_eq!(client.ask(kind, 0, 0, 4096, payload), 1, "{kind} is not permitted");
    }
    assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0);
    // The volume goes on beside it.
    let third = unique_bytes(LENGTH, 3);
    assert_eq!(only.ask(WRITE, 0, 4096, LENGTH as u32, &third), 0);
    assert!(client.read(4096, LENGTH as u32) == old);
    let refused = sandbox.fails("snapshot delete tank/log@old");
    assert!(refused.contains("a client has tank/log@old open") && refused.contains("hint:"), "{refused}");
    drop((client, only, lister));
    let web = Web::unix(sandbox.path("http.sock"));
    let (status, bytes) =
        web.ask_raw("GET", "/api/v1/pools/tank/volumes/log@old/bytes?offset=4096&length=1048576", &[], &[]);
    assert!(status == 200 && bytes == old, "{status}");
    let made = web.ok("POST", "/api/v1/pools/tank/snapshots", json!({"snapshots": ["log@new"]}));
    assert_eq!(names(&made), ["log@old", "log@new"]);
    assert_eq!(names(&web.ok("GET", "/api/v1/snapshots", json!(null))), ["log@old", "log@new"]);
    let left = web.ok("DELETE", "/api/v1/pools/tank/volumes/log/snapshots/new", json!(null));
    assert_eq!(names(&left), ["log@old"]);
    until("the client has left", || sandbox.run("snapshot delete tank/log@old").code == 0);
    daemon.end();
}

#[test]
fn snapshots_are_files_that_cannot_be_written() {
    if !is_possible(&[]) {
        return;
    }
    let sandbox = Sandbox::new();
    let (old, new) = with_snapshot(&sandbox);
    let mount = Mount::start(&sandbox, "mount tank @m");
    let mut listed: Vec<_> = std::fs::read_dir(&mount.folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    listed.sort();
    assert_eq!(listed, ["log", "log@old"]);
    let metadata = std::fs::metadata(mount.file("log@old")).expect("there");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (4 << 20, 0o400));
    for (name, expected) in [("log", &new), ("log@old", &old)] {
        let mut read = vec![0; LENGTH];
        let file = File::open(mount.file(name)).expect("opened");
        file.read_exact_at(&mut read, 4096).expect("read");
        assert!(read == *expected, "{name}");
    }
    let write = OpenOptions::new().write(true).open(mount.file("log@old"));
    assert_eq!(write.expect_err("it never changes").raw_os_error(), Some(30));
    let file = File::open(mount.file("log@old")).expect("opened");
    let refused = sandbox.fails("snapshot delete tank/log@old");
    assert!(refused.contains("a client has tank/log@old open"), "{refused}");
    drop(file);
    until("the file is closed", || sandbox.run("snapshot delete tank/log@old").code == 0);
    assert!(!mount.file("log@old").exists());
    // Another snapshot of this name is another file.
    sandbox.ok("snapshot create tank/log@old");
    let mut read = vec![0; LENGTH];
    File::open(mount.file("log@old")).expect("opened").read_exact_at(&mut read, 4096).expect("read");
    assert!(read == new);
    mount.end();
}

#[test]
fn volumes_are_compared_and_rolled_back() {
    let sandbox = Sandbox::new();
    let (old, new) = with_snapshot(&sandbox);
    sandbox.ok("snapshot create tank/log@new");
    sandbox.write("tank/log", 2 << 20, &[9; 4096]);
    let diff = sandbox.json("snapshot diff tank/log@old tank/log@new");
    let range = json!({"offset_bytes": 4096, "length_bytes": LENGTH, "has_data": true});
    assert_eq!((&diff["ranges"], &diff["changed_bytes"]), (&json!([range]), &json!(LENGTH)));
    assert_eq!(diff["next_offset_bytes"], json!(null));
    let now = sandbox.json("snapshot diff tank/log@old tank/log --limit 1");
    assert_eq!((&now["ranges"], &now["next_offset_bytes"]), (&json!([range]), &json!(2 << 20)));
    let rest = sandbox.ok(&format!("snapshot diff tank/log@old tank/log --offset {}", 2 << 20));
    assert_eq!(rest.one_line(), format!("OFFSET LENGTH NOW {} 4096 data", 2 << 20));
    assert!(sandbox.ok("snapshot diff tank/log@new tank/log@new").text().contains("no difference"));
    sandbox.run("snapshot diff tank/log@old tank/other@new").expect_code(2);
    sandbox.run("snapshot diff tank/log@old tank/log --limit 0").expect_code(2);

    let refused = sandbox.fails("snapshot rollback tank/log@old");
    assert!(refused.contains("newer snapshots") && refused.contains("rollback -r tank/log@old"), "{refused}");
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    let socket = sandbox.path("nbd.sock");
    for name in ["tank/log", "tank/log@new"] {
        let client = Client::ready(&socket, name);
        let refused = sandbox.fails("snapshot rollback tank/log@old -r");
        assert!(refused.contains(&format!("a client has {name} open")), "{refused}");
        drop(client);
        until("the client has left", || {
            sandbox.run("snapshot rollback tank/log@new").code == 0 || name == "tank/log@new"
        });
    }
    assert!(sandbox.read("tank/log", 4096, LENGTH) == new);
    until("the client has left", || sandbox.run("snapshot rollback -r tank/log@old").code == 0);
    assert!(sandbox.read("tank/log", 4096, LENGTH) == old);
    assert!(sandbox.read("tank/log", 2 << 20, 4096) == [0; 4096]);
    assert_eq!(names(&sandbox.json("snapshot list")), ["log@old"]);
    daemon.end();
}
