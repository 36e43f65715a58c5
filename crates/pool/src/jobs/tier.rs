//! Moving rows between fast and data drives (`jobs/tier_plan.rs` says which) while clients go on,
//! and setting how.
//!
//! Decided once a period, and at once when drives come, pins change or a rebuild ends; executed
//! in small batches: copied, recorded in one commit, then the next. A rebuild goes first: while
//! anything is rebuilt nothing moves, and a caller that wants to change drives or volumes need not
//! wait, since running migrations are given up for it. The copying takes its turn as background
//! I/O, and no more bytes per second than are set. What a power cut interrupts was not recorded:
//! the rows are where they were, heat starts over, and for a half-life nothing is moved down on its
//! account.
//!
//! Faults expected: either drive of a migration fails (the migration is off, and what was lost is
//! rebuilt), no room (said).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Weak;

use crate::error::{LogTask, PoolError};
use crate::jobs::column_migration::{Migrator, Step};
use crate::jobs::tier_plan::{Field, Plan, Tier, TierInfo, TierPart, plan};
use crate::jobs::{Parts, SECOND_NS, watched};
use crate::manifest::drive_record::Role;
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{Pin, VolumeRecord};
use crate::open_drives::OpenDrives;
use crate::space::slabs::FreeSlabs;
use crate::superblock::commit::Change;
use crate::{Inner, Pool};
use stripewise_array::LocalFuture;

/// The most that is moved between tiers per second unless set otherwise, bytes: about what one disk
/// gives.
pub const TIER_BYTES_PER_S: u64 = 100_000_000;
/// The slowest rate that can be set, bytes per second.
const LEAST_RATE: u64 = 1 << 20;
/// Length of a batch, as time at the set rate, seconds.
const BATCH_S: u64 = 5;
/// But no more than this, also where no rate is set.
const MOST_BATCH_BYTES: u64 = 1 << 30;
/// Columns in a batch.
const MOST_STEPS: usize = 256;
/// Columns in work at once, at most.
const MOST_AT_ONCE: u64 = 8;

/// Settings of tiering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// So often, nanoseconds.
    pub period_ns: u64,
    /// Half-life of the heat of rows, nanoseconds.
    pub half_life_ns: u64,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self { period_ns: 60 * SECOND_NS, half_life_ns: 600 * SECOND_NS }
    }
}

/// Progress of tiering.
#[derive(Default)]
pub(crate) struct TierState {
    /// The task that decides once a period runs.
    deciding: Cell<bool>,
    /// Its time came while a rebalance moved columns, which lets it decide before the next one.
    pub is_due: Cell<bool>,
    /// Since when heat is counted.
    since_ns: Cell<Option<u64>>,
    /// When the next region may be copied.
    next_ns: Cell<u64>,
    /// Pinned parts for which there is no room where they belong.
    without_room: RefCell<Vec<Id>>,
}

impl Pool {
    /// Sets how many bytes per second are moved between tiers at most, 1 MiB or more, and records
    /// it; `None`: as many as the rebuild priority gives.
    pub async fn set_tier_rate(&self, bytes_per_s: Option<u64>) -> Result<(), PoolError> {
        if bytes_per_s.is_some_and(|rate| rate < LEAST_RATE) {
            return Err(PoolError::BadSetting(format!(
                "tiers move at least {LEAST_RATE} bytes per second; pins keep volumes where they are"
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.tier_bytes_per_s = bytes_per_s).await
    }

    /// Bytes per second that are moved between tiers at most; `None`: as many as the rebuild
    /// priority gives.
    pub fn tier_rate(&self) -> Option<u64> {
        self.0.manifest.borrow().settings.tier_bytes_per_s
    }

    /// Says where a volume's rows belong; they move there when jobs run. Refused where there is no
    /// room. Its map and its journal stay where they are.
    pub async fn set_pin(&self, name: &str, pin: Pin) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let volume = self.volume(name)?.id();
        self.refuse_for_log(name, LogTask::Pin)?;
        inner.freed.until_reclaimed().await;
        inner.check_room_for_pin(name, pin)?;
        let text = format!("volume {name} is pinned: {pin}");
        let time_unix_ms = inner.news.unix_ms();
        inner
            .try_commit(None, move |manifest| {
                let Some(record) = manifest.volume_by_id_mut(volume).filter(|record| record.pin != pin)
                else {
                    return Ok(Change::Nothing(()));
                };
                record.pin = pin;
                manifest.events.push(time_unix_ms, EventKind::Volume, &text);
                Ok(Change::Commit(()))
            })
            .await?;
        drop(_alone);
        inner.kick_tiers();
        Ok(())
    }
}

impl Manifest {
    /// True if there are fast drives, in service or not.
    pub(crate) fn has_fast_drives(&self) -> bool {
        self.drives.iter().any(|drive| drive.role == Role::Fast && !drive.replaced)
    }
}

impl Inner {
    /// Checks that rows that a pin moves find room; the error has the bytes wanted and free.
    fn check_room_for_pin(&self, name: &str, pin: Pin) -> Result<(), PoolError> {
        let (role, home) = match pin {
            Pin::None => return Ok(()),
            Pin::Fast => (Role::Fast, Tier::Fast),
            Pin::Slow => (Role::Data, Tier::Data),
        };
        let manifest = self.manifest.borrow();
        let Some(record) = manifest.volume(name) else { return Ok(()) };
        let drives = self.drives.usable(&manifest, &self.space.borrow(), role);
        let mut space = self.space.borrow().clone();
        let field = field(&manifest, &self.drives, &mut space);
        for part in &record.parts {
            let away = part.rows.runs().filter(|run| field.tier_of(&run.places) != home);
            let needed_rows: u64 = away.map(|run| run.rows).sum();
            let free_rows = field.books.max_rows(&drives, part.rows.width());
            if needed_rows > free_rows {
                let row_bytes = part.spec(manifest.slab_bytes).row_data_bytes()?;
                return Err(PoolError::NoSpace {
                    pool: manifest.name.clone(),
                    volume: name.to_owned(),
                    needed_rows,
                    free_rows,
                    width: part.rows.width(),
                    slab_bytes: manifest.slab_bytes,
                    drives_with_room: field.books.drives_with_room(&drives),
                    possible_bytes: row_bytes * free_rows,
                });
            }
        }
        Ok(())
    }

    /// Has arrays count what clients ask where that is of use.
    pub(crate) fn note_fast_drives(&self) {
        let counts = !self.lifecycle.is_read_only() && self.manifest.borrow().has_fast_drives();
        let half_life_ns = if counts { self.options.tiers.half_life_ns.max(1) } else { 0 };
        self.volumes
            .arrays()
            .iter()
            .for_each(|array| array.visit(|array| array.set_heat_half_life(half_life_ns)));
        let since_ns = self.jobs.tiers.since_ns.get().unwrap_or_else(|| self.context.now_ns());
        self.jobs.tiers.since_ns.set(counts.then_some(since_ns));
    }

    /// Decides about tiers now, and from now on once a period, if there is anything to decide and
    /// jobs run.
    pub(crate) fn kick_tiers(&self) {
        let lane = &self.jobs.tiering;
        if !self.jobs.is_started() || self.lifecycle.is_closed() || self.lifecycle.is_read_only() {
            return;
        }
        let has_pins = self.manifest.borrow().volumes.iter().any(|volume| volume.pin != Pin::None);
        if !self.manifest.borrow().has_fast_drives() && !has_pins {
            return;
        }
        if !self.jobs.tiers.deciding.replace(true) {
            let me = self.me.clone();
            self.context.spawn(async move { decide_for_ever(me).await });
        }
        if !lane.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_tiers().await });
        }
    }

    async fn run_tiers(&self) {
        let lane = &self.jobs.tiering;
        while !self.lifecycle.is_closed() && !self.jobs.rebuilding.running.get() {
            match self.tier_some().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    lane.stall(None, why);
                    break;
                }
            }
        }
        self.jobs.end(lane);
        lane.running.set(false);
        // A rebalance may have waited for this.
        self.kick_balancing();
        self.jobs.changed.notify_all();
    }

    /// Plans a batch of migrations and carries it out; whether there was one.
    async fn tier_some(&self) -> Result<bool, String> {
        // Space freed by the batch before is room for this one.
        self.freed.until_reclaimed().await;
        let alone = self.lifecycle.turn().await;
        if self.lifecycle.is_closed() {
            return Ok(false);
        }
        let plan = self.plan_tiers();
        *self.jobs.tiers.without_room.borrow_mut() = plan.without_room;
        if plan.steps.is_empty() {
            return Ok(false);
        }
        let done = self.execute(plan.steps, plan.bytes).await?;
        drop(alone);
        Ok(done > 0)
    }

    fn plan_tiers(&self) -> Plan {
        let now_ns = self.context.now_ns();
        let manifest = self.manifest.borrow();
        // Rows that lie alone take room in the record; some is kept for when it is needed.
        let may_move_up = self.commits.check_growth(&manifest).is_ok();
        let since_ns = self.jobs.tiers.since_ns.get().unwrap_or(now_ns);
        let may_move_down = now_ns.saturating_sub(since_ns) >= self.options.tiers.half_life_ns;
        let mut parts = Vec::new();
        for volume in manifest.volumes.iter().filter(|volume| volume.conversion.is_none()) {
            for part in &volume.parts {
                let Some(array) = self.volumes.array(part.id) else { continue };
                let heat = array.visit(|array| {
                    let may_move = !array.is_protected() && array.is_whole();
                    may_move.then(|| array.heat(now_ns))
                });
                if let Some(heat) = heat {
                    let heat = heat.into_iter().collect();
                    parts.push(TierPart { part: part.id, pin: volume.pin, rows: part.rows.clone(), heat });
                }
            }
        }
        let column_bytes = |part: Id, row: u64| {
            let array = self.volumes.array(part);
            array.map_or(0, |array| array.visit(|array| array.row_written_bytes(row)))
        };
        let rate = manifest.settings.tier_bytes_per_s.unwrap_or(u64::MAX);
        let most_bytes = rate.saturating_mul(BATCH_S).min(MOST_BATCH_BYTES);
        let mut space = self.space.borrow_mut();
        let mut field = field(&manifest, &self.drives, &mut space);
        plan(&mut field, &parts, &column_bytes, (most_bytes, MOST_STEPS), (may_move_up, may_move_down))
    }

    /// Copies columns and records where they are; how many are elsewhere now.
    async fn execute(&self, steps: Vec<Step>, bytes: u64) -> Result<usize, String> {
        let lane = &self.jobs.tiering;
        let parts: Parts = steps.iter().map(|step| (step.part, Default::default())).collect();
        for progress in parts.values() {
            progress.total_bytes.set(bytes as f64 / parts.len() as f64);
        }
        self.jobs.begin(lane, parts.clone());
        let at_once = self.rows_at_once(parts.keys().copied()).min(MOST_AT_ONCE);
        let (rests, pace) = (|| self.is_wanted_elsewhere(), |bytes| self.tier_pace(bytes));
        let migrator = Migrator::of(self);
        let taking = migrator.take_batch(steps, at_once, &parts, &rests, &pace);
        let nothing = || std::future::ready(Ok(()));
        let batch = watched(&self.context, &parts, taking, SECOND_NS, nothing).await;
        self.jobs.pause(lane);
        let count = batch.done.len();
        self.record_steps(batch.done).await.map_err(|error| error.to_string())?;
        match batch.failure {
            Some((part, why)) if count == 0 && !self.is_wanted_elsewhere() => {
                let name = self.manifest.borrow().volume_of(part).1;
                Err(format!("rows of volume {name} could not change tiers: {why}"))
            }
            _ => Ok(count),
        }
    }

    /// True if migrations are to be given up: a caller wants to change drives or volumes, or there
    /// is something to rebuild.
    fn is_wanted_elsewhere(&self) -> bool {
        self.lifecycle.is_closed() || self.lifecycle.is_turn_wanted() || self.jobs.rebuilding.running.get()
    }

    /// Waits until the next region may be copied; whether it still should be.
    fn tier_pace(&self, bytes: u64) -> LocalFuture<'_, bool> {
        Box::pin(async move {
            let tiers = &self.jobs.tiers;
            let rate = self.manifest.borrow().settings.tier_bytes_per_s;
            if let Some(rate) = rate {
                let now_ns = self.context.now_ns();
                let turn_ns = tiers.next_ns.get().max(now_ns);
                let takes_ns = bytes as f64 * SECOND_NS as f64 / rate.max(1) as f64;
                tiers.next_ns.set(turn_ns + takes_ns as u64);
                while self.context.now_ns() < turn_ns && !self.is_wanted_elsewhere() {
                    let left_ns = turn_ns - self.context.now_ns();
                    self.context.sleep_ns(left_ns.min(SECOND_NS / 10)).await;
                }
            }
            !self.is_wanted_elsewhere()
        })
    }
}

/// The drives that tiers are decided over.
fn field<'a>(manifest: &Manifest, drives: &OpenDrives, books: &'a mut FreeSlabs) -> Field<'a> {
    let roles: BTreeMap<u32, Role> = manifest.drives.iter().map(|drive| (drive.number, drive.role)).collect();
    let of = |role: Role| drives.usable(manifest, books, role);
    let (fast, data) = (of(Role::Fast), of(Role::Data));
    Field { books, roles, fast, data }
}

/// Places and heat of a volume's rows.
pub(crate) fn tier_info(pool: &Inner, volume: &VolumeRecord) -> TierInfo {
    let manifest = pool.manifest.borrow();
    let now_ns = pool.context.now_ns();
    let mut books = pool.space.borrow().clone();
    let field = field(&manifest, &pool.drives, &mut books);
    let slab_bytes = manifest.slab_bytes;
    let mut info = TierInfo::default();
    for part in &volume.parts {
        for run in part.rows.runs() {
            match field.tier_of(&run.places) {
                Tier::Fast => info.fast_rows += run.rows,
                Tier::Data => info.data_rows += run.rows,
                Tier::Mixed => info.mixed_rows += run.rows,
            }
            let is_fast = |drive: u32| field.roles.get(&drive) == Some(&Role::Fast);
            let fast = run.places.iter().filter(|place| is_fast(place.drive)).count() as u64;
            info.fast_bytes += fast * run.rows * slab_bytes;
            info.data_bytes += (run.places.len() as u64 - fast) * run.rows * slab_bytes;
        }
        let Some(array) = pool.volumes.array(part.id) else { continue };
        let (moving_rows, heat) = array.visit(|array| (array.migrating_rows(), array.heat(now_ns)));
        info.moving_rows += moving_rows;
        for (row, heat) in heat {
            let Some(run) = part.rows.run(row) else { continue };
            let heat = f64::from(heat);
            match field.tier_of(&run.places) {
                Tier::Fast => info.fast_heat += heat,
                Tier::Data | Tier::Mixed => info.data_heat += heat,
            }
            info.hottest_row_heat = info.hottest_row_heat.max(heat);
        }
    }
    let without_room = pool.jobs.tiers.without_room.borrow();
    info.note = tier_note(volume, &field, &without_room, manifest.has_fast_drives());
    info
}

/// Note for the user about the places of a volume's rows.
fn tier_note(
    volume: &VolumeRecord,
    field: &Field<'_>,
    without_room: &[Id],
    has_fast_drives: bool,
) -> Option<String> {
    let width = volume.parts.last().map_or(0, |part| part.rows.width());
    let fast = field.fast.len();
    let lacks_room = volume.parts.iter().any(|part| without_room.contains(&part.id));
    match volume.pin {
        Pin::Fast | Pin::Slow if lacks_room => Some(format!(
            "there is no room for all of it where it is pinned to; the rest of it stays where it is, with its \
             redundancy, until there is (pin {})",
            volume.pin
        )),
        Pin::None if has_fast_drives && fast < width => Some(format!(
            "its rows need {width} fast drives, one for each column, and there are {fast} in service: none moves up"
        )),
        _ => None,
    }
}

/// Decides once a period, for as long as the pool is open.
async fn decide_for_ever(me: Weak<Inner>) {
    loop {
        let (context, period_ns) = {
            let Some(pool) = me.upgrade().filter(|pool| !pool.lifecycle.is_closed()) else { return };
            (pool.context.clone(), pool.options.tiers.period_ns.max(SECOND_NS / 1000))
        };
        context.sleep_ns(period_ns).await;
        let Some(pool) = me.upgrade() else { return };
        // The obstacles may have gone.
        pool.jobs.tiering.forget_stalls();
        if pool.jobs.balancing.running.get() {
            // It would never be done with a column that takes longer than a period.
            pool.jobs.tiers.is_due.set(true);
        } else {
            pool.kick_tiers();
        }
    }
}
