//! Receives a server's simple and structured replies; read data go directly into the reader's
//! buffer.
//!
//! Expected faults: malformed replies, replies to unknown requests, wrong lengths. Each ends the
//! connection.

use std::cell::RefCell;
use std::io;

use super::ledger::{Completed, Ledger};
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::wire::protocol::*;

/// Maximum length of an error reply.
const LONGEST_WORDS: u64 = 16 << 10;

/// Head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Simple { errno: u32, cookie: u64 },
    Chunk { is_last: bool, kind: u16, cookie: u64, length: u64 },
}

impl Head {
    /// Parses the bytes after the magic number of a simple reply.
    pub(super) fn simple(bytes: &[u8; 12]) -> Self {
        let [a, b, c, d, cookie @ ..] = *bytes;
        Self::Simple { errno: u32::from_be_bytes([a, b, c, d]), cookie: u64::from_be_bytes(cookie) }
    }

    /// Parses the bytes after the magic number of a structured reply chunk.
    pub(super) fn chunk(bytes: &[u8; 16]) -> Self {
        let [f, g, k, l, rest @ ..] = *bytes;
        let [a, b, c, d, e, h, i, j, length @ ..] = rest;
        Self::Chunk {
            is_last: u16::from_be_bytes([f, g]) & REPLY_FLAG_DONE != 0,
            kind: u16::from_be_bytes([k, l]),
            cookie: u64::from_be_bytes([a, b, c, d, e, h, i, j]),
            length: u64::from(u32::from_be_bytes(length)),
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Receives the next reply. `Ok(None)` when the server has closed the connection; otherwise the
/// request that the reply completes, if any.
pub(crate) async fn take(
    inbox: &mut Inbox,
    transport: &Transport,
    ledger: &RefCell<Ledger>,
) -> io::Result<Option<Option<Completed>>> {
    if !inbox.need(transport, 4).await? {
        return Ok(None);
    }
    let head = match u32::from_be_bytes(inbox.take()) {
        SIMPLE_REPLY_MAGIC => {
            inbox.need_more(transport, 12).await?;
            Head::simple(&inbox.take())
        }
        STRUCTURED_REPLY_MAGIC => {
            inbox.need_more(transport, 16).await?;
            Head::chunk(&inbox.take())
        }
        _ => return Err(malformed("malformed reply")),
    };
    let cookie = match head {
        Head::Simple { cookie, .. } | Head::Chunk { cookie, .. } => cookie,
    };
    let Some(read_bytes) = ledger.borrow().asked(cookie) else {
        return Err(malformed("reply to an unknown request"));
    };
    let is_last = match head {
        Head::Simple { errno: 0, .. } => {
            if read_bytes.is_some() {
                let into = ledger.borrow_mut().receiving_all(cookie);
                for piece in into.ok_or_else(|| malformed("second reply to a read"))? {
                    inbox.fill(transport, &piece).await?;
                }
            }
            true
        }
        Head::Simple { errno, .. } => {
            ledger.borrow_mut().failing(cookie, errno);
            true
        }
        Head::Chunk { is_last, kind, length, .. } => {
            take_chunk(inbox, transport, ledger, cookie, kind, length).await?;
            is_last
        }
    };
    if !is_last {
        return Ok(Some(None));
    }
    let answered = ledger.borrow_mut().answered(cookie);
    answered.map(Some).map_err(malformed)
}

async fn take_chunk(
    inbox: &mut Inbox,
    transport: &Transport,
    ledger: &RefCell<Ledger>,
    cookie: u64,
    kind: u16,
    length: u64,
) -> io::Result<()> {
    match kind {
        REPLY_NONE if length == 0 => Ok(()),
        REPLY_OFFSET_DATA if length > 8 => {
            inbox.need_more(transport, 8).await?;
            let offset = u64::from_be_bytes(inbox.take());
            let into = ledger.borrow_mut().receiving(cookie, offset, length - 8);
            for piece in into.ok_or_else(|| malformed("unexpected read data"))? {
                inbox.fill(transport, &piece).await?;
            }
            Ok(())
        }
        REPLY_OFFSET_HOLE if length == 12 => {
            inbox.need_more(transport, 12).await?;
            let offset = u64::from_be_bytes(inbox.take());
            let zeros = u64::from(u32::from_be_bytes(inbox.take()));
            let into = ledger.borrow_mut().receiving(cookie, offset, zeros);
            for piece in into.ok_or_else(|| malformed("unexpected hole"))? {
                piece.fill(0);
            }
            Ok(())
        }
        kind if kind & REPLY_ERROR_BIT != 0 && (4..=LONGEST_WORDS).contains(&length) => {
            inbox.need_more(transport, 4).await?;
            let errno = u32::from_be_bytes(inbox.take());
            inbox.skip(transport, length - 4).await?;
            // Zero would mean success.
            ledger.borrow_mut().failing(cookie, if errno == 0 { EIO } else { errno });
            Ok(())
        }
        _ => Err(malformed("unexpected kind of reply")),
    }
}
