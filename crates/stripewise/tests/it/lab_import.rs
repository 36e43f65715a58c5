//! `lab import` as a command: several files, folders, standard input; files that are refused.

use serde_json::Value;

use crate::kit::Sandbox;

fn table(rate: u32) -> String {
    format!("config,op,mb_per_s\nnew,read,{rate}\n")
}

fn count(answer: &Value, key: &str) -> usize {
    answer[key].as_array().map_or(0, Vec::len)
}

#[test]
fn several_files_become_several_runs() {
    let sandbox = Sandbox::new();
    for (name, text) in [("a.csv", table(5)), ("b.csv", table(6)), ("c.csv", "no result".to_owned())] {
        std::fs::write(sandbox.path(name), text).expect("written");
    }
    let both = sandbox.json("lab import @a.csv @b.csv");
    assert_eq!((count(&both, "runs"), count(&both, "known"), count(&both, "failed")), (2, 0, 0), "{both}");
    assert_eq!(
        (both["runs"][0]["figures"].as_u64(), both["runs"][0]["tool"].as_str()),
        (Some(1), Some("table"))
    );
    let mixed = sandbox.run("--json lab import @a.csv @c.csv");
    assert_eq!((mixed.code, count(&mixed.json(), "known"), count(&mixed.json(), "failed")), (1, 1, 1));
    assert!(mixed.err.contains("c.csv: this is none of the formats known"), "{}", mixed.err);
    let text = sandbox.ok("lab import @a.csv @b.csv");
    assert_eq!(text.text().matches("is in the store already: import-").count(), 2, "{}", text.text());
    let none = sandbox.fails("lab import @c.csv @gone.csv");
    assert!(none.contains("none of 2 files could be imported") && none.contains("gone.csv"), "{none}");
}

#[test]
fn folders_and_standard_input_are_imported() {
    let sandbox = Sandbox::new();
    let inner = sandbox.path("campaign/inner");
    std::fs::create_dir_all(&inner).expect("made");
    std::fs::write(sandbox.path("campaign/a.csv"), table(5)).expect("written");
    std::fs::write(sandbox.path("campaign/run.sh"), "#!/bin/sh\n").expect("written");
    std::fs::write(inner.join("b.csv"), table(6)).expect("written");
    std::os::unix::fs::symlink(sandbox.path("campaign"), inner.join("circle")).expect("linked");
    assert!(
        std::process::Command::new("mkfifo").arg(inner.join("pipe")).status().expect("it runs").success()
    );
    let answer = sandbox.run("--json lab import @campaign").expect_code(0);
    assert_eq!(count(&answer.json(), "runs"), 2, "{}", answer.text());
    assert!(answer.err.contains("files without known results were skipped: 1"), "{}", answer.err);
    let input =
        sandbox.run_with_input("--json lab import - --target box", table(7).as_bytes()).expect_code(0);
    assert_eq!(
        (input.json()["target"].as_str(), input.json()["measurements"][0]["mb_per_s"].as_f64()),
        (Some("box"), Some(7.0))
    );
    assert_eq!(sandbox.json("lab show latest")["run"], input.json()["run"], "its date is now");
    std::fs::create_dir(sandbox.path("empty")).expect("made");
    assert!(sandbox.fails("lab import @empty").contains("has no files"));
}

#[test]
fn the_latest_run_is_the_newest_instant() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.path("old.txt"),
        "[Read]\nSEQ 1MiB (Q=  8, T= 1):  512.250 MB/s\n  Date: 2026/01/02 3:04:05\n",
    )
    .expect("written");
    std::fs::write(sandbox.path("new.csv"), table(5)).expect("written");
    let old = sandbox.json("lab import @old.txt");
    let new = sandbox.json("lab import @new.csv");
    assert_eq!(old["date"], "2026-01-02T03:04:05Z");
    assert_eq!(sandbox.json("lab show latest")["run"], new["run"]);
}

#[test]
fn only_files_of_a_sane_size_are_imported() {
    let sandbox = Sandbox::new();
    let pipe = sandbox.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let refused = sandbox.fails("lab import @pipe");
    assert!(refused.contains("is not a file") && refused.contains("lab import -"), "{refused}");
    let file = std::fs::File::create(sandbox.path("large")).expect("made");
    file.set_len(1 << 40).expect("room");
    let refused = sandbox.fails("lab import @large");
    assert!(refused.contains("results of one run are smaller"), "{refused}");
}
