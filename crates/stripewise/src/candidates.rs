//! Paths given as drives, looked at before anything is opened for writing: is it a drive at all, how large, what does it
//! hold, and is the same one named twice (also through links)?
//!
//! Expected faults: paths that do not exist, are folders, pipes or unreadable; the same drive under two names.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result, system_text};

/// What makes two paths the same drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file: the file system's device and the file's number there.
    File {
        /// Device of the file system.
        device: u64,
        /// Inode.
        number: u64,
    },
    /// A block device, however many names it has.
    Device(u64),
}

/// A path that is a drive.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// As given, made absolute; links are kept, as `/dev/disk/by-id/…` names are the stable ones.
    pub path: PathBuf,
    /// What makes it this drive.
    pub identity: Identity,
    /// Whether it is a regular file.
    pub is_file: bool,
}

impl Candidate {
    /// Looks at a path.
    pub fn at(path: &Path) -> Result<Self> {
        let shown = path.display();
        let absolute = std::path::absolute(path)
            .map_err(|error| Failure::new(format!("`{shown}` is no path: {}", system_text(&error))))?;
        let metadata = std::fs::metadata(&absolute).map_err(|error| {
            let failure = Failure::new(format!("cannot use {shown} as a drive: {}", system_text(&error)));
            match error.kind() {
                std::io::ErrorKind::NotFound => failure
                    .hint("a drive is a block device or a file; `stripewise drive make` makes files to use as drives"),
                _ => failure,
            }
        })?;
        let identity = identity_of(&metadata).ok_or_else(|| {
            Failure::new(format!("cannot use {shown} as a drive: it is {}", kind_text(&metadata))).hint(
                "a drive is a block device or a file; `stripewise drive make` makes files to use as drives",
            )
        })?;
        Ok(Self { path: absolute, identity, is_file: metadata.is_file() })
    }

    /// Opens it for reading, to look at what it holds.
    pub fn open(&self) -> Result<File> {
        File::open(&self.path).map_err(|error| {
            Failure::new(format!("cannot read {}: {}", self.path.display(), system_text(&error)))
        })
    }
}

/// Looks at all paths; the same drive twice is an error.
pub fn all(paths: &[PathBuf]) -> Result<Vec<Candidate>> {
    let mut candidates: Vec<Candidate> = Vec::with_capacity(paths.len());
    for path in paths {
        let candidate = Candidate::at(path)?;
        if let Some(other) = candidates.iter().find(|other| other.identity == candidate.identity) {
            let (first, second) = (other.path.display(), candidate.path.display());
            return Err(match other.path == candidate.path {
                true => Failure::new(format!("the drive {first} is given twice")),
                false => Failure::new(format!("{first} and {second} are the same drive")),
            }
            .hint("every drive of a pool must be a drive of its own"));
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

fn identity_of(metadata: &Metadata) -> Option<Identity> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Some(Identity::File { device: metadata.dev(), number: metadata.ino() })
    } else if kind.is_block_device() {
        Some(Identity::Device(metadata.rdev()))
    } else {
        None
    }
}

fn kind_text(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "neither a file nor a block device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_drive_is_refused_by_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let message = |path: &Path| Candidate::at(path).expect_err("no drive").message;
        assert!(message(folder.path()).ends_with("it is a folder"));
        assert!(message(Path::new("/dev/null")).ends_with("it is a character device"));
        assert!(message(&folder.path().join("absent")).ends_with("No such file or directory"));
    }

    #[test]
    fn the_same_drive_is_seen_through_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "").expect("written");
        std::fs::write(path("b"), "").expect("written");
        std::fs::hard_link(path("a"), path("hard")).expect("linked");
        std::os::unix::fs::symlink(path("a"), path("soft")).expect("linked");
        assert_eq!(all(&[path("a"), path("b")]).expect("two drives").len(), 2);
        let message = |second: &str| all(&[path("a"), path("b"), path(second)]).expect_err("twice").message;
        assert!(message("a").ends_with("is given twice"));
        assert!(message("hard").ends_with("are the same drive"));
        assert!(message("soft").ends_with("are the same drive"));
        assert!(message("../".to_owned().as_str()).contains("a folder"));
    }
}
