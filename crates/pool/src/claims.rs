//! Taking a pool's drives for a new session, where another one may have them.
//!
//! Drives that this machine has locked are taken at once: no other process can have them, and
//! another host is named by the record. Drives on the network know no lock, and hosts may go by one
//! identity (copied machines, containers, several lists of pools). So where most drives are such,
//! and the pool was not closed, they are watched for a moment: a session that is alive leaves signs
//! on them (`session.rs`). Taken by force, they are claimed first, without a change of the record:
//! what the older session records until it finds that out is read afterwards.
//!
//! Expected faults: sessions that are alive, dead, or asleep, and such as begin at the same moment.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Context, Drive, DriveKind};

use crate::PoolOptions;
use crate::error::PoolError;
use crate::gate_state::LIFE_NS;
use crate::manifest::ids::Id;
use crate::session::{END_NS, END_UNSHARED_NS};
use crate::superblock::assemble::{Choice, Found, Worth};
use crate::superblock::entries::{Header, NO_SESSION};
use crate::superblock::sessions::claim;
use crate::superblock::writer::features;

/// Time for which drives are watched for signs of another session.
const WATCH_NS: u64 = 3 * LIFE_NS;

/// Precaution before drives are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approach {
    AtOnce,
    /// Watch for signs of life.
    Watch,
    /// Claim them, and wait `wait_ns` for the other session to end.
    TakeOver {
        wait_ns: u64,
    },
}

impl Approach {
    pub(crate) fn to(
        choice: &Choice,
        found: &[Found],
        drives: &[Rc<dyn Drive>],
        options: &PoolOptions,
    ) -> Self {
        let Some(host) = &options.host else { return Self::AtOnce };
        let taken = taken_part(choice, found);
        let is_over = |session: Id| session == NO_SESSION || Some(session) == options.ended_session;
        if taken.iter().all(|drive| is_over(drive.superblock.session)) {
            return Self::AtOnce;
        }
        let on_network = |drive: &&&Found| drives[drive.index].info().kind == DriveKind::Network;
        let is_shared = 2 * taken.iter().filter(on_network).count() >= taken.len();
        let is_others = choice.manifest.host.as_ref().is_some_and(|had| had.is_other(host));
        match (options.take_from_host, is_shared) {
            (true, true) => Self::TakeOver { wait_ns: END_NS },
            (true, false) if is_others => Self::TakeOver { wait_ns: END_UNSHARED_NS },
            (false, true) => Self::Watch,
            _ => Self::AtOnce,
        }
    }

    /// Does it. The drives are to be read again then.
    pub(crate) async fn execute(
        self,
        context: &Context,
        choice: &Choice,
        found: &[Found],
        drives: &[Rc<dyn Drive>],
        session: (Id, &[(usize, usize)]),
    ) -> Result<(), PoolError> {
        match self {
            Self::AtOnce => {}
            Self::Watch => context.sleep_ns(WATCH_NS).await,
            Self::TakeOver { wait_ns } => {
                let (new, slots) = session;
                let taken = taken_part(choice, found);
                let claims = taken.iter().filter_map(|drive| {
                    let (_, slot) = slots.iter().find(|(index, _)| *index == drive.index)?;
                    let record = choice.manifest.drive_by_id(drive.superblock.drive_id)?;
                    let header = Header {
                        pool_id: drive.superblock.pool_id,
                        drive_id: drive.superblock.drive_id,
                        capacity_bytes: record.capacity_bytes,
                    };
                    let (drive, features) = (&drives[drive.index], features(&choice.manifest));
                    Some(async move { claim(&**drive, &header, *slot, features, new).await })
                });
                let claimed = join_all(claims).await;
                let count = claimed.iter().filter(|claimed| claimed.is_ok()).count();
                if let Some(Err(error)) = claimed.into_iter().find(Result::is_err)
                    && 2 * count <= taken.len()
                {
                    return Err(error.into());
                }
                context.sleep_ns(wait_ns).await;
            }
        }
        Ok(())
    }

    /// True if the contents read before and afterwards show that another session has the drives.
    pub(crate) fn is_disproved(self, before: &[Found], now: &[Found], session: Id) -> bool {
        let earlier = |drive: &Found| {
            before.iter().find(|other| other.superblock.drive_id == drive.superblock.drive_id).cloned()
        };
        match self {
            Self::AtOnce => false,
            Self::Watch => now.iter().any(|drive| {
                earlier(drive).is_some_and(|earlier| {
                    let state = |found: &Found| {
                        (found.superblock.manifest.generation, found.superblock.sessions.clone())
                    };
                    state(drive) != state(&earlier)
                })
            }),
            Self::TakeOver { .. } => {
                let is_ours = |drive: &&Found| drive.superblock.sessions.contains(&session);
                2 * now.iter().filter(is_ours).count() < now.len()
            }
        }
    }
}

/// The drives whose sessions matter.
fn taken_part<'a>(choice: &Choice, found: &'a [Found]) -> Vec<&'a Found> {
    let takes_part = |drive: &&Found| {
        let worth =
            choice.drives.iter().find(|(index, ..)| *index == drive.index).map(|(_, _, worth)| *worth);
        matches!(worth, Some(Worth::Current | Worth::Returning))
    };
    found.iter().filter(takes_part).collect()
}
