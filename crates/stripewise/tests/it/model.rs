//! `model`, `advise` and `pool advise`: the catalogue, replays and advice.

use std::path::PathBuf;

use serde_json::Value;

use crate::kit::{Sandbox, keys};

fn study(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../studies/disksim").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_replay_prints_its_error() {
    let sandbox = Sandbox::new();
    let words = format!("model replay --drive {} {}", study("atlas10k.json"), study("atlas10k.trace.csv"));
    let replay = sandbox.json(&words);
    assert_eq!(replay["output_version"], 1);
    let demerit_ms = replay["demerit_ms"].as_f64().unwrap();
    assert!(demerit_ms > 0.0 && demerit_ms <= 0.268, "{demerit_ms}");
    let share = demerit_ms * 100.0 / replay["measured_mean_ms"].as_f64().unwrap();
    assert!((replay["demerit_percent"].as_f64().unwrap() - share).abs() < 1e-9);
    assert!((replay["mean_ms"].as_f64().unwrap() - 3.9).abs() < 0.1);
    assert_eq!(keys(&replay["percentiles_ms"]), ["max", "p50", "p90", "p99", "p999"]);
    assert!(sandbox.ok(&words).text().contains("demerit 0.0"));
}

#[test]
fn invalid_replay_files_name_the_place() {
    let sandbox = Sandbox::new();
    let (drive, trace) = (study("atlas10k.json"), sandbox.path("t.csv"));
    std::fs::write(&trace, "op,lbn,sectors,response_us,gap_us\nR,1,4,9,9\nR,-1,4,9,9\n").unwrap();
    let error = sandbox.fails(&format!("model replay --drive {drive} @t.csv"));
    assert!(error.contains("t.csv:3:2: lbn `-1`") && error.contains("hint: "), "{error}");
    std::fs::write(sandbox.path("d.json"), "{\n  \"name\": 7\n}").unwrap();
    let error = sandbox.fails("model replay --drive @d.json @t.csv");
    assert!(error.contains("d.json:2:11: invalid type"), "{error}");
    let error = sandbox.fails("model replay --drive @none.json @t.csv");
    assert!(error.contains("none.json: No such file"), "{error}");
    assert!(sandbox.run("model replay @t.csv").expect_code(2).err.contains("--drive"));
}

#[test]
fn the_catalogue_says_where_each_number_is_from() {
    let sandbox = Sandbox::new();
    let drives = sandbox.json("model catalogue")["drives"].as_array().unwrap().clone();
    assert!(drives.len() >= 7);
    for drive in &drives {
        assert_eq!(keys(drive), ["capacity_bytes", "kind", "name", "parameters", "title"]);
    }
    let one = sandbox.json("model catalogue mg08ada400e");
    let seek = &one["drives"][0]["parameters"]["average_seek_ms"];
    assert_eq!((seek["value"].as_f64(), seek["from"].as_str()), (Some(6.0), Some("fitted")));
    assert!(sandbox.ok("model catalogue mg08ada400e").text().contains("average_seek_ms"));
    let error = sandbox.fails("model catalogue mg08");
    assert!(error.contains("mg08ada400e") && error.contains("hint: "), "{error}");
}

#[test]
fn advice_has_the_keys_promised_and_writes_one_page() {
    let sandbox = Sandbox::new();
    let advice =
        sandbox.json("advise --drives 3x8TB-hdd --workload sequential --link 1gbe --report @advice.html");
    let first = &advice["choices"][0];
    for key in [
        "rank",
        "layout",
        "drives",
        "usable_bytes",
        "normal",
        "degraded",
        "rebuilding",
        "rebuild_seconds",
        "loss_probability_per_year",
        "bottleneck",
        "reason",
        "error_percent",
        "dominated_by",
        "commands",
    ] {
        assert!(keys(first).contains(&key), "{key}: {first}");
    }
    for key in ["seq_write", "seq_read", "mixed"] {
        assert!(first["degraded"][key].as_f64().is_some(), "{key}: {first}");
    }
    assert_eq!(keys(&first["commands"]), ["mdadm", "storage_spaces", "stripewise", "zpool"]);
    assert!(advice["assumptions"].as_array().is_some_and(|list| !list.is_empty()));
    let page = std::fs::read_to_string(sandbox.path("advice.html")).expect("written");
    assert!(page.contains("<svg") && page.contains("raid5") && !page.contains("src="), "{page}");
}

#[test]
fn invalid_advise_options_are_refused_with_a_fix() {
    let sandbox = Sandbox::new();
    for (words, code, why) in [
        ("", 2, "--drives 4x8TB-hdd"),
        ("--drives 4xmg08ada40e", 2, "mg08ada400e"),
        ("--drives=-4x8TB-hdd", 2, "not a number of drives"),
        ("--drives 4x8TB-hdd --workload read=70,write=50", 2, "add up to 120 %"),
        ("--drives 4x8TB-hdd --workload sequental", 2, "sequential"),
        ("--drives 4x8TB-hdd --link 3gbe", 2, "2.5gbe"),
        ("--drives 4x8TB-hdd --risk=-5", 2, "percentage"),
        ("--drives 4x8TB-hdd --controller megarad", 2, "controller"),
        ("--drives 2x8TB-hdd --capacity 100TB", 1, "nearest: raid1"),
        ("--drives 2x8TB-hdd --capacity 0", 2, "must be more than 0"),
        ("--drives 0x8TB-hdd", 2, "1 to 1000"),
        ("--drives 10000x8TB-hdd", 2, "1 to 1000"),
        ("--drives 1000x8TB-hdd", 2, "at most"),
        ("--drives 4x8TB-hd", 2, "the nearest: 8tb-hdd"),
        ("--drives /dev/null", 1, "/dev/null"),
        ("--drives 4xnone.toml", 1, "none.toml"),
        ("--drives 4x8TB-hdd --price 7TB-hdd=5", 2, "the drives are 8tb-hdd"),
        ("--price 8TB-hdd=150", 2, "--budget"),
        ("--price 8TB-hdd=150 --budget 100", 1, "buys no drive"),
        ("--budget 1000", 2, "--price"),
        ("--drives 4x8TB-hdd --journal 2x8TB-hdd", 2, "solid-state"),
        ("--drives 4x8TB-hdd --spares 4", 2, "fewer --spares"),
    ] {
        let refused = sandbox.run(&format!("advise {words}"));
        assert_eq!(refused.code, code, "{words}: {}", refused.err);
        assert!(refused.err.contains(why), "{words}: {}", refused.err);
    }
}

#[test]
fn pool_advise_compares_other_layouts() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/data --layout raid5 --size 16MiB");
    let advice = sandbox.json("pool advise tank");
    let volume = &advice["volumes"][0];
    assert_eq!((volume["volume"].as_str(), volume["layout"].as_str()), (Some("tank/data"), Some("raid5")));
    let commands: Vec<&str> = volume["alternatives"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|alternative| alternative["command"].as_str())
        .collect();
    for wanted in [
        "stripewise volume convert tank/data --layout raid0 --columns 4 --yes",
        "stripewise volume convert tank/data --layout raid10 --columns 4",
        "stripewise pool add tank SSD1 SSD2 --as journal",
        "stripewise pool add tank DRIVE --as spare",
    ] {
        assert!(commands.contains(&wanted), "{wanted}: {commands:?}");
    }
    let rebuild = &volume["rebuild"];
    let (idle, now) = (rebuild["idle_seconds"].as_f64(), rebuild["now_seconds"].as_f64());
    assert!(idle > Some(0.0) && now >= idle, "{rebuild}");
    let text = sandbox.ok("pool advise tank --workload sequential");
    assert!(text.text().contains("volume convert tank/data --layout raid6"), "{}", text.text());
    assert!(sandbox.fails("pool advise nothing").contains("nothing"));
}

#[test]
fn commands_of_pool_advise_do_what_they_say() {
    let advised = Sandbox::new();
    advised.pool(4);
    advised.ok("volume create tank/data --layout raid5 --size 16MiB");
    let advice = advised.json("pool advise tank");
    let mut tried = 0;
    for alternative in advice["volumes"][0]["alternatives"].as_array().expect("a list") {
        let command = alternative["command"].as_str().expect("words");
        let words = command.strip_prefix("stripewise ").expect("our own command");
        let sandbox = Sandbox::new();
        sandbox.pool(4);
        sandbox.ok("drive make @e --count 2 --size 64MiB");
        sandbox.ok("volume create tank/data --layout raid5 --size 16MiB");
        let words = words.replace("SSD1", "@e/drive0.img").replace("SSD2", "@e/drive1.img");
        sandbox.ok(&words.replace("DRIVE", "@e/drive0.img"));
        tried += 1;
    }
    assert!(tried >= 5, "{advice}");
}

/// Advice on a volume of five drives.
fn advice_on_volume(layout: &str) -> Value {
    let sandbox = Sandbox::new();
    sandbox.pool(5);
    sandbox.ok(&format!("volume create tank/a --layout {layout} --size 1MiB"));
    let advice = sandbox.json("pool advise tank --drive 4TB-hdd --workload backup");
    let [volume] = advice["volumes"].as_array().expect("a list").as_slice() else { panic!("{advice}") };
    assert!(volume["present"]["normal"]["workload"].as_f64() > Some(0.0), "{volume}");
    assert!(volume["costs"]["space_percent"].as_f64().is_some(), "{volume}");
    volume.clone()
}

fn is_advised_on(layout: &str) {
    advice_on_volume(layout);
}

test_cases! {
    a_volume_of_any_layout_is_advised_on = is_advised_on {
        raid4: "raid4",
        single: "single",
        raid1: "raid1",
        raid7: "raid7",
    }
}

/// From three copies to single parity, fewer drive failures are survived: this needs --yes.
#[test]
fn advised_layouts_with_less_redundancy_take_a_yes() {
    let volume = advice_on_volume("mirror3");
    let alternatives = volume["alternatives"].as_array().expect("a list").iter();
    let commands: Vec<&str> = alternatives.filter_map(|one| one["command"].as_str()).collect();
    let has = |is_it: fn(&str) -> bool| commands.iter().any(|command| is_it(command));
    assert!(has(|command| command.contains("--layout raid5") && command.ends_with(" --yes")), "{commands:?}");
    assert!(has(|command| command.contains("--layout raid6 --columns 5")), "{commands:?}");
}

fn build_each_choice(words: &str) {
    let sandbox = Sandbox::new();
    let advice = sandbox.json(&format!("advise --risk 100 --workload backup --drives {words}"));
    let choices = advice["choices"].as_array().expect("a list");
    assert!(!choices.is_empty(), "{advice}");
    for (built, choice) in choices.iter().enumerate() {
        let pool = format!("pool{built}");
        sandbox.ok(&format!("drive make @{pool} --count 8 --size 32MiB"));
        for line in choice["commands"]["stripewise"].as_array().expect("a list") {
            let line = line.as_str().expect("words").strip_prefix("stripewise ").expect("our own command");
            // File systems are covered by the tests of mounts.
            if line.starts_with("mount ") {
                assert_eq!(line, "mount tank/data /mnt/data --fs xfs");
                continue;
            }
            let drive = |word: &str| {
                let number = |text: &str| text.parse::<usize>().expect("a number");
                match (word.strip_prefix("/dev/DRIVE"), word.strip_prefix("/dev/SSD")) {
                    (Some(rest), _) => format!("@{pool}/drive{}.img", number(rest) - 1),
                    (_, Some(rest)) => format!("@{pool}/drive{}.img", 5 + number(rest)),
                    _ if word == "tank" => pool.clone(),
                    _ => word.replace("tank/", &format!("{pool}/")),
                }
            };
            let line: Vec<String> = line.split(' ').map(drive).collect();
            sandbox.ok(&line.join(" "));
        }
        let volume = &sandbox.json(&format!("volume show {pool}/data"));
        let shown = volume.to_string();
        assert!(shown.contains(choice["layout"].as_str().expect("a name")), "{shown}");
        sandbox.ok(&format!("pool destroy {pool} --yes"));
        std::fs::remove_dir_all(sandbox.path(&pool)).expect("its drives");
    }
}

test_cases! {
    the_printed_commands_build_the_choice = build_each_choice {
        one_disk: "1x8TB-hdd",
        two_disks: "2x8TB-hdd",
        three_disks: "3x8TB-hdd",
        with_spare_and_journal: "5x8TB-hdd --spares 1 --journal 2x500GB-ssd",
        solid_state_drives: "6x1TB-ssd",
    }
}

#[test]
fn advise_takes_drives_by_path() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 32MiB");
    let folder = sandbox.text("d");
    let paths: Vec<String> = (0..3).map(|index| format!("{folder}/drive{index}.img")).collect();
    let advice = sandbox.json(&format!("advise --drives {} --workload backup", paths.join(",")));
    assert_eq!(advice["choices"][0]["drives"], 3);
    let assumed = advice["assumptions"].to_string();
    assert!(
        assumed.contains("smaller than 100 GB") && assumed.contains("assumed to be a hard disk"),
        "{assumed}"
    );
}

#[test]
fn advise_takes_drives_by_file() {
    let sandbox = Sandbox::new();
    let drive = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalogue/drives/he8.toml");
    let advice = sandbox.json(&format!("advise --drives 4x{drive} --workload backup"));
    assert_eq!(advice["choices"][0]["drive"], "he8");
}

#[test]
fn advise_takes_drives_by_price() {
    let sandbox = Sandbox::new();
    let advice =
        sandbox.json("advise --price 8TB-hdd=150 --price 4TB-hdd=90 --budget 700 --bays 4 --capacity 12TB");
    let first = &advice["choices"][0];
    assert!(first["cost"].as_f64() <= Some(700.0) && first["drives"].as_u64() <= Some(4), "{first}");
    assert!(first["usable_bytes"].as_u64() >= Some(12_000_000_000_000) && first["cost_per_tb"].is_number());
}

#[test]
fn advise_without_drives_says_which_to_buy() {
    let sandbox = Sandbox::new();
    let text = sandbox.ok("advise --bays 3 --capacity 16TB --workload toshiba --link 1gbe");
    for said in ["hard disks considered", "REBUILDING", "limited by", "nine of ten", "LOSS/YEAR"] {
        assert!(text.text().contains(said), "{said}: {}", text.text());
    }
}

#[test]
fn the_default_risk_is_a_limit_like_any_other() {
    let sandbox = Sandbox::new();
    let refused = sandbox.fails("advise --drives 1x8TB-hdd");
    assert!(refused.contains("0.1 % a year or less") && refused.contains("nearest: single"), "{refused}");
    let accepted = sandbox.json("advise --drives 1x8TB-hdd --risk 20");
    assert_eq!(accepted["choices"][0]["layout"], "single");
}

/// Runs the program at a terminal, with these lines as input.
fn typed(sandbox: &Sandbox, words: &str, lines: &str) -> Option<String> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    if Command::new("script").arg("--version").output().is_err() {
        println!("passed over: script (util-linux) gives no terminal");
        return None;
    }
    let command = format!("'{}' {words}", env!("CARGO_BIN_EXE_stripewise"));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("STRIPEWISE_HOME", sandbox.path("home"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a terminal");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("typed");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn advise_asks_only_what_still_matters() {
    let sandbox = Sandbox::new();
    // An invalid answer is asked for again.
    let Some(said) = typed(&sandbox, "advise", "4x8TB-hdd\nsequental\nsequential\n\n1gbe\n\n") else {
        return;
    };
    for asked in ["Which drives?", "Workload?", "nearest: sequential", "So far: raid"] {
        assert!(said.contains(asked), "{asked}: {said}");
    }
    assert!(said.contains("for sequential work raid5"), "{said}");
    // One drive allows only one layout.
    let said = typed(&sandbox, "advise --risk 20", "1x8TB-hdd\n").expect("as before");
    assert!(!said.contains("Workload?") && !said.contains("Link to the client?"), "{said}");
    let said = typed(&sandbox, "advise --workload mixed --link 1gbe", "2x8TB-hdd\n\n\n").expect("as before");
    assert!(!said.contains("Workload?") && !said.contains("Link to the client?"), "{said}");
}

#[test]
fn advice_is_as_wide_as_a_page_and_says_what_it_costs() {
    let sandbox = Sandbox::new();
    let said = sandbox
        .ok("advise --drives 4x8TB-hdd,2x4TB-hdd --capacity 27TB --price 8TB-hdd=150 --price 4TB-hdd=90");
    let text = said.text();
    for wanted in
        ["PRICE", "PER TB", "780", "raid5 4x8tb-hdd+2x4tb-hdd in 5 columns", "--columns 5", " a year (1 in "]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("e-"), "no exponents: {text}");
    let table = text.lines().take_while(|line| !line.is_empty());
    assert!(table.clone().count() > 1 && table.clone().all(|line| line.chars().count() <= 100), "{text}");
    let refused = sandbox.run("advise --drives 4x8TB-hdd --capacity 27TB");
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("0.1 % a year or less") && refused.err.contains("nearest: raid0"),
        "{}",
        refused.err
    );
}

#[test]
fn a_volume_on_mixed_drives_uses_their_room() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @a --count 4 --size 64MiB");
    sandbox.ok("drive make @b --count 2 --size 32MiB");
    let drives: Vec<String> = (0..4).map(|index| format!("@a/drive{index}.img")).collect();
    sandbox.ok(&format!("pool create tank {} @b/drive0.img @b/drive1.img", drives.join(" ")));
    let created = sandbox.ok("volume create tank/v --layout raid5");
    assert!(
        created.err.contains("differ in size: ") && created.err.contains("--columns 6 holds"),
        "{}",
        created.err
    );
    let size = |name: &str| {
        let shown = sandbox.json(&format!("volume show tank/{name}"));
        shown["volumes"][0]["capacity_bytes"].as_u64().expect("a size")
    };
    let chosen = size("v");
    sandbox.ok("volume delete tank/v --yes");
    sandbox.ok("volume create tank/w --layout raid5 --columns 6");
    assert!(chosen as f64 > 1.3 * size("w") as f64, "{chosen} against {}", size("w"));
    sandbox.ok("volume delete tank/w --yes");
    // A volume that fits on all drives lies on all.
    sandbox.ok("volume create tank/s --layout raid5 --size 4MiB");
    assert_eq!(sandbox.json("volume show tank/s")["volumes"][0]["columns"], 6);
}
