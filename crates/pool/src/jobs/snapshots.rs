//! Automatic snapshots: one in each hour, day and week of volumes that have a schedule, of which
//! the newest are kept. Any process that has the pool open for long takes them.
//!
//! A snapshot is due if none of its kind has a time of this period in its name. So none is taken
//! twice after a restart, and a period without a process that had the pool open has none. Only
//! names of that form are ever deleted, and no snapshot that is open, sent or has clones.
//!
//! Faults expected: logs without room for another snapshot, drives that fail, the pool is closed, a
//! clock that jumps.

use std::collections::BTreeMap;
use std::rc::Weak;

use crate::error::PoolError;
use crate::jobs::SECOND_NS;
use crate::manifest::events::EventKind;
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::snapshot_schedule::{MOST_KEPT, Period, SnapshotSchedule};
use crate::{Inner, Pool};

/// Interval between looks at the clock, because it may jump.
const LOOK_INTERVAL_S: u64 = 60;

impl Pool {
    /// Sets and records how many automatic snapshots of a volume are kept. Those there are that
    /// exceed a number of more than 0 are deleted later; with 0 they stay.
    pub async fn set_snapshot_schedule(
        &self,
        volume: &str,
        schedule: SnapshotSchedule,
    ) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        self.log_with_snapshots(volume)?;
        if inner.manifest.borrow().clone_named(volume).is_some() {
            let text = format!("volume {volume} is a clone, of which no automatic snapshots are taken");
            return Err(PoolError::BadSetting(text));
        }
        let numbers = Period::ALL.map(|kind| schedule.kept(kind));
        if let Some(kept) = numbers.into_iter().find(|kept| *kept > MOST_KEPT as usize) {
            return Err(PoolError::BadSetting(format!(
                "at most {MOST_KEPT} automatic snapshots of a kind are kept, not {kept}"
            )));
        }
        let id = self.open_volume_of(volume)?.id();
        inner
            .change_volume(id, move |record| record.schedule = Some(schedule).filter(|of| !of.is_empty()))
            .await?;
        inner.start_snapshots();
        Ok(())
    }

    /// Takes the automatic snapshots that are due, those of all volumes at one instant, and deletes
    /// those that are no longer kept.
    async fn take_automatic_snapshots(&self) {
        let inner = &self.0;
        let now_s = inner.news.unix_ms() / 1000;
        let mut new = Vec::new();
        for (volume, schedule, names) in inner.scheduled() {
            let path = |snapshot| SnapshotPath { volume: volume.clone(), snapshot };
            new.extend(due(&schedule, &names, now_s).into_iter().map(path));
        }
        let mut not_taken = BTreeMap::new();
        if !new.is_empty() && self.take_snapshots(&new).await.is_err() {
            for path in new {
                if let Err(error) = self.take_snapshots(std::slice::from_ref(&path)).await {
                    let SnapshotPath { volume, .. } = path;
                    let text = format!("an automatic snapshot of volume {volume} was not taken: {error}");
                    not_taken.insert(volume, text);
                }
            }
        }
        if inner.lifecycle.is_closed() {
            return;
        }
        inner.note_not_taken(not_taken);
        let Ok(_alone) = inner.administer().await else { return };
        for (volume, schedule, names) in inner.scheduled() {
            let path = |snapshot| SnapshotPath { volume: volume.clone(), snapshot };
            let old = expired(&schedule, &names).into_iter().map(path);
            let old: Vec<SnapshotPath> = old.filter(|path| self.can_expire(path)).collect();
            if !old.is_empty() {
                // Those that are left are deleted the next time.
                let _ = self.drop_snapshots(&old).await;
            }
        }
    }

    /// True if nothing has a snapshot open and no clone rests on it.
    fn can_expire(&self, path: &SnapshotPath) -> bool {
        let has_clones = self.check_has_no_clones(std::slice::from_ref(path)).is_err();
        !self.is_open(path) && !has_clones
    }
}

impl Inner {
    /// Starts the task that takes automatic snapshots, if a volume has a schedule and jobs run.
    pub(crate) fn start_snapshots(&self) {
        if !self.has_schedule()
            || self.lifecycle.is_closed()
            || self.lifecycle.is_read_only()
            || !self.jobs.is_started()
        {
            return;
        }
        if !self.jobs.snapshotting.replace(true) {
            let me = self.me.clone();
            self.context.spawn(async move { keep_schedules(me).await });
        }
    }

    fn has_schedule(&self) -> bool {
        self.manifest.borrow().volumes.iter().any(|volume| volume.schedule.is_some())
    }

    /// Volumes with a schedule that are whole, and the names of their snapshots.
    fn scheduled(&self) -> Vec<(String, SnapshotSchedule, Vec<String>)> {
        let manifest = self.manifest.borrow();
        let whole = manifest.volumes.iter().filter(|volume| volume.receiving.is_none());
        let scheduled = whole.filter_map(|volume| {
            let log = volume.parts.iter().find_map(|part| self.log_of(part.id))?;
            let names = log.log().snapshots().into_iter().map(|snapshot| snapshot.name);
            Some((volume.name.clone(), volume.schedule?, names.collect()))
        });
        scheduled.collect()
    }

    /// Keeps for the notices why automatic snapshots were not taken, by volume. The first time is
    /// an event.
    fn note_not_taken(&self, now: BTreeMap<String, String>) {
        let before = self.jobs.snapshots_not_taken.replace(now.clone());
        for (_, text) in now.iter().filter(|(volume, _)| !before.contains_key(*volume)) {
            self.news.event(EventKind::Volume, text);
        }
    }
}

/// Snapshots of a volume that are due. None is where as many as are kept have later times: it would
/// be the first to go.
fn due(schedule: &SnapshotSchedule, names: &[String], now_s: u64) -> Vec<String> {
    let is_due = |kind: &Period| {
        let times = || names.iter().filter_map(|name| kind.time_of(name));
        let later = times().filter(|time| *time > now_s).count();
        later < schedule.kept(*kind) && !times().any(|time| kind.of(time) == kind.of(now_s))
    };
    Period::ALL.into_iter().filter(is_due).map(|kind| kind.name(now_s)).collect()
}

/// Snapshots of a volume that are no longer kept, the oldest of each kind first.
fn expired(schedule: &SnapshotSchedule, names: &[String]) -> Vec<String> {
    let of_kind = |kind: Period| {
        let mut own: Vec<String> =
            names.iter().filter(|name| kind.time_of(name).is_some()).cloned().collect();
        own.sort();
        let kept = if schedule.kept(kind) > 0 { schedule.kept(kind) } else { own.len() };
        own.truncate(own.len().saturating_sub(kept));
        own
    };
    Period::ALL.into_iter().flat_map(of_kind).collect()
}

async fn keep_schedules(me: Weak<Inner>) {
    loop {
        let context = {
            let Some(pool) = me.upgrade() else { return };
            if pool.lifecycle.is_closed() || !pool.has_schedule() {
                pool.jobs.snapshots_not_taken.borrow_mut().clear();
                pool.jobs.snapshotting.set(false);
                return;
            }
            Pool(pool.clone()).take_automatic_snapshots().await;
            pool.context.clone()
        };
        context.sleep_ns(LOOK_INTERVAL_S * SECOND_NS).await;
    }
}
