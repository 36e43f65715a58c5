//! The pool's history for people: the last few hundred things that happened, kept on every drive.
//!
//! Events are numbered from the pool's making, so that a commit writes only those that are new.
//! Memory: [`MAX_EVENTS`] of at most 200 bytes of text each; clones of the list share them.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::manifest::drive_record::shortened;

/// Events kept; the oldest are forgotten.
pub(crate) const MAX_EVENTS: usize = 512;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The pool itself: made, opened, settings.
    Pool,
    /// A drive came, went, was retired or replaced.
    Drive,
    /// A volume was made, resized, deleted.
    Volume,
    /// A rebuild or a catching up.
    Rebuild,
    /// A scrub.
    Scrub,
    /// A conversion of a volume.
    Convert,
    /// The journal.
    Journal,
    /// Space is short.
    Space,
    /// Something was lost.
    Loss,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Time, milliseconds since 1970.
    pub time_unix_ms: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Description of the event.
    pub text: String,
}

/// The last events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// The number of the oldest one that is kept.
    first: u64,
    list: VecDeque<Arc<Event>>,
}

impl Events {
    pub(crate) fn push(&mut self, time_unix_ms: u64, kind: EventKind, text: &str) {
        self.append(Event { time_unix_ms, kind, text: shortened(text) });
    }

    pub(crate) fn append(&mut self, event: Event) {
        if self.list.len() >= MAX_EVENTS {
            self.list.pop_front();
            self.first += 1;
        }
        self.list.push_back(Arc::new(event));
    }

    /// Puts the events numbered `number` and above into the order of time: a change dates its event
    /// when it begins, and others may happen before the commit that records them all.
    pub(crate) fn sort_since(&mut self, number: u64) {
        let at = (number.saturating_sub(self.first) as usize).min(self.list.len());
        self.list.make_contiguous()[at..].sort_by_key(|event| event.time_unix_ms);
    }

    /// Starts over with the event of this number to come.
    pub(crate) fn starting_at(first: u64) -> Self {
        Self { first, list: VecDeque::new() }
    }

    /// Keeps the newest `count` events. Returns true if older ones were removed.
    pub(crate) fn keep_newest(&mut self, count: usize) -> bool {
        let surplus = self.list.len().saturating_sub(count);
        self.list.drain(..surplus);
        self.first += surplus as u64;
        surplus > 0
    }

    /// Number of the oldest event kept.
    pub(crate) fn first_number(&self) -> u64 {
        self.first
    }

    /// Number that the next event gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.list.len() as u64
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.list.iter().map(|event| &**event)
    }

    /// Those numbered `number` and above that are still kept.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = &Event> {
        self.list.iter().skip(number.saturating_sub(self.first) as usize).map(|event| &**event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_events_are_in_the_order_of_time() {
        let mut events = Events::starting_at(7);
        [(5, "recorded"), (9, "change"), (8, "before it"), (9, "after it")]
            .iter()
            .for_each(|(time, text)| events.push(*time, EventKind::Pool, text));
        events.sort_since(8);
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["recorded", "before it", "change", "after it"]);
        events.sort_since(99);
        assert_eq!((events.first_number(), events.next_number()), (7, 11));
    }
}
