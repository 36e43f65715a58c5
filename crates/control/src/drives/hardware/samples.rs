//! Samples of the hardware of pools' drives. What names a drive (serial number, slot) is kept in
//! the state folder, so that a missing drive can be found by hand.
//!
//! Expected faults: a full or unwritable state folder (the names are kept in memory only), drives
//! that do not answer (a thread waits, for at most the limit of `smartctl`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::Builder;

use stripewise_export::bridge::off_thread;
use stripewise_runtime::read_small_file;

use super::{Hardware, smart, sysfs};
use crate::registry::write_beside;

/// Between two samples of a drive: `smartctl` costs the drive a moment.
pub(crate) const INTERVAL_NS: u64 = 600_000_000_000;
/// Drives asked at the same time.
const AT_ONCE: usize = 8;
/// File in the state folder.
const FILE: &str = "hardware.json";
/// Identities kept; beyond these only those of the drives just sampled.
const MAX_KEPT: usize = 4096;
/// A longer file is not ours.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Links to devices by their place on the bus.
const BY_PATH: &str = "/dev/disk/by-path";

/// Facts by drive ID.
type ById = BTreeMap<String, Hardware>;

/// The newest facts of each drive.
#[derive(Default)]
pub(crate) struct Samples(RefCell<ById>);

impl Samples {
    /// Facts about a drive, by its ID; for a missing drive those that name it.
    pub(crate) fn of(&self, id: &str) -> Option<Hardware> {
        self.0.borrow().get(id).cloned()
    }

    /// Samples drives, given by ID and path.
    pub(crate) async fn take(&self, folder: &Path, drives: Vec<(String, PathBuf)>) {
        let folder = folder.to_owned();
        let Ok(taken) = off_thread(move || sampled(&folder, &drives)).await else { return };
        let mut known = self.0.borrow_mut();
        let next: Vec<(String, Hardware)> = taken
            .into_iter()
            .map(|(id, facts)| {
                // A drive that stands still, or does not answer, keeps the health that it had.
                let last = known.get(&id).cloned().unwrap_or_default();
                (id, facts.or(Hardware { temperature_c: None, ..last }))
            })
            .collect();
        if known.len() > MAX_KEPT {
            known.clear();
        }
        known.extend(next);
    }
}

/// Facts about one drive. Blocks the thread.
pub(crate) fn facts_of(path: &Path) -> Hardware {
    let Some(folder) = sysfs::folder_of(path) else { return Hardware::default() };
    let asked = smart::ask(path).unwrap_or_default();
    asked.or(sysfs::facts(&folder, Path::new(BY_PATH)))
}

/// Serial numbers of drives, given by ID and path: as the kernel has them, and as they were kept in
/// the state folder. Asks no drive.
pub(crate) fn serials(
    folder: Option<&Path>,
    drives: impl Iterator<Item = (String, PathBuf)>,
) -> Vec<(String, String)> {
    let kept = folder.map(|folder| read(&folder.join(FILE))).unwrap_or_default();
    let serial = |(id, path): (String, PathBuf)| {
        let facts = sysfs::folder_of(&path).map(|folder| sysfs::facts(&folder, Path::new(BY_PATH)));
        let serial = facts.and_then(|facts| facts.serial).or_else(|| kept.get(&id)?.serial.clone());
        Some((id, serial?))
    };
    drives.filter_map(serial).collect()
}

fn sampled(folder: &Path, drives: &[(String, PathBuf)]) -> ById {
    let file = folder.join(FILE);
    let kept = read(&file);
    let mut taken = ById::new();
    for some in drives.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let ask = |path| Builder::new().spawn_scoped(scope, move || facts_of(path)).ok();
            let asked: Vec<_> = some.iter().map(|(id, path)| (id, ask(path))).collect();
            for (id, answer) in asked {
                let named = kept.get(id).cloned().unwrap_or_default();
                let facts = answer.and_then(|answer| answer.join().ok()).unwrap_or_default();
                taken.insert(id.clone(), facts.or(named));
            }
        });
    }
    let mut next = if kept.len() > MAX_KEPT { ById::new() } else { kept.clone() };
    let named = taken.iter().map(|(id, facts)| (id.clone(), facts.identity()));
    next.extend(named.filter(|(_, identity)| *identity != Hardware::default()));
    if next != kept {
        let text = serde_json::to_vec(&next).expect("plain data becomes JSON");
        // Without the file a missing drive has no serial number after a restart; nothing else.
        let _ = write_beside(&file, &text);
    }
    taken
}

fn read(file: &Path) -> ById {
    let text = read_small_file(file, MAX_FILE_BYTES).map(|(text, _)| text).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::hardware::SmartHealth;

    #[test]
    fn a_missing_drive_keeps_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Hardware { serial: Some("Z1".into()), slot: Some("4".into()), ..Hardware::default() };
        let kept = ById::from([("a".to_owned(), identity.clone()), ("b".to_owned(), identity.clone())]);
        std::fs::write(folder.path().join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        let missing =
            vec![("a".to_owned(), PathBuf::from("/dev/nothing")), ("c".to_owned(), "/dev/none".into())];
        let taken = sampled(folder.path(), &missing);
        assert_eq!(taken["a"], identity);
        assert_eq!(taken["c"], Hardware::default());
        assert_eq!(read(&folder.path().join(FILE)), kept, "drives of other pools stay");
    }

    #[test]
    fn a_drive_that_does_not_answer_keeps_its_health() {
        let folder = tempfile::tempdir().expect("a folder");
        let samples = Samples::default();
        let failing =
            Hardware { smart: Some(SmartHealth::Failed), temperature_c: Some(40), ..Hardware::default() };
        samples.0.borrow_mut().insert("a".to_owned(), failing);
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        executor.block_on(samples.take(folder.path(), vec![("a".to_owned(), "/dev/nothing".into())]));
        let now = samples.of("a").expect("known");
        assert_eq!((now.smart, now.temperature_c), (Some(SmartHealth::Failed), None));
    }

    #[test]
    fn a_foreign_file_gives_no_names() {
        let folder = tempfile::tempdir().expect("a folder");
        for text in ["", "[", "{\"a\": 3}", "{\"a\": {\"serial\": []}}"] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(read(&folder.path().join(FILE)), ById::new(), "{text}");
        }
    }
}
