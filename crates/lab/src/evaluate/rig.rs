//! An array under test: a volume of an engine pool, on drives of the laboratory, with functions to
//! pull and to replace a drive.
//!
//! The volume has the defaults of a user's volume: with checksums, and written through the journal.
//! It takes all of the pool's space and lies on all of its drives, and no row can have two columns
//! on one drive. A lost drive therefore cannot be rebuilt before there is another drive, and an
//! array that is measured degraded stays so ([`Rig::is_degraded`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{Context, Drive};
use stripewise_layout::{LayoutSpec, Shape};
use stripewise_pool::{
    DriveId, DriveState, JobKind, Pool, PoolError, PoolOptions, PoolSpec, Volume, VolumeSpec,
};

use super::world::{LabDrive, World};
use crate::loads::metered::Traffic;

/// Maximum time until the loss of a drive is noticed.
const NOTICE_LIMIT_NS: u64 = 30_000_000_000;
/// Poll interval of waiting loops.
const POLL_NS: u64 = 1_000_000;

/// Drives of an array that are faster than its data drives.
#[derive(Default)]
pub(crate) struct Ssds {
    /// Drives for the journal only; if there are any, writes are acknowledged once they are in it.
    pub journals: Vec<LabDrive>,
    /// Drives for frequently used rows.
    pub tier: Vec<LabDrive>,
}

/// An array and its drives.
pub(crate) struct Rig {
    context: Context,
    pool: Pool,
    volume: Volume,
    /// The drives and their ids in the pool.
    drives: RefCell<Vec<(DriveId, LabDrive)>>,
    /// Traffic of drives that have left the array.
    retired: Cell<Traffic>,
}

impl Rig {
    /// Builds an array of `shape`, but with the default interleave of a new volume on such drives.
    pub(crate) async fn build(
        world: &World,
        shape: Shape,
        interleave_bytes: Option<u64>,
        drives: Vec<LabDrive>,
        rebuild_priority_percent: u32,
        seed: u64,
    ) -> Result<Self, String> {
        let dearest_bytes = drives.iter().map(|drive| drive.metered.info().gap_bytes).max().unwrap_or(0);
        let layout = LayoutSpec {
            level: shape.level,
            columns: Some(shape.width),
            groups: shape.level.is_grouped().then_some(shape.groups),
            interleave_bytes,
            rotation_rows: None,
        };
        let (layout, _) = layout.on_drives(dearest_bytes);
        Self::of(world, layout, drives, Ssds::default(), rebuild_priority_percent, seed).await
    }

    /// Builds the array with faster drives, as a user would.
    pub(crate) async fn with_ssds(
        world: &World,
        layout: LayoutSpec,
        drives: Vec<LabDrive>,
        ssds: Ssds,
        seed: u64,
    ) -> Result<Self, String> {
        Self::of(world, layout, drives, ssds, 30, seed).await
    }

    async fn of(
        world: &World,
        layout: LayoutSpec,
        drives: Vec<LabDrive>,
        ssds: Ssds,
        rebuild_priority_percent: u32,
        seed: u64,
    ) -> Result<Self, String> {
        let as_drives =
            |drives: &[LabDrive]| drives.iter().map(|drive| drive.metered.clone() as Rc<dyn Drive>).collect();
        let spec = PoolSpec {
            name: "lab".into(),
            drives: as_drives(&drives),
            journals: as_drives(&ssds.journals),
            fast: as_drives(&ssds.tier),
            // A drive of an earlier array is reused here.
            force: true,
            options: PoolOptions {
                rebuild_priority_percent: Some(rebuild_priority_percent),
                id_seed: Some(seed),
                ..PoolOptions::default()
            },
            ..PoolSpec::default()
        };
        let pool = Pool::create(&world.context, &world.buffers, spec).await.map_err(describe_error)?;
        let write_back = (!ssds.journals.is_empty()).then_some(true);
        let spec = VolumeSpec { write_back, ..VolumeSpec::new("array", layout) };
        let volume = pool.create_volume(spec).await.map_err(describe_error)?;
        pool.start_jobs();
        let known = pool.status().drives;
        let with_id = |drive: LabDrive| {
            let label = drive.metered.info().label.clone();
            let id = known.iter().find(|known| *known.path == *label).map(|known| known.id);
            id.map(|id| (id, drive)).ok_or_else(|| format!("the pool does not know {label}"))
        };
        let all = drives.into_iter().chain(ssds.journals).chain(ssds.tier);
        let drives = all.map(with_id).collect::<Result<_, _>>()?;
        Ok(Self {
            context: world.context.clone(),
            pool,
            volume,
            drives: RefCell::new(drives),
            retired: Cell::default(),
        })
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Number of drives.
    pub(crate) fn width(&self) -> usize {
        self.drives.borrow().len()
    }

    /// Traffic of all drives of the array, including those that have left it.
    pub(crate) fn traffic(&self) -> Traffic {
        self.drives
            .borrow()
            .iter()
            .fold(self.retired.get(), |sum, (_, drive)| sum.plus(&drive.metered.traffic()))
    }

    /// The drive in a slot.
    pub(crate) fn drive(&self, slot: usize) -> LabDrive {
        self.drives.borrow()[slot].1.clone()
    }

    fn id(&self, slot: usize) -> DriveId {
        self.drives.borrow()[slot].0
    }

    /// Label of the drive in a slot.
    pub(crate) fn label(&self, slot: usize) -> String {
        self.drives.borrow()[slot].1.metered.info().label.to_string()
    }

    /// Pulls the drive out of a slot and waits until the array has noticed on its own.
    pub(crate) async fn pull(&self, slot: usize) -> Result<(), String> {
        self.drive(slot).metered.pull();
        let deadline_ns = self.context.now_ns() + NOTICE_LIMIT_NS;
        while !self.is_out(slot) {
            if self.context.now_ns() > deadline_ns {
                return Err(format!("the loss of {} was not noticed within 30 s", self.label(slot)));
            }
            // Without load the drive would receive no requests; a flush goes to all drives.
            if let Err(error) = self.volume.flush().await {
                return Err(format!("after pulling {}: {error}", self.label(slot)));
            }
            self.context.sleep_ns(POLL_NS).await;
        }
        Ok(())
    }

    fn is_out(&self, slot: usize) -> bool {
        let id = self.id(slot);
        self.pool.status().drives.iter().any(|drive| drive.id == id && drive.state != DriveState::Online)
    }

    /// True if a drive is missing and has no replacement.
    pub(crate) fn is_degraded(&self) -> bool {
        (0..self.width()).any(|slot| self.is_out(slot)) && !self.is_rebuilding()
    }

    /// Puts another drive into a slot whose drive was pulled; its rebuild starts.
    pub(crate) async fn replace(&self, slot: usize, drive: LabDrive) -> Result<(), String> {
        let replaced = self.pool.replace(self.id(slot), drive.metered.clone(), true).await;
        let id = replaced.map_err(describe_error)?;
        let (_, old) = std::mem::replace(&mut self.drives.borrow_mut()[slot], (id, drive));
        self.retired.set(self.retired.get().plus(&old.metered.traffic()));
        Ok(())
    }

    /// True while a rebuild is running.
    pub(crate) fn is_rebuilding(&self) -> bool {
        rebuild_percent(&self.pool).is_some()
    }

    /// Progress of the rebuild in percent, `None` once it has ended; as a function that outlives
    /// this borrow.
    pub(crate) fn rebuild_percent(&self) -> impl Fn() -> Option<f64> + 'static {
        let pool = self.pool.clone();
        move || rebuild_percent(&pool)
    }

    /// Waits until the rebuild ends; an error if it failed.
    pub(crate) async fn until_rebuilt(&self) -> Result<(), String> {
        self.pool.wait(JobKind::Rebuild).await.map_err(describe_error)?;
        match self.volume.info().map_or(0, |info| info.lost_blocks) {
            0 if !self.is_rebuilding() => Ok(()),
            0 => Err("the rebuild stopped before its end".into()),
            lost => Err(format!("{lost} blocks of 4 KiB were lost")),
        }
    }

    /// Closes the array and returns its drives.
    pub(crate) async fn close(self, world: &World) -> Result<(), String> {
        self.pool.close().await.map_err(describe_error)?;
        for (_, drive) in self.drives.take() {
            world.give_back(drive);
        }
        Ok(())
    }
}

/// An evaluation has one volume and one rebuild at a time.
fn rebuild_percent(pool: &Pool) -> Option<f64> {
    pool.activity().into_iter().find(|job| job.kind == JobKind::Rebuild).map(|job| job.percent)
}

/// Formats an error with its cause and hint in one line.
fn describe_error(error: PoolError) -> String {
    match &error {
        PoolError::Layout(layout) => format!("{error} (hint: {})", layout.hint()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::ModelSpec;
    use stripewise_layout::Level;
    use stripewise_pool::Role;
    use stripewise_runtime::VirtualExecutor;

    const DRIVE_BYTES: u64 = 64 << 20;

    #[test]
    fn tier_and_journal_drives_get_their_roles() {
        let executor = VirtualExecutor::new();
        let disk = ModelSpec { latency_ns: 1_000_000, bytes_per_second: 100_000_000, queue_depth: 4 };
        let world = World::of_models(executor.context(), Rc::new(disk), true);
        let take = |name: &str| world.take(name, DRIVE_BYTES, None).expect("a drive");
        let drives = ["one", "two"].map(take).into();
        let ssds = Ssds { journals: ["j1", "j2"].map(take).into(), tier: ["t1", "t2"].map(take).into() };
        let layout = LayoutSpec::new(Level::Raid1);
        executor.block_on(async {
            let rig = Rig::with_ssds(&world, layout, drives, ssds, 1).await.expect("an array");
            let known = rig.pool.status().drives;
            let roles: Vec<Role> = known.iter().map(|drive| drive.role).collect();
            use Role::{Data, Fast, Journal};
            assert_eq!(roles, [Data, Data, Journal, Journal, Fast, Fast]);
            let most = DRIVE_BYTES;
            assert!(rig.volume().capacity_bytes() < most, "the tier adds no space of its own");
            rig.close(&world).await.expect("closed");
        });
    }
}
