//! Small regular files that another user may have named or may replace: certificates, keys, tokens,
//! addresses.
//!
//! Expected faults: pipes (opening one would wait for a writer), devices without an end such as
//! /dev/zero, files that are far too long, files that are replaced while they are opened.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Flags for opening a path of unknown kind: opening a pipe does not wait for a writer, and a
/// terminal does not become that of this process.
pub(crate) const OPEN_ANY_KIND: libc::c_int = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Opens a regular file; anything else at the path is refused, without waiting for it.
pub fn open_regular_file(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(OPEN_ANY_KIND).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    Ok((file, metadata))
}

/// Reads a regular file of at most `most_bytes`. The metadata is that of the file that was read.
pub fn read_small_file(path: &Path, most_bytes: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let (file, metadata) = open_regular_file(path)?;
    let mut bytes = Vec::new();
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let why = format!("it is longer than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok((bytes, metadata))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn only_short_regular_files_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").expect("written");
        let (bytes, metadata) = read_small_file(&path, 5).expect("short enough");
        assert_eq!((&*bytes, metadata.len()), (&b"12345"[..], 5));
        assert_eq!(read_small_file(&path, 4).expect_err("too long").kind(), io::ErrorKind::FileTooLarge);
        let pipe = folder.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).expect("a path");
        // SAFETY: the string ends in a zero byte and lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("linked");
        for path in [&*pipe, &*link, folder.path()] {
            let kind = read_small_file(path, 5).expect_err("no file").kind();
            assert_eq!(kind, io::ErrorKind::InvalidInput, "{}", path.display());
        }
    }
}
