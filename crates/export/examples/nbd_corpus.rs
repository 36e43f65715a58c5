//! Writes the initial corpus for fuzzing the NBD parsers: well-formed clients, one file each.
//!
//! `cargo run -p stripewise-export --example nbd_corpus -- fuzz/corpus`; `make fuzz` does so.

use std::path::PathBuf;
use std::process::ExitCode;

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn requests() -> Vec<u8> {
    let request = |kind: u16| {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([0, 1]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(u64::from(kind).to_be_bytes());
        bytes.extend(4096_u64.to_be_bytes());
        bytes.extend(16_u32.to_be_bytes());
        bytes
    };
    let mut bytes = Vec::new();
    for kind in [0, 1, 3, 4, 5, 6, 7, 2] {
        bytes.extend(request(kind));
        bytes.extend(if kind == 1 { vec![7; 16] } else { Vec::new() });
    }
    bytes
}

fn main() -> ExitCode {
    let Some(corpus) = std::env::args().nth(1).map(PathBuf::from) else {
        eprintln!("usage: nbd_corpus FOLDER");
        return ExitCode::from(2);
    };
    let name = string("tank/a");
    let go = [&name[..], &[0, 3, 0, 1, 0, 2, 0, 3]].concat();
    let contexts = [&name[..], &[0, 0, 0, 2], &string("base:allocation"), &string("base:")].concat();
    let negotiations = [
        [option(8, b""), option(9, &contexts), option(10, &contexts), option(7, &go)].concat(),
        [option(3, b""), option(6, &go), option(2, b"")].concat(),
        option(1, b"tank/b"),
        [option(5, b""), option(8, b""), option(7, &go)].concat(),
    ];
    let folder = corpus.join("nbd");
    for (index, negotiation) in negotiations.iter().enumerate() {
        for choice in 0..3_u8 {
            let input = [&[choice, 0, 0, 0, 3], &negotiation[..], &requests()].concat();
            let path = folder.join(format!("client-{index}-{choice}"));
            if let Err(error) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
                eprintln!("cannot write {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{}: {} clients to begin with", folder.display(), 3 * negotiations.len());
    ExitCode::SUCCESS
}
