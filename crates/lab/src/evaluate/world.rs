//! The environment of an evaluation: real drives in real time, or modelled ones in virtual time.
//! The same orchestration runs on both; only this file knows the difference.
//!
//! Files are unlinked as soon as they are open: their space is freed when the process ends, however
//! it ends. Used drives are kept and reused; callers see them as new drives.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive, Pace, PacedDrive};
use stripewise_runtime::{CreateOptions, DriveOpener, OpenOptions, create_drive_file, process_cpu_ns};

use super::options::{DriveMaker, EvaluateError, GivenDrive};
use crate::loads::metered::MeteredDrive;
use crate::loads::scratch::remove_abandoned;

/// Returned buffer memory kept for reuse; the loads have about 150 MB in flight at once.
const RETAINED_BYTES: usize = 192 << 20;

enum Source {
    Folder {
        opener: DriveOpener,
        folder: PathBuf,
    },
    /// Only the given drives, all in `free` at the start.
    Given,
    Model(Rc<dyn DriveMaker>),
}

/// Drives, buffers, clock.
pub(crate) struct World {
    pub context: Context,
    pub buffers: BufferPool,
    source: Source,
    /// Unused drives.
    free: RefCell<Vec<Rc<dyn Drive>>>,
    made: Cell<u32>,
    direct_io: Cell<Option<bool>>,
}

/// A drive in use, with the drive beneath its pace and meter.
#[derive(Clone)]
pub(crate) struct LabDrive {
    pub metered: Rc<MeteredDrive>,
    raw: Rc<dyn Drive>,
}

impl World {
    pub(crate) fn in_folder(context: Context, opener: DriveOpener, folder: PathBuf) -> Self {
        remove_abandoned(&folder);
        Self::of(context, BufferPool::new(RETAINED_BYTES), Source::Folder { opener, folder })
    }

    pub(crate) fn of_paths(
        context: Context,
        opener: &DriveOpener,
        given: &[GivenDrive],
    ) -> Result<Self, EvaluateError> {
        let world = Self::of(context, BufferPool::new(RETAINED_BYTES), Source::Given);
        for given in given {
            let drive = given.open(opener)?;
            world.note_direct(drive.is_direct());
            // The first given drive is taken first.
            world.free.borrow_mut().insert(0, drive);
        }
        Ok(world)
    }

    /// Creates modelled drives; with `phantom` they store nothing, so nothing can be verified.
    pub(crate) fn of_models(context: Context, maker: Rc<dyn DriveMaker>, phantom: bool) -> Self {
        let buffers = if phantom { BufferPool::phantom() } else { BufferPool::new(RETAINED_BYTES) };
        Self::of(context, buffers, Source::Model(maker))
    }

    fn of(context: Context, buffers: BufferPool, source: Source) -> Self {
        Self {
            context,
            buffers,
            source,
            free: RefCell::default(),
            made: Cell::new(0),
            direct_io: Cell::new(None),
        }
    }

    fn note_direct(&self, direct: bool) {
        self.direct_io.set(Some(self.direct_io.get().unwrap_or(true) && direct));
    }

    /// Source of modelled drives; `None` for real ones.
    pub(crate) fn maker(&self) -> Option<&dyn DriveMaker> {
        match &self.source {
            Source::Model(maker) => Some(&**maker),
            _ => None,
        }
    }

    /// True if time is virtual.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Model(_))
    }

    /// True if the page cache was bypassed; `None` if there is none.
    pub(crate) fn direct_io(&self) -> Option<bool> {
        self.direct_io.get()
    }

    /// Processor seconds of this process so far; `None` in virtual time.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        (!self.is_virtual()).then(|| process_cpu_ns() as f64 / 1e9)
    }

    /// Size of the given drives: that of the smallest.
    pub(crate) fn given_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Given => self.free.borrow().iter().map(|drive| drive.info().capacity_bytes).min(),
            _ => None,
        }
    }

    /// Takes a drive of `capacity_bytes` (given ones may be larger), limited to `pace`.
    pub(crate) fn take(
        &self,
        label: &str,
        capacity_bytes: u64,
        pace: Option<Pace>,
    ) -> Result<LabDrive, EvaluateError> {
        let given = matches!(self.source, Source::Given);
        let fits = |drive: &Rc<dyn Drive>| given || drive.info().capacity_bytes == capacity_bytes;
        let found = self.free.borrow().iter().rposition(fits);
        let raw = match found {
            Some(index) => self.free.borrow_mut().remove(index),
            None => self.make(capacity_bytes)?,
        };
        let paced: Rc<dyn Drive> = match pace {
            Some(pace) => PacedDrive::new(&self.context, raw.clone(), pace),
            None => raw.clone(),
        };
        Ok(LabDrive { metered: MeteredDrive::new(label, paced), raw })
    }

    fn make(&self, capacity_bytes: u64) -> Result<Rc<dyn Drive>, EvaluateError> {
        let number = self.made.replace(self.made.get() + 1);
        match &self.source {
            Source::Given => {
                Err(EvaluateError::Options("there are not enough drives for this layout".into()))
            }
            Source::Model(maker) => {
                maker.make(&self.context, number, MemoryDrive::new("model", capacity_bytes))
            }
            Source::Folder { opener, folder } => {
                let path = folder.join(format!(".stripewise-evaluate-{}-{number}.img", std::process::id()));
                create_drive_file(
                    &path,
                    &CreateOptions { allocate: true, ..CreateOptions::new(capacity_bytes) },
                )?;
                let opened = opener.open(&path, &OpenOptions { lock: false, ..OpenOptions::default() });
                // The name is not needed, even if opening failed. If unlinking fails, the file
                // visibly stays behind.
                let _ = std::fs::remove_file(&path);
                let drive = opened?;
                self.note_direct(drive.is_direct());
                Ok(drive)
            }
        }
    }

    /// Takes a drive to replace `lost`, which is given back: another one if there is one, else the
    /// same.
    pub(crate) fn take_another(
        &self,
        label: &str,
        capacity_bytes: u64,
        pace: Option<Pace>,
        lost: LabDrive,
    ) -> Result<LabDrive, EvaluateError> {
        let none_left = matches!(self.source, Source::Given) && self.free.borrow().is_empty();
        if none_left {
            self.give_back(lost);
            return self.take(label, capacity_bytes, pace);
        }
        let drive = self.take(label, capacity_bytes, pace)?;
        self.give_back(lost);
        Ok(drive)
    }

    /// Takes back a drive that is no longer in use.
    pub(crate) fn give_back(&self, drive: LabDrive) {
        drive.metered.pull();
        self.free.borrow_mut().push(drive.raw);
    }

    /// Frees unused drives of other sizes.
    pub(crate) fn keep_only(&self, capacity_bytes: u64) {
        if !matches!(self.source, Source::Given) {
            self.free.borrow_mut().retain(|drive| drive.info().capacity_bytes == capacity_bytes);
        }
    }
}
