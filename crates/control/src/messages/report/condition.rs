//! The condition of a pool and the notices about it in words, with the next command.

use stripewise_pool::{
    Condition, DriveState, Homeless, Notice, OutDrive, Repair, Replacing, SpaceUse, SpareTakeover,
    layout_in_words,
};

use super::counted;
use crate::notation::size::ByteSize;

/// A condition in words, and the next command; empty if none is needed.
pub(super) fn in_words(pool: &str, condition: &Condition) -> (String, String) {
    let words = |words: String, action: String| (words, action);
    let wait = |job: &str| format!("stripewise pool wait {pool} {job}");
    let add = || format!("stripewise pool add {pool} NEW-DRIVE");
    match condition {
        Condition::VolumeFailed { volume, why, needed } => {
            let why = why.as_deref().unwrap_or("too many drives are gone");
            let failed = format!("volume {volume} has failed: {why}");
            match needed.is_empty() {
                true => words(failed, format!("stripewise volume delete {pool}/{volume} --yes")),
                false => words(
                    format!("{failed}; with these it could be read again: {}", needed.join(", ")),
                    format!("stripewise pool import {pool} --dir DIR"),
                ),
            }
        }
        Condition::FileSystemFull { drive } => words(
            format!(
                "writing stopped: the file system under {drive} is full (ENOSPC). Everything \
                 written before can be read, and volumes can be deleted"
            ),
            format!("free space there, or: stripewise volume delete {pool}/VOL --yes"),
        ),
        Condition::LostBlocks { blocks } => words(
            format!(
                "{blocks} blocks of 4 KiB are lost, no drive has them any more; all else can be \
                 read. Writing them makes them good again"
            ),
            format!("stripewise pool scrub {pool} --wait"),
        ),
        Condition::Rebuilding { volumes } => words(
            format!(
                "a replacement is being filled; until that is done {} can lose fewer drives than when whole",
                volumes.join(", ")
            ),
            wait("rebuild"),
        ),
        Condition::Lacking { volume, redundancy_left, repair } => {
            let lacking =
                format!("everything can be read and written, volume {volume} {}", left(*redundancy_left));
            match repair {
                Repair::WithoutRoom { .. } => words(lacking + &without_room(repair), add()),
                Repair::Spare(_) | Repair::FreeSpace | Repair::None => {
                    let repair = repair_in_words(repair).map(|repair| format!("; {repair}"));
                    words(lacking + &repair.unwrap_or_default(), wait("rebuild"))
                }
            }
        }
        Condition::Degraded { out, volume, redundancy_left, repair } => {
            let degraded = format!(
                "{} out of service: {}; everything can be read and written, volume {volume} {}",
                counted(out.len(), "drive"),
                listed(out),
                left(*redundancy_left)
            );
            match repair_in_words(repair) {
                Some(repair) => words(format!("{degraded}; {repair}"), wait("rebuild")),
                None => {
                    // A replacement takes what the drives out of service held.
                    let is_out = |left: &Homeless| out.iter().any(|drive| drive.path == left.drive);
                    let is_named = matches!(repair, Repair::WithoutRoom { homeless, .. }
                        if !homeless.iter().all(is_out));
                    let named = if is_named { without_room(repair) } else { String::new() };
                    words(degraded + &named, remedy(pool, out))
                }
            }
        }
        Condition::EmptyDrivesGone { out } => words(
            format!(
                "all volumes are whole without {}; `pool replace` puts a new drive in its place, \
                 and gives the room back",
                listed(out)
            ),
            format!("stripewise pool remove {pool} {}", out[0].id),
        ),
        Condition::DrivesOut { out } => {
            words(format!("all volumes are whole; out of service: {}", listed(out)), remedy(pool, out))
        }
        Condition::ResyncDue => {
            words("all there; what a crash left open is still to be compared".to_owned(), wait("scrub"))
        }
        Condition::Replacing(replacing) => {
            let line = |drive: &Replacing| {
                format!("replacing {} with {}, {:.1} % done", drive.from, drive.to, drive.percent)
            };
            let lines: Vec<String> = replacing.iter().map(line).collect();
            let words = format!(
                "all there; {}: until then both are used, and no redundancy is missing",
                lines.join("; ")
            );
            (words, wait("rebuild"))
        }
        Condition::CannotEmpty { why } => words(format!("all there, but {why}"), add()),
        Condition::Retiring { drives } => {
            words(format!("all there; {} is being emptied", drives.join(", ")), wait("rebuild"))
        }
        Condition::Converting { volume, from, to, waits } => {
            let running = format!(
                "all there; volume {volume} is being converted from {} to {}",
                layout_in_words(from),
                layout_in_words(to)
            );
            match waits {
                None => words(running, wait("convert")),
                Some(waits) => words(
                    format!("{running}. {}", waits.why),
                    if waits.is_for_space { add() } else { wait("convert") },
                ),
            }
        }
        Condition::WrongBlocks { drives, was_scrubbed } => {
            let drives: Vec<String> =
                drives.iter().map(|(path, count)| format!("{path} ({count})")).collect();
            let clear = format!("stripewise pool clear {pool}");
            let scrub = format!("stripewise pool scrub {pool} --wait");
            let wrong = format!(
                "all there; blocks were found wrong on {}, and repaired where there is redundancy. \
                 A drive that goes on like this should be replaced; `{clear}` sets the counts back",
                drives.join(", ")
            );
            words(wrong, if *was_scrubbed { clear } else { scrub })
        }
        Condition::SpareInUse(takeover) => {
            words(format!("all there; {}", spare_in_use(takeover)), format!("stripewise pool clear {pool}"))
        }
        Condition::Rebalancing => words(
            "all there; what volumes take is being spread over all drives".to_owned(),
            wait("rebalance"),
        ),
        Condition::RebalanceGains { bytes } => words(
            format!(
                "all there; {} MiB that are free can be used only when rows are spread over all drives",
                bytes >> 20
            ),
            format!("stripewise pool rebalance {pool}"),
        ),
        Condition::SpaceShort(space) => words(space_short(space), add()),
        Condition::AllThere => {
            words("all drives are there and all volumes have all their redundancy".to_owned(), String::new())
        }
    }
}

/// A notice in words.
pub(super) fn notice_in_words(notice: &Notice) -> String {
    match notice {
        Notice::News(text) => text.clone(),
        Notice::ThinWants { wanted_slabs, free_slabs, slab_bytes } => format!(
            "thin volumes may still want {wanted_slabs} slabs of {} MiB, {free_slabs} are free",
            slab_bytes >> 20
        ),
        Notice::SpaceShort(space) => space_short(space),
        Notice::ThinWithoutDrives { volumes, working } => format!(
            "thin volumes get no new space until all drives are back: each row takes more drives \
             than the {working} in service ({}). What was written before can be read and written",
            volumes.join(", ")
        ),
        Notice::SpareInUse(takeover) => spare_in_use(takeover),
        Notice::CannotEmpty { why } => why.clone(),
        Notice::HalfReceived { volume, snapshot, base } => format!(
            "volume {volume} is not served: it holds a part of the stream of snapshot {snapshot}; send that \
             again, or {}",
            match base {
                Some(base) => format!("roll back to {volume}@{base}"),
                None => "delete the volume".to_owned(),
            }
        ),
        Notice::JournalAreasGone { volume, areas } => format!(
            "{} of the journal of volume {volume} on drives that are gone; the others do its work",
            counted(*areas, "area")
        ),
    }
}

/// The number of drives that may still be lost.
pub(crate) fn left(redundancy: usize) -> String {
    match redundancy {
        0 => "has no redundancy left".to_owned(),
        left => format!("can lose {} more", counted(left, "drive")),
    }
}

/// The repair that starts by itself, if one restores all redundancy.
fn repair_in_words(repair: &Repair) -> Option<String> {
    match repair {
        Repair::Spare(path) => Some(format!("the spare {path} takes over")),
        Repair::FreeSpace => Some("the other drives have room for what is lacking".to_owned()),
        Repair::None | Repair::WithoutRoom { .. } => None,
    }
}

/// Names the columns that have no place, and the size of a drive that has room for them.
fn without_room(repair: &Repair) -> String {
    const MOST: usize = 4;
    let Repair::WithoutRoom { homeless, slab_bytes, needed_bytes } = repair else { return String::new() };
    let named = |left: &Homeless| {
        let part = match left.column {
            Some(column) => format!("column {} of volume {}", column + 1, left.volume),
            None => format!("a copy of the region map or journal of volume {}", left.volume),
        };
        format!("{part} ({}, was on {})", ByteSize(left.slabs * slab_bytes), left.drive)
    };
    let mut parts: Vec<String> = homeless.iter().take(MOST).map(named).collect();
    if homeless.len() > MOST {
        parts.push(format!("{} more", homeless.len() - MOST));
    }
    let verb = if homeless.len() == 1 { "has" } else { "have" };
    format!(
        ". No drive has room for all of it: {} {verb} no place until a drive of at least {} is added",
        parts.join(", "),
        ByteSize(needed_bytes.next_multiple_of(1 << 20))
    )
}

fn listed(out: &[OutDrive]) -> String {
    let named = |drive: &OutDrive| format!("{} ({})", drive.path, drive.state);
    out.iter().map(named).collect::<Vec<_>>().join(", ")
}

fn space_short(space: &SpaceUse) -> String {
    let SpaceUse { used_slabs, slabs } = space;
    format!(
        "space is short: {} % of it is taken ({used_slabs} of {slabs} slabs), and thin volumes may \
         want more. When it is full, writes to places of theirs that were never written fail; all \
         else goes on",
        used_slabs * 100 / slabs
    )
}

fn spare_in_use(takeover: &SpareTakeover) -> String {
    format!("spare {} took the place of {}", takeover.spare, takeover.drive)
}

/// The command for drives that are out of service.
fn remedy(pool: &str, out: &[OutDrive]) -> String {
    match out.first() {
        Some(_) if out.iter().any(|drive| drive.state == DriveState::Behind) => {
            format!("stripewise pool wait {pool} rebuild")
        }
        Some(drive) if drive.state == DriveState::Offline => {
            format!("stripewise pool online {pool} {}", drive.id)
        }
        // It is there, and may be filled again.
        Some(drive) if drive.state == DriveState::Stale => {
            format!("stripewise pool replace {pool} {} {}", drive.id, drive.path)
        }
        Some(drive) => format!("stripewise pool replace {pool} {} NEW-DRIVE", drive.id),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use stripewise_pool::DriveId;

    use super::*;

    fn out(state: DriveState) -> Vec<OutDrive> {
        let id: DriveId = serde_json::from_str("\"987bbcbf-dd7e-432f-83f2-827affe7f664\"").expect("an id");
        vec![OutDrive { id, path: "/dev/sdb".to_owned(), state }]
    }

    fn without_room() -> Repair {
        let left =
            |column, slabs| Homeless { volume: "v".to_owned(), column, slabs, drive: "/dev/sdb".to_owned() };
        let homeless = vec![left(Some(1), 12), left(None, 1)];
        Repair::WithoutRoom { homeless, slab_bytes: 1 << 20, needed_bytes: 17 << 20 }
    }

    fn degraded(state: DriveState, repair: Repair) -> Condition {
        Condition::Degraded { out: out(state), volume: "v".to_owned(), redundancy_left: 0, repair }
    }

    #[test]
    fn each_condition_names_the_command_that_helps() {
        let cases = [
            (
                degraded(DriveState::Missing, Repair::None),
                "pool replace tank 987bbcbf-dd7e-432f-83f2-827affe7f664 NEW-DRIVE",
            ),
            (
                degraded(DriveState::Stale, Repair::None),
                "pool replace tank 987bbcbf-dd7e-432f-83f2-827affe7f664 /dev/sdb",
            ),
            (
                degraded(DriveState::Offline, Repair::None),
                "pool online tank 987bbcbf-dd7e-432f-83f2-827affe7f664",
            ),
            (degraded(DriveState::Behind, Repair::None), "pool wait tank rebuild"),
            (degraded(DriveState::Missing, Repair::FreeSpace), "pool wait tank rebuild"),
            (
                Condition::EmptyDrivesGone { out: out(DriveState::Failed) },
                "pool remove tank 987bbcbf-dd7e-432f-83f2-827affe7f664",
            ),
            (Condition::ResyncDue, "pool wait tank scrub"),
            (Condition::LostBlocks { blocks: 1 }, "pool scrub tank --wait"),
            (Condition::SpaceShort(SpaceUse { used_slabs: 9, slabs: 10 }), "pool add tank NEW-DRIVE"),
            (Condition::WrongBlocks { drives: Vec::new(), was_scrubbed: true }, "pool clear tank"),
            (Condition::WrongBlocks { drives: Vec::new(), was_scrubbed: false }, "pool scrub tank --wait"),
        ];
        for (condition, command) in cases {
            let (words, action) = in_words("tank", &condition);
            assert_eq!(action, format!("stripewise {command}"), "{words}");
        }
        assert_eq!(in_words("tank", &Condition::AllThere).1, "");
    }

    #[test]
    fn degraded_pool_says_what_is_left() {
        let (words, _) = in_words("tank", &degraded(DriveState::Missing, Repair::None));
        assert_eq!(
            words,
            "1 drive out of service: /dev/sdb (missing); everything can be read and written, volume \
             v has no redundancy left"
        );
        let spare = Repair::Spare("/dev/sdc".to_owned());
        let (words, _) = in_words("tank", &degraded(DriveState::Missing, spare));
        assert!(words.ends_with("; the spare /dev/sdc takes over"), "{words}");
    }

    #[test]
    fn columns_without_a_place_are_named() {
        let lacking = |repair| Condition::Lacking { volume: "v".to_owned(), redundancy_left: 0, repair };
        let named = ". No drive has room for all of it: column 2 of volume v (12 MiB, was on \
                     /dev/sdb), a copy of the region map or journal of volume v (1 MiB, was on \
                     /dev/sdb) have no place until a drive of at least 17 MiB is added";
        let (words, action) = in_words("tank", &lacking(without_room()));
        assert!(words.ends_with(named), "{words}");
        assert_eq!(action, "stripewise pool add tank NEW-DRIVE");
        let (words, action) = in_words("tank", &degraded(DriveState::Missing, without_room()));
        assert!(words.ends_with("has no redundancy left"), "a replacement takes it all: {words}");
        assert!(action.starts_with("stripewise pool replace tank 987bbcbf"), "{action}");
        let (_, action) = in_words("tank", &lacking(Repair::FreeSpace));
        assert_eq!(action, "stripewise pool wait tank rebuild");
    }

    #[test]
    fn notices_say_what_is_short_and_where() {
        let short = SpaceUse { used_slabs: 90, slabs: 100 };
        let cases = [
            (Notice::News("news".to_owned()), "news"),
            (
                Notice::ThinWants { wanted_slabs: 9, free_slabs: 4, slab_bytes: 2 << 20 },
                "may still want 9 slabs of 2 MiB, 4 are free",
            ),
            (Notice::SpaceShort(short), "space is short: 90 % of it is taken (90 of 100 slabs)"),
            (
                Notice::ThinWithoutDrives { volumes: vec!["v".to_owned()], working: 3 },
                "no new space until all drives are back: each row takes more drives than the 3 in \
                 service (v)",
            ),
            (
                Notice::SpareInUse(SpareTakeover {
                    spare: "sdc".to_owned(),
                    drive: "sdb".to_owned(),
                    unix_s: 0,
                }),
                "spare sdc took the place of sdb",
            ),
            (Notice::CannotEmpty { why: "sdb cannot be emptied".to_owned() }, "sdb cannot be emptied"),
            (
                Notice::HalfReceived {
                    volume: "v".to_owned(),
                    snapshot: "b".to_owned(),
                    base: Some("a".to_owned()),
                },
                "volume v is not served: it holds a part of the stream of snapshot b; send that again, or \
                 roll back to v@a",
            ),
            (
                Notice::JournalAreasGone { volume: "v".to_owned(), areas: 1 },
                "1 area of the journal of volume v on drives that are gone",
            ),
        ];
        for (notice, words) in cases {
            let text = notice_in_words(&notice);
            assert!(text.contains(words), "{text}");
        }
    }
}
