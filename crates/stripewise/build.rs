//! Compresses the files of the web console (`web/`) and makes the table that
//! `http/console/assets.rs` includes: name, kind and bytes of each. A hash over all of them is part
//! of their address, so that browsers keep them for as long as they are the same.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    let web = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={}", web.display());
    let mut files = Vec::new();
    collect(&web, &web, &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let hash = format!("{:016x}", hasher.finish());

    let mut table = format!("const HASH: &str = \"{hash}\";\nconst ASSETS: &[Asset] = &[\n");
    for (index, (name, bytes)) in files.iter().enumerate() {
        let bytes = match name.as_str() {
            "index.html" => page(bytes, &files, &hash),
            _ => bytes.clone(),
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes).expect("memory takes it");
        let path = out.join(format!("{index}.gz"));
        fs::write(&path, encoder.finish().expect("memory takes it")).expect("OUT_DIR is writable");
        let kind = kind(name);
        writeln!(table, "    Asset {{ name: {name:?}, kind: {kind:?}, bytes: include_bytes!({path:?}) }},")
            .expect("text takes it");
    }
    table.push_str("];\n");
    fs::write(out.join("assets.rs"), table).expect("OUT_DIR is writable");
}

/// Files that browsers ask for, by their path below `web/`.
fn collect(folder: &Path, web: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("web/ is part of the source") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            collect(&path, web, files);
            continue;
        }
        let name = path.strip_prefix(web).expect("it is below").to_str().expect("names are plain");
        if ["html", "css", "js", "svg"].iter().any(|end| name.ends_with(&format!(".{end}"))) {
            files.push((name.to_owned(), fs::read(&path).expect("it can be read")));
        }
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

/// The first page: with the address of the files, and all modules, which are loaded at once.
fn page(bytes: &[u8], files: &[(String, Vec<u8>)], hash: &str) -> Vec<u8> {
    let folder = format!("/console/assets/{hash}");
    let modules = files.iter().map(|(name, _)| name).filter(|name| name.ends_with(".js"));
    let loaded = modules.map(|name| format!("<link rel=\"modulepreload\" href=\"{folder}/{name}\">\n"));
    let text = std::str::from_utf8(bytes).expect("pages are text");
    text.replace("{modules}", &loaded.collect::<String>()).replace("{assets}", &folder).into_bytes()
}
