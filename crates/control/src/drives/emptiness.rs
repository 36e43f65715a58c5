//! Detection of empty drives: unrecognised data must not count as empty.
//!
//! Of a file, all allocated parts are read. Block devices, volumes and exports have no such map:
//! the first and last 16 MiB and samples between them are read.
//!
//! Expected faults: read errors (an error, not "empty"), and callers that leave during a long
//! search (it ends).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use stripewise_drive::{Buffer, Drive, IoRequest};
use stripewise_pool::{PIECE_BYTES, pieces, sampled_places};
use stripewise_runtime::next_data;

use crate::failure::{Failure, Result};

/// Maximum concurrent requests to a drive.
const AT_A_TIME: usize = 4;

/// Words for data that no format explains.
pub const UNKNOWN_DATA: &str = "data of an unknown kind";

/// Contents that overwriting a drive would destroy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// File systems and the like, with their articles, to go behind "holds".
    pub recognised: Vec<String>,
    /// Data of an unknown kind.
    pub has_unknown: bool,
}

impl Contents {
    /// True if overwriting the drive destroys nothing.
    pub fn is_empty(&self) -> bool {
        self.recognised.is_empty() && !self.has_unknown
    }

    /// All of it, to go behind "holds".
    pub fn in_words(&self) -> Vec<String> {
        let unknown = self.has_unknown.then(|| UNKNOWN_DATA.to_owned());
        self.recognised.iter().cloned().chain(unknown).collect()
    }
}

/// True if a file holds anything but zeros. `stop` ends the search early, with an error.
pub(crate) fn file_holds_data(file: &File, stop: &AtomicBool) -> io::Result<bool> {
    let mut from = 0;
    while let Some(part) = next_data(file, from)? {
        from = part.end;
        if any_data(file, pieces(part), stop)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As [`file_holds_data`], from the ends and samples, for devices, which have no map.
pub(crate) fn samples_hold_data(file: &File, size_bytes: u64, stop: &AtomicBool) -> io::Result<bool> {
    any_data(file, sampled_places(size_bytes), stop)
}

/// As [`file_holds_data`], from the ends and samples, for a drive without a path.
pub(crate) async fn drive_holds_data(drive: &dyn Drive) -> Result<bool> {
    let info = drive.info();
    let reads = sampled_places(info.capacity_bytes).map(|piece| async move {
        let bytes = Buffer::from_bytes(&vec![0; (piece.end - piece.start) as usize]);
        let read = drive.submit(IoRequest::read(piece.start, bytes.clone())).await;
        read.map_err(|error| Failure::because(format!("cannot read {}", info.label), &error))?;
        Ok::<_, Failure>(!bytes.with(is_zero).expect("real drives give real bytes"))
    });
    let mut reads = futures_util::stream::iter(reads).buffered(AT_A_TIME);
    while let Some(holds) = reads.next().await {
        if holds? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn any_data(file: &File, pieces: impl Iterator<Item = Range<u64>>, stop: &AtomicBool) -> io::Result<bool> {
    let mut bytes = vec![0; PIECE_BYTES as usize];
    for piece in pieces {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let bytes = &mut bytes[..(piece.end - piece.start) as usize];
        match file.read_exact_at(bytes, piece.start) {
            Ok(()) if is_zero(bytes) => {}
            Ok(()) => return Ok(true),
            // The file was truncated during the search: treated as data.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use stripewise_drive::MemoryDrive;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    fn file_with(size_bytes: u64, places: &[u64]) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(size_bytes).expect("room");
        for place in places {
            file.write_all_at(b"x", *place).expect("written");
        }
        file
    }

    fn holds(file: &File) -> bool {
        file_holds_data(file, &AtomicBool::new(false)).expect("readable")
    }

    #[test]
    fn one_byte_anywhere_in_a_file_is_data() {
        const SIZE: u64 = 40 << 30;
        assert!(!holds(&file_with(SIZE, &[])));
        for place in [0, 65_536, 17 << 20, SIZE / 2 + 12_345, SIZE - 1] {
            assert!(holds(&file_with(SIZE, &[place])), "{place}");
        }
        let zeros = file_with(0, &[]);
        zeros.write_all_at(&vec![0; 3 << 20], 0).expect("written");
        assert!(!holds(&zeros), "written zeros are zeros");
    }

    #[test]
    fn a_search_ends_when_it_is_stopped() {
        let file = file_with(8 << 20, &[4 << 20]);
        assert!(file_holds_data(&file, &AtomicBool::new(true)).is_err());
    }

    #[test]
    fn both_ends_and_samples_of_a_device_count() {
        const SIZE: u64 = (1 << 30) + 512;
        let stop = AtomicBool::new(false);
        let seen = |place| samples_hold_data(&file_with(SIZE, &[place]), SIZE, &stop).expect("readable");
        assert!(!samples_hold_data(&file_with(SIZE, &[]), SIZE, &stop).expect("readable"));
        for place in [0, SIZE - 1] {
            assert!(seen(place), "{place}");
        }
    }

    #[test]
    fn drives_that_are_no_paths_are_read_alike() {
        let executor = VirtualExecutor::new();
        let drive = MemoryDrive::new("drive", 64 << 20);
        let looked = |drive: &MemoryDrive| executor.block_on(drive_holds_data(drive)).expect("readable");
        assert!(!looked(&drive));
        drive.poke(63 << 20, &[7]);
        assert!(looked(&drive));
    }
}
