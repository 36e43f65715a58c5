//! Where an evaluation takes place: real drives in real time, or modelled ones in virtual time. The
//! same orchestration runs on both; this is all it sees of the difference.
//!
//! Files lose their name as soon as they are open: the space comes back when the process ends,
//! however it ends. Drives that were used are kept and given out again, as new drives to a caller
//! that gets them.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive, Pace, PacedDrive};
use stripewise_runtime::{CreateOptions, DriveOpener, OpenOptions, create_drive_file, process_cpu_ns};

use super::options::{DriveMaker, EvaluateError};
use crate::loads::metered::MeteredDrive;

/// Memory of returned buffers kept for reuse; what the loads keep in flight at once is about 150
/// MB.
const RETAINED_BYTES: usize = 192 << 20;

enum Source {
    Folder {
        opener: DriveOpener,
        folder: PathBuf,
    },
    /// Only those that were given, all in `free` at the start.
    Given,
    Model(Rc<dyn DriveMaker>),
}

/// Drives, buffers, clock.
pub(crate) struct World {
    pub context: Context,
    pub buffers: BufferPool,
    source: Source,
    /// Drives that no client uses.
    free: RefCell<Vec<Rc<dyn Drive>>>,
    made: Cell<u32>,
    direct_io: Cell<Option<bool>>,
}

/// A drive in use, and what is beneath its pace and meter.
#[derive(Clone)]
pub(crate) struct LabDrive {
    pub metered: Rc<MeteredDrive>,
    raw: Rc<dyn Drive>,
}

impl World {
    pub(crate) fn in_folder(context: Context, opener: DriveOpener, folder: PathBuf) -> Self {
        Self::of(context, BufferPool::new(RETAINED_BYTES), Source::Folder { opener, folder })
    }

    pub(crate) fn of_paths(
        context: Context,
        opener: &DriveOpener,
        paths: &[PathBuf],
    ) -> Result<Self, EvaluateError> {
        let world = Self::of(context, BufferPool::new(RETAINED_BYTES), Source::Given);
        for path in paths {
            let drive = opener.open(path, &OpenOptions::default())?;
            world.note_direct(drive.is_direct());
            // The first drive given is the first one taken.
            world.free.borrow_mut().insert(0, drive);
        }
        Ok(world)
    }

    /// Modelled drives; with `phantom` nothing is stored, so nothing can be verified either.
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

    /// What makes the drives, where they are modelled.
    pub(crate) fn maker(&self) -> Option<&dyn DriveMaker> {
        match &self.source {
            Source::Model(maker) => Some(&**maker),
            _ => None,
        }
    }

    /// Whether time is virtual.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Model(_))
    }

    /// Whether the page cache was passed by; `None` where there is none.
    pub(crate) fn direct_io(&self) -> Option<bool> {
        self.direct_io.get()
    }

    /// Processor seconds of this process so far; virtual time has no processor.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        (!self.is_virtual()).then(|| process_cpu_ns() as f64 / 1e9)
    }

    /// The size of drives that were given: the smallest one's.
    pub(crate) fn given_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Given => self.free.borrow().iter().map(|drive| drive.info().capacity_bytes).min(),
            _ => None,
        }
    }

    /// A drive of `capacity_bytes` (given ones may be larger), held to `pace`.
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
                // Whether or not it could be opened, the name is not needed. If taking it away
                // fails the file is left behind, which is told by its still being there.
                let _ = std::fs::remove_file(&path);
                let drive = opened?;
                self.note_direct(drive.is_direct());
                Ok(drive)
            }
        }
    }

    /// A drive to take the place of `lost`, which is given back: another one where there is
    /// another, else the same one.
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

    /// Takes a drive back that no client uses any more.
    pub(crate) fn give_back(&self, drive: LabDrive) {
        drive.metered.pull();
        self.free.borrow_mut().push(drive.raw);
    }

    /// Gives back the space of unused drives of other sizes.
    pub(crate) fn keep_only(&self, capacity_bytes: u64) {
        if !matches!(self.source, Source::Given) {
            self.free.borrow_mut().retain(|drive| drive.info().capacity_bytes == capacity_bytes);
        }
    }
}
