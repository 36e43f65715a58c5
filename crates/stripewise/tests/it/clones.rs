//! Clones of snapshots, as the command line, HTTP and NBD have them.

use serde_json::json;

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::{Client, WRITE};

const LENGTH: usize = 1 << 20;

/// A pool with a log volume and the snapshot `log@one` of its first contents, and these.
fn with_snapshot(sandbox: &Sandbox) -> Vec<u8> {
    let old = unique_bytes(LENGTH, 1);
    sandbox.pool(4);
    sandbox.ok("volume create tank/log --layout raid5 --size 4MiB --log");
    sandbox.write("tank/log", 0, &old);
    sandbox.ok("snapshot create tank/log@one");
    sandbox.write("tank/log", 0, &unique_bytes(LENGTH, 2));
    old
}

#[test]
fn clones_are_served_like_other_volumes() {
    let sandbox = Sandbox::new();
    let old = with_snapshot(&sandbox);
    let made = sandbox.ok("snapshot clone tank/log@one tank/trial");
    assert!(made.text().contains("volume tank/trial created as a clone of tank/log@one"), "{}", made.text());
    assert!(sandbox.read("tank/trial", 0, LENGTH) == old);
    sandbox.write("tank/trial", 4096, &[7; 4096]);
    assert!(sandbox.read("tank/log@one", 0, LENGTH) == old);
    let shown = &sandbox.json("volume show tank/trial")["volumes"][0];
    assert_eq!((&shown["clone_of"], &shown["allocated_bytes"]), (&json!("log@one"), &json!(0)));
    assert_eq!((&shown["layout"], &shown["capacity_bytes"]), (&json!("raid5"), &json!(4 << 20)));
    assert!(sandbox.ok("volume show tank/trial").one_line().contains("clone of: tank/log@one"));
    let status = sandbox.ok("pool status tank").one_line();
    assert!(status.contains("log: log:") && !status.contains("log: trial:"), "{status}");
    for (command, reason) in [
        ("snapshot clone tank/log@one tank/trial", "already has a volume trial"),
        ("snapshot clone tank/log@none tank/new", "has no snapshot log@none"),
        ("snapshot delete tank/log@one", "has clones: trial"),
        ("volume resize tank/trial 8MiB", "cannot be resized"),
        ("volume convert tank/trial --layout raid6", "cannot be converted"),
        ("volume set tank/trial daily-snapshots=1", "is a clone"),
    ] {
        let refused = sandbox.fails(command);
        assert!(refused.contains(reason), "{command}: {refused}");
    }
    let other = sandbox.run("snapshot clone tank/log@one lake/new").expect_code(2);
    assert!(other.err.contains("hint:"), "{}", other.err);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock --http unix:http.sock");
    let mut client = Client::ready(&sandbox.path("nbd.sock"), "tank/trial");
    assert!(client.read(0, 4096) == old[..4096] && client.read(4096, 4096) == [7; 4096]);
    assert_eq!(client.ask(WRITE, 0, 0, 4096, &[8; 4096]), 0);
    let refused = sandbox.fails("volume delete tank/trial --yes");
    assert!(refused.contains("a client has tank/trial open"), "{refused}");
    drop(client);
    let web = Web::unix(sandbox.path("http.sock"));
    let path = "/api/v1/pools/tank/volumes/log/snapshots/one/clone";
    let document = web.ok("POST", path, json!({"name": "second"}));
    assert_eq!(document["volumes"][0]["clone_of"], "log@one");
    assert_eq!(web.ask("POST", path, json!({"name": "second"})).0, 409);
    until("the client has left", || sandbox.run("volume delete tank/trial --yes").code == 0);
    sandbox.ok("volume delete tank/second --yes");
    sandbox.ok("snapshot delete tank/log@one");
    sandbox.ok("volume delete tank/log --yes");
    daemon.end();
}
