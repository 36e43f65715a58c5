//! A member that is being filled: it gets every segment that is written, and no read uses it.
//!
//! Until the keeper of the roots has recorded that it misses nothing, it counts as missing. Faults
//! expected: the member refuses a write, or its column gets another drive and place; it is given up
//! then, and stays missing.

use std::cell::{Cell, RefCell};

use futures_util::future::join_all;
use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, DriveError, IoRequest};

use crate::drives::columns::Column;
use crate::drives::{Drives, requests};
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};

/// The member that is being filled, if one is.
#[derive(Default)]
pub(crate) struct Filling {
    member: Cell<Option<usize>>,
    /// Reason why it is given up, once it is.
    ended: RefCell<Option<LogError>>,
}

/// Fills a member until this is dropped.
pub(crate) struct FillingMember<'a> {
    drives: &'a Drives,
    pub(crate) member: usize,
}

impl FillingMember<'_> {
    /// An error once the member has refused a write, or has another place.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.drives.filling.ended.borrow().clone().map_or(Ok(()), Err)
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
        self.filling.ended.take();
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
        if let Some((_, error)) = filling.into_iter().next() {
            self.filling.ended.borrow_mut().get_or_insert(LogError::Drive(error));
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
        self.exclusion.record_included(member).await.inspect_err(|_| {
            self.exclusion.add_recorded([member].into_iter().collect());
        })
    }

    /// Gives a missing member another drive and place.
    pub(crate) fn replace_column(&self, member: usize, column: Column) {
        assert!(self.missing().contains(member), "member {member} misses nothing");
        if self.filling.member.get() == Some(member) && !is_chosen(Mutation::ReplacedMemberBelieved) {
            *self.filling.ended.borrow_mut() = Some(LogError::Replaced { member });
        }
        self.columns.replace(member, column);
    }
}
