//! A pool is identified by its ID and the IDs of its drives: drive paths are hints, a pool name is
//! resolved once.
//!
//! Invariants I19 and I20 (`docs/internals/invariants.md`).

use std::path::Path;

use crate::kit::{Sandbox, unique_bytes};

/// Two pools of two mirrored drives each, with different contents.
fn two_pools() -> (Sandbox, Vec<u8>, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 32MiB");
    sandbox.ok("pool create alpha @d/drive0.img @d/drive1.img");
    sandbox.ok("pool create beta @d/drive2.img @d/drive3.img");
    let (of_alpha, of_beta) = (unique_bytes(100_000, 1), unique_bytes(100_000, 2));
    for (pool, data) in [("alpha", &of_alpha), ("beta", &of_beta)] {
        sandbox.ok(&format!("volume create {pool}/data --layout raid1 --columns 2 --size 4MiB"));
        sandbox.write(&format!("{pool}/data"), 0, data);
    }
    (sandbox, of_alpha, of_beta)
}

fn swap(a: &Path, b: &Path) {
    let aside = a.with_extension("aside");
    for (from, to) in [(a, aside.as_path()), (b, a), (&aside, b)] {
        std::fs::rename(from, to).expect("renamed");
    }
}

fn identity(sandbox: &Sandbox, pool: &str) -> String {
    let status = sandbox.run(&format!("pool status {pool} --json")).json();
    status["pools"][0]["id"].as_str().expect("an identity").to_owned()
}

#[test]
fn a_pool_name_means_its_own_drives_at_any_path() {
    let (sandbox, of_alpha, of_beta) = two_pools();
    let ids = [identity(&sandbox, "alpha"), identity(&sandbox, "beta")];
    for (a, b) in [(0, 2), (1, 3)] {
        swap(&sandbox.drive_path(a), &sandbox.drive_path(b));
    }
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha, "alpha is read, not beta");
    assert!(sandbox.read("beta/data", 0, of_beta.len()) == of_beta);
    sandbox.ok("pool status alpha");
    assert_eq!([identity(&sandbox, "alpha"), identity(&sandbox, "beta")], ids);

    // The pool to destroy is identified beyond doubt, before and during the command.
    let refused = sandbox.run("pool destroy alpha").expect_code(2).err;
    for part in [&ids[0], &sandbox.text("d/drive2.img"), &sandbox.text("d/drive3.img")] {
        assert!(refused.contains(part.as_str()), "{part} in: {refused}");
    }
    let destroyed = sandbox.ok("pool destroy alpha --yes").err;
    assert!(destroyed.contains(&ids[0]), "{destroyed}");
    assert!(destroyed.contains(&sandbox.text("d/drive2.img")), "{destroyed}");
    assert!(sandbox.read("beta/data", 0, of_beta.len()) == of_beta, "beta is untouched");
    assert_eq!(sandbox.json("pool status beta")["pools"][0]["state"], "online");
}

#[test]
fn writes_reach_the_named_pool_after_drives_swap() {
    let (sandbox, of_alpha, of_beta) = two_pools();
    swap(&sandbox.drive_path(1), &sandbox.drive_path(2));
    let more = unique_bytes(50_000, 3);
    sandbox.write("alpha/data", 20_000, &more);
    let mut of_alpha = of_alpha;
    of_alpha[20_000..70_000].copy_from_slice(&more);
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha);
    assert!(sandbox.read("beta/data", 0, of_beta.len()) == of_beta);
    // All drives got all writes, so none had to be excluded.
    for pool in ["alpha", "beta"] {
        assert_eq!(sandbox.json(&format!("pool status {pool}"))["pools"][0]["state"], "online");
    }
}

#[test]
fn a_pool_is_not_found_on_drives_of_another_pool() {
    let (sandbox, _, _) = two_pools();
    // A pool on the list loses no drive to a new one, though it is closed.
    let create = "pool create tank2 @d/drive0.img @d/drive1.img --force";
    let refused = sandbox.fails(create);
    assert!(refused.contains("is a drive of pool `alpha`; nothing was changed"), "{refused}");
    assert!(refused.contains("`stripewise pool destroy alpha --yes`"), "{refused}");
    assert_eq!(sandbox.json("pool status alpha")["pools"][0]["state"], "online");
    // Another user has another list.
    let output = sandbox.command(create).env("STRIPEWISE_HOME", sandbox.path("other")).output().expect("run");
    let taken = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && taken.contains("it held a drive of pool `alpha` ("), "{taken}");
    sandbox.ok("pool import --dir @d tank2");
    sandbox.ok("volume create tank2/data --layout raid1 --columns 2 --size 4MiB");
    let data = unique_bytes(10_000, 4);
    sandbox.write("tank2/data", 0, &data);
    let refused = sandbox.fails("volume read alpha/data --offset 0 --length 512");
    assert!(refused.contains("none of the drives of pool `alpha`"), "{refused}");
    assert!(refused.contains("holds a drive of pool tank2"), "{refused}");
    sandbox.fails("pool destroy alpha --yes");
    assert!(sandbox.read("tank2/data", 0, data.len()) == data);
}

#[test]
fn a_foreign_or_blank_drive_counts_as_one_lost_drive() {
    for foreign in [true, false] {
        let sandbox = Sandbox::new();
        sandbox.pool(4);
        sandbox.ok("volume create tank/a --layout raid5 --size 6MiB");
        let data = unique_bytes(300_000, 5);
        sandbox.write("tank/a", 0, &data);
        std::fs::remove_file(sandbox.drive_path(0)).expect("a drive");
        sandbox.ok("drive make @d --count 1 --size 32MiB");
        if foreign {
            sandbox.ok("pool create other @d/drive0.img");
        }
        let status = sandbox.run("pool status tank --json").expect_code(3).json();
        let pool = &status["pools"][0];
        let states: Vec<&str> = (0..4).map(|n| pool["drives"][n]["state"].as_str().expect("text")).collect();
        assert_eq!(states, ["missing", "online", "online", "online"]);
        let (condition, action) =
            (pool["condition"].as_str().expect("text"), pool["action"].as_str().expect("text"));
        let place = sandbox.text("d/drive0.img");
        let holds = if foreign { "holds a drive of pool other" } else { "holds no pool" };
        assert!(condition.contains(&format!("{place} {holds}")), "{condition}");
        assert!(action.starts_with("stripewise pool replace tank "), "{action}");
        assert!(sandbox.read("tank/a", 0, data.len()) == data);
        sandbox.write("tank/a", 0, &data);
        // The action is right: a blank drive can replace the missing one.
        let action = action.strip_prefix("stripewise ").expect("a command");
        if foreign {
            sandbox.ok("drive make @new --count 1 --size 32MiB");
            sandbox.ok(&action.replace("NEW-DRIVE", "@new/drive0.img"));
        } else {
            assert!(action.ends_with(&place), "{action}");
            sandbox.ok(action);
        }
        sandbox.ok("pool wait tank rebuild");
        assert_eq!(sandbox.json("pool status tank")["pools"][0]["state"], "online");
        assert!(sandbox.read("tank/a", 0, data.len()) == data);
        if foreign {
            assert_eq!(sandbox.json("pool status other")["pools"][0]["state"], "online");
        }
    }
}

/// Runs the program as on another host, with its own registry.
fn on_host(sandbox: &Sandbox, host: &str, words: &str) -> (i32, String, Vec<u8>) {
    let mut command = sandbox.command(words);
    let output = command.env("STRIPEWISE_HOST", host).env("STRIPEWISE_HOME", sandbox.path(host)).output();
    let output = output.expect("it runs");
    let said = String::from_utf8(output.stderr).expect("messages are text");
    (output.status.code().expect("it ends"), said, output.stdout)
}

fn names_on_the_list(sandbox: &Sandbox) -> Vec<String> {
    let list = sandbox.json("pool list");
    let pools = list["pools"].as_array().expect("pools").iter();
    pools.map(|pool| pool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn import_lists_found_pools_and_imports_named_ones() {
    let (sandbox, of_alpha, _) = two_pools();
    sandbox.ok("pool export alpha");
    sandbox.ok("pool export beta");
    let found = sandbox.json("pool import --dir @d");
    let pools = found["pools"].as_array().expect("pools");
    assert_eq!(pools.len(), 2);
    for pool in pools {
        assert_eq!((&pool["state"], &pool["imported"]), (&"online".into(), &false.into()));
        assert_eq!(pool["drives"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&pool["last_host"]["exported"], &pool["held_back"]),
            (&true.into(), &serde_json::Value::Null)
        );
        assert!(pool["last_host"]["unix_s"].as_u64().is_some_and(|time| time > 1_700_000_000));
    }
    let listed = sandbox.ok("pool import --dir @d");
    assert!(listed.text().contains("exported cleanly"), "{}", listed.text());
    assert!(listed.err.contains("nothing was imported"), "{}", listed.err);
    assert_eq!(names_on_the_list(&sandbox), Vec::<String>::new(), "a list is only a list");
    sandbox.ok("pool import --dir @d alpha");
    assert_eq!(names_on_the_list(&sandbox), ["alpha"]);
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha);
    sandbox.ok("pool import --dir @d --all");
    assert_eq!(names_on_the_list(&sandbox), ["alpha", "beta"]);
}

#[test]
fn a_renamed_pool_keeps_its_data() {
    let (sandbox, of_alpha, of_beta) = two_pools();
    let id = identity(&sandbox, "alpha");
    let refused = sandbox.fails("pool rename alpha beta");
    assert!(refused.contains("there is a pool `beta` already"), "{refused}");
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha);
    sandbox.ok("pool rename alpha gamma");
    assert_eq!(names_on_the_list(&sandbox), ["beta", "gamma"]);
    assert!(sandbox.read("gamma/data", 0, of_alpha.len()) == of_alpha);
    assert_eq!(identity(&sandbox, "gamma"), id);
    let label = sandbox.json("drive show @d/drive0.img");
    assert_eq!(label["drives"][0]["superblock"]["pool_name"], "gamma");
    // Two pools with the same name: one of them is renamed by the import.
    sandbox.ok("pool export gamma");
    sandbox.ok("pool rename beta gamma");
    let refused = sandbox.fails("pool import --dir @d gamma");
    assert!(refused.contains("there are two pools `gamma`") && refused.contains(&id), "{refused}");
    let refused = sandbox.fails(&format!("pool import --dir @d {id}"));
    assert!(refused.contains("there is a pool `gamma` already") && refused.contains("--as"), "{refused}");
    // The pool that is already imported is not blocked by the other.
    let held_back = sandbox.run("pool import --dir @d --all").expect_code(1).err;
    assert_eq!(
        held_back.matches("is not imported: there are two pools of this name").count(),
        1,
        "{held_back}"
    );
    assert!(held_back.contains(&id), "{held_back}");
    sandbox.ok(&format!("pool import --dir @d {id} --as delta"));
    assert!(sandbox.read("delta/data", 0, of_alpha.len()) == of_alpha);
    assert!(sandbox.read("gamma/data", 0, of_beta.len()) == of_beta);
    assert_eq!(sandbox.json("drive show @d/drive0.img")["drives"][0]["superblock"]["pool_name"], "delta");
}

#[test]
fn a_pool_in_use_by_another_host_needs_force() {
    let (sandbox, of_alpha, _) = two_pools();
    let on = |host: &str, words: &str| on_host(&sandbox, host, words);
    let (code, said, _) = on("north", "pool import --dir @d alpha");
    assert!(code == 1 && said.contains("is in use by host") && said.contains("--force"), "{said}");
    // It blocks no other pool, and read-only commands work.
    sandbox.ok("pool export beta");
    let (code, said, _) = on("north", "pool import --dir @d --all");
    assert!(code == 1 && said.contains("is not imported: it is in use by host"), "{said}");
    let (_, _, list) = on("north", "pool list");
    let list = String::from_utf8(list).expect("text");
    assert!(list.contains("beta") && !list.contains("alpha"), "{list}");

    let (code, said, _) = on("north", "pool import --dir @d alpha --force");
    assert_eq!(code, 0, "{said}");
    // The pool now belongs to that host: the previous one may only read it.
    let refused = sandbox.run_with_input("volume write alpha/data", b"lost").expect_code(1).err;
    assert!(refused.contains("in use by host north") && refused.contains("--force"), "{refused}");
    let (code, said, read) = on("north", &format!("volume read alpha/data --length {}", of_alpha.len()));
    assert!(code == 0 && read == of_alpha, "{said}");
    // After an export there, it can be imported back without --force.
    assert_eq!(on("north", "pool export alpha").0, 0);
    sandbox.ok("pool export alpha");
    sandbox.ok("pool import --dir @d alpha");
    sandbox.write("alpha/data", 0, b"mine");
}

#[test]
fn copies_of_a_pool_are_refused_and_block_no_other() {
    let (sandbox, of_alpha, _) = two_pools();
    sandbox.ok("pool export alpha");
    sandbox.ok("pool export beta");
    std::fs::create_dir(sandbox.path("copy")).expect("made");
    for drive in 0..2 {
        let copy = sandbox.path(&format!("copy/drive{drive}.img"));
        std::fs::copy(sandbox.drive_path(drive), copy).expect("copied");
    }
    let answer = sandbox.run("pool import --dir @d --dir @copy --all").expect_code(1);
    assert!(answer.err.contains("are copies of one drive of pool `alpha`"), "{}", answer.err);
    assert_eq!(names_on_the_list(&sandbox), ["beta"]);
    let refused = sandbox.fails("pool import --dir @d --dir @copy alpha");
    assert!(refused.contains("are copies of one drive"), "{refused}");
    sandbox.ok("pool import --dir @d alpha");
    // The copy does not replace the imported pool.
    let refused = sandbox.fails("pool import --dir @copy alpha");
    assert!(refused.contains("is registered already") && refused.contains("is a copy"), "{refused}");
    sandbox.write("alpha/data", 0, b"only here");
    assert!(sandbox.read("alpha/data", 9, of_alpha.len() - 9) == of_alpha[9..]);
}

#[test]
fn an_unresponsive_drive_blocks_no_import() {
    let (sandbox, of_alpha, _) = two_pools();
    sandbox.ok("pool export alpha");
    // Accepts connections and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let words =
        format!("pool import --dir @d --drive nbd://127.0.0.1:{port}/x?timeout=1s --drive @d/none.img alpha");
    let answer = sandbox.ok(&words);
    assert!(answer.err.contains("skipped"), "{}", answer.err);
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha);
}

#[test]
fn the_service_does_not_import_exported_pools() {
    let unit = include_str!("../../../../dist/stripewise.service");
    assert!(!unit.contains("pool import\n") && !unit.contains("ExecStartPre"), "{unit}");
}

#[test]
fn drives_at_too_long_paths_are_imported_by_links() {
    let (sandbox, of_alpha, _) = two_pools();
    sandbox.ok("pool export alpha");
    let folder = sandbox.path(&"a".repeat(110)).join("b".repeat(110));
    std::fs::create_dir_all(&folder).expect("made");
    for drive in [0, 1] {
        std::fs::rename(sandbox.drive_path(drive), folder.join(format!("{drive}.img"))).expect("renamed");
    }
    let long = folder.to_str().expect("text");
    let refused = sandbox.run(&format!("pool import alpha --dir {long}")).expect_code(1).err;
    assert!(refused.contains("ln -s"), "{refused}");
    std::os::unix::fs::symlink(&folder, sandbox.path("short")).expect("linked");
    sandbox.ok("pool import alpha --dir @short");
    sandbox.ok("pool offline alpha @short/0.img");
    sandbox.ok("pool online alpha @short/0.img");
    assert!(sandbox.read("alpha/data", 0, of_alpha.len()) == of_alpha);
}
