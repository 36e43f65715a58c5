//! Error numbers of failed requests.

use std::io;

use stripewise_array::ArrayError;
use stripewise_drive::DriveErrorKind;

use crate::nbd::wire::protocol::{EINVAL, EIO, ENOSPC, EPERM, ESHUTDOWN};

/// A failed request: error number of the protocol, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub errno: u32,
    pub message: String,
}

impl Failure {
    pub(in crate::nbd) fn new(errno: u32, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        Self { errno: errno_of(&error), message: error.to_string() }
    }
}

/// Error that ends a connection: the peer violated the protocol.
pub(crate) fn rubbish(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn errno_of(error: &ArrayError) -> u32 {
    match error {
        ArrayError::OutOfRange { .. } | ArrayError::Misaligned { .. } => EINVAL,
        ArrayError::NoSpace(_) | ArrayError::FileSystemFull { .. } => ENOSPC,
        ArrayError::Drive(error) if error.kind == DriveErrorKind::NoSpace => ENOSPC,
        ArrayError::Protected | ArrayError::ReadOnly => EPERM,
        ArrayError::Closed => ESHUTDOWN,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actionable_errors_have_an_errno_of_their_own() {
        assert_eq!(errno_of(&ArrayError::Closed), ESHUTDOWN);
        assert_eq!(errno_of(&ArrayError::Protected), EPERM);
        assert_eq!(errno_of(&ArrayError::NoSpace("full".into())), ENOSPC);
        assert_eq!(errno_of(&ArrayError::FileSystemFull { drive: "d0".into() }), ENOSPC);
        assert_eq!(errno_of(&ArrayError::Lost { stripe: 1, what: "gone".into() }), EIO);
        assert_eq!(errno_of(&ArrayError::MapLost), EIO);
        let beyond = ArrayError::OutOfRange { offset_bytes: 1, length_bytes: 2, capacity_bytes: 2 };
        assert_eq!(errno_of(&beyond), EINVAL);
    }
}
