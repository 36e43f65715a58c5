//! A queue for requests from other threads to the executor's single thread, and a helper that runs
//! blocking work on a thread of its own. Engines are single-threaded, but some clients send
//! requests from other threads, and some system calls block.
//!
//! Expected faults: more requests than can be executed (the sender waits, so memory stays bounded),
//! an executor that has ended, a thread that cannot be started.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

struct State<T> {
    queue: VecDeque<(T, Admission<T>)>,
    /// Bytes of all requests whose admission still exists.
    admitted_bytes: u64,
    /// Number of threads that wait for room.
    waiting_for_room: usize,
    /// The receiver's task, while it waits.
    waiting: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    limit_bytes: u64,
    /// Notified when admissions end.
    room: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under the lock leaves a usable queue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then wakes the receiver if it waits.
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        let waiting = {
            let mut state = self.lock();
            change(&mut state);
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Counts a request against the limit until it is dropped, after the request was answered.
pub struct Admission<T> {
    shared: Arc<Shared<T>>,
    bytes: u64,
}

impl<T> Drop for Admission<T> {
    fn drop(&mut self) {
        let is_awaited = {
            let mut state = self.shared.lock();
            state.admitted_bytes -= self.bytes;
            state.waiting_for_room > 0
        };
        // A notification is a system call even without a waiter.
        if is_awaited {
            self.shared.room.notify_all();
        }
    }
}

/// Sending end, for other threads.
pub struct Sender<T>(Arc<Shared<T>>);

/// Receiving end, on the executor.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Creates a queue from a thread to a task, with at most `limit_bytes` of requests in flight.
pub fn bridge<T: Send>(limit_bytes: u64) -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        admitted_bytes: 0,
        waiting_for_room: 0,
        waiting: None,
        sender_gone: false,
        receiver_gone: false,
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), limit_bytes, room: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T: Send> Sender<T> {
    /// Queues a request that takes `bytes` of memory, 1 or more. Blocks the thread while the queue
    /// is full; a request larger than the limit goes alone. Returns the request if the receiver is
    /// gone.
    pub fn send(&self, request: T, bytes: u64) -> Result<(), T> {
        let mut state = self.0.lock();
        while !state.receiver_gone
            && state.admitted_bytes > 0
            && state.admitted_bytes + bytes > self.0.limit_bytes
        {
            state.waiting_for_room += 1;
            state = self.0.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_for_room -= 1;
        }
        if state.receiver_gone {
            return Err(request);
        }
        state.admitted_bytes += bytes;
        let admission = Admission { shared: self.0.clone(), bytes };
        state.queue.push_back((request, admission));
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.sender_gone = true);
    }
}

impl<T> Receiver<T> {
    /// The next request, with the admission to hold until it is answered; `None` when the sender is
    /// gone and the queue is empty.
    pub async fn next(&self) -> Option<(T, Admission<T>)> {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if let Some(next) = state.queue.pop_front() {
                return Poll::Ready(Some(next));
            }
            if state.sender_gone {
                return Poll::Ready(None);
            }
            state.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.receiver_gone = true;
            std::mem::take(&mut state.queue)
        };
        // Outside the lock, which the admissions take.
        drop(left);
        self.0.room.notify_all();
    }
}

/// Runs `work` on a thread of its own while the executor continues. If the future is dropped, the
/// thread still runs to its end.
///
/// # Errors
/// If the thread cannot be started or panics.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = bridge(1);
    std::thread::Builder::new().name("waits".to_owned()).spawn(move || {
        // The future may have been dropped.
        let _ = sender.send(work(), 1);
    })?;
    match receiver.next().await {
        Some((result, _)) => Ok(result),
        None => Err(io::Error::other("its thread has panicked")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicIsize, Ordering};

    use stripewise_runtime::RealExecutor;

    use super::*;

    #[test]
    fn requests_arrive_in_order_within_the_limit() {
        static IN_FLIGHT: AtomicIsize = AtomicIsize::new(0);
        let (sender, receiver) = bridge(10);
        let thread = std::thread::spawn(move || {
            for number in 0..1000 {
                sender.send(number, 3).expect("taken");
                // The answer may precede the count.
                assert!(IN_FLIGHT.fetch_add(1, Ordering::SeqCst) < 3);
            }
        });
        let executor = RealExecutor::new().expect("io_uring");
        let context = executor.context();
        executor.block_on(async {
            let mut expected = 0;
            while let Some((number, admission)) = receiver.next().await {
                assert_eq!(number, expected);
                expected += 1;
                let later = context.sleep_ns(10_000);
                drop(context.spawn(async move {
                    later.await;
                    IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
                    drop(admission);
                }));
            }
            assert_eq!(expected, 1000);
        });
        thread.join().expect("no panic");
    }

    #[test]
    fn a_send_fails_when_the_receiver_is_gone() {
        let (sender, receiver) = bridge(1);
        sender.send(1, 1).expect("taken");
        let thread = std::thread::spawn(move || sender.send(2, 1));
        drop(receiver);
        assert_eq!(thread.join().expect("no panic"), Err(2));
    }

    #[test]
    fn the_executor_runs_while_a_thread_waits() {
        let executor = RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let (sender, receiver) = std::sync::mpsc::channel();
        let answer = executor.block_on(async {
            let work = context.spawn(off_thread(move || receiver.recv().expect("sent")));
            context.sleep_ns(1_000_000).await;
            sender.send(7).expect("it waits");
            work.await
        });
        assert_eq!(answer.expect("a thread"), 7);
        let panicked: io::Result<()> = executor.block_on(off_thread(|| panic!("on purpose")));
        assert!(panicked.is_err());
    }
}
