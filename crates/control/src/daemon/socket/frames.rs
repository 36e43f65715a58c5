//! What goes over the control socket: frames of a kind, a length and that many bytes. Pure.
//!
//! The caller sends a [`Command`] first, then input as it is asked for. The answer is any number of
//! outputs, messages, steps of progress and requests for input, and the exit code last.
//!
//! Expected faults: anybody of this user may connect and send anything; lengths are bounded before
//! memory is taken.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::messages::request::Request;

/// Raised when frames change their meaning.
pub const VERSION: u32 = 2;
/// Kind and length.
pub const HEAD_BYTES: usize = 5;
/// No frame has more bytes behind its head.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Input is asked for and sent in frames of at most this many bytes.
pub const MAX_INPUT_BYTES: usize = 256 << 10;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the caller: a [`Command`] as JSON.
    Command,
    /// From the caller: bytes of its standard input; none: it has ended.
    Input,
    /// Bytes for standard output.
    Output,
    /// A line for standard error.
    Message,
    /// A [`Step`] as JSON.
    Progress,
    /// The caller is asked for input.
    WantInput,
    /// The exit code, one byte; the last frame.
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

/// What another process asks for, and how it is to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// [`VERSION`] of whoever sends it.
    pub version: u32,
    /// What it asks.
    pub request: Request,
    /// Whether it is told in JSON.
    pub json: bool,
    /// Whether it wants no notes and no progress.
    pub quiet: bool,
    /// The folder in which it was typed, absolute.
    pub folder: PathBuf,
    /// What the caller's outputs take.
    pub colours: Colours,
    /// Length of its standard input where that is a file.
    pub input_bytes: Option<u64>,
}

/// Which outputs of a caller take colours, and how wide they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Colours {
    /// Standard output.
    pub out: bool,
    /// Standard error.
    pub err: bool,
    /// Columns of standard output, where it is a terminal or `COLUMNS` says so.
    #[serde(default)]
    pub columns: Option<usize>,
}

/// How some work stands, for another process to show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The work.
    pub what: String,
    /// How much of it is done, where that is known.
    pub percent: Option<f64>,
    /// In words.
    pub text: String,
}

/// A frame that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// Not one of ours.
    #[error("a frame of kind {0} is unknown")]
    UnknownKind(u8),
    /// Longer than any of ours.
    #[error("a frame of {0} bytes is too long")]
    TooLong(u32),
}

/// A frame's bytes.
///
/// # Panics
/// With a longer body than frames have.
pub(crate) fn encode(kind: Kind, body: &[u8]) -> Vec<u8> {
    assert!(body.len() <= MAX_BODY_BYTES, "long output is cut into frames");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.push(kind.code());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// What a head says: the frame's kind, and how many bytes follow.
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
