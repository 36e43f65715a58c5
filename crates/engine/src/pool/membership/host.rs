//! The host that has a pool: recorded in the manifest, so that a second one does not take the pool
//! for its own because it can reach the drives. A pool that was exported belongs to no host; the
//! record stays, to say where it came from.
//!
//! Faults expected: two hosts that reach the same drives, a host that died with the pool, clocks
//! that are wrong (the time only informs), names that cannot be names.

use serde::{Deserialize, Serialize};

use crate::pool::error::PoolError;
use crate::pool::manifest::commit::Change;
use crate::pool::manifest::events::EventKind;
use crate::pool::manifest::format::{Manifest, check_name};
use crate::pool::{Inner, OpenMode, Pool, PoolOptions};

/// Longest name of a host, bytes.
const MAX_NAME_BYTES: usize = 64;
/// The time of the last use is rewritten at most so often: it is in the same section as much else.
const TIME_STEP_S: u64 = 3600;

/// A host, as a pool records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    id: u64,
    name: [u8; MAX_NAME_BYTES],
    name_bytes: usize,
}

impl Host {
    /// `id` tells hosts apart, `name` is for people; what of it is no printable text is replaced,
    /// and it is cut after 64 bytes.
    pub fn new(id: u64, name: &str) -> Self {
        let (mut bytes, mut length) = ([0; MAX_NAME_BYTES], 0);
        for c in name.chars().map(|c| if c.is_control() { '?' } else { c }) {
            if length + c.len_utf8() > MAX_NAME_BYTES {
                break;
            }
            length += c.encode_utf8(&mut bytes[length..]).len();
        }
        Self { id, name: bytes, name_bytes: length }
    }

    fn name(&self) -> &str {
        std::str::from_utf8(&self.name[..self.name_bytes]).unwrap_or_default()
    }

    fn id_text(&self) -> String {
        format!("{:016x}", self.id)
    }
}

/// Which host has a pool, or had it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUse {
    /// Its identity: 16 hexadecimal digits.
    pub id: String,
    /// What it calls itself.
    pub name: String,
    /// When it used the pool last, seconds since 1970, to the hour.
    pub unix_s: u64,
    /// The pool was exported: no host has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exported: bool,
}

impl HostUse {
    /// Whether another host than this one has the pool.
    pub fn is_other(&self, host: &Host) -> bool {
        !self.exported && self.id != host.id_text()
    }

    /// Whether it makes sense, as read from a drive.
    pub(in crate::pool) fn check(&self) -> Result<(), String> {
        let is_id = self.id.len() == 16 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_name = self.name.len() <= MAX_NAME_BYTES && !self.name.contains(char::is_control);
        if is_id && is_name { Ok(()) } else { Err("the host is impossible".to_owned()) }
    }
}

impl Pool {
    /// The host that has the pool, or had it last; `None` where none was ever recorded.
    pub fn host(&self) -> Option<HostUse> {
        self.0.manifest.borrow().host.clone()
    }

    /// Records that this host lets the pool go, so that any other may take it. To be followed by
    /// [`Self::close`].
    pub async fn release(&self) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        if inner.options.host.is_none() {
            return Ok(());
        }
        inner.released.set(true);
        inner.event(EventKind::Pool, "the pool was exported");
        let released = inner.commit(None, |_| ()).await;
        if released.is_err() {
            inner.released.set(false);
        }
        released
    }

    /// Gives the pool another name, recorded when this ends.
    pub async fn rename(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        check_name(name).map_err(|why| PoolError::BadName { what: "pool", name: name.to_owned(), why })?;
        let _alone = inner.administer().await?;
        let (name, time_unix_ms) = (name.to_owned(), inner.unix_ms());
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

/// Refuses to open a pool for writing that another host has.
pub(in crate::pool) fn check_host(
    manifest: &Manifest,
    mode: OpenMode,
    options: &PoolOptions,
) -> Result<(), PoolError> {
    match (&manifest.host, &options.host) {
        (Some(had), Some(host))
            if mode == OpenMode::ReadWrite && !options.take_from_host && had.is_other(host) =>
        {
            Err(PoolError::OtherHost { pool: manifest.name.clone(), host: had.clone() })
        }
        _ => Ok(()),
    }
}

impl Inner {
    /// Whether the record names another host than this one, or none.
    pub(in crate::pool) fn must_claim(&self) -> bool {
        let Some(host) = &self.options.host else { return false };
        let manifest = self.manifest.borrow();
        manifest.host.as_ref().is_none_or(|had| had.exported || had.id != host.id_text())
    }

    /// Puts this host into a manifest that is about to be written. `opens`: with the time, however
    /// short ago it was noted.
    pub(in crate::pool) fn stamp_host(&self, manifest: &mut Manifest, opens: bool) {
        let Some(host) = &self.options.host else { return };
        let (unix_s, exported) = (self.unix_ms() / 1000, self.released.get());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_name_is_cut_to_what_the_record_takes() {
        let name = |text: &str| Host::new(7, text).name().to_owned();
        assert_eq!(name("alpha\u{1b}[2J"), "alpha?[2J");
        assert_eq!(name(&"ä".repeat(40)), "ä".repeat(32));
        let of = |host: &Host, exported| HostUse {
            id: host.id_text(),
            name: host.name().to_owned(),
            unix_s: 1,
            exported,
        };
        let (one, two) = (Host::new(1, "one"), Host::new(2, "two"));
        assert_eq!(of(&one, false).check(), Ok(()));
        assert!(of(&one, false).is_other(&two) && !of(&one, false).is_other(&one));
        assert!(!of(&one, true).is_other(&two));
        let bad =
            |id: &str, name: &str| HostUse { id: id.into(), name: name.into(), unix_s: 0, exported: false };
        assert!(bad("12", "x").check().is_err());
        assert!(bad("0000000000000001", "x\u{1b}").check().is_err());
    }
}
