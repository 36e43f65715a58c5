//! Encoding of the roots. Numbers are little endian; lists have their length first.
//!
//! Faults expected: none that the keeper's checksum lets through. Malformed roots are refused.

use crate::heads::{Head, HeadRoots, Snapshot};
use crate::map::run::RunRoot;
use crate::usage::{Content, Use};

/// "SWLOGRT" and the version.
const MAGIC: u64 = u64::from_le_bytes(*b"SWLOGRT\x01");
/// The same where there are snapshots.
const MAGIC_WITH_SNAPSHOTS: u64 = u64::from_le_bytes(*b"SWLOGRT\x02");

/// Version of the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Without the fields below.
    Plain,
    /// Snapshots have a time, and runs the number of blocks that are kept for snapshots alone.
    WithSnapshots,
}

/// The state of a log at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Roots {
    /// Identity of the log.
    pub(crate) volume: u64,
    /// Size of a segment, blocks.
    pub(crate) segment_blocks: u64,
    /// Staging records up to this one are in segments.
    pub(crate) staged_through: u64,
    /// Number of the next run.
    pub(crate) next_run: u64,
    /// Sequence of the first planned segment.
    pub(crate) next_sequence: u64,
    pub(crate) plan: Vec<u32>,
    /// Sealed segments whose entries are in no run: sequence and segment, in order.
    pub(crate) recent: Vec<(u64, u32)>,
    /// Entries of recent segments up to this sequence belong to a table that is being spilled.
    pub(crate) frozen_through: u64,
    /// Volumes and snapshots.
    pub(crate) heads: HeadRoots,
    /// Member that is being filled.
    pub(crate) rebuild: Option<RebuildMark>,
    /// Runs, newest first.
    pub(crate) runs: Vec<RunRoot>,
    /// Segments of data: number and use.
    pub(crate) data: Vec<(u32, DataRoot)>,
}

/// Use of a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataRoot {
    pub(crate) sequence: u64,
    pub(crate) live: u32,
    pub(crate) survived: u8,
    pub(crate) has_holes: bool,
}

/// Progress of a rebuild: what a member that is being filled has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RebuildMark {
    pub(crate) member: usize,
    /// Identity of what is filled; another one starts from the beginning.
    pub(crate) identity: u64,
    /// The member has the segments below this one, ...
    pub(crate) below: u32,
    /// ... in uses whose sequences are before this one.
    pub(crate) before: u64,
}

impl DataRoot {
    /// The part of a segment's use that the roots have; `None` unless it holds data.
    pub(crate) fn of(used: &Use) -> Option<Self> {
        let Use { content, sequence, live, survived, has_holes, .. } = *used;
        (content == Content::Data).then_some(Self { sequence, live, survived, has_holes })
    }
}

impl Roots {
    /// The roots as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let mut put = |number: u64| to.extend(number.to_le_bytes());
        let version = if self.heads.is_plain() { Version::Plain } else { Version::WithSnapshots };
        let heads = [
            match version {
                Version::Plain => MAGIC,
                Version::WithSnapshots => MAGIC_WITH_SNAPSHOTS,
            },
            self.volume,
            self.segment_blocks,
            self.staged_through,
            self.next_run,
            self.next_sequence,
            self.frozen_through,
        ];
        heads.into_iter().for_each(&mut put);
        put(self.plan.len() as u64);
        self.plan.iter().for_each(|&segment| put(u64::from(segment)));
        put(self.recent.len() as u64);
        self.recent.iter().flat_map(|&(sequence, segment)| [sequence, u64::from(segment)]).for_each(&mut put);
        self.heads.put(version, &mut put);
        let marks = self.rebuild.iter();
        put(marks.len() as u64);
        marks
            .flat_map(|mark| [mark.member as u64, mark.identity, u64::from(mark.below), mark.before])
            .for_each(&mut put);
        put(self.runs.len() as u64);
        for run in &self.runs {
            [run.id, run.entries, run.pages, run.fence_crcs.len() as u64].into_iter().for_each(&mut put);
            run.fence_crcs.iter().for_each(|&crc| put(u64::from(crc)));
            if version == Version::WithSnapshots {
                put(run.kept);
            }
            put(run.segments.len() as u64);
            run.segments
                .iter()
                .flat_map(|&(sequence, segment)| [sequence, u64::from(segment)])
                .for_each(&mut put);
        }
        put(self.data.len() as u64);
        for (segment, data) in &self.data {
            let flags = u64::from(data.survived) | u64::from(data.has_holes) << 8;
            put(data.sequence);
            put(u64::from(*segment) | u64::from(data.live) << 32);
            put(flags);
        }
        to
    }

    /// Reads roots; `None` if they are malformed.
    pub(crate) fn decode(from: &[u8]) -> Option<Self> {
        let mut numbers =
            from.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        let limit = from.len() / 8;
        let mut next = || numbers.next();
        let version = match next()? {
            MAGIC => Version::Plain,
            MAGIC_WITH_SNAPSHOTS => Version::WithSnapshots,
            _ => return None,
        };
        let mut roots = Self {
            volume: next()?,
            segment_blocks: next()?,
            staged_through: next()?,
            next_run: next()?,
            next_sequence: next()?,
            frozen_through: next()?,
            ..Self::default()
        };
        let counted = |count: u64| usize::try_from(count).ok().filter(|&count| count <= limit);
        let short = |number: u64| u32::try_from(number).ok();
        for _ in 0..counted(next()?)? {
            roots.plan.push(short(next()?)?);
        }
        for _ in 0..counted(next()?)? {
            roots.recent.push((next()?, short(next()?)?));
        }
        roots.heads = HeadRoots::take(version, &mut next, limit)?;
        for _ in 0..counted(next()?)? {
            let (member, identity) = (next()? as usize, next()?);
            roots.rebuild = Some(RebuildMark { member, identity, below: short(next()?)?, before: next()? });
        }
        for _ in 0..counted(next()?)? {
            let (id, entries, pages) = (next()?, next()?, next()?);
            let mut run = RunRoot { id, entries, pages, ..RunRoot::default() };
            for _ in 0..counted(next()?)? {
                run.fence_crcs.push(short(next()?)?);
            }
            if version == Version::WithSnapshots {
                run.kept = next()?;
            }
            for _ in 0..counted(next()?)? {
                run.segments.push((next()?, short(next()?)?));
            }
            roots.runs.push(run);
        }
        for _ in 0..counted(next()?)? {
            let (sequence, place, flags) = (next()?, next()?, next()?);
            let data = DataRoot {
                sequence,
                live: (place >> 32) as u32,
                survived: flags as u8,
                has_holes: flags >> 8 & 1 == 1,
            };
            roots.data.push((place as u32, data));
        }
        Some(roots)
    }

    /// True if every segment that the roots name exists.
    pub(crate) fn names_only_segments_below(&self, count: u32) -> bool {
        let of_runs = self.runs.iter().flat_map(|run| &run.segments).map(|(_, segment)| segment);
        let recent = self.recent.iter().map(|(_, segment)| segment);
        let data = self.data.iter().map(|(segment, _)| segment);
        self.plan.iter().chain(of_runs).chain(recent).chain(data).all(|&segment| segment < count)
    }
}

impl HeadRoots {
    /// Bytes that they take in the roots.
    pub(crate) fn bytes(&self) -> u64 {
        let mut numbers = 0;
        self.put(Version::WithSnapshots, &mut |_| numbers += 1);
        numbers * 8
    }

    fn put(&self, version: Version, put: &mut impl FnMut(u64)) {
        put(self.forks.len() as u64);
        self.forks.iter().for_each(|&fork| put(u64::from(fork)));
        put(u64::from(self.next_head));
        put(self.heads.len() as u64);
        for head in &self.heads {
            [u64::from(head.id), u64::from(head.tip), head.capacity_blocks].into_iter().for_each(&mut *put);
        }
        put(self.snapshots.len() as u64);
        for snapshot in &self.snapshots {
            let Snapshot { head, birth, capacity_blocks, created_unix_ms, name } = snapshot;
            [u64::from(*head), u64::from(*birth), *capacity_blocks].into_iter().for_each(&mut *put);
            if version == Version::WithSnapshots {
                put(*created_unix_ms);
            }
            put(name.len() as u64);
            for bytes in name.as_bytes().chunks(8) {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                put(u64::from_le_bytes(word));
            }
        }
    }

    fn take(version: Version, next: &mut impl FnMut() -> Option<u64>, limit: usize) -> Option<Self> {
        let mut heads = Self::default();
        let counted = |count: u64| usize::try_from(count).ok().filter(|&count| count <= limit);
        let short = |number: u64| u32::try_from(number).ok();
        for _ in 0..counted(next()?)? {
            heads.forks.push(short(next()?)?);
        }
        heads.next_head = short(next()?)?;
        for _ in 0..counted(next()?)? {
            let (id, tip) = (short(next()?)?, short(next()?)?);
            heads.heads.push(Head { id, tip, capacity_blocks: next()? });
        }
        for _ in 0..counted(next()?)? {
            let (head, birth, capacity_blocks) = (short(next()?)?, short(next()?)?, next()?);
            let created_unix_ms = if version == Version::WithSnapshots { next()? } else { 0 };
            let length = usize::try_from(next()?).ok()?;
            let mut name = Vec::new();
            for _ in 0..counted(length.div_ceil(8) as u64)? {
                name.extend(next()?.to_le_bytes());
            }
            name.truncate(length);
            heads.snapshots.push(Snapshot {
                head,
                birth,
                capacity_blocks,
                created_unix_ms,
                name: String::from_utf8(name).ok()?,
            });
        }
        Some(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_survive_encoding_and_cuts_are_refused() {
        let run = RunRoot {
            id: 4,
            entries: 9,
            pages: 2,
            fence_crcs: vec![7],
            kept: 5,
            segments: vec![(3, 8), (4, 9)],
        };
        let snapshot = |birth, name: &str| Snapshot {
            head: 0,
            birth,
            capacity_blocks: 9,
            created_unix_ms: 1_764_000_000_000,
            name: name.into(),
        };
        let data = DataRoot { sequence: 77, live: 5, survived: 2, has_holes: true };
        let roots = Roots {
            volume: 1,
            segment_blocks: 3,
            staged_through: 5,
            next_run: 6,
            next_sequence: 7,
            plan: vec![1, 2, 3],
            recent: vec![(4, 5), (6, 7)],
            frozen_through: 5,
            heads: HeadRoots {
                forks: vec![0, 3],
                next_head: 2,
                heads: vec![Head { id: 0, tip: 4, capacity_blocks: 9 }],
                snapshots: vec![snapshot(3, "before the update"), snapshot(2, "hourly-1")],
            },
            rebuild: Some(RebuildMark { member: 1, identity: 2, below: 3, before: 4 }),
            runs: vec![run.clone(), RunRoot::default()],
            data: vec![(11, data)],
        };
        let bytes = roots.encode();
        assert_eq!(Roots::decode(&bytes), Some(roots.clone()));
        for length in 0..bytes.len() {
            assert_eq!(Roots::decode(&bytes[..length]), None, "{length}");
        }
        // Without snapshots, as programs wrote it that knew none.
        let mut plain = roots;
        (plain.heads.forks, plain.heads.snapshots) = (vec![0], Vec::new());
        plain.runs[0].kept = 0;
        let bytes = plain.encode();
        assert_eq!(bytes[..8], *b"SWLOGRT\x01");
        assert_eq!(Roots::decode(&bytes), Some(plain));
    }
}
