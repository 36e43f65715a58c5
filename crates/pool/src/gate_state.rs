//! State that a session shares with the gates before its drives, on whichever thread they are: the
//! last look at the drives, and the requests since.
//!
//! Only its own thread changes the counts of a gate ([`Requests`]), so a request needs no atomic
//! read-modify-write operation. Expected faults: those of the session (`session.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use stripewise_drive::{Context, IoRequest, Operation};

const SECOND_NS: u64 = 1_000_000_000;
/// Marks are made this often while something is written.
pub(crate) const MARK_NS: u64 = 5 * SECOND_NS;
/// Signs of life, and looks, of a shared pool.
pub(crate) const LIFE_NS: u64 = 2 * SECOND_NS;
/// Looks of a pool that is not shared.
pub(crate) const LOOK_NS: u64 = 10 * SECOND_NS;
/// A longer time without a look is too long.
pub(crate) const FRESH_NS: u64 = 2 * LIFE_NS + SECOND_NS;
/// The same of a pool that is not shared.
pub(crate) const FRESH_UNSHARED_NS: u64 = LOOK_NS + MARK_NS;

/// State that a session shares with its gates.
#[derive(Default)]
pub(crate) struct GateState {
    has_identity: AtomicBool,
    is_begun: AtomicBool,
    is_shared: AtomicBool,
    is_kept: AtomicBool,
    is_looking: AtomicBool,
    generation: AtomicU64,
    looked_ns: AtomicU64,
    slept_ns: AtomicU64,
    gates: Mutex<Vec<Arc<Requests>>>,
}

/// Requests that passed one gate.
#[derive(Default)]
pub(crate) struct Requests {
    /// The gate is on another thread than the session.
    is_elsewhere: bool,
    all: AtomicU64,
    writes: AtomicU64,
    /// The last commit when something was written last, plus 1; 0: nothing was.
    written_in: AtomicU64,
}

/// Treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// It goes at once; else it waits until the drives were looked at.
    pub passes: bool,
    /// The drives have to be looked at, beside it.
    pub looks: bool,
    /// Marks and looks have to be kept up from now on.
    pub keeps: bool,
}

impl Requests {
    fn note(&self, request: &IoRequest, generation: u64) {
        let add = |count: &AtomicU64| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        add(&self.all);
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            add(&self.writes);
            self.written_in.store(generation + 1, Ordering::Release);
        }
    }
}

impl GateState {
    /// Registers a gate; its requests are counted from now on.
    pub(crate) fn new_gate(&self, is_elsewhere: bool) -> Arc<Requests> {
        let requests = Arc::new(Requests { is_elsewhere, ..Requests::default() });
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).push(requests.clone());
        requests
    }

    /// Counts a request of a gate, and says what is to be done with it.
    pub(crate) fn judge(&self, gate: &Requests, request: &IoRequest, context: &Context) -> Passage {
        gate.note(request, self.generation());
        if gate.is_elsewhere {
            // Either this sees that nothing is kept up any more, or the home sees the request
            // (`end_keeping`).
            fence(Ordering::SeqCst);
        }
        let keeps = self.begin_to_keep();
        if !self.is_stale(context) {
            return Passage { passes: true, looks: false, keeps };
        }
        if self.is_shared() || self.has_slept(context) {
            return Passage { passes: false, looks: false, keeps };
        }
        // Drives that this machine has locked: nothing waits for that.
        let looks = !self.is_looking.swap(true, Ordering::AcqRel);
        Passage { passes: true, looks, keeps }
    }

    fn sum(&self, of: impl Fn(&Requests) -> &AtomicU64) -> u64 {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().map(|gate| of(gate).load(Ordering::Acquire)).sum()
    }

    /// Requests of all gates so far.
    pub(crate) fn requests(&self) -> u64 {
        self.sum(|gate| &gate.all)
    }

    /// Requests of all gates so far that write.
    pub(crate) fn writes(&self) -> u64 {
        self.sum(|gate| &gate.writes)
    }

    /// The last commit when something was written last.
    pub(crate) fn written_in(&self) -> Option<u64> {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter_map(|gate| gate.written_in.load(Ordering::Acquire).checked_sub(1)).max()
    }

    /// False if the pool's record names no host; the session is then never checked.
    pub(crate) fn has_identity(&self) -> bool {
        self.has_identity.load(Ordering::Acquire)
    }

    /// The drives name the session.
    pub(crate) fn set_identity(&self) {
        self.has_identity.store(true, Ordering::Release);
    }

    /// True once the pool is open.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// The pool is open.
    pub(crate) fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
    }

    /// True if most drives can be reached by others past any lock of this machine.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Sets whether the pool is shared.
    pub(crate) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Release);
    }

    /// The last commit.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Sets the last commit.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// True if marks and looks have to be begun: they are not kept up.
    pub(crate) fn begin_to_keep(&self) -> bool {
        !self.is_kept.load(Ordering::Acquire) && !self.is_kept.swap(true, Ordering::AcqRel)
    }

    /// Ends keeping up marks and looks, unless a request has come since there were `requests`, or
    /// one on another thread comes right now. True if the caller has to go on.
    pub(crate) fn end_keeping(&self, requests: u64) -> bool {
        self.is_kept.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        self.requests() != requests && self.begin_to_keep()
    }

    /// The look that a request asked for has ended.
    pub(crate) fn end_look(&self) {
        self.is_looking.store(false, Ordering::Release);
    }

    /// Records a look that showed nothing: when it began, and how long the machine had slept then.
    pub(crate) fn note_look(&self, began_ns: u64, slept_ns: u64) {
        self.looked_ns.store(began_ns, Ordering::Release);
        self.slept_ns.store(slept_ns, Ordering::Release);
    }

    /// Time since the last look, ns.
    pub(crate) fn since_look_ns(&self, context: &Context) -> u64 {
        context.boot_ns().saturating_sub(self.looked_ns.load(Ordering::Acquire))
    }

    /// True if another session may have taken the drives since the last look.
    pub(crate) fn is_stale(&self, context: &Context) -> bool {
        if !self.has_identity() || !self.is_begun() {
            return false;
        }
        self.since_look_ns(context) > if self.is_shared() { FRESH_NS } else { FRESH_UNSHARED_NS }
    }

    /// True if the machine has slept since the last look, so that others may have had the drives.
    fn has_slept(&self, context: &Context) -> bool {
        slept_so_far_ns(context).abs_diff(self.slept_ns.load(Ordering::Acquire)) > FRESH_NS
    }
}

/// Time that the machine has slept so far, ns, up to a constant.
pub(crate) fn slept_so_far_ns(context: &Context) -> u64 {
    context.boot_ns().saturating_sub(context.now_ns())
}

#[cfg(test)]
mod tests {
    use stripewise_drive::Buffer;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    fn write() -> IoRequest {
        IoRequest::write(0, Buffer::from_bytes(&[0; 512]), false)
    }

    #[test]
    fn requests_of_all_gates_count() {
        let context = VirtualExecutor::new().context();
        let state = GateState::default();
        let gates = [state.new_gate(false), state.new_gate(true)];
        assert_eq!((state.requests(), state.writes(), state.written_in()), (0, 0, None));
        state.set_generation(7);
        let first = state.judge(&gates[1], &write(), &context);
        assert_eq!(first, Passage { passes: true, looks: false, keeps: true });
        state.set_generation(9);
        let second = state.judge(&gates[0], &IoRequest::flush(), &context);
        assert_eq!(second, Passage { passes: true, looks: false, keeps: false }, "it is kept already");
        assert_eq!((state.requests(), state.writes(), state.written_in()), (2, 1, Some(7)));
        state.judge(&gates[0], &write(), &context);
        assert_eq!((state.writes(), state.written_in()), (2, Some(9)));
    }

    #[test]
    fn a_request_at_the_last_moment_is_marked() {
        let context = VirtualExecutor::new().context();
        let state = GateState::default();
        let gate = state.new_gate(true);
        assert!(state.judge(&gate, &write(), &context).keeps);
        let requests = state.requests();
        assert!(!state.judge(&gate, &write(), &context).keeps, "it is kept up still");
        assert!(state.end_keeping(requests), "so this request relies on the caller");
        assert!(!state.end_keeping(state.requests()));
        assert!(state.judge(&gate, &write(), &context).keeps, "a later one begins again");
    }

    #[test]
    fn requests_of_stale_shared_pools_wait_for_a_look() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let (state, looked_ns) = (GateState::default(), context.boot_ns());
        let gates = [state.new_gate(false), state.new_gate(true)];
        state.note_look(looked_ns, slept_so_far_ns(&context));
        executor.block_on(context.sleep_ns(FRESH_UNSHARED_NS + 1));
        let judged = |gate: usize| {
            let Passage { passes, looks, .. } = state.judge(&gates[gate], &write(), &context);
            (passes, looks)
        };
        assert_eq!(judged(0), (true, false), "no session is named");
        state.set_identity();
        state.begin();
        assert_eq!([judged(0), judged(1)], [(true, true), (true, false)], "one look for all gates");
        state.set_shared(true);
        assert_eq!([judged(0), judged(1)], [(false, false); 2]);
        state.note_look(context.boot_ns(), slept_so_far_ns(&context));
        assert_eq!([judged(0), judged(1)], [(true, false); 2]);
    }
}
