//! The reason why a job does not go on.

/// The reason why a job does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The reason, in words.
    pub why: String,
    /// More space would help.
    pub is_for_space: bool,
}

impl From<String> for Wait {
    fn from(why: String) -> Self {
        Self { why, is_for_space: false }
    }
}
