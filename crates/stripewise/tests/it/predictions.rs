//! Predictions, sweeps and validation as people type them: the keys promised, and what is refused.

use crate::kit::{Sandbox, keys};

#[test]
fn a_prediction_has_its_keys_and_the_bottleneck() {
    let sandbox = Sandbox::new();
    let answer = sandbox.json("model predict 002-hw0-4 --pattern rand-read --block 8K");
    for key in [
        "output_version",
        "system",
        "layout",
        "state",
        "mb_per_s",
        "iops",
        "latency_us",
        "bottleneck",
        "rebuild_seconds",
        "headroom",
        "drive_utilisations",
        "processor_utilisation",
        "expected_error_percent",
    ] {
        assert!(keys(&answer).contains(&key), "{key}: {answer}");
    }
    assert_eq!(keys(&answer["latency_us"]), ["max", "mean", "p50", "p99", "p999"]);
    assert_eq!(answer["drive_utilisations"].as_array().map(Vec::len), Some(4));
    assert!(answer["processor_utilisation"].as_f64().is_some_and(|share| share > 0.9), "{answer}");
    assert_eq!(answer["bottleneck"], "controller");
    assert_eq!((answer["layout"].as_str(), answer["state"].as_str()), (Some("raid0"), Some("normal")));
    let wide =
        sandbox.json("model predict --drives 4xmg08ada400e --layout raid5 --link 1gbe --pattern seq-read");
    assert_eq!(wide["bottleneck"], "link");
    assert!(wide["rebuild_seconds"].as_f64().is_some_and(|seconds| seconds > 3600.0), "{wide}");
}

#[test]
fn examples_in_the_help_of_models_run() {
    let sandbox = Sandbox::new();
    for command in ["model predict", "model sweep", "model catalogue"] {
        let help = String::from_utf8(sandbox.ok(&format!("{command} --help")).out).expect("text");
        // Long examples are wrapped.
        let words: Vec<&str> = help.split_whitespace().collect();
        let at = words.windows(2).position(|pair| pair == ["Example:", "stripewise"]).expect("an example");
        let answer = sandbox.ok(&words[at + 2..].join(" "));
        assert!(!answer.out.is_empty(), "{command}");
    }
}

#[test]
fn a_validation_answers_every_row_of_a_study() {
    let sandbox = Sandbox::new();
    let answer = sandbox.json("model validate --study 001");
    for key in ["output_version", "tables", "rows", "median_error_percent", "p90_error_percent"] {
        assert!(keys(&answer).contains(&key), "{key}: {answer}");
    }
    let rows = answer["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 111);
    for key in ["study", "table", "row", "metric", "published", "predicted", "error_percent", "fitted"] {
        assert!(keys(&rows[0]).contains(&key), "{key}: {}", rows[0]);
    }
    let tables = answer["tables"].as_array().expect("a list");
    for key in
        ["study", "table", "rows", "median_error_percent", "p90_error_percent", "pairs_in_order_percent"]
    {
        assert!(keys(&tables[0]).contains(&key), "{key}: {}", tables[0]);
    }
}

#[test]
fn systems_and_layouts_are_left_out_in_turn() {
    let sandbox = Sandbox::new();
    let answer = sandbox.json("model validate --study 001 --leave-out");
    let left_out = answer["left_out"].as_array().expect("a list");
    assert_eq!(left_out.len(), 2, "{answer}");
    for key in [
        "study",
        "one_of",
        "rows",
        "rows_with_defaults",
        "median_error_percent",
        "p90_error_percent",
        "groups",
    ] {
        assert!(keys(&left_out[1]).contains(&key), "{key}: {}", left_out[1]);
    }
    assert_eq!(
        (left_out[0]["one_of"].as_str(), left_out[1]["one_of"].as_str()),
        (Some("system"), Some("layout"))
    );
    assert!(left_out[0]["median_error_percent"].is_null() && left_out[1]["median_error_percent"].is_number());
    let text = String::from_utf8(sandbox.ok("model validate --study 001 --leave-out").out).expect("text");
    assert!(text.contains("each layout") && text.contains("BY DEFAULTS"), "{text}");
    assert!(!keys(&sandbox.json("model validate --study 001")).contains(&"left_out"));
}

#[test]
fn a_row_of_an_unknown_metric_is_named_as_unanswered() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("mine.csv");
    let text = "study,table,config,level,disks,workload,op,pattern,block_kib,metric,value,unit,notes\n\
                002,Table 9,single SSD,single,1,latency,read,random,4,avg_latency,0.161,\
                ms (unit not printed),\n";
    std::fs::write(&file, text).expect("a writable directory");
    let answer = sandbox.json(&format!("model validate --data {}", file.display()));
    assert!(answer["rows"][0]["predicted"].is_null(), "{answer}");
    let printed = sandbox.ok(&format!("model validate --data {}", file.display())).out;
    let printed = String::from_utf8(printed).expect("text");
    assert!(printed.contains("avg_latency ms (unit not printed) (1 row)"), "{printed}");
}

#[test]
fn a_sweep_prints_a_line_for_each_combination() {
    let sandbox = Sandbox::new();
    let answer = sandbox.json("model sweep --drive x25e --drives 2,4 --layouts raid5 --depths 1 --blocks 4K");
    let points = answer["points"].as_array().expect("a list");
    assert_eq!(points.len(), 8);
    assert!(points[0]["mb_per_s"].is_null() && points[7]["mb_per_s"].is_number(), "{answer}");
}

#[test]
fn impossible_predictions_name_the_rule() {
    let sandbox = Sandbox::new();
    let refused = |words: &str| sandbox.fails(words);
    assert!(refused("model predict 004-adaptec-raid6").contains("004-adaptec-raid5"));
    let lost = refused("model predict 000-rst-raid0 --state degraded");
    assert!(lost.contains("has no redundancy") && lost.contains("hint:"), "{lost}");
    let few = refused("model predict --drives 2xmg08ada400e --layout raid5");
    assert!(few.contains("2 drives cannot be `raid5`"), "{few}");
    let link = refused("model predict --drives 4xmg08ada400e --layout raid5 --link 10gb");
    assert!(link.contains("10gbe"), "{link}");
}
