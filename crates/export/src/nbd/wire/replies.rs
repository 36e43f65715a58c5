//! Encoding of replies to requests, each sent together with its data.

use stripewise_array::Extent;
use stripewise_drive::Buffer;
use stripewise_runtime::Piece;

use crate::nbd::wire::errors::Failure;
use crate::nbd::wire::negotiation::shortened;
use crate::nbd::wire::protocol::*;
use crate::nbd::wire::requests::Request;

/// Maximum length of an error message.
const LONGEST_MESSAGE: usize = 1000;

/// Result of a request.
pub(crate) enum Outcome {
    Done,
    Data(Buffer),
    /// The whole range reads as zeros; only for structured replies.
    Hole,
    Status(Vec<Extent>),
    Failed(Failure),
}

/// A reply: its head and the data that follow.
pub(crate) struct Reply {
    pub head: Piece,
    pub data: Option<Buffer>,
}

impl Reply {
    pub(in crate::nbd) fn new(request: &Request, structured: bool, outcome: Outcome) -> Self {
        match outcome {
            Outcome::Failed(failure) if structured => Self::head(error_chunk(request, &failure)),
            Outcome::Failed(failure) => Self::head(simple(request, failure.errno)),
            Outcome::Done => Self::head(simple(request, 0)),
            Outcome::Data(data) if structured && data.is_empty() => {
                Self::head(chunk(request, REPLY_NONE, 0, &[]))
            }
            Outcome::Data(data) if structured => {
                let head = chunk(request, REPLY_OFFSET_DATA, data.len(), &request.offset.to_be_bytes());
                Self { head, data: Some(data) }
            }
            Outcome::Data(data) => Self { head: simple(request, 0), data: Some(data) },
            Outcome::Hole => {
                let mut hole = [0; 12];
                hole[..8].copy_from_slice(&request.offset.to_be_bytes());
                hole[8..].copy_from_slice(&request.length.to_be_bytes());
                Self::head(chunk(request, REPLY_OFFSET_HOLE, 0, &hole))
            }
            Outcome::Status(extents) => {
                let mut status = Vec::with_capacity(4 + extents.len() * 8);
                status.extend(BASE_ALLOCATION_ID.to_be_bytes());
                for extent in extents {
                    status.extend((extent.length_bytes as u32).to_be_bytes());
                    let state = if extent.written { 0 } else { STATE_HOLE | STATE_ZERO };
                    status.extend(state.to_be_bytes());
                }
                Self::head(chunk(request, REPLY_BLOCK_STATUS, 0, &status))
            }
        }
    }

    fn head(head: Piece) -> Self {
        Self { head, data: None }
    }

    pub(in crate::nbd) fn length(&self) -> usize {
        self.head.len() + self.data.as_ref().map_or(0, Buffer::len)
    }
}

fn simple(request: &Request, errno: u32) -> Piece {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&errno.to_be_bytes());
    bytes[8..].copy_from_slice(&request.cookie.to_be_bytes());
    Piece::copy_of(&bytes)
}

/// The only chunk of a reply: `content`, followed by `following_bytes` of data.
fn chunk(request: &Request, kind: u16, following_bytes: usize, content: &[u8]) -> Piece {
    let mut head = [0; 20];
    head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&REPLY_FLAG_DONE.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    head[16..].copy_from_slice(&((content.len() + following_bytes) as u32).to_be_bytes());
    if content.len() <= 12 {
        // Replies to reads are this short, and need no allocation.
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&head);
        bytes[20..20 + content.len()].copy_from_slice(content);
        return Piece::copy_of(&bytes[..20 + content.len()]);
    }
    Piece::from([&head, content].concat())
}

fn error_chunk(request: &Request, failure: &Failure) -> Piece {
    let message = shortened(&failure.message, LONGEST_MESSAGE).as_bytes();
    let mut content = Vec::with_capacity(6 + message.len());
    content.extend(failure.errno.to_be_bytes());
    content.extend((message.len() as u16).to_be_bytes());
    content.extend(message);
    chunk(request, REPLY_ERROR, 0, &content)
}
