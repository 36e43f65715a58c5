//! The open requests of an NBD drive: each split into parts that the server takes, which of them
//! were sent and answered, and the consequences of a lost connection. No I/O, no clock.
//!
//! **Lost connections.** Unanswered reads and flushes may be sent again on the next connection.
//! In two cases the drive is given up instead, and catches up later like any drive that was away:
//!
//! - The server had acknowledged writes that no flush has made durable: if the server itself went
//!   down, it may have lost them. A part of a write counts as soon as it was answered, whatever
//!   became of the other parts.
//! - The server has a change (a write, zeros, a trim) that it did not answer. It may execute it
//!   later than the same change on a new connection, and later than newer ones to the same place.
//!   The time of that request is returned, so that the export is left alone for as long as the
//!   server may take (`unsettled.rs`).
//!
//! Expected faults: replies to unknown requests; read chunks that are missing, doubled, or out of
//! range.

use std::collections::{BTreeMap, VecDeque};

use stripewise_drive::{Buffer, CompletionSender, DriveErrorKind, IoRequest, Operation, Segments};

use super::identity_probe::IdentityProbe;
use crate::nbd::wire::protocol::*;

/// Length of the parts of requests without data, bytes, so that none of them takes long.
const RANGE_BYTES: u64 = 32 << 20;
/// Length of a write of zeros where the server has no command for them, bytes.
const ZEROS_BYTES: u64 = 1 << 20;

/// The server's features that requests depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub fua: bool,
    pub trim: bool,
    pub zeroes: bool,
    /// Maximum bytes of one transfer.
    pub longest_bytes: u64,
}

/// The command of one part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Read,
    Write {
        fua: bool,
    },
    Zeros,
    Trim,
    /// `covers`: number of writes answered before the flush was requested.
    Flush {
        covers: u64,
    },
}

impl Command {
    /// True if the command changes the drive's contents.
    fn changes(self) -> bool {
        match self {
            Self::Write { .. } | Self::Zeros | Self::Trim => true,
            Self::Read | Self::Flush { .. } => false,
        }
    }
}

struct Part {
    order: u64,
    command: Command,
    offset: u64,
    length: u64,
    sent: bool,
    /// Ranges received, for a read.
    received: Vec<(u64, u64)>,
    failure: Option<u32>,
}

/// A request of a caller, or (without a sender) a probe of the server.
struct Order {
    request: IoRequest,
    sender: Option<CompletionSender>,
    since_ns: u64,
    parts_left: usize,
    failure: Option<u32>,
    /// The server has no FUA: a flush follows what was written.
    then_flush: bool,
}

/// A finished request; to be completed outside of any borrow.
pub(crate) struct Completed {
    request: IoRequest,
    sender: Option<CompletionSender>,
    failure: Option<(DriveErrorKind, Option<i32>)>,
}

impl Completed {
    /// Completes the caller's request.
    pub(super) fn tell(self, label: &std::sync::Arc<str>) {
        let Some(sender) = self.sender else { return };
        sender.complete(match self.failure {
            None => Ok(()),
            Some((kind, code)) => Err(self.request.error(label, kind, code)),
        });
    }
}

/// The consequence of a lost connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// All unanswered requests can be sent again.
    AskAgain,
    /// Acknowledged writes may be lost with it.
    Unflushed,
    /// The server may still execute changes that it did not answer.
    InHand,
}

/// The requests of one drive.
pub(crate) struct Ledger {
    abilities: Abilities,
    next: u64,
    orders: BTreeMap<u64, Order>,
    parts: BTreeMap<u64, Part>,
    to_send: VecDeque<u64>,
    /// Number of answered parts of writes, and of those that a flush has covered.
    written: u64,
    durable: u64,
    zeros: Buffer,
    pub witness: IdentityProbe,
}

impl Ledger {
    pub(super) fn new(abilities: Abilities) -> Self {
        let zeros = if abilities.zeroes { 0 } else { ZEROS_BYTES as usize };
        Self {
            abilities,
            next: 0,
            orders: BTreeMap::new(),
            parts: BTreeMap::new(),
            to_send: VecDeque::new(),
            written: 0,
            durable: 0,
            zeros: Buffer::from_bytes(&vec![0; zeros]),
            witness: IdentityProbe::default(),
        }
    }

    /// Takes a request of at least one byte, or a flush. A request that does not need the server is
    /// returned at once, done.
    pub(super) fn submit(
        &mut self,
        request: IoRequest,
        sender: Option<CompletionSender>,
        now_ns: u64,
    ) -> Option<Completed> {
        let (command, piece_bytes) = match request.operation {
            Operation::Read => (Command::Read, self.abilities.longest_bytes),
            Operation::Write { fua } => {
                (Command::Write { fua: fua && self.abilities.fua }, self.abilities.longest_bytes)
            }
            Operation::Flush => (Command::Flush { covers: self.written }, u64::MAX),
            Operation::Discard if !self.abilities.trim => {
                return Some(Completed { request, sender, failure: None });
            }
            Operation::Discard => (Command::Trim, RANGE_BYTES),
            Operation::WriteZeroes if self.abilities.zeroes => (Command::Zeros, RANGE_BYTES),
            Operation::WriteZeroes => {
                (Command::Write { fua: false }, self.abilities.longest_bytes.min(ZEROS_BYTES))
            }
        };
        let then_flush = request.operation == Operation::Write { fua: true } && !self.abilities.fua;
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            self.witness.overwritten(request.offset_bytes, request.end_bytes());
        }
        let order = self.next;
        self.next += 1;
        let (offset, end) = match request.operation {
            // Servers refuse a flush with a range; the engine's may carry the range that it
            // concerns.
            Operation::Flush => (0, 0),
            _ => (request.offset_bytes, request.end_bytes()),
        };
        let order_of = Order { request, sender, since_ns: now_ns, parts_left: 0, failure: None, then_flush };
        self.orders.insert(order, order_of);
        let mut at = offset;
        loop {
            let length = (end - at).min(piece_bytes);
            self.add_part(order, command, at, length);
            at += length;
            if at == end {
                break;
            }
        }
        None
    }

    fn add_part(&mut self, order: u64, command: Command, offset: u64, length: u64) {
        let cookie = self.next;
        self.next += 1;
        let part = Part { order, command, offset, length, sent: false, received: Vec::new(), failure: None };
        if let Command::Write { .. } = command {
            let data = self.memory(&part);
            self.witness.consider(cookie, offset, &data);
        }
        self.parts.insert(cookie, part);
        self.to_send.push_back(cookie);
        if let Some(order) = self.orders.get_mut(&order) {
            order.parts_left += 1;
        }
    }

    /// The memory of a part.
    fn memory(&self, part: &Part) -> Segments {
        let Some(order) = self.orders.get(&part.order) else { return Segments::new() };
        if order.request.operation == Operation::WriteZeroes {
            return Segments::from_iter([self.zeros.slice(0..part.length as usize)]);
        }
        stretch(&order.request.segments, part.offset - order.request.offset_bytes, part.length)
    }

    /// The next part for the server: its header and its data.
    pub(super) fn next_to_send(&mut self) -> Option<([u8; 28], Segments)> {
        let cookie = self.to_send.pop_front()?;
        let part = self.parts.get_mut(&cookie)?;
        part.sent = true;
        let (kind, flags) = match part.command {
            Command::Read => (CMD_READ, 0),
            Command::Write { fua } => (CMD_WRITE, if fua { CMD_FLAG_FUA } else { 0 }),
            Command::Zeros => (CMD_WRITE_ZEROES, 0),
            Command::Trim => (CMD_TRIM, 0),
            Command::Flush { .. } => (CMD_FLUSH, 0),
        };
        let head = request_head(kind, flags, cookie, part.offset, part.length as u32);
        let part = &self.parts[&cookie];
        let data = if kind == CMD_WRITE { self.memory(part) } else { Segments::new() };
        Some((head, data))
    }

    /// True if a part waits to be sent.
    pub(super) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// True if no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.orders.is_empty()
    }

    /// Start of the oldest open request, ns on the caller's clock.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.orders.first_key_value().map(|(_, order)| order.since_ns)
    }

    /// Start of the newest change that was sent and not answered, ns on the caller's clock.
    pub(super) fn in_hand_ns(&self) -> Option<u64> {
        let changes = self.parts.values().filter(|part| part.sent && part.command.changes());
        changes.filter_map(|part| Some(self.orders.get(&part.order)?.since_ns)).max()
    }

    /// `Some` if a part with this cookie was sent and is unanswered; of a read, with its length in
    /// bytes.
    pub(super) fn asked(&self, cookie: u64) -> Option<Option<u64>> {
        let part = self.parts.get(&cookie).filter(|part| part.sent)?;
        Some((part.command == Command::Read).then_some(part.length))
    }

    /// Destination for `length` bytes at `offset` of the drive, received in answer to a read.
    /// `None` if they were not requested, or were received before.
    pub(super) fn receiving(&mut self, cookie: u64, offset: u64, length: u64) -> Option<Segments> {
        let part = self.parts.get_mut(&cookie).filter(|part| part.sent && part.command == Command::Read)?;
        let end = offset.checked_add(length)?;
        let overlaps = |&(from, to): &(u64, u64)| from < end && offset < to;
        if length == 0
            || offset < part.offset
            || end > part.offset + part.length
            || part.received.iter().any(overlaps)
        {
            return None;
        }
        match part.received.last_mut() {
            Some((_, to)) if *to == offset => *to = end,
            _ => part.received.push((offset, end)),
        }
        let order = self.orders.get(&part.order)?;
        Some(stretch(&order.request.segments, offset - order.request.offset_bytes, length))
    }

    /// Destination for the data of a whole read.
    pub(super) fn receiving_all(&mut self, cookie: u64) -> Option<Segments> {
        let part = self.parts.get(&cookie)?;
        let (offset, length) = (part.offset, part.length);
        self.receiving(cookie, offset, length)
    }

    /// Records an error of a part; the first one counts.
    pub(super) fn failing(&mut self, cookie: u64, errno: u32) {
        if let Some(part) = self.parts.get_mut(&cookie) {
            part.failure.get_or_insert(errno);
        }
    }

    /// Completes a part. Returns the request if that was its last; `Err` if the reply violates the
    /// protocol.
    pub(super) fn answered(&mut self, cookie: u64) -> Result<Option<Completed>, &'static str> {
        if !self.parts.get(&cookie).is_some_and(|part| part.sent) {
            return Err("reply to an unknown request");
        }
        let Some(part) = self.parts.remove(&cookie) else { return Ok(None) };
        let received: u64 = part.received.iter().map(|(from, to)| to - from).sum();
        if part.command == Command::Read && part.failure.is_none() && received != part.length {
            return Err("incomplete reply to a read");
        }
        if part.failure.is_some() {
            self.witness.refused(cookie);
        } else {
            match part.command {
                Command::Write { fua: false } | Command::Zeros => {
                    self.written += 1;
                    self.witness.answered(cookie, self.written, false);
                }
                Command::Write { fua: true } => self.witness.answered(cookie, self.written, true),
                Command::Flush { covers } => {
                    self.durable = self.durable.max(covers);
                    self.witness.flushed(covers);
                }
                Command::Read | Command::Trim => {}
            }
        }
        let is_refused_flush = matches!(part.command, Command::Flush { .. }) && part.failure.is_some();
        let Some(order) = self.orders.get_mut(&part.order) else { return Ok(None) };
        order.parts_left -= 1;
        order.failure = order.failure.or(part.failure);
        if order.parts_left > 0 {
            return Ok(None);
        }
        if std::mem::take(&mut order.then_flush) && order.failure.is_none() {
            self.add_part(part.order, Command::Flush { covers: self.written }, 0, 0);
            return Ok(None);
        }
        let Some(Order { request, sender, failure, .. }) = self.orders.remove(&part.order) else {
            return Ok(None);
        };
        let failure = failure.map(|errno| (kind_of(errno), Some(errno as i32)));
        // A refused flush after a FUA write means that all other unflushed writes may be lost, too:
        // the caller has to see that it was a flush.
        let request = if is_refused_flush { IoRequest::flush() } else { request };
        Ok(Some(Completed { request, sender, failure }))
    }

    /// Handles the loss of the connection: queues all unanswered parts again, if that is safe.
    pub(super) fn connection_lost(&mut self) -> Loss {
        if self.written > self.durable {
            return Loss::Unflushed;
        }
        if self.in_hand_ns().is_some() {
            return Loss::InHand;
        }
        self.to_send.clear();
        for (cookie, part) in &mut self.parts {
            part.sent = false;
            part.received.clear();
            part.failure = None;
            self.to_send.push_back(*cookie);
        }
        Loss::AskAgain
    }

    /// Gives up the drive: all requests end as gone.
    pub(super) fn give_up(&mut self) -> Vec<Completed> {
        self.parts.clear();
        self.to_send.clear();
        let gone = |order: Order| Completed {
            request: order.request,
            sender: order.sender,
            failure: Some((DriveErrorKind::Gone, None)),
        };
        std::mem::take(&mut self.orders).into_values().map(gone).collect()
    }
}

/// The memory of `length` bytes from offset `from` of scattered memory.
fn stretch(segments: &Segments, mut from: u64, mut length: u64) -> Segments {
    let mut pieces = Segments::new();
    for segment in segments {
        let bytes = segment.len() as u64;
        if from >= bytes {
            from -= bytes;
            continue;
        }
        let taken = length.min(bytes - from);
        if taken == 0 {
            break;
        }
        pieces.push(segment.slice(from as usize..(from + taken) as usize));
        length -= taken;
        from = 0;
    }
    pieces
}

/// The header of a request.
pub(crate) fn request_head(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut head = [0; 28];
    head[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..28].copy_from_slice(&length.to_be_bytes());
    head
}

/// The drive error that a server's error number stands for.
fn kind_of(errno: u32) -> DriveErrorKind {
    match errno {
        EIO => DriveErrorKind::Medium,
        EPERM => DriveErrorKind::Denied,
        ENOSPC => DriveErrorKind::NoSpace,
        ESHUTDOWN => DriveErrorKind::Gone,
        _ => DriveErrorKind::Other,
    }
}

#[cfg(test)]
mod tests;
