//! Rights to make drives of paths. A daemon may open paths that its callers may not: a caller with
//! a role below `admin` can name known drives of pools, block devices, and files in the folders
//! that the daemon allows for drives.
//!
//! Expected faults: links that lead out of such a folder, paths of known drives at which something
//! else is now, and paths that are replaced after the check (`DriveOpener::open` compares what was
//! opened).

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::pin::pin;

use stripewise_pool::{DriveId, PoolId, identify};
use stripewise_runtime::{OpenOptions, drive_identity};

use crate::drives::candidates::{Candidate, Identity};
use crate::environment::Environment;
use crate::failure::{Failure, Reason, Result};
use crate::messages::roles::Role;

/// The folder of devices; regular files in it do not count, as in /dev/shm.
const DEVICES: &str = "/dev";
/// A drive that answers has its superblock read by then.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Refuses a path that the caller may not make a drive of.
pub(crate) async fn refuse_foreign_path(environment: &Environment, candidate: &Candidate) -> Result<()> {
    let Identity::Drive(identity) = &candidate.identity else { return Ok(()) };
    if environment.role() == Role::Admin {
        return Ok(());
    }
    let real = std::fs::canonicalize(&candidate.path).ok();
    let is_same = |real: &Path| drive_identity(real).is_ok_and(|found| found == *identity);
    if real.as_ref().is_some_and(|real| is_same(real) && is_allowed(environment, real)) {
        return Ok(());
    }
    if is_known(environment, candidate, real.as_deref()).await {
        return Ok(());
    }
    Err(Failure::of(
        Reason::Forbidden,
        format!(
            "{} is neither a pool's drive nor in a folder for drives: using it requires the role {}",
            candidate.path.display(),
            Role::Admin
        ),
    )
    .hint("`stripewise serve --drive-dirs DIR` names folders whose files may become drives"))
}

/// True if a registered pool has a drive at this path, and that drive is there. The path alone says
/// nothing where another user can put a link or file there: the superblock has to name the drive. A
/// device's own name is enough, so that a new disk can take the place of a dead one.
async fn is_known(environment: &Environment, candidate: &Candidate, real: Option<&Path>) -> bool {
    let pools = environment.registry().and_then(|registry| registry.pools()).unwrap_or_default();
    let drives = pools.iter().flat_map(|pool| pool.drives.iter().map(|drive| (&pool.id, drive)));
    let noted: Vec<_> = drives.filter(|(_, drive)| drive.path == candidate.path).collect();
    if noted.is_empty() {
        return false;
    }
    if candidate.kind() == "block device" && real == Some(&candidate.path) {
        return true;
    }
    let Some((pool_id, drive_id)) = names_in_superblock(environment, candidate).await else { return false };
    let (pool_id, drive_id) = (pool_id.to_string(), drive_id.to_string());
    noted.iter().any(|(pool, drive)| **pool == pool_id && drive.id == drive_id)
}

/// The pool and drive that a drive says it is.
async fn names_in_superblock(environment: &Environment, candidate: &Candidate) -> Option<(PoolId, DriveId)> {
    let executor = environment.executor().ok()?;
    let options = OpenOptions { read_only: true, lock: false, buffered: false };
    let file = executor.open_drive(&candidate.path, &options).ok()?;
    if Identity::Drive(file.identity()) != candidate.identity {
        return None;
    }
    let looking = pin!(identify(&*file));
    executor.context().time_limit_ns(PATIENCE_NS, looking).await.ok()?.ok()?
}

/// True if a resolved path lies in a folder for drives.
fn is_allowed(environment: &Environment, real: &Path) -> bool {
    let is_device = std::fs::metadata(real).is_ok_and(|found| found.file_type().is_block_device());
    environment.drive_folders().iter().any(|folder| {
        let is_fit = is_device || folder != Path::new(DEVICES);
        is_fit && std::fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
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
    fn files_below_dev_are_no_devices() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
        let candidate = Candidate::at(file.path()).expect("a file");
        let is_refused =
            |folder: &str| refused(&environment(Role::Operate, &[Path::new(folder)]), &candidate).is_err();
        assert!(is_refused("/dev"));
        assert!(!is_refused("/dev/shm"), "it was named");
    }
}
