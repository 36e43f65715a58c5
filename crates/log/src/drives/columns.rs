//! Columns of a log: the space of each member, which looks contiguous to the log and consists of
//! stretches of a drive.
//!
//! A request that crosses the end of a stretch is sent in parts. Requests in flight are counted, so
//! that the space can be given to others once the log has ended: after [`Columns::end`] nothing
//! more is sent, whatever task of the log is still running.
//!
//! Faults expected: members that are not at hand, and drives that refused a flush of another user.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_array::{Class, Member, MemberLabel};
use stripewise_drive::{
    Completion, DriveError, DriveErrorKind, Event, IoRequest, IoResult, Operation, Segments,
};

/// Consecutive bytes of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Start on the drive, bytes.
    pub start_bytes: u64,
    /// Length, bytes.
    pub length_bytes: u64,
}

/// The space of one member.
#[derive(Clone)]
pub struct Column {
    /// Queue of the drive; `None` while it is not at hand.
    pub member: Option<Rc<Member>>,
    /// Stretches of the drive that make up the space, in order.
    pub stretches: Vec<Stretch>,
}

/// A column with what the log knows of it.
struct Known {
    column: Column,
    /// Refused flushes of the drive, of any user, that were dealt with.
    flush_failures: Cell<u64>,
}

impl Known {
    fn new(column: Column) -> Self {
        let flush_failures = column.member.as_ref().map_or(0, |member| member.flush_failures().count());
        Self { column, flush_failures: Cell::new(flush_failures) }
    }
}

/// Requests in flight.
#[derive(Default)]
struct InFlight {
    count: Cell<usize>,
    ended: Event,
}

/// The columns of a log, in the order of its members.
pub struct Columns {
    known: RefCell<Vec<Known>>,
    in_flight: Rc<InFlight>,
    has_ended: Cell<bool>,
    nameless: MemberLabel,
}

impl Columns {
    /// Takes the columns in order.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Rc<Self> {
        Rc::new(Self {
            known: RefCell::new(columns.into_iter().map(Known::new).collect()),
            in_flight: Rc::default(),
            has_ended: Cell::new(false),
            nameless: "a missing drive".into(),
        })
    }

    /// Columns that are the beginning of each drive.
    pub fn whole(members: impl IntoIterator<Item = Rc<Member>>) -> Rc<Self> {
        let stretch = Stretch { start_bytes: 0, length_bytes: u64::MAX };
        let column = |member| Column { member: Some(member), stretches: vec![stretch] };
        Self::new(members.into_iter().map(column))
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.known.borrow().len()
    }

    /// True if a column has this drive and place.
    pub fn has(&self, number: usize, column: &Column) -> bool {
        let known = &self.known.borrow()[number].column;
        let is_same_drive = match (&known.member, &column.member) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_drive && known.stretches == column.stretches
    }

    /// Queue of a column's drive.
    pub fn member(&self, column: usize) -> Option<Rc<Member>> {
        self.known.borrow()[column].column.member.clone()
    }

    /// Gives a column another drive and place. The contents of the old one count for nothing.
    pub(crate) fn replace(&self, number: usize, column: Column) {
        self.known.borrow_mut()[number] = Known::new(column);
    }

    /// Requests waiting at and in flight to a column's drive.
    pub(crate) fn load(&self, column: usize) -> usize {
        self.known.borrow()[column].column.member.as_ref().map_or(usize::MAX, |member| member.load())
    }

    /// Sends a request whose offset is one of the column.
    pub(crate) fn submit(&self, column: usize, class: Class, request: IoRequest) -> Answer {
        let known = self.known.borrow();
        let known = &known[column].column;
        let Some(member) = known.member.as_ref().filter(|_| !self.has_ended.get()) else {
            let label = known.member.as_ref().map_or(&self.nameless, |member| member.label());
            let gone = request.error(label, DriveErrorKind::Gone, None);
            return Answer::new(&self.in_flight, [Completion::ready(Err(gone))]);
        };
        if request.operation == Operation::Flush {
            return Answer::new(&self.in_flight, [member.submit(class, request)]);
        }
        let parts = parts(&known.stretches, request);
        Answer::new(&self.in_flight, parts.into_iter().map(|part| member.submit(class, part)))
    }

    /// The error of a flush of any user that a column's drive refused since the last call: writes
    /// before it may be lost.
    pub(crate) fn take_refused_flush(&self, column: usize) -> Option<DriveError> {
        let known = self.known.borrow();
        let Known { column, flush_failures } = &known[column];
        let failures = column.member.as_ref()?.flush_failures();
        failures.since(flush_failures.replace(failures.count()))
    }

    /// Sends nothing more.
    pub(crate) fn stop(&self) {
        self.has_ended.set(true);
    }

    /// True if nothing more is sent: what refuses is not a drive then.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Sends nothing more, and waits until what was sent has been answered.
    pub async fn end(&self) {
        self.stop();
        while self.in_flight.count.get() > 0 {
            self.in_flight.ended.wait().await;
        }
    }
}

/// The part of a request in each stretch.
fn parts(stretches: &[Stretch], mut request: IoRequest) -> SmallVec<[IoRequest; 1]> {
    let (mut at, mut left) = (request.offset_bytes, request.length_bytes);
    let mut before = 0;
    let mut parts = SmallVec::new();
    for stretch in stretches {
        let inside = at.wrapping_sub(before);
        before = before.saturating_add(stretch.length_bytes);
        if at >= before {
            continue;
        }
        let length = left.min(stretch.length_bytes - inside);
        if length == request.length_bytes {
            request.offset_bytes = stretch.start_bytes + inside;
            parts.push(request);
            return parts;
        }
        let first = at - request.offset_bytes;
        let part = IoRequest {
            offset_bytes: stretch.start_bytes + inside,
            length_bytes: length,
            segments: cut(&request.segments, first, first + length),
            ..request
        };
        parts.push(part);
        (at, left) = (at + length, left - length);
        if left == 0 {
            return parts;
        }
    }
    panic!("{} bytes at {} lie beyond the column's end", request.length_bytes, request.offset_bytes);
}

/// The part of scattered memory from one byte to another.
fn cut(segments: &Segments, from: u64, to: u64) -> Segments {
    let mut start = 0;
    let mut cut = Segments::new();
    for segment in segments {
        let end = start + segment.len() as u64;
        let (first, last) = (from.clamp(start, end), to.clamp(start, end));
        if first < last {
            cut.push(segment.slice((first - start) as usize..(last - start) as usize));
        }
        start = end;
    }
    cut
}

/// The answer to a request, which is in flight until all of its parts have ended.
pub(crate) struct Answer {
    parts: SmallVec<[Completion; 1]>,
    in_flight: Rc<InFlight>,
}

impl Answer {
    fn new(in_flight: &Rc<InFlight>, parts: impl IntoIterator<Item = Completion>) -> Self {
        in_flight.count.set(in_flight.count.get() + 1);
        Self { parts: parts.into_iter().collect(), in_flight: in_flight.clone() }
    }

    /// Waits for all parts; the first error counts.
    pub(crate) async fn end(mut self) -> IoResult {
        let mut result = Ok(());
        for part in std::mem::take(&mut self.parts) {
            result = result.and(part.await);
        }
        result
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.in_flight.count.set(self.in_flight.count.get() - 1);
        if self.in_flight.count.get() == 0 {
            self.in_flight.ended.notify_all();
        }
    }
}

/// Waits for answers; the members that refused, with their errors.
pub(crate) async fn refusals(sent: Vec<(usize, Answer)>) -> Vec<(usize, DriveError)> {
    let mut refused = Vec::new();
    for (member, answer) in sent {
        refused.extend(answer.end().await.err().map(|error| (member, error)));
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::Buffer;

    #[test]
    fn requests_are_cut_at_the_ends_of_stretches() {
        let stretches = [
            Stretch { start_bytes: 1000, length_bytes: 10 },
            Stretch { start_bytes: 0, length_bytes: 5 },
            Stretch { start_bytes: 500, length_bytes: 100 },
        ];
        let on_drive = |at: u64| match at {
            0..10 => 1000 + at,
            10..15 => at - 10,
            _ => 500 + at - 15,
        };
        let bytes: Vec<u8> = (0..100).collect();
        for (start, length) in (0..30).flat_map(|start| (1..70).map(move |length| (start, length))) {
            let memory = |from: u64, to: u64| Buffer::from_bytes(&bytes[from as usize..to as usize]);
            let (first, second) =
                (memory(start, start + length / 2), memory(start + length / 2, start + length));
            let segments = Segments::from_iter([first, second]);
            let request = IoRequest::with_segments(Operation::Write { fua: true }, start, segments);
            let mut at = start;
            for part in parts(&stretches, request) {
                assert_eq!(part.operation, Operation::Write { fua: true });
                assert_eq!(part.offset_bytes, on_drive(at));
                assert_eq!(on_drive(at + part.length_bytes - 1), part.end_bytes() - 1, "in one stretch");
                let sent: Vec<u8> = part.segments.iter().flat_map(|segment| segment.to_vec()).collect();
                assert_eq!(sent, bytes[at as usize..(at + part.length_bytes) as usize]);
                at += part.length_bytes;
            }
            assert_eq!(at, start + length);
        }
    }
}
