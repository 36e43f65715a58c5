//! Remedies for errors of pools, with the commands.

use stripewise_array::ArrayError;
use stripewise_pool::{LogTask, PoolError};

use super::stream_hint::stream_hint;
use crate::notation::size::ByteSize;

/// Names of snapshots that a hint lists.
const NAMES_SHOWN: usize = 5;

/// Recommended remedy for an error of a pool.
pub(crate) fn pool_hint(error: &PoolError) -> Option<String> {
    Some(match error {
        PoolError::BadName { .. } => {
            "names are 1 to 63 characters: the letters a-z and A-Z, digits, - _ and ., \
                 beginning with a letter or digit"
                .to_owned()
        }
        PoolError::VolumeExists { .. } => "choose another name, or delete that volume first".to_owned(),
        PoolError::NoSuchVolume { known, .. } if known.is_empty() => "it has no volumes yet".to_owned(),
        PoolError::NoSuchVolume { known, .. } => format!("it has {}", known.join(", ")),
        PoolError::VolumeFailed { needed, .. } if !needed.is_empty() => {
            format!("bring back what is needed: {}", needed.join(", "))
        }
        PoolError::NoSuchDrive { .. } => {
            "`pool status` names its drives; one that was replaced is no longer among them".to_owned()
        }
        PoolError::DriveTooSmall { needed_bytes, .. } => {
            format!("give a drive of at least {}", in_mib(needed_bytes.next_multiple_of(1 << 20)))
        }
        PoolError::DriveTooLarge { .. } => {
            "give a smaller one, or a partition of it; a size like this is often a mistake".to_owned()
        }
        PoolError::OneThreadDrive { .. } => {
            "restart the daemon with --cores 1, then give the drive again".to_owned()
        }
        PoolError::BeingReplaced { pool, by, .. } => format!(
            "`stripewise pool wait {pool} rebuild` ends when that is done; `stripewise pool \
                 retire {pool} {by}` calls it off, and gives the new drive back"
        ),
        PoolError::DriveOfOtherPool { pool_name, .. } => {
            format!("with --force it is taken over, and what pool {pool_name} holds on it is lost")
        }
        PoolError::UnreadableState { .. } => {
            "the pool's other drives may open it without this one; with --force it is taken \
                 over, and what it holds is lost"
                .to_owned()
        }
        PoolError::RolledBack { drives, .. } => format!(
            "put the newest state of {} back; or take what is there with `pool import --force`: \
                 what was written since those copies were made is lost or disagrees",
            if drives.len() == 1 { "it" } else { "them" }
        ),
        PoolError::DriveOut { id, .. } => format!(
            "`pool online` takes it back and copies to it what changed, `pool remove` lets go \
                 of {id} first; with --force the drive is overwritten and its place given up"
        ),
        PoolError::OtherHost { pool, host } => format!(
            "`stripewise pool export {pool}` on {} lets it go; if that host does not use it any \
                 more: stripewise pool import {pool} --force",
            host.name
        ),
        PoolError::Destroyed { pool } => format!(
            "`stripewise pool import --destroyed {pool}` brings it back; `stripewise pool destroy \
                 {pool} --yes` takes it off the list"
        ),
        PoolError::InUse { pool, .. } => format!(
            "end that process; or, if its pool is to be taken from it: stripewise pool import \
                 {pool} --force"
        ),
        PoolError::TakenOver { pool } => format!(
            "what was acknowledged before is kept. Find out who took it over; to have pool \
                 {pool} here again, end that process first"
        ),
        PoolError::SameDriveTwice { .. } => "name every drive once".to_owned(),
        PoolError::SeveralPools { .. } => "name the drives of one pool".to_owned(),
        PoolError::NotOfPool { notices, .. } if !notices.is_empty() => notices.join("; "),
        PoolError::NewerFormat { .. } | PoolError::UnknownFeatures { .. } => {
            "open it with a newer version of this program".to_owned()
        }
        PoolError::Diverged { first, second } => format!(
            "decide which half is right, open the pool with only its drives, and give the \
                 others back with `pool replace`: leave out either {} or {}",
            first.join(", "),
            second.join(", ")
        ),
        PoolError::NeedsRedundancy { .. } => {
            "let a rebuild finish, or copy the data elsewhere, before taking the drive out".to_owned()
        }
        PoolError::OnlyCopy { .. } => {
            "bring the volume's other drives back first, or delete the volume".to_owned()
        }
        PoolError::TooFewDrives { missing, .. } => {
            format!("bring back {}, or delete what needs them", missing.join(", "))
        }
        PoolError::FileSystemFull { drive } | PoolError::Array(ArrayError::FileSystemFull { drive }) => {
            format!("free space in the file system that holds {drive}")
        }
        PoolError::Senseless { .. } => {
            "this is a fault of the program: the pool is as it was; please report it with `pool \
                 status`"
                .to_owned()
        }
        PoolError::ThinTooLarge { most_bytes, .. } => {
            format!("the largest thin volume of this layout has {} here", ByteSize(*most_bytes))
        }
        PoolError::NoSpace { possible_bytes: 0, .. } => "add drives, or delete a volume".to_owned(),
        PoolError::NoSpace { possible_bytes, .. } => {
            format!("ask for {possible_bytes} bytes at most, add drives, or delete a volume")
        }
        PoolError::Full { .. } => {
            "add drives, delete a volume, or discard what is not needed any more".to_owned()
        }
        PoolError::RowNeedsDrives { pool, .. } => format!(
            "bring back or replace the drive that is out (`stripewise pool status {pool}`), or \
                 add one; what was written before can be read and written"
        ),
        PoolError::Converting { pool, volume } => format!(
            "`stripewise pool wait {pool} convert` ends when that is done; `stripewise volume \
                 convert {pool}/{volume} --cancel` takes it back"
        ),
        PoolError::SameLayout { .. } => {
            "name another layout, or other columns, groups, interleave or slices".to_owned()
        }
        PoolError::NoRoomToConvert { .. } => {
            "add drives, delete a volume, or choose a layout that takes less; each row needs \
                 its columns on drives of their own"
                .to_owned()
        }
        PoolError::StoredBeyond { .. } => {
            "shrink what is in it first and discard the rest, or choose a larger size".to_owned()
        }
        PoolError::OlderFormat { .. } => {
            "copy its contents elsewhere with the program that made it; --force overwrites it".to_owned()
        }
        PoolError::LossesFull { .. } => {
            "write the lost blocks again, or discard them: blocks that are whole need no room".to_owned()
        }
        PoolError::MetadataFull { .. } => {
            "replace the pool's smallest drive, which sets how much room there is, by a larger \
                 one; or delete a volume"
                .to_owned()
        }
        PoolError::Layout(error) | PoolError::Array(ArrayError::Layout(error)) => error.hint(),
        PoolError::LogVolume { task, volume, .. } => of_log(task, volume),
        PoolError::WithoutSnapshots { pool, .. } => format!(
            "log volumes have snapshots: create one with `stripewise volume create {pool}/NAME --layout \
                 LAYOUT --log`, and copy the data to it"
        ),
        PoolError::SnapshotExists { pool, path } => {
            format!("choose another name, or delete it first: stripewise snapshot delete {pool}/{path}")
        }
        PoolError::NoSuchSnapshot { path, known, .. } if known.is_empty() => {
            format!("volume {} has no snapshots", path.volume)
        }
        PoolError::NoSuchSnapshot { pool, path, known } => {
            let newest: Vec<&str> = known.iter().rev().take(NAMES_SHOWN).map(String::as_str).collect();
            format!(
                "volume {} has {}{}; `stripewise snapshot list {pool}/{}` lists them",
                path.volume,
                newest.join(", "),
                if known.len() > NAMES_SHOWN { ", …" } else { "" },
                path.volume
            )
        }
        PoolError::TooManySnapshots { pool, .. } => {
            format!("delete some of them; `stripewise snapshot list {pool}` lists them, the oldest first")
        }
        PoolError::NewerSnapshots { pool, path, newer } => format!(
            "a rollback with -r deletes {}: stripewise snapshot rollback -r {pool}/{path}",
            match &newer[..] {
                [one] => one.clone(),
                [.., last] => format!("them, from {} to {last}", newer[0]),
                [] => "none".to_owned(),
            }
        ),
        PoolError::HasSnapshots { pool, first, .. } => format!(
            "`stripewise snapshot list {pool}/{}` lists them; delete them first: stripewise snapshot delete \
                 {pool}/{first} …",
            first.volume
        ),
        PoolError::HasClones { pool, clones, .. } => format!(
            "delete the clones first, or copy their data elsewhere: stripewise volume delete {pool}/{}",
            clones[0]
        ),
        PoolError::Stream(error) => return stream_hint(error),
        PoolError::SeekBoundSlices { .. } => "give it one slice: --slices 1".to_owned(),
        PoolError::TooSmallForSlices { least_bytes, .. } => {
            format!("give it {} or more, or fewer slices", ByteSize(*least_bytes))
        }
        PoolError::DriveInUse { .. } => "`pool retire` empties it first, and then lets go of it".to_owned(),
        PoolError::NoRoomElsewhere { needs: Some(_), .. } => "`stripewise pool add` adds a drive".to_owned(),
        PoolError::NoRoomElsewhere { .. } => "add a drive first, or delete or shrink volumes".to_owned(),
        _ => return None,
    })
}

/// The hint where a log volume does not offer some work.
fn of_log(task: &LogTask, volume: &str) -> String {
    match task {
        LogTask::Convert | LogTask::Resize => {
            format!("create another volume as wanted, copy the data of {volume} to it, and delete {volume}")
        }
        LogTask::Pin => "create the volume without --log to pin it".to_owned(),
        LogTask::Move { .. } => {
            "`stripewise pool offline` takes the drive out, and `pool replace` then rebuilds the volume onto \
             another; until that is done it can lose one drive less"
                .to_owned()
        }
    }
}

/// Bytes of slabs, which are whole MiB.
fn in_mib(bytes: u64) -> String {
    let mib = bytes >> 20;
    if mib < 10 << 10 { format!("{mib} MiB") } else { format!("{:.1} GiB", mib as f64 / 1024.0) }
}

#[cfg(test)]
mod tests {
    use stripewise_layout::{LayoutError, Level};
    use stripewise_pool::{DriveId, PoolId, SnapshotPath};

    use super::*;

    const ID: &str = "\"987bbcbf-dd7e-432f-83f2-827affe7f664\"";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_refusal_names_its_remedy() {
        let (drive, pool, volume) = (|| "sdb".to_owned(), || "tank".to_owned(), || "v".to_owned());
        let path = || SnapshotPath::parse("v@monday").expect("a snapshot");
        let pool_id = || serde_json::from_str::<PoolId>(ID).expect("an id");
        let id = serde_json::from_str::<DriveId>(ID).expect("an id");
        let cases = [
            (
                PoolError::NoSuchVolume { pool: pool(), name: "w".to_owned(), known: names(&["v"]) },
                "it has v",
            ),
            (
                PoolError::VolumeFailed {
                    name: volume(),
                    why: "gone".to_owned(),
                    needed: names(&["drive1"]),
                },
                "drive1",
            ),
            (
                PoolError::DriveTooSmall { drive: drive(), capacity_bytes: 1 << 20, needed_bytes: 12 << 20 },
                "at least 12 MiB",
            ),
            (
                PoolError::BeingReplaced { pool: pool(), drive: drive(), by: "sdc".to_owned() },
                "`stripewise pool retire tank sdc` calls it off",
            ),
            (
                PoolError::DriveOfOtherPool {
                    drive: drive(),
                    pool_name: "nas".to_owned(),
                    pool_id: pool_id(),
                },
                "with --force it is taken over, and what pool nas holds on it is lost",
            ),
            (PoolError::UnreadableState { drive: drive(), pool_id: pool_id() }, "--force"),
            (PoolError::OlderFormat { drive: drive(), version: 1 }, "--force overwrites it"),
            (PoolError::RolledBack { drives: names(&["sdb"]), generation: 9 }, "`pool import --force`"),
            (PoolError::DriveOut { drive: drive(), id }, "`pool online` takes it back"),
            (PoolError::InUse { pool: pool(), host: None }, "stripewise pool import tank --force"),
            (
                PoolError::Diverged { first: names(&["drive0"]), second: names(&["drive1"]) },
                "either drive0 or drive1",
            ),
            (
                PoolError::Converting { pool: pool(), volume: volume() },
                "`stripewise pool wait tank convert` ends when that is done",
            ),
            (
                PoolError::DriveInUse { drive: drive(), slabs: 3, volumes: names(&["v"]) },
                "`pool retire` empties it first",
            ),
            (
                PoolError::LogVolume { pool: pool(), volume: volume(), task: LogTask::Resize },
                "create another volume as wanted",
            ),
            (
                PoolError::LogVolume {
                    pool: pool(),
                    volume: volume(),
                    task: LogTask::Move { drive: drive() },
                },
                "`pool replace` then rebuilds",
            ),
            (PoolError::WithoutSnapshots { pool: pool(), volume: volume() }, "--log`"),
            (
                PoolError::SnapshotExists { pool: pool(), path: path() },
                "stripewise snapshot delete tank/v@monday",
            ),
            (
                PoolError::NoSuchSnapshot { pool: pool(), path: path(), known: names(&["a", "b"]) },
                "volume v has b, a;",
            ),
            (PoolError::NoSuchSnapshot { pool: pool(), path: path(), known: names(&[]) }, "no snapshots"),
            (PoolError::TooManySnapshots { pool: pool(), snapshots: 9 }, "stripewise snapshot list tank`"),
            (
                PoolError::NewerSnapshots { pool: pool(), path: path(), newer: names(&["a", "b"]) },
                "from a to b: stripewise snapshot rollback -r tank/v@monday",
            ),
            (
                PoolError::HasSnapshots { pool: pool(), snapshots: 2, first: path() },
                "stripewise snapshot delete tank/v@monday",
            ),
            (
                PoolError::HasClones { pool: pool(), what: "volume v".to_owned(), clones: names(&["w"]) },
                "stripewise volume delete tank/w",
            ),
            (PoolError::SeekBoundSlices { volume: volume(), slices: 4 }, "--slices 1"),
            (
                PoolError::TooSmallForSlices {
                    volume: volume(),
                    slices: 2,
                    size_bytes: 1,
                    least_bytes: 8 << 20,
                },
                "8 MiB or more",
            ),
            (PoolError::Layout(LayoutError::TooFewColumns { level: Level::Raid6, needed: 4, given: 3 }), ""),
        ];
        for (error, remedy) in cases {
            let hint = pool_hint(&error).unwrap_or_else(|| panic!("{error}: no hint"));
            assert!(hint.contains(remedy) && !hint.is_empty(), "{error}: {hint}");
        }
    }
}
