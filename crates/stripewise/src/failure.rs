//! The one error style of the command line: what, where, why, then what to do about it, and the
//! exit code.
//!
//! ```text
//! error: cannot create pool `tank`: /disks/drive0.img holds an ext4 file system
//! hint: add --force to overwrite it; everything in it would be lost
//! ```

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Success,
    /// Could not be done.
    Failure,
    /// Could not be done, since what was named is not there.
    Missing,
    /// Could not be done, since too much else is being done.
    Busy,
    /// The command line itself is wrong.
    Usage,
    /// `pool status` alone: works, but degraded.
    Degraded,
}

impl Exit {
    /// What a process means that ended with this code.
    pub fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Success,
            2 => Self::Usage,
            3 => Self::Degraded,
            _ => Self::Failure,
        }
    }

    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure | Self::Missing | Self::Busy => 1,
            Self::Usage => 2,
            Self::Degraded => 3,
        }
    }
}

/// A command that could not be done, in the words shown to the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// What, where and why, in one line without a full stop.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// How the process ends.
    pub exit: Exit,
    /// Nothing to say: the reader of our output has left (`| head`).
    pub silent: bool,
    /// The pool is in use by a process that takes commands for it at this socket.
    pub taken_at: Option<PathBuf>,
    /// This user may not look: nothing is known of how it is.
    pub denied: bool,
}

/// What commands return.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Something that could not be done.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            exit: Exit::Failure,
            silent: false,
            taken_at: None,
            denied: false,
        }
    }

    /// What was named is not there.
    pub fn missing(message: impl Into<String>) -> Self {
        Self { exit: Exit::Missing, ..Self::new(message) }
    }

    /// A command line that asks for something that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(message) }
    }

    /// The reader of our standard output has left; that is its right.
    pub fn reader_left() -> Self {
        Self { silent: true, exit: Exit::Success, ..Self::new("the reader of the output has left") }
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `what: error`, with the error's own sources behind it.
    pub fn because(what: impl Display, error: &dyn Error) -> Self {
        Self::new(format!("{what}: {}", chain(error)))
    }
}

/// An error and its sources in one line; a source that its parent quotes already is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    without_numbers(&text)
}

/// A system error in words: "No such file or directory".
pub fn system_text(error: &std::io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Leaves out the error numbers that people do not read.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        words.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("outer of {0}")]
    struct Quoting(#[source] std::io::Error);

    #[test]
    fn causes_are_named_once() {
        let cause = || std::io::Error::other("inner");
        assert_eq!(Failure::because("what", &Outer(cause())).message, "what: outer: inner");
        assert_eq!(Failure::because("what", &Quoting(cause())).message, "what: outer of inner");
    }

    #[test]
    fn system_errors_lose_their_number() {
        let error = || std::io::Error::from_raw_os_error(2);
        assert_eq!(system_text(&error()), "No such file or directory");
        assert_eq!(chain(&Quoting(error())), "outer of No such file or directory");
        assert_eq!(without_numbers("a (os error 5), b (os error 28): c"), "a, b: c");
    }
}
