//! Clones of snapshots: volumes that share the log of the volume that they were taken of, and all
//! blocks that neither has overwritten.
//!
//! The log begins a clone, then the pool's record names it; the record forgets it, then the log
//! ends it. A power cut in between leaves a clone that no record names, which the next opening
//! ends.
//!
//! Faults expected: names that are taken, no room in the record, drives that fail.

use crate::error::PoolError;
use crate::manifest::clone_record::CloneRecord;
use crate::manifest::events::EventKind;
use crate::manifest::format::{MAX_VOLUMES, Manifest, check_name};
use crate::manifest::ids::VolumeId;
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::volume_record::VolumeRecord;
use crate::superblock::commit::Change;
use crate::volume::Volume;
use crate::volume::log::{LogArray, array_error};
use crate::{Inner, Pool};

impl Pool {
    /// Makes a volume with the contents of a snapshot, which shares all blocks with it.
    pub async fn clone_snapshot(&self, path: &SnapshotPath, name: &str) -> Result<Volume, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        check_name(name).map_err(|why| PoolError::BadName { what: "volume", name: name.to_owned(), why })?;
        let _alone = inner.administer().await?;
        let log = self.log_with_snapshots(&path.volume)?;
        self.check_snapshot(&log, path)?;
        inner.check_new_name(name)?;
        let id = inner.ids.borrow_mut().next();
        let size_bytes = self.snapshot(path)?.capacity_bytes();
        let (name, of) = (name.to_owned(), path.to_string());
        let record = CloneRecord { id, name: name.clone(), size_bytes, head: u32::MAX, of };
        let mut planned = inner.manifest.borrow().clone();
        add(&mut planned, &log, record.clone());
        inner.commits.check_growth(&planned)?;
        let clone = log.log().clone_snapshot(&path.snapshot).await.map_err(array_error)?;
        let record = CloneRecord { head: clone.number(), ..record };
        inner.news.event(EventKind::Volume, &creation(&name, path));
        let of_log = log.clone();
        let recorded = inner.try_commit(None, move |manifest| {
            add(manifest, &of_log, record);
            Ok(Change::Commit(()))
        });
        if let Err(error) = recorded.await {
            inner.news.take_back(&creation(&name, path));
            // If that fails too, the next opening ends it.
            let _ = clone.delete_clone().await;
            return Err(error);
        }
        inner.session.before_acknowledgement().await?;
        self.volume(&name)
    }

    /// Deletes a clone and all that only it holds.
    pub(crate) async fn delete_clone(&self, id: VolumeId, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        let log = inner.log_of_volume(name);
        inner.news.event(EventKind::Volume, &format!("volume {name} was deleted"));
        inner
            .commit_regardless(None, move |manifest| {
                for volume in &mut manifest.volumes {
                    volume.clones.retain(|clone| clone.id != id);
                }
                Ok(Change::Commit(()))
            })
            .await?;
        inner.volumes.forget(id);
        if let Some(log) = log {
            log.log().delete_clone().await.map_err(array_error)?;
        }
        Ok(())
    }

    /// Refuses to delete a volume that clones rest on, or in whose log there are some. Does not
    /// look at snapshots, which are unknown of a log that is not open.
    pub(crate) fn check_carries_no_clones(&self, name: &str) -> Result<(), PoolError> {
        let manifest = self.0.manifest.borrow();
        let clones: Vec<String> = match manifest.volume(name) {
            Some(record) => record.clones.iter().map(|clone| clone.name.clone()).collect(),
            None => manifest.clones_of(|of| of.volume == name),
        };
        match clones.is_empty() {
            true => Ok(()),
            false => {
                let (pool, what) = (manifest.name.clone(), format!("volume {name}"));
                Err(PoolError::HasClones { pool, what, clones })
            }
        }
    }

    /// Refuses to delete snapshots that clones rest on.
    pub(crate) fn check_has_no_clones(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        let manifest = self.0.manifest.borrow();
        for path in paths {
            let clones = manifest.clones_of(|of| of == path);
            if !clones.is_empty() {
                let (pool, what) = (manifest.name.clone(), format!("snapshot {path}"));
                return Err(PoolError::HasClones { pool, what, clones });
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Refuses the name of a volume that is there, and one more volume than a pool can have.
    pub(crate) fn check_new_name(&self, name: &str) -> Result<(), PoolError> {
        let manifest = self.manifest.borrow();
        let names = manifest.volume_names();
        if names.iter().any(|known| known == name) {
            return Err(PoolError::VolumeExists { pool: manifest.name.clone(), name: name.to_owned() });
        }
        match names.len() >= MAX_VOLUMES {
            true => Err(PoolError::TooManyVolumes { allowed: MAX_VOLUMES }),
            false => Ok(()),
        }
    }

    /// Ends clones of a log that was just opened and that its record does not name. Where the log
    /// cannot, the next opening does.
    pub(crate) async fn end_unknown_clones(&self, record: &VolumeRecord, log: &LogArray) {
        if self.lifecycle.is_read_only() || log.is_protected() {
            return;
        }
        let is_unknown =
            |number: &u32| *number != 0 && record.clones.iter().all(|clone| clone.head != *number);
        for number in log.log().numbers().into_iter().filter(is_unknown) {
            if let Ok(clone) = log.log().volume(number) {
                let _ = clone.delete_clone().await;
            }
        }
    }
}

/// Adds a clone to the record of the volume whose log it is in.
fn add(manifest: &mut Manifest, log: &LogArray, clone: CloneRecord) {
    let volume = manifest.volumes.iter_mut().find(|volume| volume.part(log.part()).is_some());
    if let Some(volume) = volume {
        volume.clones.push(clone);
    }
}

fn creation(name: &str, path: &SnapshotPath) -> String {
    format!("volume {name} was created as a clone of {path}")
}
