//! Links between executors on two threads.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;

use stripewise_drive::{Answerer, Delivery, link, yield_now};
use stripewise_runtime::RealExecutor;

#[test]
fn notes_and_calls_keep_their_order_between_threads() {
    let (near, far) = link::<u64, u64>();
    let thread = thread::spawn(move || {
        let executor = RealExecutor::new().expect("io_uring");
        let (context, received) = (executor.context(), Cell::new(0));
        let port = far.open(&context, Delivery::AtOnce);
        executor.block_on(async {
            let next = |number| assert_eq!(received.replace(number + 1), number);
            let called = |number, answerer: Answerer<u64>| {
                next(number);
                answerer.answer(2 * number);
            };
            port.serve(next, called).await;
            port.close();
            yield_now().await;
        });
        received.get()
    });
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    executor.block_on(async {
        let port = near.open(&context, Delivery::AtOnce);
        let (of_task, sent) = (port.clone(), Rc::new(Cell::new(0)));
        let serving = context.spawn(async move { of_task.serve(|_| {}, |_, _| {}).await });
        for _ in 0..100 {
            let calls: Vec<_> = (0..50)
                .map(|_| {
                    let (port, sent) = (port.clone(), sent.clone());
                    context.spawn(async move {
                        let number = sent.replace(sent.get() + 2);
                        port.note(number);
                        assert_eq!(port.call(number + 1).await, Some(2 * (number + 1)));
                    })
                })
                .collect();
            for call in calls {
                call.await;
            }
        }
        port.close();
        serving.await;
    });
    assert_eq!(thread.join().expect("no panic"), 10_000);
}
