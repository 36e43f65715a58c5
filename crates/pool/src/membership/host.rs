//! The host that uses a pool, as recorded in the manifest, so that a second host that can reach the
//! drives does not take the pool over. An exported pool belongs to no host; the record stays, to
//! show where the pool came from.
//!
//! Faults expected: two hosts that reach the same drives, a host that crashed while using the pool,
//! wrong clocks (the time only informs), invalid names.

use crate::error::PoolError;
use crate::manifest::events::EventKind;
use crate::manifest::format::{Manifest, check_name};
use crate::manifest::host_use::HostUse;
use crate::superblock::commit::Change;
use crate::{Inner, OpenMode, Pool, PoolOptions};
use stripewise_array::mutation::{self, Mutation};

/// Shortest interval between updates of the time of last use: its section of the manifest also
/// holds much else.
const TIME_STEP_S: u64 = 3600;

impl Pool {
    /// The host that uses the pool, or used it last; `None` if none was ever recorded.
    pub fn host(&self) -> Option<HostUse> {
        self.0.manifest.borrow().host.clone()
    }

    /// Records that the host releases the pool, so that any other may take it. The caller closes
    /// the pool next ([`Self::close`]).
    pub async fn release(&self) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        if inner.options.host.is_none() {
            return Ok(());
        }
        inner.lifecycle.set_released(true);
        inner.news.event(EventKind::Pool, "the pool was exported");
        let released = inner.commit(None, |_| ()).await;
        if released.is_err() {
            inner.lifecycle.set_released(false);
        }
        released
    }

    /// Renames the pool; the new name is recorded when this returns.
    pub async fn rename(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        check_name(name).map_err(|why| PoolError::BadName { what: "pool", name: name.to_owned(), why })?;
        let _alone = inner.administer().await?;
        let (name, time_unix_ms) = (name.to_owned(), inner.news.unix_ms());
        inner
            .try_commit(None, move |manifest| {
                if manifest.name == name {
                    return Ok(Change::Nothing(()));
                }
                let text = format!("pool {} was renamed to {name}", manifest.name);
                manifest.events.push(time_unix_ms, EventKind::Pool, &text);
                manifest.name = name;
                Ok(Change::Commit(()))
            })
            .await
    }
}

/// Refuses to open for writing a pool that another host uses.
pub(crate) fn check_host(
    manifest: &Manifest,
    mode: OpenMode,
    options: &PoolOptions,
) -> Result<(), PoolError> {
    match (&manifest.host, &options.host) {
        (Some(had), Some(host))
            if mode == OpenMode::ReadWrite
                && !options.take_from_host
                && had.is_other(host)
                && !mutation::is_chosen(Mutation::OtherHostPassedOver) =>
        {
            Err(PoolError::OtherHost { pool: manifest.name.clone(), host: had.clone() })
        }
        _ => Ok(()),
    }
}

impl Inner {
    /// True if the record names another host than this one, or none.
    pub(crate) fn must_claim(&self) -> bool {
        let Some(host) = &self.options.host else { return false };
        let manifest = self.manifest.borrow();
        manifest.host.as_ref().is_none_or(|had| had.exported || had.id != host.id_text())
    }

    /// Puts this host into a manifest that is about to be written. `opens`: the pool is being
    /// opened, and the time is updated however recent it is.
    pub(crate) fn stamp_host(&self, manifest: &mut Manifest, opens: bool) {
        let Some(host) = &self.options.host else { return };
        let (unix_s, exported) = (self.news.unix_ms() / 1000, self.lifecycle.is_released());
        let now = HostUse { id: host.id_text(), name: host.name().to_owned(), unix_s, exported };
        let is_recent = |had: &HostUse| {
            let same = HostUse { unix_s, ..had.clone() } == now;
            same && !opens && had.unix_s <= unix_s && unix_s - had.unix_s < TIME_STEP_S
        };
        if !manifest.host.as_ref().is_some_and(is_recent) {
            manifest.host = Some(now);
        }
    }
}
