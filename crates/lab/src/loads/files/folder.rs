//! Files in a directory of the system. Calls block: a method on files is one process doing one
//! thing after the other.
//!
//! Expects a directory that fills up and files that others remove. Everything lies in one temporary
//! folder.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::FileStore;
use crate::loads::scratch::Scratch;

/// Longest piece written or read at once.
const MOST_BYTES: usize = 1 << 20;

/// A folder of files.
pub struct Folder {
    scratch: Scratch,
    /// Content of writes; incompressible.
    content: Vec<u8>,
    /// One file may stay open, as bonnie's does.
    open: RefCell<HashMap<u64, File>>,
    keeps_open: bool,
}

impl Folder {
    /// A new folder inside `parent`. With `keeps_open` files stay open between calls (bonnie); else
    /// each call opens and closes its file (PostMark).
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new(parent: &Path, keeps_open: bool) -> io::Result<Self> {
        let scratch = Scratch::new(parent)?;
        let mut random = crate::loads::workload::random_stream(0xf01d, 0);
        let content = (0..MOST_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        Ok(Self { scratch, content, open: RefCell::default(), keeps_open })
    }

    fn name(&self, number: u64) -> PathBuf {
        self.scratch.path().join(number.to_string())
    }

    fn with<T>(&self, number: u64, work: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        if let Some(file) = self.open.borrow_mut().get_mut(&number) {
            return work(file);
        }
        let mut file = OpenOptions::new().read(true).write(true).open(self.name(number))?;
        let result = work(&mut file);
        if self.keeps_open {
            self.open.borrow_mut().insert(number, file);
        }
        result
    }

    fn piece(&self, block_bytes: u64, left_bytes: u64) -> &[u8] {
        let length = block_bytes.clamp(1, MOST_BYTES as u64).min(left_bytes);
        &self.content[..length as usize]
    }
}

impl FileStore for Folder {
    type Error = io::Error;

    async fn create(&self, number: u64) -> io::Result<()> {
        File::create_new(self.name(number)).map(drop)
    }

    async fn append(&self, number: u64, bytes: u64, block_bytes: u64) -> io::Result<()> {
        self.with(number, |file| {
            file.seek(SeekFrom::End(0))?;
            let mut left_bytes = bytes;
            while left_bytes > 0 {
                let piece = self.piece(block_bytes, left_bytes);
                file.write_all(piece)?;
                left_bytes -= piece.len() as u64;
            }
            Ok(())
        })
    }

    async fn read(&self, number: u64, offset_bytes: u64, bytes: u64, block_bytes: u64) -> io::Result<()> {
        let mut buffer = vec![0; block_bytes.clamp(1, MOST_BYTES as u64) as usize];
        self.with(number, |file| {
            file.seek(SeekFrom::Start(offset_bytes))?;
            let mut left_bytes = bytes;
            while left_bytes > 0 {
                let wanted = left_bytes.min(buffer.len() as u64) as usize;
                match file.read(&mut buffer[..wanted])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => left_bytes -= read as u64,
                }
            }
            Ok(())
        })
    }

    async fn visit(
        &self,
        number: u64,
        offset_bytes: u64,
        block_bytes: u64,
        write_back: bool,
    ) -> io::Result<()> {
        let mut buffer = vec![0; block_bytes as usize];
        self.with(number, |file| {
            file.seek(SeekFrom::Start(offset_bytes))?;
            file.read_exact(&mut buffer)?;
            if write_back {
                buffer[0] ^= 1;
                file.seek(SeekFrom::Start(offset_bytes))?;
                file.write_all(&buffer)?;
            }
            Ok(())
        })
    }

    /// Each visitor is a thread with the file open for itself, as bonnie's are processes.
    async fn visit_by(
        &self,
        visitors: usize,
        number: u64,
        places: &[(u64, bool)],
        block_bytes: u64,
    ) -> io::Result<()> {
        let (next, name) = (AtomicUsize::new(0), self.name(number));
        let visitor = || {
            let file = OpenOptions::new().read(true).write(true).open(&name)?;
            let mut buffer = vec![0; block_bytes as usize];
            while let Some((offset_bytes, write_back)) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                file.read_exact_at(&mut buffer, *offset_bytes)?;
                if *write_back {
                    buffer[0] ^= 1;
                    file.write_all_at(&buffer, *offset_bytes)?;
                }
            }
            Ok(())
        };
        std::thread::scope(|threads| {
            let started: Vec<_> = (0..visitors).map(|_| threads.spawn(visitor)).collect();
            started.into_iter().try_for_each(|one| one.join().expect("visitors do not panic"))
        })
    }

    async fn delete(&self, number: u64) -> io::Result<()> {
        self.open.borrow_mut().remove(&number);
        std::fs::remove_file(self.name(number))
    }

    async fn sync(&self) -> io::Result<()> {
        for file in self.open.borrow().values() {
            file.sync_all()?;
        }
        File::open(self.scratch.path())?.sync_all()
    }
}
