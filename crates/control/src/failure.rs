//! A failure: a message (what, where and why in one line), a hint, and its kind. The faces render
//! it: the command line as `error:` and `hint:` and an exit code, HTTP as problem details and a
//! status.

mod pool_hint;
mod stream_hint;

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;

use stripewise_layout::LayoutError;
use stripewise_pool::PoolError;

use pool_hint::pool_hint;

/// The kind of a failure, as far as a face acts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The operation failed.
    Failed,
    /// The named object does not exist.
    Missing,
    /// Too many other requests are running.
    Busy,
    /// The request is invalid, regardless of the pools.
    Usage,
    /// This user may not read the object: its condition is unknown.
    Denied,
    /// The caller's role does not permit the request.
    Forbidden,
    /// The pool is in use by a process that takes commands for it at this socket.
    TakenAt(PathBuf),
    /// The caller left before its turn: no one reads this failure.
    CallerLeft,
    /// The reader of the output has left (`| head`), which is not an error.
    ReaderLeft,
}

/// A failed operation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The message: what, where and why, in one line without a full stop.
    pub message: String,
    /// The next step for the user.
    pub hint: Option<String>,
    /// Its kind.
    pub reason: Reason,
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failed operation.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of(Reason::Failed, message)
    }

    /// A failure of this kind.
    pub fn of(reason: Reason, message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, reason }
    }

    /// An object that does not exist.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::of(Reason::Missing, message)
    }

    /// An invalid request.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::of(Reason::Usage, message)
    }

    /// The reader of the output has left.
    pub fn reader_left() -> Self {
        Self::of(Reason::ReaderLeft, "the reader of the output has gone")
    }

    /// True if there is no reader for it.
    pub fn is_silent(&self) -> bool {
        matches!(self.reason, Reason::CallerLeft | Reason::ReaderLeft)
    }

    /// The socket of the process that has the pool and takes commands for it.
    pub fn taken_at(&self) -> Option<&std::path::Path> {
        match &self.reason {
            Reason::TakenAt(socket) => Some(socket),
            _ => None,
        }
    }

    /// Adds the next step for the user.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `what: error`, followed by the error's sources.
    pub fn because(what: impl Display, error: &dyn Error) -> Self {
        Self::new(format!("{what}: {}", chain(error)))
    }
}

/// An error and its sources in one line; sources already quoted are not repeated.
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

/// The text of a system error: "No such file or directory".
pub fn system_text(error: &std::io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Removes system error numbers.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        words.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    words
}

/// An invalid layout is a usage error if no pool could hold it.
fn layout_reason(error: &LayoutError) -> Reason {
    match error {
        LayoutError::UnknownLayout { .. }
        | LayoutError::ThreeCopiesAreNoLevel
        | LayoutError::TooFewColumns { .. }
        | LayoutError::TooManyColumns { .. }
        | LayoutError::NoGroupsInLevel { .. }
        | LayoutError::TooFewGroups { .. }
        | LayoutError::InterleaveNotPowerOfTwo { .. }
        | LayoutError::InterleaveOutOfRange { .. } => Reason::Usage,
        _ => Reason::Failed,
    }
}

/// An error of the engine, with the operation that failed.
pub fn pool_failure(what: impl Display, error: &PoolError) -> Failure {
    let mut failure = Failure::because(what, error);
    failure.hint = pool_hint(error);
    match error {
        PoolError::Layout(error) => failure.reason = layout_reason(error),
        PoolError::NoSuchVolume { .. } | PoolError::NoSuchDrive { .. } => failure.reason = Reason::Missing,
        _ => {}
    }
    failure
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
