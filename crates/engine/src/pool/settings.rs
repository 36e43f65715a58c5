//! Settings that the pool keeps and that nothing else is decided by: from when on space counts as
//! short.

use crate::pool::error::PoolError;
use crate::pool::{Inner, Pool};

impl Pool {
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
        self.0.space_warning_percent()
    }
}

impl Inner {
    pub(in crate::pool) fn space_warning_percent(&self) -> u32 {
        self.manifest.borrow().settings.space_warning_percent
    }
}
