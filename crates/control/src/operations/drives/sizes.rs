//! Sizes of drives against those that they are to stand in for.
//!
//! Expected faults: spares that are too small to help, replacements that make a pool smaller.

use std::path::Path;

use stripewise_pool::usable_bytes;

use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::messages::report::{DriveReport, PoolReport, counted};
use crate::notation::size::ByteSize;

/// A replacement that is smaller by less than this part of the old drive is only noted.
const SLIGHT: u64 = 100;

/// Refuses a spare that has room for none of the drives, and notes one that has room for some only.
/// Sizes are usable bytes.
pub(crate) fn check_spare(
    environment: &Environment,
    (path, bytes): (&Path, u64),
    drives: impl Iterator<Item = u64>,
) -> Result<()> {
    let drives: Vec<u64> = drives.collect();
    let (path, smallest) = (path.display(), drives.iter().copied().min().unwrap_or(0));
    let fitting = drives.iter().filter(|drive| **drive <= bytes).count();
    if fitting == drives.len() {
        return Ok(());
    }
    let largest = ByteSize(drives.iter().copied().max().unwrap_or(0));
    if fitting == 0 {
        return Err(Failure::new(format!(
            "{path} has {} for volumes and the smallest drive of the pool {}: as a spare it \
             could replace none of them",
            ByteSize(bytes),
            ByteSize(smallest)
        ))
        .hint(format!("choose a spare with at least {largest}, or use its room with `--as data`")));
    }
    environment.warning(format!(
        "{path} has {} for volumes: as a spare it can replace {fitting} of {} in full; one with \
         {largest} could replace each",
        ByteSize(bytes),
        counted(drives.len(), "drive")
    ));
    Ok(())
}

/// Refuses a replacement that makes the pool smaller, unless `confirmed`; a slight difference is
/// noted.
pub(crate) fn check_replacement(
    environment: &Environment,
    pool: &PoolReport,
    old: &DriveReport,
    (path, bytes): (&str, u64),
    confirmed: bool,
) -> Result<()> {
    let lacking = old.usable_bytes.saturating_sub(bytes);
    if lacking == 0 || old.role != "data" {
        return Ok(());
    }
    let shrinks = format!(
        "{path} has {} for volumes, {} has {}: pool {} shrinks from {} to {}",
        ByteSize(bytes),
        old.path,
        ByteSize(old.usable_bytes),
        pool.name,
        ByteSize(pool.capacity_bytes),
        ByteSize(pool.capacity_bytes.saturating_sub(lacking))
    );
    if confirmed || lacking < old.usable_bytes / SLIGHT {
        environment.warning(shrinks);
        return Ok(());
    }
    Err(Failure::usage(shrinks).hint("to confirm, add --yes; a larger drive keeps the space"))
}

/// Usable bytes of the drives that spares of a pool stand in for.
pub(crate) fn of_members(pool: &PoolReport) -> impl Iterator<Item = u64> + '_ {
    let members = pool.drives.iter().filter(|drive| drive.role == "data" || drive.role == "fast");
    members.map(|drive| usable_bytes(drive.capacity_bytes, pool.slab_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::NoNotices;
    use crate::messages::report::PoolState;

    fn environment() -> Environment {
        Environment::of_this_process(std::rc::Rc::new(NoNotices))
    }

    #[test]
    fn spare_without_room_for_any_drive_is_refused() {
        let check = |bytes, drives: &[u64]| {
            check_spare(&environment(), (Path::new("/d/s"), bytes), drives.iter().copied())
        };
        assert!(check(64 << 20, &[64 << 20, 32 << 20]).is_ok());
        assert!(check(48 << 20, &[64 << 20, 32 << 20]).is_ok(), "it can replace one of them");
        let refused = check(16 << 20, &[64 << 20, 32 << 20]).expect_err("too small");
        assert!(refused.message.contains("could replace none"), "{}", refused.message);
        assert!(refused.hint.expect("a hint").contains("at least 64 MiB"));
    }

    #[test]
    fn shrinking_replacement_is_confirmed() {
        let old = DriveReport {
            path: "/d/1".into(),
            role: "data".into(),
            usable_bytes: 1 << 30,
            ..DriveReport::default()
        };
        let pool = PoolReport {
            name: "tank".into(),
            state: PoolState::Online,
            capacity_bytes: 4 << 30,
            ..PoolReport::default()
        };
        let check = |bytes, yes| check_replacement(&environment(), &pool, &old, ("/d/2", bytes), yes);
        assert!(check(1 << 30, false).is_ok() && check(2 << 30, false).is_ok());
        assert!(check((1 << 30) - (1 << 20), false).is_ok(), "drives of one size differ slightly");
        let refused = check(256 << 20, false).expect_err("much smaller");
        assert!(refused.message.ends_with("pool tank shrinks from 4 GiB to 3.25 GiB"), "{}", refused.message);
        assert!(check(256 << 20, true).is_ok());
    }
}
