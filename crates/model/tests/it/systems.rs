//! The catalogue of systems, the published tables, and how near the predictions come.

use stripewise_model::predict::{State, Workload, predict};
use stripewise_model::studies::{self, parse};
use stripewise_model::sweep::{Sweep, csv, json_lines};
use stripewise_model::system::{Catalogue, CatalogueError, Configuration};
use stripewise_model::validate::{Answer, Verdict, findings, summarise, validate};

const ONE_LINE: &str =
    "study,level,tool,metric,value,unit,notes\n001,RAID 5,bonnie 1.4,rewrite,39368,kB/s,\n";

fn answers(study: &str) -> Vec<Answer> {
    let rows: Vec<_> = studies::built_in().into_iter().filter(|row| row.text("study") == study).collect();
    validate(&Catalogue::built_in(), &rows).unwrap()
}

fn configuration(drives: &str, layout: &str) -> Configuration {
    toml::from_str(&format!("drives = \"{drives}\"\nlayout = \"{layout}\"\ncontroller = \"hba\"\n")).unwrap()
}

#[test]
fn every_system_of_the_studies_has_an_entry() {
    let catalogue = Catalogue::built_in();
    let systems = include_str!("../../../../studies/systems.csv");
    let names = systems.lines().skip(1).filter_map(|line| line.split(',').nth(1));
    let missing: Vec<&str> = names.filter(|name| !catalogue.system.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn at_most_45_numbers_are_fitted_and_each_names_its_rows() {
    let catalogue = Catalogue::built_in();
    let fitted = catalogue.fitted();
    assert!(fitted.len() <= 45, "{}: {fitted:?}", fitted.len());
    for (component, name) in fitted {
        let source = &catalogue.component[&component].parameters[&name].source;
        assert!(source.starts_with("00"), "{component}.{name}: {source}");
    }
}

#[test]
fn study_001_is_predicted_within_its_bounds() {
    let answers = answers("001");
    let summary = summarise(&answers);
    assert_eq!(summary.unanswered, 0);
    assert!(summary.median_error_percent <= 15.0 && summary.p90_error_percent <= 60.0, "{summary:?}");
    for answer in answers.iter().filter(|answer| answer.metric.contains("cpu")) {
        let apart = (answer.predicted.unwrap() - answer.published).abs();
        assert!(apart <= 2.0, "{answer:?}");
    }
}

#[test]
fn study_002_is_predicted_within_its_bounds() {
    let summary = summarise(&answers("002"));
    assert!(summary.median_error_percent <= 7.0 && summary.p90_error_percent <= 30.0, "{summary:?}");
    assert!(summary.pairs_in_order_percent.unwrap() >= 88.0, "{summary:?}");
}

#[test]
fn study_000_is_predicted_within_its_bounds() {
    let summary = summarise(&answers("000"));
    assert_eq!(summary.unanswered, 0);
    assert!(summary.median_error_percent <= 11.0 && summary.p90_error_percent <= 60.0, "{summary:?}");
    assert!(summary.pairs_in_order_percent.unwrap() >= 92.0, "{summary:?}");
}

#[test]
fn study_004_is_predicted_within_its_bounds() {
    let summary = summarise(&answers("004"));
    assert_eq!(summary.unanswered, 0);
    assert!(summary.median_error_percent <= 5.0 && summary.p90_error_percent <= 30.0, "{summary:?}");
    assert!(summary.pairs_in_order_percent.unwrap() >= 95.0, "{summary:?}");
}

#[test]
fn rows_kept_aside_are_answered_and_count_as_not_fitted() {
    let text = ONE_LINE.replace("RAID 5", "RAID 50").replace("39368", "68278");
    let answers = validate(&Catalogue::built_in(), &parse("aside.csv", &text).unwrap()).unwrap();
    assert!(!answers[0].fitted && answers[0].error_percent.unwrap().abs() < 15.0, "{answers:?}");
    assert!(answers_of_the_same_row_are_fitted());
}

fn answers_of_the_same_row_are_fitted() -> bool {
    let answers = validate(&Catalogue::built_in(), &parse("same.csv", ONE_LINE).unwrap()).unwrap();
    answers[0].fitted
}

#[test]
fn data_with_other_columns_is_refused_with_its_place() {
    assert_eq!(parse("mine.csv", ONE_LINE).unwrap().len(), 1);
    let refused = |text: &str| parse("mine.csv", text).unwrap_err().to_string();
    let missing = refused(&ONE_LINE.replace(",unit", ""));
    assert_eq!(missing, "mine.csv, line 1: column `unit` is missing");
    let extra = refused(&ONE_LINE.replace(",notes", ",notes,mood"));
    assert_eq!(extra, "mine.csv, line 1: there is an extra column `mood`");
    let short = refused(&ONE_LINE.replace(",kB/s,", ""));
    assert!(short.contains("mine.csv, line 2, column `unit`: 5 fields"), "{short}");
    let rows = parse("mine.csv", &ONE_LINE.replace("39368", "fast")).unwrap();
    let error = validate(&Catalogue::built_in(), &rows).unwrap_err().to_string();
    assert_eq!(error, "mine.csv, line 2, column `value`: `fast` is no number");
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let catalogue = Catalogue::built_in();
    let error = catalogue.system("004-adaptec-raid6").unwrap_err();
    assert!(error.to_string().contains("004-adaptec-raid5"), "{error}");
    let error = catalogue.build("mine", &configuration("4xmg08ada400", "raid5")).unwrap_err();
    assert!(error.to_string().contains("no drive `mg08ada400`") && error.to_string().contains("mg08ada400e"));
    let error = catalogue.build("mine", &configuration("mg08ada400e", "raid5")).unwrap_err();
    assert!(error.hint().contains("4xmg08ada400e"), "{error}");
}

#[test]
fn impossible_configurations_say_which_rule() {
    let catalogue = Catalogue::built_in();
    let error = catalogue.build("mine", &configuration("2xmg08ada400e", "raid5")).unwrap_err();
    assert!(matches!(error, CatalogueError::Layout { .. }) && error.to_string().contains('3'), "{error}");
    let mut two = configuration("4xmg08ada400e", "raid0");
    two.controllers = 2;
    let error = catalogue.build("mine", &two).unwrap_err();
    assert!(error.to_string().contains("only software RAID spans several controllers"), "{error}");
}

#[test]
fn parameters_out_of_range_or_without_their_unit_are_refused() {
    let refused = |value: &str| {
        let text = format!("[component.x]\nkind = \"link\"\ntitle = \"x\"\n{value}\n");
        Catalogue::parse("mine.toml", &text).unwrap_err().to_string()
    };
    let rest = "how = \"assumed\", source = \"x\" }";
    let error = refused(&format!("rate = {{ value = 5, unit = \"GB/s\", {rest}"));
    assert!(error.contains("mine.toml: [component.x]: the unit of `rate` is `MB/s`, not `GB/s`"), "{error}");
    let error = refused(&format!("rate = {{ value = -5, unit = \"MB/s\", {rest}"));
    assert!(error.contains("`rate` = -5 is outside"), "{error}");
    let error = refused(&format!("outer_rat = {{ value = 5, unit = \"MB/s\", {rest}"));
    assert!(error.contains("no parameter is named `outer_rat`; the nearest: outer_rate"), "{error}");
    assert!(refused(&format!("rate = {{ value = 5, {rest}")).contains("unit"));
}

#[test]
fn more_drives_read_faster_and_a_lost_one_slows() {
    let catalogue = Catalogue::built_in();
    let rate = |drives: &str, state| {
        let system = catalogue.build("mine", &configuration(drives, "raid5")).unwrap();
        predict(&system, state, &Workload::simple(true, true, 65_536, 64)).mb_per_s
    };
    let four = rate("4xmg08ada400e", State::Normal);
    assert!(rate("8xmg08ada400e", State::Normal) > 1.5 * four);
    assert!(rate("4xmg08ada400e", State::Degraded) < 0.9 * four);
}

#[test]
fn findings_hold_or_their_failure_is_known() {
    let findings = findings(&Catalogue::built_in());
    let failing: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::DoesNotHold)
        .map(|finding| finding.id.as_str())
        .collect();
    // A journal faster than any disk; depth-1 reads that a driver doubles; the USB box's two mirrors lie too near
    // each other.
    assert_eq!(failing, ["F000-15", "F000-31", "F004-32"], "{findings:#?}");
    let holding = findings.iter().filter(|finding| finding.verdict == Verdict::Holds).count();
    assert!(holding >= 45, "{holding}");
    assert!(findings.iter().all(|finding| !finding.why.is_empty()));
}

#[test]
fn a_sweep_has_the_same_bytes_on_any_number_of_threads() {
    let sweep = Sweep {
        base: configuration("1xmg08ada400e", "single"),
        drive: "mg08ada400e".into(),
        state: State::Normal,
        layouts: vec!["raid5".into(), "raid10".into()],
        drives: vec![2, 4],
        interleaves_kib: vec![64],
        blocks: vec![4096, 1 << 20],
        depths: vec![4],
        read_shares: vec![1.0],
        random_shares: vec![0.0, 1.0],
        workers: 1,
        seed: 7,
    };
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let points = pool.install(|| sweep.run(&Catalogue::built_in()));
        (csv(&points), json_lines(&points))
    };
    let (one, three) = (on(1), on(3));
    assert_eq!(one, three);
    assert_eq!(one.0.lines().count(), 1 + sweep.points());
    assert!(one.0.contains("2 drives cannot be `raid5`"), "{}", one.0);
}

#[test]
fn sixty_large_drives_are_predicted() {
    let catalogue = Catalogue::built_in();
    let mut wide = configuration("60xhdd20tb", "raid60");
    wide.groups = Some(6);
    let system = catalogue.build("wide", &wide).unwrap();
    let prediction = predict(&system, State::Normal, &Workload::simple(true, true, 65_536, 128));
    assert!(prediction.iops > 4000.0, "{prediction:?}");
    assert!(prediction.rebuild_seconds.unwrap() > 20.0 * 3600.0);
}
