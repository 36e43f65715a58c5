//! The drive's buffer: segments of consecutive sectors, the least recently used one taken first.

use super::description::Cache;

/// Sectors `start..end`; empty where both are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub start: u64,
    pub end: u64,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Result of a read's look-up in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// Everything, in this segment.
    Whole(usize),
    /// Its first sectors.
    Partial(usize),
    Miss,
}

/// Segments that reads find; a segment kept for writes alone is not among them.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    segments: Vec<Segment>,
    /// The least recently used first.
    order: Vec<usize>,
    size: u64,
    enabled: bool,
    writes_apart: bool,
    reads_find_writes: bool,
}

impl Buffer {
    pub(super) fn new(cache: &Cache) -> Self {
        let apart = usize::from(cache.dedicated_write_segment);
        let count = (cache.segments as usize).saturating_sub(apart).max(1);
        Self {
            segments: vec![Segment { start: 0, end: 0 }; count],
            order: (0..count).collect(),
            size: u64::from(cache.segment_sectors.max(1)),
            enabled: cache.enabled != 0,
            writes_apart: cache.dedicated_write_segment,
            reads_find_writes: cache.read_on_write_data,
        }
    }

    pub(super) fn segment(&self, at: usize) -> Segment {
        self.segments[at]
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// `filling` is the segment that is read into now, and `almost` whether a read that starts
    /// right behind it counts.
    pub(super) fn find(&self, lba: u64, sectors: u32, filling: Option<usize>, almost: bool) -> Hit {
        if !self.enabled {
            return Hit::Miss;
        }
        let end = lba + u64::from(sectors);
        let holds_first = |at: &usize| {
            let segment = self.segments[*at];
            let behind = almost && Some(*at) == filling && segment.end == lba && !segment.is_empty();
            (segment.start <= lba && lba < segment.end) || behind
        };
        let whole = |at: &usize| end <= self.segments[*at].end;
        let found = || self.order.iter().copied().filter(holds_first);
        match (found().find(whole), found().find(|at| Some(*at) == filling).or(found().next())) {
            (Some(at), _) => Hit::Whole(at),
            (None, Some(at)) => Hit::Partial(at),
            (None, None) => Hit::Miss,
        }
    }

    /// A segment for other sectors: an empty one, else the least recently used, and the one being
    /// filled last.
    pub(super) fn replace(&mut self, start: u64, end: u64, filling: Option<usize>) -> usize {
        let empty = self.order.iter().copied().find(|at| self.segments[*at].is_empty());
        let oldest = self.order.iter().copied().find(|at| Some(*at) != filling);
        let at = empty.or(oldest).unwrap_or(self.order[0]);
        self.segments[at] = Segment { start, end };
        self.extend(at, end);
        self.touch(at);
        at
    }

    /// Sectors up to `end` are there; what does not fit any more is overwritten.
    pub(super) fn extend(&mut self, at: usize, end: u64) {
        let segment = &mut self.segments[at];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.size));
    }

    /// The segment's sectors begin here.
    pub(super) fn restart(&mut self, at: usize, start: u64) {
        let segment = &mut self.segments[at];
        segment.start = start.max(segment.end.saturating_sub(self.size));
    }

    pub(super) fn touch(&mut self, at: usize) {
        self.order.retain(|other| *other != at);
        self.order.push(at);
    }

    /// Sectors are written: older copies are given up, and the data are in a segment unless writes
    /// have one apart.
    pub(super) fn write(&mut self, lba: u64, sectors: u32, filling: Option<usize>) {
        let end = lba + u64::from(sectors);
        for segment in &mut self.segments {
            if lba < segment.end && segment.start < end {
                segment.end = segment.start;
            }
        }
        if !self.writes_apart {
            let at = self.replace(lba, end, filling);
            if !self.reads_find_writes {
                self.segments[at].end = self.segments[at].start;
            }
        }
    }
}
