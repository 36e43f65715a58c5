//! Making and opening logs from the pool's record.
//!
//! Faults expected: drives that are missing or hold nothing current, roots that no drive has,
//! drives that fail on the way.

use std::rc::Rc;

use stripewise_array::ArrayError;
use stripewise_layout::MemberSet;
use stripewise_log::{Column, Columns, Log, LogInit, LogOptions, SlotRoots, Stretch};

use crate::manifest::ids::Id;
use crate::manifest::volume_record::{LogRecord, PartRecord, VolumeRecord};
use crate::space::addresses;
use crate::volume::log::roots::PoolRoots;
use crate::volume::log::{LogArray, array_error};
use crate::{Inner, PoolError};
use stripewise_array::rows::SlotState;

/// Memory of a log unless set otherwise, bytes.
const MEMORY_BYTES: u64 = 64 << 20;

/// A log's parts before it is made or opened.
struct Prepared {
    init: LogInit,
    roots: Rc<PoolRoots>,
    options: LogOptions,
}

impl PartRecord {
    /// Bytes of each column.
    pub(crate) fn column_bytes(&self, slab_bytes: u64) -> u64 {
        self.rows.rows().saturating_mul(slab_bytes)
    }

    /// Columns of which something is not current.
    pub(crate) fn lacking_columns(&self) -> MemberSet {
        let is_lacking =
            |column: &usize| self.rows.runs().any(|run| run.places[*column].state != SlotState::Active);
        (0..self.shape.width).filter(is_lacking).collect()
    }

    /// A number that distinguishes the segments of this log from those of others.
    fn log_identity(&self) -> u64 {
        (self.id.0 >> 64) as u64 ^ self.id.0 as u64
    }
}

impl LogRecord {
    /// Options for opening the log.
    pub(crate) fn options(&self, memory_bytes: Option<u64>) -> LogOptions {
        LogOptions {
            segment_bytes: self.segment_bytes,
            reserve: f64::from(self.reserve_percent) / 100.0,
            memory_bytes: memory_bytes.unwrap_or(MEMORY_BYTES),
            ..LogOptions::default()
        }
    }
}

impl Inner {
    /// Makes the log of a volume that the manifest does not name yet.
    pub(crate) async fn create_log(
        &self,
        record: &VolumeRecord,
        part: &PartRecord,
        log: &LogRecord,
    ) -> Result<LogArray, PoolError> {
        let Prepared { init, options, .. } = self.prepare_log(part, log)?;
        let (identity, size_bytes) = (part.log_identity(), record.size_bytes);
        let log = Log::create(&self.context, &self.buffers, init, identity, size_bytes, options).await;
        Ok(LogArray::new(self, part.id, log.map_err(array_error)?))
    }

    /// Opens the log of a volume.
    pub(crate) async fn open_log(
        &self,
        record: &VolumeRecord,
        part: &PartRecord,
        log: &LogRecord,
    ) -> Result<LogArray, String> {
        let text = |error: ArrayError| error.to_string();
        let Prepared { mut init, roots, options } =
            self.prepare_log(part, log).map_err(|error| error.to_string())?;
        let columns = init.columns.clone();
        let found = roots.slots.load(init.missing).await;
        if found.roots.is_empty() {
            return Err("the roots of its log cannot be read on any drive".to_owned());
        }
        if !self.lifecycle.is_read_only() {
            roots.record(found.missing).await.map_err(|error| error.to_string())?;
        }
        init.missing = found.missing;
        let opened = Log::open(&self.context, &self.buffers, init, &found.roots, options).await;
        let opened = match opened {
            Ok(log) => LogArray::new(self, part.id, log),
            Err(error) => {
                columns.end().await;
                return Err(text(array_error(error)));
            }
        };
        if opened.log().capacity_bytes() != record.size_bytes {
            opened.end().await;
            return Err("its log is of another size than its record says".to_owned());
        }
        if self.lifecycle.is_read_only() {
            opened.log().protect();
        }
        Ok(opened)
    }

    fn prepare_log(&self, part: &PartRecord, log: &LogRecord) -> Result<Prepared, PoolError> {
        let slab_bytes = self.manifest.borrow().slab_bytes;
        let all: Vec<Column> = (0..part.shape.width).map(|column| self.column(part, column)).collect();
        let lacking = part.lacking_columns();
        let is_missing = |column: &usize| lacking.contains(*column) || all[*column].member.is_none();
        let missing: MemberSet = (0..all.len()).filter(is_missing).collect();
        let columns = Columns::new(all);
        let slots = SlotRoots::new(columns.clone(), part.log_identity(), part.shape, 0, log.slot_bytes)
            .map_err(array_error)?;
        let roots = Rc::new(PoolRoots::new(self.me.clone(), part.id, columns.clone(), slots));
        let space = log.sizes().space(part.shape, part.column_bytes(slab_bytes));
        let init = LogInit { space, columns, missing, roots: roots.clone() };
        Ok(Prepared { init, roots, options: log.options(self.options.log_memory_bytes) })
    }

    /// The drive and place of a log's column.
    fn column(&self, part: &PartRecord, column: usize) -> Column {
        let manifest = self.manifest.borrow();
        let number = part.rows.place(0, column).map(|place| place.drive);
        let capacity_bytes =
            number.and_then(|number| manifest.drive(number)).map_or(0, |drive| drive.capacity_bytes);
        let base_bytes = addresses::slabs_base_bytes(capacity_bytes, manifest.slab_bytes);
        let stretches = stretches(part, column, base_bytes, manifest.slab_bytes);
        Column { member: number.and_then(|number| self.drives.working(&manifest, number)), stretches }
    }

    /// Has a log that was just made or opened follow what was recorded since.
    pub(crate) fn follow_record(&self, log: &LogArray) {
        let manifest = self.manifest.borrow();
        let Some(part) = manifest.parts().find(|part| part.id == log.part()) else { return };
        let out = manifest.drives.iter().filter(|drive| !drive.is_online()).map(|drive| drive.number);
        self.tell_log(log, part, out);
    }

    /// Notifies a log of drives that are out, and of places that were given to columns that are to
    /// be rebuilt.
    pub(crate) fn tell_log(&self, log: &LogArray, part: &PartRecord, out: impl Iterator<Item = u32>) {
        out.for_each(|number| log.drive_gone(part, number));
        for column in 0..part.shape.width {
            let is_to_fill =
                part.rows.place(0, column).is_some_and(|place| place.state == SlotState::Rebuilding);
            if is_to_fill && log.log().missing().contains(column) {
                let new = self.column(part, column);
                if !log.log().columns().has(column, &new) {
                    log.log().replace_column(column, new);
                }
            }
        }
    }

    /// The open log of a part.
    pub(crate) fn log_of(&self, part: Id) -> Option<LogArray> {
        self.volumes.log(part)
    }
}

/// Stretches of a drive that a column consists of; neighbours joined.
fn stretches(part: &PartRecord, column: usize, base_bytes: u64, slab_bytes: u64) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for run in part.rows.runs() {
        let start_bytes = base_bytes + u64::from(run.places[column].slab) * slab_bytes;
        let length_bytes = run.rows * slab_bytes;
        match stretches.last_mut() {
            Some(last) if last.start_bytes + last.length_bytes == start_bytes => {
                last.length_bytes += length_bytes
            }
            _ => stretches.push(Stretch { start_bytes, length_bytes }),
        }
    }
    stretches
}
