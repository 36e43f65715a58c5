//! Signatures that `blkid` (util-linux) knows beyond our own table, where it is installed.
//!
//! Expected faults: no `blkid`, one that fails, one that hangs on the device (ended), output of
//! anything: it adds to what is found and takes nothing away.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::programs;

/// Its places: a daemon must not run what another user puts on its path.
const PROGRAMS: [&str; 3] = ["/usr/sbin/blkid", "/sbin/blkid", "/usr/bin/blkid"];
/// Reading signatures takes no longer on a device that answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer output is none of its.
const MAX_OUTPUT_BYTES: u64 = 16 << 10;
/// It found signatures that contradict each other.
const AMBIVALENT: i32 = 8;

/// The open file or device, as `blkid` sees it: no path is resolved, so nothing else can take its
/// place.
const ITS_INPUT: &str = "/proc/self/fd/0";

/// Asks `blkid` for the signature of an open file or device, to go behind "holds". Blocks the
/// thread.
pub(crate) fn find(file: &File) -> Option<String> {
    let program = PROGRAMS.into_iter().find(|program| Path::new(program).exists())?;
    let about = file.metadata().ok()?;
    let device = PathBuf::from(format!("{}:{}:{}", about.dev(), about.ino(), about.rdev()));
    let mut command = Command::new(program);
    command.args(["-p", "-o", "export", ITS_INPUT]).stdin(Stdio::from(file.try_clone().ok()?));
    let (status, output) = programs::run(&mut command, &device, PATIENCE, MAX_OUTPUT_BYTES)?;
    if status.code() == Some(AMBIVALENT) {
        return Some("signatures that contradict each other".to_owned());
    }
    in_words(std::str::from_utf8(&output).ok()?)
}

fn in_words(output: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = output.lines();
        let text = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._-+".contains(letter);
        (!text.is_empty() && text.len() <= 40 && text.chars().all(is_name)).then_some(text)
    };
    let of_usage = |kind: &str| match value("USAGE") {
        Some("filesystem") => format!("a file system ({kind})"),
        Some("crypto") => format!("an encrypted volume ({kind})"),
        Some("raid") => format!("a member of an array ({kind})"),
        _ => format!("a signature of {kind}"),
    };
    let table = || value("PTTYPE").map(|kind| format!("a partition table ({kind})"));
    value("TYPE").map(of_usage).or_else(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_signature_is_named() {
        let found = |text| in_words(text).unwrap_or_default();
        assert_eq!(found("DEVNAME=/d\nVERSION=2\nTYPE=ufs\nUSAGE=filesystem\n"), "a file system (ufs)");
        assert_eq!(found("TYPE=LVM1_member\nUSAGE=raid\n"), "a member of an array (LVM1_member)");
        assert_eq!(found("TYPE=crypto_LUKS\nUSAGE=crypto\n"), "an encrypted volume (crypto_LUKS)");
        assert_eq!(found("TYPE=jbd\nUSAGE=other\n"), "a signature of jbd");
        assert_eq!(found("PTTYPE=mac\n"), "a partition table (mac)");
        for nothing in ["", "DEVNAME=/d\n", "TYPE=\n", "TYPE=a b\n", "XTYPE=ufs\n"] {
            assert_eq!(in_words(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn blkid_is_asked_where_it_is_installed() {
        if !PROGRAMS.into_iter().any(|program| Path::new(program).exists()) {
            return;
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        assert_eq!(find(file.as_file()), None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"SnAp", 0).expect("written");
        // Another file takes its path.
        std::fs::remove_file(file.path()).expect("removed");
        std::fs::write(file.path(), vec![0; 1 << 20]).expect("written");
        assert_eq!(find(file.as_file()).as_deref(), Some("a signature of DM_snapshot_cow"));
    }
}
