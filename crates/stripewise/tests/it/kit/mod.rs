//! Runs the program in a temporary directory per test, with its own `STRIPEWISE_HOME`.

#![allow(dead_code, reason = "every test file uses its own part of this")]

pub mod daemon;
pub mod mount;
pub mod nbd_servers;
pub mod programs;
pub mod web;

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde_json::Value;

/// Size of the drives in most tests: large enough for a pool, small enough to be quick.
pub const DRIVE_SIZE: &str = "32MiB";

/// Time limit of a command, after which it is killed and the test fails.
const COMMAND_PATIENCE: Duration = Duration::from_secs(300);

/// The temporary directory of a test.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// Output of a command.
pub struct Answer {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
    shown: String,
}

impl Sandbox {
    /// Creates an empty directory on the disk of the build: the system's temporary directory may be
    /// in memory, without O_DIRECT.
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test");
        Self { folder }
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the directory, as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary names are plain").to_owned()
    }

    /// Runs the program with these arguments; `@name` is a path in the directory.
    pub fn run(&self, words: &str) -> Answer {
        self.run_with_input(words, b"")
    }

    /// As [`Self::run`], with bytes on standard input.
    pub fn run_with_input(&self, words: &str, input: &[u8]) -> Answer {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_vec();
        // A program that fails early does not read all its input.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let number = child.id().to_string();
        let (ended, watched) = std::sync::mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if watched.recv_timeout(COMMAND_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &number]).status();
            }
        });
        let output = child.wait_with_output().expect("the program ends");
        drop(ended);
        watchdog.join().expect("no panic");
        writer.join().expect("no panic");
        let code = output.status.code().unwrap_or_else(|| panic!("`{words}` ended by {:?}", output.status));
        let err = String::from_utf8(output.stderr).expect("messages are text");
        assert!(!err.contains("panicked"), "`{words}` panicked:\n{err}");
        Answer { code, out: output.stdout, err, shown: words.to_owned() }
    }

    /// The program with these arguments, for the test to start.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
        let words = words.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(name) => self.text(name),
            None => word.to_owned(),
        });
        command.args(words).current_dir(self.folder.path()).env("STRIPEWISE_HOME", self.path("home"));
        command.env("NO_COLOR", "1").env_remove("COLUMNS").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program, which must succeed.
    pub fn ok(&self, words: &str) -> Answer {
        self.run(words).expect_code(0)
    }

    /// Runs the program with `--json`, which must succeed. Returns the document.
    pub fn json(&self, words: &str) -> Value {
        self.ok(&format!("{words} --json")).json()
    }

    /// Runs the program, which must fail. Returns its standard error.
    pub fn fails(&self, words: &str) -> String {
        self.run(words).expect_code(1).err
    }

    /// Creates `count` drives @d/drive0.img … and a pool `tank` on them.
    pub fn pool(&self, count: usize) {
        self.ok(&format!("drive make @d --count {count} --size {DRIVE_SIZE}"));
        let drives: Vec<String> = (0..count).map(|index| format!("@d/drive{index}.img")).collect();
        self.ok(&format!("pool create tank {}", drives.join(" ")));
    }

    /// Writes bytes into a volume.
    pub fn write(&self, volume: &str, offset: u64, bytes: &[u8]) {
        self.run_with_input(&format!("volume write {volume} --offset {offset}"), bytes).expect_code(0);
    }

    /// Reads bytes of a volume.
    pub fn read(&self, volume: &str, offset: u64, length: usize) -> Vec<u8> {
        let answer = self.ok(&format!("volume read {volume} --offset {offset} --length {length}"));
        assert_eq!(answer.out.len(), length, "all bytes asked for");
        answer.out
    }

    /// True if reading the volume fails.
    pub fn read_fails(&self, volume: &str) -> bool {
        self.run(&format!("volume read {volume} --offset 0 --length 512")).code != 0
    }

    /// Offset of `data` in a drive's file, found by searching for its start.
    pub fn place_of(&self, drive: usize, data: &[u8]) -> u64 {
        let bytes = std::fs::read(self.drive_path(drive)).expect("readable");
        let mut blocks = bytes.chunks_exact(4096).enumerate();
        let windows: HashSet<&[u8]> = data.windows(64).collect();
        let of_volume = |block: &[u8]| windows.contains(&block[1024..1088]);
        let found =
            blocks.find(|(index, block)| *index > 300 && block[1024..1088] != [0; 64] && of_volume(block));
        found.expect("some of the data is on every drive").0 as u64 * 4096
    }

    /// Path of the drive at this index of `pool status`.
    pub fn drive_path(&self, index: usize) -> PathBuf {
        self.path(&format!("d/drive{index}.img"))
    }
}

/// A text on one line: texts wrap in other places where paths are longer.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Answer {
    /// Asserts the exit code.
    pub fn expect_code(self, code: i32) -> Self {
        let out = String::from_utf8_lossy(&self.out[..self.out.len().min(2000)]);
        assert_eq!(self.code, code, "exit code of `{}`; standard error:\n{}\n{out}", self.shown, self.err);
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    /// Standard output as [`one_line`].
    pub fn one_line(&self) -> String {
        one_line(self.text())
    }

    /// The one JSON document on standard output.
    pub fn json(&self) -> Value {
        let document: Value = serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("`{}`: {error}:\n{}", self.shown, self.text()));
        assert_eq!(document["output_version"], 1);
        document
    }
}

/// Reproducible bytes that do not repeat and do not compress.
pub fn unique_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The keys of a JSON object, sorted.
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Flips every bit of a range of a file, behind the program's back.
pub fn corrupt(path: &Path, offset: u64, length: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the drive's file");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).expect("within the drive");
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&bytes, offset).expect("written");
}
