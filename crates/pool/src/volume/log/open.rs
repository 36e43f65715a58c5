//! Making and opening logs from the pool's record.
//!
//! Faults expected: drives that are missing or hold nothing current, roots that no drive has,
//! drives that fail on the way.

use std::rc::Rc;

use stripewise_array::{ArrayError, Member};
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
    drives: Vec<u32>,
    options: LogOptions,
}

impl PartRecord {
    /// Bytes of each column.
    pub(crate) fn column_bytes(&self, slab_bytes: u64) -> u64 {
        self.rows.rows().saturating_mul(slab_bytes)
    }

    /// Drive of each column of a log: one for all rows.
    fn column_drives(&self) -> Vec<u32> {
        let first = self.rows.runs().next();
        first.map_or_else(Vec::new, |run| run.places.iter().map(|place| place.drive).collect())
    }

    /// Columns of which something is not current.
    fn lacking_columns(&self) -> MemberSet {
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
        let Prepared { init, drives, options, .. } = self.prepare_log(part, log)?;
        let (identity, size_bytes) = (part.log_identity(), record.size_bytes);
        let log = Log::create(&self.context, &self.buffers, init, identity, size_bytes, options).await;
        Ok(LogArray::new(self, part.id, log.map_err(array_error)?, drives))
    }

    /// Opens the log of a volume.
    pub(crate) async fn open_log(
        &self,
        record: &VolumeRecord,
        part: &PartRecord,
        log: &LogRecord,
    ) -> Result<LogArray, String> {
        let text = |error: ArrayError| error.to_string();
        let Prepared { mut init, roots, drives, options } =
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
            Ok(log) => LogArray::new(self, part.id, log, drives),
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
        let drives = part.column_drives();
        let members: Vec<Option<Rc<Member>>> =
            drives.iter().map(|&number| self.working_member(number)).collect();
        let lacking = part.lacking_columns();
        let missing: MemberSet = (0..drives.len())
            .filter(|&column| lacking.contains(column) || members[column].is_none())
            .collect();
        let column = |(index, member): (usize, &Option<Rc<Member>>)| {
            let capacity_bytes =
                self.manifest.borrow().drive(drives[index]).map_or(0, |drive| drive.capacity_bytes);
            let base_bytes = addresses::slabs_base_bytes(capacity_bytes, slab_bytes);
            Column { member: member.clone(), stretches: stretches(part, index, base_bytes, slab_bytes) }
        };
        let columns = Columns::new(members.iter().enumerate().map(column));
        let slots = SlotRoots::new(columns.clone(), part.log_identity(), part.shape, 0, log.slot_bytes)
            .map_err(array_error)?;
        let labels = members.iter().map(|member| member.as_ref().map(|member| member.label().clone()));
        let roots = Rc::new(PoolRoots { pool: self.me.clone(), slots, labels: labels.collect() });
        let space = log.sizes().space(part.shape, part.column_bytes(slab_bytes));
        let init = LogInit { space, columns, missing, roots: roots.clone() };
        Ok(Prepared { init, roots, drives, options: log.options(self.options.log_memory_bytes) })
    }

    /// Drives that were excluded while a log was being made or opened.
    pub(crate) fn leave_out_of_log(&self, log: &LogArray) {
        let manifest = self.manifest.borrow();
        let Some(part) = manifest.parts().find(|part| part.id == log.part()) else { return };
        for drive in manifest.drives.iter().filter(|drive| !drive.is_online()) {
            log.drive_gone(part, drive.number);
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
