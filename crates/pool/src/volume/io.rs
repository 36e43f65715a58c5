//! The way of a volume's requests to its arrays (`volume/sliced.rs`), or, while it is converted to
//! another layout, to those of the right layout (`volume/zones.rs`). Requests are counted here,
//! from their begin to their end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_array::mutation::{self, Mutation};
use stripewise_drive::{Buffer, Context};

use crate::status::load::{InFlight, LoadCounter, RequestKind, VolumeLoad};
use crate::volume::Volume;
use crate::volume::direct::DirectGate;
use crate::volume::log::LogArray;
use crate::volume::sliced::Sliced;
use crate::volume::volume_array::VolumeArray;
use crate::volume::write_epochs::WriteEpochs;
use crate::volume::zones::{Clearing, Zones};
use stripewise_array::{ArrayError, BlockArray, Extent};

/// State shared by all handles of an open volume.
pub(crate) struct VolumeIo {
    /// The array of the whole volume while it is not converted.
    array: RefCell<VolumeArray>,
    zones: RefCell<Option<Rc<Zones>>>,
    writes: WriteEpochs,
    pub load: LoadCounter,
    /// Requests of other threads.
    pub direct: DirectGate,
    /// True while a stream is received.
    pub receives: Cell<bool>,
    /// The volume has, or is about to get, a part of a stream: only its receiver uses it.
    pub in_part: Cell<bool>,
}

impl Volume {
    /// Reads; whatever was never written is zeros.
    pub async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        let in_flight = self.begin_request();
        let result = match (self.check_in_part(), self.io.zones()) {
            (Err(error), _) => Err(error),
            (_, None) => {
                let array = self.io.array();
                array.read(offset_bytes, length).await
            }
            (_, Some(zones)) => Box::pin(zones.read(offset_bytes, length)).await,
        };
        in_flight.ended(RequestKind::Read, length as u64, &result);
        result
    }

    /// Writes; durable when this ends if `fua`, else after the next flush.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        let length_bytes = data.len() as u64;
        let in_flight = self.begin_request();
        let result = match (self.check_in_part(), self.io.zones()) {
            (Err(error), _) => Err(error),
            (_, None) => {
                let (array, _counted) = (self.io.array(), self.io.writes.count());
                array.write(offset_bytes, data, fua).await
            }
            (_, Some(zones)) => {
                let _counted = self.io.writes.count();
                Box::pin(zones.write(offset_bytes, data, fua)).await
            }
        };
        let result = if fua { self.acknowledged(result).await } else { result };
        in_flight.ended(RequestKind::Write, length_bytes, &result);
        result
    }

    /// Makes every acknowledged write durable.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        let in_flight = self.begin_request();
        let mut asked = self.io.arrays();
        let mut result = self.flush_arrays().await;
        while matches!(result, Err(ArrayError::Protected | ArrayError::Closed)) && self.has_moved_from(&asked)
        {
            asked = self.io.arrays();
            result = self.flush_arrays().await;
        }
        let result = self.acknowledged(result).await;
        in_flight.ended(RequestKind::Flush, 0, &result);
        result
    }

    /// Acknowledges durable writes only while the drives belong to this session.
    async fn acknowledged(&self, result: Result<(), ArrayError>) -> Result<(), ArrayError> {
        match result {
            Ok(()) => self.pool.0.session.before_acknowledgement().await,
            error => error,
        }
    }

    async fn flush_arrays(&self) -> Result<(), ArrayError> {
        match self.io.zones() {
            None => {
                let array = self.io.array();
                array.flush().await
            }
            Some(zones) => zones.flush().await,
        }
    }

    /// Number of flushes that drives have refused and that lost writes, of its present arrays.
    pub fn refused_flushes(&self) -> u64 {
        self.io.arrays().iter().map(VolumeArray::refused_flushes).sum()
    }

    /// True if a conversion has ended since these were the volume's arrays, and taken what they had
    /// to another one.
    fn has_moved_from(&self, asked: &[VolumeArray]) -> bool {
        let was_ended = |array: &VolumeArray| array.is_abandoned();
        asked.iter().all(was_ended) && !self.io.arrays().iter().all(was_ended)
    }

    /// The range's contents are no longer needed; reading it gives zeros or what was there. A thin
    /// volume gives rows back of which nothing is needed any more.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.clear(RequestKind::Discard, Clearing::Discard, offset_bytes, length_bytes).await
    }

    /// The range reads as zeros afterwards; durable after the next flush.
    pub async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.clear(RequestKind::WriteZeroes, Clearing::WriteZeroes, offset_bytes, length_bytes).await
    }

    async fn clear(
        &self,
        kind: RequestKind,
        how: Clearing,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), ArrayError> {
        let in_flight = self.begin_request();
        let result = match (self.check_in_part(), self.io.zones()) {
            (Err(error), _) => Err(error),
            (_, None) => {
                let (array, _counted) = (self.io.array(), self.io.writes.count());
                let cleared = how.execute(&array, offset_bytes, length_bytes).await;
                if let (Ok(()), Some(array)) = (&cleared, array.in_place()) {
                    self.pool.0.release_unused(self.id, array, offset_bytes, length_bytes).await;
                }
                cleared
            }
            (_, Some(zones)) => {
                let _counted = self.io.writes.count();
                let release = async |array: &Sliced, start_bytes, length_bytes| {
                    self.pool.0.release_unused(self.id, array, start_bytes, length_bytes).await;
                };
                Box::pin(zones.clear(how, offset_bytes, length_bytes, release)).await
            }
        };
        in_flight.ended(kind, length_bytes, &result);
        result
    }

    /// Refuses requests to a volume that receives a stream, also of those who opened it before.
    fn check_in_part(&self) -> Result<(), ArrayError> {
        match self.io.in_part.get() && !self.receives {
            true => Err(ArrayError::Log("the volume is receiving a stream".to_owned())),
            false => Ok(()),
        }
    }

    fn begin_request(&self) -> InFlight<'_> {
        self.io.load.begin(self.pool.context())
    }

    /// Makes durable what can be, and gives up to where from `start_bytes` on all that was
    /// acknowledged is durable: to `end_bytes`, or less where drives refuse. Of a volume that is
    /// being converted nothing is said.
    pub async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        let until_bytes = match &self.io.arrays()[..] {
            [array] => array.durable_until(start_bytes, end_bytes).await,
            _ => start_bytes,
        };
        self.acknowledged(Ok(())).await.map_or(start_bytes, |()| until_bytes)
    }

    /// Waits until every write now in flight has ended.
    pub(crate) async fn until_writes_ended(&self) {
        let _none_new = self.hold_direct().await;
        self.io.until_writes_ended().await;
    }

    /// Stretches of a range that were ever written, from its beginning on, at most `most` (at least
    /// one).
    pub fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Extent>, ArrayError> {
        match self.io.zones() {
            None => self.io.array().extents(offset_bytes, length_bytes, most),
            Some(zones) => zones.extents(offset_bytes, length_bytes, most),
        }
    }

    /// True if a range reads as zeros because nothing was ever written there.
    pub fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.ask_all(offset_bytes, length_bytes, BlockArray::is_unwritten, BlockArray::is_unwritten)
    }

    /// True if [`Self::write_zeroes`] of a range writes no zeros, so that it is much faster than
    /// writing them.
    pub fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.ask_all(offset_bytes, length_bytes, BlockArray::zeroes_at_once, BlockArray::zeroes_at_once)
    }

    fn ask_all(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        question: impl Fn(&Sliced, u64, u64) -> Result<bool, ArrayError>,
        of_log: impl Fn(&LogArray, u64, u64) -> Result<bool, ArrayError>,
    ) -> Result<bool, ArrayError> {
        match (self.io.zones(), self.io.array()) {
            (Some(zones), _) => zones.ask_all(offset_bytes, length_bytes, question),
            (None, VolumeArray::InPlace(array)) => question(&array, offset_bytes, length_bytes),
            (None, VolumeArray::Log(log)) => of_log(&log, offset_bytes, length_bytes),
        }
    }
}

impl VolumeIo {
    pub(crate) fn plain(array: VolumeArray) -> Rc<Self> {
        Rc::new(Self {
            array: RefCell::new(array),
            zones: RefCell::default(),
            writes: WriteEpochs::default(),
            load: LoadCounter::default(),
            direct: DirectGate::default(),
            receives: Cell::default(),
            in_part: Cell::default(),
        })
    }

    /// State of a volume whose conversion has come to `committed`, and goes to `end_bytes`.
    pub(crate) fn converting(old: Sliced, new: Sliced, committed: u64, end_bytes: u64) -> Rc<Self> {
        let io = Self::plain(VolumeArray::InPlace(old));
        io.begin_between(new, committed, end_bytes);
        io
    }

    /// From now on requests go to both arrays, as far as each has what they want.
    pub(crate) fn begin(&self, new: Sliced) {
        self.begin_between(new, 0, u64::MAX);
    }

    /// The conversion was cancelled where it has come: the old array is the one to go to, the new
    /// one the one to leave. Where it has come nowhere there is nothing to leave.
    pub(crate) fn turn_back(&self) {
        let Some(zones) = self.zones.take() else { return };
        *self.array.borrow_mut() = VolumeArray::InPlace(zones.old.clone());
        if zones.committed.get() > 0 {
            *self.array.borrow_mut() = VolumeArray::InPlace(zones.new.clone());
            self.begin_between(zones.old.clone(), 0, zones.committed.get());
        } else {
            self.direct.begin_again();
        }
    }

    fn begin_between(&self, new: Sliced, committed: u64, end_bytes: u64) {
        let old = self.array.borrow().in_place().expect("only volumes in place are converted").clone();
        self.writes.turn();
        self.direct.end();
        *self.zones.borrow_mut() = Some(Rc::new(Zones::new(old, new, committed, end_bytes)));
    }

    /// The new array has everything: from now on it is the volume's only one.
    pub(crate) fn end(&self) {
        if let Some(zones) = self.zones.take() {
            zones.new.take_over_refusals(&zones.old);
            *self.array.borrow_mut() = VolumeArray::InPlace(zones.new.clone());
            self.direct.begin_again();
        }
    }

    pub(crate) fn zones(&self) -> Option<Rc<Zones>> {
        self.zones.borrow().clone()
    }

    /// The array that has all of the volume, or will have it after the conversion.
    pub(crate) fn array(&self) -> VolumeArray {
        match &*self.zones.borrow() {
            Some(zones) => VolumeArray::InPlace(zones.new.clone()),
            None => self.array.borrow().clone(),
        }
    }

    /// The arrays that have some of the volume.
    pub(crate) fn arrays(&self) -> SmallVec<[VolumeArray; 2]> {
        let in_place = |array: &Sliced| VolumeArray::InPlace(array.clone());
        match &*self.zones.borrow() {
            Some(zones) => SmallVec::from_iter([in_place(&zones.old), in_place(&zones.new)]),
            None => SmallVec::from_iter([self.array.borrow().clone()]),
        }
    }

    /// Ends when all writes hold their ranges.
    pub(crate) async fn until_ranges_are_held(&self, context: &Context) {
        self.writes.until_earlier_ended().await;
        if !mutation::is_chosen(Mutation::ConversionBesideDirectWrites) {
            self.direct.until_empty(context).await;
        }
    }

    /// Waits until every write now in flight has ended.
    pub(crate) async fn until_writes_ended(&self) {
        self.writes.turn();
        self.writes.until_earlier_ended().await;
    }

    /// Load of the volume with this name, whose state this is.
    pub(crate) fn load_of(&self, volume: &str) -> VolumeLoad {
        let fills = self.arrays().into_iter().filter_map(|array| array.journal_fill());
        let mut requests = self.load.requests();
        self.direct.add_load(&mut requests);
        VolumeLoad {
            volume: volume.to_owned(),
            in_flight: self.load.in_flight() + self.direct.in_flight(),
            requests,
            journal: fills.reduce(|sum, fill| (sum.0 + fill.0, sum.1 + fill.1)),
        }
    }
}
