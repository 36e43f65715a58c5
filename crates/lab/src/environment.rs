//! The machine that a measurement ran on, from the system's own files. Unreadable facts are left
//! out, never made up.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stripewise_runtime::block_device_folder;

/// Circumstances that affect a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub program_version: String,
    /// True if built with optimisation.
    pub optimised_build: bool,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Processors that this process may use.
    pub cores: Option<usize>,
    /// Selected parity kernel, if parity is used.
    pub parity_kernel: Option<String>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Operating system's kernel.
    pub kernel: Option<String>,
    /// Distribution.
    pub system: Option<String>,
    /// True if a hypervisor was detected: its caches are beyond the guest's control.
    pub virtual_machine: Option<bool>,
    /// File system of the drive files.
    pub file_system: Option<String>,
    /// Mount options.
    pub mount_options: Option<String>,
    /// Device of the file system.
    pub device: Option<String>,
    /// Model name that the device reports.
    pub device_model: Option<String>,
    /// Firmware version that the device reports.
    #[serde(default)]
    pub device_firmware: Option<String>,
    /// Serial number that the device reports.
    pub device_serial: Option<String>,
    /// I/O scheduler of the device.
    pub scheduler: Option<String>,
    /// Health that the device reports, if smartctl is installed and permitted.
    pub smart: Option<String>,
    /// Rate of the PCIe link of an NVMe device in 10^6 bytes a second.
    pub link_mb_per_s: Option<f64>,
    /// True if the device reports that it rotates.
    pub rotational: Option<bool>,
    /// True if the page cache was bypassed (O_DIRECT).
    pub direct_io: Option<bool>,
}

impl Environment {
    /// Captures the machine and the file system that holds `drives`.
    pub fn capture(drives: Option<&Path>) -> Self {
        let cpu_info = read("/proc/cpuinfo").unwrap_or_default();
        let mount = drives
            .and_then(|path| path.canonicalize().ok())
            .and_then(|path| Some(mount_of(&read("/proc/self/mountinfo")?, &path)));
        let mount = mount.flatten();
        let own = drives.and_then(block_device);
        let device = own.clone().or_else(|| mount.as_ref().map(|mount| mount.device.clone()));
        let block = device.as_deref().and_then(|device| device.strip_prefix("/dev/"));
        // A device that is measured has no file system of its own.
        let mount = mount.filter(|_| own.is_none());
        let of_block = |file: &str| {
            // A partition's queue and model are in the disk's directory, one level up.
            let here = block.map(|block| format!("/sys/class/block/{block}/{file}"));
            let above = block.map(|block| format!("/sys/class/block/{block}/../{file}"));
            here.and_then(|path| read(&path)).or_else(|| above.and_then(|path| read(&path)))
        };
        Self {
            program_version: env!("CARGO_PKG_VERSION").into(),
            optimised_build: !cfg!(debug_assertions),
            cpu_model: field(&cpu_info, "model name").or_else(|| field(&cpu_info, "CPU part")),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZero::get),
            parity_kernel: None,
            memory_bytes: read("/proc/meminfo").and_then(|text| memory_bytes(&text)),
            kernel: read("/proc/sys/kernel/osrelease"),
            system: read("/etc/os-release").and_then(|text| quoted_value(&text, "PRETTY_NAME")),
            virtual_machine: field(&cpu_info, "flags")
                .map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            file_system: mount.as_ref().map(|mount| mount.kind.clone()),
            mount_options: mount.map(|mount| mount.options),
            device_model: of_block("device/model"),
            device_firmware: ["device/firmware_rev", "device/rev"].into_iter().find_map(of_block),
            device_serial: ["device/serial", "device/wwid", "wwid"].into_iter().find_map(of_block),
            scheduler: of_block("queue/scheduler").map(|text| chosen(&text)),
            smart: device.as_deref().and_then(smart),
            link_mb_per_s: of_block("device/device/current_link_speed")
                .zip(of_block("device/device/current_link_width"))
                .and_then(|(speed, width)| pcie_mb_per_s(&speed, &width)),
            rotational: of_block("queue/rotational").map(|text| text == "1"),
            device,
            direct_io: None,
        }
    }
}

impl Environment {
    /// Known facts by name.
    pub fn by_name(&self) -> BTreeMap<String, String> {
        let all = serde_json::to_value(self).expect("plain data becomes JSON");
        let known = all.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let text =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        known.map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// `/dev/sda`, if the path is a block device under any name.
fn block_device(path: &Path) -> Option<String> {
    Some(format!("/dev/{}", block_device_folder(path)?.file_name()?.to_str()?))
}

/// Selects the bracketed entry of `[none] mq-deadline kyber`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(chosen, _)| chosen).to_owned()
}

/// Rate of `8.0 GT/s PCIe` over `4` lanes, without the overhead of the line code.
fn pcie_mb_per_s(speed: &str, width: &str) -> Option<f64> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let code = if transfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    Some((transfers * 1e3 / 8.0 * code * width.trim().parse::<f64>().ok()?).round())
}

/// Health, hours and temperature from smartctl.
fn smart(device: &str) -> Option<String> {
    let mut command = std::process::Command::new("smartctl");
    let output = command.args(["--json", "-H", "-A", "--", device]).output().ok()?;
    smart_text(&serde_json::from_slice(&output.stdout).ok()?)
}

fn smart_text(report: &serde_json::Value) -> Option<String> {
    let health = match report["smart_status"]["passed"].as_bool()? {
        true => "passed",
        false => "failed",
    };
    let hours = report["power_on_time"]["hours"].as_u64().map(|hours| format!("{hours} hours on"));
    let degrees =
        report["temperature"]["current"].as_i64().map(|degrees| format!("{degrees} degrees Celsius"));
    Some([Some(health.to_owned()), hours, degrees].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn quoted_value(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim_matches('"').to_owned())
}

fn memory_bytes(text: &str) -> Option<u64> {
    let kib: u64 = field(text, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[derive(Debug, PartialEq)]
struct Mount {
    kind: String,
    device: String,
    options: String,
}

/// The mount of `path`: the one with the longest mount point above it, the last of equals.
fn mount_of(mount_info: &str, path: &Path) -> Option<Mount> {
    let entry = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        // Blanks in mount points are written as \040.
        let point = fields.get(4)?.replace("\\040", " ");
        let mount = Mount {
            kind: after.next()?.to_owned(),
            device: after.next()?.to_owned(),
            options: (*fields.get(5)?).to_owned(),
        };
        path.starts_with(&point).then_some((point.len(), mount))
    };
    mount_info.lines().filter_map(entry).max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_above_a_path_is_its_mount() {
        let text = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                    30 22 0:26 / /srv/a\\040b rw,noatime - xfs /dev/sdb rw\n\
                    31 22 0:27 / /srv rw - tmpfs tmpfs rw";
        let mount = |path: &str| mount_of(text, Path::new(path)).unwrap();
        assert_eq!(mount("/home/x").device, "/dev/vda1");
        assert_eq!(mount("/srv/x").kind, "tmpfs");
        let blank = mount("/srv/a b/c");
        assert_eq!((blank.kind.as_str(), blank.options.as_str()), ("xfs", "rw,noatime"));
    }

    #[test]
    fn device_attributes_are_parsed() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(pcie_mb_per_s("8.0 GT/s PCIe", "4"), Some(3938.0));
        assert_eq!(pcie_mb_per_s("Unknown", "4"), None);
        let report = serde_json::json!({"smart_status": {"passed": true}, "power_on_time": {"hours": 1234},
            "temperature": {"current": 31}});
        assert_eq!(smart_text(&report).as_deref(), Some("passed, 1234 hours on, 31 degrees Celsius"));
        assert_eq!(smart_text(&serde_json::json!({"smartctl": {"exit_status": 2}})), None);
        assert_eq!(block_device(Path::new("/dev/null")), None);
    }

    #[test]
    fn this_machine_is_described() {
        let environment = Environment::capture(Some(Path::new("/")));
        assert!(environment.cores.unwrap() >= 1);
        assert!(environment.memory_bytes.unwrap() > 1 << 20);
        assert!(environment.kernel.is_some() && environment.file_system.is_some());
    }
}
