//! Drives that were made to do harm: what they say is bounded before it is believed, and never more
//! than text.

use crate::kit::daemon::Daemon;
use crate::kit::web::Web;
use crate::kit::{Sandbox, unique_bytes};
use serde_json::json;
use stripewise_pool::fuzzing;

/// A size that no volume of the pool has room for, with all checksums right: a program that
/// believed it would take all memory.
#[test]
fn a_drive_that_lies_about_sizes_harms_no_other_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    sandbox.ok("pool export tank");
    for drive in 0..2 {
        let mut image = std::fs::read(sandbox.drive_path(drive)).expect("readable");
        let mut lies = 0;
        fuzzing::change_numbers(&mut image, |number| {
            let is_size = number == 8 << 20;
            lies += u64::from(is_size);
            if is_size { 1 << 60 } else { number }
        });
        assert!(lies > 0, "there is a size to lie about");
        std::fs::write(sandbox.drive_path(drive), image).expect("written");
    }
    sandbox.ok("drive make @e --count 2 --size 32MiB");
    sandbox.ok("pool create other @e/drive0.img @e/drive1.img");
    sandbox.ok("volume create other/b --layout raid1 --size 8MiB");
    let data = unique_bytes(1 << 20, 1);
    sandbox.write("other/b", 0, &data);
    let daemon = Daemon::start(&sandbox, "");
    let web = Web::own(&sandbox);
    let (status, answer) = web.ask("POST", "/api/v1/import", json!({"folders": [sandbox.text("d")]}));
    assert_ne!(status, 500, "{answer}");
    let (_, shown) =
        web.ask("POST", "/api/v1/drives/show", json!({"drives": [sandbox.text("d/drive0.img")]}));
    assert!(!shown.to_string().contains(&(1_u64 << 60).to_string()), "{shown}");
    assert!(sandbox.read("other/b", 0, data.len()) == data, "the daemon goes on");
    daemon.end();
}

#[test]
fn escape_sequences_on_a_drive_never_reach_a_terminal() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 32MiB");
    // The pool's record has the path.
    let evil = sandbox.path("d/\u{1b}]0;owned\u{7}\u{9b}2J.img");
    std::fs::rename(sandbox.drive_path(1), &evil).expect("renamed");
    let mut create = sandbox.command("pool create tank @d/drive0.img");
    assert!(create.arg(&evil).output().expect("run").status.success());
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let is_tame = |words: &str| {
        let answer = sandbox.run(words);
        let all = format!("{}{}", String::from_utf8_lossy(&answer.out), answer.err);
        assert!(all.chars().all(|letter| letter == '\n' || !letter.is_control()), "`{words}`: {all:?}");
        all
    };
    for words in ["pool status tank", "drive show @d/drive0.img", "pool events tank", "pool list"] {
        is_tame(words);
        is_tame(&format!("{words} --json"));
    }
    assert!(is_tame("pool status tank").contains("\\u{1b}]0;owned\\u{7}"), "it is shown as what it is");
    std::fs::rename(&evil, sandbox.path("away.img")).expect("renamed");
    is_tame("pool status tank");
    is_tame("volume read tank/none --offset 0 --length 512");
}
