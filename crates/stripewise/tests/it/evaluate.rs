//! The main job, small: the files it leaves, the keys it promises, and what it refuses.

use crate::kit::daemon::until;
use crate::kit::{Sandbox, keys};
use serde_json::Value;

fn read_json(sandbox: &Sandbox, name: &str) -> Value {
    let text = std::fs::read(sandbox.path(name)).expect("written");
    serde_json::from_slice(&text).expect("JSON")
}

fn check_keys(results: &Value) {
    for key in ["output_version", "environment", "arrays"] {
        assert!(results.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(results["output_version"], 1);
    for array in results["arrays"].as_array().expect("a list") {
        for key in [
            "layout",
            "drives",
            "columns",
            "interleave_bytes",
            "capacity_bytes",
            "rebuild_seconds",
            "rebuild_mb_per_s",
            "verified_bytes",
            "corrupt_bytes",
            "states",
        ] {
            assert!(array.get(key).is_some(), "arrays[].{key} is missing");
        }
        let states = array["states"].as_object().expect("states by name");
        assert!(states.contains_key("normal"));
        for (name, state) in states {
            assert!(["normal", "degraded", "rebuilding"].contains(&name.as_str()), "{name}");
            for (workload, cell) in state.as_object().expect("measurements by name") {
                assert!(["seq_write", "seq_read", "mixed"].contains(&workload.as_str()), "{workload}");
                for key in ["mb_per_s", "iops", "latency_us", "runs", "ci95"] {
                    assert!(cell.get(key).is_some(), "{key} is missing");
                }
                assert!(cell["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
                for key in ["mean", "p50", "p99", "p999", "max"] {
                    assert!(cell["latency_us"].get(key).is_some(), "latency_us.{key} is missing");
                }
            }
        }
    }
}

#[test]
fn on_files_it_leaves_a_report_and_nothing_else() {
    let sandbox = Sandbox::new();
    let words = "evaluate --quick --layouts single,raid5 --size 32MiB --seconds 0.1 --pace 200MB/s --out @out --json --quiet";
    let answer = sandbox.ok(words);
    assert_eq!(answer.err, "");
    let printed = answer.json();
    assert_eq!(printed, read_json(&sandbox, "out/results.json"));
    check_keys(&printed);
    let arrays = printed["arrays"].as_array().expect("a list");
    assert_eq!(arrays.len(), 2);
    let raid5 = &arrays[1];
    assert_eq!((&raid5["layout"], &raid5["columns"]), (&"raid5".into(), &4.into()));
    let states = keys(&raid5["states"]);
    assert!(states.contains(&"normal") && states.contains(&"degraded"), "{states:?}");
    assert_eq!(raid5["corrupt_bytes"], 0);
    assert_eq!(raid5["verified_bytes"], raid5["capacity_bytes"]);
    assert!(raid5["rebuild_seconds"].as_f64().is_some_and(|seconds| seconds > 0.1), "30 MiB at 200 MB/s");

    let html = std::fs::read_to_string(sandbox.path("out/report.html")).expect("written");
    assert!(html.contains("<svg") && html.contains("raid5"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!html.contains(outside), "the report is one file: {outside}");
    }
    let mut left: Vec<String> = ["", "out"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(sandbox.path(folder)).expect("a folder"))
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain"))
        .collect();
    left.sort();
    assert_eq!(left, ["out", "report.html", "results.json"]);
}

#[test]
fn virtual_time_evaluations_are_repeatable() {
    let sandbox = Sandbox::new();
    let words = "evaluate --model fixed:100us,500MB/s,32 --size 64MiB --layouts raid0,raid6 --seconds 0.2 --quick --json --quiet";
    let figures = |out: &str| {
        let results = sandbox.ok(&format!("{words} --out {out}")).json();
        check_keys(&results);
        assert_eq!(keys(&results["arrays"][1]["states"]), ["degraded", "normal", "rebuilding"]);
        results["arrays"].clone()
    };
    assert_eq!(figures("@a"), figures("@b"));
}

#[test]
fn catalogue_drives_are_evaluated_in_virtual_time() {
    let sandbox = Sandbox::new();
    let words = "evaluate --model mg08ada400e --size 1GiB --layouts single,raid0 --seconds 0.5 --quick --json --quiet";
    let results = sandbox.ok(&format!("{words} --out @out")).json();
    check_keys(&results);
    let rate = |array: usize| {
        let figure = &results["arrays"][array]["states"]["normal"]["seq_read"]["mb_per_s"];
        figure.as_f64().unwrap()
    };
    // Caches take part, and that is said below.
    assert!((190.0..300.0).contains(&rate(0)), "{}", rate(0));
    assert!(rate(1) > 2.5 * rate(0), "{} {}", rate(0), rate(1));
    let small = warnings(&results);
    assert!(small.iter().any(|text| text.contains("hold less than 8 times")), "{small:?}");
    assert!(small.iter().any(|text| text.contains("a run of 0.5 s is too short")), "{small:?}");
    let error = sandbox.run("evaluate --model mg08ada40").expect_code(2).err;
    assert!(error.contains("mg08ada400e") && error.contains("fixed:LATENCY,RATE,DEPTH"), "{error}");
}

fn warnings(results: &Value) -> Vec<String> {
    let remarks = results["remarks"].as_array().expect("a list").iter();
    let text = |remark: &Value| remark["text"].as_str().expect("words").to_owned();
    remarks.map(text).filter(|text| text.starts_with("Caches are not defeated")).collect()
}

/// Its medium gives 245 MB/s, its caches what its cable does.
#[test]
fn default_runs_hold_a_model_to_its_media_rate() {
    let sandbox = Sandbox::new();
    for look in ["", "--quick"] {
        let words = format!("evaluate --model mg08ada400e --layouts single {look} --json --quiet");
        let results = sandbox.ok(&format!("{words} --out @out")).json();
        for load in ["seq_read", "seq_write"] {
            let rate = results["arrays"][0]["states"]["normal"][load]["mb_per_s"].as_f64().unwrap();
            assert!((230.0..250.0).contains(&rate), "{look} {load}: {rate}");
        }
        assert_eq!(warnings(&results), [""; 0]);
    }
}

#[test]
fn evaluate_uses_the_loads_of_a_profile() {
    let sandbox = Sandbox::new();
    let method = "name = \"two\"\n[[measurement]]\nname = \"small\"\nops = [\"read\", \"write\"]\n\
                  pattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [8]\n";
    std::fs::write(sandbox.path("two.toml"), method).expect("written");
    let words = "evaluate --profile @two.toml --model fixed:100us,500MB/s,32 --size 64MiB --layouts raid1 \
                 --seconds 0.2 --quick --json --quiet --out @out";
    let results = sandbox.ok(words).json();
    for state in ["normal", "degraded", "rebuilding"] {
        let cells = &results["arrays"][0]["states"][state];
        assert_eq!(keys(cells), ["small_read", "small_write"], "{state}: {results}");
    }
}

#[test]
fn text_output_shows_the_matrix() {
    let sandbox = Sandbox::new();
    let words =
        "evaluate --model fixed:100us,500MB/s,32 --size 64MiB --layouts single,raid10 --seconds 0.2 --quick";
    let answer = sandbox.ok(words);
    let text = answer.text();
    for expected in
        ["Throughput in MB/s", "─ normal ─", "─ degraded ─", "rebuild, idle", "% of a single drive"]
    {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    let says = format!("report: {}\n", sandbox.text("report.html"));
    assert!(answer.err.contains(&says), "{}", answer.err);
}

#[test]
fn drives_given_are_measured_and_those_in_use_are_not() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 16MiB --pace 250MB/s");
    let words = "evaluate --drives @d/drive0.img @d/drive1.img @d/drive2.img --count 2 --layouts raid0 --quick --seconds 0.1";
    let results = sandbox.ok(&format!("{words} --out @out --json --quiet")).json();
    check_keys(&results);
    assert_eq!(results["arrays"][0]["corrupt_bytes"], 0);
    assert_eq!(results["settings"]["pace"]["text"], "250MB/s", "the drives' own");
    let again = sandbox.fails(&format!("{words} --out @out"));
    assert!(again.contains("nothing was changed"), "{again}");

    sandbox.ok("drive make @p --count 2 --size 16MiB");
    sandbox.ok("pool create tank @p/drive0.img @p/drive1.img");
    let refused = sandbox.fails("evaluate --drives @p/drive0.img @p/drive1.img --layouts raid1 --quick");
    assert!(refused.contains("holds a drive of pool `tank`; nothing was changed"), "{refused}");
    sandbox.ok("pool status tank");
}

#[test]
fn invalid_evaluations_are_refused_before_any_setup() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 16MiB");
    std::fs::write(sandbox.path("file"), "").expect("written");
    let usage = |words: &str| sandbox.run(&format!("evaluate {words}")).expect_code(2).err;
    assert!(usage("--layouts raid9").contains("there is no layout \"raid9\""));
    assert!(usage("--pace fast").contains("or auto, or none"));
    assert!(usage("--runs 0 --quick").contains("at least one run"));
    assert!(usage("--profile nonesuch").contains("there is no profile `nonesuch`"));
    assert!(usage("--profile postmark").contains("no loads that an array can be evaluated with"));
    assert!(usage("--model nonesuch").contains("fixed:LATENCY,RATE,DEPTH"));
    assert!(
        usage("--drives @d/drive0.img @d/drive1.img --size 1GiB").contains("given drives keep their size")
    );
    assert!(usage("--drives @d/drive0.img @d/drive1.img --count 3").contains("fewer drives are given"));
    let fails = |words: &str| sandbox.fails(&format!("evaluate {words}"));
    assert!(
        fails("--drives @d/drive0.img @d/drive1.img --layouts raid5")
            .contains("raid5 needs at least 3 drives")
    );
    assert!(fails("--drives @d/drive0.img @d/drive0.img").contains("is given twice"));
    assert!(fails("--size 900TB --quick").contains("the drives need"), "{}", fails("--size 900TB --quick"));
    assert!(fails("--out @file/results").contains("hint: choose another directory with --out"));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command("evaluate --layouts raid5 --size 64MiB --pace 20MB/s --out @out")
        .spawn()
        .expect("started");
    // The drives' files have no names: what the process has open shows them.
    let open = format!("/proc/{}/fd", child.id());
    let is_drive = |file: std::io::Result<std::fs::DirEntry>| {
        let target = file.and_then(|file| std::fs::read_link(file.path()));
        target.is_ok_and(|target| target.to_string_lossy().contains(".stripewise-evaluate-"))
    };
    until("its drives are made", || std::fs::read_dir(&open).expect("its files").any(is_drive));
    assert!(child.try_wait().expect("a child").is_none(), "still at work");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    let says = String::from_utf8(output.stderr).expect("text");
    assert!(says.contains("error: interrupted; nothing is left behind"), "{says}");
    let left: Vec<_> = std::fs::read_dir(sandbox.path("out")).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
