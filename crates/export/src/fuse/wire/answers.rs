//! Encoding of answers to the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{FileAttr, FileType};

/// Length of an answer's head.
const ANSWER_HEAD_BYTES: usize = 16;
/// Alignment of directory entries.
const ENTRY_ALIGNMENT: usize = 8;
const ENTRY_HEAD_BYTES: usize = 24;
/// Preferred I/O size in `stat`.
const PREFERRED_BYTES: u32 = 4096;
/// Open flags: bypass of the page cache and parallel direct writes (`FOPEN_*`).
const OPENED_DIRECT: u32 = 1 | 64;

/// Head of an answer: its total length, and an error number or 0.
pub(in crate::fuse) fn answer_head(unique: u64, error: i32, body_bytes: usize) -> [u8; ANSWER_HEAD_BYTES] {
    let mut head = [0; ANSWER_HEAD_BYTES];
    head[..4].copy_from_slice(&((ANSWER_HEAD_BYTES + body_bytes) as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(-error).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// Builder of an answer's body.
#[derive(Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn numbers32<const N: usize>(mut self, numbers: [u32; N]) -> Self {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_ne_bytes()));
        self
    }

    pub(super) fn numbers64<const N: usize>(mut self, numbers: [u64; N]) -> Self {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_ne_bytes()));
        self
    }

    fn attributes(self, of: &FileAttr) -> Self {
        let (seconds, nanoseconds) = since_1970(of.since);
        let (user, group) = of.user;
        let (device, flags) = (0, 0);
        self.numbers64([of.node, of.size, of.blocks])
            .numbers64([seconds; 3])
            .numbers32([nanoseconds; 3])
            .numbers32([type_bits(of.kind) | of.mode, of.links, user, group, device, PREFERRED_BYTES, flags])
    }
}

fn since_1970(time: SystemTime) -> (u64, u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

fn type_bits(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => libc::S_IFDIR,
        FileType::RegularFile => libc::S_IFREG,
    }
}

/// Result of a lookup. The kernel must not cache it, as volumes are created, resized and deleted by
/// commands that it does not see.
pub(in crate::fuse) fn entry(attributes: &FileAttr) -> Vec<u8> {
    let (generation, entry_valid, attributes_valid) = (0, 0, 0);
    let body = Body::default().numbers64([attributes.node, generation, entry_valid, attributes_valid]);
    body.numbers32([0, 0]).attributes(attributes).0
}

/// The attributes of a node, not cached either.
pub(in crate::fuse) fn attributes(of: &FileAttr) -> Vec<u8> {
    Body::default().numbers64([0]).numbers32([0, 0]).attributes(of).0
}

/// An open file.
pub(in crate::fuse) fn opened(handle: u64) -> Vec<u8> {
    Body::default().numbers64([handle]).numbers32([OPENED_DIRECT, 0]).0
}

/// Number of bytes written.
pub(in crate::fuse) fn written(bytes: u32) -> Vec<u8> {
    Body::default().numbers32([bytes, 0]).0
}

/// An offset in a file.
pub(in crate::fuse) fn place(offset: i64) -> Vec<u8> {
    Body::default().numbers64([offset.cast_unsigned()]).0
}

/// File system statistics: total and free blocks of `block_bytes`, and the number of files.
pub(in crate::fuse) fn space(
    total: u64,
    free: u64,
    files: u64,
    block_bytes: u32,
    longest_name: u32,
) -> Vec<u8> {
    let body = Body::default().numbers64([total, free, free, files, 0]);
    body.numbers32([block_bytes, longest_name, block_bytes, 0]).numbers32([0; 6]).0
}

/// Directory entries, up to the size that the kernel accepts.
pub(in crate::fuse) struct Listing {
    bytes: Vec<u8>,
    room: usize,
}

impl Listing {
    pub(in crate::fuse) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room }
    }

    /// Adds an entry; `next` is the number of the entry after it. False if it does not fit.
    pub(in crate::fuse) fn add(&mut self, node: u64, next: u64, kind: FileType, name: &OsStr) -> bool {
        let length = (ENTRY_HEAD_BYTES + name.len()).next_multiple_of(ENTRY_ALIGNMENT);
        if self.bytes.len() + length > self.room {
            return false;
        }
        let end = self.bytes.len() + length;
        let head = Body::default().numbers64([node, next]);
        // The entry type is the type bits of the mode, shifted down.
        self.bytes.extend(head.numbers32([name.len() as u32, type_bits(kind) >> 12]).0);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(end, 0);
        true
    }

    pub(in crate::fuse) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
