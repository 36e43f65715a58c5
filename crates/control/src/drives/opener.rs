//! Opening drives of all kinds. A drive can be a volume of another pool, but this module cannot
//! depend on pools: their volumes come through the trait [`Volumes`].
//!
//! Expected faults: those of each kind of drive. [`Trouble`] separates missing drives from errors
//! that stop the command.

use std::path::Path;
use std::rc::Rc;

use stripewise_runtime::{OpenError, OpenOptions, RealExecutor};

use crate::access::Access;
use crate::drives::candidates::{Candidate, Identity, Place, noted_export, noted_place};
use crate::drives::network;
use crate::drives::opened::{OpenedDrive, look_open};
use crate::drives::own;
use crate::drives::trouble::Trouble;
use crate::environment::Environment;
use crate::failure;
use crate::notation::names::VolumeName;

/// Source of volumes as drives.
pub(crate) trait Volumes {
    /// Opens a volume as a drive, and its pool first if that is closed.
    async fn volume(&self, name: &VolumeName, access: Access) -> Result<OpenedDrive, Trouble>;
}

/// Opens drives of all kinds.
pub(crate) struct DriveOpener<'a, V> {
    /// Receiver of warnings about drives.
    pub environment: &'a Environment,
    /// Executor that runs the I/O of the drives.
    pub executor: &'a Rc<RealExecutor>,
    /// Source of volumes.
    pub volumes: &'a V,
}

impl<V: Volumes> DriveOpener<'_, V> {
    /// Opens a candidate for a drive.
    pub(crate) async fn open(
        &self,
        candidate: &Candidate,
        access: Access,
        options: &OpenOptions,
    ) -> failure::Result<OpenedDrive> {
        let opened = match (&candidate.identity, noted_export(&candidate.path)) {
            (Identity::Volume(name), _) => {
                return self.volumes.volume(name, access).await.map_err(Trouble::failure);
            }
            (Identity::Network(_), Some(uri)) => {
                network::open(self.executor, &uri, options.read_only).await?
            }
            _ => {
                let opened = self.at(&candidate.path, options).await?;
                // The checks of the candidate must hold for this drive.
                opened.refuse_other_than(candidate)?;
                opened
            }
        };
        match access == Access::Change && opened.is_on_own_volume(self.environment) {
            true => Err(own::refusal(&candidate.path)),
            false => Ok(opened),
        }
    }

    /// Opens a drive at the path that its pool has recorded.
    pub(crate) async fn open_noted(
        &self,
        path: &Path,
        access: Access,
        options: &OpenOptions,
    ) -> Result<Result<OpenedDrive, OpenError>, Trouble> {
        match noted_place(path) {
            Place::Volume(name) => self.volumes.volume(&name, access).await.map(Ok),
            Place::Path(path) => Ok(self.at(&path, options).await),
            Place::Network(uri) => network::open_known(self.executor, &uri, options.read_only).await.map(Ok),
        }
    }

    /// Opens a file or device.
    pub(crate) async fn at(&self, path: &Path, options: &OpenOptions) -> Result<OpenedDrive, OpenError> {
        look_open(self.environment, self.executor, path, options).await
    }
}
