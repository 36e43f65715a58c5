//! A pool's record of a volume: its attributes, and the places of every row.
//!
//! A volume has one *part*, an array with its own slabs, map and journal, or a group of several,
//! its slices (`manifest/part_groups.rs`). While it is converted to another layout it has two
//! groups: the old one, then the new one, which has the volume's bytes below the frontier.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stripewise_layout::{Geometry, MemberSet, Shape};

use crate::BLOCK_BYTES;
use crate::manifest::clone_record::CloneRecord;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::received::{ReceivedRecord, ReceivingRecord};
use crate::manifest::slice_record::SliceRecord;
use crate::manifest::snapshot_schedule::SnapshotSchedule;
use stripewise_array::rows::{RowTable, Run, SlotState};
use stripewise_array::{Block, BlockSet};
use stripewise_log::LogSizes;

/// Kind of drives to which a volume's rows are pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// They move as they are used.
    #[default]
    None,
    /// All of it stays on fast drives.
    Fast,
    /// All of it stays on data drives.
    Slow,
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Fast => "fast",
            Self::Slow => "slow",
        })
    }
}

impl Pin {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// State of a place's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlaceState {
    #[default]
    Active,
    /// Its drive was left out since.
    Missing,
}

impl PlaceState {
    fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// Slabs that hold a copy of the region map and an area of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetaPlaceRecord {
    pub drive: u32,
    /// The first of the slabs.
    pub slab: u32,
    #[serde(default, skip_serializing_if = "PlaceState::is_active")]
    pub state: PlaceState,
}

/// The region map and the journal on the part's own drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetaRecord {
    /// Consecutive slabs of each place.
    pub slabs: u32,
    /// Rows that the map has room for.
    pub map_rows: u64,
    pub places: Vec<MetaPlaceRecord>,
}

/// An area of the journal on a journal drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalPlaceRecord {
    pub drive: u32,
    pub slab: u32,
    pub slabs: u32,
    #[serde(default, skip_serializing_if = "PlaceState::is_active")]
    pub state: PlaceState,
}

/// Most blocks that older versions recorded as lost.
const MAX_OLD_LOST_BLOCKS: u64 = 1 << 20;

/// Blocks of 4 KiB of a column that hold nothing valid: column, first block, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostRange(pub u16, pub u64, pub u64);

/// Valid shares of the space that clients of a log do not get, percent.
pub const RESERVE_PERCENT: RangeInclusive<u32> = 5..=50;
/// Share of the space that clients of a log do not get unless set otherwise, percent.
pub const USUAL_RESERVE_PERCENT: u32 = 15;

/// Sizes of a log, fixed when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogRecord {
    /// Share of the space that clients do not get.
    pub reserve_percent: u32,
    /// Data of a segment.
    pub segment_bytes: u64,
    /// Each of the two slots of the roots.
    pub slot_bytes: u64,
    /// Generation of the pool in which a column was last given a place that holds nothing of the
    /// log: a rebuild begun before counts for nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filled_since: u64,
    /// The log has snapshots, or had some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LogRecord {
    /// The sizes as the log has them.
    pub(crate) fn sizes(&self) -> LogSizes {
        LogSizes { slot_bytes: self.slot_bytes, segment_bytes: self.segment_bytes }
    }
}

/// One array of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartRecord {
    /// The array's identity.
    pub id: Id,
    pub shape: Shape,
    pub meta: MetaRecord,
    /// Present if the array is a log, which has no region map and no journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRecord>,
    /// Place among the slices of a volume that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<JournalPlaceRecord>,
    /// As older versions recorded [`Self::lost`]; empty in what is written.
    #[serde(default, rename = "lost", skip_serializing_if = "Vec::is_empty")]
    pub old_lost: Vec<LostRange>,
    /// As older versions recorded [`Self::dead`]: first, how many.
    #[serde(default, rename = "dead", skip_serializing_if = "Vec::is_empty")]
    pub old_dead: Vec<(u64, u64)>,
    /// Blocks of columns that hold nothing valid. Recorded apart.
    #[serde(skip)]
    pub lost: Arc<BlockSet>,
    /// Blocks of the array that hold nothing valid: no drive had them any more when they were
    /// resynchronised or converted. Recorded apart.
    #[serde(skip)]
    pub dead: Arc<BlockSet>,
    /// Recorded apart, block by block.
    #[serde(skip)]
    pub rows: RowTable,
}

impl PartRecord {
    /// True if all of it can be read without the drives that are away: every row, and its region
    /// map. Journals on journal drives do not count, see [`Self::lost_journals`].
    pub(crate) fn survives(&self, is_away: impl Fn(u32) -> bool) -> bool {
        let has_map = self.log.is_some()
            || self.meta.places.iter().any(|place| place.state.is_active() && !is_away(place.drive));
        // The members that can be spared do not depend on the length; this one shows every pattern
        // of stripes.
        let length = self.shape.interleave_bytes.saturating_mul(512);
        let Ok(geometry) = Geometry::new(self.shape, length) else { return false };
        let mut seen = MemberSet::EMPTY;
        has_map
            && self.rows.runs().all(|run| {
                let missing = missing(run, &is_away);
                let known = missing == seen;
                seen = missing;
                known || geometry.survives(&missing)
            })
    }

    /// Journal areas that are on drives which are away, or hold nothing current.
    pub(crate) fn lost_journals(&self, is_away: impl Fn(u32) -> bool) -> usize {
        self.journal.iter().filter(|place| !place.state.is_active() || is_away(place.drive)).count()
    }

    /// True if an area of its journal is left without the drives that are away.
    pub(crate) fn has_journal_without(&self, is_away: impl Fn(u32) -> bool) -> bool {
        self.journal.iter().any(|place| place.state.is_active() && !is_away(place.drive))
    }

    /// True if a place on the drive is current.
    pub(crate) fn needs(&self, drive: u32) -> bool {
        let in_run = |run: &Run| {
            run.places.iter().any(|place| place.drive == drive && place.state == SlotState::Active)
        };
        self.meta.places.iter().any(|place| place.drive == drive && place.state.is_active())
            || self.journal.iter().any(|place| place.drive == drive && place.state.is_active())
            || self.rows.runs().any(in_run)
    }

    /// True if a copy of its map, or an area of its journal, on this drive is no longer current.
    pub(crate) fn lacks_copy_on(&self, drive: u32) -> bool {
        self.meta.places.iter().any(|place| place.drive == drive && !place.state.is_active())
            || self.journal.iter().any(|place| place.drive == drive && !place.state.is_active())
    }

    /// True if any place on a drive that `is_out` counts as current, or as being made so.
    pub(crate) fn names_current(&self, is_out: impl Fn(u32) -> bool) -> bool {
        self.meta.places.iter().any(|place| place.state.is_active() && is_out(place.drive))
            || self.journal.iter().any(|place| place.state.is_active() && is_out(place.drive))
            || self.rows.runs().any(|run| {
                run.places.iter().any(|place| place.state != SlotState::Missing && is_out(place.drive))
            })
    }

    /// Drive of each column of a log: one for all rows.
    pub(crate) fn column_drives(&self) -> Vec<u32> {
        let first = self.rows.runs().next();
        first.map_or_else(Vec::new, |run| run.places.iter().map(|place| place.drive).collect())
    }

    /// Gives all rows of a log's column another state.
    pub(crate) fn set_column(&mut self, column: usize, state: SlotState) {
        self.rows.update(|_, _, places| {
            let is_other = places[column].state != state;
            places[column].state = state;
            is_other
        });
    }

    /// All drives that it names, some of them often.
    pub(crate) fn drives(&self) -> impl Iterator<Item = u32> + '_ {
        let meta = self.meta.places.iter().map(|place| place.drive);
        let journal = self.journal.iter().map(|place| place.drive);
        let rows = self.rows.runs().flat_map(|run| run.places.iter().map(|place| place.drive));
        meta.chain(journal).chain(rows)
    }

    /// Marks the places on these drives as missing; with `only_unfinished` only those that were
    /// never current.
    pub(crate) fn set_missing(&mut self, is_out: impl Fn(u32) -> bool, only_unfinished: bool) {
        if !only_unfinished {
            for place in self.meta.places.iter_mut().filter(|place| is_out(place.drive)) {
                place.state = PlaceState::Missing;
            }
            for place in self.journal.iter_mut().filter(|place| is_out(place.drive)) {
                place.state = PlaceState::Missing;
            }
        }
        self.rows.update(|_, _, places| {
            let mut changed = false;
            for place in places.iter_mut().filter(|place| is_out(place.drive)) {
                let stays = only_unfinished && place.state == SlotState::Active;
                if !stays && place.state != SlotState::Missing {
                    place.state = SlotState::Missing;
                    changed = true;
                }
            }
            changed
        });
    }

    /// Takes over what an older version recorded as lost; `None` for what cannot be.
    pub(crate) fn take_over_old_lost(&mut self) -> Option<()> {
        let (lost, dead) = (std::mem::take(&mut self.old_lost), std::mem::take(&mut self.old_dead));
        let blocks = lost.iter().map(|range| range.2).chain(dead.iter().map(|range| range.1));
        if blocks.fold(0, u64::saturating_add) > MAX_OLD_LOST_BLOCKS {
            return None;
        }
        let last = |first: u64, count: u64| first.checked_add(count.checked_sub(1)?);
        for LostRange(column, first, count) in lost {
            Arc::make_mut(&mut self.lost).insert(usize::from(column), first..=last(first, count)?);
        }
        for (first, count) in dead {
            Arc::make_mut(&mut self.dead).insert(0, first..=last(first, count)?);
        }
        Some(())
    }

    /// The columns and rows in which blocks can be lost: what is not current anyway has none.
    pub(crate) fn is_current_at(&self, (column, block): Block, slab_bytes: u64) -> bool {
        let place = self.rows.place(block / (slab_bytes / BLOCK_BYTES), column);
        place.is_some_and(|place| matches!(place.state, SlotState::Active | SlotState::CatchingUp))
    }
}

/// Columns of a run that are not current, and those whose drive `is_away`.
pub(crate) fn missing(run: &Run, is_away: impl Fn(u32) -> bool) -> MemberSet {
    let lacking = |column: &usize| {
        let place = run.places[*column];
        place.state != SlotState::Active || is_away(place.drive)
    };
    (0..run.places.len().min(256)).filter(lacking).collect()
}

/// Progress of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conversion {
    /// The volume's bytes below this are in the new group of parts, the others in the old one.
    pub next_offset_bytes: u64,
    /// For a cancelled conversion that is being reverted: the offset from which all bytes are in
    /// the new group too, and always were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_offset_bytes: Option<u64>,
}

impl Conversion {
    /// From the beginning of a volume to its end.
    pub(crate) fn begun() -> Self {
        Self { next_offset_bytes: 0, until_offset_bytes: None }
    }

    /// Offset of its end in a volume of this size.
    pub(crate) fn end_bytes(&self, size_bytes: u64) -> u64 {
        self.until_offset_bytes.unwrap_or(size_bytes).min(size_bytes)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeRecord {
    pub id: VolumeId,
    pub name: String,
    pub size_bytes: u64,
    /// Rows are allocated when they are first written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thin: bool,
    /// Writes are acknowledged when the journal has them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_back: bool,
    pub checksums: bool,
    #[serde(default, skip_serializing_if = "Pin::is_none")]
    pub pin: Pin,
    pub parts: Vec<PartRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Conversion>,
    /// The snapshot that it received last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedRecord>,
    /// The stream that it has received in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<ReceivingRecord>,
    /// Clones of its snapshots, and of theirs, which live in its log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clones: Vec<CloneRecord>,
    /// Automatic snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<SnapshotSchedule>,
}

impl VolumeRecord {
    /// True if it is, or is becoming, a log volume.
    pub(crate) fn is_log(&self) -> bool {
        self.parts.iter().any(|part| part.log.is_some())
    }

    /// True if all of it can be read without the drives that are away.
    pub(crate) fn survives(&self, is_away: impl Fn(u32) -> bool) -> bool {
        self.parts.iter().all(|part| part.survives(&is_away))
    }

    pub(crate) fn part(&self, id: Id) -> Option<&PartRecord> {
        self.parts.iter().find(|part| part.id == id)
    }

    pub(crate) fn part_mut(&mut self, id: Id) -> Option<&mut PartRecord> {
        self.parts.iter_mut().find(|part| part.id == id)
    }
}
