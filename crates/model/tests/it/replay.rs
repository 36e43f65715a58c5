//! Replays of the measured drives, and what is refused.

use std::fs;
use std::path::PathBuf;

use stripewise_model::replay::{Description, Replay, Trace, demerit_ms, replay};

/// Drives with the published error of their simulation.
fn targets() -> Vec<(String, f64)> {
    let (_, text) = file("targets.csv");
    let column = |row: &str, at: usize| row.split(',').nth(at).unwrap().to_owned();
    text.lines().skip(1).map(|row| (column(row, 0), column(row, 3).parse().unwrap())).collect()
}

fn file(name: &str) -> (String, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../studies/disksim").join(name);
    (name.into(), fs::read_to_string(path).unwrap())
}

fn description(name: &str) -> Description {
    let (file, text) = file(&format!("{name}.json"));
    Description::parse(&file, &text).unwrap()
}

fn trace(name: &str) -> Trace {
    let (file, text) = file(&format!("{name}.trace.csv"));
    Trace::parse(&file, &text).unwrap()
}

fn replayed(name: &str, seed: u64) -> Replay {
    replay(&description(name), &trace(name), seed).unwrap()
}

#[test]
fn replays_match_the_published_simulations() {
    let mut within = 0;
    for (name, published_ms) in targets() {
        let replay = replayed(&name, 1);
        let demerit_ms = replay.demerit_ms();
        let ratio = demerit_ms / published_ms;
        println!(
            "{name}: {demerit_ms:.3} ms, {ratio:.2} of the published {published_ms}; mean {:.3} of {:.3}",
            replay.mean_ms(),
            replay.measured_mean_ms()
        );
        assert!(ratio <= 1.5, "{name}: demerit {demerit_ms} ms, published {published_ms}");
        within += usize::from(ratio <= 1.0);
    }
    assert!(within >= 3, "{within} of six are within the published value");
}

#[test]
fn replays_repeat_by_seed_and_seeds_vary_little() {
    let one = replayed("atlas10k", 1);
    assert_eq!(one, replayed("atlas10k", 1));
    let other = replayed("atlas10k", 2);
    assert_ne!(one, other);
    assert!((one.demerit_ms() - other.demerit_ms()).abs() < 0.02);
}

#[test]
fn nothing_depends_on_the_name_of_a_drive() {
    let (_, text) = file("dec_rz26.json");
    let renamed = Description::parse("x.json", &text.replace("dec_rz26", "a").replace("RZ26", "b")).unwrap();
    assert_eq!(replay(&renamed, &trace("dec_rz26"), 1).unwrap(), replayed("dec_rz26", 1));
}

#[test]
fn the_demerit_is_the_rms_distance_of_the_curves() {
    let ms = |values: &[f64]| values.iter().map(|ms| (ms * 1e6) as u64).collect::<Vec<_>>();
    let near = |a: &[f64], b: &[f64], wanted: f64| {
        let demerit = demerit_ms(&ms(a), &ms(b));
        assert!((demerit - wanted).abs() < 1e-9, "{a:?} {b:?}: {demerit}");
    };
    near(&[1.0, 2.0, 3.0, 4.0], &[4.0, 3.0, 2.0, 1.0], 0.0);
    near(&[1.0, 2.0], &[1.5, 2.5], 0.5);
    near(&[0.0, 0.0], &[0.0, 2.0], 2f64.sqrt());
    near(&[1.0], &[1.0, 3.0, 1.0], (4.0f64 / 3.0).sqrt());
}

#[test]
fn invalid_traces_name_file_line_and_column() {
    let refused = |text: &str| Trace::parse("t.csv", text).unwrap_err().to_string();
    let header = "op,lbn,sectors,response_us,gap_us\n";
    let row = |row: &str| refused(&format!("{header}R,1,4,10,10\n{row}\n"));
    assert_eq!(refused(""), "t.csv:1: empty, instead of a header");
    assert_eq!(refused("op,lbn,sectors,gap_us\n"), "t.csv:1: column `response_us` is missing");
    assert_eq!(
        refused("op,lbn,colour,sectors,response_us,gap_us\n"),
        "t.csv:1:3: there is no column `colour` in traces"
    );
    assert_eq!(refused("op,op,lbn,sectors,response_us,gap_us\n"), "t.csv:1:2: column `op` is there twice");
    assert_eq!(refused(header), "t.csv:1: no requests behind the header");
    assert_eq!(row("R,1,4,10"), "t.csv:3: 4 cells instead of 5");
    assert_eq!(row("X,1,4,10,10"), "t.csv:3:1: op `X` is neither R nor W");
    assert_eq!(row("R,1,0,10,10"), "t.csv:3:3: a request of no sectors");
    assert_eq!(row("R,1,4,-10,10"), "t.csv:3:4: response_us `-10` is no number from 0");
    assert_eq!(row("R,1,4,10,NaN"), "t.csv:3:5: gap_us `NaN` is no number from 0");
    assert!(row("R,1.5,4,10,10").starts_with("t.csv:3:2: lbn `1.5` is no whole number"));
    let beyond = Trace::parse("t.csv", &format!("{header}R,1,4,10,10\nW,2050858,4,10,10\n")).unwrap();
    let error = replay(&description("dec_rz26"), &beyond, 1).unwrap_err().to_string();
    assert_eq!(error, "t.csv:3:2: the drive ends at sector 2050860");
}

#[test]
fn invalid_descriptions_name_file_and_line() {
    let (_, text) = file("dec_rz26.json");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Description::parse("d.json", &text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert!(refused("{", "[").starts_with("d.json:"), "{}", refused("{", "["));
    assert!(refused("\"rpm\": 5360", "\"rpm\": 0").contains("rpm: 0 is not within"));
    assert!(refused("\"rpm\": 5360", "\"rpms\": 5360").contains("missing field `rpm`"));
    let error = refused("\"head_switch_ms\": 0.865", "\"head_switch_ms\": -0.865");
    assert!(error.starts_with("d.json:") && error.contains("head_switch_ms: -0.865 ms"), "{error}");
    assert!(refused("\"surfaces\": 14", "\"surfaces\": 0").contains("heads: 0 is not within"));
    let error = refused("\"capacity_sectors\": 2050860", "\"capacity_sectors\": 20508600");
    let description = Description::parse("d.json", &text.replacen("2050860", "20508600", 1)).is_err();
    assert!(description && error.contains("capacity_sectors"), "{error}");
}

#[test]
fn random_descriptions_are_errors_and_not_panics() {
    let (_, text) = file("cheetah4LP.json");
    let trace = trace("cheetah4LP");
    let short =
        Trace::parse("t.csv", "op,lbn,sectors,response_us,gap_us\nR,1,4,10,10\nW,9,400,5,5\n").unwrap();
    for number in ["0", "-1", "1e300", "4294967295", "0.0000001"] {
        for (at, _) in text.match_indices(": ").step_by(3) {
            let end = text[at + 2..].find([',', '\n', ']', '}']).unwrap() + at + 2;
            let changed = format!("{}{number}{}", &text[..at + 2], &text[end..]);
            if let Ok(description) = Description::parse("d.json", &changed) {
                let _ = replay(&description, &short, 1);
            }
        }
    }
    assert_eq!(trace.rows.len(), 10_000);
}

/// Every drive with a shorter trace.
fn drives_and_traces() -> Vec<(String, serde_json::Value, Trace)> {
    let one = |name: String| {
        let (_, text) = file(&format!("{name}.json"));
        let mut trace = trace(&name);
        trace.rows.truncate(300);
        (name, serde_json::from_str(&text).unwrap(), trace)
    };
    targets().into_iter().map(|(name, _)| one(name)).collect()
}

/// The demerit of a drive as changed, or why it is refused.
fn demerit_of(drive: &serde_json::Value, trace: &Trace) -> Result<f64, String> {
    let text = serde_json::to_string_pretty(drive).unwrap();
    let description = Description::parse("d.json", &text).map_err(|error| error.to_string())?;
    let replayed = replay(&description, trace, 1).map_err(|error| error.to_string())?;
    Ok(replayed.demerit_ms())
}

#[test]
fn omitted_drive_parameters_are_off() {
    for (name, drive, trace) in drives_and_traces() {
        for section in ["cache", "bus_behaviour", "overheads_ms"] {
            let keys: Vec<String> = drive[section].as_object().unwrap().keys().cloned().collect();
            for key in &keys {
                let mut absent = drive.clone();
                absent[section].as_object_mut().unwrap().remove(key);
                let mut null = drive.clone();
                null[section][key] = serde_json::Value::Null;
                let demerit_ms = demerit_of(&absent, &trace);
                assert!(demerit_ms.as_ref().is_ok_and(|ms| ms.is_finite()), "{name} {key}: {demerit_ms:?}");
                assert_eq!(demerit_ms, demerit_of(&null, &trace), "{name} without {key}");
            }
            let mut absent = drive.clone();
            absent.as_object_mut().unwrap().remove(section);
            assert!(demerit_of(&absent, &trace).is_ok(), "{name} without {section}");
        }
    }
}

#[test]
fn switches_are_words_or_numbers() {
    for (name, drive, trace) in drives_and_traces() {
        let expected = demerit_of(&drive, &trace);
        let mut other = drive.clone();
        for section in ["cache", "bus_behaviour"] {
            for value in other[section].as_object_mut().unwrap().values_mut() {
                *value = match value.clone() {
                    serde_json::Value::Bool(on) => u32::from(on).into(),
                    serde_json::Value::Number(number) if number.as_u64() == Some(1) => true.into(),
                    same => same,
                };
            }
        }
        assert_eq!(demerit_of(&other, &trace), expected, "{name}");
    }
}

#[test]
fn odd_descriptions_replay_or_fail_without_panic() {
    let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 7.5, 33.0, 1000.0, -1.0];
    let mut replayed = 0;
    for (_, drive, trace) in drives_and_traces() {
        let mut try_it = |changed: serde_json::Value| {
            if let Ok(demerit_ms) = demerit_of(&changed, &trace) {
                assert!(demerit_ms.is_finite());
                replayed += 1;
            }
        };
        for section in ["cache", "bus_behaviour"] {
            for key in drive[section].as_object().unwrap().keys() {
                for number in numbers {
                    let mut changed = drive.clone();
                    changed[section][key] = number.into();
                    try_it(changed);
                }
            }
        }
        let zones = drive["zones"].as_array().unwrap().len();
        for zone in [0, zones / 2, zones - 1] {
            for key in drive["zones"][zone].as_object().unwrap().keys() {
                for number in numbers {
                    let mut changed = drive.clone();
                    changed["zones"][zone][key] = number.into();
                    try_it(changed);
                }
            }
        }
        for key in
            ["surfaces", "cylinders", "rpm", "lbn_mapping", "spare_scheme_code", "spare_range_cylinders"]
        {
            for number in [0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 11.0, 300.0, 4500.0] {
                let mut changed = drive.clone();
                changed[key] = number.into();
                try_it(changed);
            }
        }
        for key in drive.as_object().unwrap().keys() {
            let mut changed = drive.clone();
            changed.as_object_mut().unwrap().remove(key);
            try_it(changed);
        }
    }
    assert!(replayed > 1000, "{replayed}");
}

#[test]
fn seek_tables_need_no_order_or_unique_distances() {
    let (_, mut drive, trace) = drives_and_traces().remove(0);
    let expected = demerit_of(&drive, &trace);
    let table = drive["seek_ms"].as_array_mut().unwrap();
    let (distance, ms) = (table[5][0].clone(), table[5][1].as_f64().unwrap());
    table[5][1] = (ms + 0.1).into();
    table.insert(1, serde_json::json!([distance, ms - 0.1]));
    table.push(serde_json::json!([0, 0.0]));
    assert_eq!(
        demerit_of(&drive, &trace).map(|ms| (ms * 1e4).round()),
        expected.map(|ms| (ms * 1e4).round())
    );
    drive["seek_ms"] = serde_json::json!([[1, -2.0]]);
    assert!(demerit_of(&drive, &trace).unwrap_err().contains("seek_ms: -2 ms is not within"));
    drive["seek_ms"] = serde_json::json!([]);
    assert!(demerit_of(&drive, &trace).unwrap_err().contains("no points"));
}

#[test]
fn a_capacity_slightly_beyond_the_zones_is_accepted() {
    for (name, mut drive, trace) in drives_and_traces() {
        drive["capacity_sectors"] = (1u64 << 40).into();
        let error = demerit_of(&drive, &trace).unwrap_err();
        let held = error.split("within the ").nth(1).and_then(|rest| rest.split(' ').next());
        let held: u64 = held.and_then(|held| held.parse().ok()).unwrap_or_else(|| panic!("{name}: {error}"));
        drive["capacity_sectors"] = (held + held / 200).into();
        assert!(demerit_of(&drive, &trace).is_ok(), "{name}: {:?}", demerit_of(&drive, &trace));
        drive["capacity_sectors"] = (held * 2).into();
        assert!(demerit_of(&drive, &trace).unwrap_err().contains("capacity_sectors"), "{name}");
    }
}
