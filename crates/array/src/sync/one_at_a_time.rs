//! Work that at most one caller does at a time, while callers that need its result wait.

use std::cell::Cell;

use stripewise_drive::Event;

/// State of the work: idle or running.
#[derive(Default)]
pub(crate) struct OneAtATime {
    is_running: Cell<bool>,
    ended: Event,
}

impl OneAtATime {
    /// Waits until no work is running. A caller that then begins must do so before its next await.
    pub(crate) async fn until_free(&self) {
        while self.is_running.get() {
            self.ended.wait().await;
        }
    }

    /// Begins the work, which ends when the guard is dropped.
    pub(crate) fn begin(&self) -> Running<'_> {
        assert!(!self.is_running.replace(true), "one at a time");
        Running(self)
    }
}

/// The running work.
pub(crate) struct Running<'a>(&'a OneAtATime);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.set(false);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn callers_wait_for_the_work_in_progress() {
        let work = OneAtATime::default();
        assert!(work.until_free().now_or_never().is_some());
        let running = work.begin();
        let mut waiting = pin!(work.until_free());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(running);
        assert!(waiting.now_or_never().is_some());
    }
}
