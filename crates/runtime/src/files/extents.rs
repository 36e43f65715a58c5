//! The allocated parts of a file.
//!
//! Expected faults: file systems without such a map (the whole file counts as one part), files that
//! change during the call (the answer held at some moment).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The next part of a file with data, from an offset on. `None`: only zeros follow.
///
/// # Errors
/// If the file system cannot read its map.
pub fn next_data(file: &File, from_bytes: u64) -> io::Result<Option<Range<u64>>> {
    let end = file.metadata()?.len();
    if from_bytes >= end {
        return Ok(None);
    }
    let start = match seek(file, from_bytes, libc::SEEK_DATA) {
        Ok(start) => start,
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        // The file system does not report holes.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Some(from_bytes..end)),
        Err(error) => return Err(error),
    };
    match seek(file, start, libc::SEEK_HOLE) {
        Ok(hole) if hole > start => Ok(Some(start..hole)),
        // The file was truncated in between.
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn seek(file: &File, from_bytes: u64, whence: libc::c_int) -> io::Result<u64> {
    let from = i64::try_from(from_bytes).map_err(|_| io::Error::from_raw_os_error(libc::ENXIO))?;
    // SAFETY: no memory is touched. The descriptor is open while the file is borrowed; its
    // position does not matter, since all readers pass offsets.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), from, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_are_passed_over() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(64 << 20).expect("room");
        assert_eq!(next_data(&file, 0).expect("a map"), None);
        file.write_all_at(b"x", 33 << 20).expect("written");
        let part = next_data(&file, 0).expect("a map").expect("a part");
        assert!(part.contains(&(33 << 20)), "{part:?}");
        assert_eq!(next_data(&file, 64 << 20).expect("a map"), None);
        assert_eq!(next_data(&file, u64::MAX).expect("a map"), None);
        let rest = next_data(&file, part.end).expect("a map");
        assert_eq!(rest, None, "nothing else is allocated");
    }
}
