//! Checks that files of a crate do not import each other in a circle, except a file and those in
//! its own folder: files in a circle can be understood, tested and changed only together.
//!
//! Considers the paths that files name, in `use` lines and elsewhere, up to where a name is
//! defined: a file that passes names on hides no circle. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that are checked: all of them.
const CRATES: &[&str] = &[
    "array",
    "control",
    "drive",
    "export",
    "lab",
    "layout",
    "log",
    "model",
    "parity",
    "pool",
    "runtime",
    "stripewise",
    "torture",
];

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_import_circle_beyond_a_file_and_its_own_folder() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in CRATES {
        let circles = circles(&graph(&crates.join(name).join("src")));
        assert!(circles.is_empty(), "import circles in the crate {name}: {circles:?}");
    }
}

#[test]
fn circles_are_found_except_within_a_folder() {
    let graph = |edges: &[(&str, &str)]| -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            graph.entry((*to).to_owned()).or_default();
        }
        graph
    };
    let is_found = |edges: &[(&str, &str)]| !circles(&graph(edges)).is_empty();
    assert!(is_found(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    assert!(!is_found(&[("a", "b"), ("b", "c"), ("a", "c")]));
    assert!(is_kin("a", "a/b") && is_kin("a/b", "a") && !is_kin("a", "ab") && !is_kin("a/b", "a/c"));
    let named = |text: &str| paths(text, "a/b");
    let all: Vec<String> = named("use crate::{c::{D, e::F}, g};").into_iter().collect();
    assert_eq!(all, ["c/D/", "c/e/F/", "g/"]);
    assert!(named("fn f() { super::h::i() }").contains("a/h/i/"));
    assert!(named("// use crate::z;").is_empty());
    assert!(named("#[cfg(test)]\nmod tests {\n    use crate::z;\n}").is_empty());
}

/// The files that each file names, by their paths without extension.
fn graph(source: &Path) -> Graph {
    let mut files = BTreeMap::new();
    collect(source, source, &mut files);
    let is_test = |file: &str| file.split('/').any(|part| part == "tests" || part == "testing");
    let passed_on: BTreeMap<String, BTreeSet<String>> =
        files.iter().map(|(file, text)| (file.clone(), paths(&exports(text), file))).collect();
    let mut graph = Graph::new();
    for (file, text) in files.iter().filter(|(file, _)| !is_test(file)) {
        let mut named = BTreeSet::new();
        named.extend(paths(text, file).iter().filter_map(|path| defined_in(path, &files, &passed_on)));
        named.retain(|other| other != file && !is_test(other) && !is_kin(file, other));
        graph.insert(file.clone(), named);
    }
    graph
}

/// The `use` lines of a file by which it passes on names of other files.
fn exports(text: &str) -> String {
    let lines = text.split_inclusive(';').filter_map(|statement| {
        let (_, used) =
            statement.rsplit_once("\npub").filter(|(_, used)| !used.contains('\n') || used.contains('{'))?;
        let used = used.strip_prefix("(crate)").or(used.strip_prefix("(super)")).unwrap_or(used);
        let used = used.strip_prefix(" use ")?;
        // Paths within the folder begin with the name of a module.
        let is_plain = !["crate::", "super::", "self::"].iter().any(|word| used.starts_with(word));
        Some(format!("use {}{used}\n", if is_plain { "self::" } else { "" }))
    });
    lines.collect()
}

/// The file in which a path is defined: that of the longest prefix, or, where that file only passes
/// the name on, the one that it has it from.
fn defined_in(
    path: &str,
    files: &BTreeMap<String, String>,
    passed_on: &BTreeMap<String, BTreeSet<String>>,
) -> Option<String> {
    let mut path = path.to_owned();
    // A name is passed on a few times at most.
    for _ in 0..8 {
        let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        let file = (1..=parts.len())
            .rev()
            .map(|count| parts[..count].join("/"))
            .find(|file| files.contains_key(file))?;
        let rest = path.strip_prefix(&format!("{file}/")).unwrap_or_default();
        let name = rest.split('/').next().unwrap_or_default();
        let ending = format!("/{name}/");
        let source = passed_on[&file].iter().find(|used| !name.is_empty() && used.ends_with(&ending));
        match source.filter(|source| **source != path) {
            Some(source) => path = source.clone(),
            None => return Some(file),
        }
    }
    None
}

fn collect(source: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(source, &path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let inside = path.strip_prefix(source).expect("within the source").with_extension("");
            let name = inside.to_str().expect("a plain name").to_owned();
            let name = name.strip_suffix("/mod").map(str::to_owned).unwrap_or(name);
            if !["lib", "main"].contains(&&*name) {
                files.insert(name, fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
}

/// True if one of two files lies in the folder of the other.
fn is_kin(one: &str, other: &str) -> bool {
    let is_in =
        |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    is_in(one, other) || is_in(other, one)
}

/// Paths within the crate that a file names, relative to the crate, each with `/` after every part.
fn paths(text: &str, file: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .fold(String::new(), |all, line| all + line + "\n");
    let end = ["#[cfg(test)]\nmod tests {", "#[cfg(all(test, debug_assertions))]\nmod tests {"]
        .iter()
        .filter_map(|tests| code.find(tests))
        .min();
    let code = &code[..end.unwrap_or(code.len())];
    let mut found = BTreeSet::new();
    for (word, levels_up) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
                continue;
            }
            let mut base: Vec<&str> = match levels_up {
                None => Vec::new(),
                Some(levels) => {
                    let parts: Vec<&str> = file.split('/').collect();
                    parts[..parts.len() - levels].to_vec()
                }
            };
            let mut rest = &code[at + word.len()..];
            while let Some(further) = rest.strip_prefix("super::") {
                base.pop();
                rest = further;
            }
            let base = base.iter().map(|part| format!("{part}/")).collect::<String>();
            expand(rest, &base, &mut found);
        }
    }
    found
}

/// Adds the path that a text begins with, groups in braces one by one. Returns the rest of the
/// text.
fn expand<'a>(text: &'a str, base: &str, found: &mut BTreeSet<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(further) => rest = further,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    if end == 0 {
        found.insert(base.to_owned());
        return text.strip_prefix('*').unwrap_or(text);
    }
    let path = format!("{base}{}/", &text[..end]);
    let rest = &text[end..];
    if let Some(further) = rest.strip_prefix("::") {
        return expand(further, &path, found);
    }
    found.insert(path);
    rest.strip_prefix(" as ").map_or(rest, |named| named.trim_start_matches(char::is_alphanumeric))
}

/// Groups of files that reach each other.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reached_from(graph, file))).collect();
    let reaches = |from: &str, to: &str| reached[from].contains(to);
    let mut circles: Vec<Vec<String>> = Vec::new();
    for file in graph.keys().filter(|file| reaches(file, file)) {
        if !circles.iter().any(|circle| circle.contains(file)) {
            let is_with = |other: &&String| reaches(file, other) && reaches(other, file);
            circles.push(graph.keys().filter(is_with).cloned().collect());
        }
    }
    circles
}

fn reached_from<'a>(graph: &'a Graph, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = graph[file].iter().map(|other| &**other).collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(graph[file].iter().map(|other| &**other));
        }
    }
    reached
}
