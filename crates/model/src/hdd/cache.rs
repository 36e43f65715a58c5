//! Contents of the read cache: segments, each of one stream; the least recently used is replaced.

use super::parameters::ReadCacheParameters;

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// Segments by stream.
#[derive(Clone, Debug)]
pub(super) struct ReadCache {
    parameters: ReadCacheParameters,
    segments: Vec<Segment>,
    clock: u64,
}

impl ReadCache {
    pub(super) fn new(parameters: ReadCacheParameters) -> Self {
        Self { parameters, segments: Vec::with_capacity(parameters.segments as usize), clock: 0 }
    }

    /// True if the whole range is cached; a hit keeps its stream from being replaced.
    pub(super) fn hit(&mut self, lba: u64, sectors: u32) -> bool {
        self.clock += 1;
        let end = lba + u64::from(sectors);
        let found = self.segments.iter_mut().find(|segment| segment.start <= lba && end <= segment.end);
        match found {
            Some(segment) => {
                segment.used = self.clock;
                true
            }
            None => false,
        }
    }

    /// Records sectors read from the medium: they extend a segment that ends at their start, or
    /// replace the oldest one.
    pub(super) fn fill(&mut self, lba: u64, sectors: u32) {
        if self.parameters.segments == 0 || sectors == 0 {
            return;
        }
        self.clock += 1;
        let size = u64::from(self.parameters.segment_sectors);
        let end = lba + u64::from(sectors);
        let at = match self.segments.iter().position(|segment| segment.start <= lba && lba <= segment.end) {
            Some(at) => at,
            None => {
                let fresh = Segment { start: lba, end: lba, used: 0 };
                if self.segments.len() < self.parameters.segments as usize {
                    self.segments.push(fresh);
                    self.segments.len() - 1
                } else {
                    let oldest = self.segments.iter().enumerate().min_by_key(|(_, segment)| segment.used);
                    let at = oldest.expect("there is at least one segment").0;
                    self.segments[at] = fresh;
                    at
                }
            }
        };
        let segment = &mut self.segments[at];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(size));
        segment.used = self.clock;
    }

    /// Records written sectors: they and the rest of their segment are dropped.
    pub(super) fn written(&mut self, lba: u64, sectors: u32) {
        let end = lba + u64::from(sectors);
        for segment in &mut self.segments {
            if lba < segment.end && segment.start < end {
                segment.end = segment.start.max(lba);
            }
        }
    }
}
