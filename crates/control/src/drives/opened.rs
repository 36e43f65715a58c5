//! An open drive: a file, a device, a volume of another pool or an export.
//!
//! Expected faults: drives that vanish while they are open, files with an invalid stored pace.

use std::path::Path;
use std::rc::Rc;

use stripewise_drive::{Drive, Pace, PacedDrive};
use stripewise_export::nbd::client::NetworkDrive;
use stripewise_pool::{DriveId, PoolOptions};
use stripewise_runtime::{FileDrive, OpenError, OpenOptions, RealExecutor, pace_attribute};

use crate::drives::candidates::{Candidate, Identity};
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::notation::names::VolumeName;
use crate::notation::times::unix_ms;
use crate::registry::this_host::this_host;

/// An open drive.
#[derive(Clone)]
pub struct OpenedDrive {
    /// The file or device, if it is one.
    pub file: Option<Rc<FileDrive>>,
    /// The export, if it is one.
    pub network: Option<Rc<NetworkDrive>>,
    /// The file, device, volume or export, without a pace.
    pub bare: Rc<dyn Drive>,
    /// The drive for the engine: slowed to the pace stored with the file, if any.
    pub drive: Rc<dyn Drive>,
    /// The drive's identity, independent of its name.
    pub identity: Identity,
    /// The drive id on its label, if it was read.
    pub says: Option<DriveId>,
}

impl OpenedDrive {
    /// A volume of another pool.
    pub fn volume(name: VolumeName, drive: Rc<dyn Drive>) -> Self {
        let identity = Identity::Volume(name);
        Self { file: None, network: None, bare: drive.clone(), drive, identity, says: None }
    }

    /// A file or device, without a pace.
    pub fn plain(file: Rc<FileDrive>) -> Self {
        let identity = Identity::Drive(file.identity());
        Self {
            bare: file.clone(),
            drive: file.clone(),
            file: Some(file),
            network: None,
            identity,
            says: None,
        }
    }

    /// Fails if it is not the drive that was looked at: its path was replaced in between.
    pub fn refuse_other_than(&self, candidate: &Candidate) -> Result<()> {
        match self.identity == candidate.identity {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{} was replaced while it was being opened",
                candidate.path.display()
            ))),
        }
    }

    /// True if it is shorter than it was, so that a part of its data is lost.
    pub(crate) fn is_cut(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_cut())
    }

    /// The reason, if the drive is lost: its file or device has gone, or its server is unreachable.
    pub fn lost(&self) -> Option<String> {
        if let Some(network) = &self.network {
            return network.lost().map(|why| why.to_string());
        }
        let file = self.file.as_ref()?;
        let was_gone = file.is_gone();
        match file.still_there() {
            Err(vanished) => Some(vanished.to_string()),
            Ok(()) => was_gone.then(|| "it was absent for a while".to_owned()),
        }
    }
}

/// Factor for the timeout of volumes: an inner pool first waits for its own drives.
const PATIENCE_WITH_VOLUMES: u64 = 4;

/// The options for opening any pool: history by this machine's clock, and its host.
pub(crate) fn pool_options(drives: &[OpenedDrive]) -> PoolOptions {
    let mut options =
        PoolOptions { unix_ms: Some(unix_ms), host: Some(this_host()), ..PoolOptions::default() };
    if drives.iter().any(|opened| matches!(opened.identity, Identity::Volume(_))) {
        options.member.timeout_ns *= PATIENCE_WITH_VOLUMES;
    }
    options
}

/// Opens one drive.
pub fn open_drive(
    environment: &Environment,
    executor: &RealExecutor,
    path: &Path,
    options: &OpenOptions,
) -> std::result::Result<OpenedDrive, OpenError> {
    let file = executor.open_drive(path, options)?;
    for notice in file.notices() {
        environment.note(format!("note: {notice}"));
    }
    let drive: Rc<dyn Drive> = match pace_of(environment, path) {
        Some(pace) => PacedDrive::new(&executor.context(), file.clone(), pace),
        None => file.clone(),
    };
    Ok(OpenedDrive { drive, ..OpenedDrive::plain(file) })
}

/// The pace stored with a file.
pub fn pace_of(environment: &Environment, path: &Path) -> Option<Pace> {
    let text = pace_attribute(path)?;
    match text.parse() {
        Ok(pace) => Some(pace),
        Err(error) => {
            let error: stripewise_drive::PaceError = error;
            environment.warning(format!("{}: its stored pace is ignored: {error}", path.display()));
            None
        }
    }
}
