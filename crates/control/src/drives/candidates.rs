//! Checks of the drives that a command names, before any is opened for writing: is it a drive, is
//! the same one named twice (also through links)?
//!
//! Expected faults: paths that do not exist, are folders, pipes or unreadable; the same drive under
//! two names; drives that hold something already; volumes of other pools (`stacked.rs`) and exports
//! of NBD servers (`network.rs`), which are drives too.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use stripewise_export::nbd::client::{NbdAddress, NbdUri};
use stripewise_pool::MAX_PATH_BYTES;
use stripewise_runtime::{DriveIdentity, OpenError, drive_identity};

use crate::environment::Environment;
use crate::failure::{Failure, Reason, Result, chain, system_text};
use crate::notation::names::VolumeName;

/// A path that is a drive.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// As given, made absolute; links are kept, as `/dev/disk/by-id/…` names are the stable ones.
    /// Of a volume its name, of an export its URI.
    pub path: PathBuf,
    /// Identity of the drive, independent of the path.
    pub identity: Identity,
}

/// Identity of a drive, independent of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file or block device.
    Drive(DriveIdentity),
    /// A volume of a known pool.
    Volume(VolumeName),
    /// An export of an NBD server.
    Network(NbdAddress),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let denied = matches!(error, OpenError::Denied { .. });
        let reason = if denied { Reason::Denied } else { Reason::Failed };
        let failure = Failure::of(reason, format!("cannot use {}", chain(&error)));
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Kind and place of a new drive, by its name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or block device.
    Path(PathBuf),
    /// A volume of a pool known here.
    Volume(VolumeName),
    /// An export of an NBD server.
    Network(NbdUri),
}

/// The export that is meant, where a text is a URI of one.
pub fn noted_export(path: &Path) -> Option<NbdUri> {
    let text = path.to_str().filter(|text| NbdUri::is_meant(text))?;
    NbdUri::parse(text, Path::new("/")).ok()
}

/// Place of a drive as a pool records it: paths are absolute, volumes are names, exports are URIs.
pub(crate) fn noted_place(path: &Path) -> Place {
    if let Some(uri) = noted_export(path) {
        return Place::Network(uri);
    }
    let volume = path.to_str().and_then(|text| text.parse::<VolumeName>().ok());
    match volume.filter(|_| path.is_relative()) {
        Some(name) => Place::Volume(name),
        None => Place::Path(path.to_owned()),
    }
}

/// The path that a name means: `sdb` is the device of this name where there is no such file.
pub(crate) fn device_path(environment: &Environment, name: &str) -> PathBuf {
    let path = environment.absolute(Path::new(name));
    let is_word = Path::new(name).components().count() == 1 && !name.starts_with('.');
    let device = Path::new("/dev").join(name);
    let is_device = || std::fs::metadata(&device).is_ok_and(|found| found.file_type().is_block_device());
    if is_word && std::fs::symlink_metadata(&path).is_err() && is_device() { device } else { path }
}

/// `POOL/VOL` looks like a path too: what is there as a path is one, else a known pool decides.
fn place_of(environment: &Environment, text: &str) -> Result<Place> {
    if NbdUri::is_meant(text) {
        let uri = NbdUri::parse(text, &environment.absolute(Path::new("")));
        let hint = "as in nbd://HOST/EXPORT, nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH, \
                    nbds://HOST/EXPORT?tls-certificates=DIR";
        return uri.map(Place::Network).map_err(|error| Failure::usage(error.to_string()).hint(hint));
    }
    let path = device_path(environment, text);
    let volume = text.parse::<VolumeName>().ok().filter(|_| std::fs::symlink_metadata(&path).is_err());
    let is_known =
        |name: &VolumeName| environment.registry().is_ok_and(|registry| registry.pool(&name.pool).is_ok());
    Ok(match volume.filter(is_known) {
        Some(name) => Place::Volume(name),
        None => Place::Path(path),
    })
}

impl Candidate {
    /// Parses a name; looks at nothing.
    pub fn place(environment: &Environment, text: &str) -> Result<Place> {
        place_of(environment, text)
    }

    /// Looks at what was named.
    pub fn named(environment: &Environment, text: &str) -> Result<Self> {
        match place_of(environment, text)? {
            Place::Path(path) => Self::at(&path),
            Place::Volume(name) => {
                Ok(Self { path: PathBuf::from(name.to_string()), identity: Identity::Volume(name) })
            }
            Place::Network(uri) => Ok(Self::export(&uri)),
        }
    }

    /// The volume that it is, if it is one.
    pub fn volume(&self) -> Option<&VolumeName> {
        match &self.identity {
            Identity::Volume(name) => Some(name),
            Identity::Drive(_) | Identity::Network(_) => None,
        }
    }

    /// An export.
    pub fn export(uri: &NbdUri) -> Self {
        Self { path: PathBuf::from(uri.to_string()), identity: Identity::Network(uri.address.clone()) }
    }

    /// True if it can be opened as a path.
    pub fn is_path(&self) -> bool {
        matches!(self.identity, Identity::Drive(_))
    }

    /// Looks at a path.
    pub fn at(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|error| {
            Failure::new(format!("`{}` is no path: {}", path.display(), system_text(&error)))
        })?;
        let identity = Identity::Drive(drive_identity(&path)?);
        Ok(Self { path, identity })
    }

    /// Refuses a path or URI that is too long for a pool to record.
    pub(crate) fn refuse_long_name(&self) -> Result<()> {
        let length = self.path.as_os_str().len();
        if length <= MAX_PATH_BYTES {
            return Ok(());
        }
        let hint = match self.is_path() {
            true => "use a shorter path, such as a link: ln -s PATH LINK",
            false => "use a shorter name",
        };
        Err(Failure::new(format!(
            "{} has {length} bytes; a pool records paths of up to {MAX_PATH_BYTES} bytes",
            self.path.display()
        ))
        .hint(hint))
    }

    /// In words.
    pub fn kind(&self) -> &'static str {
        match self.identity {
            Identity::Drive(DriveIdentity::File { .. }) => "file",
            Identity::Drive(DriveIdentity::BlockDevice { .. }) => "block device",
            Identity::Volume(_) => "volume",
            Identity::Network(_) => "NBD export",
        }
    }
}

/// Looks at all that were named; the same drive twice is an error.
pub fn all(environment: &Environment, names: &[String]) -> Result<Vec<Candidate>> {
    let candidates = distinct(names.iter().map(|name| Candidate::named(environment, name)))?;
    candidates.iter().try_for_each(Candidate::refuse_long_name)?;
    Ok(candidates)
}

/// Looks at all of these paths; the same drive twice is an error.
pub fn paths(paths: &[PathBuf]) -> Result<Vec<Candidate>> {
    if let Some(uri) = paths.iter().find_map(|path| noted_export(path)) {
        return Err(Failure::usage(format!("{uri} cannot be used here")).hint("name files or block devices"));
    }
    distinct(paths.iter().map(|path| Candidate::at(path)))
}

fn distinct(given: impl Iterator<Item = Result<Candidate>>) -> Result<Vec<Candidate>> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for candidate in given {
        let candidate = candidate?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_drives_are_refused_by_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let message = |path: &Path| Candidate::at(path).expect_err("no drive").message;
        assert!(message(folder.path()).ends_with("this is a directory, not a drive"));
        assert!(message(Path::new("/dev/null")).ends_with("this is a character device, not a drive"));
        assert!(message(&folder.path().join("absent")).ends_with("no such file or device"));
    }

    #[test]
    fn path_too_long_to_record_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d".repeat(200));
        std::fs::write(&path, "").expect("written");
        let refused = Candidate::at(&path).expect("a drive").refuse_long_name().expect_err("too long");
        assert!(refused.message.ends_with("a pool records paths of up to 200 bytes"), "{}", refused.message);
        let shorter = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &shorter).expect("linked");
        assert!(Candidate::at(&shorter).expect("a drive").refuse_long_name().is_ok());
    }

    #[test]
    fn the_same_drive_is_seen_through_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "").expect("written");
        std::fs::write(path("b"), "").expect("written");
        std::fs::hard_link(path("a"), path("hard")).expect("linked");
        std::os::unix::fs::symlink(path("a"), path("soft")).expect("linked");
        assert_eq!(paths(&[path("a"), path("b")]).expect("two drives").len(), 2);
        let message = |second: &str| paths(&[path("a"), path("b"), path(second)]).expect_err("twice").message;
        assert!(message("a").ends_with("is given twice"));
        assert!(message("hard").ends_with("are the same drive"));
        assert!(message("soft").ends_with("are the same drive"));
    }
}
