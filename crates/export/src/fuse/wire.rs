//! FUSE messages: parsing of requests and encoding of answers (`answers`); for simulated clients
//! the reverse (`requests`). Numbers and layouts are those of Linux's
//! `include/uapi/linux/fuse.h`, in native byte order.
//!
//! Expected faults: a kernel of another version, unknown kinds of requests (refused with an error
//! number), and messages shorter than their kind requires (refused as well; the kernel does not
//! send them).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::SystemTime;

mod answers;
pub(super) mod requests;

use answers::Body;
pub(super) use answers::{Listing, answer_head, attributes, entry, opened, place, space, written};

/// Length of a request's head.
const HEAD_BYTES: usize = 40;
/// Offset of a write's data, after its handle, offset, length and flags.
pub(super) const WRITE_HEAD_BYTES: usize = HEAD_BYTES + 40;
const OPENED_BYTES: usize = 16;
/// Unit of the kernel's limit on the size of a request.
const PAGE_BYTES: u32 = 4096;

/// Major and minor version of the answers here. A newer kernel falls back to it.
const VERSION: [u32; 2] = [7, 40];
/// Oldest supported minor version; answers to older kernels would be shorter.
const OLDEST_MINOR_VERSION: u32 = 23;

/// Capabilities requested from the kernel (`FUSE_*` flags of `INIT`).
mod ability {
    pub(super) const ASYNC_READ: u32 = 1 << 0;
    pub(super) const BIG_WRITES: u32 = 1 << 5;
    pub(super) const ASYNC_DIO: u32 = 1 << 15;
    pub(super) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(super) const MAX_PAGES: u32 = 1 << 22;
    /// There are abilities beyond 32.
    pub(super) const MORE: u32 = 1 << 30;
    /// Requests over io_uring, one of those beyond 32.
    pub(super) const OVER_RING: u32 = 1 << (41 - 32);
}

/// Kinds of requests (`enum fuse_opcode`).
mod kind {
    pub(super) const INIT: u32 = 26;
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const CREATE: u32 = 35;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const TMPFILE: u32 = 51;
}

/// Attributes that a SETATTR request changes (`FATTR_*`).
const CHANGES_OWNER_OR_MODE: u32 = 1 | 2 | 4;
const CHANGES_SIZE: u32 = 8;

/// Error number as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) i32);

impl Errno {
    pub(super) const EBADF: Self = Self(libc::EBADF);
    pub(super) const EBUSY: Self = Self(libc::EBUSY);
    pub(super) const EINVAL: Self = Self(libc::EINVAL);
    pub(super) const EIO: Self = Self(libc::EIO);
    pub(super) const EISDIR: Self = Self(libc::EISDIR);
    pub(super) const ENOENT: Self = Self(libc::ENOENT);
    pub(super) const ENOSPC: Self = Self(libc::ENOSPC);
    pub(super) const ENOTDIR: Self = Self(libc::ENOTDIR);
    pub(super) const ENXIO: Self = Self(libc::ENXIO);
    pub(super) const EOVERFLOW: Self = Self(libc::EOVERFLOW);
    pub(super) const EPERM: Self = Self(libc::EPERM);
    pub(super) const EROFS: Self = Self(libc::EROFS);
    pub(super) const ESTALE: Self = Self(libc::ESTALE);
}

/// Type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileType {
    Directory,
    RegularFile,
}

/// Attributes of a node, as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileAttr {
    pub(super) node: u64,
    pub(super) size: u64,
    /// Number of blocks of 512 bytes.
    pub(super) blocks: u64,
    /// Time of the last access, modification and change.
    pub(super) since: SystemTime,
    pub(super) kind: FileType,
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) links: u32,
    /// User and group.
    pub(super) user: (u32, u32),
}

/// Outcome of the kernel's INIT request, with the answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// With the answer; true if requests come over io_uring from now on.
    Reached(Vec<u8>, bool),
    /// The kernel's major version is newer: it sends another INIT once it knows ours.
    AskAgain(Vec<u8>),
    /// The version is too old, or the message is not INIT.
    Impossible(Vec<u8>),
}

/// A request of the kernel. `node` is a number from [`super::files`], `handle` that of an open
/// file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Answered at once.
    Look(Look),
    /// Answered when the I/O is done.
    Transfer(Transfer),
    /// Nodes with the number of lookups that the kernel forgets. Not answered.
    Forget(Vec<(u64, u64)>),
    /// Answered with this error number.
    Refused(i32),
    /// Answered with these bytes; no work is needed.
    Done(Vec<u8>),
    /// The folder was unmounted.
    End,
}

/// Requests without I/O on drives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    Lookup {
        folder: u64,
        name: OsString,
    },
    Attributes {
        node: u64,
    },
    Change {
        node: u64,
        size: Option<u64>,
        owner_or_mode: bool,
    },
    Open {
        node: u64,
        write: bool,
    },
    /// Directory entries from number `from` on, in at most `room` bytes.
    List {
        folder: u64,
        from: u64,
        room: usize,
    },
    Space {
        node: u64,
    },
    Seek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    Close {
        handle: u64,
    },
}

/// Requests with I/O on drives. Offsets and lengths are in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Read {
        handle: u64,
        offset: u64,
        length: u32,
    },
    /// The data are passed separately.
    Write {
        handle: u64,
        offset: u64,
        length: u32,
        durable: bool,
    },
    Zero {
        handle: u64,
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    /// `closes`: a process closes one of its descriptors of the file.
    Flush {
        handle: u64,
        closes: bool,
    },
}

/// Reader of a message's fields.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn number64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_ne_bytes)
    }
}

/// Parses a request into its number, which the answer repeats, and its contents. `None` if the
/// message is not a request. For a write, the first [`WRITE_HEAD_BYTES`] are enough; other requests
/// are needed in full.
pub(super) fn parse(message: &[u8]) -> Option<(u64, Question)> {
    let mut front = Front(message);
    let _length = front.number32()?;
    let kind = front.number32()?;
    let unique = front.number64()?;
    let node = front.number64()?;
    let _who = front.bytes(HEAD_BYTES - 24)?;
    Some((unique, question(kind, node, front).unwrap_or(Question::Refused(libc::EINVAL))))
}

/// Answers the kernel's INIT request: writes of up to `max_write_bytes`, and at most
/// `max_background` concurrent asynchronous requests, over io_uring if `has_ring` and the kernel
/// offers it.
pub(super) fn agree(message: &[u8], max_write_bytes: u32, max_background: u16, has_ring: bool) -> Agreement {
    let mut front = Front(message);
    let head = |front: &mut Front| {
        let (_length, kind, unique) = (front.number32()?, front.number32()?, front.number64()?);
        front.bytes(HEAD_BYTES - 16).map(|_| (kind, unique))
    };
    let Some((kind, unique)) = head(&mut front) else {
        return Agreement::Impossible(answer_head(0, libc::EIO, 0).to_vec());
    };
    let impossible = |error| Agreement::Impossible(answer_head(unique, error, 0).to_vec());
    let terms = |front: &mut Front| {
        Some((front.number32()?, front.number32()?, front.number32()?, front.number32()?))
    };
    let (major, minor, max_readahead_bytes, abilities) = match terms(&mut front) {
        Some(terms) if kind == kind::INIT => terms,
        _ => return impossible(libc::EIO),
    };
    let is_offered =
        abilities & ability::MORE != 0 && front.number32().is_some_and(|more| more & ability::OVER_RING != 0);
    let over_ring = has_ring && is_offered;
    let more = if over_ring { ability::OVER_RING } else { 0 };
    let answer = |numbers: [u32; 4], pages: u16| {
        let background = pair(max_background, max_background / 4 * 3);
        let nanoseconds_per_tick = 1;
        let sizes = [background, max_write_bytes, nanoseconds_per_tick, pair(pages, 0)];
        let body =
            Body::default().numbers32(numbers).numbers32(sizes).numbers32([more, 0, 0, 0, 0, 0, 0, 0]).0;
        [&answer_head(unique, 0, body.len())[..], &body].concat()
    };
    if major > VERSION[0] {
        return Agreement::AskAgain(answer([VERSION[0], VERSION[1], 0, 0], 0));
    }
    if major < VERSION[0] || minor < OLDEST_MINOR_VERSION {
        return impossible(libc::EPROTO);
    }
    // Only those that the kernel supports are requested.
    let wanted = ability::ASYNC_READ
        | ability::BIG_WRITES
        | ability::ASYNC_DIO
        | ability::PARALLEL_DIROPS
        | ability::MAX_PAGES
        | if over_ring { ability::MORE } else { 0 };
    let pages = max_write_bytes.max(max_readahead_bytes).div_ceil(PAGE_BYTES).min(u32::from(u16::MAX)) as u16;
    let numbers = [VERSION[0], VERSION[1], max_readahead_bytes, wanted & abilities];
    Agreement::Reached(answer(numbers, pages), over_ring)
}

/// Two 16-bit numbers stored side by side, as one 32-bit number.
fn pair(first: u16, second: u16) -> u32 {
    let [[a, b], [c, d]] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u32::from_ne_bytes([a, b, c, d])
}

/// Refusal of file operations: volumes are created, renamed and deleted by commands only.
const NOT_BY_FILES: Question = Question::Refused(libc::EPERM);

fn question(kind: u32, node: u64, mut front: Front) -> Option<Question> {
    let question = match kind {
        kind::READ => {
            let (handle, offset, length) = (front.number64()?, front.number64()?, front.number32()?);
            Question::Transfer(Transfer::Read { handle, offset, length })
        }
        kind::WRITE => {
            let (handle, offset, length) = (front.number64()?, front.number64()?, front.number32()?);
            let (_how, _lock_owner) = (front.number32()?, front.number64()?);
            // O_SYNC includes O_DSYNC's bit.
            let durable = front.number32()? & libc::O_DSYNC as u32 != 0;
            Question::Transfer(Transfer::Write { handle, offset, length, durable })
        }
        kind::FSYNC | kind::FLUSH => {
            Question::Transfer(Transfer::Flush { handle: front.number64()?, closes: kind == kind::FLUSH })
        }
        kind::FALLOCATE => allocation(&mut front)?,
        kind::LOOKUP => {
            let name = front.0.split(|byte| *byte == 0).next()?;
            Question::Look(Look::Lookup { folder: node, name: OsString::from_vec(name.to_vec()) })
        }
        kind::GETATTR => Question::Look(Look::Attributes { node }),
        kind::SETATTR => {
            let (valid, _, _handle, size) =
                (front.number32()?, front.number32()?, front.number64()?, front.number64()?);
            Question::Look(Look::Change {
                node,
                size: (valid & CHANGES_SIZE != 0).then_some(size),
                owner_or_mode: valid & CHANGES_OWNER_OR_MODE != 0,
            })
        }
        kind::OPEN => {
            let write = front.number32()? & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
            Question::Look(Look::Open { node, write })
        }
        kind::READDIR => {
            let (_handle, from, room) = (front.number64()?, front.number64()?, front.number32()?);
            Question::Look(Look::List { folder: node, from, room: room as usize })
        }
        kind::STATFS => Question::Look(Look::Space { node }),
        kind::LSEEK => {
            let (handle, offset, whence) = (front.number64()?, front.number64()?, front.number32()?);
            Question::Look(Look::Seek { handle, offset: offset.cast_signed(), whence: whence.cast_signed() })
        }
        kind::RELEASE => Question::Look(Look::Close { handle: front.number64()? }),
        kind::FORGET => Question::Forget(vec![(node, front.number64()?)]),
        kind::BATCH_FORGET => {
            let (count, _) = (front.number32()?, front.number32()?);
            // Stops at the end of the message, as the count is not trusted.
            let each = std::iter::from_fn(|| Some((front.number64()?, front.number64()?)));
            Question::Forget(each.take(count as usize).collect())
        }
        // Open folders have no handle and no state.
        kind::OPENDIR => Question::Done(vec![0; OPENED_BYTES]),
        kind::RELEASEDIR | kind::FSYNCDIR => Question::Done(Vec::new()),
        kind::DESTROY => Question::End,
        kind::SYMLINK
        | kind::MKNOD
        | kind::MKDIR
        | kind::UNLINK
        | kind::RMDIR
        | kind::RENAME
        | kind::LINK
        | kind::CREATE
        | kind::RENAME2
        | kind::TMPFILE => NOT_BY_FILES,
        // ENOSYS to INTERRUPT makes the kernel send no more of them; requests always run to their
        // end.
        _ => Question::Refused(libc::ENOSYS),
    };
    Some(question)
}

fn allocation(front: &mut Front) -> Option<Question> {
    let (handle, offset, length) = (front.number64()?, front.number64()?, front.number64()?);
    let mode = front.number32()?.cast_signed();
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    Some(match mode & !libc::FALLOC_FL_KEEP_SIZE {
        // A client that punches a hole relies on reading zeros, as file systems on a loop device
        // do.
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
            Question::Transfer(Transfer::Zero { handle, offset, length, keep_size })
        }
        _ => Question::Refused(libc::EOPNOTSUPP),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::UNIX_EPOCH;

    use super::*;

    fn message(kind: u32, node: u64, rest: &[u8]) -> Vec<u8> {
        requests::message(77, kind, node, rest)
    }

    #[test]
    fn a_write_is_parsed_from_its_header() {
        let sync = (libc::O_SYNC | libc::O_WRONLY) as u32;
        let rest =
            Body::default().numbers64([5, 1 << 40]).numbers32([4096, 0]).numbers64([0]).numbers32([sync, 0]);
        let message = message(kind::WRITE, 9, &rest.0);
        assert_eq!(message.len(), WRITE_HEAD_BYTES);
        let expected = Transfer::Write { handle: 5, offset: 1 << 40, length: 4096, durable: true };
        assert_eq!(parse(&message), Some((77, Question::Transfer(expected))));
    }

    #[test]
    fn truncated_requests_are_refused_without_panic() {
        for kind in 0..64 {
            let whole = message(kind, 3, &[0xff; 96]);
            for length in 0..whole.len() {
                let parsed = parse(&whole[..length]);
                assert_eq!(parsed.is_some(), length >= HEAD_BYTES);
                let fixed = [kind::READ, kind::WRITE, kind::OPEN, kind::RELEASE, kind::FALLOCATE];
                if length == HEAD_BYTES && fixed.contains(&kind) {
                    assert_eq!(parsed, Some((77, Question::Refused(libc::EINVAL))), "kind {kind}");
                }
            }
        }
    }

    #[test]
    fn names_end_at_nul_and_counts_are_not_trusted() {
        let lookup = parse(&message(kind::LOOKUP, 1, b"data\0"));
        let expected = Look::Lookup { folder: 1, name: "data".into() };
        assert_eq!(lookup, Some((77, Question::Look(expected))));
        let forgets = Body::default().numbers32([u32::MAX, 0]).numbers64([4, 1, 5, 2]).0;
        let forget = parse(&message(kind::BATCH_FORGET, 0, &forgets));
        assert_eq!(forget, Some((77, Question::Forget(vec![(4, 1), (5, 2)]))));
    }

    #[test]
    fn init_negotiates_the_features_both_sides_have() {
        let asks = |major: u32, minor: u32, abilities: u32| {
            message(kind::INIT, 0, &Body::default().numbers32([major, minor, 128 << 10, abilities]).0)
        };
        let numbers = |answer: &[u8]| -> Vec<u32> {
            answer.chunks_exact(4).map(|four| u32::from_ne_bytes(four.try_into().unwrap())).collect()
        };
        let Agreement::Reached(answer, false) = agree(&asks(7, 45, u32::MAX), 1 << 20, 512, false) else {
            panic!("a newer minor version is supported")
        };
        // The head and sizeof(fuse_init_out); 77 is the number of the request.
        assert_eq!((answer.len(), &numbers(&answer)[..4]), (16 + 64, &[80, 0, 77, 0][..]));
        assert_eq!(numbers(&answer)[4..7], [7, 40, 128 << 10]);
        assert_eq!(numbers(&answer)[8..12], [pair(512, 384), 1 << 20, 1, pair(256, 0)]);
        let wanted = numbers(&answer)[7];
        assert!(wanted & ability::ASYNC_DIO != 0 && wanted & ability::MAX_PAGES != 0);

        let over_ring = |has_ring: bool, more: u32| {
            let terms = Body::default().numbers32([7, 45, 128 << 10, u32::MAX, more]).0;
            let message = message(kind::INIT, 0, &terms);
            let Agreement::Reached(answer, over_ring) = agree(&message, 1 << 20, 512, has_ring) else {
                panic!("it is supported")
            };
            assert_eq!(numbers(&answer)[12], if over_ring { ability::OVER_RING } else { 0 });
            assert_eq!(numbers(&answer)[7] & ability::MORE != 0, over_ring);
            over_ring
        };
        assert!(over_ring(true, ability::OVER_RING | 1));
        assert!(!over_ring(true, 1) && !over_ring(false, ability::OVER_RING));

        let Agreement::Reached(answer, false) = agree(&asks(7, 31, ability::BIG_WRITES), 1 << 20, 512, false)
        else {
            panic!("an older kernel is supported")
        };
        assert_eq!(numbers(&answer)[7], ability::BIG_WRITES, "only what the kernel supports");
        assert!(matches!(agree(&asks(8, 0, 0), 1 << 20, 512, false), Agreement::AskAgain(_)));
        let refused =
            |message: &[u8]| matches!(agree(message, 1 << 20, 512, false), Agreement::Impossible(_));
        assert!(refused(&asks(7, 8, 0)) && refused(&message(kind::LOOKUP, 1, &[0; 16])));
        let whole = asks(7, 40, 0);
        assert!((0..whole.len()).all(|length| refused(&whole[..length])), "truncated anywhere");
    }

    #[test]
    fn replies_have_the_lengths_the_kernel_expects() {
        let attributes = FileAttr {
            node: 3,
            size: 1,
            blocks: 1,
            since: UNIX_EPOCH,
            kind: FileType::RegularFile,
            mode: 0o600,
            links: 1,
            user: (0, 0),
        };
        // Sizes of fuse_entry_out, fuse_attr_out, fuse_open_out, fuse_write_out, fuse_lseek_out and
        // fuse_statfs_out.
        let lengths = [
            entry(&attributes).len(),
            super::attributes(&attributes).len(),
            opened(1).len(),
            written(1).len(),
            place(1).len(),
            space(1, 1, 1, 4096, 63).len(),
        ];
        assert_eq!(lengths, [128, 104, 16, 8, 8, 80]);
        let mut listing = Listing::new(64);
        assert!(listing.add(1, 1, FileType::Directory, OsStr::new(".")));
        assert!(listing.add(1, 2, FileType::Directory, OsStr::new("..")));
        assert!(!listing.add(2, 3, FileType::RegularFile, OsStr::new("data")));
        assert_eq!(listing.into_bytes().len(), 64);
    }
}
