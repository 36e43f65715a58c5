//! An array under test: a volume of a pool of the engine's, on drives of the laboratory, with the means to pull a drive and
//! to give another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{Context, Drive};
use stripewise_engine::{Array, JobKind, Pool, PoolOptions, PoolSpec, VolumeSpec};
use stripewise_layout::{LayoutSpec, Shape};

use super::world::{LabDrive, World};
use crate::metered::Traffic;

/// How long the loss of a drive may stay unnoticed.
const NOTICE_LIMIT_NS: u64 = 30_000_000_000;
/// How often waiting loops look.
const POLL_NS: u64 = 1_000_000;

/// An array and its drives.
pub(super) struct Rig {
    context: Context,
    pool: Pool,
    array: Array,
    /// By slot of the array.
    drives: RefCell<Vec<LabDrive>>,
    /// What drives that are no longer in the array had served.
    retired: Cell<Traffic>,
}

impl Rig {
    pub(super) async fn build(
        world: &World,
        shape: Shape,
        drives: Vec<LabDrive>,
        rebuild_priority_percent: u32,
        seed: u64,
    ) -> Result<Self, String> {
        let spec = PoolSpec {
            name: "lab".into(),
            drives: drives.iter().map(|drive| drive.metered.clone() as Rc<dyn Drive>).collect(),
            spares: Vec::new(),
            // A drive of an earlier array is a new one to this.
            force: true,
            options: PoolOptions {
                rebuild_priority_percent: Some(rebuild_priority_percent),
                id_seed: Some(seed),
                ..PoolOptions::default()
            },
        };
        let pool = Pool::create(&world.context, &world.buffers, spec).await.map_err(in_words)?;
        let layout = LayoutSpec {
            level: shape.level,
            columns: Some(shape.width),
            groups: shape.level.is_grouped().then_some(shape.groups),
            interleave_bytes: Some(shape.interleave_bytes),
        };
        let volume = VolumeSpec { name: "array".into(), layout, size_bytes: None };
        let volume = pool.create_volume(volume).await.map_err(in_words)?;
        pool.start_jobs();
        let mut by_slot = Vec::new();
        for slot in volume.info().map(|info| info.slots).unwrap_or_default() {
            let path = pool.status().drives.into_iter().find(|drive| drive.id == slot.drive);
            let label = path.map(|drive| drive.path).unwrap_or_default();
            let drive = drives.iter().find(|drive| *drive.metered.info().label == *label);
            by_slot.push(drive.cloned().ok_or_else(|| format!("the pool put {label} into the array"))?);
        }
        let array = volume.array().clone();
        Ok(Self {
            context: world.context.clone(),
            pool,
            array,
            drives: RefCell::new(by_slot),
            retired: Cell::default(),
        })
    }

    pub(super) fn array(&self) -> &Array {
        &self.array
    }

    /// Everything that the array's drives were asked, those that are gone included.
    pub(super) fn traffic(&self) -> Traffic {
        self.drives.borrow().iter().fold(self.retired.get(), |sum, drive| sum.plus(&drive.metered.traffic()))
    }

    /// The drive in a slot.
    pub(super) fn drive(&self, slot: usize) -> LabDrive {
        self.drives.borrow()[slot].clone()
    }

    /// What people call the drive in a slot.
    pub(super) fn label(&self, slot: usize) -> String {
        self.drives.borrow()[slot].metered.info().label.to_string()
    }

    /// Pulls the drive out of a slot and waits until the array has noticed by itself.
    pub(super) async fn pull(&self, slot: usize) -> Result<(), String> {
        self.drive(slot).metered.pull();
        let deadline_ns = self.context.now_ns() + NOTICE_LIMIT_NS;
        while !self.array.missing().contains(slot) {
            if self.context.now_ns() > deadline_ns {
                return Err(format!("the loss of {} was not noticed within 30 s", self.label(slot)));
            }
            // Without load nothing would be asked of the drive; a flush goes to all of them.
            if let Err(error) = self.array.flush().await {
                return Err(format!("after pulling {}: {error}", self.label(slot)));
            }
            self.context.sleep_ns(POLL_NS).await;
        }
        Ok(())
    }

    /// Puts another drive into a slot whose drive was pulled; its rebuild begins.
    pub(super) async fn replace(&self, slot: usize, drive: LabDrive) -> Result<(), String> {
        let label = self.label(slot);
        let known = self.pool.status().drives;
        let old =
            known.iter().find(|drive| drive.path == label).ok_or_else(|| format!("{label} is not known"))?;
        self.pool.replace(old.id, drive.metered.clone(), true).await.map_err(in_words)?;
        let old = std::mem::replace(&mut self.drives.borrow_mut()[slot], drive);
        self.retired.set(self.retired.get().plus(&old.metered.traffic()));
        Ok(())
    }

    /// Whether a rebuild is under way.
    pub(super) fn is_rebuilding(&self) -> bool {
        !self.array.rebuilding_slots().is_empty()
    }

    /// How far the rebuild of a slot is, in percent, `None` once it has ended; a function that outlives this borrow.
    pub(super) fn rebuild_percent(&self, slot: usize) -> impl Fn() -> Option<f64> + 'static {
        let array = self.array.clone();
        move || {
            let progress = array.rebuild_progress(slot)?;
            Some(100.0 * progress.next_region as f64 / progress.regions.max(1) as f64)
        }
    }

    /// Waits for the rebuild's end; an error if it failed.
    pub(super) async fn until_rebuilt(&self) -> Result<(), String> {
        self.pool.wait(JobKind::Rebuild).await.map_err(in_words)?;
        match self.array.lost_blocks().len() {
            0 if !self.is_rebuilding() => Ok(()),
            0 => Err("the rebuild stopped before its end".into()),
            lost => Err(format!("{lost} blocks of 4 KiB were lost")),
        }
    }

    /// Ends the array and gives its drives back.
    pub(super) async fn close(self, world: &World) -> Result<(), String> {
        self.pool.close().await.map_err(in_words)?;
        for drive in self.drives.take() {
            world.give_back(drive);
        }
        Ok(())
    }
}

/// An error with its cause and what to do about it, in one line.
fn in_words(error: stripewise_engine::PoolError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} (hint: {hint})"),
        None => error.to_string(),
    }
}
