//! The server with programs of other projects: libnbd's tools, QEMU's, nbdkit and fio. A test is
//! skipped with a message if its program is not installed.

use std::os::unix::fs::MetadataExt;

use crate::kit::{MIB, Served, Wanted, contents, has, run_program, try_run};
use serde_json::Value;

fn striped() -> Served {
    Served::start(Wanted { layout: "raid0", ..Wanted::default() })
}

/// Creates a sparse file of 64 MiB with data at its start, middle and end. Returns its path.
fn sparse_file(served: &Served, name: &str) -> String {
    let path = served.folder.path().join(name);
    let file = std::fs::File::create(&path).expect("made");
    file.set_len(64 * MIB).expect("room");
    for (seed, at, length) in [(1, 0, 100_000), (2, 30 * MIB + 4096, 300_000), (3, 64 * MIB - 8192, 8192)] {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&contents(seed, length), at).expect("written");
    }
    path.to_str().expect("a path").to_owned()
}

#[test]
fn nbdinfo_sees_what_is_exported() {
    if !has("nbdinfo") {
        return;
    }
    let served = Served::start(Wanted { volumes: vec![("a", 32), ("b", 16)], ..Wanted::default() });
    let listed = run_program("nbdinfo", &["--list", "--json", &served.uri("")]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let exports = listed["exports"].as_array().expect("a list");
    assert_eq!(exports.len(), 2, "{listed}");
    let found = &exports[1];
    assert_eq!(found["export-name"], "tank/b");
    assert_eq!(found["export-size"], 16 * MIB);
    assert_eq!(found["contexts"], serde_json::json!(["base:allocation"]));
    for able in [
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_fast_zero",
        "can_cache",
        "can_df",
        "can_multi_conn",
    ] {
        assert_eq!(found[able], true, "{able}");
    }
    assert_eq!(found["is_read_only"], false);
    let one = run_program("nbdinfo", &["--json", &served.uri("tank/b")]);
    let one: Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!(one["exports"][0]["description"], "volume b of pool tank", "{one}");
    assert_eq!(one["structured"], true, "{one}");
    assert_eq!((&found["block_size_minimum"], &found["block_size_maximum"]), (&1.into(), &(32 * MIB).into()));
    let error = try_run("nbdinfo", &[&served.uri("tank/c")]).expect_err("there is none");
    assert!(error.contains("tank/c"), "{error}");
    let served = Served::start(Wanted { read_only: true, ..Wanted::default() });
    run_program("nbdinfo", &["--is", "read-only", &served.uri("tank/data")]);
}

#[test]
fn nbdcopy_round_trips_and_keeps_holes() {
    if !has("nbdcopy") || !has("nbdinfo") {
        return;
    }
    let served = striped();
    let file = sparse_file(&served, "there.img");
    let back = served.folder.path().join("back.img");
    run_program("nbdcopy", &["--flush", &file, &served.uri("tank/data")]);
    run_program("nbdcopy", &[&served.uri("tank/data"), back.to_str().expect("a path")]);
    assert!(std::fs::read(&file).expect("read") == std::fs::read(&back).expect("read"));
    let allocated = std::fs::metadata(&back).expect("made").blocks() * 512;
    assert!(allocated < 20 * MIB, "{allocated} bytes allocated of a sparse copy");
    let map = run_program("nbdinfo", &["--map", "--json", &served.uri("tank/data")]);
    let map: Value = serde_json::from_str(&map).expect("JSON");
    let stretches = map.as_array().expect("a list");
    let sum: u64 = stretches.iter().map(|stretch| stretch["length"].as_u64().expect("a number")).sum();
    assert_eq!(sum, 64 * MIB);
    assert!(stretches.len() >= 5, "{map}");
    // Between two Stripewise servers, over several connections each.
    let other = Served::start(Wanted { layout: "raid6", ..Wanted::default() });
    run_program("nbdcopy", &["--connections=4", &served.uri("tank/data"), &other.uri("tank/data")]);
    run_program("nbdcopy", &["--connections=4", &other.uri("tank/data"), back.to_str().expect("a path")]);
    assert!(std::fs::read(&file).expect("read") == std::fs::read(&back).expect("read"));
}

#[test]
fn qemu_converts_compares_and_maps() {
    if !has("qemu-img") {
        return;
    }
    let served = striped();
    let file = sparse_file(&served, "there.img");
    let uri = served.uri("tank/data");
    run_program("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", &file, &uri]);
    let compared = run_program("qemu-img", &["compare", "-f", "raw", "-F", "raw", &file, &uri]);
    assert!(compared.contains("Images are identical"), "{compared}");
    let map = run_program("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    let map: Value = serde_json::from_str(&map).expect("JSON");
    let stretches = map.as_array().expect("a list");
    assert!(stretches.iter().any(|stretch| stretch["zero"] == true && stretch["data"] == false), "{map}");
    assert_eq!(
        stretches.iter().map(|stretch| stretch["length"].as_u64().expect("a number")).sum::<u64>(),
        64 * MIB
    );
    let back = served.folder.path().join("back.qcow2");
    let back = back.to_str().expect("a path");
    run_program("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, back]);
    run_program("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &file, back]);
}

#[test]
fn qemu_io_writes_zeroes_discards_and_verifies() {
    if !has("qemu-io") {
        return;
    }
    let served = Served::start(Wanted { thin: true, ..Wanted::default() });
    let commands = [
        "write -P 0xaa 0 4M",
        "write -P 0xbb 4097 511",
        "write -f -P 0xcc 1M 64k",
        "read -P 0xbb 4097 511",
        "read -P 0xaa 0 4097",
        "read -P 0xaa 4608 4096",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "write -zu 0 8M",
        "read -P 0 0 8M",
        "aio_write -P 0x11 16M 1M",
        "aio_write -P 0x22 17M 1M",
        "aio_flush",
        "read -P 0x11 16M 1M",
        "read -P 0x22 17M 1M",
        "discard 16M 16M",
        "flush",
        "write -P 0x33 63M 1M",
        "read -P 0x33 63M 1M",
    ];
    let uri = served.uri("tank/data");
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let said = run_program("qemu-io", &arguments);
    assert!(!said.contains("failed") && !said.contains("Pattern verification"), "{said}");
}

/// Script for libnbd's shell, which fails on any mismatch.
const SHELL: &str = r#"
import errno
def fails(number, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errno == number, (number, error)
    else:
        raise Exception("not refused: %s" % number)
h.set_strict_mode(0)
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(uri)
size = h.get_size()
assert size == 64 << 20
assert h.get_structured_replies_negotiated() and h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.pwrite(b"hello", 3)
h.pwrite(b"x" * 70000, 1000001, nbd.CMD_FLAG_FUA)
assert h.pread(7, 1) == b"\0\0hello"
assert h.pread(70002, 1000000, nbd.CMD_FLAG_DF) == b"\0" + b"x" * 70000 + b"\0"
h.cache(1 << 20, 0)
h.zero(2, 4)
assert h.pread(5, 3) == b"h\0\0lo"
h.zero(32 << 20, 0, nbd.CMD_FLAG_FAST_ZERO)
fails("ENOTSUP", lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.trim(size, 0)
h.flush()
seen = []
h.block_status(size, 0, lambda context, offset, entries, error: seen.append((context, offset, entries)))
assert seen == [("base:allocation", 0, [size, 3])], seen
fails("EINVAL", lambda: h.pread(512, size))
fails("ENOSPC", lambda: h.pwrite(b"y" * 512, size - 1))
fails("EINVAL", lambda: h.block_status(512, size, lambda *a: 0))
# Two connections are one disk: what one wrote and the other flushed is durable, and read by both.
other = nbd.NBD()
other.connect_uri(uri)
h.pwrite(b"one" * 1000, 5000)
assert other.pread(3000, 5000) == b"one" * 1000
other.flush()
other.shutdown()
cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i]) * 4096), i * 4096) for i in range(100)]
while h.aio_in_flight():
    h.poll(-1)
assert all(h.aio_command_completed(cookie) for cookie in cookies)
assert all(h.pread(4096, i * 4096) == bytes([i]) * 4096 for i in range(100))
h.shutdown()
print("all is well")
"#;

#[test]
fn nbdsh_verifies_every_command() {
    // The module belongs to the system's Python, which may not be the first in the PATH.
    let shell = |script: &str| try_run("env", &["PATH=/usr/bin:/bin", "nbdsh", "-c", script]);
    if !has("nbdsh") || shell("pass").is_err_and(|error| error.contains("No module named nbd")) {
        println!("skipped: there is no python3-libnbd here (scripts/need.sh test installs it)");
        return;
    }
    for thin in [false, true] {
        let served = Served::start(Wanted { thin, ..Wanted::default() });
        let script = format!("uri = {:?}\n{SHELL}", served.uri("tank/data"));
        let said = shell(&script).unwrap_or_else(|error| panic!("{error}"));
        assert!(said.contains("all is well"), "{said}");
    }
}

#[test]
fn nbdkit_proxies_an_export() {
    if !has("nbdkit") || !has("nbdcopy") {
        return;
    }
    let served = striped();
    let file = sparse_file(&served, "there.img");
    let back = served.folder.path().join("back.img");
    let uri = format!("uri={}", served.uri("tank/data"));
    let copies = format!("nbdcopy {file} \"$uri\" && nbdcopy \"$uri\" {}", back.display());
    run_program("nbdkit", &["--exit-with-parent", "-U", "-", "nbd", &uri, "shared=true", "--run", &copies]);
    assert!(std::fs::read(&file).expect("read") == std::fs::read(&back).expect("read"));
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has("fio") || !run_program("fio", &["--enghelp"]).contains("nbd") {
        println!("skipped: this fio has no nbd engine");
        return;
    }
    for layout in ["raid5", "raid10"] {
        let served = Served::start(Wanted { layout, ..Wanted::default() });
        let uri = format!("--uri={}", served.uri("tank/data"));
        let said = run_program(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randwrite",
                "--bsrange=512-128k",
                "--bs_unaligned=0",
                "--size=48m",
                "--iodepth=32",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--verify_backlog=256",
                // The state file would stay in the folder of this crate.
                "--verify_state_save=0",
                "--randrepeat=1",
                "--fsync=64",
                &format!("--directory={}", served.folder.path().display()),
            ],
        );
        assert!(said.contains("err= 0"), "{said}");
    }
}

#[test]
fn other_clients_read_written_data_until_shutdown() {
    if !has("nbdcopy") {
        return;
    }
    let mut served = striped();
    let file = sparse_file(&served, "there.img");
    run_program("nbdcopy", &[&file, &served.uri("tank/data")]);
    // Another client, later.
    let back = served.folder.path().join("back.img");
    run_program("nbdcopy", &[&served.uri("tank/data"), back.to_str().expect("a path")]);
    assert!(std::fs::read(&file).expect("read") == std::fs::read(&back).expect("read"));
    assert!(served.end());
    let error = try_run("nbdcopy", &[&served.uri("tank/data"), "null:"]).expect_err("the server has ended");
    assert!(error.contains("nbd.sock") || error.contains("No such file"), "{error}");
}
