//! Number of writes in flight, for writers that may gain by waiting for others.

use std::cell::Cell;
use std::future::Future;

use stripewise_drive::Event;

/// Counts of clients' writes and of stripe groups that are being written.
#[derive(Default)]
pub(crate) struct WriteActivity {
    writes: Cell<usize>,
    groups: Cell<usize>,
    group_ended: Event,
}

impl WriteActivity {
    /// Counts a client's write until the guard is dropped.
    pub(crate) fn begin_write(&self) -> Counted<'_> {
        Counted::new(&self.writes, None)
    }

    /// Counts a group of stripes that are written together, until the guard is dropped.
    pub(crate) fn begin_group(&self) -> Counted<'_> {
        Counted::new(&self.groups, Some(&self.group_ended))
    }

    /// Number of clients' writes in flight.
    pub(crate) fn writes(&self) -> usize {
        self.writes.get()
    }

    /// True if a group of stripes is being written.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.get() > 0
    }

    /// Waits until a group has ended.
    pub(crate) fn until_group_ends(&self) -> impl Future<Output = ()> + '_ {
        self.group_ended.wait()
    }
}

/// Guard that counts one write or group until it is dropped.
pub(crate) struct Counted<'a> {
    count: &'a Cell<usize>,
    ended: Option<&'a Event>,
}

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>, ended: Option<&'a Event>) -> Self {
        count.set(count.get() + 1);
        Self { count, ended }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        if let Some(ended) = self.ended {
            ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn ended_write_is_uncounted_and_wakes_group_waiters() {
        let activity = WriteActivity::default();
        let write = activity.begin_write();
        let group = activity.begin_group();
        assert!(activity.writes() == 1 && activity.has_groups());
        let mut ended = pin!(activity.until_group_ends());
        drop(write);
        assert!(activity.writes() == 0 && ended.as_mut().now_or_never().is_none());
        drop(group);
        assert!(!activity.has_groups() && ended.now_or_never().is_some());
    }
}
