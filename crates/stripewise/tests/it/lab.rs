//! The laboratory's commands as reviewers type them: methods on files, folders and volumes, the
//! store, comparisons, reports, imports; and everything that must be refused.

use crate::kit::programs::are_here;
use crate::kit::{Sandbox, keys, unique_bytes};
use serde_json::Value;

const QUICK: &str = "--profile @quick.toml --seconds 0.2 --runs 3";

/// A method of four short figures.
fn with_profile() -> Sandbox {
    let sandbox = Sandbox::new();
    let text = "name = \"quick\"\ntool = \"none\"\n[[measurement]]\nname = \"seq\"\nops = [\"read\", \"write\"]\n\
                pattern = \"sequential\"\nblocks = [\"64KiB\"]\ndepths = [4]\n[[measurement]]\nname = \"rnd\"\n\
                ops = [\"read\", \"write\"]\npattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [4]\n";
    std::fs::write(sandbox.path("quick.toml"), text).expect("written");
    std::fs::create_dir(sandbox.path("folder")).expect("made");
    sandbox
}

fn entries(sandbox: &Sandbox, folder: &str) -> usize {
    std::fs::read_dir(sandbox.path(folder)).expect("the folder").count()
}

#[test]
fn a_run_has_the_keys_promised_and_is_in_the_store() {
    let sandbox = with_profile();
    let run = sandbox.json(&format!("lab run @folder {QUICK} --size 8MiB"));
    for key in ["output_version", "run", "target", "profile", "measurements"] {
        assert!(keys(&run).contains(&key), "{key}: {run}");
    }
    let figures = run["measurements"].as_array().expect("a list");
    assert_eq!(figures.len(), 4);
    for figure in figures {
        for key in [
            "name",
            "op",
            "block_bytes",
            "queue_depth",
            "workers",
            "mb_per_s",
            "iops",
            "latency_us",
            "runs",
            "ci95",
            "badges",
        ] {
            assert!(keys(figure).contains(&key), "{key}: {figure}");
        }
        assert!(figure["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
        assert_eq!(figure["runs"].as_array().map(Vec::len), Some(3));
        assert_eq!(keys(&figure["latency_us"]), ["max", "mean", "p50", "p99", "p999"]);
    }
    assert_eq!(entries(&sandbox, "folder"), 0, "the file it made is gone");
    let command = run["environment"]["command"].as_str().expect("what was typed");
    assert!(command.contains("lab run ") && command.contains(" --size 8MiB"), "{command}");
    let list = sandbox.json("lab list");
    assert_eq!(list["runs"][0]["run"], run["run"]);
    assert_eq!(keys(&list["runs"][0]), ["date", "finished", "profile", "run", "target", "tool"]);
    let name = run["run"].as_str().expect("a name");
    assert_eq!(sandbox.json(&format!("lab show {name}")), run);
    assert_eq!(sandbox.json("lab show latest"), run);
    let csv = sandbox.ok(&format!("lab export {name} --csv"));
    assert_eq!(csv.text().lines().count(), 1 + 12, "{}", csv.text());
    assert_eq!(sandbox.json(&format!("lab export {name}"))["runs"][0]["run"], run["run"]);
    sandbox.ok(&format!("lab report {name} -o @report.html --charts @charts"));
    let page = std::fs::read_to_string(sandbox.path("report.html")).expect("the page");
    assert!(page.contains(name) && page.contains("<svg") && !page.contains("https://"));
    assert_eq!(entries(&sandbox, "charts"), 2 * page.matches("<svg ").count(), "each as SVG and as PNG");
    let chart = std::fs::read(sandbox.path("charts/01.png")).expect("a chart");
    assert!(chart.starts_with(b"\x89PNG"));
}

#[test]
fn a_run_shown_in_its_tools_format_reimports() {
    let sandbox = with_profile();
    // Its pause of five seconds before each test is the tool's; here it is none.
    let own = include_str!("../../../../profiles/crystaldiskmark.toml");
    std::fs::write(sandbox.path("cdm.toml"), own.replace("pause_seconds = 5.0", "")).expect("written");
    let run = sandbox.json("lab run @folder --profile @cdm.toml --runs 1 --seconds 0.2 --size 8MiB");
    let shown = sandbox.ok(&format!("lab show {}", run["run"].as_str().expect("a name")));
    let text = shown.text();
    let start = text.find("----").expect("the tool's text");
    std::fs::write(sandbox.path("cdm.txt"), &text[start..]).expect("written");
    let again = sandbox.json("lab import @cdm.txt");
    let names = |run: &serde_json::Value| {
        let all = run["measurements"].as_array().expect("a list").iter();
        let mut all: Vec<String> = all.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        all.sort();
        all
    };
    assert_eq!(names(&again), names(&run));
}

#[test]
fn a_run_that_measured_nothing_is_not_listed() {
    let sandbox = with_profile();
    std::fs::write(sandbox.path("mine"), unique_bytes(1 << 20, 3)).expect("written");
    let answer = sandbox.run(&format!("lab run @mine {QUICK} --size 1GiB --force"));
    assert!(answer.code == 1 && answer.err.contains("cannot be measured"), "{}", answer.err);
    assert_eq!(sandbox.json("lab list")["runs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn overwriting_asks_for_the_name_at_a_terminal() {
    if !are_here(&["script"]) {
        return;
    }
    let sandbox = with_profile();
    let (bytes, mine) = (unique_bytes(1 << 20, 3), sandbox.path("mine"));
    std::fs::write(&mine, &bytes).expect("written");
    let typed = |answer: &str| {
        let program = env!("CARGO_BIN_EXE_stripewise");
        let (mine, profile) = (mine.display(), sandbox.path("quick.toml"));
        let words = format!("lab run {mine} --profile {} --seconds 0.05 --runs 1 --force", profile.display());
        let shell = format!("echo {answer} | script -qec '{program} {words}' /dev/null");
        let home = sandbox.path("home");
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", &shell]).env("STRIPEWISE_HOME", home).output().expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = typed("something");
    assert!(said.contains("the names differ") && std::fs::read(&mine).expect("there") == bytes, "{said}");
    let said = typed(&mine.display().to_string());
    assert!(std::fs::read(&mine).expect("there") != bytes, "{said}");
}

#[test]
fn compare_gives_a_verdict_for_each_figure() {
    let sandbox = with_profile();
    for file in ["a.csv", "b.csv"] {
        let factor = if file == "a.csv" { 1.0 } else { 0.8 };
        let mut text = "config,op,value,unit\n".to_owned();
        for run in 0..6 {
            text += &format!(
                "x,read,{},MB/s\nx,write,{},MB/s\n",
                factor * (100.0 + f64::from(run)),
                50 + run % 2
            );
        }
        std::fs::write(sandbox.path(file), text).expect("written");
    }
    let first = sandbox.json("lab import @a.csv")["run"].as_str().expect("a name").to_owned();
    let second = sandbox.json("lab import @b.csv")["run"].as_str().expect("a name").to_owned();
    let compared = sandbox.json(&format!("lab compare {first} {second}"));
    let verdict = |at: usize| compared["comparisons"][at]["verdict"].as_str().expect("a verdict").to_owned();
    assert_eq!((verdict(0).as_str(), verdict(1).as_str()), ("worse", "cannot_tell"), "{compared}");
    for key in ["measurement", "ratio", "ci95", "verdict"] {
        assert!(keys(&compared["comparisons"][0]).contains(&key), "{key}");
    }
    let again = sandbox.run("lab import @a.csv");
    assert_eq!(again.code, 1);
    assert!(again.err.contains("in the store already"), "{}", again.err);
    std::fs::write(sandbox.path("c.txt"), "not a result").expect("written");
    let refused = sandbox.run("lab import @c.txt");
    assert!(refused.code == 1 && refused.err.contains("none of the formats known"), "{}", refused.err);
}

#[test]
fn user_files_are_not_overwritten_without_force() {
    let sandbox = with_profile();
    let bytes = unique_bytes(1 << 20, 3);
    std::fs::write(sandbox.path("mine"), &bytes).expect("written");
    let refused = sandbox.run(&format!("lab run @mine {QUICK}"));
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("would overwrite") && refused.err.contains("--force"), "{}", refused.err);
    let read = sandbox.json(&format!("lab run @mine {QUICK} --read-only"));
    assert_eq!(read["measurements"].as_array().map(Vec::len), Some(2), "reads alone: {read}");
    assert_eq!(read["measurements"][0]["badges"]["filled_before"], false);
    assert!(std::fs::read(sandbox.path("mine")).expect("there") == bytes, "untouched");
    sandbox.ok(&format!("lab run @mine {QUICK} --force"));
    assert!(std::fs::read(sandbox.path("mine")).expect("there") != bytes);
    sandbox.pool(3);
    for force in ["", "--force"] {
        let member = sandbox.run(&format!("lab run @d/drive0.img {QUICK} {force}"));
        assert!(member.code == 1 && member.err.contains("is a drive of pool `tank`"), "{}", member.err);
    }
    sandbox.ok("pool scrub tank --wait");
}

#[test]
fn requests_below_block_size_are_verified() {
    let sandbox = with_profile();
    let text = "name = \"short\"\nruns = 1\nverify = true\n[[measurement]]\nname = \"{block} {pattern}\"\n\
                ops = [\"read\", \"write\"]\npatterns = [\"sequential\", \"random\"]\nblocks = [\"512\", \"1KiB\"]\n\
                depths = [4]\n";
    std::fs::write(sandbox.path("short.toml"), text).expect("written");
    let run = sandbox.json("lab run @folder --profile @short.toml --seconds 0.1 --size 8MiB");
    assert_eq!(run["measurements"].as_array().map(Vec::len), Some(8));
    assert!(run["notes"][0].as_str().is_some_and(|note| note.contains("none differ")), "{run}");
}

/// A method of one figure and hooks, of which one is `command`.
fn hooks(sandbox: &Sandbox, hook: &str, command: &str) -> String {
    let text = "name = \"one\"\nruns = 1\n[[measurement]]\nname = \"rnd\"\nread_percents = [50]\n\
                pattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [2]\n";
    std::fs::write(sandbox.path("one.toml"), text).expect("written");
    let mut text = String::new();
    for name in ["fail", "replace", "rebuild-done"] {
        let command = if name == hook { command } else { "true" };
        text += &format!("[{name}]\ncommand = '''{command}'''\nlimit_seconds = 1\n");
    }
    std::fs::write(sandbox.path("hooks.toml"), text + "every_seconds = 0.05\n").expect("written");
    "lab run @folder --profile @one.toml --seconds 0.2 --size 8MiB --scenario failure --hooks @hooks.toml"
        .into()
}

#[test]
fn a_target_is_taken_through_its_states_by_hooks() {
    let sandbox = with_profile();
    let count = sandbox.path("count");
    // Not yet for the first ten times.
    let words = hooks(
        &sandbox,
        "rebuild-done",
        &format!("echo x >> {0}; test $(wc -l < {0}) -gt 10", count.display()),
    );
    let run = sandbox.json(&words);
    let figures = run["measurements"].as_array().expect("a list");
    let names: Vec<&str> = figures.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["normal/rnd", "degraded/rnd", "rebuilding/rnd", "recovered/rnd"], "{run}");
    let markers = run["timeline"]["markers"].as_array().expect("markers");
    assert!(markers.len() == 9 && markers[1]["what"] == "fail begins", "{run}");
    assert_eq!(sandbox.json("lab show latest"), run);
    sandbox.ok("lab report latest -o @report.html");
    let page = std::fs::read_to_string(sandbox.path("report.html")).expect("the page");
    assert!(page.contains("fail begins (") && page.contains("rebuilt ("));
}

#[test]
fn a_failing_or_hung_hook_keeps_the_figures() {
    let sandbox = with_profile();
    for (hook, command, part, kept) in [
        ("fail", "echo no such drive >&2; exit 4", "the hook `fail` ended with 4: no such drive", 1),
        ("replace", "sleep 60", "the hook `replace` did not end within 1 s and was killed", 2),
        ("rebuild-done", "exit 2", "the hook `rebuild-done` ended with 2", 2),
    ] {
        let answer = sandbox.run(&hooks(&sandbox, hook, command));
        assert!(answer.code == 1 && answer.err.contains(part), "{}", answer.err);
        let run = sandbox.json("lab list --last 1");
        let run = sandbox.json(&format!("lab show {}", run["runs"][0]["run"].as_str().expect("a name")));
        let figures = run["measurements"].as_array().map_or(0, Vec::len);
        assert!(figures >= kept && run["finished"] == false, "{hook}: {run}");
        assert!(run["timeline"]["mb_per_s"].as_array().is_some_and(|rates| !rates.is_empty()), "{run}");
        assert_eq!(entries(&sandbox, "folder"), 0, "the file it made is gone");
    }
    let words = hooks(&sandbox, "", "");
    for (file, part) in [
        ("[fail]\ncomand = 'true'\n", "did you mean `command`"),
        ("[fail]\ncommand = 'true'\n", "missing field `replace`"),
    ] {
        std::fs::write(sandbox.path("hooks.toml"), file).expect("written");
        let answer = sandbox.run(&words);
        assert!(answer.code == 1 && answer.err.contains(part), "{}", answer.err);
    }
    assert_eq!(sandbox.run("lab run @folder --profile atto --scenario failure").code, 2, "without hooks");
}

#[test]
fn several_targets_are_measured_in_turns() {
    let sandbox = with_profile();
    std::fs::create_dir(sandbox.path("other")).expect("made");
    let both = sandbox.json(&format!("lab run @folder @other {QUICK} --size 8MiB --within 50 --most-runs 8"));
    let runs = both["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let figures = run["measurements"].as_array().expect("figures");
        assert_eq!((figures.len(), run["finished"].as_bool()), (4, Some(true)), "{run}");
        assert!(figures.iter().all(|one| (3..=8).contains(&one["runs"].as_array().map_or(0, Vec::len))));
    }
    let name = |at: usize| runs[at]["run"].as_str().expect("a name").to_owned();
    let compared = sandbox.json(&format!("lab compare {} {}", name(0), name(1)));
    assert_eq!(compared["comparisons"].as_array().map(Vec::len), Some(4));
    assert_eq!((entries(&sandbox, "folder"), entries(&sandbox, "other")), (0, 0));
}

#[test]
fn a_volume_is_measured_in_place() {
    let sandbox = with_profile();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let run = sandbox.json(&format!("lab run tank/a {QUICK}"));
    assert_eq!(
        (run["target"].as_str(), run["measurements"].as_array().map(Vec::len)),
        (Some("tank/a"), Some(4))
    );
    let refused = sandbox.run(&format!("lab run tank/a {QUICK}"));
    assert!(refused.code == 1 && refused.err.contains("holds data"), "{}", refused.err);
    sandbox.ok(&format!("lab run tank/a {QUICK} --read-only"));
    sandbox.ok("pool scrub tank --wait");
}

#[test]
fn usage_errors_say_what_to_do() {
    let sandbox = with_profile();
    for (words, code, part) in [
        ("lab run @folder --profile cristaldiskmark", 2, "the nearest is `crystaldiskmark`"),
        ("lab run @nowhere --profile atto", 1, "does not exist"),
        ("lab run /dev/null --profile atto", 1, "character device"),
        ("lab run @folder --profile atto --seconds 0", 2, "more than 0"),
        ("lab run @folder --profile @absent.toml", 1, "cannot read"),
        ("lab run model:nothing --profile atto", 1, "no drive `nothing`"),
        ("lab run @folder --profile atto --hosts a", 2, "--size"),
        ("lab run @folder --profile atto --hosts a --size 1MiB", 2, "--driver fio"),
        ("lab run /x --profile atto --driver fio --hosts a --size 1MiB", 1, "cannot check whether"),
        ("lab run /x --profile atto --driver fio --hosts a:b --size 1MiB", 2, "is not a host"),
        ("lab run @folder @quick.toml --profile bonnie", 2, "several targets"),
        ("lab show nothing", 1, "there is no run `nothing`"),
        ("lab show latest", 1, "no runs yet"),
    ] {
        let answer = sandbox.run(words);
        assert!(answer.code == code && answer.err.contains(part), "{words}: {} {}", answer.code, answer.err);
    }
    let text = std::fs::read_to_string(sandbox.path("quick.toml")).expect("there");
    std::fs::write(sandbox.path("wrong.toml"), text.replace("pattern", "patern")).expect("written");
    let answer = sandbox.run("lab run @folder --profile @wrong.toml");
    assert!(answer.err.contains("did you mean `pattern`"), "{}", answer.err);
    std::fs::write(sandbox.path("home/lab.sqlite"), "a letter to a friend, not a database".repeat(100))
        .expect("written");
    let answer = sandbox.run("lab list");
    assert!(answer.code == 1 && answer.err.contains("move the file away"), "{}", answer.err);
    let profiles = sandbox.json("lab profiles");
    assert_eq!(keys(&profiles["profiles"][0]), ["about", "measurements", "name", "tool"]);
}

#[test]
fn methods_on_files_run_in_a_folder_and_on_a_volume() {
    let sandbox = with_profile();
    let text = "name = \"small\"\nruns = 2\n[postmark]\nfiles = 50\ntransactions = 100\n";
    std::fs::write(sandbox.path("small.toml"), text).expect("written");
    let run = sandbox.json("lab run @folder --profile @small.toml");
    let figures = run["measurements"].as_array().expect("a list");
    assert_eq!((figures.len(), figures[1]["name"].as_str()), (12, Some("transactions")));
    assert_eq!(figures[1]["runs"].as_array().map(Vec::len), Some(2));
    assert!(figures[1]["iops"].as_f64().is_some_and(|rate| rate > 0.0), "{run}");
    let run = sandbox.json("lab run @folder --profile bonnie --size 4MiB");
    assert_eq!(run["measurements"].as_array().map(Vec::len), Some(12));
    assert_eq!(run["measurements"][2]["badges"]["larger_than_memory"], false, "{run}");
    assert_eq!(entries(&sandbox, "folder"), 0, "what was made is gone");
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    sandbox.ok("lab run tank/a --profile @small.toml");
    sandbox.ok("pool scrub tank --wait");
    std::fs::write(sandbox.path("wrong.toml"), text.replace("files = 50", "files = 0")).expect("written");
    assert_eq!(sandbox.run("lab run @folder --profile @wrong.toml").code, 1);
}

/// The hidden folder that a run makes in `folder`, once it is there.
fn scratch(sandbox: &Sandbox, folder: &str) -> std::path::PathBuf {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let found = std::fs::read_dir(sandbox.path(folder)).expect("the folder").next();
        let files = found.and_then(|entry| {
            let path = entry.expect("an entry").path();
            (std::fs::read_dir(&path).ok()?.count() > 0).then_some(path)
        });
        match files {
            Some(path) => return path,
            None => assert!(std::time::Instant::now() < deadline, "the run made no files"),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Starts a run, signals it once it has files, and returns its code and messages.
fn ended_by(sandbox: &Sandbox, words: &str, signal: &str) -> (Option<i32>, String) {
    let mut command = sandbox.command(words);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let run = command.spawn().expect("it starts");
    scratch(sandbox, "folder");
    let kill = std::process::Command::new("kill").args([signal, &run.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = run.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_interrupted_run_leaves_no_files() {
    let sandbox = with_profile();
    for words in [
        "lab run @folder --profile postmark --size 256MiB",
        "lab run @folder --profile bonnie --size 256MiB",
        "lab run @folder --profile @quick.toml --size 64MiB --seconds 20",
    ] {
        for signal in ["-TERM", "-INT"] {
            let (code, messages) = ended_by(&sandbox, words, signal);
            assert!(code == Some(1) && messages.contains("interrupted"), "{words}: {messages}");
            assert_eq!(entries(&sandbox, "folder"), 0, "{words}, {signal}");
        }
    }
    assert!(sandbox.json("lab list")["runs"].as_array().is_some_and(Vec::is_empty), "nothing was measured");
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let sandbox = with_profile();
    ended_by(&sandbox, "lab run @folder --profile postmark --size 256MiB", "-KILL");
    assert_eq!(entries(&sandbox, "folder"), 1, "nothing runs at SIGKILL");
    sandbox.ok(&format!("lab run @folder {QUICK} --size 8MiB"));
    assert_eq!(entries(&sandbox, "folder"), 0);
}

#[test]
fn files_are_sized_to_fit_and_the_target_is_named() {
    let sandbox = with_profile();
    let run = sandbox.json("lab run @folder --profile postmark --size 1MiB");
    let known = |name: &str| -> u64 {
        let text = run["environment"][name].as_str().expect(name);
        text.parse().expect("a number")
    };
    let most = known("files") * known("most_file_bytes");
    assert!(most < 2 << 20 && known("transactions") > known("files") / 2, "{run}");
    assert!(run["notes"][0].as_str().is_some_and(|note| note.contains("as --size asks")), "{run}");
    assert_eq!(run["target"], sandbox.path("folder").display().to_string());
    let blocks = sandbox.json(&format!("lab run @folder {QUICK} --size 8MiB"));
    assert_eq!(blocks["target"], sandbox.path("folder").display().to_string());
    let progress = sandbox.run("lab run @folder --profile postmark --size 1MiB").err;
    for phase in ["creating files", "running transactions", "deleting files"] {
        assert!(progress.contains(phase), "{phase}: {progress}");
    }
    let refused = sandbox.run("lab run @folder --profile postmark --size 900TiB");
    assert!(refused.code == 1 && refused.err.contains("do not fit"), "{}", refused.err);
}

#[test]
fn a_study_gives_its_tables_and_judges_its_findings() {
    let sandbox = Sandbox::new();
    let study = sandbox.json("lab study 004 --quick --model fixed:1ms,245MB/s,4 --out @out");
    assert_eq!(study["study"], "004");
    let row = &study["tables"][0]["rows"][0];
    assert_eq!(
        keys(row),
        [
            "ci95",
            "measured",
            "metric",
            "percent_of_single",
            "published",
            "published_percent_of_single",
            "row"
        ]
    );
    let verdicts: Vec<&str> = study["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| finding["verdict"].as_str().expect("a verdict"))
        .collect();
    for known in ["agrees", "cannot_tell", "not_modelled"] {
        assert!(verdicts.contains(&known), "{verdicts:?}");
    }
    for file in [
        "study-004.md",
        "study-004.json",
        "study-004.html",
        "study-004-charts/01.svg",
        "study-004-charts/01.png",
    ] {
        assert!(sandbox.path(&format!("out/{file}")).exists(), "{file}");
    }
    let page = std::fs::read_to_string(sandbox.path("out/study-004.html")).expect("the page");
    assert!(
        page.contains("published only") && page.contains("<svg") && !page.contains("http"),
        "it is complete"
    );
    assert_eq!(sandbox.run("lab study 005").code, 2);
}

/// Its medium gives 245 MB/s, its caches what its cable does.
#[test]
fn a_study_holds_a_model_to_its_media_rate() {
    let sandbox = Sandbox::new();
    // With a tenth of its caches, a tenth of its space is beyond them.
    let entry = include_str!("../../../../catalogue/drives/mg08ada400e.toml")
        .replace("read_segments = { value = 32", "read_segments = { value = 3")
        .replace("write_cache_mib = { value = 64", "write_cache_mib = { value = 8");
    std::fs::write(sandbox.path("small-caches.toml"), entry).expect("written");
    let study = sandbox.json("lab study 000 --quick --model @small-caches.toml --out @out");
    let rows = study["tables"][0]["rows"].as_array().expect("rows");
    let large =
        |row: &&Value| row["row"].as_str().is_some_and(|row| row.contains("SEQ1M") && row.contains("large"));
    let rates: Vec<f64> =
        rows.iter().filter(large).map(|row| row["measured"].as_f64().expect("a rate")).collect();
    assert!(rates.len() == 4 && rates.iter().all(|rate| (200.0..260.0).contains(rate)), "{rates:?}");
    let notes: Vec<&str> =
        study["notes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| note.contains("nothing was compared")), "{notes:?}");
    // 16 MiB are what the study calls small, and are within the drive's caches.
    assert!(notes.iter().any(|note| note.starts_with("caches take part in 32 of 64")), "{notes:?}");
}
