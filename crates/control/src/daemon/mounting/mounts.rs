//! Looking up mounts in /proc/self/mountinfo, which does not touch the mounted file systems.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Source and type of the topmost mount at a path without links.
pub(crate) fn what_is_mounted_at(path: &Path) -> io::Result<Option<String>> {
    Ok(find(&std::fs::read("/proc/self/mountinfo")?, path.as_os_str().as_bytes()))
}

/// Lines have the form `id parent device root PLACE options… - TYPE SOURCE options`, with octal
/// escapes for blanks.
fn find(table: &[u8], path: &[u8]) -> Option<String> {
    let mut found = None;
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(place) = fields.nth(4) else { continue };
        if unescaped(place) != path {
            continue;
        }
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let mut word = || String::from_utf8_lossy(&unescaped(behind.next().unwrap_or_default())).into_owned();
        let (kind, source) = (word(), word());
        found = Some(format!("{source} ({kind})"));
    }
    found
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits =
            field.get(at + 1..at + 4).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (field[at], digits) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                at += 4;
            }
            (byte, _) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_folder() {
        let table = b"25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
                      31 30 7:0 / /mnt/my\\040data rw master:1 - xfs /dev/loop0 rw,attr2\n\
                      32 30 0:40 / /mnt/two rw - tmpfs none rw\n\
                      33 32 0:41 / /mnt/two rw - fuse.stripewise stripewise:tank rw\ncut short";
        assert_eq!(find(table, b"/mnt/my data").as_deref(), Some("/dev/loop0 (xfs)"));
        assert_eq!(find(table, b"/mnt/two").as_deref(), Some("stripewise:tank (fuse.stripewise)"));
        assert_eq!(find(table, b"/mnt"), None);
        assert!(what_is_mounted_at(Path::new("/proc")).expect("readable").is_some());
    }
}
