//! `model`: drives of the catalogue, and replays.

use std::path::PathBuf;

use crate::kit::{Sandbox, keys};

fn study(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../studies/disksim").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_replay_prints_its_error() {
    let sandbox = Sandbox::new();
    let words = format!("model replay --drive {} {}", study("atlas10k.json"), study("atlas10k.trace.csv"));
    let replay = sandbox.json(&words);
    assert_eq!(replay["output_version"], 1);
    let demerit_ms = replay["demerit_ms"].as_f64().unwrap();
    assert!(demerit_ms > 0.0 && demerit_ms <= 0.268, "{demerit_ms}");
    let share = demerit_ms * 100.0 / replay["measured_mean_ms"].as_f64().unwrap();
    assert!((replay["demerit_percent"].as_f64().unwrap() - share).abs() < 1e-9);
    assert!((replay["mean_ms"].as_f64().unwrap() - 3.9).abs() < 0.1);
    assert_eq!(keys(&replay["percentiles_ms"]), ["max", "p50", "p90", "p99", "p999"]);
    assert!(sandbox.ok(&words).text().contains("demerit 0.0"));
}

#[test]
fn files_that_cannot_be_replayed_are_told_with_their_place() {
    let sandbox = Sandbox::new();
    let (drive, trace) = (study("atlas10k.json"), sandbox.path("t.csv"));
    std::fs::write(&trace, "op,lbn,sectors,response_us,gap_us\nR,1,4,9,9\nR,-1,4,9,9\n").unwrap();
    let error = sandbox.fails(&format!("model replay --drive {drive} @t.csv"));
    assert!(error.contains("t.csv:3:2: lbn `-1`") && error.contains("hint: "), "{error}");
    std::fs::write(sandbox.path("d.json"), "{\n  \"name\": 7\n}").unwrap();
    let error = sandbox.fails("model replay --drive @d.json @t.csv");
    assert!(error.contains("d.json:2:11: invalid type"), "{error}");
    let error = sandbox.fails("model replay --drive @none.json @t.csv");
    assert!(error.contains("none.json: No such file"), "{error}");
    assert!(sandbox.run("model replay @t.csv").expect_code(2).err.contains("--drive"));
}

#[test]
fn the_catalogue_says_where_each_number_is_from() {
    let sandbox = Sandbox::new();
    let drives = sandbox.json("model catalogue")["drives"].as_array().unwrap().clone();
    assert!(drives.len() >= 7);
    for drive in &drives {
        assert_eq!(keys(drive), ["capacity_bytes", "kind", "name", "parameters", "title"]);
    }
    let one = sandbox.json("model catalogue mg08ada400e");
    let seek = &one["drives"][0]["parameters"]["average_seek_ms"];
    assert_eq!((seek["value"].as_f64(), seek["from"].as_str()), (Some(6.0), Some("fitted")));
    assert!(sandbox.ok("model catalogue mg08ada400e").text().contains("average_seek_ms"));
    let error = sandbox.fails("model catalogue mg08");
    assert!(error.contains("mg08ada400e") && error.contains("hint: "), "{error}");
}

#[test]
fn advice_has_the_keys_promised_and_writes_one_page() {
    let sandbox = Sandbox::new();
    let advice =
        sandbox.json("advise --drives 3x8TB-hdd --workload sequential --link 1gbe --report @advice.html");
    let first = &advice["choices"][0];
    for key in [
        "rank",
        "layout",
        "drives",
        "usable_bytes",
        "normal",
        "degraded",
        "rebuilding",
        "rebuild_seconds",
        "loss_probability_per_year",
        "bottleneck",
        "reason",
        "error_percent",
        "dominated_by",
        "commands",
    ] {
        assert!(keys(first).contains(&key), "{key}: {first}");
    }
    for key in ["seq_write", "seq_read", "mixed"] {
        assert!(first["degraded"][key].as_f64().is_some(), "{key}: {first}");
    }
    assert_eq!(keys(&first["commands"]), ["mdadm", "storage_spaces", "stripewise", "zpool"]);
    assert!(advice["assumptions"].as_array().is_some_and(|list| !list.is_empty()));
    let page = std::fs::read_to_string(sandbox.path("advice.html")).expect("written");
    assert!(page.contains("<svg") && page.contains("raid5") && !page.contains("src="), "{page}");
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_what_would_do() {
    let sandbox = Sandbox::new();
    for (words, code, why) in [
        ("", 2, "--drives 4x8TB-hdd"),
        ("--drives 4xmg08ada40e", 2, "mg08ada400e"),
        ("--drives=-4x8TB-hdd", 2, "no number of drives"),
        ("--drives 4x8TB-hdd --workload read=70,write=50", 2, "add up to 120 %"),
        ("--drives 4x8TB-hdd --workload sequental", 2, "sequential"),
        ("--drives 4x8TB-hdd --link 3gbe", 2, "2.5gbe"),
        ("--drives 4x8TB-hdd --risk=-5", 2, "percentage"),
        ("--drives 4x8TB-hdd --controller megarad", 2, "controller"),
        ("--drives 2x8TB-hdd --capacity 100TB", 1, "nearest: raid1"),
    ] {
        let refused = sandbox.run(&format!("advise {words}"));
        assert_eq!(refused.code, code, "{words}: {}", refused.err);
        assert!(refused.err.contains(why), "{words}: {}", refused.err);
    }
}

#[test]
fn a_pool_is_told_what_another_layout_would_give() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/data --layout raid5 --size 16MiB");
    let advice = sandbox.json("pool advise tank");
    let volume = &advice["volumes"][0];
    assert_eq!((volume["volume"].as_str(), volume["layout"].as_str()), (Some("tank/data"), Some("raid5")));
    let commands: Vec<&str> = volume["alternatives"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|alternative| alternative["command"].as_str())
        .collect();
    for wanted in [
        "stripewise volume convert tank/data --layout raid10 --columns 4",
        "stripewise pool add tank SSD1 SSD2 --as journal",
        "stripewise pool add tank DRIVE --as spare",
    ] {
        assert!(commands.contains(&wanted), "{wanted}: {commands:?}");
    }
    let rebuild = &volume["rebuild"];
    let (idle, now) = (rebuild["idle_seconds"].as_f64(), rebuild["now_seconds"].as_f64());
    assert!(idle > Some(0.0) && now >= idle, "{rebuild}");
    let text = sandbox.ok("pool advise tank --workload sequential");
    assert!(text.text().contains("volume convert tank/data --layout raid6"), "{}", text.text());
    assert!(sandbox.fails("pool advise nothing").contains("nothing"));
}
