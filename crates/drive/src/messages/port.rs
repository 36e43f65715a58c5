//! A shard's end of a link to another shard: notes, calls and the answers to them.
//!
//! A call occupies a place until its answer arrives, also if its caller has gone; so an answer
//! never reaches another call.
//!
//! Expected faults: the other shard ends; then calls without an answer end without one.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::context::Context;
use crate::messages::batches::{Batch, Delivery, Inlet, Outlet, batches};

enum Message<T> {
    Note(T),
    /// To be answered; with the number of its place.
    Call(u32, T),
    Answer(u32, T),
}

/// One end of a link, before the thread that uses it opens it.
pub struct HalfPort<Out, In> {
    outlet: Outlet<Message<Out>>,
    inlet: Inlet<Message<In>>,
}

/// The two ends of a link.
pub fn link<A, B>() -> (HalfPort<A, B>, HalfPort<B, A>) {
    let ((to_b, from_a), (to_a, from_b)) = (batches(), batches());
    (HalfPort { outlet: to_b, inlet: from_b }, HalfPort { outlet: to_a, inlet: from_a })
}

enum Place<T> {
    Free,
    /// The answer is awaited by this task.
    Awaited(Option<Waker>),
    /// The caller has gone.
    Abandoned,
    Answered(T),
}

struct Places<T> {
    all: Vec<Place<T>>,
    free: Vec<u32>,
}

/// One end of a link.
pub struct Port<Out, In> {
    batch: Rc<Batch<Message<Out>>>,
    inlet: Inlet<Message<In>>,
    places: RefCell<Places<In>>,
    /// The other shard sends nothing any more.
    ended: Cell<bool>,
}

/// Answers a call.
#[must_use]
pub struct Answerer<Out> {
    batch: Rc<Batch<Message<Out>>>,
    place: u32,
}

impl<Out> Answerer<Out> {
    /// Sends the answer.
    pub fn answer(self, answer: Out) {
        self.batch.push(Message::Answer(self.place, answer));
    }
}

impl<Out: 'static, In: 'static> HalfPort<Out, In> {
    /// Begins to use it on this thread.
    pub fn open(self, context: &Context, delivery: Delivery) -> Rc<Port<Out, In>> {
        Rc::new(Port {
            batch: self.outlet.open(context, delivery),
            inlet: self.inlet,
            places: RefCell::new(Places { all: Vec::new(), free: Vec::new() }),
            ended: Cell::new(false),
        })
    }
}

impl<Out: 'static, In: 'static> Port<Out, In> {
    /// Sends a message without an answer.
    pub fn note(&self, note: Out) {
        self.batch.push(Message::Note(note));
    }

    /// Sends a message and waits for its answer; `None` if the other shard has ended without one.
    pub async fn call(&self, call: Out) -> Option<In> {
        if self.ended.get() {
            return None;
        }
        let place = {
            let mut places = self.places.borrow_mut();
            let place = places.free.pop().unwrap_or_else(|| {
                places.all.push(Place::Free);
                (places.all.len() - 1) as u32
            });
            places.all[place as usize] = Place::Awaited(None);
            place
        };
        let awaits = Awaits { places: &self.places, place };
        self.batch.push(Message::Call(place, call));
        poll_fn(|context| {
            let mut places = self.places.borrow_mut();
            let at = &mut places.all[awaits.place as usize];
            match std::mem::replace(at, Place::Awaited(Some(context.waker().clone()))) {
                Place::Answered(answer) => {
                    *at = Place::Abandoned;
                    places.leave(awaits.place);
                    Poll::Ready(Some(answer))
                }
                Place::Awaited(_) if !self.ended.get() => Poll::Pending,
                _ => Poll::Ready(None),
            }
        })
        .await
    }

    /// Ends this direction behind all that was sent.
    pub fn close(&self) {
        self.batch.close();
    }

    /// Receives until the other shard ends. `noted` gets notes, `called` calls; neither waits.
    pub async fn serve(&self, noted: impl Fn(In), called: impl Fn(In, Answerer<Out>)) {
        let mut messages = Vec::new();
        while self.inlet.receive(&mut messages).await {
            for message in messages.drain(..) {
                match message {
                    Message::Note(note) => noted(note),
                    Message::Call(place, call) => {
                        called(call, Answerer { batch: self.batch.clone(), place });
                    }
                    Message::Answer(place, answer) => self.answered(place, answer),
                }
            }
        }
        self.ended.set(true);
        let mut waiting = Vec::new();
        for place in &mut self.places.borrow_mut().all {
            if let Place::Awaited(waker) = place {
                waiting.extend(waker.take());
            }
        }
        waiting.into_iter().for_each(Waker::wake);
    }

    fn answered(&self, place: u32, answer: In) {
        let mut places = self.places.borrow_mut();
        let at = &mut places.all[place as usize];
        match std::mem::replace(at, Place::Answered(answer)) {
            Place::Awaited(waker) => {
                drop(places);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Place::Abandoned => {
                let unwanted = std::mem::replace(at, Place::Abandoned);
                places.leave(place);
                drop(places);
                drop(unwanted);
            }
            Place::Free | Place::Answered(_) => unreachable!("one answer for a call"),
        }
    }
}

impl<T> Places<T> {
    fn leave(&mut self, place: u32) {
        self.all[place as usize] = Place::Free;
        self.free.push(place);
    }
}

/// A call whose answer is awaited; gives its place up if it is dropped before.
struct Awaits<'a, T> {
    places: &'a RefCell<Places<T>>,
    place: u32,
}

impl<T> Drop for Awaits<'_, T> {
    fn drop(&mut self) {
        let mut places = self.places.borrow_mut();
        let at = &mut places.all[self.place as usize];
        let unwanted = match at {
            Place::Awaited(_) => std::mem::replace(at, Place::Abandoned),
            Place::Answered(_) => {
                let answer = std::mem::replace(at, Place::Abandoned);
                places.leave(self.place);
                answer
            }
            Place::Free | Place::Abandoned => return,
        };
        drop(places);
        drop(unwanted);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::context::yield_now;
    use crate::support::Executor;

    type Numbers = Rc<Port<u64, u64>>;

    /// A port whose other end answers each number with its double, after that many microseconds.
    fn doubling(context: &Context) -> (Numbers, Numbers) {
        let (near, far) = link();
        let (near, far) = (near.open(context, Delivery::AtOnce), far.open(context, Delivery::AtOnce));
        let (of_task, context_of_task) = (far.clone(), context.clone());
        drop(context.spawn(async move {
            let called = |number, answerer: Answerer<u64>| {
                let later = context_of_task.sleep_ns(number * 1000);
                drop(context_of_task.spawn(async move {
                    later.await;
                    answerer.answer(2 * number);
                }));
            };
            of_task.serve(|_| panic!("no notes"), called).await;
        }));
        let of_task = near.clone();
        drop(context.spawn(async move { of_task.serve(|_| {}, |_, _| panic!("no calls")).await }));
        (near, far)
    }

    #[test]
    fn each_call_gets_its_own_answer() {
        let executor = Executor::new();
        let context = executor.context();
        executor.block_on(async move {
            let (near, _far) = doubling(&context);
            let calls: Vec<_> = (0..50)
                .rev()
                .map(|number| {
                    let (near, context_of_task) = (near.clone(), context.clone());
                    context.spawn(async move {
                        // Each third caller does not wait long enough.
                        let patience_ns = if number % 3 == 0 { number * 500 + 1 } else { u64::MAX / 2 };
                        let call = pin!(near.call(number));
                        let answer = context_of_task.time_limit_ns(patience_ns, call).await;
                        assert_eq!(answer.ok(), (number % 3 != 0 || number == 0).then_some(Some(2 * number)));
                        assert_eq!(near.call(number).await, Some(2 * number), "another place, or its own");
                    })
                })
                .collect();
            for call in calls {
                call.await;
            }
            assert!(near.places.borrow().all.len() <= 100);
            let places = near.places.borrow();
            assert_eq!(places.free.len(), places.all.len(), "every place is free again");
        });
    }

    #[test]
    fn calls_end_with_the_other_shard() {
        let executor = Executor::new();
        let context = executor.context();
        executor.block_on(async move {
            let (near, far) = doubling(&context);
            let of_task = near.clone();
            let waits = context.spawn(async move { of_task.call(1_000_000).await });
            yield_now().await;
            far.close();
            assert_eq!(waits.await, None);
            assert_eq!(near.call(1).await, None);
        });
    }
}
