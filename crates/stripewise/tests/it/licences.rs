//! All dependencies have permissive licences, without conditions that a user of an MIT-licensed
//! program does not expect.

use std::process::Command;

use serde_json::Value;

/// Licences whose only condition is to include their text.
const PERMISSIVE: [&str; 13] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    // A licence for data: the list of certificate authorities that browsers trust.
    "CDLA-Permissive-2.0",
];

/// True if permissive licences alone satisfy the expression: every operand of AND has a permissive
/// alternative.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let choice = |text: &str| PERMISSIVE.contains(&text.trim_matches(|c| " ()".contains(c)));
    expression.split(" AND ").all(|part| part.split(" OR ").any(choice))
}

#[test]
fn licence_expressions_are_parsed() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert!(is_permissive(good), "{good}");
    }
    for bad in ["GPL-2.0-only", "MIT AND GPL-2.0-only", "MPL-2.0", ""] {
        assert!(!is_permissive(bad), "{bad}");
    }
}

#[test]
fn all_dependencies_are_permissive() {
    // Only for this platform: other dependencies may not be downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.len() > 20, "all packages are listed");
    let others: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_permissive))
        .map(|package| format!("{} {}", package["name"], package["license"]))
        .collect();
    assert!(others.is_empty(), "not permissive, or not stated: {others:?}");
}
