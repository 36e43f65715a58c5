//! The work that goes on while the log is open: cleaning, and the upkeep of the map.

use std::rc::Rc;

use crate::core::Core;
use crate::error::LogError;

/// Repeats `round` until the log is closing, and waits where it returns `false`: there was nothing
/// to do. An error fails the log.
pub(crate) async fn repeat(core: Rc<Core>, round: impl AsyncFn(&Rc<Core>) -> Result<bool, LogError>) {
    loop {
        let work = core.work.wait();
        match round(&core).await {
            Ok(true) => {}
            Ok(false) if core.state.borrow().is_closing => return,
            Ok(false) => work.await,
            Err(error) => return core.fail(error),
        }
    }
}
