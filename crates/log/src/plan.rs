//! The plan: the segments that will be written next, in order, each with its sequence number.
//!
//! The roots name the plan, so recovery knows where the segments after the roots are without
//! searching, and a segment is written only if durable roots have it as planned, that is, as free.
//! A sequence number is used once in the life of a log.

use std::collections::VecDeque;

use crate::mutation::{Mutation, is_chosen};

/// The plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Sequence of the first planned segment.
    first: u64,
    segments: VecDeque<u32>,
    /// Number of them that durable roots name.
    durable: usize,
}

impl Plan {
    /// A plan as roots have it.
    pub(crate) fn new(first: u64, segments: impl IntoIterator<Item = u32>) -> Self {
        let segments: VecDeque<u32> = segments.into_iter().collect();
        Self { first, durable: segments.len(), segments }
    }

    /// Sequence of the next segment.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first
    }

    /// Segments planned.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Segments that can be written now.
    pub(crate) fn writable(&self) -> usize {
        self.durable
    }

    /// The planned segments in order.
    pub(crate) fn segments(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.segments.iter().copied()
    }

    /// Takes the next segment; `None` until roots that name it are durable.
    pub(crate) fn take(&mut self) -> Option<(u64, u32)> {
        self.durable = self.durable.checked_sub(1)?;
        let segment = self.segments.pop_front().expect("no fewer than the durable ones");
        self.first += 1;
        Some((self.first - 1, segment))
    }

    /// Appends a segment, which is written once roots name it.
    pub(crate) fn push(&mut self, segment: u32) {
        self.segments.push_back(segment);
        if is_chosen(Mutation::ReuseBeforeRoots) {
            self.durable = self.segments.len();
        }
    }

    /// Notes that durable roots name the plan up to this sequence.
    pub(crate) fn durable_before(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence.saturating_sub(self.first) as usize);
    }
}
