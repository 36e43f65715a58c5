//! Test files for the benchmarks: next to the build (usually on a disk) and in memory, filled with
//! incompressible bytes.

use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;

/// A test file, removed on drop.
pub struct TestFile {
    /// Name of the place in output.
    pub place: &'static str,
    pub path: PathBuf,
    pub size_bytes: u64,
    _directory: TempDir,
}

/// Creates a file on disk and, if requested and possible, one in memory, both completely written.
pub fn make(disk_bytes: u64, memory_bytes: Option<u64>) -> Vec<TestFile> {
    let places = [
        ("disk", env!("CARGO_TARGET_TMPDIR"), Some(disk_bytes)),
        ("memory (tmpfs)", "/dev/shm", memory_bytes),
    ];
    places
        .into_iter()
        .filter_map(|(place, directory, size_bytes)| {
            let size_bytes = size_bytes?;
            let directory = tempfile::tempdir_in(directory).ok()?;
            let path = directory.path().join("file");
            fill(&path, size_bytes).ok()?;
            Some(TestFile { place, path, size_bytes, _directory: directory })
        })
        .collect()
}

fn fill(path: &std::path::Path, size_bytes: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut chunk = vec![0_u8; 1 << 20];
    for _ in 0..size_bytes / chunk.len() as u64 {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()
}

/// Next number of a fixed pseudo-random sequence (xorshift64).
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
