//! Settings that the pool records: limits of background work, and the threshold for low space.

use crate::error::PoolError;
use crate::{Pool, REBUILD_LATENCY_MS};

impl Pool {
    /// Sets and records the share of each drive's time that rebuild and scrub get under client
    /// load, 1 to 100 percent.
    pub async fn set_rebuild_priority(&self, percent: u32) -> Result<(), PoolError> {
        check_priority(percent)?;
        self.0.commit(None, move |manifest| manifest.rebuild_priority_percent = percent).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// Sets and records the longest delay that rebuild and scrub may add to a client's wait for a
    /// drive, 1 to 10,000 ms; `None`: no bound. With a bound they run in slices of that length.
    pub async fn set_rebuild_latency(&self, bound_ms: Option<u32>) -> Result<(), PoolError> {
        if let Some(ms) = bound_ms.filter(|ms| !REBUILD_LATENCY_MS.contains(ms)) {
            return Err(PoolError::BadSetting(format!(
                "rebuild latency must be {} to {} ms, not {ms}",
                REBUILD_LATENCY_MS.start(),
                REBUILD_LATENCY_MS.end()
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.rebuild_latency_ms = bound_ms).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// Longest delay that rebuild and scrub may add to a client's wait for a drive, ms; `None`: no
    /// bound.
    pub fn rebuild_latency(&self) -> Option<u32> {
        self.0.manifest.borrow().settings.rebuild_latency_ms
    }

    /// Share of each drive's time that rebuild and scrub get under client load, percent.
    pub fn rebuild_priority(&self) -> u32 {
        self.0.manifest.borrow().rebuild_priority_percent
    }

    /// Sets and records the used percentage, 1 to 100, from which a pool with thin volumes counts
    /// as short of space.
    pub async fn set_space_warning(&self, percent: u32) -> Result<(), PoolError> {
        if !(1..=100).contains(&percent) {
            return Err(PoolError::BadSetting(format!(
                "space warning must be 1 to 100 percent, not {percent}"
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.space_warning_percent = percent).await
    }

    /// Used percentage from which the pool counts as short of space.
    pub fn space_warning(&self) -> u32 {
        self.0.manifest.borrow().settings.space_warning_percent
    }
}

pub(crate) fn check_priority(percent: u32) -> Result<(), PoolError> {
    if (1..=100).contains(&percent) {
        return Ok(());
    }
    Err(PoolError::BadSetting(format!("rebuild priority must be 1 to 100 percent, not {percent}")))
}
