//! The keeper of a log's roots in a pool: the slots on its own members, and the pool's record for
//! the members that miss writes.
//!
//! The record decides. The slots name members that missed a commit of the roots, in case of a power
//! cut before the pool has recorded it; the next opening has it recorded then. A member that was
//! rebuilt has the roots first and is recorded as current after that: from the moment at which the
//! record counts on it, it has what recovery starts from.
//!
//! Faults expected: a member that fails while it is taken in, or whose place is given to another.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use stripewise_array::rows::{SlotPlace, SlotState};
use stripewise_layout::MemberSet;
use stripewise_log::{Columns, LocalFuture, LogError, RootStore, SlotRoots};

use crate::Inner;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::superblock::commit::Change;

/// Reason of an exclusion, for people.
const REASON: &str = "a log volume could not write to it";

/// See the module.
pub(crate) struct PoolRoots {
    pool: Weak<Inner>,
    part: Id,
    columns: Rc<Columns>,
    pub slots: Rc<SlotRoots>,
    /// Member that is being taken in: it counts like those that the record has as current.
    including: Cell<Option<usize>>,
}

impl PoolRoots {
    /// The roots of a part's log, in these slots of these columns.
    pub(crate) fn new(pool: Weak<Inner>, part: Id, columns: Rc<Columns>, slots: Rc<SlotRoots>) -> Self {
        Self { pool, part, columns, slots, including: Cell::new(None) }
    }

    /// Has the pool record that these members miss writes. Those of which it knows that they lack
    /// something, since they are being rebuilt, are no worse than before.
    pub(crate) async fn record(&self, missing: MemberSet) -> Result<(), LogError> {
        let pool = self.pool.upgrade().ok_or(LogError::Closed)?;
        let lacking = {
            let manifest = pool.manifest.borrow();
            let part = manifest.parts().find(|part| part.id == self.part);
            part.map_or(MemberSet::EMPTY, PartRecord::lacking_columns)
        };
        let counts = |column: &usize| !lacking.contains(*column) || self.including.get() == Some(*column);
        for member in missing.iter().filter(counts).filter_map(|column| self.columns.member(column)) {
            let reason = member.failed();
            let recorded = pool.exclude_member(member.label(), reason.as_deref().unwrap_or(REASON)).await;
            recorded.map_err(|error| LogError::Roots(error.to_string()))?;
        }
        Ok(())
    }

    async fn take_in(&self, member: usize) -> Result<(), LogError> {
        let pool = self.pool.upgrade().ok_or(LogError::Closed)?;
        let replaced = LogError::Replaced { member };
        let (place, filled_since) = pool.filled_place(self.part, member).ok_or(replaced.clone())?;
        self.slots.include(member).await?;
        self.record(self.slots.missing()).await?;
        let part = self.part;
        let recorded = pool.try_commit(None, move |manifest| {
            let is_online = manifest.is_online(place.drive);
            let Some(part) = manifest.part_mut(part).filter(|_| is_online) else {
                return Ok(Change::Nothing(()));
            };
            let is_same = part.rows.place(0, member) == Some(place)
                && part.log.is_some_and(|log| log.filled_since == filled_since);
            if !is_same {
                return Ok(Change::Nothing(()));
            }
            part.set_column(member, SlotState::Active);
            Ok(Change::Commit(()))
        });
        recorded.await.map_err(|error| LogError::Roots(error.to_string()))?;
        // The drive may have failed during the commit.
        let manifest = pool.manifest.borrow();
        let part = manifest.parts().find(|part| part.id == self.part);
        let is_lacking = part.is_none_or(|part| part.lacking_columns().contains(member));
        if is_lacking { Err(replaced) } else { Ok(()) }
    }
}

impl Inner {
    /// The place of a log's column that is being rebuilt, and since when it has it.
    pub(crate) fn filled_place(&self, part: Id, column: usize) -> Option<(SlotPlace, u64)> {
        let manifest = self.manifest.borrow();
        let part = manifest.parts().find(|other| other.id == part)?;
        let place = part.rows.place(0, column).filter(|place| place.state == SlotState::Rebuilding)?;
        Some((place, part.log?.filled_since))
    }
}

impl RootStore for PoolRoots {
    fn room_bytes(&self) -> u64 {
        self.slots.room_bytes()
    }

    fn commit(&self, roots: Vec<u8>) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            self.slots.commit(roots).await?;
            self.record(self.slots.missing()).await
        })
    }

    fn exclude(&self, missing: MemberSet) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            self.record(missing).await?;
            self.slots.leave_out(missing);
            Ok(())
        })
    }

    fn include(&self, member: usize) -> LocalFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            self.including.set(Some(member));
            let included = self.take_in(member).await;
            if included.is_err() {
                self.slots.leave_out([member].into_iter().collect());
            }
            self.including.set(None);
            included
        })
    }
}
