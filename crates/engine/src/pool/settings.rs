//! Settings that the pool keeps: what background work may take, from when on space counts as short.

use crate::pool::error::PoolError;
use crate::pool::{Pool, REBUILD_LATENCY_MS};

impl Pool {
    /// Sets the share of each drive's time that rebuild and scrub get while there is other load, 1
    /// to 100 percent, and records it.
    pub async fn set_rebuild_priority(&self, percent: u32) -> Result<(), PoolError> {
        check_priority(percent)?;
        self.0.commit(None, move |manifest| manifest.rebuild_priority_percent = percent).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// Sets how much rebuild and scrub add at most to what a client's request waits for a drive, 1
    /// to 10,000 ms, and records it; `None`: no bound. They go in slices of that length then.
    pub async fn set_rebuild_latency(&self, bound_ms: Option<u32>) -> Result<(), PoolError> {
        if let Some(ms) = bound_ms.filter(|ms| !REBUILD_LATENCY_MS.contains(ms)) {
            return Err(PoolError::BadSetting(format!(
                "a rebuild latency is {} to {} ms, not {ms}",
                REBUILD_LATENCY_MS.start(),
                REBUILD_LATENCY_MS.end()
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.rebuild_latency_ms = bound_ms).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// What rebuild and scrub add at most to what a client's request waits for a drive, ms; `None`:
    /// no bound.
    pub fn rebuild_latency(&self) -> Option<u32> {
        self.0.manifest.borrow().settings.rebuild_latency_ms
    }

    /// Share of each drive's time that rebuild and scrub get while there is other load, percent.
    pub fn rebuild_priority(&self) -> u32 {
        self.0.manifest.borrow().rebuild_priority_percent
    }

    /// Sets from how many percent of the space on a pool with thin volumes counts as short of it, 1
    /// to 100, and records it.
    pub async fn set_space_warning(&self, percent: u32) -> Result<(), PoolError> {
        if !(1..=100).contains(&percent) {
            return Err(PoolError::BadSetting(format!(
                "a space warning is a percentage from 1 to 100, not {percent}"
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.space_warning_percent = percent).await
    }

    /// From how many percent on space counts as short.
    pub fn space_warning(&self) -> u32 {
        self.0.manifest.borrow().settings.space_warning_percent
    }
}

pub(crate) fn check_priority(percent: u32) -> Result<(), PoolError> {
    if (1..=100).contains(&percent) {
        return Ok(());
    }
    Err(PoolError::BadSetting(format!("a rebuild priority is a percentage from 1 to 100, not {percent}")))
}
