//! The catalogue: what its entries must say, which ones are refused, and the published rows of
//! single drives.

use stripewise_drive::SplitMix64;
use stripewise_model::catalogue::{DriveModel, Origin, drive, drives, parse_drive};
use stripewise_model::hdd::{DataSheet, HddOperation, HddQueue};

use crate::kit::{aligned, closed_loop};

const ENTRY: &str = include_str!("../../../../catalogue/drives/hdd8tb.toml");

fn refused(from: &str, to: &str) -> String {
    assert!(ENTRY.contains(from), "{from}");
    parse_drive("mine.toml", &ENTRY.replace(from, to)).unwrap_err().to_string()
}

fn sheet(name: &str) -> &'static DataSheet {
    match &drive(name).unwrap().model {
        DriveModel::Hdd(sheet) => sheet,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn every_drive_can_be_read_and_has_a_name_of_its_own() {
    let mut names: Vec<&str> = drives().iter().map(|entry| entry.name.as_str()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), drives().len());
    for entry in drives() {
        assert!(entry.capacity_bytes() > 1 << 30, "{}", entry.name);
        assert!(entry.parameters.values().all(|parameter| !parameter.source.is_empty()), "{}", entry.name);
    }
}

#[test]
fn few_drive_parameters_are_fitted() {
    let parameters = drives().iter().flat_map(|entry| entry.parameters.values());
    let mut fitted: Vec<_> = parameters.filter(|parameter| parameter.from == Origin::Fitted).collect();
    // The two drives of study 004 share one.
    fitted.dedup_by(|a, b| a.rows == b.rows);
    assert!(fitted.len() <= 12, "{fitted:?}");
}

#[test]
fn an_unknown_drive_names_the_nearest() {
    let error = drive("mg08ada40").unwrap_err().to_string();
    assert!(error.contains("there is no drive `mg08ada40`") && error.contains("mg08ada400e"), "{error}");
    assert_eq!(drive("HDD8TB").unwrap().name, "hdd8tb");
}

#[test]
fn invalid_entries_name_file_and_line() {
    let error = refused("average_seek_ms", "average_seek");
    assert!(
        error.contains("mine.toml:14: average_seek: without a unit; it is called average_seek_ms"),
        "{error}"
    );
    let error = refused("average_seek_ms", "averge_seek_ms");
    assert!(error.contains("averge_seek_ms: unknown; the nearest: average_seek_ms"), "{error}");
    let error = refused("value = 8.0", "value = -8.0");
    assert!(error.contains("mine.toml:14: average_seek_ms: -8 is not within"), "{error}");
    let error = refused("value = 7200", "value = 0");
    assert!(error.contains("revolutions_per_minute: 0 is not within"), "{error}");
    let error = refused("value = 7200", "value = \"fast\"");
    assert!(error.contains("is not a number"), "{error}");
    let error = refused("value = 7200", "value = 7200.5");
    assert!(error.contains("is not a whole number"), "{error}");
    let error = refused("kind = \"hdd\"", "kind = \"drum\"");
    assert!(error.contains("mine.toml:4: kind: `drum` is none of"), "{error}");
    let error = refused("[parameters]", "[parameters");
    assert!(error.contains("mine.toml:") && error.contains("line 6"), "{error}");
    let error = refused("from = \"assumed\"", "from = \"fitted\"");
    assert!(error.contains("not said to which rows"), "{error}");
    let without = ENTRY.lines().filter(|line| !line.starts_with("heads")).collect::<Vec<_>>().join("\n");
    let error = parse_drive("mine.toml", &without).unwrap_err().to_string();
    assert!(error.contains("heads: missing"), "{error}");
}

/// The mixed load of study 004 on one drive, in its span.
fn mixed_mb_per_s(name: &str) -> f64 {
    let mut queue = HddQueue::new(&sheet(name).parameters().unwrap(), 5).unwrap();
    let span = queue.capacity_bytes().min(6_000_000_000_000);
    let mut random = SplitMix64::new(1);
    let request = |_| {
        let length = match random.below(10) {
            0 | 1 => 4 << 10,
            2..=6 => 64 << 10,
            7 | 8 => 256 << 10,
            _ => 2 << 20,
        };
        let operation = [HddOperation::Read, HddOperation::Write][random.below(2) as usize];
        (operation, aligned(&mut random, span, 4096, length), length)
    };
    closed_loop(&mut queue, 512, 20_000, request).mb_per_s()
}

fn random_mb_per_s(name: &str, operation: HddOperation, depth: u64) -> f64 {
    let mut queue = HddQueue::new(&sheet(name).parameters().unwrap(), 5).unwrap();
    let mut random = SplitMix64::new(1);
    closed_loop(&mut queue, depth, 6000, |_| (operation, aligned(&mut random, 4 << 30, 4096, 4096), 4096))
        .mb_per_s()
}

fn near(what: &str, value: f64, published: f64, percent: f64) {
    println!("{what}: {value:.3}, published {published}");
    assert!((value / published - 1.0).abs() * 100.0 <= percent, "{what}: {value}, published {published}");
}

#[test]
fn the_single_drives_match_study_004() {
    near("4 TB, mixed (fitted)", mixed_mb_per_s("mg08ada400e"), 57.0, 2.0);
    near("8 TB, mixed, 6 TB file", mixed_mb_per_s("mg08ada800e"), 62.0, 5.0);
}

#[test]
fn the_single_drive_matches_study_000() {
    near("4 GiB, depth 1 read (fitted)", random_mb_per_s("hdd2j12", HddOperation::Read, 1), 0.416, 3.0);
    near("4 GiB, depth 32 read", random_mb_per_s("hdd2j12", HddOperation::Read, 32), 0.828, 15.0);
    near("4 GiB, depth 32 write", random_mb_per_s("hdd2j12", HddOperation::Write, 32), 0.952, 15.0);
    near("4 GiB, depth 1 write", random_mb_per_s("hdd2j12", HddOperation::Write, 1), 0.996, 16.0);
}
