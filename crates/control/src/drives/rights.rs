//! Rights to make drives of paths. A daemon may open paths that its callers may not: a caller with
//! a role below `admin` can name known drives of pools, block devices, and files in the folders
//! that the daemon allows for drives.
//!
//! Expected faults: links that lead out of such a folder, and paths that are replaced after the
//! check (`Session::open_new_drive` compares what was opened).

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use stripewise_runtime::drive_identity;

use crate::drives::candidates::{Candidate, Identity};
use crate::environment::Environment;
use crate::failure::{Failure, Reason, Result};
use crate::messages::roles::Role;

/// The folder of devices; regular files in it do not count, as in /dev/shm.
const DEVICES: &str = "/dev";

/// Refuses a path that the caller may not make a drive of.
pub(crate) fn refuse_foreign_path(environment: &Environment, candidate: &Candidate) -> Result<()> {
    let Identity::Drive(identity) = &candidate.identity else { return Ok(()) };
    if environment.role() == Role::Admin || is_known(environment, &candidate.path) {
        return Ok(());
    }
    let real = std::fs::canonicalize(&candidate.path).ok();
    let is_same = |real: &Path| drive_identity(real).is_ok_and(|found| found == *identity);
    if real.is_some_and(|real| is_same(&real) && is_allowed(environment, &real)) {
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

/// True if a registered pool has a drive at this path.
fn is_known(environment: &Environment, path: &Path) -> bool {
    let pools = environment.registry().and_then(|registry| registry.pools()).unwrap_or_default();
    pools.iter().flat_map(|pool| &pool.drives).any(|drive| drive.path == path)
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
            let result = refuse_foreign_path(&environment(role, &[&allowed]), &candidate);
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
        let refused = |folder: &str| {
            refuse_foreign_path(&environment(Role::Operate, &[Path::new(folder)]), &candidate).is_err()
        };
        assert!(refused("/dev"));
        assert!(!refused("/dev/shm"), "it was named");
    }
}
