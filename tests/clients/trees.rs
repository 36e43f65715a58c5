//! A folder full of files that come, grow, change, move and go at random, beside a copy in memory:
//! what a file system holds has to be what the copy says, at any moment and after everything was
//! unmounted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stripewise_drive::SplitMix64;

use crate::kit::unique_bytes;

/// Files at a time, and how long each may get.
const MAX_FILES: usize = 64;
const MAX_FILE_BYTES: u64 = 400_000;

/// The folder and its copy.
pub struct Tree {
    folder: PathBuf,
    random: SplitMix64,
    files: BTreeMap<String, Vec<u8>>,
    /// Changes so far.
    pub changes: u64,
    /// The longest that one of them took, and what it was.
    pub slowest: (Duration, &'static str),
}

impl Tree {
    /// Makes the folder, with four in it.
    pub fn new(folder: &Path, seed: u64) -> Self {
        for name in ["a", "b", "c", "d"] {
            std::fs::create_dir_all(folder.join(name)).expect("made");
        }
        Self {
            folder: folder.to_owned(),
            random: SplitMix64::new(seed),
            files: BTreeMap::new(),
            changes: 0,
            slowest: (Duration::ZERO, "nothing"),
        }
    }

    fn new_name(&mut self) -> String {
        let folder = ["a", "b", "c", "d"][self.random.below(4) as usize];
        format!("{folder}/{}", self.random.below(1 << 20))
    }

    fn any_name(&mut self) -> Option<String> {
        let count = self.files.len() as u64;
        (count > 0)
            .then(|| self.random.below(count))
            .and_then(|at| self.files.keys().nth(at as usize).cloned())
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        let length = 1 + self.random.below(MAX_FILE_BYTES / 2);
        unique_bytes(length as usize, self.random.next_u64())
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.folder.join(name)).expect("it is there")
    }

    /// One change, or one look.
    pub fn step(&mut self) {
        let begin = Instant::now();
        let chosen = self.any_name();
        let what = match (self.random.below(10), chosen) {
            (0..=2, _) | (_, None) if self.files.len() < MAX_FILES => {
                let (name, bytes) = (self.new_name(), self.some_bytes());
                std::fs::write(self.folder.join(&name), &bytes).expect("written");
                self.files.insert(name, bytes);
                "a new file"
            }
            (3 | 4, Some(name)) => {
                self.overwrite(&name);
                "a write"
            }
            (5, Some(name)) => {
                self.cut(&name);
                "a new length"
            }
            (6, Some(name)) => {
                let to = if self.random.below(4) == 0 { self.any_name() } else { None };
                let to = to.unwrap_or_else(|| self.new_name());
                std::fs::rename(self.folder.join(&name), self.folder.join(&to)).expect("moved");
                let bytes = self.files.remove(&name).expect("known");
                self.files.insert(to, bytes);
                "a new name"
            }
            (7, Some(name)) => {
                self.open(&name).sync_all().expect("durable");
                "fsync"
            }
            (8, Some(name)) => {
                self.expect_file(&name);
                "a read"
            }
            (_, Some(name)) => {
                std::fs::remove_file(self.folder.join(&name)).expect("gone");
                self.files.remove(&name);
                "a removal"
            }
            (_, None) => "nothing",
        };
        self.changes += 1;
        self.slowest = self.slowest.max((begin.elapsed(), what));
    }

    fn overwrite(&mut self, name: &str) {
        let bytes = self.some_bytes();
        let at = self.random.below(MAX_FILE_BYTES / 2) as usize;
        self.open(name).write_all_at(&bytes, at as u64).expect("written");
        let copy = self.files.get_mut(name).expect("known");
        let end = copy.len().max(at + bytes.len());
        copy.resize(end, 0);
        copy[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    fn cut(&mut self, name: &str) {
        let length = self.random.below(MAX_FILE_BYTES);
        self.open(name).set_len(length).expect("cut");
        self.files.get_mut(name).expect("known").resize(length as usize, 0);
    }

    fn expect_file(&self, name: &str) {
        let read = std::fs::read(self.folder.join(name)).expect("there");
        let copy = &self.files[name];
        let differs = read.iter().zip(copy).position(|(read, copy)| read != copy);
        assert!(read == *copy, "{name}: {} of {} bytes, differs at {differs:?}", read.len(), copy.len());
    }

    /// Every file and nothing else is there.
    pub fn expect_all(&self) {
        let mut names = Vec::new();
        for folder in ["a", "b", "c", "d"] {
            for entry in std::fs::read_dir(self.folder.join(folder)).expect("a folder") {
                let name = entry.expect("an entry").file_name().into_string().expect("text");
                names.push(format!("{folder}/{name}"));
            }
        }
        names.sort();
        assert_eq!(names, self.files.keys().cloned().collect::<Vec<_>>());
        self.files.keys().for_each(|name| self.expect_file(name));
    }
}
