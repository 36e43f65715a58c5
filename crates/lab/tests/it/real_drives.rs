//! `evaluate` on real files in real time, small: arrays of each kind, existing drives, and folders
//! that must be left unchanged.

use std::path::Path;

use stripewise_lab::Workload;
use stripewise_lab::evaluate::{
    DriveSource, EvaluateError, EvaluateOptions, GivenDrive, NoProgress, PaceChoice, evaluate,
};
use stripewise_lab::results::{Evaluation, State};
use stripewise_runtime::{CreateOptions, OpenError, create_drive_file, drive_identity};

const MIB: u64 = 1 << 20;

fn small(folder: &Path, layouts: &[&str]) -> EvaluateOptions {
    EvaluateOptions {
        quick: true,
        drive_bytes: Some(32 * MIB),
        seconds_per_run: Some(0.05),
        layouts: layouts.iter().map(|name| name.parse().expect("a layout")).collect(),
        workloads: Workload::study_004()
            .map(|workload| Workload { depth: workload.depth / 16, ..workload })
            .to_vec(),
        pace: PaceChoice::Rates("100MB/s".parse().expect("a pace")),
        ..EvaluateOptions::new(folder.to_owned(), "2026-01-01T00:00:00Z".into())
    }
}

fn check(evaluation: &Evaluation) {
    for array in &evaluation.arrays {
        let name = &array.layout;
        assert_eq!((array.verified_bytes, array.corrupt_bytes), (array.capacity_bytes, 0), "{name}");
        for (state, cells) in &array.states {
            for (workload, cell) in cells {
                assert_eq!(cell.errors, 0, "{name} {state} {workload}");
                assert!(cell.cpu_share.is_some(), "{name} {state} {workload}");
            }
            // On a busy host a single run of 0.05 s may end without a request.
            let requests: u64 = cells.values().map(|cell| cell.requests).sum();
            let bytes: u64 = cells.values().map(|cell| cell.drive_traffic.bytes()).sum();
            assert!(requests > 0 && bytes > 0, "{name} {state}: {requests} requests, {bytes} bytes");
        }
        if array.fault_tolerance > 0 {
            assert!(array.states.contains_key(&State::Degraded), "{name}");
            assert!(array.rebuild_seconds.is_some_and(|seconds| seconds > 0.1), "{name}");
            assert_eq!(
                array.verifications.last().unwrap().missing_drives.len(),
                array.fault_tolerance,
                "{name}"
            );
        }
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("the folder is still there").next().is_none()
}

#[test]
fn arrays_on_files_keep_data_and_leave_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let layouts = ["single", "raid0", "raid5", "raid1", "raid6"];
    let evaluation = evaluate(&small(folder.path(), &layouts), &NoProgress).expect("it works");
    check(&evaluation);
    assert!(is_empty(folder.path()));
    let raid1 = &evaluation.arrays[3];
    assert_eq!((raid1.drives, raid1.drive_bytes), (2, 64 * MIB), "two drives of twice the size");
    let host = evaluation.host.expect("the host is measured");
    assert!(host.seq_read_mb_per_s > 0.0 && host.random_write_iops > 0.0);
    assert!(evaluation.settings.pace_text().contains("100MB/s"));
    // The rate of a paced drive is a bound that no cache raises.
    let single = evaluation.arrays[0].cell(State::Normal, "seq_read").expect("measured");
    assert!(single.mb_per_s < 140.0, "paced at 100 MB/s: {} MB/s", single.mb_per_s);
}

#[test]
fn drives_that_exist_are_used_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<_> = (0..3).map(|number| folder.path().join(format!("drive{number}.img"))).collect();
    for (path, mib) in paths.iter().zip([40, 32, 36]) {
        create_drive_file(path, &CreateOptions::new(mib * MIB)).expect("room for a drive");
    }
    let options = EvaluateOptions {
        drives: DriveSource::Paths(paths.iter().cloned().map(GivenDrive::from).collect()),
        count: 3,
        ..small(folder.path(), &["single", "raid5", "raid1"])
    };
    let evaluation = evaluate(&options, &NoProgress).expect("it works");
    check(&evaluation);
    assert_eq!(evaluation.settings.drive_bytes, 32 * MIB, "the smallest drive's size");
    assert!(paths.iter().all(|path| path.exists()), "given drives are not removed");
}

#[test]
fn a_drive_that_took_anothers_path_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, other] = ["drive.img", "other.img"].map(|name| folder.path().join(name));
    for path in [&path, &other] {
        create_drive_file(path, &CreateOptions::new(32 * MIB)).expect("room for a drive");
    }
    let seen = GivenDrive::seen(path.clone(), drive_identity(&path).expect("a file"));
    std::fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(&other, &path).expect("linked");
    let options = EvaluateOptions {
        drives: DriveSource::Paths(vec![seen]),
        count: 1,
        ..small(folder.path(), &["single"])
    };
    let error = evaluate(&options, &NoProgress).expect_err("it is another drive");
    assert!(matches!(error, EvaluateError::Open(OpenError::Io { .. })), "{error}");
    let held = std::fs::read(&other).expect("readable");
    assert!(held.iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn missing_space_or_folder_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let huge = EvaluateOptions { drive_bytes: Some(1 << 50), ..small(folder.path(), &["raid5"]) };
    let error = evaluate(&huge, &NoProgress).expect_err("no folder has 4 PiB");
    assert!(matches!(error, EvaluateError::NoSpace { .. }) && error.hint().is_some(), "{error}");
    assert!(is_empty(folder.path()));
    let nowhere = small(&folder.path().join("not there"), &["raid5"]);
    let error = evaluate(&nowhere, &NoProgress).expect_err("there is no such folder");
    assert!(
        matches!(error, EvaluateError::Folder { .. }) && error.to_string().contains("not there"),
        "{error}"
    );
}
