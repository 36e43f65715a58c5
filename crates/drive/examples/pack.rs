//! Packs a drive file into an image for the tests, or unpacks one to look at: `pack FILE IMAGE`,
//! `pack --unpack IMAGE FILE`.

use std::process::ExitCode;

use stripewise_drive::{Drive, MemoryDrive};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--unpack", image, file] => unpack(image, file),
        [file, image] => pack(file, image),
        _ => Err("usage: pack FILE IMAGE, or pack --unpack IMAGE FILE".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn write(path: &str, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| format!("cannot write {path}: {error}"))
}

fn pack(file: &str, image: &str) -> Result<(), String> {
    let bytes = read(file)?;
    if !bytes.len().is_multiple_of(512) {
        return Err(format!("{file} is no drive: {} bytes are no whole sectors", bytes.len()));
    }
    let drive = MemoryDrive::new(file, bytes.len() as u64);
    drive.poke(0, &bytes);
    write(image, &drive.pack())
}

fn unpack(image: &str, file: &str) -> Result<(), String> {
    let drive = MemoryDrive::unpack(image, &read(image)?).map_err(|why| format!("{image}: {why}"))?;
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    write(file, &bytes)
}
