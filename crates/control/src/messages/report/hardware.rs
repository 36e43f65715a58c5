//! Notices about the hardware of a pool's drives: failures that announce themselves, heat, and the
//! places of drives that are out of service.

use crate::drives::hardware::{Hardware, SmartHealth};
use crate::messages::report::{DriveReport, PoolReport};
use crate::notation::plain::one_line;

/// Limit in degrees Celsius for a drive that names none: the one of most disks.
const USUAL_LIMIT_C: i64 = 60;

/// Cause of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// The drive expects to fail.
    ExpectsFailure,
    /// The drive is too hot.
    Heat,
}

/// The drive's warnings, with a limit that overrides the drive's own.
pub(crate) fn warnings(pool: &str, drive: &DriveReport, limit_c: Option<i64>) -> Vec<(Cause, String)> {
    let hardware = &drive.hardware;
    let mut found = Vec::new();
    if hardware.smart == Some(SmartHealth::Failed) {
        let counters = counters_in_words(hardware);
        let command = format!("stripewise pool replace {pool} {} NEW", drive.id);
        let text = format!("{} expects to fail (SMART{counters}); replace it: {command}", named(drive));
        found.push((Cause::ExpectsFailure, text));
    }
    let limit_c = limit_c.or(hardware.temperature_limit_c).unwrap_or(USUAL_LIMIT_C);
    if let Some(degrees) = hardware.temperature_c.filter(|degrees| *degrees > limit_c) {
        let text = format!("{} has {degrees} degrees Celsius; its limit is {limit_c}", named(drive));
        found.push((Cause::Heat, text));
    }
    found
}

/// Adds the warnings, and where to find drives that are out of service, to the pool's notices.
pub(crate) fn add_notices(report: &mut PoolReport, limit_c: Option<i64>) {
    let pool = &report.name;
    let mut notices = Vec::new();
    for drive in &report.drives {
        notices.extend(warnings(pool, drive, limit_c).into_iter().map(|(_, text)| text));
        let place = drive.hardware.place();
        if let Some(place) = place.filter(|_| !drive.state.takes_part()) {
            let model = drive.hardware.model.as_ref().map(|model| format!("{model}, ")).unwrap_or_default();
            notices.push(one_line(&format!("to find {}: {model}{place}", drive.path)));
        }
    }
    report.notices.extend(notices);
}

/// A drive's path, serial number and slot.
pub(crate) fn named(drive: &DriveReport) -> String {
    let place = drive.hardware.place().map(|place| format!(" ({place})")).unwrap_or_default();
    one_line(&format!("{}{place}", drive.path))
}

fn counters_in_words(hardware: &Hardware) -> String {
    let bad = hardware.smart_counters.iter().filter(|counter| {
        let is_error = !matches!(counter.name.as_str(), "hours on" | "percent used" | "percent spare");
        is_error && counter.value > 0
    });
    bad.map(|counter| format!(", {} {}", counter.value, counter.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::hardware::SmartCounter;
    use crate::messages::report::DriveState;

    fn drive(hardware: Hardware) -> DriveReport {
        let state = DriveState::Online;
        DriveReport { id: "7".into(), path: "/dev/sdb".into(), state, hardware, ..DriveReport::default() }
    }

    #[test]
    fn a_failing_drive_is_named_with_its_slot() {
        let counters = [("reallocated sectors", 1200), ("pending sectors", 0), ("hours on", 9)];
        let counters = counters.map(|(name, value)| SmartCounter { name: name.into(), value });
        let bad = drive(Hardware {
            serial: Some("Z1".into()),
            slot: Some("4".into()),
            smart: Some(SmartHealth::Failed),
            smart_counters: counters.into(),
            ..Hardware::default()
        });
        let found = warnings("tank", &bad, None);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].1,
            "/dev/sdb (serial Z1, slot 4) expects to fail (SMART, 1200 reallocated sectors); \
             replace it: stripewise pool replace tank 7 NEW"
        );
    }

    #[test]
    fn heat_is_judged_by_the_limit_that_was_set() {
        let hot = |degrees, own| {
            let hardware =
                Hardware { temperature_c: Some(degrees), temperature_limit_c: own, ..Hardware::default() };
            drive(hardware)
        };
        let count = |drive: &DriveReport, limit| warnings("tank", drive, limit).len();
        assert_eq!((count(&hot(60, None), None), count(&hot(61, None), None)), (0, 1));
        assert_eq!((count(&hot(70, Some(81)), None), count(&hot(82, Some(81)), None)), (0, 1));
        assert_eq!((count(&hot(50, Some(81)), Some(45)), count(&hot(50, None), Some(50))), (1, 0));
    }

    #[test]
    fn a_missing_drive_can_be_found() {
        let hardware =
            Hardware { serial: Some("Z1".into()), model: Some("ST8".into()), ..Hardware::default() };
        let gone = DriveReport { state: DriveState::Missing, ..drive(hardware) };
        let mut report = PoolReport { drives: vec![gone], ..PoolReport::default() };
        add_notices(&mut report, None);
        assert_eq!(report.notices, ["to find /dev/sdb: ST8, serial Z1"]);
    }
}
