//! Drives that were restored from an older copy, and their treatment when the pool is opened.

use std::collections::BTreeSet;

use crate::PoolOptions;
use crate::error::PoolError;
use crate::manifest::drive_record::{Exclusion, ExclusionKind};
use crate::superblock::assemble::{Choice, Found, Worth};

/// A drive, by number, that was restored from an older copy.
pub(crate) struct RolledBack {
    pub number: u32,
    /// The drive is used as it is.
    pub is_taken: bool,
}

impl RolledBack {
    /// The exclusion of its columns, except for those of volumes that cannot do without them.
    pub(crate) fn exclusion(&self) -> Exclusion {
        Exclusion { drive: self.number, reason: ROLLED_BACK.to_owned(), kind: ExclusionKind::Failed }
    }
}

/// The fault of a drive that two drive records claim.
pub(crate) const SHARED: &str =
    "was used as two different drives of the pool and is valid as neither; `pool replace` takes it back";

/// The reason for leaving out such a drive.
pub(crate) const ROLLED_BACK: &str = "it was put back from an older copy, so its contents are out of date";

/// Leaves out drives that were restored from an older copy. Where nothing could be read without
/// them, the restored drives outvote the rest, and the user has to decide which side counts.
pub(crate) fn judge_rolled_back(
    choice: &mut Choice,
    found: &[Found],
    options: &PoolOptions,
) -> Result<Vec<RolledBack>, PoolError> {
    let of_worth = |choice: &Choice, wanted: &[Worth]| -> BTreeSet<u32> {
        let drives = choice.drives.iter().filter(|(_, _, worth)| wanted.contains(worth));
        drives.map(|(_, number, _)| *number).collect()
    };
    let rolled_back = of_worth(choice, &[Worth::RolledBack]);
    if rolled_back.is_empty() {
        return Ok(Vec::new());
    }
    let counting = of_worth(choice, &[Worth::Current, Worth::Returning]);
    let volumes = &choice.manifest.volumes;
    let could_be_read =
        |with: &dyn Fn(u32) -> bool| volumes.iter().any(|volume| volume.survives(|n| !with(n)));
    let is_outvoted = !volumes.is_empty()
        && !could_be_read(&|number| counting.contains(&number))
        && could_be_read(&|number| counting.contains(&number) || rolled_back.contains(&number));
    if is_outvoted && !options.take_rolled_back {
        let generation = |number: u32| {
            let (index, ..) = choice.drives.iter().find(|(_, other, _)| *other == number)?;
            let found = found.iter().find(|found| found.index == *index)?;
            Some(format!("{} (at generation {})", found.label, found.superblock.manifest.generation))
        };
        return Err(PoolError::RolledBack {
            drives: rolled_back.iter().filter_map(|number| generation(*number)).collect(),
            generation: choice.manifest.generation,
        });
    }
    let mut without = choice.manifest.clone();
    let as_judged = |number: &u32| RolledBack { number: *number, is_taken: false };
    let mut judged: Vec<RolledBack> = rolled_back.iter().map(as_judged).collect();
    without.exclude(&judged.iter().map(RolledBack::exclusion).collect::<Vec<_>>());
    for drive in &mut judged {
        drive.is_taken = options.take_rolled_back && without.is_needed(drive.number);
        let (index, _, worth) = choice
            .drives
            .iter_mut()
            .find(|(_, number, _)| *number == drive.number)
            .expect("it was found among these");
        *worth = if drive.is_taken { Worth::Returning } else { Worth::Stale };
        // Its state of other volumes must not be used.
        choice.misled.push(*index);
    }
    Ok(judged)
}
