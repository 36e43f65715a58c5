//! What a drive can answer but "done": kind, place, operation and the system's own code.

use std::rc::Rc;

use crate::operation::Operation;

/// The answer to one request.
pub type IoResult = Result<(), DriveError>;

/// What went wrong, as far as the engine must tell cases apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveErrorKind {
    /// The medium could not be read or written at this place; the drive itself answers.
    Medium,
    /// The drive is gone: removed, file unlinked, connection lost. Every later request fails too.
    Gone,
    /// The drive is shorter than it was: a part of what it held is lost, also if it gets its length
    /// back. Every later request fails too.
    Cut,
    /// No answer within the time allowed.
    Timeout,
    /// Beyond the drive's end.
    OutOfRange,
    /// Offset, length or memory not aligned to the drive's block.
    Misaligned,
    /// The file system under a file-backed drive is full.
    NoSpace,
    /// The drive is opened for reading only, or the system refuses the access.
    Denied,
    /// Anything else the system says.
    Other,
}

/// A failed request: which drive, what, where, why.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{drive}: {operation} of {length_bytes} bytes at {offset_bytes} failed: {}{}",
    self.kind_text(),
    self.code_text()
)]
pub struct DriveError {
    /// The drive's label: its path, or what a model calls itself.
    pub drive: Rc<str>,
    /// What was asked.
    pub operation: Operation,
    /// Where, in bytes from the drive's start.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u64,
    /// The kind of failure.
    pub kind: DriveErrorKind,
    /// The system's error number, where one was given.
    pub os_code: Option<i32>,
}

impl DriveError {
    fn kind_text(&self) -> &'static str {
        match self.kind {
            DriveErrorKind::Medium => "the medium could not be accessed there",
            DriveErrorKind::Gone => "the drive is gone",
            DriveErrorKind::Cut => "the drive was cut short",
            DriveErrorKind::Timeout => "no answer in the time allowed",
            DriveErrorKind::OutOfRange => "beyond the end of the drive",
            DriveErrorKind::Misaligned => "not aligned to the drive's block size",
            DriveErrorKind::NoSpace => "no space left under the drive's file",
            DriveErrorKind::Denied => "access denied",
            DriveErrorKind::Other => "input/output error",
        }
    }

    fn code_text(&self) -> String {
        self.os_code
            .map_or_else(String::new, |code| format!(" ({})", std::io::Error::from_raw_os_error(code)))
    }
}
