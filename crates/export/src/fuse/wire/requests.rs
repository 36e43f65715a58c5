//! Encoding of requests and parsing of answers, for clients that take the kernel's place. Only what
//! a program that uses one file makes the kernel send.
//!
//! Expected faults: none. The other side is our own server, whose mistakes are for tests to find.

use super::{Body, Front, HEAD_BYTES, VERSION, kind};

/// Number of a request, which the answer repeats.
type Unique = u64;

/// A message: a request's head and what follows it.
pub(super) fn message(unique: Unique, kind: u32, node: u64, rest: &[u8]) -> Vec<u8> {
    let length = (HEAD_BYTES + rest.len()) as u32;
    let head = Body::default().numbers32([length, kind]).numbers64([unique, node]).numbers32([0; 4]);
    [&head.0[..], rest].concat()
}

/// INIT of a kernel of the same version with all capabilities.
pub(in crate::fuse) fn init(unique: Unique) -> Vec<u8> {
    let (max_readahead_bytes, abilities) = (128 << 10, u32::MAX);
    let rest = Body::default().numbers32([VERSION[0], VERSION[1], max_readahead_bytes, abilities]);
    message(unique, kind::INIT, 0, &rest.numbers32([0; 12]).0)
}

/// LOOKUP of a name in a folder.
pub(in crate::fuse) fn lookup(unique: Unique, folder: u64, name: &str) -> Vec<u8> {
    message(unique, kind::LOOKUP, folder, &[name.as_bytes(), &[0]].concat())
}

/// FORGET of one lookup. It has no answer.
pub(in crate::fuse) fn forget(unique: Unique, node: u64) -> Vec<u8> {
    message(unique, kind::FORGET, node, &Body::default().numbers64([1]).0)
}

/// OPEN with these flags (`O_*`).
pub(in crate::fuse) fn open(unique: Unique, node: u64, flags: i32) -> Vec<u8> {
    message(unique, kind::OPEN, node, &Body::default().numbers32([flags.cast_unsigned(), 0]).0)
}

/// Start of the requests on an open file that name a range of it.
fn range(handle: u64, offset: u64, length: u32) -> Body {
    Body::default().numbers64([handle, offset]).numbers32([length, 0])
}

/// READ.
pub(in crate::fuse) fn read(unique: Unique, node: u64, handle: u64, offset: u64, length: u32) -> Vec<u8> {
    let (lock_owner, flags) = (0, libc::O_RDWR.cast_unsigned());
    let rest = range(handle, offset, length).numbers64([lock_owner]).numbers32([flags, 0]);
    message(unique, kind::READ, node, &rest.0)
}

/// WRITE; `durable` as with `O_DSYNC`.
pub(in crate::fuse) fn write(
    unique: Unique,
    node: u64,
    handle: u64,
    offset: u64,
    data: &[u8],
    durable: bool,
) -> Vec<u8> {
    let flags = libc::O_RDWR | if durable { libc::O_DSYNC } else { 0 };
    let lock_owner = 0;
    let rest = range(handle, offset, data.len() as u32).numbers64([lock_owner]);
    let rest = rest.numbers32([flags.cast_unsigned(), 0]).0;
    message(unique, kind::WRITE, node, &[&rest[..], data].concat())
}

/// FALLOCATE that zeroes a range and keeps the size.
pub(in crate::fuse) fn punch_hole(
    unique: Unique,
    node: u64,
    handle: u64,
    offset: u64,
    length: u64,
) -> Vec<u8> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let rest = Body::default().numbers64([handle, offset, length]).numbers32([mode.cast_unsigned(), 0]);
    message(unique, kind::FALLOCATE, node, &rest.0)
}

/// FSYNC.
pub(in crate::fuse) fn fsync(unique: Unique, node: u64, handle: u64) -> Vec<u8> {
    message(unique, kind::FSYNC, node, &Body::default().numbers64([handle]).numbers32([0, 0]).0)
}

/// FLUSH: a process closes one of its descriptors.
pub(in crate::fuse) fn flush(unique: Unique, node: u64, handle: u64) -> Vec<u8> {
    let lock_owner = 0;
    let rest = Body::default().numbers64([handle]).numbers32([0, 0]).numbers64([lock_owner]);
    message(unique, kind::FLUSH, node, &rest.0)
}

/// RELEASE: the last descriptor of an open file is closed.
pub(in crate::fuse) fn release(unique: Unique, node: u64, handle: u64) -> Vec<u8> {
    let (flags, lock_owner) = (libc::O_RDWR.cast_unsigned(), 0);
    let rest = Body::default().numbers64([handle]).numbers32([flags, 0]).numbers64([lock_owner]);
    message(unique, kind::RELEASE, node, &rest.0)
}

/// The number, the error number (0: success) and the body of an answer.
pub(in crate::fuse) fn answer(message: &[u8]) -> Option<(Unique, i32, &[u8])> {
    let mut front = Front(message);
    let length = front.number32()?;
    let (error, unique) = (front.number32()?.cast_signed(), front.number64()?);
    (length as usize == message.len()).then_some((unique, -error, front.0))
}

/// Maximum length of a read or write, from the answer to INIT.
pub(in crate::fuse) fn max_write_bytes(body: &[u8]) -> Option<u32> {
    let mut front = Front(body);
    // Version, read-ahead, capabilities, and the limits of background requests.
    front.bytes(20)?;
    front.number32()
}

/// First number of a body: the node of LOOKUP, the handle of OPEN.
pub(in crate::fuse) fn first_number(body: &[u8]) -> Option<u64> {
    Front(body).number64()
}

/// Bytes written, from the answer to WRITE.
pub(in crate::fuse) fn written_bytes(body: &[u8]) -> Option<u32> {
    Front(body).number32()
}
