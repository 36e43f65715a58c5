//! The laboratory's commands as reviewers type them: methods on files, folders and volumes, the store, comparisons,
//! reports, imports; and everything that must be refused.

use crate::kit::{Sandbox, keys, unique_bytes};

const QUICK: &str = "--profile @quick.toml --seconds 0.2 --runs 3";

/// A method of four short figures.
fn with_profile() -> Sandbox {
    let sandbox = Sandbox::new();
    let text = "name = \"quick\"\ntool = \"none\"\n[[measurement]]\nname = \"seq\"\nops = [\"read\", \"write\"]\n\
                pattern = \"sequential\"\nblocks = [\"64KiB\"]\ndepths = [4]\n[[measurement]]\nname = \"rnd\"\n\
                ops = [\"read\", \"write\"]\npattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [4]\n";
    std::fs::write(sandbox.path("quick.toml"), text).expect("written");
    std::fs::create_dir(sandbox.path("folder")).expect("made");
    sandbox
}

fn entries(sandbox: &Sandbox, folder: &str) -> usize {
    std::fs::read_dir(sandbox.path(folder)).expect("the folder").count()
}

#[test]
fn a_run_has_the_keys_promised_and_is_in_the_store() {
    let sandbox = with_profile();
    let run = sandbox.json(&format!("lab run @folder {QUICK} --size 8MiB"));
    for key in ["output_version", "run", "target", "profile", "measurements"] {
        assert!(keys(&run).contains(&key), "{key}: {run}");
    }
    let figures = run["measurements"].as_array().expect("a list");
    assert_eq!(figures.len(), 4);
    for figure in figures {
        for key in [
            "name",
            "op",
            "block_bytes",
            "queue_depth",
            "workers",
            "mb_per_s",
            "iops",
            "latency_us",
            "runs",
            "ci95",
            "badges",
        ] {
            assert!(keys(figure).contains(&key), "{key}: {figure}");
        }
        assert!(figure["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
        assert_eq!(figure["runs"].as_array().map(Vec::len), Some(3));
        assert_eq!(keys(&figure["latency_us"]), ["max", "mean", "p50", "p99", "p999"]);
    }
    assert_eq!(entries(&sandbox, "folder"), 0, "the file it made is gone");
    let list = sandbox.json("lab list");
    assert_eq!(list["runs"][0]["run"], run["run"]);
    assert_eq!(keys(&list["runs"][0]), ["date", "finished", "profile", "run", "target", "tool"]);
    let name = run["run"].as_str().expect("a name");
    assert_eq!(sandbox.json(&format!("lab show {name}")), run);
    assert_eq!(sandbox.json("lab show latest"), run);
    let csv = sandbox.ok(&format!("lab export {name} --csv"));
    assert_eq!(csv.text().lines().count(), 1 + 12, "{}", csv.text());
    assert_eq!(sandbox.json(&format!("lab export {name}"))["runs"][0]["run"], run["run"]);
    sandbox.ok(&format!("lab report {name} -o @report.html"));
    let page = std::fs::read_to_string(sandbox.path("report.html")).expect("the page");
    assert!(page.contains(name) && page.contains("<svg") && !page.contains("https://"));
}

#[test]
fn two_runs_are_compared_with_a_verdict_for_each_figure() {
    let sandbox = with_profile();
    for file in ["a.csv", "b.csv"] {
        let factor = if file == "a.csv" { 1.0 } else { 0.8 };
        let mut text = "config,op,value,unit\n".to_owned();
        for run in 0..6 {
            text += &format!(
                "x,read,{},MB/s\nx,write,{},MB/s\n",
                factor * (100.0 + f64::from(run)),
                50 + run % 2
            );
        }
        std::fs::write(sandbox.path(file), text).expect("written");
    }
    let first = sandbox.json("lab import @a.csv")["run"].as_str().expect("a name").to_owned();
    let second = sandbox.json("lab import @b.csv")["run"].as_str().expect("a name").to_owned();
    let compared = sandbox.json(&format!("lab compare {first} {second}"));
    let verdict = |at: usize| compared["comparisons"][at]["verdict"].as_str().expect("a verdict").to_owned();
    assert_eq!((verdict(0).as_str(), verdict(1).as_str()), ("worse", "cannot_tell"), "{compared}");
    for key in ["measurement", "ratio", "ci95", "verdict"] {
        assert!(keys(&compared["comparisons"][0]).contains(&key), "{key}");
    }
    let again = sandbox.run("lab import @a.csv");
    assert_eq!(again.code, 1);
    assert!(again.err.contains("in the store already"), "{}", again.err);
    std::fs::write(sandbox.path("c.txt"), "not a result").expect("written");
    let refused = sandbox.run("lab import @c.txt");
    assert!(refused.code == 1 && refused.err.contains("none of the formats known"), "{}", refused.err);
}

#[test]
fn nothing_of_the_users_is_overwritten_unasked() {
    let sandbox = with_profile();
    let bytes = unique_bytes(1 << 20, 3);
    std::fs::write(sandbox.path("mine"), &bytes).expect("written");
    let refused = sandbox.run(&format!("lab run @mine {QUICK}"));
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("would overwrite") && refused.err.contains("--force"), "{}", refused.err);
    let read = sandbox.json(&format!("lab run @mine {QUICK} --read-only"));
    assert_eq!(read["measurements"].as_array().map(Vec::len), Some(2), "reads alone: {read}");
    assert_eq!(read["measurements"][0]["badges"]["filled_before"], false);
    assert!(std::fs::read(sandbox.path("mine")).expect("there") == bytes, "untouched");
    sandbox.ok(&format!("lab run @mine {QUICK} --force"));
    assert!(std::fs::read(sandbox.path("mine")).expect("there") != bytes);
    sandbox.pool(3);
    let member = sandbox.run(&format!("lab run @drive0.img {QUICK}"));
    assert_eq!(member.code, 1, "{}", member.err);
}

#[test]
fn a_volume_is_measured_in_place() {
    let sandbox = with_profile();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let run = sandbox.json(&format!("lab run tank/a {QUICK}"));
    assert_eq!(
        (run["target"].as_str(), run["measurements"].as_array().map(Vec::len)),
        (Some("tank/a"), Some(4))
    );
    let refused = sandbox.run(&format!("lab run tank/a {QUICK}"));
    assert!(refused.code == 1 && refused.err.contains("holds data"), "{}", refused.err);
    sandbox.ok(&format!("lab run tank/a {QUICK} --read-only"));
    sandbox.ok("pool scrub tank --wait");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let sandbox = with_profile();
    for (words, code, part) in [
        ("lab run @folder --profile cristaldiskmark", 2, "the nearest is `crystaldiskmark`"),
        ("lab run @nowhere --profile atto", 1, "there is no"),
        ("lab run /dev/null --profile atto", 1, "character device"),
        ("lab run @folder --profile atto --seconds 0", 2, "more than 0"),
        ("lab run @folder --profile @absent.toml", 1, "cannot read"),
        ("lab run model:nothing --profile atto", 1, "no modelled system"),
        ("lab show nothing", 1, "there is no run `nothing`"),
        ("lab show latest", 1, "no runs yet"),
    ] {
        let answer = sandbox.run(words);
        assert!(answer.code == code && answer.err.contains(part), "{words}: {} {}", answer.code, answer.err);
    }
    let text = std::fs::read_to_string(sandbox.path("quick.toml")).expect("there");
    std::fs::write(sandbox.path("wrong.toml"), text.replace("pattern", "patern")).expect("written");
    let answer = sandbox.run("lab run @folder --profile @wrong.toml");
    assert!(answer.err.contains("did you mean `pattern`"), "{}", answer.err);
    std::fs::write(sandbox.path("home/lab.sqlite"), "a letter to a friend, not a database".repeat(100))
        .expect("written");
    let answer = sandbox.run("lab list");
    assert!(answer.code == 1 && answer.err.contains("move the file away"), "{}", answer.err);
    let profiles = sandbox.json("lab profiles");
    assert_eq!(keys(&profiles["profiles"][0]), ["about", "measurements", "name", "tool"]);
}

#[test]
fn methods_on_files_run_in_a_folder_and_on_a_volume() {
    let sandbox = with_profile();
    let text = "name = \"small\"\nruns = 2\n[postmark]\nfiles = 50\ntransactions = 100\n";
    std::fs::write(sandbox.path("small.toml"), text).expect("written");
    let run = sandbox.json("lab run @folder --profile @small.toml");
    let figures = run["measurements"].as_array().expect("a list");
    assert_eq!((figures.len(), figures[1]["name"].as_str()), (12, Some("transactions")));
    assert_eq!(figures[1]["runs"].as_array().map(Vec::len), Some(2));
    assert!(figures[1]["iops"].as_f64().is_some_and(|rate| rate > 0.0), "{run}");
    let run = sandbox.json("lab run @folder --profile bonnie --size 4MiB");
    assert_eq!(run["measurements"].as_array().map(Vec::len), Some(12));
    assert!(run["notes"][0].as_str().is_some_and(|note| note.contains("host's memory")), "{run}");
    assert_eq!(entries(&sandbox, "folder"), 0, "what was made is gone");
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    sandbox.ok("lab run tank/a --profile @small.toml");
    sandbox.ok("pool scrub tank --wait");
    std::fs::write(sandbox.path("wrong.toml"), text.replace("files = 50", "files = 0")).expect("written");
    assert_eq!(sandbox.run("lab run @folder --profile @wrong.toml").code, 1);
}

#[test]
fn a_study_gives_its_tables_and_judges_its_findings() {
    let sandbox = Sandbox::new();
    let study = sandbox.json("lab study 004 --quick --model fixed:1ms,245MB/s,4 --out @out");
    assert_eq!(study["study"], "004");
    let row = &study["tables"][0]["rows"][0];
    assert_eq!(
        keys(row),
        [
            "ci95",
            "measured",
            "metric",
            "percent_of_single",
            "published",
            "published_percent_of_single",
            "row"
        ]
    );
    let verdicts: Vec<&str> = study["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| finding["verdict"].as_str().expect("a verdict"))
        .collect();
    for known in ["agrees", "cannot_tell", "not_modelled"] {
        assert!(verdicts.contains(&known), "{verdicts:?}");
    }
    assert!(sandbox.path("out/study-004.md").exists() && sandbox.path("out/study-004.json").exists());
    assert_eq!(sandbox.run("lab study 005").code, 2);
}
