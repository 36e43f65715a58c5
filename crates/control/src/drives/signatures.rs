//! Recognition of a drive's contents, so that nothing is overwritten unseen: file systems,
//! partition tables, members of other arrays, encrypted and swap space, by the magic numbers of
//! their formats. Reads only.
//!
//! Expected faults: drives too small for a signature's place, unreadable places (an error, not
//! "empty"), contents that only look like a signature (then the user says `--force`).

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::notation::plain::is_unsafe;

/// Something found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// With its article, to go behind "holds": "an ext4 file system".
    pub what: String,
    /// The name its owner gave it.
    pub label: Option<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{} `{label}`", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A fixed text at a fixed place.
struct Magic {
    offset_bytes: u64,
    bytes: &'static [u8],
    what: &'static str,
    /// Place of the label (absolute offset, longest length).
    label: Option<(u64, usize)>,
}

const fn magic(offset_bytes: u64, bytes: &'static [u8], what: &'static str) -> Magic {
    Magic { offset_bytes, bytes, what, label: None }
}

const fn labelled(magic: Magic, offset_bytes: u64, length: usize) -> Magic {
    Magic { label: Some((offset_bytes, length)), ..magic }
}

/// Formats with a fixed text: those that `libblkid` (util-linux) knows, as far as the text is long
/// enough to be distinctive, and images of disks.
const MAGICS: &[Magic] = &[
    labelled(magic(0, b"XFSB", "an XFS file system"), 108, 12),
    labelled(magic(0x1_0040, b"_BHRfS_M", "a btrfs file system"), 0x1_012b, 256),
    magic(3, b"NTFS    ", "an NTFS file system"),
    magic(3, b"EXFAT   ", "an exFAT file system"),
    magic(0, b"\0\0\0ReFS\0", "a ReFS file system"),
    magic(3, b"-FVE-FS-", "a BitLocker encrypted volume"),
    labelled(magic(54, b"FAT12   ", "a FAT file system"), 43, 11),
    labelled(magic(54, b"FAT16   ", "a FAT file system"), 43, 11),
    labelled(magic(82, b"FAT32   ", "a FAT file system"), 71, 11),
    magic(1024, &0xF2F5_2010u32.to_le_bytes(), "an F2FS file system"),
    magic(1024, b"\xe2\xe1\xf5\xe0", "an EROFS image"),
    magic(0x1_0034, b"ReIsEr", "a ReiserFS file system"),
    magic(0x2034, b"ReIsEr", "a ReiserFS file system"),
    magic(0x1_0000, b"ReIsEr4", "a Reiser4 file system"),
    magic(0x8000, b"JFS1", "a JFS file system"),
    magic(0x1_0000, b"\x01\x16\x19\x70", "a GFS2 file system"),
    magic(0x1_0004, b"\x8b\x42\x3c\x10", "a ScoutFS device"),
    magic(0x400, b"OCFSV2", "an OCFS2 file system"),
    magic(0x800, b"OCFSV2", "an OCFS2 file system"),
    magic(0x1000, b"OCFSV2", "an OCFS2 file system"),
    magic(0x2000, b"OCFSV2", "an OCFS2 file system"),
    magic(0x2000, b"OracleCFS", "an OCFS file system"),
    magic(32, b"ORCLDISK", "an Oracle ASM disk"),
    magic(32, b"NXSB", "an APFS container"),
    magic(32, b"BFS1", "a BeFS file system"),
    magic(0x220, b"BFS1", "a BeFS file system"),
    magic(0x220, b"1SFB", "a BeFS file system"),
    magic(1024, b"H+\0\x04", "an HFS+ file system"),
    magic(1024, b"HX\0\x05", "an HFS+ file system"),
    magic(0x2000, b"\x49\xe8\x95\xf9", "an HPFS file system"),
    magic(1024, b"\xf5\xfc\x01\xa5", "a VxFS file system"),
    magic(0x2000, b"\xa5\x01\xfc\xf5", "a VxFS file system"),
    magic(0, b"EXFS", "an EXFS file system"),
    magic(0x1000, b"SPB5", "an NSS file system"),
    magic(0x20_0000, b"\x5e\xf1\xab\x2f", "a VMFS file system"),
    magic(0x10_0000, b"\x0d\xd0\x01\xc0", "a member of a VMFS volume"),
    magic(0, b"SFOZ", "a zonefs file system"),
    magic(0, b"UBI#", "a UBI volume"),
    magic(0, b"\x31\x18\x10\x06", "a UBIFS file system"),
    labelled(magic(0x8001, b"CD001", "an ISO 9660 image"), 0x8028, 32),
    magic(0x8001, b"BEA01", "a UDF file system"),
    magic(0, b"hsqs", "a SquashFS image"),
    magic(0, b"sqsh", "a SquashFS image"),
    magic(0, b"-rom1fs-", "a romfs image"),
    magic(0, b"\x45\x3d\xcd\x28", "a cramfs image"),
    magic(0, b"\x28\xcd\x3d\x45", "a cramfs image"),
    magic(0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    magic(0, b"SnAp", "a device-mapper snapshot"),
    magic(0, b"verity\0\0", "a dm-verity device"),
    magic(0, b"integrt\0", "a dm-integrity device"),
    magic(0, b"dmvdo001", "a VDO device"),
    magic(516, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis device"),
    magic(512, b"EFI PART", "a GPT partition table"),
    magic(4096, b"EFI PART", "a GPT partition table"),
    magic(0, b"\x0b\xe5\xa9\x41", "an SGI disk label"),
    magic(64, b"\x57\x45\x56\x82", "a BSD disk label"),
    magic(512, b"\x57\x45\x56\x82", "a BSD disk label"),
    labelled(magic(4096, &0xa92b_4efcu32.to_le_bytes(), "a member of an md array"), 4096 + 32, 32),
    labelled(magic(0, &0xa92b_4efcu32.to_le_bytes(), "a member of an md array"), 32, 32),
    magic(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
    magic(
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs file system",
    ),
    magic(0, b"bluestore block device", "a Ceph BlueStore device"),
    magic(0, b"QFI\xfb", "a QCOW2 disk image"),
    magic(0, b"KDMV", "a VMDK disk image"),
    magic(0, b"vhdxfile", "a VHDX disk image"),
    magic(64, b"\x7f\x10\xda\xbe", "a VDI disk image"),
];

/// All that is recognised on the drive of `size_bytes`, each thing once.
pub(crate) fn find(file: &File, size_bytes: u64) -> io::Result<Vec<Found>> {
    let drive = Reader { file, size_bytes };
    let mut found: Vec<Found> = Vec::new();
    let mut add = |what: &str, label: Option<String>| {
        if !found.iter().any(|known| known.what == what) {
            found.push(Found { what: what.to_owned(), label });
        }
    };
    for magic in MAGICS {
        if drive.holds(magic.offset_bytes, magic.bytes)? {
            let label = match magic.label {
                Some((offset_bytes, length)) => drive.label(offset_bytes, length)?,
                None => None,
            };
            add(magic.what, label);
        }
    }
    if let Some((what, label)) = ext(&drive)? {
        add(what, label);
    }
    if zfs(&drive)? {
        add("a member of a ZFS pool", None);
    }
    if md_at_the_end(&drive)? {
        add("a member of an md array", None);
    }
    if lvm(&drive)? {
        add("an LVM physical volume", None);
    }
    if ufs(&drive)? {
        add("a UFS file system", None);
    }
    if swap(&drive)? {
        add("swap space", None);
    }
    if intel_raid(&drive)? {
        add("a member of an Intel RAID array", None);
    }
    if drive.holds_near_end(512, &[0xDE, 0x11, 0xDE, 0x11])? {
        add("a member of a DDF hardware RAID array", None);
    }
    // The backup table, where the first one was overwritten.
    if drive.holds_near_end(512, b"EFI PART")? || drive.holds_near_end(4096, b"EFI PART")? {
        add("a GPT partition table", None);
    }
    // Last: boot sectors of file systems look like partition tables, and GPT drives carry a
    // protective one.
    if found.is_empty() && partition_table(&drive)? {
        found.push(Found { what: "an MBR partition table".to_owned(), label: None });
    }
    Ok(found)
}

struct Reader<'a> {
    file: &'a File,
    size_bytes: u64,
}

impl Reader<'_> {
    /// `None` where that lies beyond the drive.
    fn bytes(&self, offset_bytes: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
        if offset_bytes.checked_add(length as u64).is_none_or(|end| end > self.size_bytes) {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset_bytes)?;
        Ok(Some(bytes))
    }

    fn holds(&self, offset_bytes: u64, expected: &[u8]) -> io::Result<bool> {
        Ok(self.bytes(offset_bytes, expected.len())?.is_some_and(|bytes| bytes == expected))
    }

    fn holds_near_end(&self, before_end_bytes: u64, expected: &[u8]) -> io::Result<bool> {
        match self.size_bytes.checked_sub(before_end_bytes) {
            Some(offset_bytes) => self.holds(offset_bytes, expected),
            None => Ok(false),
        }
    }

    /// A label padded with zeros or blanks; only what can be shown.
    fn label(&self, offset_bytes: u64, length: usize) -> io::Result<Option<String>> {
        let Some(bytes) = self.bytes(offset_bytes, length)? else { return Ok(None) };
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let text = text.trim();
        let shown = !text.is_empty() && text != "NO NAME" && !text.chars().any(is_unsafe);
        Ok(shown.then(|| text.to_owned()))
    }
}

/// ext2, ext3 or ext4 by its feature flags: superblock at 1024, magic 0xEF53 at 56, compatible
/// features at 92, incompatible at 96, label at 120.
fn ext(drive: &Reader<'_>) -> io::Result<Option<(&'static str, Option<String>)>> {
    const HAS_JOURNAL: u32 = 0x4;
    const BLOCK_64BIT: u32 = 0x80;
    const EXTENTS: u32 = 0x40;
    if !drive.holds(1024 + 56, &[0x53, 0xEF])? {
        return Ok(None);
    }
    let Some(features) = drive.bytes(1024 + 92, 8)? else { return Ok(None) };
    let compatible = u32::from_le_bytes(features[..4].try_into().expect("four bytes"));
    let incompatible = u32::from_le_bytes(features[4..].try_into().expect("four bytes"));
    let what = if incompatible & (EXTENTS | BLOCK_64BIT) != 0 {
        "an ext4 file system"
    } else if compatible & HAS_JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    Ok(Some((what, drive.label(1024 + 120, 16)?)))
}

/// Any of the uberblocks in the four labels (two at the front, two at the end, 256 KiB each,
/// uberblocks in the upper half).
fn zfs(drive: &Reader<'_>) -> io::Result<bool> {
    const LABEL: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = drive.size_bytes / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    for label in labels.into_iter().flatten() {
        let Some(uberblocks) = drive.bytes(label + LABEL / 2, (LABEL / 2) as usize)? else { continue };
        let is_uberblock = |block: &[u8]| {
            let magic: [u8; 8] = block[..8].try_into().expect("eight bytes");
            u64::from_le_bytes(magic) == MAGIC || u64::from_be_bytes(magic) == MAGIC
        };
        if uberblocks.chunks_exact(1024).any(is_uberblock) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// md metadata 0.90 (in the last whole 64 KiB but one) and 1.0 (8 to 12 KiB before the end).
fn md_at_the_end(drive: &Reader<'_>) -> io::Result<bool> {
    let magic = 0xa92b_4efcu32.to_le_bytes();
    let old = (drive.size_bytes & !0xFFFF).checked_sub(0x1_0000);
    let new = drive.size_bytes.checked_sub(8192).map(|offset| offset & !4095);
    for offset_bytes in [old, new].into_iter().flatten() {
        if drive.holds(offset_bytes, &magic)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The label is in one of the first four sectors.
fn lvm(drive: &Reader<'_>) -> io::Result<bool> {
    for sector in 0..4 {
        if drive.holds(sector * 512, b"LABELONE")? && drive.holds(sector * 512 + 24, b"LVM2 001")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// UFS1 and UFS2, in either byte order: the magic is at the end of a superblock that is in one of
/// four places.
fn ufs(drive: &Reader<'_>) -> io::Result<bool> {
    const MAGIC_AT: u64 = 1372;
    for superblock in [0, 8 << 10, 64 << 10, 256 << 10] {
        for magic in [0x0001_1954u32, 0x1954_0119] {
            let at = superblock + MAGIC_AT;
            if drive.holds(at, &magic.to_le_bytes())? || drive.holds(at, &magic.to_be_bytes())? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The magic ends the first page, whose size depends on the machine.
fn swap(drive: &Reader<'_>) -> io::Result<bool> {
    for page_bytes in [4096, 8192, 16_384, 65_536] {
        let offset_bytes = page_bytes - 10;
        if drive.holds(offset_bytes, b"SWAPSPACE2")? || drive.holds(offset_bytes, b"SWAP-SPACE")? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn intel_raid(drive: &Reader<'_>) -> io::Result<bool> {
    let text = b"Intel Raid ISM Cfg Sig. ";
    Ok(drive.holds_near_end(1024, text)? || drive.holds_near_end(8192, text)?)
}

/// A boot sector with at least one entry in use, and every entry plausible.
fn partition_table(drive: &Reader<'_>) -> io::Result<bool> {
    let Some(sector) = drive.bytes(0, 512)? else { return Ok(false) };
    if sector[510..] != [0x55, 0xAA] {
        return Ok(false);
    }
    let mut entries = sector[446..510].chunks_exact(16);
    let plausible = entries.clone().all(|entry| matches!(entry[0], 0x00 | 0x80));
    Ok(plausible && entries.any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8 << 20;

    fn drive_with(places: &[(u64, &[u8])]) -> Vec<String> {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(SIZE).expect("room");
        for (offset, bytes) in places {
            file.write_all_at(bytes, *offset).expect("written");
        }
        find(&file, SIZE).expect("readable").iter().map(Found::to_string).collect()
    }

    #[test]
    fn an_empty_drive_holds_nothing() {
        assert_eq!(drive_with(&[]), Vec::<String>::new());
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(find(&file, 0).expect("nothing to read"), []);
        file.set_len(700).expect("room");
        assert_eq!(find(&file, 700).expect("readable"), []);
    }

    #[test]
    fn every_fixed_text_is_found_under_its_name() {
        for magic in MAGICS {
            assert_eq!(
                drive_with(&[(magic.offset_bytes, magic.bytes)]),
                [magic.what],
                "at {}",
                magic.offset_bytes
            );
        }
    }

    #[test]
    fn file_systems_are_named_with_their_label() {
        let ext = [(1024 + 56, &[0x53u8, 0xEF][..]), (1024 + 120, b"backup\0")];
        assert_eq!(drive_with(&ext), ["an ext2 file system `backup`"]);
        assert_eq!(drive_with(&[ext[0], (1024 + 92, &[4])]), ["an ext3 file system"]);
        assert_eq!(drive_with(&[ext[0], (1024 + 92, &[4]), (1024 + 96, &[0x40])]), ["an ext4 file system"]);
        assert_eq!(drive_with(&[(0, b"XFSB"), (108, b"data")]), ["an XFS file system `data`"]);
        assert_eq!(drive_with(&[(82, b"FAT32   "), (71, b"NO NAME    ")]), ["a FAT file system"]);
    }

    #[test]
    fn signatures_at_computed_offsets_are_found() {
        let md = 0xa92b_4efcu32.to_le_bytes();
        let uberblock = 0x00ba_b10cu64.to_le_bytes();
        assert_eq!(drive_with(&[(SIZE - 65_536, &md)]), ["a member of an md array"]);
        assert_eq!(drive_with(&[(SIZE - 8192, &md)]), ["a member of an md array"]);
        assert_eq!(drive_with(&[(SIZE - 128 * 1024, &uberblock)]), ["a member of a ZFS pool"]);
        assert_eq!(drive_with(&[(131 * 1024, &uberblock)]), ["a member of a ZFS pool"]);
        assert_eq!(drive_with(&[(512, b"LABELONE"), (536, b"LVM2 001")]), ["an LVM physical volume"]);
        assert_eq!(drive_with(&[(4086, b"SWAPSPACE2")]), ["swap space"]);
        assert_eq!(drive_with(&[(SIZE - 512, b"EFI PART")]), ["a GPT partition table"]);
        for superblock in [0, 8 << 10, 64 << 10, 256 << 10] {
            assert_eq!(drive_with(&[(superblock + 1372, b"\x19\x01\x54\x19")]), ["a UFS file system"]);
        }
        assert_eq!(
            drive_with(&[(SIZE - 1024, b"Intel Raid ISM Cfg Sig. ")]),
            ["a member of an Intel RAID array"]
        );
    }

    #[test]
    fn a_partition_table_needs_a_partition() {
        let signature = (510, &[0x55u8, 0xAA][..]);
        let entry = [0x80u8, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 32, 0, 0];
        assert_eq!(drive_with(&[signature]), Vec::<String>::new());
        assert_eq!(drive_with(&[signature, (446, &entry)]), ["an MBR partition table"]);
        assert_eq!(drive_with(&[signature, (446, &entry), (512, b"EFI PART")]), ["a GPT partition table"]);
        assert_eq!(drive_with(&[signature, (446, &entry), (462, &[0x41])]), Vec::<String>::new());
    }
}
