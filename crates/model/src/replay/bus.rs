//! The cable: when the drive takes it, leaves it, and takes it again while data come from the
//! medium.

use super::description::{Bus, Overheads};

/// A read's data on their way to the host.
pub(super) struct ReadTransfer<'a> {
    pub bus: &'a Bus,
    pub overheads: &'a Overheads,
    /// True if the previous request was a write.
    pub after_write: bool,
    pub sector_ns: u64,
    /// When each sector and all before it are in the buffer.
    pub ready_ns: &'a [u64],
    /// Sectors that must be there before the drive takes the cable again.
    pub watermark: usize,
}

/// Start of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The drive has the cable, ready to send from this time on.
    Connected(u64),
    /// It has left the cable until at least this time.
    Away(u64),
}

impl ReadTransfer<'_> {
    /// When the last sector is with the host.
    pub(super) fn done_ns(&self, start: Start) -> u64 {
        let all = self.ready_ns.len();
        let mut sent = 0;
        let mut state = start;
        loop {
            match state {
                Start::Away(free_ns) => {
                    let wanted = (sent + self.watermark.max(1)).min(all);
                    let at_ns = free_ns.max(self.ready_ns[wanted - 1]);
                    let again_ns = self.overheads.first_reselect + self.overheads.data_preparation;
                    state = Start::Connected(at_ns + again_ns);
                }
                Start::Connected(now_ns) => {
                    let there = self.ready_ns.partition_point(|ready_ns| *ready_ns <= now_ns);
                    if there > sent {
                        let done_ns = now_ns + (there - sent) as u64 * self.sector_ns;
                        sent = there;
                        if sent == all {
                            return done_ns;
                        }
                        state = Start::Connected(done_ns);
                    } else if self.bus.hold_bus_entire_read || self.bus.never_disconnect {
                        state = Start::Connected(self.ready_ns[sent]);
                    } else {
                        state = Start::Away(now_ns + self.overheads.read_disconnect.after(self.after_write));
                    }
                }
            }
        }
    }
}
