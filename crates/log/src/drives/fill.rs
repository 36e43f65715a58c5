//! A member that is being filled: it gets every segment that is written, and no read uses it.
//!
//! Until the keeper of the roots has recorded that it misses nothing, it counts as missing. Fault
//! expected: the member refuses a write; it is given up then, and stays missing.

use std::cell::Cell;

use futures_util::future::join_all;
use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, DriveError, IoRequest};

use crate::drives::{Drives, requests};
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};

/// The member that is being filled, if one is.
#[derive(Default)]
pub(crate) struct Filling {
    member: Cell<Option<usize>>,
    /// True once a member that counts as missing has refused a write.
    has_refused: Cell<bool>,
}

/// Fills a member until this is dropped.
pub(crate) struct FillingMember<'a> {
    drives: &'a Drives,
    pub(crate) member: usize,
}

impl FillingMember<'_> {
    /// An error once the member has refused a write.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        match self.drives.filling.has_refused.get() {
            false => Ok(()),
            true => Err(LogError::RebuildRefused { member: self.member }),
        }
    }
}

impl Drop for FillingMember<'_> {
    fn drop(&mut self) {
        self.drives.filling.member.set(None);
    }
}

impl Drives {
    /// Sends all segments to a missing member from now on, too.
    pub(crate) fn begin_filling(&self, member: usize) -> FillingMember<'_> {
        assert!(self.missing().contains(member), "member {member} misses nothing");
        self.filling.member.set(Some(member));
        self.filling.has_refused.set(false);
        FillingMember { drives: self, member }
    }

    /// True if segments are written to this member.
    pub(crate) fn gets_segments(&self, member: usize) -> bool {
        let is_filling =
            self.filling.member.get() == Some(member) && !is_chosen(Mutation::NewSegmentsNotFilled);
        is_filling || !self.missing().contains(member)
    }

    /// Sorts out refusals of members that count as missing: they change nothing for clients.
    pub(crate) fn without_filling(&self, refused: Vec<(usize, DriveError)>) -> Vec<(usize, DriveError)> {
        let missing = self.missing();
        let (filling, present): (Vec<_>, Vec<_>) =
            refused.into_iter().partition(|(member, _)| missing.contains(*member));
        if !filling.is_empty() {
            self.filling.has_refused.set(true);
        }
        present
    }

    /// Writes a member's strips of a segment.
    pub(crate) async fn fill(&self, segment: u32, data: &Buffer, member: usize) -> Result<(), LogError> {
        let parity = self.parity(data);
        let pieces = std::mem::take(&mut self.pieces(segment, data, &parity)[member]);
        let requests = requests(self.segments.base_bytes, pieces);
        let sent = requests.into_iter().map(|request| {
            let request = request.because(Cause::Rebuild);
            self.ask(member, Class::Background, request)
        });
        for answer in join_all(sent).await {
            answer?;
        }
        Ok(())
    }

    /// Makes everything durable that was written to one member before.
    pub(crate) async fn flush_member(&self, member: usize) -> Result<(), LogError> {
        let flushed = self.ask(member, Class::Upkeep, IoRequest::flush().because(Cause::Flush)).await;
        Ok(flushed?)
    }

    /// Counts a filled member as present, and has that recorded. From the first moment it is a
    /// member like all others: if it refuses a write, that is recorded after this.
    pub(crate) async fn include(&self, filled: FillingMember<'_>) -> Result<(), LogError> {
        let member = filled.member;
        self.exclusion.take_in(member);
        drop(filled);
        self.exclusion.record_included(member).await
    }
}
