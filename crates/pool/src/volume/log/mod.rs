//! Log volumes (`stripewise-log`) in a pool: the array of a part that never overwrites.
//!
//! A column of a log lies on one drive, in the slabs of its rows. The log sees each column as
//! contiguous; its roots are in two slots at the beginning. The pool's record says which columns
//! hold nothing current, as for arrays in place, and a log that leaves a drive out has the pool
//! exclude it ([`roots`]).
//!
//! The jobs of arrays in place do not know logs: a log is in a list of its own ([`OpenVolumes`]),
//! so none of its rows is moved by them. `jobs/log_rebuild.rs` fills columns of logs that were
//! given another place, and `jobs/log_scrub.rs` scrubs them.
//!
//! Faults expected: drives that fail or are excluded for another volume's sake, file systems under
//! drives that are full, volumes that are deleted while requests are in flight.
//!
//! [`OpenVolumes`]: crate::open_volumes::OpenVolumes

pub(crate) mod open;
pub(crate) mod roots;
pub(crate) mod status;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_array::{ArrayError, BlockArray, Extent};
use stripewise_drive::{Buffer, BufferPool, DriveErrorKind};
use stripewise_layout::MemberSet;
use stripewise_log::{BLOCK_BYTES, Log, LogError};

use crate::Inner;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;

/// An open log. Clones are the same log.
#[derive(Clone)]
pub(crate) struct LogArray(Rc<Opened>);

struct Opened {
    pool: Weak<Inner>,
    part: Id,
    log: Log,
    closed_in_order: Arc<AtomicBool>,
    is_abandoned: Cell<bool>,
    /// Snapshots of it that were opened.
    snapshots: RefCell<Vec<Weak<Opened>>>,
}

impl LogArray {
    pub(crate) fn new(pool: &Inner, part: Id, log: Log) -> Self {
        let (closed_in_order, is_abandoned) = (Arc::default(), Cell::new(false));
        let (pool, snapshots) = (pool.me.clone(), RefCell::default());
        Self(Rc::new(Opened { pool, part, log, closed_in_order, is_abandoned, snapshots }))
    }

    /// Identity of the part.
    pub(crate) fn part(&self) -> Id {
        self.0.part
    }

    /// True for another handle of the same volume.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.part(), self.log().number()) == (other.part(), other.log().number())
    }

    /// The log itself.
    pub(crate) fn log(&self) -> &Log {
        &self.0.log
    }

    /// True if it takes no writes.
    pub(crate) fn is_protected(&self) -> bool {
        self.0.log.is_snapshot() || self.0.log.failure().is_some()
    }

    /// A snapshot of it, to be read.
    pub(crate) fn snapshot(&self, name: &str) -> Result<Self, LogError> {
        let Opened { pool, part, log, .. } = &*self.0;
        let (closed_in_order, is_abandoned) = (Arc::default(), Cell::new(false));
        let (pool, part, log, snapshots) = (pool.clone(), *part, log.snapshot(name)?, RefCell::default());
        let new = Rc::new(Opened { pool, part, log, closed_in_order, is_abandoned, snapshots });
        let mut open = self.0.snapshots.borrow_mut();
        open.retain(|other| other.strong_count() > 0);
        open.push(Rc::downgrade(&new));
        Ok(Self(new))
    }

    /// A clone in it. It is closed with it.
    pub(crate) fn clone_in(&self, head: u32) -> Result<Self, LogError> {
        let Opened { pool, part, log, closed_in_order, .. } = &*self.0;
        let (log, closed_in_order) = (log.volume(head)?, closed_in_order.clone());
        let (pool, part, is_abandoned, snapshots) =
            (pool.clone(), *part, Cell::new(false), RefCell::default());
        Ok(Self(Rc::new(Opened { pool, part, log, closed_in_order, is_abandoned, snapshots })))
    }

    /// True while one of its snapshots is open.
    pub(crate) fn has_open(&self, name: &str) -> bool {
        let Ok(number) = self.0.log.snapshot(name).map(|snapshot| snapshot.snapshot_number()) else {
            return false;
        };
        let open = self.0.snapshots.borrow();
        open.iter().filter_map(Weak::upgrade).any(|other| other.log.snapshot_number() == number)
    }

    /// A drive is out, and the record says so. If the part cannot do without it, nothing is
    /// written any more, and what the drive holds stays current.
    pub(crate) fn drive_gone(&self, part: &PartRecord, number: u32) {
        let columns = part.column_drives().into_iter().enumerate();
        let gone: MemberSet =
            columns.filter(|(_, drive)| *drive == number).map(|(column, _)| column).collect();
        if gone.is_empty() {
            return;
        }
        if part.needs(number) {
            self.0.log.protect();
        }
        self.0.log.leave_out(gone);
    }

    /// Makes everything durable, and ends it.
    pub(crate) async fn close(&self) -> Result<(), ArrayError> {
        let was_protected = matches!(self.0.log.failure(), Some(LogError::Protected));
        match self.0.log.close().await {
            // Acknowledged writes may have been lost with the drives before it was protected.
            Err(LogError::Protected) if was_protected => return Ok(()),
            closed => closed.map_err(array_error)?,
        }
        self.0.closed_in_order.store(true, Ordering::Release);
        Ok(())
    }

    /// Its contents matter no more: another volume may get its space once this has ended.
    pub(crate) fn abandon(&self) {
        self.0.is_abandoned.set(true);
        self.0.log.abandon();
    }

    /// Ends it without writing anything, and waits until nothing of it is in flight.
    pub(crate) async fn end(&self) {
        self.0.log.end().await;
    }

    /// Set once it was closed with everything durable.
    pub(crate) fn closed_in_order(&self) -> Arc<AtomicBool> {
        self.0.closed_in_order.clone()
    }

    fn result<T>(&self, result: Result<T, LogError>) -> Result<T, ArrayError> {
        let result = result.map_err(array_error);
        if let (Err(ArrayError::FileSystemFull { drive }), Some(pool)) = (&result, self.0.pool.upgrade()) {
            pool.news.note_full(drive);
        }
        result
    }
}

/// A log's error as clients of any volume know it.
pub(crate) fn array_error(error: LogError) -> ArrayError {
    match error {
        LogError::OutOfRange { offset_bytes, length_bytes, capacity_bytes } => {
            ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes }
        }
        LogError::Misaligned { offset_bytes, length_bytes } => {
            ArrayError::Misaligned { offset_bytes, length_bytes, unit_bytes: BLOCK_BYTES }
        }
        LogError::NoSpace { live_blocks, limit_blocks, snapshots } => {
            let kept = match snapshots {
                0 => String::new(),
                1 => ", with those that a snapshot keeps".to_owned(),
                count => format!(", with those that {count} snapshots keep"),
            };
            ArrayError::NoSpace(format!(
                "{live_blocks} of {limit_blocks} blocks of the log volume are in use{kept}"
            ))
        }
        LogError::Drive(error) if error.kind == DriveErrorKind::NoSpace => {
            ArrayError::FileSystemFull { drive: error.drive.to_string() }
        }
        LogError::Drive(error) => ArrayError::Drive(error),
        LogError::ReadOnly => ArrayError::ReadOnly,
        LogError::SnapshotGone | LogError::NoSuchClone => ArrayError::Closed,
        LogError::Lost { .. }
        | LogError::NoSuchSnapshot { .. }
        | LogError::SnapshotExists { .. }
        | LogError::SnapshotName { .. }
        | LogError::TooManySnapshots { .. }
        | LogError::TooManyBranches
        | LogError::Invalid(_)
        | LogError::TooSmall { .. }
        | LogError::Roots(_)
        | LogError::Replaced { .. } => ArrayError::Log(error.to_string()),
        LogError::Protected => ArrayError::Protected,
        LogError::Closed => ArrayError::Closed,
        LogError::Layout(error) => ArrayError::Layout(error),
    }
}

impl BlockArray for LogArray {
    fn capacity_bytes(&self) -> u64 {
        self.0.log.capacity_bytes()
    }

    fn buffers(&self) -> &BufferPool {
        self.0.log.buffers()
    }

    fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.result(self.0.log.check_range(offset_bytes, length_bytes))
    }

    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        self.result(self.0.log.read(offset_bytes, length).await)
    }

    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        self.result(self.0.log.write(offset_bytes, data, fua).await)
    }

    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.result(self.0.log.write_zeroes(offset_bytes, length_bytes, false).await)
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.result(self.0.log.discard(offset_bytes, length_bytes).await)
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        self.result(self.0.log.flush().await)
    }

    async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        self.0.log.flush().await.map_or(start_bytes, |()| end_bytes)
    }

    /// The map may be on the drives, so all of the range counts as written.
    fn extents(&self, offset_bytes: u64, length_bytes: u64, _: usize) -> Result<Vec<Extent>, ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        let extent = Extent { length_bytes, written: true };
        Ok(Some(extent).filter(|extent| extent.length_bytes > 0).into_iter().collect())
    }

    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        Ok(length_bytes == 0)
    }

    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        Ok(true)
    }

    fn is_abandoned(&self) -> bool {
        self.0.is_abandoned.get()
    }

    fn refused_flushes(&self) -> u64 {
        0
    }

    /// A log that refuses a flush takes no more writes, so nothing is left to report.
    fn take_over_refusals(&self, _: &Self) {}

    fn journal_fill(&self) -> Option<(u64, u64)> {
        None
    }
}
