//! Requests that come in on the thread of a volume's array, past the home.
//!
//! A connection on another thread has a [`DirectVolume`]: reads and writes within one slice go to
//! the array at once, if it is on that thread. All else goes to the home, which has what a volume
//! needs in one place: flushes, ranges of several slices, unaligned writes, conversions. Where the
//! home must be alone it closes the gate and waits for what has passed ([`DirectGate::hold`]).
//!
//! A request passes in two steps: it is counted, then it looks whether the gate is open. The home
//! closes the gate, then looks at the counts. Both are sequentially consistent, so one of them sees
//! the other. Expected faults: those of the array; the caller then repeats the request at the home,
//! which reports them.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stripewise_array::{Array, ArrayError, ArrayPlace};
use stripewise_drive::{Buffer, Context, Shard};
use stripewise_layout::Slicing;

use crate::status::load::{RequestCounts, RequestKind};
use crate::volume::Volume;
use crate::volume::sliced::{SECTOR_BYTES, Sliced};

/// Pause between looks at requests that have passed a closed gate.
const LOOK_NS: u64 = 50_000;

/// Counters by kind, in the order of [`RequestKind::ALL`].
type AllCounts = [RequestCounts; RequestKind::ALL.len()];

/// One user of the gate. It has its own cache lines.
#[repr(align(128))]
struct Lane {
    is_open: Arc<AtomicBool>,
    in_flight: AtomicU64,
    load: Mutex<AllCounts>,
}

/// Home of the lanes of a volume.
pub(crate) struct DirectGate {
    is_open: RefCell<Arc<AtomicBool>>,
    lanes: RefCell<Vec<Arc<Lane>>>,
    /// Counters of lanes that have ended.
    past: RefCell<AllCounts>,
    holds: Cell<usize>,
    has_ended: Cell<bool>,
}

impl Default for DirectGate {
    fn default() -> Self {
        Self {
            is_open: RefCell::new(Arc::new(AtomicBool::new(true))),
            lanes: RefCell::default(),
            past: RefCell::default(),
            holds: Cell::new(0),
            has_ended: Cell::new(false),
        }
    }
}

/// Keeps requests of other threads out until it is dropped.
pub struct DirectHold<'a>(&'a DirectGate);

impl Drop for DirectHold<'_> {
    fn drop(&mut self) {
        let gate = self.0;
        gate.holds.set(gate.holds.get() - 1);
        if gate.holds.get() == 0 && !gate.has_ended.get() {
            gate.is_open.borrow().store(true, Ordering::SeqCst);
        }
    }
}

impl DirectGate {
    /// Keeps requests of other threads out, and waits for those that are in.
    pub(crate) async fn hold(&self, context: &Context) -> DirectHold<'_> {
        self.holds.set(self.holds.get() + 1);
        let hold = DirectHold(self);
        self.is_open.borrow().store(false, Ordering::SeqCst);
        self.until_empty(context).await;
        hold
    }

    /// Admits no request of today's lanes any more: the volume's arrays are to be others.
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
        self.is_open.borrow().store(false, Ordering::SeqCst);
    }

    /// Admits requests of new lanes, after an end.
    pub(crate) fn begin_again(&self) {
        let is_open = self.holds.get() == 0;
        self.is_open.replace(Arc::new(AtomicBool::new(is_open)));
        self.has_ended.set(false);
    }

    /// Waits until no request is in; to be called while the gate is closed.
    pub(crate) async fn until_empty(&self, context: &Context) {
        while self.in_flight() > 0 {
            context.sleep_ns(LOOK_NS).await;
        }
    }

    /// Number of requests that are in.
    pub(crate) fn in_flight(&self) -> u64 {
        self.lanes.borrow().iter().map(|lane| lane.in_flight.load(Ordering::SeqCst)).sum()
    }

    /// Adds the counters of all lanes.
    pub(crate) fn add_load(&self, sum: &mut AllCounts) {
        add(sum, &self.past.borrow());
        self.lanes.borrow().iter().for_each(|lane| add(sum, &lane.load()));
    }

    fn new_lane(&self) -> Arc<Lane> {
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|lane| {
            let is_used = Arc::strong_count(lane) > 1;
            if !is_used {
                add(&mut self.past.borrow_mut(), &lane.load());
            }
            is_used
        });
        let lane = Arc::new(Lane {
            is_open: self.is_open.borrow().clone(),
            in_flight: AtomicU64::new(0),
            load: Mutex::default(),
        });
        lanes.push(lane.clone());
        lane
    }
}

fn add(sum: &mut AllCounts, more: &AllCounts) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}

impl Lane {
    fn load(&self) -> AllCounts {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request in, until the guard is dropped.
    fn enter(&self) -> Option<Inside<'_>> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self);
        self.is_open.load(Ordering::SeqCst).then_some(inside)
    }
}

/// A request that is in.
struct Inside<'a>(&'a Lane);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A volume for a client whose requests come in on another thread than the pool's. It can be sent
/// there.
pub struct DirectVolume {
    lane: Arc<Lane>,
    slicing: Slicing,
    /// Places of the slices; `None`: on the pool's thread.
    places: Vec<Option<ArrayPlace>>,
    /// Threads of the slices that are not on the pool's.
    threads: Vec<Arc<dyn Shard>>,
}

impl DirectVolume {
    fn of(lane: Arc<Lane>, arrays: &Sliced) -> Self {
        let elsewhere: Vec<_> = arrays.handles().iter().map(|array| array.place_elsewhere()).collect();
        let places = elsewhere.iter().map(|place| place.as_ref().map(|(place, _)| *place)).collect();
        let threads = elsewhere.into_iter().flatten().map(|(_, thread)| thread).collect();
        Self { lane, slicing: arrays.slicing(), places, threads }
    }

    /// True if some of the volume is on this thread.
    pub fn is_on(&self, thread: &Arc<dyn Shard>) -> bool {
        self.threads.iter().any(|own| Arc::ptr_eq(own, thread))
    }

    /// True if some of the volume is on the pool's thread.
    pub fn is_on_home(&self) -> bool {
        self.places.iter().any(Option::is_none)
    }

    /// The array on this thread that has all of a range, and the range's offset there.
    fn array(&self, offset_bytes: u64, length_bytes: u64) -> Option<(Array, u64)> {
        let end_bytes = offset_bytes.checked_add(length_bytes)?;
        if length_bytes == 0 || !(offset_bytes | length_bytes).is_multiple_of(SECTOR_BYTES) {
            return None;
        }
        let piece = self.slicing.pieces(offset_bytes..end_bytes).next()?;
        let is_whole = piece.length_bytes == length_bytes;
        let place = self.places[piece.slice].filter(|_| is_whole)?;
        Some((place.array()?, piece.slice_offset))
    }

    /// Reads a range, if this thread has it; `Ok(None)` if nothing was ever written there and
    /// `finds_holes`. `None`: the pool's thread has to be asked.
    pub async fn read(
        &self,
        context: &Context,
        offset_bytes: u64,
        length: usize,
        finds_holes: bool,
    ) -> Option<Result<Option<Buffer>, ArrayError>> {
        let _inside = self.lane.enter()?;
        let (array, offset_in_slice) = self.array(offset_bytes, length as u64)?;
        let begin_ns = context.now_ns();
        if finds_holes && matches!(array.is_unwritten(offset_in_slice, length as u64), Ok(true)) {
            return Some(Ok(None));
        }
        let read = array.read(offset_in_slice, length).await;
        self.count(RequestKind::Read, context, begin_ns, length as u64, &read);
        Some(read.map(Some))
    }

    /// Writes a range, if this thread has it; durable after the next flush. `None`: the pool's
    /// thread has to be asked.
    pub async fn write(
        &self,
        context: &Context,
        offset_bytes: u64,
        data: Buffer,
    ) -> Option<Result<(), ArrayError>> {
        let _inside = self.lane.enter()?;
        let length_bytes = data.len() as u64;
        let (array, offset_in_slice) = self.array(offset_bytes, length_bytes)?;
        let begin_ns = context.now_ns();
        let written = array.write(offset_in_slice, data, false).await;
        self.count(RequestKind::Write, context, begin_ns, length_bytes, &written);
        Some(written)
    }

    /// Counts a request that succeeded; the home counts those that are repeated there.
    fn count<T>(
        &self,
        kind: RequestKind,
        context: &Context,
        begin_ns: u64,
        bytes: u64,
        result: &Result<T, ArrayError>,
    ) {
        if result.is_ok() {
            let took_ns = context.now_ns().saturating_sub(begin_ns);
            let mut load = self.lane.load.lock().unwrap_or_else(PoisonError::into_inner);
            load[kind as usize].count(took_ns, bytes);
        }
    }
}

impl Volume {
    /// The volume for a client whose requests come in on another thread; `None` if all of them
    /// concern this one.
    pub fn direct(&self) -> Option<DirectVolume> {
        if self.io.zones().is_some() {
            return None;
        }
        let array = self.io.array();
        let arrays = array.in_place()?;
        let is_elsewhere = arrays.handles().iter().any(|array| array.place_elsewhere().is_some());
        is_elsewhere.then(|| DirectVolume::of(self.io.direct.new_lane(), arrays))
    }

    /// Keeps requests out that come in on other threads ([`Self::direct`]), and waits for those
    /// that are in.
    pub async fn hold_direct(&self) -> DirectHold<'_> {
        self.io.direct.hold(self.pool.context()).await
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn a_hold_waits_for_requests_that_are_in() {
        let executor = VirtualExecutor::new();
        let (context, gate) = (executor.context(), Rc::<DirectGate>::default());
        let lane = gate.new_lane();
        executor.block_on(async {
            let inside = lane.enter().expect("open");
            let holding = {
                let (clock, gate) = (context.clone(), gate.clone());
                context.spawn(async move {
                    let hold = gate.hold(&clock).await;
                    clock.sleep_ns(10 * LOOK_NS).await;
                    drop(hold);
                })
            };
            context.sleep_ns(10 * LOOK_NS).await;
            assert!(lane.enter().is_none() && gate.in_flight() == 1, "closed, and one is in");
            drop(inside);
            context.sleep_ns(5 * LOOK_NS).await;
            assert!(!holding.is_finished() && lane.enter().is_none(), "it is held");
            holding.await;
            assert!(lane.enter().is_some());
        });
    }

    #[test]
    fn lanes_of_former_arrays_stay_closed() {
        let executor = VirtualExecutor::new();
        let (context, gate) = (executor.context(), DirectGate::default());
        let before = gate.new_lane();
        executor.block_on(async {
            let hold = gate.hold(&context).await;
            gate.end();
            gate.begin_again();
            let after = gate.new_lane();
            assert!(before.enter().is_none() && after.enter().is_none());
            drop(hold);
            assert!(before.enter().is_none() && after.enter().is_some());
        });
    }

    #[test]
    fn counters_stay_when_their_lane_has_ended() {
        let gate = DirectGate::default();
        let lane = gate.new_lane();
        lane.load.lock().expect("no panic")[RequestKind::Read as usize].count(5, 4096);
        drop(lane);
        let (_next, mut sum) = (gate.new_lane(), AllCounts::default());
        gate.add_load(&mut sum);
        let reads = &sum[RequestKind::Read as usize];
        assert_eq!((reads.succeeded(), reads.bytes, reads.total_ns), (1, 4096, 5));
    }
}
