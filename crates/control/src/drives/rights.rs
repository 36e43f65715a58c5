//! Rights to make drives of paths. A daemon may open paths that its callers may not: a caller with
//! a role below `admin` can name known drives of pools, block devices, and files in the folders
//! that the daemon allows for drives.
//!
//! Expected faults: links that lead out of such a folder, paths of known drives at which something
//! else is now, and paths that are replaced after the check (`DriveOpener::open` compares what was
//! opened).

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::pin;

use stripewise_export::nbd::client::{NbdAddress, NbdPlace};
use stripewise_pool::{DriveId, PoolId, identify};
use stripewise_runtime::{OpenFile, OpenOptions, drive_identity};

use crate::drives::candidates::{Candidate, Identity, distinct, noted_export};
use crate::environment::Environment;
use crate::failure::{Failure, Reason, Result};
use crate::messages::roles::Role;
use crate::registry::KnownDrive;

/// The folder of devices; regular files in it do not count, as in /dev/shm.
const DEVICES: &str = "/dev";
/// A drive that answers has its superblock read by then.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The drive that a caller names, if the caller may use it. A caller below `admin` gets one answer
/// for all paths that it may not use, whatever is there.
pub(crate) async fn permitted(environment: &Environment, name: &Path) -> Result<Candidate> {
    let path = environment.absolute(name);
    let named = match name.to_str() {
        Some(text) => Candidate::named(environment, text).await,
        None => Candidate::look(environment, &path).await,
    };
    match named {
        Ok(candidate) => {
            refuse_foreign_path(environment, &candidate).await?;
            Ok(candidate)
        }
        Err(failure) if environment.role() == Role::Admin || failure.reason == Reason::Usage => Err(failure),
        Err(failure) => {
            let is_noted = noted_at(environment, &path).next().is_some();
            Err(if is_noted || lies_in_a_folder(environment, &path).await { failure } else { foreign(&path) })
        }
    }
}

/// All that a caller names; the same drive twice is an error.
pub(crate) async fn all_permitted(environment: &Environment, names: &[String]) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for name in names {
        candidates.push(permitted(environment, Path::new(name)).await);
    }
    distinct(candidates.into_iter())
}

/// Refuses a path that the caller may not make a drive of.
pub(crate) async fn refuse_foreign_path(environment: &Environment, candidate: &Candidate) -> Result<()> {
    if environment.role() == Role::Admin {
        return Ok(());
    }
    let identity = match &candidate.identity {
        Identity::Drive(identity) => *identity,
        Identity::Network(address) => return refuse_foreign_socket(environment, candidate, address).await,
        Identity::Volume(_) => return Ok(()),
    };
    let (path, folders) = (candidate.path.clone(), environment.drive_folders().to_vec());
    let looked = environment.look(&candidate.path, move || {
        let real = std::fs::canonicalize(&path).ok()?;
        let is_same = drive_identity(&real).is_ok_and(|found| found == identity);
        Some((is_same && is_allowed(&folders, &real), real))
    });
    let found = looked.await.ok().flatten();
    if found.as_ref().is_some_and(|(is_allowed, _)| *is_allowed) {
        return Ok(());
    }
    if is_known(environment, candidate, found.as_ref().map(|(_, real)| real.as_path())).await {
        return Ok(());
    }
    Err(foreign(&candidate.path))
}

fn foreign(path: &Path) -> Failure {
    Failure::of(
        Reason::Forbidden,
        format!(
            "{} is neither a pool's drive nor in a folder for drives: using it requires the role {}",
            path.display(),
            Role::Admin
        ),
    )
    .hint("`stripewise serve --drive-dirs DIR` names folders whose files may become drives")
}

/// Refuses an export whose URI names a socket or certificates outside the folders for drives: the
/// daemon's own rights would open them.
async fn refuse_foreign_socket(
    environment: &Environment,
    candidate: &Candidate,
    address: &NbdAddress,
) -> Result<()> {
    if noted_at(environment, &candidate.path).next().is_some() {
        return Ok(());
    }
    let certificates = noted_export(&candidate.path).and_then(|uri| uri.certificates);
    let socket = match &address.place {
        NbdPlace::Unix(path) => Some(path.clone()),
        NbdPlace::Tcp { .. } => None,
    };
    for path in certificates.into_iter().chain(socket) {
        if !lies_in_a_folder(environment, &path).await {
            return Err(foreign(&path));
        }
    }
    Ok(())
}

/// True if a path lies in a folder for drives, whatever is there; of a link its target does.
async fn lies_in_a_folder(environment: &Environment, path: &Path) -> bool {
    let (of_thread, folders) = (path.to_owned(), environment.drive_folders().to_vec());
    let looked = environment.look(path, move || {
        if let Ok(real) = std::fs::canonicalize(&of_thread) {
            return is_below(&folders, &real);
        }
        let is_link = std::fs::symlink_metadata(&of_thread).is_ok_and(|found| found.is_symlink());
        let folder = of_thread.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
        !is_link && folder.is_some_and(|folder| is_below(&folders, &folder))
    });
    looked.await.unwrap_or(false)
}

/// The registered drives at this path, with their pools' identities.
fn noted_at(environment: &Environment, path: &Path) -> impl Iterator<Item = (String, KnownDrive)> {
    let pools = environment.registry().and_then(|registry| registry.pools()).unwrap_or_default();
    let path = path.to_owned();
    let drives =
        pools.into_iter().flat_map(|pool| pool.drives.into_iter().map(move |drive| (pool.id.clone(), drive)));
    drives.filter(move |(_, drive)| drive.path == path)
}

/// True if a registered pool has a drive at this path, and that drive is there. The path alone says
/// nothing where another user can put a link or file there: the superblock has to name the drive. A
/// device's own name is enough, so that a new disk can take the place of a dead one.
async fn is_known(environment: &Environment, candidate: &Candidate, real: Option<&Path>) -> bool {
    let noted: Vec<_> = noted_at(environment, &candidate.path).collect();
    if noted.is_empty() {
        return false;
    }
    if candidate.kind() == "block device" && real == Some(&candidate.path) {
        return true;
    }
    let Some((pool_id, drive_id)) = names_in_superblock(environment, candidate).await else { return false };
    let (pool_id, drive_id) = (pool_id.to_string(), drive_id.to_string());
    noted.iter().any(|(pool, drive)| *pool == pool_id && drive.id == drive_id)
}

/// The pool and drive that a drive says it is.
async fn names_in_superblock(environment: &Environment, candidate: &Candidate) -> Option<(PoolId, DriveId)> {
    let executor = environment.executor().ok()?;
    let options = OpenOptions { read_only: true, lock: false, buffered: false };
    let opening = environment.look_at_drive(&candidate.path, move |path| OpenFile::open(path, &options));
    let file = executor.opener().drive(opening.await.ok()?);
    if Identity::Drive(file.identity()) != candidate.identity {
        return None;
    }
    let looking = pin!(identify(&*file));
    executor.context().time_limit_ns(PATIENCE_NS, looking).await.ok()?.ok()?
}

/// True if a resolved path is that of a drive in one of the folders. Blocks the thread.
fn is_allowed(folders: &[PathBuf], real: &Path) -> bool {
    let is_device = std::fs::metadata(real).is_ok_and(|found| found.file_type().is_block_device());
    match is_device {
        true => folders
            .iter()
            .any(|folder| std::fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder))),
        false => is_below(folders, real),
    }
}

/// True if a resolved path lies in one of the folders for files. Blocks the thread.
fn is_below(folders: &[PathBuf], real: &Path) -> bool {
    let files = folders.iter().filter(|folder| *folder != Path::new(DEVICES));
    files.into_iter().any(|folder| std::fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::daemon::caller::Caller;
    use crate::environment::NoNotices;

    fn environment(role: Role, folders: &[&Path]) -> Environment {
        let environment = Environment::of_this_process(Rc::new(NoNotices));
        environment.allow_drive_folders(folders.iter().map(PathBuf::from).collect());
        let caller = Rc::new(Caller::new(None));
        environment.for_caller(Rc::new(NoNotices), caller, PathBuf::from("/"), role)
    }

    fn refused(environment: &Environment, candidate: &Candidate) -> Result<()> {
        let executor = environment.executor().expect("io_uring");
        executor.block_on(refuse_foreign_path(environment, candidate))
    }

    #[test]
    fn only_folders_for_drives_are_open_to_operators() {
        let folder = tempfile::tempdir().expect("a folder");
        let (allowed, other) = (folder.path().join("drives"), folder.path().join("home"));
        for folder in [&allowed, &other] {
            std::fs::create_dir(folder).expect("made");
            std::fs::write(folder.join("file"), "x").expect("written");
        }
        std::os::unix::fs::symlink(other.join("file"), allowed.join("link")).expect("linked");
        std::os::unix::fs::symlink(allowed.join("file"), other.join("link")).expect("linked");
        let is_refused = |role, path: &Path| {
            let candidate = Candidate::at(path).expect("a file");
            let result = refused(&environment(role, &[&allowed]), &candidate);
            result.is_err_and(|failure| failure.reason == Reason::Forbidden)
        };
        assert!(!is_refused(Role::Operate, &allowed.join("file")));
        assert!(!is_refused(Role::Operate, &other.join("link")), "the target counts");
        assert!(is_refused(Role::Operate, &other.join("file")));
        assert!(is_refused(Role::Operate, &allowed.join("link")), "the target counts");
        assert!(is_refused(Role::Operate, &allowed.join("../home/file")));
        for path in [other.join("file"), allowed.join("link")] {
            assert!(!is_refused(Role::Admin, &path));
        }
    }

    #[test]
    fn operators_learn_nothing_of_other_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let (allowed, other) = (folder.path().join("drives"), folder.path().join("home"));
        for folder in [&allowed, &other] {
            std::fs::create_dir(folder).expect("made");
            std::fs::write(folder.join("file"), vec![0; 8192]).expect("written");
        }
        std::os::unix::fs::symlink(other.join("absent"), allowed.join("link")).expect("linked");
        let message = |role, path: &Path| {
            let environment = environment(role, &[&allowed]);
            let executor = environment.executor().expect("io_uring");
            let failure = executor.block_on(permitted(&environment, path)).expect_err("refused");
            assert!(failure.message.contains(&path.display().to_string()), "{}", failure.message);
            (failure.reason, failure.message.replace(&path.display().to_string(), "PATH"))
        };
        let file = message(Role::Operate, &other.join("file"));
        assert_eq!(file.0, Reason::Forbidden);
        for path in [other.join("absent"), other.clone(), other.join("file/x"), allowed.join("link")] {
            assert_eq!(message(Role::Operate, &path), file, "{}", path.display());
            assert_ne!(message(Role::Admin, &path), file);
        }
        let absent = message(Role::Operate, &allowed.join("absent")).1;
        assert!(absent.contains("no such file"), "what may be used is named: {absent}");
    }

    #[test]
    fn operators_name_sockets_in_folders_for_drives() {
        let folder = tempfile::tempdir().expect("a folder");
        let (allowed, other) = (folder.path().join("drives"), folder.path().join("home"));
        [&allowed, &other].into_iter().for_each(|folder| std::fs::create_dir(folder).expect("made"));
        let is_refused = |role, uri: &str| {
            let environment = environment(role, &[&allowed]);
            let executor = environment.executor().expect("io_uring");
            executor.block_on(permitted(&environment, Path::new(uri))).is_err()
        };
        let socket = |folder: &Path| format!("nbd+unix:///x?socket={}/s", folder.display());
        let certificates = |folder: &Path| format!("nbds://host/x?tls-certificates={}/c", folder.display());
        assert!(!is_refused(Role::Operate, "nbd://host/x"));
        for uri in [socket(&allowed), certificates(&allowed)] {
            assert!(!is_refused(Role::Operate, &uri), "{uri}");
        }
        for uri in [socket(&other), certificates(&other)] {
            assert!(is_refused(Role::Operate, &uri), "{uri}");
            assert!(!is_refused(Role::Admin, &uri), "{uri}");
        }
    }

    #[test]
    fn files_below_dev_are_no_devices() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
        let candidate = Candidate::at(file.path()).expect("a file");
        let is_refused =
            |folder: &str| refused(&environment(Role::Operate, &[Path::new(folder)]), &candidate).is_err();
        assert!(is_refused("/dev"));
        assert!(!is_refused("/dev/shm"), "it was named");
    }
}
