//! The keeper of a log's roots in a pool: the slots on its own members, and the pool's record for
//! the members that miss writes.
//!
//! The record decides. The slots name members that missed a commit of the roots, in case of a power
//! cut before the pool has recorded it; the next opening has it recorded then.

use std::rc::{Rc, Weak};

use stripewise_array::MemberLabel;
use stripewise_layout::MemberSet;
use stripewise_log::{LocalFuture, LogError, RootStore, SlotRoots};

use crate::Inner;

/// Reason of an exclusion, for people.
const REASON: &str = "a log volume could not write to it";

/// See the module.
pub(crate) struct PoolRoots {
    pub pool: Weak<Inner>,
    pub slots: Rc<SlotRoots>,
    /// The drive of each column; `None` for one that is not at hand.
    pub labels: Vec<Option<MemberLabel>>,
}

impl PoolRoots {
    /// Has the pool record that these members miss writes.
    pub(crate) async fn record(&self, missing: MemberSet) -> Result<(), LogError> {
        for label in missing.iter().filter_map(|column| self.labels[column].as_ref()) {
            let pool = self.pool.upgrade().ok_or(LogError::Closed)?;
            let reason = pool.drives.labelled(label).and_then(|(_, member)| member.failed());
            let recorded = pool.exclude_member(label, reason.as_deref().unwrap_or(REASON)).await;
            recorded.map_err(|error| LogError::Roots(error.to_string()))?;
        }
        Ok(())
    }
}

impl RootStore for PoolRoots {
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
        self.slots.include(member)
    }
}
