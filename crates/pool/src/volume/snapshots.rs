//! Snapshots of volumes: taking, listing and deleting them. Only logs have any; the log keeps them
//! in its roots (`log/src/steps/snapshot.rs`).
//!
//! Snapshots of several volumes are of one instant. Each log makes its own durable, so a power cut
//! in between may leave those of some volumes only. Before a log has its first snapshot, the pool's
//! record says so, for older programs do not know the roots that follow.
//!
//! Faults expected: names that are taken or unknown, logs without room for more, drives that fail.

use stripewise_log::{Log, LogChanges, LogError};

use crate::error::PoolError;
use crate::manifest::events::EventKind;
use crate::manifest::format::check_name;
use crate::manifest::ids::Id;
use crate::manifest::snapshot_path::SnapshotPath;
use crate::stream::error::StreamError;
use crate::superblock::commit::Change;
use crate::volume::Volume;
use crate::volume::io::VolumeIo;
use crate::volume::log::{LogArray, array_error};
use crate::volume::volume_array::VolumeArray;
use crate::{Inner, Pool};

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub path: SnapshotPath,
    /// Size of the volume then, bytes.
    pub capacity_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_unix_ms: u64,
}

impl Pool {
    /// Takes snapshots of one instant: what was acknowledged before is in them. They are durable
    /// when this returns. After an error none of them is kept.
    pub async fn create_snapshots(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        self.take_snapshots(paths).await?;
        for path in paths {
            self.0.news.event(EventKind::Volume, &format!("snapshot {path} was taken"));
        }
        Ok(())
    }

    /// As [`Self::create_snapshots`], without an event.
    pub(crate) async fn take_snapshots(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let mut new = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let name = path.snapshot.clone();
            check_name(&name).map_err(|why| PoolError::BadName {
                what: "snapshot",
                name: name.clone(),
                why,
            })?;
            self.check_is_whole(&path.volume)?;
            let log = self.log_with_snapshots(&path.volume)?;
            let is_there = log.log().snapshots().iter().any(|snapshot| snapshot.name == name);
            if is_there || paths[..index].contains(path) {
                return Err(PoolError::SnapshotExists { pool: inner.name(), path: path.clone() });
            }
            new.push((log.log().clone(), name));
        }
        inner.record_snapshots(paths).await?;
        Log::create_snapshots(&new, inner.news.unix_ms()).await.map_err(|error| match error {
            LogError::TooManySnapshots { snapshots } => {
                PoolError::TooManySnapshots { pool: inner.name(), snapshots }
            }
            error => array_error(error).into(),
        })?;
        inner.session.before_acknowledgement().await?;
        Ok(())
    }

    /// Deletes snapshots: of each volume all that are named, or none.
    pub async fn delete_snapshots(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        let _alone = self.0.administer().await?;
        self.drop_snapshots(paths).await?;
        for path in paths {
            self.0.news.event(EventKind::Volume, &format!("snapshot {path} was deleted"));
        }
        Ok(())
    }

    /// As [`Self::delete_snapshots`], without an event. The caller has the turn to change volumes.
    pub(crate) async fn drop_snapshots(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        let inner = &self.0;
        let mut of_logs: Vec<(LogArray, Vec<String>)> = Vec::new();
        for path in paths {
            let log = self.log_with_snapshots(&path.volume)?;
            self.check_snapshot(&log, path)?;
            self.check_is_no_base(path)?;
            match of_logs.iter_mut().find(|(other, _)| other.is_same(&log)) {
                Some((_, names)) => names.push(path.snapshot.clone()),
                None => of_logs.push((log, vec![path.snapshot.clone()])),
            }
        }
        self.check_has_no_clones(paths)?;
        for (log, names) in &of_logs {
            log.log().delete_snapshots(names).await.map_err(array_error)?;
        }
        inner.session.before_acknowledgement().await?;
        Ok(())
    }

    /// True while something has a snapshot open: a client, a stream that is sent.
    pub(crate) fn is_open(&self, path: &SnapshotPath) -> bool {
        self.0.log_of_volume(&path.volume).is_some_and(|log| log.has_open(&path.snapshot))
    }

    /// Makes the contents of a snapshot those of its volume: what was written since is lost.
    /// Snapshots that were taken later are deleted with `deletes_newer`; without it they are a
    /// reason to refuse. No client may have the volume open.
    pub async fn roll_back(&self, path: &SnapshotPath, deletes_newer: bool) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let log = self.log_with_snapshots(&path.volume)?;
        let newer = self.newer_snapshots(path)?;
        if !newer.is_empty() && !deletes_newer {
            return Err(PoolError::NewerSnapshots { pool: inner.name(), path: path.clone(), newer });
        }
        let in_volume = |snapshot: &String| SnapshotPath { snapshot: snapshot.clone(), ..path.clone() };
        self.check_has_no_clones(&newer.iter().map(in_volume).collect::<Vec<_>>())?;
        let (whole, _) = self.open_log_volume(&path.volume)?;
        if whole.io.receives.get() {
            let volume = path.volume.clone();
            return Err(StreamError::Running { pool: inner.name(), volume }.into());
        }
        let is_in_part = self.check_is_whole(&path.volume).is_err();
        if is_in_part {
            // Those of a receiver whose caller left.
            whole.until_writes_ended().await;
            // Power may be cut between the two: with another base the stream is not continued.
            let (id, to) = (whole.id(), path.snapshot.clone());
            inner
                .change_volume(id, move |record| {
                    if let Some(receiving) = &mut record.receiving {
                        receiving.base = Some(to);
                    }
                })
                .await?;
        }
        log.log().roll_back(&path.snapshot, &newer).await.map_err(array_error)?;
        if is_in_part {
            inner.change_volume(whole.id(), |record| record.receiving = None).await?;
            whole.io.in_part.set(false);
        }
        inner.session.before_acknowledgement().await?;
        let volume = &path.volume;
        inner.news.event(EventKind::Volume, &format!("volume {volume} was rolled back to {path}"));
        Ok(())
    }

    /// Names of the snapshots of its volume that were taken after a snapshot, the oldest first.
    pub fn newer_snapshots(&self, path: &SnapshotPath) -> Result<Vec<String>, PoolError> {
        let log = self.log_with_snapshots(&path.volume)?;
        self.check_snapshot(&log, path)?;
        let names = log.log().snapshots().into_iter().map(|snapshot| snapshot.name);
        Ok(names.skip_while(|name| *name != path.snapshot).skip(1).collect())
    }

    /// Ranges in which a snapshot differs from another of its volume, or from the volume (`newer`
    /// is `None`), from an offset on.
    pub async fn changes(
        &self,
        older: &SnapshotPath,
        newer: Option<&str>,
        from_bytes: u64,
    ) -> Result<LogChanges, PoolError> {
        self.0.check_open()?;
        let log = self.log_with_snapshots(&older.volume)?;
        self.check_snapshot(&log, older)?;
        if newer.is_none() {
            self.check_is_whole(&older.volume)?;
        }
        if let Some(newer) = newer {
            let path = SnapshotPath { snapshot: newer.to_owned(), ..older.clone() };
            self.check_snapshot(&log, &path)?;
        }
        Ok(log.log().changes(Some(&older.snapshot), newer, from_bytes).await.map_err(array_error)?)
    }

    /// Snapshots of a volume, or of all that can be read, the oldest of each first.
    pub fn snapshots(&self, volume: Option<&str>) -> Result<Vec<SnapshotInfo>, PoolError> {
        self.0.check_open()?;
        let volumes = match volume {
            Some(name) => vec![(name.to_owned(), self.log_with_snapshots(name)?)],
            None => self.0.open_logs(),
        };
        let of_log = |(volume, log): (String, LogArray)| {
            let info = move |snapshot: stripewise_log::LogSnapshot| SnapshotInfo {
                path: SnapshotPath { volume: volume.clone(), snapshot: snapshot.name },
                capacity_bytes: snapshot.capacity_bytes,
                created_unix_ms: snapshot.created_unix_ms,
            };
            log.log().snapshots().into_iter().map(info).collect::<Vec<_>>()
        };
        Ok(volumes.into_iter().flat_map(of_log).collect())
    }

    /// A snapshot as a volume that cannot be written.
    pub(crate) fn snapshot(&self, path: &SnapshotPath) -> Result<Volume, PoolError> {
        let log = self.log_with_snapshots(&path.volume)?;
        self.check_snapshot(&log, path)?;
        let snapshot = log.snapshot(&path.snapshot).map_err(array_error)?;
        // Another one of this name has another number.
        let number = u128::from(snapshot.log().snapshot_number().unwrap_or_default());
        let id = Id(snapshot.part().0 ^ (number + 1));
        let io = VolumeIo::plain(VolumeArray::Log(snapshot));
        Ok(Volume { pool: self.clone(), id, name: path.to_string().into(), io, receives: false })
    }

    /// The open log of a volume; fails for one that has no snapshots.
    pub(crate) fn log_with_snapshots(&self, volume: &str) -> Result<LogArray, PoolError> {
        self.open_volume_of(volume)?;
        self.0
            .log_of_volume(volume)
            .ok_or_else(|| PoolError::WithoutSnapshots { pool: self.0.name(), volume: volume.to_owned() })
    }

    /// Refuses to delete the snapshot to which a volume that has a part of a stream can go back.
    fn check_is_no_base(&self, path: &SnapshotPath) -> Result<(), PoolError> {
        let manifest = self.0.manifest.borrow();
        let receiving = manifest.volume(&path.volume).and_then(|record| record.receiving.as_ref());
        match receiving.is_some_and(|of| of.base.as_ref() == Some(&path.snapshot)) {
            true => self.check_is_whole(&path.volume),
            false => Ok(()),
        }
    }

    pub(crate) fn check_snapshot(&self, log: &LogArray, path: &SnapshotPath) -> Result<(), PoolError> {
        if log.log().snapshot(&path.snapshot).is_ok() {
            return Ok(());
        }
        let known = log.log().snapshots().into_iter().map(|snapshot| snapshot.name).collect();
        Err(PoolError::NoSuchSnapshot { pool: self.0.name(), path: path.clone(), known })
    }

    /// Refuses to delete a volume that has snapshots. Those of one that is not open are unknown.
    pub(crate) fn check_has_no_snapshots(&self, volume: &str) -> Result<(), PoolError> {
        let snapshots = self.0.log_of_volume(volume).map_or_else(Vec::new, |log| log.log().snapshots());
        let Some(first) = snapshots.first() else { return Ok(()) };
        let first = SnapshotPath { volume: volume.to_owned(), snapshot: first.name.clone() };
        Err(PoolError::HasSnapshots { pool: self.0.name(), snapshots: snapshots.len(), first })
    }
}

impl Inner {
    /// The open log of a volume that is one.
    pub(crate) fn log_of_volume(&self, name: &str) -> Option<LogArray> {
        let manifest = self.manifest.borrow();
        if let Some((record, clone)) = manifest.clone_named(name) {
            return self.volumes.clone_io(record, clone)?.array().log();
        }
        manifest.volume(name)?.parts.iter().find_map(|part| self.log_of(part.id))
    }

    /// Open logs, with the names of their volumes.
    fn open_logs(&self) -> Vec<(String, LogArray)> {
        let manifest = self.manifest.borrow();
        let names = manifest.volume_names().into_iter();
        names.filter_map(|name| Some((name.clone(), self.log_of_volume(&name)?))).collect()
    }

    /// Has the record say that the logs of these volumes may have snapshots.
    async fn record_snapshots(&self, paths: &[SnapshotPath]) -> Result<(), PoolError> {
        let names: Vec<String> = paths.iter().map(|path| path.volume.clone()).collect();
        let recorded = self.try_commit(None, move |manifest| {
            let mut is_new = false;
            for volume in manifest.volumes.iter_mut().filter(|volume| names.contains(&volume.name)) {
                for log in volume.parts.iter_mut().filter_map(|part| part.log.as_mut()) {
                    is_new |= !std::mem::replace(&mut log.snapshots, true);
                }
            }
            Ok(if is_new { Change::Commit(()) } else { Change::Nothing(()) })
        });
        recorded.await
    }
}
