//! `drive measure`, the use of its entries as models, and `evaluate --predict`.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::kit::{Sandbox, keys};

/// Makes a drive that is quick to measure and has a known rate.
fn paced(sandbox: &Sandbox) {
    sandbox.ok("drive make @d --count 1 --size 64MiB --pace 80MB/s,2000iops");
}

fn is_empty(sandbox: &Sandbox, name: &str) -> bool {
    fs::read(sandbox.path(name)).expect("readable").iter().all(|byte| *byte == 0)
}

#[test]
fn a_measured_drive_is_a_model_wherever_one_is_taken() {
    let sandbox = Sandbox::new();
    paced(&sandbox);
    // Each load gets 0.14 s of these; after a stall a paced drive makes up for up to 10 ms.
    let measured = sandbox.json("drive measure @d/drive0.img -o @mine.toml --seconds 12");
    let rate = |key: &str| measured[key].as_f64().unwrap_or_else(|| panic!("{key}: {measured}"));
    let (sequential, random) = (rate("seq_read_mb_per_s"), rate("random_read_iops"));
    // A busy host gives less than the pace of 80 MB/s and 2,000 IOPS, and after a stall a little
    // more. Without the pace these files give more than ten times as much.
    assert!(sequential > 0.0 && sequential < 160.0, "{measured}");
    assert!(random > 0.0 && random < 4000.0, "{measured}");
    assert_eq!(measured["wrote"], true);
    assert!(is_empty(&sandbox, "d/drive0.img"), "an empty drive is empty afterwards");

    // In virtual time, long enough for a drive that was measured at its slowest.
    let entry = sandbox.json("model catalogue @mine.toml");
    assert_eq!(entry["drives"][0]["kind"], "measured");
    assert_eq!(entry["drives"][0]["parameters"]["random_read_us"]["from"], "measured");
    let words = "evaluate --model @mine.toml --size 32MiB --layouts raid0 --seconds 2 --quick --out @out";
    let raid0 = &sandbox.json(words)["arrays"][0]["states"]["normal"]["seq_read"]["mb_per_s"];
    let named = sandbox.text("mine.toml");
    let run = sandbox.json(&format!("lab run model:{named} --profile crystaldiskmark --seconds 5 --runs 1"));
    let rates = run["measurements"].as_array().unwrap().iter().map(|one| one["mb_per_s"].as_f64().unwrap());
    assert!(rates.clone().count() >= 4 && rates.clone().all(|rate| rate > 0.0), "{run}");
    // Both in virtual time: four drives do at most four times what one does.
    let drives = raid0.as_f64().unwrap() / rates.fold(0.0, f64::max);
    assert!(drives > 0.0 && drives < 4.5, "four drives read {raid0} MB/s: {run}");

    // A second measurement replaces an entry; a file that is not an entry needs --force.
    sandbox.ok("drive measure @d/drive0.img -o @mine.toml --seconds 0.5");
    fs::write(sandbox.path("letter.toml"), "dear diary").unwrap();
    let error = sandbox.fails("drive measure @d/drive0.img -o @letter.toml --seconds 0.5");
    assert!(error.contains("is no entry of a measured drive") && error.contains("--force"), "{error}");
    assert_eq!(fs::read_to_string(sandbox.path("letter.toml")).unwrap(), "dear diary");
}

#[test]
fn measuring_a_drive_overwrites_nothing() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/data --layout raid5 --size 8MiB");
    let member = fs::read(sandbox.drive_path(0)).unwrap();
    for force in ["", " --force"] {
        let error = sandbox.fails(&format!("drive measure @d/drive0.img -o @x.toml --seconds 0.5{force}"));
        assert!(error.contains("is a drive of pool `tank`") && error.contains("hint: "), "{error}");
    }
    assert!(fs::read(sandbox.drive_path(0)).unwrap() == member);

    // Data anywhere on the drive counts, not only at its beginning.
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    let file = fs::OpenOptions::new().write(true).open(sandbox.path("e/drive0.img")).unwrap();
    file.write_all_at(&[7; 65_536], 20 << 20).unwrap();
    let before = fs::read(sandbox.path("e/drive0.img")).unwrap();
    let error = sandbox.fails("drive measure @e/drive0.img -o @x.toml --seconds 0.5");
    assert!(error.contains("would overwrite") && error.contains("--read-only"), "{error}");
    let read_only = sandbox.json("drive measure @e/drive0.img -o @x.toml --seconds 0.5 --read-only");
    assert_eq!(read_only["wrote"], false);
    assert!(fs::read(sandbox.path("e/drive0.img")).unwrap() == before, "nothing was written");
    sandbox.ok("drive measure @e/drive0.img -o @x.toml --seconds 0.5 --force");
    assert!(is_empty(&sandbox, "e/drive0.img"));
}

#[test]
fn unmeasurable_drives_and_models_are_reported() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 1 --size 4MiB");
    for (words, code, why) in [
        ("drive measure @none.img -o @x.toml", 1, "no such file or device"),
        ("drive measure @d -o @x.toml", 1, "this is a directory"),
        ("drive measure @d/drive0.img -o @d/drive0.img", 2, "is the drive itself"),
        ("drive measure @d/drive0.img -o @no/x.toml", 1, "does not exist"),
        ("drive measure @d/drive0.img -o @x.toml --seconds 0.5", 1, "measuring needs 8388608"),
        ("drive measure @d/drive0.img -o @x.toml --seconds 0", 2, "--seconds takes"),
        ("evaluate --model @none.toml", 2, "none.toml: No such file"),
        ("evaluate --model hdd8tbb", 2, "hdd8tb"),
        ("evaluate --model hdd8tb --predict", 2, "--predict"),
        ("model catalogue @none.toml", 1, "none.toml: No such file"),
        ("lab run model:mg08ada40 --profile crystaldiskmark", 1, "mg08ada400e"),
        ("lab run model:004-adaptec-raid --profile crystaldiskmark", 1, "004-adaptec-raid5"),
        ("lab run model:nvme --profile bonnie", 2, "works on files"),
        ("lab run model:nvme --profile crystaldiskmark --driver fio", 2, "require a real target"),
        ("lab run model:nvme model:x25e --profile crystaldiskmark", 2, "cannot be measured in turns"),
        ("lab run model:x25e --profile crystaldiskmark --size 1TB", 1, "cannot be measured"),
    ] {
        let refused = sandbox.run(words);
        assert_eq!(refused.code, code, "{words}: {}", refused.err);
        assert!(refused.err.contains(why), "{words}: {}", refused.err);
    }
    fs::write(sandbox.path("half.toml"), "name = \"x\"\ntitle = \"x\"\nkind = \"measured\"\n[parameters]\n")
        .unwrap();
    let error = sandbox.run("evaluate --model @half.toml").expect_code(2).err;
    assert!(error.contains("half.toml:") && error.contains("missing"), "{error}");
}

#[test]
fn methods_run_on_drives_and_systems_of_the_catalogue() {
    let sandbox = Sandbox::new();
    let run = |target: &str, more: &str| -> Value {
        sandbox
            .json(&format!("lab run model:{target} --profile crystaldiskmark --runs 1 --seconds 0.2{more}"))
    };
    for target in ["mg08ada400e", "x25e", "002-hw0-4"] {
        let run = run(target, "");
        let figures = run["measurements"].as_array().unwrap();
        assert!(figures.len() >= 4, "{run}");
        for figure in figures {
            assert!(figure["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{target}: {figure}");
            assert!(figure["latency_us"]["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{figure}");
        }
        let stored = sandbox.json(&format!("lab show {}", run["run"].as_str().unwrap()));
        assert_eq!(stored["measurements"], run["measurements"]);
    }
    let figures = |run: Value| run["measurements"].clone();
    assert_eq!(figures(run("nvme", "")), figures(run("nvme", "")), "virtual time repeats");
    let read_only = run("mg08ada400e", " --read-only");
    let ops = read_only["measurements"].as_array().unwrap().iter().map(|one| one["op"].as_str().unwrap());
    assert!(ops.clone().all(|op| op == "read"), "{:?}", ops.collect::<Vec<_>>());
}

#[test]
fn evaluate_predict_prints_prediction_and_error() {
    let sandbox = Sandbox::new();
    let words =
        "evaluate --predict --quick --layouts raid5 --size 32MiB --seconds 0.1 --pace 300MB/s,3000iops";
    let results = sandbox.json(&format!("{words} --out @out"));
    let predictions = results["predictions"].as_array().unwrap();
    let normal = predictions.iter().filter(|one| one["state"] == "normal").collect::<Vec<_>>();
    assert_eq!(normal.len(), 3, "{predictions:?}");
    for one in normal {
        let wanted =
            ["error_percent", "layout", "measured_mb_per_s", "predicted_mb_per_s", "state", "workload"];
        assert_eq!(keys(one), wanted);
        let (measured, predicted) = (&one["measured_mb_per_s"], &one["predicted_mb_per_s"]);
        let ratio = predicted.as_f64().unwrap() / measured.as_f64().unwrap();
        let error = 100.0 * (ratio.ln().abs().exp() - 1.0);
        assert!((one["error_percent"].as_f64().unwrap().abs() - error).abs() < 1e-6, "{one}");
    }
    assert!(results["median_error_percent"].as_f64().is_some());
    assert_eq!(results["arrays"][0]["corrupt_bytes"], 0);
    let left: Vec<_> = fs::read_dir(sandbox.path("")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["out"], "the drives are gone");
}
