//! A run from its seed to its report. Panics of the code under test are caught and reported with
//! their location.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

use stripewise_runtime::VirtualExecutor;

use crate::world::World;
use crate::{Options, RunReport, Sabotage, ending, lead, scenes};

/// True if this build has mutations: builds with `debug_assertions`.
pub const CAN_BREAK: bool = cfg!(debug_assertions);

thread_local! {
    /// `Some` while this thread is in a run: panics are stored here instead of printed.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_kept = PANIC.with_borrow_mut(|kept| {
                let is_run = kept.is_some();
                // The first panic is the cause: later ones come from dropping the remains.
                if kept.as_ref().is_some_and(String::is_empty) {
                    *kept = Some(format!("{}{}", info.to_string().replace('\n', " "), callers()));
                }
                is_run
            });
            if !is_kept {
                before(info);
            }
        }));
    });
}

/// Returns the project's functions on the stack of a panic, innermost first.
fn callers() -> String {
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    let ours = trace.lines().filter(|line| {
        line.contains("stripewise_array")
            || line.contains("stripewise_pool")
            || line.contains("stripewise_drive")
    });
    let names: Vec<&str> = ours.take(6).map(|line| line.trim().split(": ").last().unwrap_or(line)).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(", called by ")) }
}

/// Runs one seed. Panics if the options ask for a mutation and this build has none.
pub fn run(seed: u64, options: &Options) -> RunReport {
    keep_panics_quiet();
    assert!(options.mutation.is_none() || CAN_BREAK, "a release build has no mutations");
    #[cfg(debug_assertions)]
    stripewise_array::mutation::choose(options.mutation);
    let world = World::new(seed, options);
    // Executors outlive the code that may panic: dropping their tasks during a panic would make
    // them panic again.
    let kept: RefCell<Vec<Rc<VirtualExecutor>>> = RefCell::default();
    PANIC.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(|| live_and_end(&world, &kept)));
    let message = PANIC.take().unwrap_or_default();
    if outcome.is_err() {
        let promise = if message.contains("deadlock in virtual time") { "progress" } else { "no-panic" };
        world.broken(promise, message);
        // State that the panic left inconsistent is not dropped.
        std::mem::forget(kept);
        let report = world.report();
        std::mem::forget(world);
        return report;
    }
    world.report()
}

fn live_and_end(world: &Rc<World>, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    for number in 0..world.plan.lives {
        if world.options.sabotage == Some(Sabotage::IgnoredFlushes) {
            world.disks.borrow().iter().for_each(|disk| disk.crash.set_ignores_flushes(true));
        }
        lead::live(world, number, kept);
        if world.is_broken() {
            return;
        }
        kept.borrow_mut().clear();
        scenes::play(world, number, kept);
        if world.is_broken() {
            return;
        }
        kept.borrow_mut().clear();
    }
    ending::end_of_run(world, kept);
}
