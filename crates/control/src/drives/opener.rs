//! Opening what offers itself as a drive, whatever kind it is. A volume is a drive too, but pools
//! stand above drives: who can open pools gives their volumes through the trait [`Volumes`].
//!
//! Expected faults: those of each kind of drive; whether one is missing or stops the command is in
//! the [`Trouble`].

use std::path::Path;
use std::rc::Rc;

use stripewise_runtime::{OpenError, OpenOptions, RealExecutor};

use crate::access::Access;
use crate::drives::candidates::{Candidate, Identity, Place, noted_export, noted_place};
use crate::drives::network;
use crate::drives::opened::{OpenedDrive, open_drive};
use crate::drives::trouble::Trouble;
use crate::environment::Environment;
use crate::failure;
use crate::notation::names::VolumeName;

/// Gives volumes of pools as drives.
pub(crate) trait Volumes {
    /// A volume as a drive; its pool is opened for it if it is not open yet.
    async fn volume(&self, name: &VolumeName, access: Access) -> Result<OpenedDrive, Trouble>;
}

/// Opens drives of all kinds.
pub(crate) struct DriveOpener<'a, V> {
    /// Where to tell what there is to say of a drive.
    pub environment: &'a Environment,
    /// What drives are used on.
    pub executor: &'a Rc<RealExecutor>,
    /// What volumes are opened by.
    pub volumes: &'a V,
}

impl<V: Volumes> DriveOpener<'_, V> {
    /// Opens whatever offers itself as a drive.
    pub(crate) async fn open(
        &self,
        candidate: &Candidate,
        access: Access,
        options: &OpenOptions,
    ) -> failure::Result<OpenedDrive> {
        match (&candidate.identity, noted_export(&candidate.path)) {
            (Identity::Volume(name), _) => self.volumes.volume(name, access).await.map_err(Trouble::failure),
            (Identity::Network(_), Some(uri)) => {
                Ok(network::open(self.executor, &uri, options.read_only).await?)
            }
            _ => Ok(self.at(&candidate.path, options)?),
        }
    }

    /// Opens the drive that a pool has noted at this place.
    pub(crate) async fn open_noted(
        &self,
        path: &Path,
        access: Access,
        options: &OpenOptions,
    ) -> Result<Result<OpenedDrive, OpenError>, Trouble> {
        match noted_place(path) {
            Place::Volume(name) => self.volumes.volume(&name, access).await.map(Ok),
            Place::Path(path) => Ok(self.at(&path, options)),
            Place::Network(uri) => network::open_known(self.executor, &uri, options.read_only).await.map(Ok),
        }
    }

    /// Opens a file or device.
    pub(crate) fn at(&self, path: &Path, options: &OpenOptions) -> Result<OpenedDrive, OpenError> {
        open_drive(self.environment, self.executor, path, options)
    }
}
