//! Finding a drive of a pool by a typed name: its current or last path, another path of the same
//! device, its kernel name (`sdb`), its serial number, its URI, or its identity or a prefix of
//! that. Expected faults: names of no drive, prefixes that several identities share, one path that
//! several drives had.

use std::path::{Path, PathBuf};

use stripewise_export::nbd::client::NbdUri;
use stripewise_pool::DriveId;
use stripewise_runtime::drive_identity;

use crate::drives::candidates::{device_path, noted_export};
use crate::drives::hardware::samples;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::messages::report::{DriveReport, PoolReport};

/// Minimum length of an identity prefix.
pub(crate) const LEAST_BEGINNING: usize = 4;

/// Finds the named drive; of several drives with one path, the one that is out of service.
pub async fn find<'a>(
    report: &'a PoolReport,
    environment: &Environment,
    name: &str,
) -> Result<&'a DriveReport> {
    let absolute = environment.absolute(Path::new(name));
    let export = |text: &str| noted_export(Path::new(text)).map(|uri| uri.address);
    let wanted = NbdUri::parse(name, &environment.absolute(Path::new(""))).ok().map(|uri| uri.address);
    let by_path = |drive: &&DriveReport| {
        drive.path == name
            || Path::new(&drive.path) == absolute
            || (wanted.is_some() && export(&drive.path) == wanted)
    };
    let is_in_service = |drive: &&DriveReport| drive.state.takes_part();
    let begins = |drive: &&DriveReport| name.len() >= LEAST_BEGINNING && drive.id.starts_with(name);
    let all = || report.drives.iter();
    // The first way that fits any drive counts; the cheap ones first.
    let mut matching: Vec<&DriveReport> = all().filter(by_path).collect();
    if matching.is_empty() {
        matching = all().filter(begins).collect();
    }
    if matching.is_empty() {
        let found = by_device_or_serial(environment, report, name).await;
        matching = found.into_iter().map(|index| &report.drives[index]).collect();
    }
    if let [drive] = matching.as_slice() {
        return Ok(drive);
    }
    let out: Vec<&DriveReport> = matching.iter().copied().filter(|drive| !is_in_service(drive)).collect();
    let have_one_path = matching.windows(2).all(|pair| pair[0].path == pair[1].path);
    match out.as_slice() {
        [drive] if have_one_path => Ok(drive),
        _ if matching.is_empty() => {
            let known: Vec<String> =
                report.drives.iter().map(|drive| format!("{} ({})", drive.path, drive.id)).collect();
            Err(Failure::new(format!("pool `{}` has no drive {name}", report.name))
                .hint(format!("its drives are {}", known.join(", "))))
        }
        _ => {
            let ids: Vec<&str> = matching.iter().map(|drive| drive.id.as_str()).collect();
            Err(Failure::new(format!("`{name}` matches several drives of pool `{}`", report.name))
                .hint(format!("name it by its identity: {}", ids.join(" or "))))
        }
    }
}

/// Indices of the drives that are the device of this name or path or have this serial number; none
/// where a file system does not answer.
async fn by_device_or_serial(environment: &Environment, report: &PoolReport, name: &str) -> Vec<usize> {
    let device = device_path(environment, name).await;
    let drives = || report.drives.iter().enumerate();
    let at_it = drives().filter(|(_, drive)| Path::new(&drive.path) == device).map(|(index, _)| index);
    let at_it: Vec<usize> = at_it.collect();
    if !at_it.is_empty() {
        return at_it;
    }
    let kept_in = environment.registry().map(|registry| registry.folder().to_owned()).ok();
    let named: Vec<(String, PathBuf)> =
        report.drives.iter().map(|drive| (drive.id.clone(), PathBuf::from(&drive.path))).collect();
    let of_thread = device.clone();
    let looked = environment.look(&device, move || {
        let is_it = |path: &Path| drive_identity(&of_thread).ok() == drive_identity(path).ok();
        let same = |(index, (_, path)): (usize, &(String, PathBuf))| is_it(path).then_some(index);
        let same: Vec<usize> = match drive_identity(&of_thread) {
            Ok(_) => named.iter().enumerate().filter_map(same).collect(),
            Err(_) => Vec::new(),
        };
        (same, samples::serials(kept_in.as_deref(), named.into_iter()))
    });
    let (same, mut serials) = looked.await.unwrap_or_default();
    if !same.is_empty() {
        return same;
    }
    let reported = |drive: &DriveReport| Some((drive.id.clone(), drive.hardware.serial.clone()?));
    serials.extend(report.drives.iter().filter_map(reported));
    let has_it = |id: &str| serials.iter().any(|(of, serial)| of == id && serial == name);
    drives().filter(|(_, drive)| has_it(&drive.id)).map(|(index, _)| index).collect()
}

/// The identity of a drive in a report.
pub(crate) fn id_of(drive: &DriveReport) -> DriveId {
    drive.id.parse().expect("reports have valid identities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::report::DriveState;

    fn found_in(report: &PoolReport, name: &str) -> Result<String> {
        let environment = Environment::of_this_process(std::rc::Rc::new(crate::environment::NoNotices));
        let executor = environment.executor()?;
        executor.block_on(find(report, &environment, name)).map(|drive| drive.id.clone())
    }

    fn report(drives: &[(&str, &str, DriveState)]) -> PoolReport {
        let mut report = PoolReport::unreachable(
            &crate::registry::KnownPool { name: "tank".into(), id: "1".into(), drives: Vec::new() },
            "",
            "",
        );
        report.drives = drives
            .iter()
            .map(|(id, path, state)| DriveReport {
                id: (*id).into(),
                path: (*path).into(),
                state: *state,
                ..DriveReport::default()
            })
            .collect();
        report
    }

    #[test]
    fn drives_are_found_by_path_or_unique_id_prefix() {
        let report = report(&[
            ("aaaa1111", "/d/0", DriveState::Online),
            ("aaaa2222", "/d/1", DriveState::Online),
            ("bbbb3333", "/d/2", DriveState::Missing),
            ("cccc4444", "/d/2", DriveState::Online),
            ("dddd5555", "/d/3", DriveState::Missing),
            ("eeee6666", "/d/3", DriveState::Missing),
            ("ffff0000", "nbd://host/x?timeout=2s", DriveState::Online),
        ]);
        let found = |name: &str| found_in(&report, name);
        assert_eq!(found("/d/1").as_deref(), Ok("aaaa2222"));
        assert_eq!(found("bbbb").as_deref(), Ok("bbbb3333"));
        assert_eq!(found("/d/2").as_deref(), Ok("bbbb3333"), "the one that is out of service");
        assert_eq!(found("nbd://HOST:10809/x").as_deref(), Ok("ffff0000"), "the same export");
        let mut with_serial = report.clone();
        with_serial.drives[1].hardware.serial = Some("WD-42".to_owned());
        let by_serial = found_in(&with_serial, "WD-42");
        assert_eq!(by_serial.as_deref(), Ok("aaaa2222"));
        for ambiguous in ["aaaa", "/d/3"] {
            assert!(found(ambiguous).expect_err("several").message.contains("several drives"), "{ambiguous}");
        }
        for unknown in ["bbb", "/d/9", "dddf", "nbd://host/y"] {
            assert!(found(unknown).expect_err("none").message.contains("has no drive"), "{unknown}");
        }
    }

    #[test]
    fn any_path_of_the_same_drive_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("one"), "").expect("written");
        std::fs::write(at("two"), "").expect("written");
        std::os::unix::fs::symlink(at("two"), at("by-id")).expect("linked");
        let report = report(&[
            ("aaaa1111", &at("one"), DriveState::Online),
            ("bbbb2222", &at("two"), DriveState::Online),
            ("cccc3333", &at("gone"), DriveState::Missing),
        ]);
        let found = |name: &str| found_in(&report, name);
        assert_eq!(found(&at("by-id")).as_deref(), Ok("bbbb2222"));
        assert!(found("zzzz").is_err() && found(&format!("{}/../two", at("one"))).is_err());
    }
}
