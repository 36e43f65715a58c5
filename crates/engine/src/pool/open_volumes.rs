//! The volumes of a pool that are open: the array of each part, and the way to them for requests.
//! Of the others the reason why they are not.
//!
//! A volume has one part; while it is converted to another layout it has two.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::array::Array;
use crate::error::ArrayError;
use crate::pool::manifest::format::Manifest;
use crate::pool::manifest::ids::{Id, VolumeId};
use crate::pool::manifest::volume_record::VolumeRecord;
use crate::pool::volume::io::VolumeIo;

/// All volumes that are open.
#[derive(Default)]
pub(in crate::pool) struct OpenVolumes {
    /// Parts of volumes that could be opened, by the array's identity.
    arrays: RefCell<BTreeMap<Id, Array>>,
    /// The way to these for requests, by the volume's identity.
    ios: RefCell<BTreeMap<VolumeId, Rc<VolumeIo>>>,
    /// Why the others could not, by the volume's identity.
    failures: RefCell<BTreeMap<VolumeId, String>>,
}

impl OpenVolumes {
    /// The array of a part.
    pub(in crate::pool) fn array(&self, part: Id) -> Option<Array> {
        self.arrays.borrow().get(&part).cloned()
    }

    /// The arrays of all parts.
    pub(in crate::pool) fn arrays(&self) -> Vec<Array> {
        self.arrays.borrow().values().cloned().collect()
    }

    /// All parts, with their arrays.
    pub(in crate::pool) fn parts(&self) -> Vec<(Id, Array)> {
        self.arrays.borrow().iter().map(|(part, array)| (*part, array.clone())).collect()
    }

    /// A part has an array.
    pub(in crate::pool) fn insert(&self, part: Id, array: Array) {
        self.arrays.borrow_mut().insert(part, array);
    }

    /// A volume was opened, perhaps again: from now on these are its arrays, reached by a new way.
    pub(in crate::pool) fn reopen(&self, volume: VolumeId, arrays: impl IntoIterator<Item = (Id, Array)>) {
        self.ios.borrow_mut().remove(&volume);
        self.arrays.borrow_mut().extend(arrays);
    }

    /// Takes out and abandons the arrays of parts that the record does not have any more.
    pub(in crate::pool) fn end_all_but(&self, manifest: &Manifest) -> Vec<Array> {
        let mut ended = Vec::new();
        self.arrays.borrow_mut().retain(|id, array| {
            let is_there = manifest.has_part(*id);
            if !is_there {
                // Nothing that it holds matters any more; after a conversion, but for reads that
                // are under way.
                array.abandon();
                ended.push(array.clone());
            }
            is_there
        });
        ended
    }

    /// A volume is no more; its arrays are ended by the commit that says so.
    pub(in crate::pool) fn forget(&self, volume: VolumeId) {
        self.failures.borrow_mut().remove(&volume);
        self.ios.borrow_mut().remove(&volume);
    }

    /// Whether all parts of a volume have an array.
    pub(in crate::pool) fn is_open(&self, record: &VolumeRecord) -> bool {
        record.parts.iter().all(|part| self.arrays.borrow().contains_key(&part.id))
    }

    /// What came of opening a volume.
    pub(in crate::pool) fn note_opened(&self, volume: VolumeId, opened: Result<(), String>) {
        match opened {
            Ok(()) => self.failures.borrow_mut().remove(&volume),
            Err(why) => self.failures.borrow_mut().insert(volume, why),
        };
    }

    /// Why a volume is not open.
    pub(in crate::pool) fn failure(&self, volume: VolumeId) -> Option<String> {
        self.failures.borrow().get(&volume).cloned()
    }

    /// The way to the arrays of a volume, where these are open.
    pub(in crate::pool) fn io(&self, record: &VolumeRecord) -> Option<Rc<VolumeIo>> {
        if let Some(io) = self.ios.borrow().get(&record.id) {
            return Some(io.clone());
        }
        let arrays: Option<Vec<Array>> = record.parts.iter().map(|part| self.array(part.id)).collect();
        let io = match (&arrays?[..], record.conversion) {
            ([array], _) => VolumeIo::plain(array.clone()),
            ([old, new], Some(conversion)) => {
                let end_bytes = conversion.until_offset_bytes.unwrap_or(u64::MAX);
                VolumeIo::converting(old.clone(), new.clone(), conversion.next_offset_bytes, end_bytes)
            }
            _ => return None,
        };
        self.ios.borrow_mut().insert(record.id, io.clone());
        Some(io)
    }

    /// Whether a conversion of the volume is being cancelled this moment.
    pub(in crate::pool) fn is_conversion_cancelled(&self, record: &VolumeRecord) -> bool {
        let zones = self.ios.borrow().get(&record.id).and_then(|io| io.zones());
        zones.is_some_and(|zones| zones.is_cancelled.get())
    }

    /// Parts whose rows can be rebuilt. `looks`: the pool is only read, and those are meant that
    /// could be if it were not.
    pub(in crate::pool) fn rebuildable(&self, looks: bool) -> BTreeSet<Id> {
        let arrays = self.arrays.borrow();
        let sound =
            arrays.iter().filter(|(_, array)| (looks || !array.is_protected()) && array.is_readable());
        sound.map(|(id, _)| *id).collect()
    }

    /// Puts in place what is acknowledged and only in journals, of all volumes.
    pub(in crate::pool) async fn destage(&self) -> Result<(), ArrayError> {
        for array in self.arrays().iter().filter(|array| array.pending_bytes() > 0) {
            array.destage().await?;
            array.flush_internally().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::pool::{MIB, testing};

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
