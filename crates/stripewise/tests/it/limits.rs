//! Limits: names, sizes, incomplete pools, drives of other systems and newer formats, exhausted
//! space. Each refusal names the numbers, and no refused command loses data.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::kit::{Sandbox, unique_bytes};
use stripewise_drive::MemoryDrive;

#[test]
fn invalid_names_are_refused_with_the_rule() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let long = "x".repeat(64);
    for (name, why) in [
        ("-t", "unexpected argument"),
        (".t", "does not begin with a letter or digit"),
        ("t/u", "contains `/`"),
        ("tänk", "contains `ä`"),
        (long.as_str(), "has 64 characters"),
    ] {
        let refused = sandbox.run(&format!("pool create {name} @d/drive0.img")).expect_code(2).err;
        assert!(refused.contains(why), "{name}: {refused}");
        let tells_the_rule = refused.contains("the letters a-z and A-Z, digits, - _ and .");
        assert!(name == "-t" || tells_the_rule, "{name}: {refused}");
        let refused = sandbox.run(&format!("volume create tank/{name} --layout raid1")).code;
        assert_eq!(refused, 2, "{name}");
    }
    let longest = "x".repeat(63);
    sandbox.ok(&format!("volume create tank/{longest} --layout raid1 --size 1MiB"));
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok(&format!("pool create {longest} @e/drive0.img"));
    let taken = sandbox.fails(&format!("volume create tank/{longest} --layout raid0"));
    assert!(taken.contains("already has a volume") && taken.contains("hint: choose another name"), "{taken}");
}

#[test]
fn invalid_slab_sizes_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 64MiB");
    for size in ["3MiB", "512KiB", "256MiB", "0"] {
        let refused =
            sandbox.run(&format!("pool create tank @d/drive0.img --slab {size}")).expect_code(2).err;
        assert!(refused.contains("a power of two from 1MiB to 128MiB"), "{refused}");
    }
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img --slab 4MiB");
    assert_eq!(sandbox.json("pool status")["pools"][0]["slab_bytes"], 4 << 20);
}

#[test]
fn a_pool_is_imported_in_part_where_it_can_be_read() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let data = unique_bytes(3_000_000, 1);
    sandbox.write("tank/a", 0, &data);
    sandbox.ok("pool export tank");
    std::fs::create_dir(sandbox.path("away")).expect("made");
    let take_away = |drive: usize| {
        std::fs::rename(sandbox.drive_path(drive), sandbox.path(&format!("away/drive{drive}.img")))
            .expect("moved");
    };
    take_away(1);
    let imported = sandbox.json("pool import --dir @d --all");
    assert_eq!(imported["pools"][0]["state"], "degraded");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("pool export tank");
    take_away(3);
    let imported = sandbox.json("pool import --dir @d tank");
    let pool = &imported["pools"][0];
    assert_eq!(pool["state"], "failed");
    let says = pool["condition"].as_str().expect("text");
    // The export without the other drive recorded it as excluded.
    assert!(says.contains("drive3.img"), "which drive is needed: {says}");
    sandbox.ok("pool import --dir @d --dir @away tank");
    sandbox.ok("pool wait tank rebuild");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("pool status");
}

#[test]
fn two_pools_of_one_name_are_distinguished_by_id() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("pool export tank");
    sandbox.ok("drive make @e --count 2 --size 32MiB");
    sandbox.ok("pool create tank @e/drive0.img @e/drive1.img");
    let refused = sandbox.fails("pool import --dir @d tank");
    assert!(refused.contains("there is a pool `tank` already, with other drives"), "{refused}");
    assert!(refused.contains("hint: `stripewise pool export tank`"), "{refused}");
    sandbox.ok("pool export tank");
    let refused = sandbox.fails("pool import --dir @d --dir @e tank");
    assert!(refused.contains("there are two pools `tank`"), "{refused}");
    let id =
        refused.split("identity: ").nth(1).and_then(|rest| rest.split(' ').next()).expect("named").to_owned();
    sandbox.ok(&format!("pool import --dir @d --dir @e {id}"));
    assert_eq!(sandbox.json("pool status tank")["pools"][0]["id"], id);
}

/// Offsets of the superblocks that begin with a header.
fn headers(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(b"STRPWISE")).collect()
}

/// CRC-32C, the last field of a header.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn a_newer_format_is_named_and_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("pool export tank");
    let path = sandbox.drive_path(0);
    let bytes = std::fs::read(&path).expect("readable");
    let found = headers(&bytes);
    assert!(found.len() >= 2, "at both ends: {found:?}");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the drive");
    for at in found {
        let mut header = bytes[at..at + 512].to_vec();
        header[8..12].copy_from_slice(&9u32.to_le_bytes());
        let checksum = crc32c(&header[..508]);
        header[508..].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&header, at as u64).expect("written");
    }
    let before = std::fs::read(&path).expect("readable");
    let shown = sandbox.json("drive show @d/drive0.img");
    let holds = shown["drives"][0]["holds"][0].as_str().expect("text");
    assert!(holds.contains("format version 9"), "{holds}");
    let refused = sandbox.fails("pool create other @d/drive0.img");
    assert!(refused.contains("a pool of a newer format (9); nothing was changed"), "{refused}");
    let imported = sandbox.ok("pool import --dir @d --all");
    assert!(imported.err.contains("format version 9"), "{}", imported.err);
    assert!(before == std::fs::read(&path).expect("readable"), "left alone");
}

#[test]
fn the_former_format_is_named_and_left_alone() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("d")).expect("made");
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pool/tests/images/format-1/raid5");
    let paths: Vec<PathBuf> = (0..3).map(|index| sandbox.drive_path(index)).collect();
    let mut before = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let packed = std::fs::read(images.join(format!("drive{index}.packed"))).expect("an image");
        let drive = MemoryDrive::unpack("drive", &packed).expect("a packed drive");
        let mut bytes = vec![0; 8 << 20];
        drive.peek(0, &mut bytes);
        std::fs::write(path, &bytes).expect("written");
        before.push(bytes);
    }
    let shown = sandbox.json("drive show @d/drive0.img");
    let holds = shown["drives"][0]["holds"][0].as_str().expect("text");
    assert!(holds.contains("format version 1") && shown["drives"][0]["superblock"].is_null(), "{holds}");
    let refused = sandbox.fails("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img");
    assert!(refused.contains("a pool of an older format (1); nothing was changed"), "{refused}");
    assert!(refused.contains("hint: --force overwrites it"), "{refused}");
    let imported = sandbox.fails("pool import --dir @d");
    assert!(
        imported.contains("drive0.img holds a pool in format version 1") && imported.contains("hint:"),
        "{imported}"
    );
    for (path, before) in paths.iter().zip(before) {
        assert!(std::fs::read(path).expect("readable") == before, "{} was changed", path.display());
    }
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img --force");
    sandbox.ok("pool status tank");
}

#[test]
fn drives_with_unknown_data_are_shown_as_such() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("pool export tank");
    let rubbish = unique_bytes(32 << 20, 3);
    std::fs::write(sandbox.path("rubbish"), &rubbish).expect("written");
    // A pool drive with one superblock overwritten.
    let file = std::fs::OpenOptions::new().write(true).open(sandbox.drive_path(0)).expect("the drive");
    file.write_all_at(&rubbish[..2 << 20], 0).expect("written");
    let before = std::fs::read(sandbox.drive_path(0)).expect("readable");
    let shown = sandbox.json("drive show @rubbish @d/drive0.img @d/drive1.img");
    assert!(shown["drives"][0]["superblock"].is_null());
    assert_eq!(shown["drives"][0]["holds"][0], "data of an unknown kind");
    assert_eq!(shown["drives"][1]["superblock"]["intact"], false);
    assert_eq!(shown["drives"][2]["superblock"]["intact"], true);
    assert!(sandbox.ok("drive show @d/drive0.img").text().contains("whole at one end only"));
    assert!(before == std::fs::read(sandbox.drive_path(0)).expect("readable"), "shown without a change");
}

#[test]
fn volumes_are_resized_but_never_below_what_is_stored() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let data = unique_bytes(6_000_000, 4);
    sandbox.write("tank/a", 2 << 20, &data);
    let refused = sandbox.fails("volume resize tank/a 4MiB");
    assert!(refused.contains("cannot be made so small") && refused.contains("hint: "), "{refused}");
    assert!(sandbox.read("tank/a", 2 << 20, data.len()) == data);
    let shrunk = sandbox.json("volume resize tank/a 12MiB");
    assert_eq!(shrunk["volumes"][0]["capacity_bytes"], 12 << 20);
    let grown = sandbox.ok("volume resize tank/a 30MiB");
    assert_eq!(grown.text(), "volume tank/a resized from 12 MiB to 30 MiB\n");
    assert!(sandbox.read("tank/a", 2 << 20, data.len()) == data);
    assert_eq!(sandbox.read("tank/a", 29 << 20, 4096), [0; 4096]);
    let refused = sandbox.fails("volume resize tank/a 1TiB");
    assert!(refused.contains("not enough space") && refused.contains("hint: "), "{refused}");
    assert!(sandbox.run("volume resize tank/a 0").expect_code(2).err.contains("volume delete tank/a --yes"));
    assert!(sandbox.run("volume resize tank/a many").expect_code(2).err.contains("is not a size"));
}

#[test]
fn a_thin_volume_reports_overcommitted_space() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    assert!(sandbox.run("volume create tank/a --layout raid5 --thin").expect_code(2).err.contains("--size"));
    sandbox.ok("volume create tank/a --layout raid5 --size 1GiB --thin");
    let volume = sandbox.json("volume show tank/a")["volumes"][0].clone();
    assert_eq!((&volume["thin"], &volume["allocated_rows"]), (&true.into(), &0.into()));
    assert_eq!(volume["capacity_bytes"], 1 << 30);
    let status = sandbox.ok("pool status");
    assert!(status.text().contains("overcommit: thin volumes can grow to"), "{}", status.text());

    let data = unique_bytes(8 << 20, 5);
    sandbox.write("tank/a", 500 << 20, &data);
    let volume = sandbox.json("volume show tank/a")["volumes"][0].clone();
    assert!(volume["allocated_rows"].as_u64().is_some_and(|rows| (4..20).contains(&rows)), "{volume}");
    // The pool runs full: a clear error, and existing data can still be read and overwritten.
    let too_much = unique_bytes(80 << 20, 6);
    let refused = sandbox.run_with_input("volume write tank/a", &too_much).expect_code(1).err;
    assert!(refused.contains("cannot write volume `tank/a`"), "{refused}");
    assert!(refused.contains("no free slabs") && refused.contains("hint: "), "{refused}");
    assert!(sandbox.read("tank/a", 500 << 20, data.len()) == data);
    let again = unique_bytes(100_000, 7);
    sandbox.write("tank/a", 501 << 20, &again);
    assert!(sandbox.read("tank/a", 501 << 20, again.len()) == again);
    let status = sandbox.ok("pool status");
    assert!(status.text().contains("space is short"), "{}", status.text());
    assert!(status.text().contains("action: stripewise pool add tank"), "{}", status.text());

    // The command in the status helps.
    sandbox.ok("drive make @e --count 3 --size 64MiB");
    sandbox.ok("pool add tank @e/drive0.img @e/drive1.img @e/drive2.img");
    sandbox.write("tank/a", 0, &too_much);
    assert!(sandbox.read("tank/a", 0, too_much.len()) == too_much);
}

#[test]
fn lost_journal_drives_are_named_and_data_is_kept() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 6 --size 64MiB");
    sandbox.ok(
        "pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img --journal @d/drive4.img --journal \
         @d/drive5.img",
    );
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB --write-through");
    let data = unique_bytes(3_000_001, 8);
    sandbox.write("tank/a", 1000, &data);
    for drive in [4, 5] {
        std::fs::remove_file(sandbox.drive_path(drive)).expect("there");
    }
    let status = sandbox.run("pool status --json").expect_code(3).json();
    let says = status["pools"][0]["condition"].as_str().expect("text");
    assert!(says.contains("drive4.img (missing)") && says.contains("drive5.img (missing)"), "{says}");
    assert!(sandbox.read("tank/a", 1000, data.len()) == data);
    let changed = unique_bytes(500_001, 9);
    sandbox.write("tank/a", 2000, &changed);
    assert!(
        sandbox.read("tank/a", 2000, changed.len()) == changed,
        "writes fall back on the pool's own drives"
    );
}

#[test]
fn settings_are_checked_and_kept() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("pool set tank patrol-rate=20MB/s patrol-interval=7 space-warning=90");
    let pool = sandbox.json("pool status")["pools"][0].clone();
    assert_eq!(pool["patrol_bytes_per_s"], 20_000_000);
    assert_eq!(pool["patrol_interval_s"], 7 * 86_400);
    assert_eq!(pool["space_warning_percent"], 90);
    sandbox.ok("pool set tank patrol-rate=none");
    let pool = sandbox.json("pool status")["pools"][0].clone();
    assert!(pool["patrol_bytes_per_s"].is_null() && pool["patrol_interval_s"] == 7 * 86_400, "{pool}");
    for setting in ["patrol-rate=fast", "patrol-interval=0", "space-warning=101", "colour=red", "patrol-rate"]
    {
        sandbox.run(&format!("pool set tank {setting}")).expect_code(2);
    }
    assert!(sandbox.fails("pool set tank patrol-rate=1").contains("at least 1 MiB per second"));
}
