//! News of a pool: events, which the next commit records, and notices, which the user sees.
//!
//! Memory: at most as many events as a pool keeps, and each notice once.

use std::cell::{Cell, RefCell};

use stripewise_drive::Context;

use crate::manifest::drive_record::shortened;
use crate::manifest::events::{Event, EventKind, MAX_EVENTS};

/// Start of the event clock in repeatable runs.
const REPEATABLE_START_UNIX_MS: u64 = 1_700_000_000_000;

/// Events and notices of an open pool.
pub(crate) struct News {
    context: Context,
    /// Clock in milliseconds since 1970; `None`: a fixed moment plus the pool's clock.
    wall_clock_ms: Option<fn() -> u64>,
    notices: RefCell<Vec<String>>,
    /// Events since the last commit.
    happened: RefCell<Vec<Event>>,
    /// The drive whose file system was found full.
    full: RefCell<Option<String>>,
    /// Low space has been reported.
    is_short: Cell<bool>,
}

impl News {
    /// Creates an empty list. `wall_clock_ms` returns milliseconds since 1970.
    pub(crate) fn new(context: &Context, wall_clock_ms: Option<fn() -> u64>) -> Self {
        Self {
            context: context.clone(),
            wall_clock_ms,
            notices: RefCell::default(),
            happened: RefCell::default(),
            full: RefCell::default(),
            is_short: Cell::new(false),
        }
    }

    /// Current time for events, milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        match self.wall_clock_ms {
            Some(unix_ms) => unix_ms(),
            None => REPEATABLE_START_UNIX_MS + self.context.now_ns() / 1_000_000,
        }
    }

    /// Adds an event. If no commit records events, the oldest are dropped.
    pub(crate) fn event(&self, kind: EventKind, text: &str) {
        let mut happened = self.happened.borrow_mut();
        if happened.len() >= MAX_EVENTS {
            happened.remove(0);
        }
        happened.push(Event { time_unix_ms: self.unix_ms(), kind, text: shortened(text) });
    }

    /// Events that are not recorded by a commit yet, oldest first.
    pub(crate) fn unrecorded(&self) -> Vec<Event> {
        self.happened.borrow().clone()
    }

    /// Drops the first `count` events, which a commit has recorded.
    pub(crate) fn forget_recorded(&self, count: usize) {
        self.happened.borrow_mut().drain(..count);
    }

    /// Removes the event of a change that failed.
    pub(crate) fn take_back(&self, text: &str) {
        self.happened.borrow_mut().retain(|event| event.text != text);
    }

    /// Adds a notice for the user.
    pub(crate) fn notice(&self, text: String) {
        let mut notices = self.notices.borrow_mut();
        if !notices.contains(&text) {
            notices.push(text);
        }
    }

    /// All notices so far.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.notices.borrow().clone()
    }

    /// Records that the file system under a drive is full and a write has stopped. The first time,
    /// adds an event.
    pub(crate) fn note_full(&self, drive: &str) {
        if self.full.borrow_mut().replace(drive.to_owned()).is_none() {
            self.event(
                EventKind::Space,
                &format!("writing stopped: the file system under {drive} is full (ENOSPC)"),
            );
        }
    }

    /// The drive whose file system was found full.
    pub(crate) fn full_drive(&self) -> Option<String> {
        self.full.borrow().clone()
    }

    /// Records the slabs in use, and all, if space is short. Adds an event when it becomes so.
    pub(crate) fn note_space(&self, short: Option<(u64, u64)>) {
        let was_short = self.is_short.replace(short.is_some());
        if let Some((used, all)) = short.filter(|_| !was_short) {
            self.event(EventKind::Space, &format!("space is short: {used} of {all} slabs are in use"));
        }
    }
}

#[cfg(test)]
mod tests {
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    fn news() -> News {
        News::new(&VirtualExecutor::new().context(), Some(|| 7))
    }

    fn texts(news: &News) -> Vec<String> {
        news.unrecorded().into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn events_stay_until_they_are_recorded_or_taken_back() {
        let news = news();
        ["a", "b", "c"].iter().for_each(|text| news.event(EventKind::Volume, text));
        news.take_back("b");
        assert_eq!(texts(&news), ["a", "c"]);
        news.event(EventKind::Volume, "came while the commit was written");
        news.forget_recorded(2);
        assert_eq!(texts(&news), ["came while the commit was written"]);
        assert_eq!(news.unrecorded()[0].time_unix_ms, 7);
    }

    #[test]
    fn as_many_events_wait_as_a_pool_keeps() {
        let news = news();
        (0..MAX_EVENTS + 3).for_each(|number| news.event(EventKind::Pool, &number.to_string()));
        let texts = texts(&news);
        assert_eq!((texts.len(), &*texts[0]), (MAX_EVENTS, "3"));
    }

    #[test]
    fn a_notice_is_kept_once() {
        let news = news();
        ["x", "y", "x"].iter().for_each(|text| news.notice((*text).to_owned()));
        assert_eq!(news.notices(), ["x", "y"]);
    }

    #[test]
    fn shortage_and_full_file_system_are_recorded_once() {
        let news = news();
        [None, Some((80, 100)), Some((90, 100)), None, Some((80, 100))]
            .into_iter()
            .for_each(|short| news.note_space(short));
        assert_eq!(news.unrecorded().len(), 2, "space was free again in between");
        ["disk0", "disk1"].iter().for_each(|drive| news.note_full(drive));
        assert_eq!((news.unrecorded().len(), news.full_drive().as_deref()), (3, Some("disk1")));
    }
}
