//! The volumes of open pools as exports named `POOL/VOL`, and their snapshots, which cannot be
//! written, as `POOL/VOL@NAME`. Pools are added and removed while servers run; their volumes come
//! and go with them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use stripewise_pool::{Closing, PoolId, VolumeId};
use stripewise_pool::{Pool, Volume};

use crate::block::{Export, Exports, VolumeExport};
use crate::losses::Losses;

/// The exports of some pools. Clones are the same list.
#[derive(Clone, Default)]
pub struct PoolExports(Rc<Shared>);

#[derive(Default)]
struct Shared {
    pools: RefCell<Vec<(Pool, bool)>>,
    /// Exports in use, by name.
    in_use: RefCell<HashMap<String, Weak<VolumeExport>>>,
    /// Closed exports with open handles: the files continue with the exports' successors.
    ended: RefCell<Vec<(String, Weak<VolumeExport>)>>,
    /// State of volumes that outlasts the opening of their pool.
    known: RefCell<HashMap<(PoolId, VolumeId), Known>>,
    /// Holds, which keep clients from opening volumes, by number.
    held: RefCell<HashMap<u64, Held>>,
    holds: Cell<u64>,
}

/// A volume that clients have used.
#[derive(Default)]
struct Known {
    losses: Rc<Losses>,
    /// Set while its pool is closed.
    closed: Option<Closing>,
}

impl Known {
    /// True if it must be kept: a client has the volume open, or is still to get a loss reported.
    fn is_wanted(&self) -> bool {
        self.closed.is_some() || self.losses.is_wanted() || Rc::strong_count(&self.losses) > 1
    }
}

/// The volumes of a hold: one, or (`None`) all of a pool.
struct Held {
    pool: String,
    volume: Option<String>,
    /// The export that holders of one volume share, so that they share its `UnalignedGate`.
    export: RefCell<Weak<VolumeExport>>,
}

impl Held {
    fn covers(&self, name: &str) -> bool {
        is_of(name, &self.pool, self.volume.as_deref())
    }
}

/// Names of a pool's volumes, each followed by its snapshots as `VOL@NAME`.
pub(crate) fn names_in(pool: &Pool) -> Vec<String> {
    let snapshots = pool.snapshots(None).unwrap_or_default();
    let names = pool.volumes().into_iter().flat_map(|volume| {
        let of_volume = snapshots.iter().filter(|snapshot| snapshot.path.volume == volume.name);
        let paths: Vec<String> = of_volume.map(|snapshot| snapshot.path.to_string()).collect();
        // One that has a part of a stream is not served.
        let whole = volume.receiving.is_none().then_some(volume.name);
        whole.into_iter().chain(paths)
    });
    names.collect()
}

/// True if `POOL/VOL` is in the pool, and is `volume` if that is given.
fn is_of(name: &str, pool: &str, volume: Option<&str>) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(of_pool, name)| of_pool == pool && volume.is_none_or(|volume| volume == name))
}

/// While this lives, no client opens the volumes that it holds. Several holds of the same volume
/// can coexist.
pub struct Hold {
    exports: PoolExports,
    number: u64,
}

impl Hold {
    /// The held volume as an export, to write to it; all holders of the volume get the same one.
    pub fn export(&self, volume: &Volume) -> Rc<VolumeExport> {
        let held = self.exports.0.held.borrow();
        let shared = held.values().filter_map(|held| held.export.borrow().upgrade());
        let mut shared = shared.filter(|export| export.volume().id() == volume.id());
        let export = shared.next().unwrap_or_else(|| Rc::new(VolumeExport::new(volume.clone(), false)));
        if let Some(own) = held.get(&self.number) {
            *own.export.borrow_mut() = Rc::downgrade(&export);
        }
        export
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.exports.0.held.borrow_mut().remove(&self.number);
    }
}

impl PoolExports {
    /// A list of no pools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Exports the present and future volumes of a pool.
    pub fn add(&self, pool: Pool, read_only: bool) {
        for ((of_pool, _), known) in self.0.known.borrow_mut().iter_mut() {
            if *of_pool == pool.id()
                && let Some(closed) = known.closed.take()
            {
                known.losses.note_reopened(closed.was_in_order());
            }
        }
        self.0.pools.borrow_mut().push((pool, read_only));
    }

    /// Ends the exports of a pool: no client can connect to them any more, and connected ones are
    /// notified. If the pool is reopened its volumes get new exports, even while a client still
    /// holds the old ones.
    pub fn remove(&self, pool_name: &str) {
        let removed: Vec<_> =
            self.0.pools.borrow_mut().extract_if(.., |(pool, _)| pool.name() == pool_name).collect();
        removed.iter().for_each(|(pool, _)| self.keep_until_reopened(pool));
        let is_of_it = |name: &str| name.split_once('/').is_some_and(|(of_pool, _)| of_pool == pool_name);
        let ended: Vec<_> = self.0.in_use.borrow_mut().extract_if(|name, _| is_of_it(name)).collect();
        ended.iter().filter_map(|(_, export)| export.upgrade()).for_each(|export| export.ending().begin());
        let mut all_ended = self.0.ended.borrow_mut();
        all_ended.extend(ended);
        all_ended.retain(|(_, export)| export.strong_count() > 0);
    }

    /// Volumes that a client has open, as `POOL/VOL`, by name; also those whose pool was since
    /// closed, and perhaps reopened.
    pub fn in_use(&self) -> Vec<String> {
        let (known, ended) = (self.0.in_use.borrow(), self.0.ended.borrow());
        let all = known.iter().chain(ended.iter().map(|(name, export)| (name, export)));
        let in_use = all.filter(|(_, export)| export.strong_count() > 0);
        let mut names: Vec<String> = in_use.map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Current size of `POOL/VOL`, bytes.
    pub fn size_bytes(&self, name: &str) -> Option<u64> {
        self.open(name).map(|(volume, _)| volume.capacity_bytes())
    }

    /// The pools, in the order in which they were added.
    pub fn pools(&self) -> Vec<Pool> {
        self.0.pools.borrow().iter().map(|(pool, _)| pool.clone()).collect()
    }

    /// The successor of a closed export: the same volume, with the same size, of the same pool,
    /// reopened.
    pub fn successor(&self, name: &str, ended: &VolumeExport) -> Option<Rc<VolumeExport>> {
        let (then, now) = (ended.volume(), self.take(name)?);
        let is_it = now.volume().id() == then.id()
            && now.volume().pool().id() == then.pool().id()
            && now.size_bytes() == ended.size_bytes();
        is_it.then_some(now)
    }

    /// Keeps clients from opening a volume, or (`None`) any volume of a pool; fails with the name
    /// of one that is open. Atomic, so no client can open a volume between the check and the
    /// caller's work.
    pub fn hold(&self, pool: &str, volume: Option<&str>) -> Result<Hold, String> {
        if let Some(name) = self.in_use().into_iter().find(|name| is_of(name, pool, volume)) {
            return Err(name);
        }
        let number = self.0.holds.get();
        self.0.holds.set(number + 1);
        let (pool, volume) = (pool.to_owned(), volume.map(str::to_owned));
        self.0.held.borrow_mut().insert(number, Held { pool, volume, export: RefCell::default() });
        Ok(Hold { exports: self.clone(), number })
    }

    /// True if clients may not open `POOL/VOL` now.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.0.held.borrow().values().any(|held| held.covers(name))
    }

    /// An export for reading its size and volume, held or not.
    pub(crate) fn look_at(&self, name: &str) -> Option<Rc<VolumeExport>> {
        let (volume, read_only) = self.open(name)?;
        let known = self.0.in_use.borrow().get(name).and_then(Weak::upgrade);
        let known = known.filter(|known| known.volume().id() == volume.id());
        Some(known.unwrap_or_else(|| Rc::new(VolumeExport::new(volume, read_only))))
    }

    /// Keeps the state of a pool's volumes, before it is closed, until the fate of unflushed writes
    /// is known.
    fn keep_until_reopened(&self, pool: &Pool) {
        let mut all_known = self.0.known.borrow_mut();
        for known in all_known.values_mut() {
            if known.closed.as_ref().is_some_and(Closing::was_in_order) {
                known.closed = None;
                known.losses.note_reopened(true);
            }
        }
        all_known.retain(|_, known| known.is_wanted());
        for volume in pool.volumes() {
            let Some(known) = all_known.get_mut(&(pool.id(), volume.id)) else { continue };
            match pool.volume(&volume.name) {
                Ok(volume) => known.closed = Some(volume.closing()),
                Err(_) => known.losses.note_reopened(false),
            }
        }
    }

    /// The losses of a volume, across all its openings.
    fn losses(&self, volume: &Volume) -> Rc<Losses> {
        let mut all_known = self.0.known.borrow_mut();
        all_known.retain(|_, known| known.is_wanted());
        all_known.entry((volume.pool().id(), volume.id())).or_default().losses.clone()
    }

    fn open(&self, name: &str) -> Option<(Volume, bool)> {
        let (pool_name, volume_name) = name.split_once('/')?;
        let pools = self.0.pools.borrow();
        let (pool, read_only) = pools.iter().find(|(pool, _)| pool.name() == pool_name)?;
        Some((pool.volume(volume_name).ok()?, *read_only))
    }
}

impl PoolExports {
    /// The export of that name, marked as in use.
    fn take(&self, name: &str) -> Option<Rc<VolumeExport>> {
        let (volume, read_only) = self.open(name)?;
        let mut in_use = self.0.in_use.borrow_mut();
        let known = in_use.get(name).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.volume().id() == volume.id()) {
            return Some(known);
        }
        in_use.retain(|_, export| export.strong_count() > 0);
        let losses = self.losses(&volume);
        let export = Rc::new(VolumeExport::with_losses(volume, read_only, losses));
        in_use.insert(name.to_owned(), Rc::downgrade(&export));
        Some(export)
    }
}

impl Exports for PoolExports {
    type Export = VolumeExport;

    fn find(&self, name: &str) -> Option<Rc<VolumeExport>> {
        if self.is_held(name) { None } else { self.take(name) }
    }

    fn list(&self) -> Vec<String> {
        let pools = self.0.pools.borrow();
        let names = pools.iter().flat_map(|(pool, _)| {
            let pool_name = pool.name();
            names_in(pool).into_iter().map(move |name| format!("{pool_name}/{name}"))
        });
        names.collect()
    }
}
