//! A pool that this process has open: what all sessions of it share.
//!
//! Expected faults: drives that vanish, something else in their place, a file system below that is
//! full.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_engine::pool::{DriveStatus, Pool};
use stripewise_runtime::{Holder, RealExecutor};

use crate::access::Access;
use crate::drives::misplaced::{Holds, Misplaced};
use crate::drives::opened::OpenedDrive;
use crate::drives::space_below::note_full_below;
use crate::failure::Result;
use crate::pools::standstill::advise;
use crate::registry::{KnownDrive, KnownPool, PoolLock, Registry};
use crate::report::PoolReport;

/// A pool that this process has open.
pub(super) struct OpenPool {
    pub(super) registry: Registry,
    pub(super) name: String,
    pub(super) id: String,
    /// As it is on the list.
    pub(super) known: RefCell<KnownPool>,
    pub(super) access: Access,
    pub(super) opened_unix_ms: u64,
    /// All that were opened, also those that the pool has no use for.
    pub(super) opened: RefCell<Vec<OpenedDrive>>,
    /// Places where drives of the pool should be and something else is.
    pub(super) misplaced: Vec<Misplaced>,
    /// Another process has drives of the pool, which goes by another list of pools. Only where it
    /// is looked at.
    pub(super) used_by: Option<Holder>,
    pub(super) executor: Rc<RealExecutor>,
    /// Shared with those who bring drives.
    pub(super) bringing: Rc<()>,
    /// Kept open by a daemon.
    pub(super) stays: Cell<bool>,
    /// Whether lost exports are being fetched back already: commands begin jobs of pools that are
    /// lent to them, too.
    pub(super) fetches_back: Cell<bool>,
    pub(super) _lock: PoolLock,
}

impl OpenPool {
    /// Lets go of drives that were opened and are none of the pool's (any more): others may want
    /// them. While more drives are being brought this is left to the task that brings them.
    pub(super) fn let_go_of_strangers(&self, pool: &Pool) {
        if Rc::strong_count(&self.bringing) > 1 {
            return;
        }
        let status = pool.status();
        let is_ours = |opened: &OpenedDrive| {
            let label = &opened.bare.info().label;
            status.drives.iter().any(|drive| **label == *drive.path)
        };
        self.opened.borrow_mut().retain(is_ours);
    }

    /// How the pool is, with what to do about it.
    pub(super) fn report(&self, pool: &Pool) -> PoolReport {
        let mut report = PoolReport::from(&pool.status());
        if pool.full_drive().is_none() {
            let opened = self.opened.borrow();
            let files = opened.iter().filter_map(|opened| opened.file.as_ref()).map(|file| file.path());
            note_full_below(&mut report, files);
        }
        if self.stays.get() {
            advise(pool, &mut report);
        }
        self.misplaced.iter().for_each(|misplaced| note_misplaced(&mut report, misplaced));
        if let Some(user) = &self.used_by {
            report.note_user(user);
        }
        report
    }

    /// Drives that have to be taken as lost, by label, and why.
    pub(super) fn vanished(&self) -> Vec<(Rc<str>, String)> {
        let opened = self.opened.borrow();
        let label = |opened: &OpenedDrive| opened.bare.info().label.clone();
        opened.iter().filter_map(|opened| Some((label(opened), opened.lost()?))).collect()
    }

    /// Has those of them left out that the pool has not missed yet.
    pub(super) async fn leave_out_vanished(&self, pool: &Pool) {
        for (label, why) in self.vanished() {
            let status = pool.status();
            // A drive that is missing may have been at a place where another one is now.
            let of_label = |drive: &&DriveStatus| *drive.path == *label && drive.state.takes_part();
            let Some(drive) = status.drives.iter().find(of_label) else { continue };
            // While others were left out, it may have been reopened.
            if self.vanished().iter().any(|(lost, _)| *lost == label) {
                // Where that cannot be recorded now, the next request to the drive has it recorded.
                let _ = pool.drive_vanished(drive.id, &why).await;
            }
        }
    }

    /// Puts on the list where the pool's drives are now.
    pub(super) async fn remember_drives(&self, pool: &Pool) -> Result<()> {
        if self.access == Access::Look {
            return Ok(());
        }
        let status = pool.status();
        let known =
            |drive: &DriveStatus| KnownDrive { id: drive.id.to_string(), path: PathBuf::from(&drive.path) };
        let now = KnownPool {
            name: self.name.clone(),
            id: self.id.clone(),
            drives: status.drives.iter().map(known).collect(),
        };
        let is_known = *self.known.borrow() == now;
        if !is_known {
            self.registry.remember(&self.executor.context(), now.clone()).await?;
            self.known.replace(now);
        }
        Ok(())
    }
}

/// Says in a report what is in the place of a drive that is missing, and what to do about it.
fn note_misplaced(report: &mut PoolReport, Misplaced { path, holds }: &Misplaced) {
    let place = path.display().to_string();
    let is_here = |drive: &crate::report::DriveReport| drive.path == place;
    if report.drives.iter().any(|drive| is_here(drive) && drive.state.takes_part()) {
        return;
    }
    let Some(missing) = report.drives.iter_mut().find(|drive| is_here(drive)) else { return };
    missing.reason = Some(format!("{place} {holds}"));
    report.condition += &format!("; {place} {holds}");
    // A blank drive in the place of one that is gone is most likely meant to replace it.
    let asks_for_it = format!("stripewise pool replace {} {} NEW-DRIVE", report.name, missing.id);
    if *holds == Holds::Nothing && report.action == asks_for_it {
        report.action = format!("stripewise pool replace {} {} {place}", report.name, missing.id);
    }
}
