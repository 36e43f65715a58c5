//! The contents of a volatile cache after a power cut: the version of each sector, decided by seed.
//!
//! Only flushes order writes, so every sector that is not durable may hold any version since it
//! last was. Sectors drawn independently would almost never produce the cases that break file
//! systems and arrays in practice (all of one request but nothing of the other; everything up to
//! some point), so a cut first draws its manner:
//!
//! - half of the cuts: each sector alone, kept with a probability drawn for the whole cut, else
//!   reverted to any older version;
//! - a fifth: each request whole or not at all;
//! - a fifth: everything up to some request, which is written in part;
//! - a tenth: all kept, or all lost.
//!
//! In the first manner one sector in eight is torn, if sectors tear: the beginning of a newer
//! version, the end of an older.

use crate::random::SplitMix64;
use crate::request::DriveInfo;

use super::{Cache, CutReport, Entry};

enum Manner {
    SectorsAlone {
        keep: f64,
        tear: f64,
    },
    /// Log entries that were written are marked `true`.
    Requests {
        written: Vec<bool>,
    },
    /// Every earlier entry, and the part of this one below `place` on the drive.
    UpTo {
        entry: usize,
        place: u64,
    },
}

impl Manner {
    fn draw(random: &mut SplitMix64, log: &[&Entry], tears: bool) -> Self {
        match random.below(20) {
            0 => Self::Requests { written: vec![false; log.len()] },
            1 => Self::Requests { written: vec![true; log.len()] },
            2..=5 => {
                let keep = random.unit();
                Self::Requests { written: log.iter().map(|_| random.chance(keep)).collect() }
            }
            6..=9 => {
                let entry = random.below(log.len() as u64) as usize;
                let range = log[entry].range();
                Self::UpTo { entry, place: range.start + random.below(range.end - range.start + 1) }
            }
            _ => Self::SectorsAlone { keep: random.unit(), tear: if tears { 1.0 / 8.0 } else { 0.0 } },
        }
    }
}

/// Number of a sector's writes, in order, that it holds; 0 is the durable version. A torn sector
/// begins with the first version of the pair and ends with the second.
type Versions = (usize, usize);

impl Manner {
    /// Draws the versions of the sector at `place`. `writes` are the log entries that wrote it; the
    /// first `floor` of these are durable.
    fn versions(&self, random: &mut SplitMix64, place: u64, writes: &[usize], floor: usize) -> Versions {
        let last_written = |is_written: &dyn Fn(usize) -> bool| {
            let last = writes.iter().rposition(|&entry| is_written(entry)).map_or(0, |index| index + 1);
            (last.max(floor), last.max(floor))
        };
        match self {
            Self::Requests { written } => last_written(&|entry| written[entry]),
            Self::UpTo { entry: limit, place: end } => {
                last_written(&|entry| entry < *limit || (entry == *limit && place < *end))
            }
            Self::SectorsAlone { keep, tear } => {
                let newest = writes.len();
                let older = (newest - floor) as u64;
                if older == 0 || random.chance(*keep) {
                    return (newest, newest);
                }
                let version = floor + random.below(older) as usize;
                if random.chance(*tear) {
                    let newer = version + 1 + random.below((newest - version) as u64) as usize;
                    return (newer, version);
                }
                (version, version)
            }
        }
    }
}

impl Cache {
    /// Decides by `seed`; returns the sectors that differ from the present contents, with their
    /// offsets.
    pub(super) fn lose_power(
        &self,
        seed: u64,
        info: &DriveInfo,
        tears: bool,
    ) -> (CutReport, Vec<(u64, Vec<u8>)>) {
        let mut report = CutReport::default();
        let mut changes = Vec::new();
        let log: Vec<&Entry> = self.log.iter().collect();
        if log.is_empty() {
            return (report, changes);
        }
        let mut random = SplitMix64::new(seed);
        let manner = Manner::draw(&mut random, &log, tears);
        let sector_bytes = u64::from(info.logical_block_bytes);
        let mut written: Vec<(u64, usize)> = Vec::new();
        for (index, entry) in log.iter().enumerate() {
            written.extend(entry.range().step_by(sector_bytes as usize).map(|place| (place, index)));
        }
        written.sort_unstable();
        let mut writes = Vec::new();
        for of_sector in written.chunk_by(|a, b| a.0 == b.0) {
            let place = of_sector[0].0;
            writes.clear();
            writes.extend(of_sector.iter().map(|&(_, entry)| entry));
            let newest = writes.len();
            let floor = writes.iter().rposition(|&entry| log[entry].durable).map_or(0, |index| index + 1);
            if floor == newest {
                continue; // durable
            }
            let (first, last) = manner.versions(&mut random, place, &writes, floor);
            // Version k is what write k overwrote; the newest is what reads see.
            let version = |k: usize| -> Vec<u8> {
                let mut sector = vec![0; sector_bytes as usize];
                match writes.get(k) {
                    Some(&entry) => {
                        let start = (place - log[entry].offset) as usize;
                        sector.copy_from_slice(&log[entry].before[start..start + sector_bytes as usize]);
                    }
                    None => self.contents.read(place, &mut sector),
                }
                sector
            };
            if first == newest && last == newest {
                report.kept += 1;
                continue;
            }
            let mut sector = version(last);
            if first == last {
                report.lost += 1;
            } else {
                report.torn += 1;
                let cut = 1 + random.below(sector_bytes - 1) as usize;
                sector[..cut].copy_from_slice(&version(first)[..cut]);
            }
            changes.push((place, sector));
        }
        (report, changes)
    }
}
