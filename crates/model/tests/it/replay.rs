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
fn measured_drives_come_out_as_well_as_in_the_published_simulations() {
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
fn a_replay_is_the_same_for_a_seed_and_nearly_the_same_for_any() {
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
fn the_demerit_is_the_root_mean_square_between_the_curves() {
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
fn broken_traces_are_told_with_file_line_and_column() {
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
fn broken_descriptions_are_told_with_file_and_line() {
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
fn descriptions_of_nonsense_are_errors_and_not_panics() {
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
