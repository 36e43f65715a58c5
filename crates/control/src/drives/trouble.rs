//! Why a drive that a pool has noted could not be opened, as far as the pool above decides by it.

use crate::failure::Failure;

/// Why a drive could not be opened.
pub enum Trouble {
    /// It is missing: it, or its pool, is not there or of no use.
    Missing(Failure),
    /// It is there, and must not be passed over.
    Stop(Failure),
}

impl Trouble {
    /// Either of them.
    pub fn failure(self) -> Failure {
        match self {
            Self::Missing(failure) | Self::Stop(failure) => failure,
        }
    }
}
