//! Facts that the kernel has about a block device (`/sys`). Reading them does not wait for the
//! device.

use std::fs;
use std::path::{Path, PathBuf};

use stripewise_runtime::block_device_folder;

use super::{Hardware, plain};

/// Folder of the whole device below `path`: that of `sda` for `/dev/sda1`. `None` if it is no block
/// device.
pub(super) fn folder_of(path: &Path) -> Option<PathBuf> {
    let folder = block_device_folder(path)?;
    let is_partition = folder.join("partition").exists();
    if is_partition { folder.parent().map(Path::to_owned) } else { Some(folder) }
}

/// Facts about the device with this folder. `by_path` has the links by bus, `/dev/disk/by-path`.
pub(super) fn facts(folder: &Path, by_path: &Path) -> Hardware {
    let read = |name: &str| plain(&fs::read_to_string(folder.join(name)).ok()?);
    let first = |names: &[&str]| names.iter().find_map(|name| read(name));
    Hardware {
        serial: first(&["device/serial", "serial"]).or_else(|| page_80(folder)),
        model: read("device/model"),
        firmware: first(&["device/firmware_rev", "device/rev"]),
        slot: enclosure_slot(folder).or_else(|| bus_name(folder, by_path)),
        temperature_c: temperature(folder, "temp1_input"),
        temperature_limit_c: temperature(folder, "temp1_max"),
        smart: None,
        smart_counters: Vec::new(),
    }
}

/// Serial number in a SCSI or ATA drive's vital product data: four bytes of header, then text.
fn page_80(folder: &Path) -> Option<String> {
    let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
    plain(&String::from_utf8_lossy(page.get(4..)?))
}

/// The link from a device to its slot is called `enclosure_device:NAME`.
fn enclosure_slot(folder: &Path) -> Option<String> {
    let link = enclosure_folder(folder)?;
    let number = fs::read_to_string(link.join("slot")).ok().and_then(|text| plain(&text));
    number.or_else(|| plain(link.file_name()?.to_str()?.split_once(':')?.1))
}

/// Folder of a device's slot in its enclosure.
pub(super) fn enclosure_folder(folder: &Path) -> Option<PathBuf> {
    beginning_with("enclosure_device:", &folder.join("device")).next()
}

/// Entries of a folder whose names begin so; none of a folder that cannot be read.
fn beginning_with(begin: &'static str, folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let fitting =
        entries.filter(move |entry| entry.file_name().as_encoded_bytes().starts_with(begin.as_bytes()));
    fitting.map(|entry| entry.path())
}

fn bus_name(folder: &Path, by_path: &Path) -> Option<String> {
    let device = folder.file_name()?;
    let mut links: Vec<PathBuf> =
        fs::read_dir(by_path).ok()?.filter_map(|link| Some(link.ok()?.path())).collect();
    links.sort();
    let link = links
        .into_iter()
        .find(|link| fs::read_link(link).is_ok_and(|target| target.file_name() == Some(device)))?;
    plain(link.file_name()?.to_str()?)
}

/// In thousandths of a degree, below the device or, for NVMe, below its controller.
fn temperature(folder: &Path, name: &str) -> Option<i64> {
    let places = [folder.join("device/hwmon"), folder.join("device")];
    let monitors = places.iter().flat_map(|place| beginning_with("hwmon", place));
    let mut values = monitors.filter_map(|monitor| fs::read_to_string(monitor.join(name)).ok());
    values.find_map(|text| text.trim().parse::<i64>().ok()).map(|thousandths| thousandths / 1000)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn a_drive_in_an_enclosure_is_known_by_its_slot() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("sda");
        write(&folder, "device/model", "ST8000NM0055    \n");
        write(&folder, "device/rev", "SN02\n");
        write(&folder, "device/vpd_pg80", "\0\u{20}\0\u{8}ZA1B2C3D\0");
        write(&folder, "device/enclosure_device:Slot 05/slot", "4\n");
        write(&folder, "device/hwmon/hwmon3/temp1_input", "41000\n");
        let facts = facts(&folder, root.path());
        assert_eq!(facts.place().as_deref(), Some("serial ZA1B2C3D, slot 4"));
        assert_eq!(facts.model.as_deref(), Some("ST8000NM0055"));
        assert_eq!((facts.firmware.as_deref(), facts.temperature_c), (Some("SN02"), Some(41)));
    }

    #[test]
    fn a_drive_without_an_enclosure_is_known_by_its_bus() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("nvme0n1");
        write(&folder, "device/serial", "S4EV\u{1b}[31m \n");
        write(&folder, "device/firmware_rev", "2B2Q");
        write(&folder, "device/hwmon0/temp1_input", "38850");
        write(&folder, "device/hwmon0/temp1_max", "81850");
        let links = root.path().join("by-path");
        fs::create_dir(&links).expect("created");
        symlink("../../nvme0n1", links.join("pci-0000:01:00.0-nvme-1")).expect("linked");
        let facts = facts(&folder, &links);
        // Characters that a terminal acts on are left out.
        assert_eq!(facts.serial.as_deref(), Some("S4EV[31m"));
        assert_eq!(facts.slot.as_deref(), Some("pci-0000:01:00.0-nvme-1"));
        assert_eq!((facts.temperature_c, facts.temperature_limit_c), (Some(38), Some(81)));
    }

    #[test]
    fn files_have_no_hardware() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(folder_of(file.path()), None);
        assert_eq!(facts(Path::new("/nowhere"), Path::new("/nowhere")), Hardware::default());
    }
}
