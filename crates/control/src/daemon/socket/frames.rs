//! Frames of the control socket: kind, length and body. Pure.
//!
//! The caller sends a [`Command`] first, then input on request. The daemon sends any number of
//! output, message, progress and input-request frames, and the exit code last.
//!
//! Expected faults: any process of this user may connect and send anything, so lengths are checked
//! before memory is allocated.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::messages::request::Request;

/// Protocol version, raised when frames change their meaning.
pub const VERSION: u32 = 2;
/// Size of a frame's head: kind and length.
pub const HEAD_BYTES: usize = 5;
/// Maximum size of a frame's body.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum input per frame.
pub const MAX_INPUT_BYTES: usize = 256 << 10;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the caller: a [`Command`] as JSON.
    Command,
    /// From the caller: bytes of its standard input; no bytes mark the end.
    Input,
    /// To the caller: bytes for standard output.
    Output,
    /// To the caller: a line for standard error.
    Message,
    /// To the caller: a [`Step`] as JSON.
    Progress,
    /// To the caller: a request for input.
    WantInput,
    /// To the caller: the exit code, one byte; the last frame.
    Exit,
}

impl Kind {
    const ALL: [(Self, u8); 7] = [
        (Self::Command, b'C'),
        (Self::Input, b'I'),
        (Self::Output, b'O'),
        (Self::Message, b'M'),
        (Self::Progress, b'P'),
        (Self::WantInput, b'W'),
        (Self::Exit, b'X'),
    ];

    fn code(self) -> u8 {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or(0, |(_, code)| code)
    }
}

/// A request from another process, with the form of its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The request.
    pub request: Request,
    /// True for output in JSON.
    pub json: bool,
    /// True to suppress progress and notes.
    pub quiet: bool,
    /// The caller's working directory, absolute.
    pub folder: PathBuf,
    /// Capabilities of the caller's outputs.
    pub colours: Colours,
    /// Length of the caller's standard input, if it is a file.
    pub input_bytes: Option<u64>,
    /// Form of lists.
    #[serde(default)]
    pub lists: ListForm,
}

/// Form of lists in text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListForm {
    /// True for rows without a header, their cells separated by tabs.
    pub is_bare: bool,
    /// Headings of the columns to print, in order; empty: all.
    pub columns: Vec<String>,
}

/// Colour support and width of a caller's outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Colours {
    /// True if standard output takes colours.
    pub out: bool,
    /// True if standard error takes colours.
    pub err: bool,
    /// Width of standard output, if it is a terminal or `COLUMNS` is set.
    #[serde(default)]
    pub columns: Option<usize>,
}

/// Progress of a command, for the caller to show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the work.
    pub what: String,
    /// Completed share, if known.
    pub percent: Option<f64>,
    /// Progress as text.
    pub text: String,
}

/// A malformed frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Unknown kind.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// Body longer than [`MAX_BODY_BYTES`].
    #[error("frame of {0} bytes is too long")]
    TooLong(u32),
}

/// Encodes a frame.
///
/// # Panics
/// If the body is longer than [`MAX_BODY_BYTES`].
pub(crate) fn encode(kind: Kind, body: &[u8]) -> Vec<u8> {
    assert!(body.len() <= MAX_BODY_BYTES, "long output is split into frames");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.push(kind.code());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Decodes a head into the frame's kind and the length of its body.
pub(crate) fn decode_head(head: [u8; HEAD_BYTES]) -> Result<(Kind, usize), FrameError> {
    let [code, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    let known = Kind::ALL.into_iter().find(|(_, known)| *known == code);
    let (kind, _) = known.ok_or(FrameError::UnknownKind(code))?;
    if length as usize > MAX_BODY_BYTES {
        return Err(FrameError::TooLong(length));
    }
    Ok((kind, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        for (kind, _) in Kind::ALL {
            let bytes = encode(kind, b"abc");
            let (head, body) = bytes.split_at(HEAD_BYTES);
            assert_eq!(decode_head(head.try_into().expect("a head")), Ok((kind, 3)));
            assert_eq!(body, b"abc");
        }
    }

    #[test]
    fn malformed_frames_are_refused_before_allocation() {
        assert_eq!(decode_head([b'?', 0, 0, 0, 0]), Err(FrameError::UnknownKind(b'?')));
        assert_eq!(decode_head([b'C', 0xff, 0xff, 0xff, 0xff]), Err(FrameError::TooLong(u32::MAX)));
        assert!(decode_head([b'C', 1, 0, 16, 0]).is_err());
        assert!(decode_head([b'C', 0, 0, 16, 0]).is_ok());
    }
}
