//! Invalid input: a clear message, the right exit code, and no loss of data.

use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;

use crate::kit::{Sandbox, unique_bytes};

/// Four drives @d/drive0.img … in no pool.
fn four_drives() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 32MiB");
    sandbox
}

#[test]
fn layouts_refuse_too_few_and_too_many_drives() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let error = |layout: &str| sandbox.fails(&format!("volume create tank/a --layout {layout}"));
    let too_few = error("raid6");
    assert!(too_few.starts_with(
        "error: cannot create volume `tank/a`: raid6 needs at least 4 drives, 3 were given\nhint: "
    ));
    assert!(too_few.contains("raid5"), "what can be had instead: {too_few}");
    assert!(error("raid5 --columns 4").contains("raid5 with 4 columns needs 4 drives, 3 were given"));
    assert!(error("raid50").contains("raid50 needs at least 6 drives"));
    assert_eq!(sandbox.json("volume list")["volumes"], serde_json::json!([]), "nothing was made");
    assert!(sandbox.run("pool create empty").expect_code(2).err.contains("<DRIVE>"));
}

#[test]
fn impossible_layouts_are_usage_errors() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let error = |words: &str| sandbox.run(&format!("volume create tank/a {words}")).expect_code(2).err;
    assert_eq!(
        error("--layout raid5 --interleave 48K"),
        "error: cannot create volume `tank/a`: an interleave of 49152 bytes is not a power of two\n\
         hint: the nearest that work are 32 KiB and 64 KiB\n"
    );
    assert!(error("--layout raid5 --interleave 2M").contains("outside 4 KiB to 1 MiB"));
    assert!(error("--layout raid5 --interleave 2K").contains("outside 4 KiB to 1 MiB"));
    assert!(error("--layout raid5 --interleave 64Q").contains("`64Q` is not a size"));
    assert!(error("--layout raid9").contains("there is no layout \"raid9\"; the layouts are single, raid0"));
    assert!(error("--layout raid5 --groups 2").contains("raid5 has no groups"));
    assert!(error("--layout mirror3 --columns 2").contains("a mirror of 3 copies has 3 columns, not 2"));
    assert!(error("").contains("--layout"));
    assert!(
        sandbox
            .run("volume create tank --layout raid5")
            .expect_code(2)
            .err
            .contains("not of the form POOL/VOL")
    );
    assert!(sandbox.run("volume create tank/a/b --layout raid5").expect_code(2).err.contains("contains `/`"));
    assert!(sandbox.run("pool set tank rebuild-priority=0").expect_code(2).err.contains("1 to 100"));
    assert!(sandbox.run("pool wait tank rebuld").expect_code(2).err.contains("unknown job"));
}

#[test]
fn drives_of_different_sizes_are_used_to_the_full() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @small --count 1 --size 16MiB");
    sandbox.ok("drive make @large --count 2 --size 64MiB");
    sandbox.ok("pool create tank @large/drive0.img @small/drive0.img @large/drive1.img");
    // Rows on all drives end with the smallest drive; rows on two drives use the larger two fully.
    let volume = &sandbox.json("volume create tank/a --layout raid0 --columns 3")["volumes"][0];
    let capacity = volume["capacity_bytes"].as_u64().expect("a number");
    assert!((30 << 20..=3 * (14 << 20)).contains(&capacity), "{capacity}");
    let volume = &sandbox.json("volume create tank/b --layout raid1 --columns 2")["volumes"][0];
    let capacity = volume["capacity_bytes"].as_u64().expect("a number");
    assert!((40 << 20..=50 << 20).contains(&capacity), "{capacity}");
    let data = unique_bytes(40 << 20, 6);
    sandbox.write("tank/b", 0, &data);
    assert!(sandbox.read("tank/b", 0, data.len()) == data);
}

#[test]
fn drives_that_hold_data_are_refused_and_named() {
    let sandbox = four_drives();
    let write = |drive: u32, offset: u64, bytes: &[u8]| {
        let file = std::fs::OpenOptions::new().write(true).open(sandbox.path(&format!("d/drive{drive}.img")));
        file.expect("a drive").write_all_at(bytes, offset).expect("written");
    };
    // An ext4 superblock with a label, an LVM label, and unknown data.
    write(0, 1024 + 56, &[0x53, 0xEF]);
    write(0, 1024 + 96, &[0x40]);
    write(0, 1024 + 120, b"photos");
    write(1, 512, b"LABELONE");
    write(1, 536, b"LVM2 001");
    write(2, 0, b"Dear Ann,");
    let before: Vec<Vec<u8>> =
        (0..3).map(|n| std::fs::read(sandbox.drive_path(n)).expect("readable")).collect();
    let refused = |drive: u32| sandbox.fails(&format!("pool create tank @d/drive3.img @d/drive{drive}.img"));
    for (drive, holds) in
        [(0, "an ext4 file system `photos`"), (1, "an LVM physical volume"), (2, "data of an unknown kind")]
    {
        let path = sandbox.text(&format!("d/drive{drive}.img"));
        assert_eq!(
            refused(drive),
            format!(
                "error: {path} holds {holds}; nothing was changed\n\
                     hint: --force overwrites it: all that it holds would be lost\n"
            )
        );
    }
    let after: Vec<Vec<u8>> =
        (0..3).map(|n| std::fs::read(sandbox.drive_path(n)).expect("readable")).collect();
    assert!(before == after, "refused without a change");
    assert!(sandbox.json("drive show @d/drive3.img")["drives"][0]["superblock"].is_null());
    assert_eq!(sandbox.json("pool list")["pools"], serde_json::json!([]));

    let forced = sandbox.ok("pool create tank @d/drive3.img @d/drive0.img --force");
    assert!(forced.err.contains("is overwritten; it held an ext4 file system `photos`"), "{}", forced.err);
    assert_eq!(sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"]["pool_name"], "tank");
}

#[test]
fn a_real_file_system_is_recognised() {
    let sandbox = four_drives();
    let mkfs = ["/sbin/mkfs.ext4", "/usr/sbin/mkfs.ext4"]
        .into_iter()
        .find(|path| std::fs::exists(path).unwrap_or(false));
    let Some(mkfs) = mkfs else { return };
    let made = std::process::Command::new(mkfs)
        .args(["-q", "-F", "-L", "backup"])
        .arg(sandbox.drive_path(0))
        .status();
    assert!(made.expect("it runs").success());
    let refused = sandbox.fails("pool create tank @d/drive0.img");
    assert!(refused.contains("holds an ext4 file system `backup`; nothing was changed"), "{refused}");
}

#[test]
fn drives_of_a_pool_are_refused_and_named() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 4MiB");
    let data = unique_bytes(1 << 20, 2);
    sandbox.write("tank/a", 0, &data);
    let refused = sandbox.fails("pool create other @d/drive1.img");
    assert!(
        refused.contains("holds a drive of pool `tank`, with parts of a; nothing was changed"),
        "{refused}"
    );
    sandbox.ok("pool export tank");
    assert!(
        sandbox.fails("pool create tank @d/drive1.img").contains("a drive of pool `tank`"),
        "also when exported"
    );
    sandbox.ok("pool import --dir @d tank");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool create other @e/drive0.img");
    let refused = sandbox.fails("pool replace tank @d/drive0.img @e/drive0.img");
    assert!(refused.contains("holds a drive of pool `other`; nothing was changed"), "{refused}");
    let refused = sandbox.fails("pool replace tank @d/drive0.img @d/drive1.img");
    assert!(refused.contains("is a drive of this pool already"), "{refused}");
    sandbox.ok("pool status");
}

#[test]
fn volumes_beyond_the_free_space_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let refused = sandbox.fails("volume create tank/a --layout raid5 --size 1TiB");
    assert!(refused.contains("not enough space"), "{refused}");
    assert!(refused.contains("hint: there is room for 5") && refused.contains("pool add"), "{refused}");
    sandbox.ok("volume create tank/a --layout raid5");
    let refused = sandbox.fails("volume create tank/b --layout raid0");
    assert!(refused.contains("no space is left"), "{refused}");
    assert!(sandbox.fails("volume create tank/a --layout raid5").contains("already has a volume a"));
    let refused = sandbox.fails("drive make @e --count 2 --size 9000TB");
    assert!(refused.contains("nothing was made") && refused.contains("--overcommit"), "{refused}");
    assert!(!sandbox.path("e/drive0.img").exists());
}

#[test]
fn paths_that_are_not_drives_are_refused() {
    let sandbox = four_drives();
    std::fs::write(sandbox.path("tiny"), [0; 100]).expect("written");
    std::fs::write(sandbox.path("small"), vec![0; 1 << 20]).expect("written");
    let error = |path: &str| sandbox.fails(&format!("pool create tank @d/drive0.img {path}"));
    assert!(
        error("@nowhere").contains("no such file or device\nhint: `stripewise drive make"),
        "{}",
        error("@nowhere")
    );
    assert!(error("@d").contains("this is a directory, not a drive"));
    assert!(error("/dev/null").contains("this is a character device, not a drive"));
    assert!(error("@tiny").contains("100 bytes"), "{}", error("@tiny"));
    assert!(error("@small").contains("too small"), "{}", error("@small"));
    assert!(sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"].is_null(), "untouched");
    assert!(sandbox.fails("drive make @d --count 1 --size 1M").contains("exists already; nothing was made"));
    assert!(
        sandbox.run("drive make @e --count 0 --size 1M").expect_code(2).err.contains("0 is not in 1..=255")
    );
    assert!(
        sandbox.run("drive make @e --count 1 --size 1M --pace fast").expect_code(2).err.contains("180MB/s")
    );
    assert!(sandbox.run("drive make @e --count 1 --size 100").expect_code(2).err.contains("too small"));
}

#[test]
fn the_same_drive_given_twice_is_refused() {
    let sandbox = four_drives();
    symlink(sandbox.path("d/drive0.img"), sandbox.path("soft")).expect("linked");
    std::fs::hard_link(sandbox.path("d/drive0.img"), sandbox.path("hard")).expect("linked");
    let error = |other: &str| sandbox.fails(&format!("pool create tank @d/drive0.img @d/drive1.img {other}"));
    assert!(error("@d/drive0.img").contains("is given twice"));
    assert!(error("@soft").contains("are the same drive"));
    assert!(error("@hard").contains("are the same drive"));
    assert!(error("--spare @hard").contains("are the same drive"));
    assert!(error("@d/../d/drive1.img").contains("are the same drive"));
}

#[test]
fn unknown_pools_and_volumes_are_reported() {
    let sandbox = Sandbox::new();
    for words in
        ["pool status tank", "volume show tank/a", "pool wait tank rebuild", "pool destroy tank --yes"]
    {
        let error = sandbox.fails(words);
        assert!(error.starts_with("error: there is no pool `tank` in "), "{words}: {error}");
        assert!(
            error.contains("hint: no pools are known here; `stripewise pool create`"),
            "{words}: {error}"
        );
    }
    sandbox.pool(2);
    assert!(sandbox.fails("pool status tonk").contains("hint: known pools: tank;"));
    assert!(sandbox.fails("volume read tank/a").contains("pool tank has no volume a"));
    assert!(sandbox.fails("pool create tank @d/drive0.img").contains("there is a pool `tank` already"));
    assert!(sandbox.fails("pool import --dir @d tonk").contains("no pool `tonk` was found in"));
    assert!(sandbox.fails("pool import --dir @nowhere").contains("No such file or directory"));
    let error = sandbox.fails("pool replace tank @d/drive7.img @d/drive0.img");
    assert!(error.contains("has no drive") && error.contains("its drives are"), "{error}");
}

#[test]
fn destructive_commands_need_confirmation() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 4MiB");
    let data = unique_bytes(100_000, 3);
    sandbox.write("tank/a", 0, &data);
    let error = sandbox.run("volume delete tank/a").expect_code(2).err;
    assert!(
        error.contains("hint: if that is what you want: stripewise volume delete tank/a --yes"),
        "{error}"
    );
    let error = sandbox.run("pool destroy tank").expect_code(2).err;
    assert!(error.contains("destroying pool tank ("), "{error}");
    assert!(error.contains("drive1.img loses all of its volumes"), "{error}");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("pool destroy tank --yes");
    let label = sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"].clone();
    assert!(label["destroyed_unix_s"].is_u64(), "{label}");
    assert!(sandbox.fails("pool import --dir @d").contains("no pool was found"));
    sandbox.ok("pool create again @d/drive0.img @d/drive1.img");
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid0 --size 1MiB");
    let capacity =
        sandbox.json("volume show tank/a")["volumes"][0]["capacity_bytes"].as_u64().expect("a number");
    let error = sandbox.fails(&format!("volume read tank/a --offset {} --length 2", capacity - 1));
    assert!(error.contains(&format!("it ends at {capacity}")), "{error}");
    assert!(
        sandbox
            .run("volume read tank/a --json")
            .expect_code(2)
            .err
            .contains("cannot be combined with --json")
    );
    let last = sandbox.run(&format!("volume read tank/a --offset {}", capacity - 1)).expect_code(0);
    assert_eq!(last.out, [0]);
    let words = format!("volume write tank/a --offset {}", capacity - 3);
    let error = sandbox.run_with_input(&words, b"four").expect_code(1).err;
    assert!(error.contains("the input is larger than the volume; the first 3 B were written"), "{error}");
    assert!(error.contains("hint: of this write, the first 3 bytes are durable"), "{error}");
    assert_eq!(sandbox.read("tank/a", capacity - 3, 3), b"fou");
    let beyond = format!("volume write tank/a --offset {}", capacity + 1);
    assert!(sandbox.run_with_input(&beyond, b"x").expect_code(1).err.contains("it ends at"));
}

#[test]
fn an_unwritable_state_folder_is_reported() {
    let sandbox = four_drives();
    std::fs::write(sandbox.path("file"), "").expect("written");
    let run = |home: &str, words: &str| {
        let output =
            sandbox.command(words).env("STRIPEWISE_HOME", sandbox.path(home)).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text")
    };
    let error = run("file/home", "pool create tank @d/drive0.img");
    assert!(error.contains("hint: STRIPEWISE_HOME names the folder"), "{error}");
    assert!(
        sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"].is_null(),
        "nothing was begun"
    );
    std::fs::create_dir(sandbox.path("broken")).expect("made");
    std::fs::write(sandbox.path("broken/pools.json"), "{\"version\":").expect("written");
    let error = run("broken", "pool list");
    assert!(error.contains("move that file away, then find them again"), "{error}");
}
