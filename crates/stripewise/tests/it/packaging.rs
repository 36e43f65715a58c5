//! Manual pages, completions in shells, and files for Prometheus and Grafana.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kit::Sandbox;

#[test]
fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::new();
    let written = sandbox.json("man @pages");
    let names = fs::read_dir(sandbox.path("pages"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain names"));
    let names: BTreeSet<String> = names.collect();
    assert_eq!(written["pages"].as_u64().unwrap(), names.len() as u64);
    for page in ["stripewise.1", "stripewise-pool-create.1", "stripewise-volume-convert.1"] {
        assert!(names.contains(page), "{page}: {names:?}");
    }
    for name in &names {
        let page = fs::read_to_string(sandbox.path("pages").join(name)).expect("text");
        assert!(page.contains(".TH stripewise") && page.contains(".SH SYNOPSIS"), "{name}:\n{page}");
    }
    let create = fs::read_to_string(sandbox.path("pages/stripewise-pool-create.1")).unwrap();
    assert!(create.contains("\\-\\-force"), "{create}");
    fs::write(sandbox.path("file"), "").unwrap();
    let error = sandbox.fails("man @file");
    assert!(error.contains("cannot write manual pages") && error.contains("hint: "), "{error}");
}

/// Completions that bash offers for a command line whose last word is being typed.
fn completed(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_BIN_EXE_stripewise")).parent().unwrap().to_str().unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "PATH={folder}:$PATH; . <(stripewise completions bash); COMP_WORDS=({}); \
         COMP_CWORD={}; COMP_TYPE=9; _clap_complete_stripewise stripewise; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("STRIPEWISE_HOME", sandbox.path("home")).stdin(Stdio::null());
    let output = bash.output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
    String::from_utf8(output.stdout).expect("text").lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn shells_complete_commands_and_names() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/data --layout raid5 --size 8MiB");
    let complete = |words: &[&str]| completed(&sandbox, words);
    assert!(complete(&["stripewise", "pool", "rep"]).contains(&"replace".to_owned()));
    assert_eq!(complete(&["stripewise", "pool", "status", ""])[0], "tank");
    assert_eq!(complete(&["stripewise", "volume", "show", "ta"])[0], "tank/data");
    let drive = sandbox.text("d/drive1.img");
    fs::rename(&drive, sandbox.path("d/elsewhere.img")).unwrap();
    let begun = &drive[..drive.len() - 5];
    let known = complete(&["stripewise", "pool", "replace", "tank", begun]);
    assert!(known.contains(&drive), "a missing drive is completed too: {known:?}");
    for shell in ["zsh", "fish"] {
        let script = sandbox.json(&format!("completions {shell}"));
        assert!(script["script"].as_str().unwrap().contains("STRIPEWISE_COMPLETE"), "{script}");
    }
    assert_eq!(sandbox.run("completions powershell").code, 2);
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let documented = include_str!("../../../../docs/daemon.md");
    let documented: BTreeSet<&str> =
        documented.split('`').filter(|word| word.starts_with("stripewise_")).collect();
    for file in ["prometheus/stripewise.rules.yml", "grafana/stripewise.json"] {
        let text = fs::read_to_string(dist.join(file)).expect("a file");
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let names = text.split(|c| !is_part(c)).filter(|word| word.starts_with("stripewise_"));
        let mut count = 0;
        for name in names {
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
            assert!(documented.contains(family.unwrap_or(name)), "{file}: {name} is not in docs/daemon.md");
            count += 1;
        }
        assert!(count > 5, "{file}: {count} metrics");
    }
    let dashboard = fs::read(dist.join("grafana/stripewise.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an ID of its own");
    for panel in panels {
        assert!(panel["targets"].as_array().is_some_and(|all| !all.is_empty()), "{panel}");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_number(), "{panel}");
    }
    let rules = dist.join("prometheus/stripewise.rules.yml");
    match Command::new("promtool").args(["check", "rules"]).arg(rules).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => println!("skipped: no promtool"),
    }
}
