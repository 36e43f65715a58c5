//! The power that all drives hang on, and the time that each of them takes.
//!
//! A [`Wire`] stands between a drive's faults and its memory: a request takes time on the way in and on the way out, so
//! it is done neither when it is asked for nor when it is answered, requests overtake each other, and a flush covers only
//! what has arrived. When power goes, at an instant of the clock or at a certain write of all drives together, what is on
//! the way never arrives and nothing is answered any more; what the drives' caches then keep is settled by the life that
//! ends there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Completion, CompletionSender, Context, CrashDrive, Drive, DriveInfo, DriveKind, Event, IoRequest,
    Operation, SplitMix64, completion,
};

/// One life's power.
pub struct Power {
    off: Cell<bool>,
    writes: Cell<u64>,
    /// Power goes at this write.
    at_write: Cell<u64>,
    went: Event,
    /// Requests that are never answered.
    unanswered: RefCell<Vec<CompletionSender>>,
}

impl Power {
    /// On.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            off: Cell::new(false),
            writes: Cell::new(0),
            at_write: Cell::new(u64::MAX),
            went: Event::new(),
            unanswered: RefCell::default(),
        })
    }

    /// Power goes at the so-many-th write from now.
    pub fn cut_at_write(&self, count: u64) {
        self.at_write.set(self.writes.get() + count);
    }

    /// Power goes now.
    pub fn cut(&self) {
        self.off.set(true);
        self.went.notify_all();
    }

    /// Whether it is gone.
    pub fn is_off(&self) -> bool {
        self.off.get()
    }

    /// Ends when it goes.
    pub async fn until_off(&self) {
        while !self.off.get() {
            self.went.wait().await;
        }
    }
}

/// How long a drive takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// At least, each way.
    pub least_ns: u64,
    /// At most, each way.
    pub most_ns: u64,
}

impl Latency {
    fn draw_ns(self, random: &mut SplitMix64) -> u64 {
        self.least_ns + random.below(self.most_ns - self.least_ns + 1)
    }
}

struct Shared {
    info: DriveInfo,
    context: Context,
    inner: Rc<CrashDrive>,
    power: Rc<Power>,
    latency: Latency,
    random: RefCell<SplitMix64>,
}

/// A drive on the life's power.
pub struct Wire(Rc<Shared>);

impl Wire {
    /// To `inner`. `queued`: says that it is no memory, so that the engine puts a queue in front of it.
    pub fn new(
        context: &Context,
        inner: Rc<CrashDrive>,
        power: Rc<Power>,
        latency: Latency,
        queued: bool,
        seed: u64,
    ) -> Rc<Self> {
        let kind = if queued { DriveKind::Model } else { DriveKind::Memory };
        let info = DriveInfo { kind, ..inner.info().clone() };
        let random = RefCell::new(SplitMix64::new(seed));
        Rc::new(Self(Rc::new(Shared { info, context: context.clone(), inner, power, latency, random })))
    }
}

impl Shared {
    fn hold(&self, sender: CompletionSender) {
        self.power.unanswered.borrow_mut().push(sender);
    }
}

impl Drive for Wire {
    fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let shared = &self.0;
        if let Err(error) = request.check(&shared.info) {
            return Completion::ready(Err(error));
        }
        let (sender, answer) = completion();
        if shared.power.is_off() {
            shared.hold(sender);
            return answer;
        }
        let (way_in_ns, way_out_ns) = {
            let mut random = shared.random.borrow_mut();
            (shared.latency.draw_ns(&mut random), shared.latency.draw_ns(&mut random))
        };
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            let power = &shared.power;
            power.writes.set(power.writes.get() + 1);
            if power.writes.get() >= power.at_write.get() {
                // Half of them are in the drive by then.
                if shared.random.borrow_mut().chance(0.5) {
                    let _ = shared.inner.submit(request).try_take();
                }
                power.cut();
                shared.hold(sender);
                return answer;
            }
        }
        let shared = shared.clone();
        self.0.context.spawn(async move {
            shared.context.sleep_ns(way_in_ns).await;
            if shared.power.is_off() {
                return shared.hold(sender);
            }
            let result = shared.inner.submit(request).await;
            shared.context.sleep_ns(way_out_ns).await;
            if shared.power.is_off() {
                return shared.hold(sender);
            }
            sender.complete(result);
        });
        answer
    }
}
