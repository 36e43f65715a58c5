//! Two members of one drive, as two threads have them: in virtual time, beside each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Buffer, CheckedDrive, Completion, Context, Drive, DriveError, DriveErrorKind, DriveInfo, IoRequest,
    IoResult, MemoryDrive, ModelDrive, ModelSpec, Operation,
};
use stripewise_runtime::VirtualExecutor;

use super::{Class, Member, MemberOptions};
use crate::flush_losses::OnRefusedFlush;

const MS: u64 = 1_000_000;
const BLOCK: usize = 4096;

/// A drive whose flushes take 10 ms and may be refused.
struct Flushes {
    inner: Rc<dyn Drive>,
    context: Context,
    refuses_next: Cell<bool>,
    /// Flushes that are with the drive, now and at most.
    in_flight: Rc<Cell<u32>>,
    most_in_flight: Rc<Cell<u32>>,
}

impl Drive for Flushes {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if request.operation != Operation::Flush {
            return self.inner.submit(request);
        }
        let refused = request.error(&self.info().label, DriveErrorKind::Medium, Some(5));
        let result = if self.refuses_next.take() { Err(refused) } else { Ok(()) };
        self.in_flight.set(self.in_flight.get() + 1);
        self.most_in_flight.set(self.most_in_flight.get().max(self.in_flight.get()));
        let (sender, completion) = stripewise_drive::completion();
        let (context, in_flight) = (self.context.clone(), self.in_flight.clone());
        self.context.spawn(async move {
            context.sleep_ns(10 * MS).await;
            in_flight.set(in_flight.get() - 1);
            sender.complete(result);
        });
        completion
    }
}

/// A drive of 1 ms, 100 MB/s and this depth, and two members of it.
fn bed(context: &Context, queue_depth: u32) -> (Rc<Flushes>, Rc<Member>, Rc<Member>) {
    let memory = MemoryDrive::new("memory", 64 << 20);
    let spec = ModelSpec { latency_ns: MS, bytes_per_second: 100_000_000, queue_depth };
    let model = ModelDrive::new(context, "model", 64 << 20, spec, memory);
    let drive = Rc::new(Flushes {
        inner: CheckedDrive::new(context, model),
        context: context.clone(),
        refuses_next: Cell::new(false),
        in_flight: Rc::default(),
        most_in_flight: Rc::default(),
    });
    let options = MemberOptions { threads: 2, ..MemberOptions::default() };
    let first = Member::new(context, drive.clone(), options);
    let second = first.beside(context).expect("the drive is there");
    (drive, first, second)
}

fn write(place: u64) -> IoRequest {
    IoRequest::write(place * BLOCK as u64, Buffer::phantom(BLOCK), false)
}

fn read(place: u64) -> IoRequest {
    IoRequest::read(place * BLOCK as u64, Buffer::phantom(BLOCK))
}

async fn flush(member: &Rc<Member>) -> IoResult {
    member.submit(Class::Upkeep, IoRequest::flush()).await
}

/// An array that records the news it gets, and when.
struct Array {
    context: Context,
    news: RefCell<Vec<(DriveError, u64)>>,
}

impl Array {
    fn on(member: &Member, context: &Context) -> Rc<Self> {
        let array = Rc::new(Self { context: context.clone(), news: RefCell::default() });
        let weak = Rc::downgrade(&array);
        member.tell_of_refusals(weak);
        array
    }
}

impl OnRefusedFlush for Array {
    fn flush_was_refused(&self, error: &DriveError) {
        self.news.borrow_mut().push((error.clone(), self.context.now_ns()));
    }
}

#[test]
fn flushes_of_two_threads_go_one_at_a_time() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (drive, first, second) = bed(&context, 8);
    executor.block_on(async {
        let all = [&first, &second, &first, &second, &second, &first].map(flush);
        assert!(futures_util::future::join_all(all).await.iter().all(IoResult::is_ok));
        // The first one alone, then one for all that waited on each thread.
        assert_eq!((drive.most_in_flight.get(), context.now_ns()), (1, 40 * MS));
        // No thread keeps the turn from the other.
        let ends_ns = Rc::new(RefCell::new(Vec::new()));
        let tasks = [first, second].map(|member| {
            let (context, ends_ns) = (context.clone(), ends_ns.clone());
            context.clone().spawn(async move {
                for _ in 0..10 {
                    flush(&member).await.expect("flushed");
                }
                ends_ns.borrow_mut().push(context.now_ns());
            })
        });
        for task in tasks {
            task.await;
        }
        assert_eq!(*ends_ns.borrow(), [230 * MS, 240 * MS]);
    });
}

#[test]
fn later_flushes_elsewhere_see_a_refusal() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (drive, first, second) = bed(&context, 8);
    executor.block_on(async {
        let array = Array::on(&second, &context);
        let known = second.flush_failures().count();
        second.submit(Class::Foreground, write(1)).await.expect("written");
        drive.refuses_next.set(true);
        let (refused, later) = futures_util::future::join(flush(&first), second.flush_since(known)).await;
        let refused = refused.expect_err("refused");
        let later = later.expect_err("what was written may be lost");
        assert!(first.gave(&refused) && second.gave(&refused) && second.gave(&later));
        assert_eq!((second.flush_failures().count(), array.news.borrow().len()), (known + 1, 1));
        flush(&second).await.expect("the drive flushes again");
        assert_eq!(array.news.borrow().len(), 1, "one notification");
        // One that opens the drive after that lost nothing.
        let third = first.beside(&context).expect("the drive is there");
        let array = Array::on(&third, &context);
        flush(&third).await.expect("flushed");
        assert!(array.news.borrow().is_empty());
    });
}

#[test]
fn reads_wait_for_the_news_of_a_refusal_elsewhere() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (drive, first, second) = bed(&context, 8);
    executor.block_on(async {
        let array = Array::on(&second, &context);
        // Nothing of this thread's can be lost yet.
        let flushing = first.submit(Class::Upkeep, IoRequest::flush());
        context.sleep_ns(MS).await;
        second.submit(Class::Foreground, read(1)).await.expect("read");
        assert!(context.now_ns() < 5 * MS, "{}", context.now_ns());
        flushing.await.expect("flushed");

        second.submit(Class::Foreground, write(1)).await.expect("written");
        drive.refuses_next.set(true);
        let began_ns = context.now_ns();
        let flushing = first.submit(Class::Upkeep, IoRequest::flush());
        context.sleep_ns(MS).await;
        let reading = second.submit(Class::Foreground, read(1));
        second.submit(Class::Foreground, write(2)).await.expect("written");
        assert!(context.now_ns() < began_ns + 5 * MS, "writes do not wait");
        reading.await.expect("read");
        let news_ns = array.news.borrow().first().expect("a notification").1;
        assert!(news_ns >= began_ns + 10 * MS && context.now_ns() >= news_ns);
        flushing.await.expect_err("refused");

        // A flush of this thread covers all it wrote.
        flush(&second).await.expect("flushed");
        let began_ns = context.now_ns();
        let flushing = first.submit(Class::Upkeep, IoRequest::flush());
        context.sleep_ns(MS).await;
        second.submit(Class::Foreground, read(1)).await.expect("read");
        assert!(context.now_ns() < began_ns + 5 * MS);
        flushing.await.expect("flushed");
    });
}

#[test]
fn failure_ends_the_drive_on_all_threads() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, first, second) = bed(&context, 8);
    executor.block_on(async {
        let waiting: Vec<_> =
            (0..40).map(|place| second.submit(Class::Foreground, write(3 * place))).collect();
        let flushing = [(); 2].map(|()| second.submit(Class::Upkeep, IoRequest::flush()));
        context.sleep_ns(MS / 2).await;
        first.fail_as_pulled("it was pulled");
        for answer in waiting.into_iter().chain(flushing) {
            assert_eq!(answer.await.expect_err("gone").kind, DriveErrorKind::Gone);
        }
        assert_eq!(context.now_ns(), MS / 2, "at once");
        assert_eq!(second.failed().as_deref(), Some("it was pulled"));
        assert!(second.was_pulled());
        second.fail("too late");
        assert_eq!(first.failed().as_deref(), Some("it was pulled"), "the first reason counts");
        assert!(flush(&second).await.is_err());
    });
}

#[test]
fn turn_to_flush_outlasts_the_thread_that_had_it() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, first, second) = bed(&context, 8);
    executor.block_on(async {
        let _left = second.submit(Class::Upkeep, IoRequest::flush());
        context.sleep_ns(MS).await;
        let flushing = first.submit(Class::Upkeep, IoRequest::flush());
        second.stop();
        context.sleep_ns(MS).await;
        drop(second);
        flushing.await.expect("flushed");
    });
}

#[test]
fn errors_and_requests_are_counted_together() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, first, second) = bed(&context, 8);
    executor.block_on(async {
        first.submit(Class::Foreground, write(1)).await.expect("written");
        second.submit(Class::Background, read(1)).await.expect("read");
        let error = read(1).error(second.label(), DriveErrorKind::Medium, None);
        let max_errors = MemberOptions::default().max_read_errors;
        for count in 0..max_errors {
            let member = if count % 2 == 0 { &first } else { &second };
            member.note_read_error(&error, true);
        }
        let counters = first.counters();
        assert_eq!(counters, second.counters());
        assert_eq!((counters.requests, counters.read_bytes, counters.written_bytes), (2, 4096, 4096));
        assert!(counters.background_busy_ns >= MS && counters.foreground_busy_ns >= MS);
        assert_eq!((counters.read_errors, first.causes().total().requests), (u64::from(max_errors), 2));
        first.forget_errors();
        assert_eq!(second.counters().read_errors, 0);
        assert!(!first.is_failed());
        second.note_read_error(&error, true);
        assert!(first.is_failed(), "errors of late count on whichever thread");
    });
}

/// Requests that clients of one thread and background work of another one get done in 4 s, each
/// with some in flight all the time, or only background work.
fn done_beside(share: f64, clients: usize) -> (u64, u64) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, first, second) = bed(&context, 2);
    second.set_background_share(share);
    let work = |member: &Rc<Member>, class: Class, number: usize| {
        let (member, count) = (member.clone(), Rc::new(Cell::new(0)));
        let counted = count.clone();
        context.spawn(async move {
            loop {
                let place = (number as u64 * 1000 + counted.get() * 7) % 10_000;
                member.submit(class, read(place)).await.expect("read");
                counted.set(counted.get() + 1);
            }
        });
        count
    };
    let of_clients: Vec<_> = (0..clients).map(|number| work(&first, Class::Foreground, number)).collect();
    let of_jobs: Vec<_> = (0..4).map(|number| work(&second, Class::Background, 4 + number)).collect();
    executor.block_on(context.sleep_ns(4000 * MS));
    let sum = |counts: &[Rc<Cell<u64>>]| counts.iter().map(|count| count.get()).sum();
    (sum(&of_clients), sum(&of_jobs))
}

#[test]
fn background_share_holds_over_threads() {
    for share in [0.1, 0.3, 0.4] {
        let (of_clients, of_jobs) = done_beside(share, 4);
        let part = of_jobs as f64 / (of_clients + of_jobs) as f64;
        assert!((part - share).abs() < 0.05, "{share}: {of_clients} and {of_jobs}");
    }
    let (_, alone) = done_beside(0.1, 0);
    assert!(alone > 3500, "all of this thread's half of the depth: {alone}");
}

#[test]
fn each_thread_has_its_part_of_the_depth() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (drive, first, second) = bed(&context, 8);
    executor.block_on(async {
        for (member, from) in [(&first, 0), (&second, 100)] {
            (0..20).for_each(|place| drop(member.submit(Class::Foreground, write(from + place * 3))));
        }
        context.sleep_ns(MS / 2).await;
        assert_eq!(drive.info().queue_depth, 8);
        for member in [&first, &second] {
            assert_eq!(member.queue.borrow().requests_in_flight(), 4);
        }
        second.set_background_slice(Some(20 * MS));
        first.submit(Class::Foreground, read(1)).await.expect("read");
        assert!(first.queue.borrow().slices.is_some(), "slices are those of all threads");
    });
}
