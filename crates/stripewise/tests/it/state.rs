//! The state folder is its owner's, and a lock there that is held for ever does not hold up a
//! daemon.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kit::Sandbox;
use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;
use crate::nbd_client::Client;
use serde_json::json;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777
}

/// All that is in a folder, and in those below.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(
            |path| if path.is_dir() { [vec![path.clone()], all_in(&path)].concat() } else { vec![path] },
        )
        .collect()
}

#[test]
fn the_state_folder_and_drive_files_are_private() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    assert_eq!(mode(&sandbox.drive_path(0)), 0o600);
    // As an earlier version left it.
    std::fs::set_permissions(sandbox.path("home"), std::fs::Permissions::from_mode(0o755)).expect("set");
    let daemon = Daemon::start(&sandbox, "--http 0");
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let status = || {
        all_in(&sandbox.path("home")).into_iter().any(|path| path.to_string_lossy().ends_with("status.json"))
    };
    until("it has left word", status);
    assert_eq!(mode(&sandbox.path("home")), 0o700);
    for path in all_in(&sandbox.path("home")) {
        // Some are there for a moment only.
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
    }
    daemon.end();
}

#[test]
fn a_state_folder_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    if std::fs::metadata(sandbox.path("home")).expect("there").uid() != 0 {
        println!("skipped: only root can give a folder away");
        return;
    }
    std::os::unix::fs::chown(sandbox.path("home"), Some(65534), None).expect("given away");
    let refused = sandbox.fails("pool status");
    assert!(refused.contains("belongs to another user (65534)") && refused.contains("hint: "), "{refused}");
}

#[test]
fn a_stuck_lock_blocks_only_its_own_command() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
    let mut client = Client::ready(&sandbox.path("nbd.sock"), "tank/a");
    let held = std::fs::File::open(sandbox.path("home/pools.lock")).expect("there");
    held.lock().expect("locked");
    let pool = json!({"name": "other", "drives": [sandbox.text("e/drive0.img")]});
    let waiting = {
        let web = Web::own(&sandbox);
        std::thread::spawn(move || web.ask("POST", "/api/v1/pools", pool))
    };
    // For as long as the command waits.
    let mut reads = 0;
    while !waiting.is_finished() {
        let begin = Instant::now();
        client.read(0, 4096);
        assert!(begin.elapsed() < Duration::from_secs(3), "a read waited {:?}", begin.elapsed());
        reads += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, answer) = waiting.join().expect("no panic");
    let detail = answer["detail"].as_str().unwrap_or_default().to_owned();
    assert!(status == 409 && detail.contains("cannot be changed"), "{status} {answer}");
    assert!(detail.contains(&format!("process {}", std::process::id())), "the holder: {detail}");
    assert!(reads > 20, "{reads}");
    drop(held);
    daemon.end();
}

#[test]
fn every_command_refuses_a_folder_open_to_others() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    for open in [0o770, 0o702, 0o1777] {
        std::fs::set_permissions(sandbox.path("home"), std::fs::Permissions::from_mode(open)).expect("set");
        for words in ["pool list", "pool status", "volume list", "lab list", "serve"] {
            let refused = sandbox.fails(words);
            assert!(
                refused.contains("other users may write") && refused.contains("chmod 700"),
                "{words}: {refused}"
            );
        }
    }
}

#[test]
fn results_of_the_laboratory_are_their_owners_alone() {
    let sandbox = Sandbox::new();
    let home = sandbox.path("home");
    let script = format!("umask 0; exec {} lab list", env!("CARGO_BIN_EXE_stripewise"));
    let mut shell = std::process::Command::new("sh");
    let status = shell.args(["-c", &script]).env("STRIPEWISE_HOME", &home).status();
    assert!(status.expect("it runs").success());
    assert_eq!((mode(&home), mode(&home.join("lab.sqlite"))), (0o700, 0o600));
    // As an earlier version made it.
    std::fs::set_permissions(home.join("lab.sqlite"), std::fs::Permissions::from_mode(0o644)).expect("set");
    sandbox.ok("lab list");
    assert_eq!(mode(&home.join("lab.sqlite")), 0o600);
}
