//! An open drive: a file, a device, a volume of another pool or an export.
//!
//! Expected faults: drives that vanish while they are open, files with an invalid stored pace.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use stripewise_drive::{Context, Drive, Pace, PacedDrive};
use stripewise_export::nbd::client::{NbdAddress, NetworkDrive};
use stripewise_pool::{DriveId, PoolOptions};
use stripewise_runtime::{
    FileDrive, OpenError, OpenFile, OpenOptions, PathCheck, RealExecutor, Vanished, pace_attribute,
};

use crate::drives::candidates::{Candidate, Identity};
use crate::drives::looks::Looks;
use crate::drives::own;
use crate::drives::space_below::is_full_below;
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
    /// The last look at its path.
    seen: Rc<Seen>,
}

/// The last look at the path of an open file or device.
#[derive(Default)]
struct Seen {
    why_lost: RefCell<Option<String>>,
    is_full_below: Cell<bool>,
    is_on_own_volume: Cell<bool>,
}

impl OpenedDrive {
    /// A volume of another pool.
    pub fn volume(name: VolumeName, drive: Rc<dyn Drive>) -> Self {
        let identity = Identity::Volume(name);
        Self {
            file: None,
            network: None,
            bare: drive.clone(),
            drive,
            identity,
            says: None,
            seen: Rc::default(),
        }
    }

    /// An export of an NBD server.
    pub(crate) fn export(address: NbdAddress, drive: Rc<NetworkDrive>) -> Self {
        let identity = Identity::Network(address);
        Self {
            file: None,
            network: Some(drive.clone()),
            bare: drive.clone(),
            drive,
            identity,
            says: None,
            seen: Rc::default(),
        }
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
            seen: Rc::default(),
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

    /// True if it is a sparse file whose file system was found full.
    pub(crate) fn is_full_below(&self) -> bool {
        self.seen.is_full_below.get()
    }

    /// True if it lies on a volume that this process serves ([`own`]).
    pub(crate) fn is_on_own_volume(&self, environment: &Environment) -> bool {
        match &self.network {
            Some(network) => environment.own().is_server(&network.peer()),
            None => self.seen.is_on_own_volume.get(),
        }
    }

    /// The reason, if the drive is lost: its file or device was found gone, or its server is
    /// unreachable.
    pub fn lost(&self) -> Option<String> {
        if let Some(network) = &self.network {
            return network.lost().map(|why| why.to_string());
        }
        let file = self.file.as_ref().filter(|file| file.is_gone())?;
        let why = self.seen.why_lost.borrow().clone();
        let was_cut = || if file.is_cut() { "it was truncated" } else { "it was absent for a while" };
        Some(why.unwrap_or_else(|| was_cut().to_owned()))
    }

    fn note(&self, Look { outcome, is_full }: Look) {
        let Some(file) = &self.file else { return };
        file.note_check(&outcome);
        self.seen.is_full_below.set(is_full);
        self.seen.why_lost.replace(outcome.err().map(|vanished| vanished.to_string()));
    }
}

/// The outcome of a look at a drive's path.
struct Look {
    outcome: std::result::Result<(), Vanished>,
    is_full: bool,
}

fn look(check: &PathCheck) -> Look {
    Look { outcome: check.run(), is_full: is_full_below(check.path()) }
}

/// Looks at the paths of open drives ([`OpenedDrive::lost`]). A path that does not answer is left
/// to the time limits of requests to the drive.
pub(crate) async fn look_at_paths(context: &Context, looks: &Looks, opened: &[OpenedDrive]) {
    let checks = opened.iter().filter_map(|opened| {
        let file = opened.file.as_ref()?;
        Some((opened, file.may_wait(), file.path_check().ok()?))
    });
    // A thread of its own for each that may wait for a server, one for all others.
    let (distant, near): (Vec<_>, Vec<_>) = checks.partition(|(_, may_wait, _)| *may_wait);
    let distant = distant.into_iter().map(|(opened, _, check)| async move {
        let path = check.path().to_owned();
        let looked = looks.at(context, None, &path, move || look(&check)).await;
        looked.into_iter().for_each(|look| opened.note(look));
    });
    let near = async {
        let (opened, checks): (Vec<_>, Vec<_>) =
            near.into_iter().map(|(opened, _, check)| (opened, check)).unzip();
        let Some(path) = checks.first().map(|check| check.path().to_owned()) else { return };
        let looked = looks.at(context, None, &path, move || checks.iter().map(look).collect::<Vec<_>>());
        for (opened, look) in opened.iter().zip(looked.await.unwrap_or_default()) {
            opened.note(look);
        }
    };
    join(join_all(distant), near).await;
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

/// Opens one drive. Blocks the thread, which must not be a daemon's executor.
pub fn open_drive(
    environment: &Environment,
    executor: &RealExecutor,
    path: &Path,
    options: &OpenOptions,
) -> std::result::Result<OpenedDrive, OpenError> {
    let file = executor.open_drive(path, options)?;
    let pace = pace_of(environment, path);
    Ok(opened(environment, executor, file, pace))
}

/// Opens one drive, on another thread.
pub(crate) async fn look_open(
    environment: &Environment,
    executor: &RealExecutor,
    path: &Path,
    options: &OpenOptions,
) -> std::result::Result<OpenedDrive, OpenError> {
    let (options, mounts) = (*options, environment.own().mounts());
    let opening = environment.look_at_drive(path, move |path| {
        let file = OpenFile::open(path, &options)?;
        let is_own = own::lies_on(&mounts, file.identity());
        Ok((file, pace_attribute(path), is_full_below(path), is_own))
    });
    let (file, pace, is_full, is_own) = opening.await?;
    let pace = parse_pace(environment, path, pace);
    let drive = opened(environment, executor, executor.opener().drive(file), pace);
    drive.seen.is_full_below.set(is_full);
    drive.seen.is_on_own_volume.set(is_own);
    Ok(drive)
}

fn opened(
    environment: &Environment,
    executor: &RealExecutor,
    file: Rc<FileDrive>,
    pace: Option<Pace>,
) -> OpenedDrive {
    for notice in file.notices() {
        environment.note(format!("note: {notice}"));
    }
    let drive: Rc<dyn Drive> = match pace {
        Some(pace) => PacedDrive::new(&executor.context(), file.clone(), pace),
        None => file.clone(),
    };
    OpenedDrive { drive, ..OpenedDrive::plain(file) }
}

/// The pace stored with a file. Blocks the thread.
pub fn pace_of(environment: &Environment, path: &Path) -> Option<Pace> {
    parse_pace(environment, path, pace_attribute(path))
}

/// The pace in an attribute's text.
pub(crate) fn parse_pace(environment: &Environment, path: &Path, text: Option<String>) -> Option<Pace> {
    match text?.parse() {
        Ok(pace) => Some(pace),
        Err(error) => {
            let error: stripewise_drive::PaceError = error;
            environment.warning(format!("{}: its stored pace is ignored: {error}", path.display()));
            None
        }
    }
}
