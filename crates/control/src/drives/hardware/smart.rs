//! Health of a drive by `smartctl` (smartmontools), where it is installed. Its JSON documents of
//! ATA, NVMe and SCSI drives are read (`smartctl --json`, format version 1).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Hardware, SmartCounter, SmartHealth, plain};
use crate::drives::programs;

/// Its places: a daemon must not run what another user puts on its path.
const PROGRAMS: [&str; 3] = ["/usr/sbin/smartctl", "/sbin/smartctl", "/usr/bin/smartctl"];
/// A drive that answers does so in less.
const LIMIT: Duration = Duration::from_secs(5);
/// Longer documents are none of its.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// ATA attributes that precede failures, and their names here. Source: Pinheiro, Weber and Barroso,
/// "Failure Trends in a Large Disk Drive Population", FAST '07.
const ATTRIBUTES: [(u64, &str); 5] = [
    (5, "reallocated sectors"),
    (187, "reported uncorrectable errors"),
    (197, "pending sectors"),
    (198, "uncorrectable sectors"),
    (199, "transfer errors"),
];

/// Asks `smartctl` for a device. A disk that stands still is not started. Blocks the thread.
pub(super) fn ask(device: &Path) -> Option<Hardware> {
    let program = PROGRAMS.into_iter().find(|program| Path::new(program).exists())?;
    let mut command = Command::new(program);
    command.args(["--json=c", "-n", "standby,0", "-i", "-H", "-A", "--"]).arg(device).stdin(Stdio::null());
    // Its status says what is bad about the drive; the document does so too.
    let (_, document) = programs::run(&mut command, device, LIMIT, MAX_DOCUMENT_BYTES)?;
    serde_json::from_slice(&document).ok().map(|document| facts(&document))
}

fn facts(document: &Value) -> Hardware {
    let text = |pointers: &[&str]| pointers.iter().find_map(|at| plain(document.pointer(at)?.as_str()?));
    let degrees = |pointers: &[&str]| pointers.iter().find_map(|at| document.pointer(at)?.as_i64());
    let health = document.pointer("/smart_status/passed").and_then(Value::as_bool);
    Hardware {
        serial: text(&["/serial_number"]),
        model: text(&["/model_name", "/scsi_model_name", "/scsi_product"]),
        firmware: text(&["/firmware_version", "/scsi_revision"]),
        slot: None,
        temperature_c: degrees(&["/temperature/current"]),
        temperature_limit_c: degrees(&["/temperature/op_limit_max", "/temperature/drive_trip"]),
        smart: health.map(|passed| if passed { SmartHealth::Passed } else { SmartHealth::Failed }),
        smart_counters: counters(document),
    }
}

fn counters(document: &Value) -> Vec<SmartCounter> {
    let at = |pointer: &str| document.pointer(pointer).and_then(Value::as_u64);
    let attribute = |id: u64| {
        let table = document.pointer("/ata_smart_attributes/table")?.as_array()?;
        let row = table.iter().find(|row| row["id"].as_u64() == Some(id))?;
        row.pointer("/raw/value")?.as_u64()
    };
    let ata = ATTRIBUTES.map(|(id, name)| (name, attribute(id)));
    let others = [
        ("media errors", at("/nvme_smart_health_information_log/media_errors")),
        ("percent used", at("/nvme_smart_health_information_log/percentage_used")),
        ("percent spare", at("/nvme_smart_health_information_log/available_spare")),
        ("grown defects", at("/scsi_grown_defect_list")),
        ("uncorrected read errors", at("/scsi_error_counter_log/read/total_uncorrected_errors")),
        ("uncorrected write errors", at("/scsi_error_counter_log/write/total_uncorrected_errors")),
        ("hours on", at("/power_on_time/hours")),
    ];
    let known = ata.into_iter().chain(others);
    known.filter_map(|(name, value)| Some(SmartCounter { name: name.to_owned(), value: value? })).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counter(facts: &Hardware, name: &str) -> Option<u64> {
        facts.smart_counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }

    #[test]
    fn documents_of_three_kinds_of_drive_are_read() {
        // Shortened documents of smartmontools 7.3.
        let disk = facts(&json!({
            "json_format_version": [1, 0], "device": {"name": "/dev/sda", "protocol": "ATA"},
            "model_name": "WDC WD80EFZX-68UW8N0", "serial_number": "VK0ABCDE",
            "firmware_version": "83.H0A83", "smart_status": {"passed": false},
            "temperature": {"current": 36}, "power_on_time": {"hours": 41234},
            "ata_smart_attributes": {"table": [
                {"id": 5, "name": "Reallocated_Sector_Ct", "raw": {"value": 1200, "string": "1200"}},
                {"id": 197, "name": "Current_Pending_Sector", "raw": {"value": 8, "string": "8"}}]}
        }));
        assert_eq!((disk.serial.as_deref(), disk.smart), (Some("VK0ABCDE"), Some(SmartHealth::Failed)));
        assert_eq!(
            (counter(&disk, "reallocated sectors"), counter(&disk, "pending sectors")),
            (Some(1200), Some(8))
        );
        assert_eq!((disk.temperature_c, counter(&disk, "hours on")), (Some(36), Some(41_234)));

        let nvme = facts(&json!({
            "device": {"protocol": "NVMe"}, "model_name": "Samsung SSD 970 EVO 1TB",
            "serial_number": "S467NX0K", "firmware_version": "2B2QEXE7",
            "smart_status": {"passed": true, "nvme": {"value": 0}},
            "nvme_smart_health_information_log": {"critical_warning": 0, "temperature": 44,
                "available_spare": 100, "percentage_used": 3, "media_errors": 0},
            "temperature": {"current": 44}
        }));
        assert_eq!((nvme.smart, nvme.temperature_c), (Some(SmartHealth::Passed), Some(44)));
        assert_eq!((counter(&nvme, "media errors"), counter(&nvme, "percent used")), (Some(0), Some(3)));

        let sas = facts(&json!({
            "device": {"protocol": "SCSI"}, "scsi_vendor": "SEAGATE", "scsi_product": "ST4000NM0023",
            "scsi_model_name": "SEAGATE ST4000NM0023", "scsi_revision": "0004", "serial_number": "Z1Z0ABCD",
            "smart_status": {"passed": true}, "scsi_grown_defect_list": 17,
            "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 2},
                "write": {"total_uncorrected_errors": 0}}
        }));
        assert_eq!(
            (sas.model.as_deref(), sas.firmware.as_deref()),
            (Some("SEAGATE ST4000NM0023"), Some("0004"))
        );
        assert_eq!(
            (counter(&sas, "grown defects"), counter(&sas, "uncorrected read errors")),
            (Some(17), Some(2))
        );
    }

    #[test]
    fn documents_of_anything_give_no_facts() {
        for document in
            [json!(null), json!([1]), json!({"smart_status": 3, "serial_number": {}, "temperature": []})]
        {
            assert_eq!(facts(&document), Hardware::default(), "{document}");
        }
    }
}
