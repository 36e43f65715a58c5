//! A drive with its queue and its cache, as the simulation sees it.

use std::collections::VecDeque;

use crate::hdd::{Hdd, Target};

/// A command at a drive.
#[derive(Clone, Copy)]
pub(super) struct Command {
    pub request: u32,
    pub lba: u64,
    pub sectors: u32,
    pub write: bool,
    pub target: Target,
}

/// A drive with its queue.
pub(super) struct Member {
    pub hdd: Hdd,
    pub window: Vec<Command>,
    pub backlog: VecDeque<Command>,
    /// End of the last access.
    pub arm_lba: u64,
    /// Acknowledged writes in the drive's cache.
    pub dirty: Vec<Command>,
    pub serving: Option<(Command, bool)>,
    /// End of the last read, and its time.
    pub read_end: (u64, u64),
    /// End of the last write, and its time.
    pub write_end: (u64, u64),
    pub busy_ns: u64,
    /// Tracks still in its buffer that random reads waited on: first sector and the one after the
    /// last, the oldest first.
    pub held: VecDeque<(u64, u64)>,
    /// Position of the rebuild, and the host's commands and bytes since its last turn.
    pub rebuild: Option<(u64, u64, u64)>,
}

impl Member {
    /// Holds the sectors that passed under the head during the rotational wait, and the accessed
    /// ones; the buffer has room for `segments` ranges of at most `segment_sectors`.
    pub(super) fn hold(&mut self, waited_ns: u64, command: &Command, segments: usize, segment_sectors: u64) {
        if segments == 0 {
            return;
        }
        let geometry = self.hdd.geometry();
        let places = u64::from(geometry.sectors_per_track(command.target.zone));
        let passed = (waited_ns * places / u64::from(geometry.revolution_ns())).min(segment_sectors);
        let before = passed.min(places - u64::from(command.target.left_on_track));
        self.held.push_back((command.lba - before, command.lba + u64::from(command.sectors)));
        let track_end = command.lba + u64::from(command.target.left_on_track);
        if passed > before {
            self.held.push_back((track_end - (passed - before), track_end));
        }
        while self.held.len() > segments {
            self.held.pop_front();
        }
    }

    pub(super) fn holds(&self, command: &Command) -> bool {
        let end = command.lba + u64::from(command.sectors);
        self.held.iter().any(|(from, to)| *from <= command.lba && end <= *to)
    }

    pub(super) fn give_up(&mut self, command: &Command) {
        let end = command.lba + u64::from(command.sectors);
        self.held.retain(|(from, to)| end <= *from || *to <= command.lba);
    }
}
