//! Automatic snapshots, as the command line, HTTP and the daemon have them.

use serde_json::json;

use crate::kit::Sandbox;
use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;

#[test]
fn a_daemon_takes_automatic_snapshots() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/log --layout raid5 --size 4MiB --log");
    sandbox.ok("snapshot create tank/log@one");
    let set = sandbox.ok("volume set tank/log hourly-snapshots=24 weekly-snapshots=4").one_line();
    assert!(set.contains("keeps 24 hourly, 4 weekly snapshots") && set.contains("stripewise serve"), "{set}");
    let schedule = || sandbox.json("volume show tank/log")["volumes"][0]["snapshot_schedule"].clone();
    assert_eq!(schedule(), json!({"hourly": 24, "daily": 0, "weekly": 4}));
    sandbox.ok("volume set tank/log weekly-snapshots=off");
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock --http unix:http.sock");
    let taken = |kind: &str| {
        let listed = sandbox.json("snapshot list tank/log");
        let names = listed["snapshots"].as_array().expect("a list").clone();
        names.iter().filter(|of| of["name"].as_str().expect("a name").ends_with(kind)).count()
    };
    until("one is taken", || taken(".hourly") > 0);
    assert_eq!((taken(".weekly"), taken("one")), (0, 1));
    let web = Web::unix(sandbox.path("http.sock"));
    let volume = "/api/v1/pools/tank/volumes/log";
    web.ok("PATCH", volume, json!({"snapshot_schedule": {"daily": 7, "hourly": 0}}));
    assert_eq!(schedule(), json!({"hourly": 0, "daily": 7, "weekly": 0}));
    assert_eq!(web.ask("PATCH", volume, json!({"snapshot_schedule": {}})).0, 400);
    assert_eq!(web.ask("PATCH", volume, json!({"snapshot_schedule": {"daily": 1001}})).0, 409);
    daemon.end();
    sandbox.ok("volume set tank/log daily-snapshots=off");
    assert_eq!(schedule(), json!(null));
    sandbox.ok("volume create tank/plain --layout raid5 --size 4MiB");
    let refused = sandbox.fails("volume set tank/plain daily-snapshots=7");
    assert!(refused.contains("has no snapshots") && refused.contains("hint:"), "{refused}");
    for wrong in ["daily-snapshots=0", "daily-snapshots=1001", "yearly-snapshots=1", "daily-snapshots"] {
        sandbox.run(&format!("volume set tank/log {wrong}")).expect_code(2);
    }
}
