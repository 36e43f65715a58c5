//! Errors of drives: kind, place, operation and the system's error code.

use std::sync::Arc;

use crate::operation::Operation;

/// The result of one request.
pub type IoResult = Result<(), DriveError>;

/// Kind of a failure, as far as the engine distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveErrorKind {
    /// The medium could not be read or written at this place; the drive itself responds.
    Medium,
    /// The drive is gone: removed, file unlinked, connection lost. Every later request fails too.
    Gone,
    /// The drive is shorter than it was: a part of its data is lost, even if it gets its length
    /// back. Every later request fails too.
    Cut,
    /// No answer within the timeout.
    Timeout,
    /// The range lies beyond the drive's end.
    OutOfRange,
    /// Offset, length or memory is not aligned to the drive's block.
    Misaligned,
    /// The file system under a file-backed drive is full.
    NoSpace,
    /// The drive is open for reading only, or the system denies access.
    Denied,
    /// Any other error of the system.
    Other,
}

/// A failed request: drive, operation, range and cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{drive}: {operation} of {length_bytes} bytes at {offset_bytes} failed: {}{}",
    self.kind_text(),
    self.code_text()
)]
pub struct DriveError {
    /// The drive's label: its path, or a model's name.
    pub drive: Arc<str>,
    /// The operation.
    pub operation: Operation,
    /// Offset of the first byte, in bytes.
    pub offset_bytes: u64,
    /// Length of the request, in bytes.
    pub length_bytes: u64,
    /// The kind of failure.
    pub kind: DriveErrorKind,
    /// The system's error number, if there is one.
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
