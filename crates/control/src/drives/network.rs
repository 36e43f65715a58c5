//! Drives of pools that are exports of NBD servers, on other machines perhaps: opening them, and
//! fetching back those that went.
//!
//! Expected faults: servers that are not there (the drive is missing, as a file would be), servers
//! that hang (waited for as long as the URI allows, all at the same time), servers that are there
//! and of no use (TLS, read-only, blocks: missing, too, with a
//! message to the process that opens the pool).
//!
//! While a process has a pool open for long it tries to reach drives that went, after 1 s and then
//! after longer and longer, up to every 30 s. What comes back is given a moment before it is used:
//! a server that hung may still execute requests that it had received. Where that is known to be
//! so, opening it takes until each such request is as old as the URI allows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Context, Drive};
use stripewise_export::nbd::client::{ConnectError, ConnectFault, NbdUri, NetworkDrive};
use stripewise_pool::{DriveId, DriveState, DriveStatus, Pool};
use stripewise_runtime::{RealExecutor, is_out_of_means};

use crate::drives::candidates::noted_export;
use crate::drives::opened::OpenedDrive;
use crate::drives::own;
use crate::drives::trouble::Trouble;
use crate::environment::Environment;
use crate::failure::{Failure, chain};
use crate::registry::KnownPool;

const SECOND_NS: u64 = 1_000_000_000;
/// Between two attempts to reach a drive that went.
const LONGEST_PAUSE_NS: u64 = 30 * SECOND_NS;
/// From reaching it to using it.
const MOMENT_NS: u64 = 2 * SECOND_NS;
/// A drive that stayed this long is retried at once when it goes the next time.
const STEADY_NS: u64 = 60 * SECOND_NS;

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let hint = error.why.hint();
        Failure::new(format!("cannot use {}", chain(&error))).hint(hint)
    }
}

/// Opens an export.
pub async fn open(
    executor: &RealExecutor,
    uri: &NbdUri,
    read_only: bool,
) -> Result<OpenedDrive, ConnectError> {
    let drive = NetworkDrive::open(&executor.context(), &executor.network(), uri, read_only).await?;
    Ok(OpenedDrive::export(uri.address.clone(), drive))
}

/// Opens an export that is a drive of a pool: one that is not there now, or of no use, is missing.
pub(crate) async fn open_known(
    executor: &RealExecutor,
    uri: &NbdUri,
    read_only: bool,
) -> Result<OpenedDrive, Trouble> {
    open(executor, uri, read_only).await.map_err(|error| match &error.why {
        ConnectFault::Unreachable { error: why } if is_out_of_means(why) => Trouble::Stop(error.into()),
        _ => Trouble::Missing(error.into()),
    })
}

/// A pool's exports, opened or with the reason, by place.
pub type Reached = HashMap<PathBuf, Result<OpenedDrive, Trouble>>;

/// Opens all exports among a pool's drives at the same time, so that several that are silent cost
/// no more than one.
pub async fn open_all(executor: &RealExecutor, known: &KnownPool, read_only: bool) -> Reached {
    let mut uris: HashMap<PathBuf, NbdUri> = HashMap::new();
    for drive in &known.drives {
        let uri = noted_export(&drive.path);
        let is_new = |uri: &NbdUri| uris.values().all(|other| other.address != uri.address);
        if let Some(uri) = uri.filter(is_new) {
            uris.insert(drive.path.clone(), uri);
        }
    }
    let opening = uris.into_iter().map(|(path, uri)| async move {
        let opened = open_known(executor, &uri, read_only).await;
        (path, opened)
    });
    join_all(opening).await.into_iter().collect()
}

/// Reconnects lost exports.
#[derive(Default)]
pub struct Returning {
    attempts: HashMap<DriveId, Attempt>,
}

struct Attempt {
    in_flight: Rc<RefCell<bool>>,
    next_ns: u64,
    pause_ns: u64,
    seen_missing_ns: u64,
}

impl Returning {
    /// The exports that are to be tried now: missing, and not tried lately. `now_ns` on any clock.
    pub fn due(&mut self, drives: &[DriveStatus], now_ns: u64) -> Vec<(DriveId, NbdUri, Rc<RefCell<bool>>)> {
        let mut due = Vec::new();
        for drive in drives.iter().filter(|drive| drive.state == DriveState::Missing) {
            let Some(uri) = noted_export(Path::new(&drive.path)) else { continue };
            let attempt = self.attempts.entry(drive.id).or_insert_with(|| Attempt {
                in_flight: Rc::default(),
                next_ns: now_ns + SECOND_NS,
                pause_ns: SECOND_NS,
                seen_missing_ns: now_ns,
            });
            if now_ns.saturating_sub(attempt.seen_missing_ns) > STEADY_NS {
                (attempt.next_ns, attempt.pause_ns) = (now_ns + SECOND_NS, SECOND_NS);
            }
            attempt.seen_missing_ns = now_ns;
            if *attempt.in_flight.borrow() || now_ns < attempt.next_ns {
                continue;
            }
            attempt.pause_ns = (2 * attempt.pause_ns).min(LONGEST_PAUSE_NS);
            attempt.next_ns = now_ns + attempt.pause_ns;
            due.push((drive.id, uri, attempt.in_flight.clone()));
        }
        due
    }
}

/// Waits, before a pool that was closed with requests in flight is opened again, until its servers
/// have executed these: such a write must not overwrite a newer one. Pools
/// without exports need not wait.
pub(crate) async fn wait_for_late_writes(context: &Context, pool: &KnownPool) {
    if pool.drives.iter().any(|drive| noted_export(&drive.path).is_some()) {
        context.sleep_ns(MOMENT_NS).await;
    }
}

/// Tries to have a drive back. `keep` takes it over before it is used, in the place of the one that
/// was lost.
pub async fn fetch(
    environment: &Environment,
    executor: &RealExecutor,
    pool: &Pool,
    id: DriveId,
    uri: &NbdUri,
    keep: impl FnOnce(OpenedDrive),
) {
    let opened = match open(executor, uri, false).await {
        Ok(opened) => opened,
        // Not there is nothing new.
        Err(error) if error.why.is_absence() => return,
        Err(error) => {
            environment.warning(format!("{} is not taken back: {}", uri, error.why));
            return;
        }
    };
    if opened.is_on_own_volume(environment) {
        environment.warning(format!("{uri} is not taken back: {}", own::WHY));
        return;
    }
    executor.context().sleep_ns(MOMENT_NS).await;
    let is_lost = opened.network.as_ref().is_none_or(|network| network.lost().is_some());
    let is_missing = |drive: &DriveStatus| drive.id == id && drive.state == DriveState::Missing;
    if is_lost || !pool.status().drives.iter().any(is_missing) {
        return;
    }
    let drive: Rc<dyn Drive> = opened.drive.clone();
    keep(opened);
    match pool.online(id, Some(drive)).await {
        Ok(()) => environment.note(format!("{uri} is back: changes made since are copied to it")),
        Err(error) => {
            environment.warning(format!("{uri} is there again and not taken back: {}", chain(&error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(path: &str, state: DriveState) -> DriveStatus {
        DriveStatus {
            id: "00000000-0000-4000-8000-000000000001".parse().expect("an identity"),
            path: path.to_owned(),
            role: stripewise_pool::Role::Data,
            state,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            capacity_bytes: 0,
            usable_bytes: 0,
            allocated_bytes: 0,
            reason: None,
            successor: None,
        }
    }

    #[test]
    fn missing_network_drives_are_retried_with_backoff() {
        let mut returning = Returning::default();
        let gone = [status("nbd://host/x", DriveState::Missing)];
        let mut tried = Vec::new();
        for second in 0..200 {
            tried.extend((!returning.due(&gone, second * SECOND_NS).is_empty()).then_some(second));
        }
        assert_eq!(tried, [1, 3, 7, 15, 31, 61, 91, 121, 151, 181]);
        // After a long time without trouble it starts over.
        let later = 1000 * SECOND_NS;
        assert!(returning.due(&gone, later).is_empty());
        let due = returning.due(&gone, later + SECOND_NS);
        assert_eq!(due.len(), 1);
        *due[0].2.borrow_mut() = true;
        for second in 2..100 {
            assert!(returning.due(&gone, later + second * SECOND_NS).is_empty(), "one attempt at a time");
        }
    }

    #[test]
    fn only_exports_that_are_missing_are_tried() {
        let mut returning = Returning::default();
        for other in [
            status("/d/0", DriveState::Missing),
            status("tank/a", DriveState::Missing),
            status("nbd://host/x", DriveState::Offline),
            status("nbd://host/x", DriveState::Failed),
            status("nbd://host/x", DriveState::Online),
        ] {
            for second in 0..10 {
                let drives = std::slice::from_ref(&other);
                assert!(returning.due(drives, second * SECOND_NS).is_empty(), "{other:?}");
            }
        }
    }
}
