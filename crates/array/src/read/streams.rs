//! Choice of the mirror copy for a read on seek-bound drives.
//!
//! Two disks that read alternate MiB of a stream are no faster than one: the data that one disk
//! reads passes under the head of the other as well. So a stream reads a long run from one copy and
//! the next run from another. With enough requests in flight all disks work, each on its own run. A
//! read that continues no stream goes to the least busy copy.
//!
//! Memory: the ends of the last [`STREAMS`] streams.

use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Number of streams that are tracked; a read that continues none of them begins a new one.
const STREAMS: usize = 64;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// End of its last read; 0: unused entry.
    end_bytes: u64,
    /// Number of the run that was read last.
    run: u64,
    copy: usize,
}

/// Sequential readers of an array of mirrors.
pub(crate) struct ReadStreams {
    streams: RefCell<[Stream; STREAMS]>,
    next: Cell<usize>,
}

impl Default for ReadStreams {
    fn default() -> Self {
        Self { streams: RefCell::new([Stream::default(); STREAMS]), next: Cell::new(0) }
    }
}

impl ReadStreams {
    /// Returns the copy, out of `copies`, that serves a read of these bytes of the volume; a run
    /// has `run_bytes`.
    pub(crate) fn copy_for(
        &self,
        read: Range<u64>,
        run_bytes: u64,
        copies: usize,
        least_busy: impl FnOnce() -> usize,
    ) -> usize {
        let run = read.start / run_bytes;
        let mut streams = self.streams.borrow_mut();
        let known = streams.iter().position(|stream| stream.end_bytes == read.start && read.start > 0);
        let copy = match known.map(|index| streams[index]) {
            Some(stream) if stream.run == run => stream.copy,
            Some(stream) => (stream.copy + 1) % copies,
            None => least_busy(),
        };
        let index = known.unwrap_or_else(|| self.next.replace((self.next.get() + 1) % STREAMS));
        streams[index] = Stream { end_bytes: read.end, run, copy };
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_reads_runs_from_each_copy_in_turn() {
        let streams = ReadStreams::default();
        let read = |at: u64| streams.copy_for(at * MIB..(at + 1) * MIB, 4 * MIB, 2, || 1);
        let copies: Vec<usize> = (0..12).map(read).collect();
        assert_eq!(copies, [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn streams_keep_their_copy_and_others_use_the_idlest() {
        let streams = ReadStreams::default();
        let read = |at: u64, least_busy: usize| {
            streams.copy_for(at * MIB..(at + 1) * MIB, 4 * MIB, 3, || least_busy)
        };
        let first: Vec<usize> = (0..8)
            .map(|at| {
                assert_eq!(read(1000 + at, 2), if at < 4 { 2 } else { 0 });
                assert_eq!(read(5000 + 2 * at, 1), 1, "holes between reads: no stream");
                read(at, 0)
            })
            .collect();
        assert_eq!(first, [0, 0, 0, 0, 1, 1, 1, 1]);
    }
}
