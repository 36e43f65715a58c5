//! Commands on models as people type them: the keys promised, the figures of closed formulas, and
//! what is refused.

use crate::kit::{Sandbox, keys};

/// Eight drives that fail once in a million hours, rebuilt in a day.
const TEXTBOOK: &str = "--drives 8 --mttf-hours 1000000 --mttr-hours 24";

#[test]
fn reliability_has_its_keys_and_textbook_figures() {
    let sandbox = Sandbox::new();
    for (layout, wanted) in [("raid5", 744_315_476.0), ("raid6", 5.16873e12), ("raid10", 5.20871e9)] {
        let answer = sandbox.json(&format!("model reliability --layout {layout} {TEXTBOOK}"));
        for key in [
            "output_version",
            "layout",
            "drives",
            "years",
            "trials",
            "loss_probability",
            "ci95",
            "mttdl_hours",
            "hours_degraded_per_year",
            "expected_bytes_lost",
        ] {
            assert!(keys(&answer).contains(&key), "{key}: {answer}");
        }
        let mttdl = answer["mttdl_hours"].as_f64().expect("a number");
        assert!((mttdl / wanted - 1.0).abs() < 0.02, "{layout}: {mttdl:e} against {wanted:e}");
        assert_eq!((answer["layout"].as_str(), answer["drives"].as_u64()), (Some(layout), Some(8)));
        let [low, high] = [&answer["ci95"][0], &answer["ci95"][1]].map(|end| end.as_f64().expect("a number"));
        let loss = answer["loss_probability"].as_f64().expect("a number");
        assert!(low < loss && loss < high, "{answer}");
    }
}

#[test]
fn the_published_model_holds_on_any_thread_count() {
    let sandbox = Sandbox::new();
    let question = "model reliability --layout raid5 --drives 8 --failure weibull:1.12,461386 \
                    --restore weibull:6,12,2 --latent weibull:9259,1 --scrub weibull:6,168,3 --years 10 --seed 5";
    let one = sandbox.json(&format!("{question} --threads 1"));
    assert_eq!(one, sandbox.json(&format!("{question} --threads 3")));
    let events = one["figures"]["latent_events_per_1000"]["mean"].as_f64().expect("a number");
    assert!((events - 137.0).abs() <= 3.0, "{events}");
}

#[test]
fn assumed_defaults_are_stated_in_the_answer() {
    let sandbox = Sandbox::new();
    let text = sandbox.ok("model reliability --layout raid6 --drives 8 --max-trials 20000");
    for said in ["data loss:", "MTTDL:", "Elerath", "Bairavasundaram", "a scrub every 720 hours"] {
        assert!(text.text().contains(said), "{said}: {}", text.text());
    }
}

#[test]
fn rebuilds_take_longer_on_larger_drives() {
    let sandbox = Sandbox::new();
    let degraded = |words: &str| {
        let answer =
            sandbox.json(&format!("model reliability --layout raid6 --drives 8 --max-trials 20000 {words}"));
        answer["hours_degraded_per_year"].as_f64().expect("a number")
    };
    let usual = degraded("");
    assert!(degraded("--drive 20TB-hdd") > 1.3 * usual && degraded("--drive 2TB-ssd") < 0.9 * usual);
    assert!(degraded("--rebuild-rate 250") < usual, "a rate that is given goes before the predicted one");
    let text = sandbox
        .ok("model reliability --layout raid6 --drives 8 --drive he8 --workload sequential --max-trials 512");
    assert!(text.text().contains("he8 behind stripewise under sequential work"), "{}", text.text());
}

#[test]
fn volumes_of_pools_can_be_the_drives() {
    let sandbox = Sandbox::new();
    let loss = |words: &str| {
        let answer = sandbox.json(&format!("model reliability {words} --drive 8TB-hdd --max-trials 20000"));
        answer["loss_probability"].as_f64().expect("a number")
    };
    let mirrored = loss("--layout raid1 --drives 2 --on raid5:4");
    let alone = loss("--layout raid5 --drives 4");
    assert!(mirrored > 0.0 && mirrored < 0.01 * alone, "{mirrored} against {alone}");
    let said = sandbox.ok("model reliability --layout raid1 --drives 2 --on raid5:4 --max-trials 512");
    assert!(said.text().contains("each a volume of raid5 of 4 drives"), "{}", said.text());
}

#[test]
fn invalid_questions_are_refused_with_a_reason() {
    let sandbox = Sandbox::new();
    for (words, why) in [
        ("--layout raid6 --drives 3", "raid6 needs at least 4 drives"),
        ("--layout raid9 --drives 8", "there is no layout"),
        ("--layout raid5 --drives 8 --mttf-hours=-5", "not a number above 0"),
        ("--layout raid5 --drives 8 --failure gauss:5,6", "is not a law"),
        ("--layout raid5 --drives 8 --failure fixed:6", "Weibull or an exponential"),
        ("--layout raid5 --drives 8 --latent weibull:2,9000", "latent errors are exponential"),
        ("--layout raid5 --drives 8 --batch 0.5", "SHARE:FACTOR"),
        ("--layout raid5 --drives 8 --batch 1.5:3", "between 0 and 1"),
        ("--layout raid5 --drives 8 --mttf-hours 5 --failure weibull:1,6", "cannot be used with"),
        ("--layout raid60 --drives 9", "cannot be divided"),
        ("--layout raid5 --drives 10000", "10000"),
        ("--layout raid5 --drives 0", "0 is not in"),
        ("--layout raid5 --drives 8 --drive 8TB-hd", "8tb-hdd"),
        ("--layout raid5 --drives 8 --workload sequental", "sequential"),
        ("--layout raid1 --drives 2 --on raid5", "raid5:4"),
        ("--layout raid1 --drives 2 --on raid5:2", "raid5 needs at least 3 drives"),
    ] {
        let refused = sandbox.run(&format!("model reliability {words}"));
        assert_eq!(refused.code, 2, "{words}");
        assert!(refused.err.contains(why), "{words}: {}", refused.err);
    }
}

#[test]
fn data_sheet_error_rate_is_shown_beside_field_data() {
    let sandbox = Sandbox::new();
    let asked = "model reliability --layout raid5 --drives 4 --max-trials 4096 --restore fixed:24";
    let loss = |words: &str| {
        let answer = sandbox.json(&format!("{asked} {words}"));
        (answer["loss_probability"].as_f64().expect("a number"), answer)
    };
    let (small, answer) = loss("--ure 1e-14 --capacity 4TB");
    let (large, _) = loss("--uber 1e14 --capacity 12TB");
    assert!(large > small, "{small} and {large}");
    let errors = &answer["read_errors"];
    let by_sheet = errors["rebuild"]["by_data_sheet"].as_f64().expect("a number");
    assert!((by_sheet - 0.617).abs() < 0.001, "1 - (1 - 1e-14)^(3 * 4e12 * 8): {errors}");
    assert!(errors["loss_probability_by_field_data"].as_f64() < Some(0.1 * small), "{errors}");
    let text = sandbox.ok(&format!("{asked} --ure 1e-14"));
    for said in ["data sheet:", "field data:", "Bairavasundaram", "no redundancy left", " a year (1 in "] {
        assert!(text.text().contains(said), "{said}: {}", text.text());
    }
    let refused = sandbox.run(&format!("{asked} --ure 5"));
    assert!(refused.code == 2 && refused.err.contains("1e-14"), "{}", refused.err);
}
