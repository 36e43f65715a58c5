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

/// The name of a drive, before anything is looked at.
enum Name {
    /// An export.
    Network(NbdUri),
    /// A path, unless nothing is there and the name is that of a volume of a known pool.
    Path(PathBuf, Option<VolumeName>),
}

fn parse(environment: &Environment, text: &str) -> Result<Name> {
    if NbdUri::is_meant(text) {
        let uri = NbdUri::parse(text, &environment.absolute(Path::new("")));
        let hint = "as in nbd://HOST/EXPORT, nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH, \
                    nbds://HOST/EXPORT?tls-certificates=DIR";
        return uri.map(Name::Network).map_err(|error| Failure::usage(error.to_string()).hint(hint));
    }
    let is_known =
        |name: &VolumeName| environment.registry().is_ok_and(|registry| registry.pool(&name.pool).is_ok());
    let volume = text.parse::<VolumeName>().ok().filter(is_known);
    Ok(Name::Path(environment.absolute(Path::new(text)), volume))
}

/// `POOL/VOL` looks like a path too: what is there as a path is one, else a known pool decides.
fn place(name: Name, is_path: impl FnOnce(&Path) -> bool) -> Place {
    match name {
        Name::Network(uri) => Place::Network(uri),
        Name::Path(path, Some(volume)) if !is_path(&path) => Place::Volume(volume),
        Name::Path(path, _) => Place::Path(path),
    }
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// The path that a name means: `sdb` is the device of this name where there is no such file.
pub(crate) async fn device_path(environment: &Environment, name: &str) -> PathBuf {
    let path = environment.absolute(Path::new(name));
    if Path::new(name).components().count() != 1 || name.starts_with('.') {
        return path;
    }
    let device = Path::new("/dev").join(name);
    let of_thread = (path.clone(), device.clone());
    let is_device = environment.look(&path, move || {
        let (path, device) = of_thread;
        let found = || std::fs::metadata(device).is_ok_and(|found| found.file_type().is_block_device());
        !is_there(&path) && found()
    });
    if is_device.await.unwrap_or(false) { device } else { path }
}

impl Candidate {
    /// Parses a name. Blocks the thread where a path may be a volume's name.
    pub fn place(environment: &Environment, text: &str) -> Result<Place> {
        Ok(place(parse(environment, text)?, is_there))
    }

    /// Looks at what was named.
    pub async fn named(environment: &Environment, text: &str) -> Result<Self> {
        let name = parse(environment, text)?;
        let is_path = match &name {
            Name::Path(path, Some(_)) => {
                let of_thread = path.clone();
                // A path that does not answer is there.
                environment.look(path, move || is_there(&of_thread)).await.unwrap_or(true)
            }
            _ => true,
        };
        match place(name, |_| is_path) {
            Place::Path(_) => Self::look(environment, &device_path(environment, text).await).await,
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

    /// Looks at a path. Blocks the thread, which must not be a daemon's executor.
    pub fn at(path: &Path) -> Result<Self> {
        let path = absolute(path)?;
        let identity = Identity::Drive(drive_identity(&path)?);
        Ok(Self { path, identity })
    }

    /// Looks at a path on another thread.
    pub async fn look(environment: &Environment, path: &Path) -> Result<Self> {
        let path = absolute(path)?;
        let identity = Identity::Drive(environment.look_at_drive(&path, drive_identity).await?);
        Ok(Self { path, identity })
    }

    /// Refuses a path or URI that is too long for a pool to record.
    pub(crate) fn refuse_long_name(&self) -> Result<()> {
        refuse_long_name(&self.path)
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

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("`{}` is no path: {}", path.display(), system_text(&error))))
}

/// Looks at all of these paths; the same drive twice is an error.
pub fn paths(paths: &[PathBuf]) -> Result<Vec<Candidate>> {
    if let Some(uri) = paths.iter().find_map(|path| noted_export(path)) {
        return Err(Failure::usage(format!("{uri} cannot be used here")).hint("name files or block devices"));
    }
    distinct(paths.iter().map(|path| Candidate::at(path)))
}

/// The candidates; the same drive twice is an error.
pub fn distinct(given: impl Iterator<Item = Result<Candidate>>) -> Result<Vec<Candidate>> {
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

/// Refuses a path or URI that is too long for a pool to record.
pub(crate) fn refuse_long_name(path: &Path) -> Result<()> {
    let length = path.as_os_str().len();
    if length <= MAX_PATH_BYTES {
        return Ok(());
    }
    let hint = match noted_export(path) {
        None => "use a shorter path, such as a link: ln -s PATH LINK",
        Some(_) => "use a shorter name",
    };
    Err(Failure::new(format!(
        "{} has {length} bytes; a pool records paths of up to {MAX_PATH_BYTES} bytes",
        path.display()
    ))
    .hint(hint))
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
