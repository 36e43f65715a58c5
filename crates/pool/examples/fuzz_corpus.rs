//! Creates the fuzzers' initial corpus: pieces of the pool images in `tests/images`, one file each,
//! for every target of `fuzz/`.
//!
//! `cargo run -p stripewise-pool --example fuzz_corpus -- fuzz/corpus`; `make fuzz` runs it.
//! Files are named by their contents, so that a second run adds nothing.

#[path = "../tests/it/kit/images.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod images;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use images::{drives_in, folder};
use stripewise_drive::{Drive, MemoryDrive};

const BLOCK: usize = 4096;
/// Offset of the second slot on the drives of images, which are all small.
const SLOT: usize = 512 << 10;
/// Maximum pieces of a kind per drive; more add nothing.
const MOST: usize = 24;

fn main() -> ExitCode {
    let Some(corpus) = std::env::args().nth(1).map(PathBuf::from) else {
        eprintln!("usage: fuzz_corpus FOLDER");
        return ExitCode::from(2);
    };
    let mut pieces = 0;
    for version in std::fs::read_dir(folder()).expect("the folder of images") {
        for image in std::fs::read_dir(version.expect("an entry").path()).expect("images") {
            for drive in drives_in(&image.expect("an entry").path()) {
                for (target, piece) in pieces_of(&drive) {
                    if let Err(error) = keep(&corpus.join(target), &piece) {
                        eprintln!("cannot write below {}: {error}", corpus.display());
                        return ExitCode::FAILURE;
                    }
                    pieces += 1;
                }
            }
        }
    }
    println!("{pieces} pieces of images below {}", corpus.display());
    ExitCode::SUCCESS
}

fn pieces_of(drive: &Rc<MemoryDrive>) -> Vec<(&'static str, Vec<u8>)> {
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    let mut pieces = vec![("packed", drive.pack())];
    // A whole slot, without trailing zeros.
    for slot in [0, SLOT] {
        let used = bytes[slot..slot + SLOT].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        pieces.push(("drive", bytes[slot..slot + used].to_vec()));
    }
    let (mut pages, mut heads) = (0, 0);
    for at in (0..bytes.len()).step_by(BLOCK) {
        let block = &bytes[at..at + BLOCK];
        match block.first_chunk::<8>() {
            Some(b"SWCHKPNT" | b"SWCHANGE") => {
                let length = u32::from_le_bytes(block[28..32].try_into().expect("four bytes")) as usize;
                pieces.push(("sections", bytes[at + 64..at + 64 + length].to_vec()));
            }
            Some(b"SWJBATCH") if heads < MOST => {
                let length = u64::from_le_bytes(block[88..96].try_into().expect("eight bytes")) as usize;
                let end = (at + length.min(1 << 20)).min(bytes.len());
                pieces.push(("journal_head", bytes[at..end].to_vec()));
                heads += 1;
            }
            Some(b"STRPSUMS" | b"SWREGMAP") if pages < MOST => {
                pieces.push(("pages", block.to_vec()));
                pages += 1;
            }
            _ => {}
        }
    }
    pieces
}

fn keep(folder: &Path, piece: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, piece);
    std::fs::write(folder.join(format!("image-{sum:016x}")), piece)
}
