//! The open volumes of a pool: the array of each part, and the I/O path of each volume. For volumes
//! that could not be opened, the reason.
//!
//! A volume has one part, or one for each of its slices; during a conversion to another layout it
//! has those of both.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::manifest::clone_record::CloneRecord;
use crate::manifest::format::Manifest;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::volume::io::VolumeIo;
use crate::volume::log::LogArray;
use crate::volume::part_array::PartArray;
use crate::volume::sliced::Sliced;
use crate::volume::volume_array::VolumeArray;
use stripewise_array::{Array, ArrayError, ArrayHandle};

/// Open volumes, and the reasons why others are not open.
#[derive(Default)]
pub(crate) struct OpenVolumes {
    /// Arrays of the open parts, by the array's identity.
    arrays: RefCell<BTreeMap<Id, ArrayHandle>>,
    /// Logs of the open parts that are logs, by the part's identity.
    logs: RefCell<BTreeMap<Id, LogArray>>,
    /// I/O paths to these arrays, by the volume's identity.
    ios: RefCell<BTreeMap<VolumeId, Rc<VolumeIo>>>,
    /// Reasons why volumes could not be opened, by the volume's identity.
    failures: RefCell<BTreeMap<VolumeId, String>>,
}

impl OpenVolumes {
    /// The array of a part.
    pub(crate) fn array(&self, part: Id) -> Option<ArrayHandle> {
        self.arrays.borrow().get(&part).cloned()
    }

    /// The arrays of all parts.
    pub(crate) fn arrays(&self) -> Vec<ArrayHandle> {
        self.arrays.borrow().values().cloned().collect()
    }

    /// All parts, with their arrays.
    pub(crate) fn parts(&self) -> Vec<(Id, ArrayHandle)> {
        self.arrays.borrow().iter().map(|(part, array)| (*part, array.clone())).collect()
    }

    /// The log of a part that is one.
    pub(crate) fn log(&self, part: Id) -> Option<LogArray> {
        self.logs.borrow().get(&part).cloned()
    }

    /// The array or the log of a part.
    pub(crate) fn array_or_log(&self, part: Id) -> Option<PartArray> {
        let in_place = self.array(part).map(PartArray::InPlace);
        in_place.or_else(|| self.log(part).map(PartArray::Log))
    }

    /// All open logs.
    pub(crate) fn logs(&self) -> Vec<LogArray> {
        self.logs.borrow().values().cloned().collect()
    }

    /// Adds the log of a part.
    pub(crate) fn insert_log(&self, log: LogArray) {
        self.logs.borrow_mut().insert(log.part(), log);
    }

    /// Removes and abandons the logs of parts that are no longer in the manifest.
    pub(crate) fn end_logs_but(&self, manifest: &Manifest) -> Vec<LogArray> {
        let logs = &mut *self.logs.borrow_mut();
        let gone = logs.extract_if(.., |id, _| !manifest.has_part(*id));
        let ended: Vec<LogArray> = gone.map(|(_, log)| log).collect();
        ended.iter().for_each(LogArray::abandon);
        ended
    }

    /// Adds the array of a part.
    pub(crate) fn insert(&self, part: Id, array: ArrayHandle) {
        self.arrays.borrow_mut().insert(part, array);
    }

    /// Replaces the arrays of a volume that was opened, perhaps again; a new I/O path is made on
    /// demand.
    pub(crate) fn reopen(&self, volume: VolumeId, arrays: impl IntoIterator<Item = (Id, ArrayHandle)>) {
        self.end_io(volume);
        self.arrays.borrow_mut().extend(arrays);
    }

    /// Removes and abandons the arrays of parts that are no longer in the manifest.
    pub(crate) fn end_all_but(&self, manifest: &Manifest) -> Vec<ArrayHandle> {
        let mut ended = Vec::new();
        self.arrays.borrow_mut().retain(|id, array| {
            let is_there = manifest.has_part(*id);
            if !is_there {
                // Its contents no longer matter, except, after a conversion, to reads in flight.
                array.visit(Array::abandon);
                ended.push(array.clone());
            }
            is_there
        });
        ended
    }

    /// Forgets a deleted volume; the commit that deletes it ends its arrays.
    pub(crate) fn forget(&self, volume: VolumeId) {
        self.failures.borrow_mut().remove(&volume);
        self.end_io(volume);
    }

    /// The I/O path of a volume leads to its arrays no more.
    fn end_io(&self, volume: VolumeId) {
        if let Some(io) = self.ios.borrow_mut().remove(&volume) {
            io.direct.end();
        }
    }

    /// True if all parts of a volume are open.
    pub(crate) fn is_open(&self, record: &VolumeRecord) -> bool {
        let is_open =
            |part: Id| self.arrays.borrow().contains_key(&part) || self.logs.borrow().contains_key(&part);
        record.parts.iter().all(|part| is_open(part.id))
    }

    /// Records the outcome of opening a volume.
    pub(crate) fn note_opened(&self, volume: VolumeId, opened: Result<(), String>) {
        match opened {
            Ok(()) => self.failures.borrow_mut().remove(&volume),
            Err(why) => self.failures.borrow_mut().insert(volume, why),
        };
    }

    /// Reason why a volume is not open.
    pub(crate) fn failure(&self, volume: VolumeId) -> Option<String> {
        self.failures.borrow().get(&volume).cloned()
    }

    /// The I/O path to a volume's arrays, if all are open.
    pub(crate) fn io(&self, record: &VolumeRecord) -> Option<Rc<VolumeIo>> {
        if let Some(io) = self.ios.borrow().get(&record.id) {
            return Some(io.clone());
        }
        let in_place = |group: &[PartRecord]| {
            let arrays: Option<Vec<ArrayHandle>> = group.iter().map(|part| self.array(part.id)).collect();
            arrays.map(|arrays| Sliced::of_group(group, arrays, record.size_bytes))
        };
        let array = |group: &[PartRecord]| match group {
            [part] if part.log.is_some() => self.log(part.id).map(VolumeArray::Log),
            _ => in_place(group).map(VolumeArray::InPlace),
        };
        let arrays: Option<Vec<VolumeArray>> = record.groups().map(array).collect();
        let io = match (&arrays?[..], record.conversion) {
            ([array], _) => VolumeIo::plain(array.clone()),
            ([VolumeArray::InPlace(old), VolumeArray::InPlace(new)], Some(conversion)) => {
                let end_bytes = conversion.until_offset_bytes.unwrap_or(u64::MAX);
                VolumeIo::converting(old.clone(), new.clone(), conversion.next_offset_bytes, end_bytes)
            }
            _ => return None,
        };
        self.ios.borrow_mut().insert(record.id, io.clone());
        Some(io)
    }

    /// The I/O path of a clone in a volume's log, if that is open.
    pub(crate) fn clone_io(&self, record: &VolumeRecord, clone: &CloneRecord) -> Option<Rc<VolumeIo>> {
        if let Some(io) = self.ios.borrow().get(&clone.id) {
            return Some(io.clone());
        }
        let log = record.parts.iter().find_map(|part| self.log(part.id))?;
        let io = VolumeIo::plain(VolumeArray::Log(log.clone_in(clone.head).ok()?));
        self.ios.borrow_mut().insert(clone.id, io.clone());
        Some(io)
    }

    /// True if a conversion of the volume is being cancelled.
    pub(crate) fn is_conversion_cancelled(&self, record: &VolumeRecord) -> bool {
        let zones = self.ios.borrow().get(&record.id).and_then(|io| io.zones());
        zones.is_some_and(|zones| zones.is_cancelled.get())
    }

    /// Parts whose rows can be rebuilt. `looks`: the pool is open read-only; includes parts that
    /// could be rebuilt if it were writable.
    pub(crate) fn rebuildable(&self, looks: bool) -> BTreeSet<Id> {
        let logs = self.logs.borrow();
        let sound = logs.iter().filter(|(_, log)| looks || !log.is_protected());
        let sound: BTreeSet<Id> = sound.map(|(id, _)| *id).collect();
        &sound | &self.movable(looks)
    }

    /// Those of them whose rows can also be moved: no logs.
    pub(crate) fn movable(&self, looks: bool) -> BTreeSet<Id> {
        let arrays = self.arrays.borrow();
        let is_sound = |array: &Array| (looks || !array.is_protected()) && array.is_readable();
        let sound = arrays.iter().filter(|(_, array)| array.visit(is_sound));
        sound.map(|(id, _)| *id).collect()
    }

    /// Destages the journals of all volumes: writes in place what is acknowledged and only in
    /// journals.
    pub(crate) async fn destage(&self) -> Result<(), ArrayError> {
        for array in self.arrays().iter().filter(|array| array.visit(Array::pending_bytes) > 0) {
            array.call(async |array| array.destage().await).await?;
            array.call(async |array| array.flush_internally().await).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::{MIB, testing};

    #[test]
    fn failed_volume_keeps_its_reason_until_open_or_gone() {
        let mut manifest = testing::pool(&[64; 4], MIB);
        testing::add_volume(&mut manifest, 55, Level::Raid5, 4, 9);
        let (volumes, record) = (OpenVolumes::default(), &manifest.volumes[0]);
        volumes.note_opened(record.id, Err("a drive is missing".to_owned()));
        assert_eq!(volumes.failure(record.id).as_deref(), Some("a drive is missing"));
        assert!(!volumes.is_open(record) && volumes.io(record).is_none());
        volumes.note_opened(record.id, Ok(()));
        assert_eq!(volumes.failure(record.id), None);
        volumes.note_opened(record.id, Err("again".to_owned()));
        volumes.forget(record.id);
        assert_eq!(volumes.failure(record.id), None);
        assert!(volumes.rebuildable(true).is_empty() && volumes.end_all_but(&manifest).is_empty());
    }
}
