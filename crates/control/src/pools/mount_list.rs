//! The mounts that a daemon keeps: what is mounted where, and how each one is. Data only; the
//! daemon's task (`daemon/mounting/kept.rs`) mounts and unmounts.
//!
//! The list is in the state folder, so that the mounts come back when the daemon serves again.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::Event;

use crate::messages::report::{MountReport, MountedState};
use crate::notation::file_system::FileSystem;

/// A mount as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMount {
    /// Pool identity: the name may change.
    pub pool_id: String,
    /// Pool name.
    pub pool: String,
    /// Volume name; left out: all volumes of the pool as files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// Mount point, absolute.
    pub folder: PathBuf,
    /// The volume's file system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_system: Option<FileSystem>,
    /// Options of `mount` for the file system.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub options: Vec<String>,
    /// True for a mount of the system's `mount`, which `/etc/fstab` records: `umount` ends it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_of_system: bool,
}

impl KeptMount {
    /// The pool, or the volume with its pool.
    pub fn target(&self) -> String {
        match &self.volume {
            Some(volume) => format!("{}/{volume}", self.pool),
            None => self.pool.clone(),
        }
    }
}

/// State of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountState {
    /// It is mounted as soon as its pool is served.
    Waiting,
    /// It is being mounted.
    Mounting,
    /// It can be used.
    Mounted,
    /// It could not be mounted; it is tried again.
    Failed {
        /// The reason.
        why: String,
        /// Time of the next attempt, ns of the executor's clock.
        again_ns: u64,
    },
    /// Another process unmounted it.
    Unmounted,
}

/// A mount of the list.
pub(crate) struct Mount {
    pub(crate) kept: RefCell<KeptMount>,
    pub(crate) state: RefCell<MountState>,
    /// Set to end it.
    pub(crate) is_ending: Cell<bool>,
    /// A command unmounts it.
    pub(crate) is_commanded: Cell<bool>,
    /// It is no longer recorded; the task that works on it may take longer.
    pub(crate) is_forgotten: Cell<bool>,
    /// True while a task works on it.
    pub(crate) is_active: Cell<bool>,
    /// Reason of the last failure that was reported.
    pub(crate) reported: RefCell<String>,
}

/// The mounts of a daemon; copies are the same list.
#[derive(Clone, Default)]
pub struct MountList(Rc<Inner>);

#[derive(Default)]
struct Inner {
    mounts: RefCell<Vec<Rc<Mount>>>,
    changed: Event,
    /// True in a process that keeps mounts.
    is_kept: Cell<bool>,
}

impl MountList {
    /// Starts the list of a daemon, with the mounts of the last one.
    pub(crate) fn begin(&self, recorded: Vec<KeptMount>) {
        self.0.is_kept.set(true);
        recorded.into_iter().for_each(|kept| drop(self.add(kept)));
    }

    /// True if this process keeps mounts.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_kept.get()
    }

    pub(crate) fn add(&self, kept: KeptMount) -> Rc<Mount> {
        let mount = Rc::new(Mount {
            kept: RefCell::new(kept),
            state: RefCell::new(MountState::Waiting),
            is_ending: Cell::new(false),
            is_commanded: Cell::new(false),
            is_forgotten: Cell::new(false),
            is_active: Cell::new(false),
            reported: RefCell::default(),
        });
        self.0.mounts.borrow_mut().push(mount.clone());
        self.0.changed.notify_all();
        mount
    }

    pub(crate) fn remove(&self, mount: &Rc<Mount>) {
        self.0.mounts.borrow_mut().retain(|other| !Rc::ptr_eq(other, mount));
        self.0.changed.notify_all();
    }

    /// Takes a mount off the record; it stays in the list while a task works on it.
    pub(crate) fn forget(&self, mount: &Rc<Mount>) {
        mount.is_forgotten.set(true);
        self.note_end(mount);
    }

    /// Notes that a task may have ended.
    pub(crate) fn note_end(&self, mount: &Rc<Mount>) {
        match mount.is_forgotten.get() && !mount.is_active.get() {
            true => self.remove(mount),
            false => self.note_change(),
        }
    }

    pub(crate) fn all(&self) -> Vec<Rc<Mount>> {
        self.0.mounts.borrow().clone()
    }

    /// The mounts as they are recorded.
    pub(crate) fn kept(&self) -> Vec<KeptMount> {
        let mounts = self.0.mounts.borrow();
        let recorded = mounts.iter().filter(|mount| !mount.is_forgotten.get());
        recorded.map(|mount| mount.kept.borrow().clone()).collect()
    }

    /// Reports of the mounts of a pool.
    pub(crate) fn reports(&self, pool: &str) -> Vec<MountReport> {
        let mounts = self.0.mounts.borrow();
        let is_shown = |mount: &&Rc<Mount>| mount.kept.borrow().pool == pool && !mount.is_forgotten.get();
        let of_pool = mounts.iter().filter(is_shown);
        of_pool.map(|mount| mount.report()).collect()
    }

    /// The mount at a folder, or of a target.
    pub(crate) fn find(&self, target: &str, folder: &Path) -> Option<Rc<Mount>> {
        let is_it = |mount: &&Rc<Mount>| {
            let kept = mount.kept.borrow();
            !mount.is_forgotten.get() && (kept.folder == folder || kept.target() == target)
        };
        self.0.mounts.borrow().iter().find(is_it).cloned()
    }

    /// Wakes the tasks that wait for a change.
    pub(crate) fn note_change(&self) {
        self.0.changed.notify_all();
    }

    /// Event of every change of the list.
    pub(crate) fn changed(&self) -> &Event {
        &self.0.changed
    }
}

impl Mount {
    fn report(&self) -> MountReport {
        let kept = self.kept.borrow();
        let (state, why) = match &*self.state.borrow() {
            MountState::Waiting | MountState::Mounting => (MountedState::Mounting, None),
            MountState::Mounted => (MountedState::Mounted, None),
            MountState::Failed { why, .. } => (MountedState::Failed, Some(why.clone())),
            MountState::Unmounted => (MountedState::Unmounted, None),
        };
        MountReport {
            target: kept.target(),
            folder: kept.folder.display().to_string(),
            file_system: kept.file_system,
            state,
            why,
        }
    }

    pub(crate) fn is_mounted(&self) -> bool {
        *self.state.borrow() == MountState::Mounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_target_and_folder() {
        let list = MountList::default();
        let kept = |volume: Option<&str>, folder: &str| KeptMount {
            pool_id: "7".to_owned(),
            pool: "tank".to_owned(),
            volume: volume.map(str::to_owned),
            folder: folder.into(),
            file_system: volume.map(|_| FileSystem::Xfs),
            options: Vec::new(),
            is_of_system: false,
        };
        list.begin(vec![kept(None, "/files"), kept(Some("a"), "/a")]);
        let folder_of = |target: &str, folder: &str| {
            list.find(target, Path::new(folder)).map(|mount| mount.kept.borrow().folder.clone())
        };
        assert_eq!(folder_of("tank/a", "/here/tank/a"), Some("/a".into()));
        assert_eq!(folder_of("tank", "/here/tank"), Some("/files".into()));
        assert_eq!(folder_of("../a", "/a"), Some("/a".into()));
        assert_eq!(folder_of("tank/b", "/b"), None);
        let recorded = serde_json::to_string(&list.kept()).expect("plain data");
        assert_eq!(serde_json::from_str::<Vec<KeptMount>>(&recorded).expect("plain data"), list.kept());
    }
}
