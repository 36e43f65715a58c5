//! The mounted tree: the root folder, folders of pools, volumes as files. Read from the pools at
//! every access, so volumes appear, disappear and change size as commands change them; only the
//! node numbers known to the kernel, until it forgets them, and the open files are kept.
//!
//! A volume that was deleted and created again is another file: a client with the old one open does
//! not write into the new one. A volume whose pool was closed and reopened is the same file: open
//! descriptors continue with it, since a loop device cannot reopen its file. Unflushed writes from
//! before may be lost then; the next flush of each descriptor reports it, as the kernel reports
//! writeback errors.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::SystemTime;

use stripewise_pool::{Id, Pool, VolumeId};

use super::Tree;
use super::wire::{FileAttr, FileType};
use crate::block::{Export, Exports, VolumeExport};
use crate::losses::Seen;
use crate::pools::{PoolExports, names_in};

/// The node number of the mounted folder.
pub(super) const ROOT: u64 = 1;

/// A place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Root,
    Pool(String),
    /// By full name, and the id, which distinguishes volumes that had the name at different times.
    Volume(String, VolumeId),
}

struct Node {
    place: Place,
    /// Number of look-ups that the kernel made and has not forgotten.
    lookups: u64,
}

/// An open file.
pub(super) struct Open {
    /// `POOL/VOL`.
    pub(super) name: String,
    pub(super) export: Rc<VolumeExport>,
    pub(super) write: bool,
    seen: Rc<Seen>,
}

impl Open {
    /// True if writes to the volume may be lost and this descriptor has not reported it.
    pub(super) fn may_have_lost(&self) -> bool {
        self.seen.has_news(self.export.losses())
    }

    /// As [`Self::may_have_lost`], and marks the loss as reported by this descriptor.
    pub(super) fn reports_loss(&self) -> bool {
        self.seen.takes_news(self.export.losses())
    }
}

/// An entry of a folder.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) node: u64,
    pub(super) kind: FileType,
}

/// The tree, and its open files.
pub(super) struct Files {
    exports: PoolExports,
    tree: Tree,
    nodes: RefCell<HashMap<u64, Node>>,
    numbers: RefCell<HashMap<Place, u64>>,
    open: RefCell<HashMap<u64, Rc<Open>>>,
    /// Numbers are never reused.
    last_number: Cell<u64>,
    user: (u32, u32),
    since: SystemTime,
}

impl Files {
    pub(super) fn new(exports: PoolExports, tree: Tree) -> io::Result<Self> {
        let own = std::fs::metadata("/proc/self")?;
        Ok(Self {
            exports,
            tree,
            nodes: RefCell::default(),
            numbers: RefCell::default(),
            open: RefCell::default(),
            last_number: Cell::new(ROOT),
            user: (own.uid(), own.gid()),
            since: SystemTime::now(),
        })
    }

    /// Attributes of `name` in a folder; counts one look-up by the kernel.
    pub(super) fn look_up(&self, folder: u64, name: &OsStr) -> Option<FileAttr> {
        let place = self.place_in(&self.place(folder)?, name.to_str()?)?;
        let node = self.number(&place).unwrap_or_else(|| self.next_number());
        let attributes = self.attributes_of(node, &place)?;
        self.numbers.borrow_mut().insert(place.clone(), node);
        self.nodes.borrow_mut().entry(node).or_insert(Node { place, lookups: 0 }).lookups += 1;
        Some(attributes)
    }

    /// Records that the kernel has forgotten this number of look-ups.
    pub(super) fn forget(&self, node: u64, lookups: u64) {
        let mut nodes = self.nodes.borrow_mut();
        let Some(known) = nodes.get_mut(&node) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0
            && let Some(gone) = nodes.remove(&node)
        {
            self.numbers.borrow_mut().remove(&gone.place);
        }
    }

    /// Attributes of a node; `None` if it no longer exists.
    pub(super) fn attributes(&self, node: u64) -> Option<FileAttr> {
        self.attributes_of(node, &self.place(node)?)
    }

    /// The full name of the volume at a node.
    pub(super) fn volume_name(&self, node: u64) -> Option<String> {
        match self.place(node)? {
            Place::Volume(name, _) => Some(name),
            _ => None,
        }
    }

    /// The volume at a node, with its full name.
    pub(super) fn volume(&self, node: u64) -> Option<(String, Rc<VolumeExport>)> {
        match self.place(node)? {
            Place::Volume(name, id) => {
                let export = self.exports.find(&name).filter(|export| export.volume().id() == id)?;
                Some((name, export))
            }
            _ => None,
        }
    }

    /// True if a command holds the volume at a node exclusively, so that it cannot be opened now.
    pub(super) fn is_held(&self, node: u64) -> bool {
        matches!(self.place(node), Some(Place::Volume(name, _)) if self.exports.is_held(&name))
    }

    /// True if the node is a folder.
    pub(super) fn is_folder(&self, node: u64) -> bool {
        matches!(self.place(node), Some(Place::Root | Place::Pool(_)))
    }

    /// The entries of a folder, by name.
    pub(super) fn list(&self, folder: u64) -> Option<Vec<Entry>> {
        let place = self.place(folder)?;
        let pool = match (&place, &self.tree) {
            (Place::Volume(..), _) => return None,
            (Place::Pool(pool), _) | (Place::Root, Tree::Volumes(pool)) => pool.clone(),
            (Place::Root, Tree::Pools) => {
                let names = self.exports.pools().into_iter().map(|pool| pool.name().to_owned());
                return Some(
                    names
                        .map(|name| self.entry(name.clone(), &Place::Pool(name), FileType::Directory))
                        .collect(),
                );
            }
        };
        // A pool that is no longer served has none to show.
        let Some(pool) = self.pool(&pool) else { return Some(Vec::new()) };
        let known = |name: &String| self.exports.look_at(&format!("{}/{name}", pool.name()));
        let files = names_in(&pool).into_iter().map(|name| {
            // One that cannot be opened is listed all the same.
            let id = known(&name).map_or(Id(0), |export| export.volume().id());
            let place = Place::Volume(format!("{}/{name}", pool.name()), id);
            self.entry(name, &place, FileType::RegularFile)
        });
        Some(files.collect())
    }

    /// The pools whose space the node's file system reports.
    pub(super) fn pools_at(&self, node: u64) -> Vec<Pool> {
        let name = match (self.place(node), &self.tree) {
            (_, Tree::Volumes(pool)) => Some(pool.clone()),
            (Some(Place::Pool(pool)), _) => Some(pool),
            (Some(Place::Volume(name, _)), _) => name.split_once('/').map(|(pool, _)| pool.to_owned()),
            (_, Tree::Pools) => None,
        };
        let mut pools = self.exports.pools();
        pools.retain(|pool| name.as_deref().is_none_or(|name| pool.name() == name));
        pools
    }

    /// Opens a volume; returns the handle.
    pub(super) fn open(&self, name: String, export: Rc<VolumeExport>, write: bool) -> u64 {
        let handle = self.next_number();
        let seen = Rc::new(export.losses().open());
        let open = Open { name, export, write, seen };
        self.open.borrow_mut().insert(handle, Rc::new(open));
        handle
    }

    /// An open file, on the current export of its volume.
    pub(super) fn opened(&self, handle: u64) -> Option<Rc<Open>> {
        let open = self.open.borrow().get(&handle)?.clone();
        if !open.export.ending().has_begun() {
            return Some(open);
        }
        let Some(successor) = self.exports.successor(&open.name, &open.export) else { return Some(open) };
        let (name, seen) = (open.name.clone(), open.seen.clone());
        let open = Rc::new(Open { name, export: successor, write: open.write, seen });
        self.open.borrow_mut().insert(handle, open.clone());
        Some(open)
    }

    /// Closes a handle.
    pub(super) fn close(&self, handle: u64) {
        self.open.borrow_mut().remove(&handle);
    }

    fn place(&self, node: u64) -> Option<Place> {
        match node {
            ROOT => Some(Place::Root),
            _ => self.nodes.borrow().get(&node).map(|node| node.place.clone()),
        }
    }

    fn place_in(&self, folder: &Place, name: &str) -> Option<Place> {
        let pool = match (folder, &self.tree) {
            (Place::Volume(..), _) => return None,
            (Place::Root, Tree::Pools) => {
                return self.pool(name).map(|_| Place::Pool(name.to_owned()));
            }
            (Place::Pool(pool), _) | (Place::Root, Tree::Volumes(pool)) => pool,
        };
        let name = format!("{pool}/{name}");
        let export = self.exports.look_at(&name)?;
        Some(Place::Volume(name, export.volume().id()))
    }

    fn pool(&self, name: &str) -> Option<Pool> {
        self.exports.pools().into_iter().find(|pool| pool.name() == name)
    }

    fn number(&self, place: &Place) -> Option<u64> {
        self.numbers.borrow().get(place).copied()
    }

    fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    /// An entry. Its number is assigned when the kernel looks it up; until then any will do.
    fn entry(&self, name: String, place: &Place, kind: FileType) -> Entry {
        Entry { name, node: self.number(place).unwrap_or(u64::MAX), kind }
    }

    fn attributes_of(&self, node: u64, place: &Place) -> Option<FileAttr> {
        let folder = FileAttr {
            node,
            size: 0,
            blocks: 0,
            since: self.since,
            kind: FileType::Directory,
            mode: 0o500,
            links: 2,
            user: self.user,
        };
        match place {
            Place::Root => Some(folder),
            Place::Pool(name) => self.pool(name).map(|_| folder),
            Place::Volume(name, id) => {
                let export = self.exports.look_at(name).filter(|export| export.volume().id() == *id)?;
                let size = export.size_bytes();
                let info = export.volume().info();
                let written = info.and_then(|info| info.written_bytes).unwrap_or(size);
                Some(FileAttr {
                    size,
                    blocks: written.min(size).div_ceil(512),
                    kind: FileType::RegularFile,
                    mode: if export.is_read_only() { 0o400 } else { 0o600 },
                    links: 1,
                    ..folder
                })
            }
        }
    }
}
