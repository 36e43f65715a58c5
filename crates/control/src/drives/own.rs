//! This process's own exports and mounts. What lies on them is no drive of its pools: a write to
//! such a pool waits for another pool of the same process, which may wait for the first.
//!
//! Expected faults: drives that are named by way of a server, a file system, or devices on top of
//! one another. A server in between that is another program is not recognised.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stripewise_export::nbd::client::Peer;
use stripewise_runtime::{DriveIdentity, device_name};

use crate::failure::Failure;

const MOUNTS: &str = "/proc/self/mountinfo";
const DEVICES: &str = "/sys/dev/block";
/// Reason for which a drive is not used.
pub(crate) const WHY: &str = "it lies on a volume that this process itself serves";

/// Listeners and mounts of this process.
#[derive(Default)]
pub(crate) struct Own {
    addresses: RefCell<Vec<SocketAddr>>,
    mounts: RefCell<Vec<PathBuf>>,
}

impl Own {
    /// Records the address of an NBD listener. Unix sockets are recognised by their process.
    pub(crate) fn note_listener(&self, address: SocketAddr) {
        self.addresses.borrow_mut().push(address);
    }

    /// Records a folder at which volumes are mounted, without links in its path.
    pub(crate) fn note_mount(&self, folder: &Path) {
        self.mounts.borrow_mut().push(folder.to_owned());
    }

    /// Folders at which volumes are, or were, mounted.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        self.mounts.borrow().clone()
    }

    /// True if the server at the other end of a connection is this process.
    pub(crate) fn is_server(&self, peer: &Peer) -> bool {
        let is_at = |own: &SocketAddr, (to, from): (SocketAddr, SocketAddr)| {
            let ip = to.ip().to_canonical();
            let is_this_host = || own.ip().is_unspecified() && ip == from.ip().to_canonical();
            own.port() == to.port() && (own.ip().to_canonical() == ip || is_this_host())
        };
        peer.process == Some(std::process::id())
            || peer.addresses.is_some_and(|both| self.addresses.borrow().iter().any(|own| is_at(own, both)))
    }
}

/// The failure for such a drive.
pub(crate) fn refusal(path: &Path) -> Failure {
    Failure::new(format!("cannot use {}: {WHY}", path.display()))
        .hint("a volume can be a drive of another pool by its name, as in POOL/VOL")
}

/// True if a file or block device lies on one of these mounts of volumes: in it, or on devices and
/// file systems over files in it. Blocks the thread.
pub(crate) fn lies_on(mounts: &[PathBuf], identity: DriveIdentity) -> bool {
    if mounts.is_empty() {
        return false;
    }
    let table = std::fs::read(MOUNTS).unwrap_or_default();
    let table = MountTable(String::from_utf8_lossy(&table).into_owned());
    let ours: Vec<String> = mounts.iter().filter_map(|folder| table.device_at(folder)).collect();
    let mut seen = BTreeSet::new();
    let mut next = match identity {
        DriveIdentity::File { device, .. } | DriveIdentity::BlockDevice { device } => {
            vec![device_name(device)]
        }
    };
    while let Some(device) = next.pop() {
        if ours.contains(&device) {
            return true;
        }
        next.extend(
            below(&device).into_iter().chain(table.source_of(&device)).filter(|name| !seen.contains(name)),
        );
        seen.insert(device);
    }
    false
}

/// Devices, or file systems, that a block device lies on.
fn below(device: &str) -> Vec<String> {
    let Ok(folder) = Path::new(DEVICES).join(device).canonicalize() else { return Vec::new() };
    let mut below = Vec::new();
    // A partition lies on the device in whose folder it is.
    for folder in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
        if let Ok(file) = std::fs::read_to_string(folder.join("loop/backing_file")) {
            let about = Path::new(file.trim_end_matches('\n')).metadata();
            below.extend(about.ok().map(|about| device_name(about.dev())));
        }
        let slaves = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        for slave in slaves {
            let name = std::fs::read_to_string(slave.path().join("dev"));
            below.extend(name.ok().map(|name| name.trim().to_owned()));
        }
    }
    below
}

/// The kernel's table of mounts: lines `id parent MAJOR:MINOR root PLACE options… - TYPE SOURCE …`.
struct MountTable(String);

impl MountTable {
    /// The device of the file system at a folder; of several the last one, which hides the others.
    fn device_at(&self, folder: &Path) -> Option<String> {
        let place = folder.to_str()?.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011");
        let lines = self.0.lines().map(|line| line.split(' '));
        let mut at = lines.filter(|fields| fields.clone().nth(4) == Some(place.as_str()));
        at.next_back().and_then(|mut fields| fields.nth(2).map(str::to_owned))
    }

    /// The block device of a file system that has a number of its own, as btrfs.
    fn source_of(&self, device: &str) -> Option<String> {
        let mut lines = self.0.lines().map(|line| line.split(' '));
        let fields = lines.find(|fields| fields.clone().nth(2) == Some(device))?;
        let source = Path::new(fields.skip_while(|field| *field != "-").nth(2)?);
        let about = source.metadata().ok().filter(|about| about.file_type().is_block_device())?;
        Some(device_name(about.rdev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_servers_are_recognised_by_address_or_process() {
        let own = Own::default();
        for text in ["127.0.0.1:10809", "0.0.0.0:10810"] {
            own.note_listener(text.parse().expect("an address"));
        }
        let tcp = |to: &str, from: &str| {
            let addresses = (to.parse().expect("an address"), from.parse().expect("an address"));
            own.is_server(&Peer { process: None, addresses: Some(addresses) })
        };
        assert!(tcp("127.0.0.1:10809", "127.0.0.1:5"));
        assert!(tcp("[::ffff:127.0.0.1]:10809", "127.0.0.1:5"));
        assert!(tcp("192.0.2.1:10810", "192.0.2.1:5"), "an address of this host");
        assert!(!tcp("192.0.2.9:10810", "192.0.2.1:5"), "another host");
        assert!(!tcp("127.0.0.1:10811", "127.0.0.1:5"));
        let unix = |process| own.is_server(&Peer { process: Some(process), addresses: None });
        assert!(unix(std::process::id()) && !unix(1));
    }

    #[test]
    fn file_systems_are_found_by_their_folder() {
        let table = MountTable(
            "31 30 7:0 / /mnt/my\\040data rw master:1 - xfs /dev/loop0 rw,attr2\n\
             32 30 0:40 / /mnt/two rw - tmpfs none rw\n\
             33 32 0:41 / /mnt/two rw - fuse.stripewise stripewise:tank rw\ncut short"
                .to_owned(),
        );
        assert_eq!(table.device_at(Path::new("/mnt/my data")), Some("7:0".to_owned()));
        assert_eq!(table.device_at(Path::new("/mnt/two")), Some("0:41".to_owned()));
        assert_eq!(table.device_at(Path::new("/mnt")), None);
        assert_eq!(table.source_of("0:40"), None);
    }
}
