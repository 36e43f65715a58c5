//! The system's error numbers as the engine's kinds of drive error.
//!
//! Block devices report their own conditions through a few numbers that say something else by name:
//! an unreadable sector is ENODATA, a failed integrity check EILSEQ, a lost transport ENOLINK (see
//! `blk_errors` in Linux's `block/blk-core.c`).

use stripewise_drive::DriveErrorKind;

/// The kind of failure that error number `code` of a read, write, flush or range operation stands
/// for.
pub(crate) fn kind_of(code: i32) -> DriveErrorKind {
    match code {
        libc::EIO | libc::ENODATA | libc::EBADMSG | libc::EILSEQ | libc::EREMOTEIO | libc::EUCLEAN => {
            DriveErrorKind::Medium
        }
        libc::ENODEV
        | libc::ENXIO
        | libc::ESTALE
        | libc::ENOLINK
        | libc::ENOMEDIUM
        | libc::ESHUTDOWN
        | libc::ENOTCONN
        | libc::EBADF => DriveErrorKind::Gone,
        libc::ETIMEDOUT => DriveErrorKind::Timeout,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DriveErrorKind::NoSpace,
        libc::EACCES | libc::EPERM | libc::EROFS | libc::EBADE | libc::ETXTBSY => DriveErrorKind::Denied,
        libc::EINVAL => DriveErrorKind::Misaligned,
        _ => DriveErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_values_map_to_drive_error_kinds() {
        assert_eq!(kind_of(libc::EIO), DriveErrorKind::Medium);
        assert_eq!(kind_of(libc::ENODATA), DriveErrorKind::Medium);
        assert_eq!(kind_of(libc::ENODEV), DriveErrorKind::Gone);
        assert_eq!(kind_of(libc::EDQUOT), DriveErrorKind::NoSpace);
        assert_eq!(kind_of(libc::EROFS), DriveErrorKind::Denied);
        assert_eq!(kind_of(libc::ETIMEDOUT), DriveErrorKind::Timeout);
        assert_eq!(kind_of(libc::EINVAL), DriveErrorKind::Misaligned);
        assert_eq!(kind_of(libc::ENOMEM), DriveErrorKind::Other);
    }
}
