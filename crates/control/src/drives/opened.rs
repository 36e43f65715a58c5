//! A drive that is open: a file, a device, a volume of another pool or an export.
//!
//! Expected faults: drives that are gone while they are open, files that carry a pace that is none.

use std::path::Path;
use std::rc::Rc;

use stripewise_drive::{Drive, Pace, PacedDrive};
use stripewise_engine::pool::{DriveId, PoolOptions};
use stripewise_export::nbd::client::NetworkDrive;
use stripewise_runtime::{FileDrive, OpenError, OpenOptions, RealExecutor, pace_attribute};

use crate::drives::candidates::Identity;
use crate::environment::Environment;
use crate::notation::names::VolumeName;
use crate::notation::times::unix_ms;
use crate::registry::this_host::this_host;

/// A drive, opened.
#[derive(Clone)]
pub struct OpenedDrive {
    /// The file or device itself, where it is one.
    pub file: Option<Rc<FileDrive>>,
    /// The export, where it is one.
    pub network: Option<Rc<NetworkDrive>>,
    /// The file, device, volume or export, as fast as it can.
    pub bare: Rc<dyn Drive>,
    /// What the engine gets: held to the pace that the file carries, if it carries one.
    pub drive: Rc<dyn Drive>,
    /// Which drive it is, whatever it is called.
    pub identity: Identity,
    /// Which drive of the pool it says it is, where it was asked.
    pub says: Option<DriveId>,
}

impl OpenedDrive {
    /// A volume of another pool.
    pub fn volume(name: VolumeName, drive: Rc<dyn Drive>) -> Self {
        let identity = Identity::Volume(name);
        Self { file: None, network: None, bare: drive.clone(), drive, identity, says: None }
    }

    /// A file or device, as fast as it can.
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

    /// Whether a part of what it held is lost, as it is shorter than it was.
    pub(crate) fn is_cut(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_cut())
    }

    /// Why it has to be taken as lost, if it has to: its file or device has gone, its server is out
    /// of reach.
    pub fn lost(&self) -> Option<String> {
        if let Some(network) = &self.network {
            return network.lost().map(|why| why.to_string());
        }
        let file = self.file.as_ref()?;
        let was_gone = file.is_gone();
        match file.still_there() {
            Err(vanished) => Some(vanished.to_string()),
            Ok(()) => was_gone.then(|| "it was not there for a while".to_owned()),
        }
    }
}

/// An inner pool waits for its own drives first: the one above it must be the more patient.
const PATIENCE_WITH_VOLUMES: u64 = 4;

/// As every pool of the command line is opened: its history goes by this machine's clock.
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

/// The pace that a file carries.
pub fn pace_of(environment: &Environment, path: &Path) -> Option<Pace> {
    let text = pace_attribute(path)?;
    match text.parse() {
        Ok(pace) => Some(pace),
        Err(error) => {
            let error: stripewise_drive::PaceError = error;
            environment.warning(format!("{}: its stored pace is passed over: {error}", path.display()));
            None
        }
    }
}
