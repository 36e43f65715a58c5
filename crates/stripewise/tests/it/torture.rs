//! `simulate torture` as scripts call it: names, keys and exit codes.

use crate::kit::{Sandbox, keys};

#[test]
fn torture_prints_its_keys_and_leaves_no_files() {
    let sandbox = Sandbox::new();
    let words = "--json --quiet simulate torture --seed 5 --runs 3";
    let answer = sandbox.run(words);
    let report: serde_json::Value = serde_json::from_slice(&answer.out).expect("one JSON document");
    assert_eq!(keys(&report), ["coverage", "failures", "first_seed", "output_version", "runs"]);
    assert_eq!((&report["first_seed"], &report["runs"]), (&5.into(), &3.into()));
    let promised = [
        "bit_rot",
        "conversions",
        "drive_losses",
        "interrupted_rebuilds",
        "latent_errors",
        "lost_writes",
        "misdirected_writes",
        "power_cuts",
        "torn_writes",
    ];
    let counted = keys(&report["coverage"]);
    assert!(promised.iter().all(|key| counted.iter().any(|counted| counted == key)), "{counted:?}");
    assert!(report["coverage"]["power_cuts"].as_u64().is_some_and(|cuts| cuts > 0));
    let is_broken = report["failures"].as_array().is_some_and(|failures| !failures.is_empty());
    assert_eq!(answer.code, i32::from(is_broken), "{report:#}");
    assert_eq!(sandbox.run(words).out, answer.out, "the same seeds, the same report");
    assert!(!sandbox.path("home").exists(), "nothing to remember");
}

#[test]
fn torture_without_runs_is_a_usage_error() {
    assert_eq!(Sandbox::new().run("simulate torture --runs 0").code, 2);
}

#[test]
fn a_mutation_is_found_or_refused() {
    let answer = Sandbox::new().run("simulate torture --mutation replay-without-redo --runs 8");
    let (said, found) = (answer.err, answer.out);
    assert_eq!(answer.code, 1, "{said}");
    // `scripts/shipped.sh` asks the same of the release build.
    match cfg!(debug_assertions) {
        true => assert!(String::from_utf8_lossy(&found).contains("to see it"), "{said}"),
        false => assert!(said.contains("cannot be broken") && said.contains("hint:"), "{said}"),
    }
    let unknown = Sandbox::new().run("simulate torture --mutation nothing --runs 1");
    let said = unknown.err;
    assert_eq!(unknown.code, 2, "{said}");
    assert!(said.contains("release-before-flush"), "{said}");
    let unknown = Sandbox::new().run("simulate torture --focus nothing --runs 1");
    assert!(unknown.code == 2 && unknown.err.contains("refused-flushes"), "{}", unknown.err);
}
