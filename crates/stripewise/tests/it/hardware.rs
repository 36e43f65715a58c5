//! Serial number, slot and health of drives, and the light of a slot.

use std::fs;

use crate::kit::Sandbox;

/// Keys of a drive's hardware in JSON documents.
const KEYS: [&str; 6] = ["serial", "model", "firmware", "slot", "temperature_c", "smart"];

#[test]
fn drives_that_are_files_have_no_hardware() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let status = sandbox.json("pool status tank");
    let shown = sandbox.json("drive show @d/drive0.img");
    for drive in [&status["pools"][0]["drives"][0], &shown["drives"][0]] {
        for key in KEYS {
            assert!(drive.get(key).is_some_and(serde_json::Value::is_null), "{key}: {drive}");
        }
    }
    let error = sandbox.fails("drive locate @d/drive0.img on");
    assert!(error.contains("is no block device") && error.contains("hint: "), "{error}");
    assert_eq!(sandbox.run("drive locate @d/drive0.img maybe").code, 2);
}

#[test]
fn a_missing_drive_keeps_its_serial_and_slot() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/data --layout raid5 --size 8MiB");
    let status = sandbox.json("pool status tank");
    let drive = status["pools"][0]["drives"][1]["id"].as_str().unwrap().to_owned();
    let named = format!("{{\"{drive}\":{{\"serial\":\"ZA1\",\"slot\":\"4\",\"model\":\"ST8\"}}}}");
    fs::write(sandbox.path("home/hardware.json"), named).unwrap();
    fs::remove_file(sandbox.drive_path(1)).unwrap();
    let text = String::from_utf8(sandbox.run("pool status tank").out).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("ST8, serial ZA1, slot 4"), "{text}");
}
