//! The way of requests through a member's queue to the drive, and of the answers back.
//!
//! A request that the drive has no use for yet waits, and goes together with its neighbours. Which
//! class goes next is a matter of measured service time: the class that is behind its share. With a
//! bound on what background work adds to the clients' latency it goes in slices (`slices.rs`).
//!
//! Faults expected: a merged request that fails (each part is asked again), a drive that never
//! answers.

use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use smallvec::SmallVec;
use stripewise_drive::{
    Cause, Completion, CompletionListener, Context, DriveInfo, IoRequest, IoResult, Operation, completion,
};

use crate::member::queue::{Flight, MergeLimits, Pending, Queue, key_of, merged_request, token_of};
use crate::member::slices::Slices;
use crate::member::{Class, Member};

/// A client that sends its next request when it has the answer to the last is still load in
/// between: background work that is ahead of its share waits this long for it.
const ANTICIPATION_NS: u64 = 2_000_000;
/// Time after their last request in which clients may wait for upkeep: for room in the journal,
/// which is there once checksum pages are written. One write at a time, it would wait for all
/// background requests in flight each time.
const UPKEEP_FOR_CLIENTS_NS: u64 = 2_000_000_000;
/// Service time that a class keeps as credit while it has nothing to ask for: covers the gaps of a
/// rebuild that waits for other drives, yet a long idle time is not saved up.
const CREDIT_NS: f64 = 50_000_000.0;
/// Looks at what has no answer yet: bounds both the delay of the verdict and the cost of watching.
const LOOKS_PER_TIMEOUT: u64 = 4;

impl Member {
    /// Asks the drive, now or as soon as its queue allows.
    pub fn submit(self: &Rc<Self>, class: Class, mut request: IoRequest) -> Completion {
        if request.cause == Cause::Data {
            request.cause = match class {
                Class::Foreground => Cause::Data,
                Class::Background => Cause::Job,
                Class::Upkeep => Cause::Record,
            };
        }
        if self.is_failed() {
            return Completion::ready(Err(self.gone(&request)));
        }
        if request.cause != Cause::Record
            && let Some(gate) = &*self.gate.borrow()
            && !gate.passes(&request)
        {
            return self.held_back(&**gate, class, request);
        }
        self.submit_past_gate(class, request)
    }

    /// As [`Self::submit`], without a look at whether the drive is still the pool's.
    pub(super) fn submit_past_gate(self: &Rc<Self>, class: Class, request: IoRequest) -> Completion {
        if self.is_failed() {
            return Completion::ready(Err(self.gone(&request)));
        }
        if request.operation == Operation::Flush {
            let mut queue = self.queue.borrow_mut();
            if queue.flushes.is_under_way {
                let (sender, completion) = completion();
                queue.flushes.waiting.push(sender);
                return completion;
            }
            queue.flushes.is_under_way = !self.answers_at_once();
            if !self.answers_at_once() && !self.common.flush_turn.take(&self.opening) {
                let (sender, completion) = completion();
                queue.flushes.next = Some((class, Pending::new(request, sender, false)));
                return completion;
            }
        }
        if self.answers_at_once() {
            return self.submit_directly(class, request);
        }
        if class == Class::Foreground {
            self.opening.note_load();
        }
        let (sender, completion) = completion();
        {
            let mut queue = self.queue.borrow_mut();
            if class == Class::Background && !queue.background.has_any() {
                // Service that clients had on other threads until now is no credit.
                self.note_load_elsewhere(&mut queue);
            }
            let other_ns = match class {
                Class::Foreground => queue.background.virtual_ns,
                Class::Background => queue.foreground.virtual_ns,
                Class::Upkeep => f64::NEG_INFINITY,
            };
            let slices = queue.slices.as_ref().filter(|_| class == Class::Background);
            // Two slices: what is earned in the time of one is not lost in the other's.
            let credit_ns = slices.map_or(CREDIT_NS, |slices| {
                CREDIT_NS.max(2.0 * slices.slice_credit_ns(self.background_share()))
            });
            let own = queue.of(class);
            if own.length == 0 && own.in_flight == 0 {
                own.virtual_ns = own.virtual_ns.max(other_ns - credit_ns);
            }
            own.push(Pending::new(request, sender, false));
        }
        self.wakeup.notify_all();
        completion
    }

    /// True if the drive answers within `submit`, and no other thread uses it.
    fn answers_at_once(&self) -> bool {
        self.answers_at_once && !self.common.has_several()
    }

    fn submit_directly(self: &Rc<Self>, class: Class, request: IoRequest) -> Completion {
        self.count_request(&request);
        let kept = request.clone();
        let answer = match self.ask(request).try_take() {
            Ok(result) => {
                let result = self.own(result);
                self.tell_of_news();
                return Completion::ready(result);
            }
            Err(pending) => pending,
        };
        // A fault machine around memory may answer late; then it is watched as any other drive is.
        let (sender, completion) = completion();
        if kept.operation == Operation::Flush {
            self.queue.borrow_mut().flushes.is_under_way = true;
        }
        let parts = SmallVec::from_iter([Pending::new(kept, sender, true)]);
        let token = self.take_off(class, parts);
        if let Some(result) = answer.notify(self.clone(), token) {
            self.completed(token, result);
        }
        completion
    }

    fn count_request(&self, request: &IoRequest) {
        let opening = &*self.opening;
        opening.causes.note(request);
        opening.requests.add(1);
        match request.operation {
            Operation::Read => opening.read_bytes.add(request.length_bytes),
            Operation::Write { .. } => opening.written_bytes.add(request.length_bytes),
            Operation::Flush => self.unflushed.in_flush.set(self.unflushed.written.get()),
            _ => {}
        }
    }

    fn take_off(self: &Rc<Self>, class: Class, parts: SmallVec<[Pending; 4]>) -> u64 {
        let now = self.context.now_ns();
        let bytes = parts.iter().map(|part| part.request.length_bytes).sum();
        let token = {
            let mut queue = self.queue.borrow_mut();
            let weight = self.weight(class);
            let own = queue.of(class);
            let charged_ns = own.expected_ns / weight;
            own.virtual_ns += charged_ns;
            own.in_flight += 1;
            queue.in_flight_bytes += bytes;
            let serial = queue.next_serial;
            queue.next_serial += 1;
            let key =
                queue.flights.insert(Flight { parts, class, bytes, dispatched_ns: now, charged_ns, serial });
            token_of(key, serial)
        };
        if !self.watching.replace(true) {
            self.context.spawn(watch_loop(Rc::downgrade(self), self.context.clone()));
        }
        token
    }

    /// Divisor of a class's service time, to compare the classes.
    fn weight(&self, class: Class) -> f64 {
        match class {
            Class::Foreground => 1.0 - self.background_share() + 1e-9,
            Class::Background => self.background_share(),
            Class::Upkeep => 1.0,
        }
    }

    /// Class that may send its next request now.
    fn next_class(&self, queue: &mut Queue) -> Option<Class> {
        let flights = queue.requests_in_flight();
        let is_full = flights > 0 && queue.in_flight_bytes >= self.depth.bytes;
        if flights >= self.depth.requests || is_full {
            return None;
        }
        if queue.upkeep.length > 0 {
            return Some(Class::Upkeep);
        }
        let foreground = queue.foreground.length > 0;
        if queue.background.length == 0 {
            return foreground.then_some(Class::Foreground);
        }
        self.note_load_elsewhere(queue);
        let ahead_ns = queue.foreground.virtual_ns - queue.background.virtual_ns;
        let has_no_load = self.load_ends_in_ns(queue) == Some(0);
        let in_flight = queue.background.in_flight;
        let may_go = match &mut queue.slices {
            None => ahead_ns >= 0.0 || has_no_load,
            Some(slices) if has_no_load => slices.may_go_alone(in_flight),
            Some(slices) => {
                let (now_ns, share) = (self.context.now_ns(), self.background_share());
                slices.may_go(now_ns, share, in_flight, ahead_ns, queue.foreground.clients())
            }
        };
        if may_go {
            return Some(Class::Background);
        }
        foreground.then_some(Class::Foreground)
    }

    /// Charges the classes for what other threads had from the drive since the last time: it is
    /// shared between all clients and all background work.
    fn note_load_elsewhere(&self, queue: &mut Queue) {
        let Some(now) = self.common.load_elsewhere(&self.opening) else { return };
        let before = std::mem::replace(&mut queue.elsewhere, now);
        let clients_ns = now.clients_busy_ns.wrapping_sub(before.clients_busy_ns);
        if clients_ns > 0 {
            let least_ns = queue.background.virtual_ns - CREDIT_NS;
            let own = &mut queue.foreground;
            if !own.has_any() {
                own.virtual_ns = own.virtual_ns.max(least_ns);
            }
            own.virtual_ns += clients_ns as f64 / self.weight(Class::Foreground);
        }
        let background_ns = now.background_busy_ns.wrapping_sub(before.background_busy_ns);
        queue.background.virtual_ns += background_ns as f64 / self.weight(Class::Background);
    }

    /// Time until the drive counts as free of foreground load; `None` while there are requests of
    /// clients, or requests that clients may be waiting for.
    fn load_ends_in_ns(&self, queue: &Queue) -> Option<u64> {
        let now_ns = self.context.now_ns();
        let clients_wait = now_ns < queue.last_foreground_ns + UPKEEP_FOR_CLIENTS_NS;
        if queue.foreground.has_any() || (clients_wait && queue.upkeep.has_any()) {
            return None;
        }
        let last_upkeep_ns = if clients_wait { queue.last_upkeep_ns } else { 0 };
        let last_ns = queue.last_foreground_ns.max(last_upkeep_ns);
        let own_ns = (last_ns + ANTICIPATION_NS).saturating_sub(now_ns);
        let elsewhere = self.common.load_elsewhere(&self.opening).map(|load| match load.loaded_until_ns {
            Some(until_ns) => until_ns.saturating_sub(now_ns),
            // Nothing wakes this thread when it ends.
            None => ANTICIPATION_NS,
        });
        Some(own_ns.max(elsewhere.unwrap_or(0)))
    }

    /// Time for which ready background work must be held back, if any.
    fn background_held_ns(&self) -> Option<u64> {
        let queue = self.queue.borrow();
        (queue.background.length > 0).then(|| self.load_ends_in_ns(&queue)).flatten().filter(|&wait| wait > 0)
    }

    fn dispatch(self: &Rc<Self>) {
        self.take_over_slice(&mut self.queue.borrow_mut());
        let DriveInfo { max_request_bytes: max_bytes, gap_bytes, .. } = self.info;
        let (max_segments, sweeps) = (self.options.merged_segments, self.info.is_seek_bound());
        let limits = MergeLimits { max_bytes, gap_bytes, max_segments, sweeps };
        loop {
            let (class, parts) = {
                let mut queue = self.queue.borrow_mut();
                let Some(class) = self.next_class(&mut queue) else { return };
                let most = queue.slices.as_ref().map_or(max_bytes, Slices::request_bytes);
                let limits = match class {
                    Class::Background => MergeLimits { max_bytes: max_bytes.min(most), ..limits },
                    Class::Foreground | Class::Upkeep => limits,
                };
                let Some(parts) = queue.of(class).pop_merged(limits) else { return };
                (class, parts)
            };
            let request = merged_request(&parts, &self.gap_buffer);
            self.count_request(&request);
            let token = self.take_off(class, parts);
            if let Some(result) = self.ask(request).notify(self.clone(), token) {
                self.queue.borrow_mut().answers.push((token, result));
                self.wakeup.notify_all();
            }
        }
    }

    fn land(&self) {
        let mut answers = std::mem::take(&mut self.queue.borrow_mut().answers);
        for (token, result) in answers.drain(..) {
            if self.must_wait(token) {
                self.queue.borrow_mut().held.push((token, result));
                continue;
            }
            self.tell_of_news();
            let result = self.own(result);
            self.land_one(token, &result);
            self.tell_of_news();
        }
        let mut queue = self.queue.borrow_mut();
        if queue.answers.is_empty() {
            queue.answers = answers;
        }
    }

    fn land_one(&self, token: u64, result: &IoResult) {
        let now = self.context.now_ns();
        let flight = {
            let mut queue = self.queue.borrow_mut();
            let queue = &mut *queue;
            let key = key_of(token);
            // A late answer after the drive was failed, perhaps to a key in use again.
            if queue.flights.get(key).is_none_or(|flight| token_of(key, flight.serial) != token) {
                return;
            }
            let flight = queue.flights.remove(key);
            queue.in_flight_bytes -= flight.bytes;
            let service_ns = now.saturating_sub(queue.last_completion_ns.max(flight.dispatched_ns)) as f64;
            queue.last_completion_ns = now;
            match flight.class {
                Class::Foreground => queue.last_foreground_ns = now,
                Class::Upkeep => queue.last_upkeep_ns = now,
                Class::Background => {}
            }
            if flight.class == Class::Background
                && let Some(slices) = &mut queue.slices
            {
                slices.landed(service_ns, flight.bytes);
            }
            let (weight, own) = (self.weight(flight.class), queue.of(flight.class));
            own.in_flight -= 1;
            own.virtual_ns += service_ns / weight - flight.charged_ns;
            own.expected_ns += (service_ns - own.expected_ns) / 16.0;
            let service_ns = service_ns as u64;
            match flight.class {
                Class::Foreground => {
                    self.opening.foreground_busy_ns.add(service_ns);
                    self.opening.clients_busy_ns.add(service_ns);
                    if !queue.foreground.has_any() {
                        self.opening.note_no_load(now + ANTICIPATION_NS);
                    }
                }
                Class::Upkeep => self.opening.foreground_busy_ns.add(service_ns),
                Class::Background => self.opening.background_busy_ns.add(service_ns),
            }
            flight
        };
        if result.is_err() && flight.parts.len() > 1 {
            // The faulty part of the merged request is not known: each part is sent alone.
            let mut queue = self.queue.borrow_mut();
            let own = queue.of(flight.class);
            for part in flight.parts {
                own.push(Pending { alone: true, ..part });
            }
            return;
        }
        let operation = flight.parts[0].request.operation;
        match operation {
            _ if result.is_err() => {}
            Operation::Flush => self.unflushed.flushed.set(self.unflushed.in_flush.get()),
            Operation::Read | Operation::Write { fua: true } => {}
            _ => self.unflushed.written.set(self.unflushed.written.get() + 1),
        }
        for part in flight.parts {
            part.answer(result);
        }
        if operation == Operation::Flush {
            self.flush_landed(result);
        }
    }

    /// Completes the merged flushes, and sends the one that was queued behind them.
    fn flush_landed(&self, result: &IoResult) {
        let joined = {
            let mut queue = self.queue.borrow_mut();
            let (joined, next) = queue.flushes.landed();
            self.common.flush_turn.give_up(&self.opening);
            match next {
                Some(next) if self.common.flush_turn.take(&self.opening) => queue.upkeep.push(next),
                next => queue.flushes.next = next.map(|next| (Class::Upkeep, next)),
            }
            joined
        };
        joined.into_iter().for_each(|sender| sender.complete(result.clone()));
        self.wakeup.notify_all();
    }
}

impl CompletionListener for Member {
    fn completed(&self, token: u64, result: IoResult) {
        self.queue.borrow_mut().answers.push((token, result));
        self.wakeup.notify_all();
    }
}

/// Runs for the member's life: lands answers, dispatches what may go. Runs after the tasks that
/// submitted, so all that they asked for in this turn is there to be merged.
pub(super) async fn dispatch_loop(member: Weak<Member>) {
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    if let Some(strong) = member.upgrade() {
        strong.opening.set_dispatcher(Some(waker));
    }
    loop {
        let Some(strong) = member.upgrade() else { return };
        strong.catch_up();
        strong.land();
        strong.dispatch();
        if strong.stopped.get() {
            strong.common.flush_turn.leave(&strong.opening);
            return;
        }
        let nothing_to_land = strong.queue.borrow().answers.is_empty();
        if nothing_to_land {
            match strong.background_held_ns() {
                None => strong.until_woken().await,
                Some(wait_ns) => {
                    let wakeup = std::pin::pin!(strong.until_woken());
                    let _ = strong.context.time_limit_ns(wait_ns, wakeup).await;
                }
            }
        }
    }
}

/// Runs while requests are in flight: fails the drive when the oldest got no answer in time. A
/// process that stood still (stopped, the machine asleep) may not have heard the answers yet: a
/// look that comes late leaves the verdict to the next one.
async fn watch_loop(member: Weak<Member>, context: Context) {
    let mut wanted_ns = context.now_ns();
    let mut was_put_off = false;
    loop {
        let wait_ns = {
            let Some(strong) = member.upgrade() else { return };
            let oldest = strong.queue.borrow().flights.iter().map(|(_, flight)| flight.dispatched_ns).min();
            let Some(oldest) = oldest else {
                strong.watching.set(false);
                return;
            };
            let look_ns = strong.options.timeout_ns / LOOKS_PER_TIMEOUT;
            let deadline = oldest.saturating_add(strong.options.timeout_ns);
            let now = context.now_ns();
            let is_over = now >= deadline;
            let stood_still = now.saturating_sub(wanted_ns) > look_ns / 2;
            if is_over && (was_put_off || !stood_still) {
                strong.watching.set(false);
                let limit_s = strong.options.timeout_ns as f64 / 1e9;
                strong.fail(&format!("{}: no answer for {limit_s} s", strong.label()));
                return;
            }
            was_put_off = is_over;
            let wait_ns = if is_over { look_ns } else { (deadline - now).min(look_ns) }.max(1);
            wanted_ns = now.saturating_add(wait_ns);
            wait_ns
        };
        context.sleep_ns(wait_ns).await;
    }
}
