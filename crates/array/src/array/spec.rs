//! Specification of an array: its layout, its drives and the places of its parts on them.

use std::rc::Rc;

use stripewise_layout::{Geometry, LayoutError, Shape};

use crate::array::host::ArrayHost;
use crate::block_set::BlockSet;
use crate::error::ArrayError;
use crate::map::regions::RegionShape;
use crate::member::{Member, MemberLabel};
use crate::rows::RowTable;
use crate::tuning::{MapGrain, Tuning};

/// Limits and switches of one array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayOptions {
    /// Bytes of client requests admitted at a time; more wait in order of arrival.
    pub in_flight_bytes: u64,
    /// Bytes of rebuild and scrub I/O in memory at a time.
    pub background_bytes: u64,
    /// Times and sizes; those of the pool that the array belongs to are its own as well.
    pub tuning: Tuning,
}

impl Default for ArrayOptions {
    fn default() -> Self {
        Self { in_flight_bytes: 128 << 20, background_bytes: 32 << 20, tuning: Tuning::default() }
    }
}

/// Identity and layout of an array: recorded in the pool's metadata, the same for its whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// The array's identity; marks its region map.
    pub id: u128,
    /// Level, width, groups, interleave.
    pub shape: Shape,
    /// Bytes of a slab, a power of two from 1 MiB on.
    pub slab_bytes: u64,
}

impl ArraySpec {
    /// The addresses of the array's data, for a length that no drive reaches. Fails where the shape
    /// is impossible, or needs more than one slab for its stripes to come out even.
    pub fn geometry(&self) -> Result<Geometry, ArrayError> {
        let width = (self.shape.width as u64).max(1);
        let member_bytes = (1u64 << 62) / width / self.slab_bytes.max(1) * self.slab_bytes.max(1);
        let geometry = Geometry::new(self.shape, member_bytes)?;
        let region_bytes = RegionShape::of(&geometry).member_region_bytes;
        if self.slab_bytes == 0 || !self.slab_bytes.is_multiple_of(region_bytes) {
            return Err(ArrayError::Layout(LayoutError::MembersTooSmall {
                member_bytes: self.slab_bytes,
                interleave_bytes: region_bytes,
            }));
        }
        Ok(geometry)
    }

    /// Volume bytes that a row holds.
    pub fn row_data_bytes(&self) -> Result<u64, ArrayError> {
        let shape = RegionShape::of(&self.geometry()?);
        Ok(self.slab_bytes / shape.member_region_bytes * shape.region_data_bytes)
    }

    /// Bytes that each area of a journal needs at least, so that the largest entry, a whole stripe
    /// with its parity, fits into what clients may append at a time, also where room is kept for
    /// destaging.
    pub fn least_journal_bytes(&self) -> Result<u64, ArrayError> {
        let geometry = self.geometry()?;
        let stripe_bytes = geometry.units() as u64 * geometry.interleave_bytes();
        Ok((16 * stripe_bytes).next_multiple_of(self.slab_bytes).max(2 << 20))
    }

    /// Bytes that the region map of `rows` rows takes at each of its places.
    pub fn map_bytes(&self, rows: u64, grain: MapGrain) -> Result<u64, ArrayError> {
        let shape = RegionShape::of(&self.geometry()?);
        let per_row = self.slab_bytes / shape.member_region_bytes;
        Ok(RegionShape::map_bytes(rows.saturating_mul(per_row), grain))
    }
}

/// A drive that an array may use: with its queue, or named by its member's label.
#[derive(Clone)]
pub struct ArrayMember<M = Rc<Member>> {
    /// Its number in the slab map.
    pub number: u32,
    /// Its queue, or the label of it.
    pub member: M,
    /// Offset of slab 0 on the drive, bytes.
    pub slabs_base_bytes: u64,
    /// Offset of the checksum pages of slab 0 on the drive, bytes; unused without checksums.
    pub sums_base_bytes: u64,
}

impl ArrayMember {
    /// The drive, named so that other threads can find it.
    pub fn named(&self) -> ArrayMember<MemberLabel> {
        self.with(self.member.label().clone())
    }
}

impl ArrayMember<MemberLabel> {
    /// The drive with its queue on the thread of `host`; `None` if it is not at hand.
    pub(crate) fn on_thread_of(&self, host: &dyn ArrayHost) -> Option<ArrayMember> {
        host.member(&self.member).map(|member| self.with(member))
    }
}

impl<M> ArrayMember<M> {
    fn with<N>(&self, member: N) -> ArrayMember<N> {
        let Self { number, slabs_base_bytes, sums_base_bytes, .. } = *self;
        ArrayMember { number, member, slabs_base_bytes, sums_base_bytes }
    }
}

/// Consecutive slabs of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaPlace {
    /// The drive's number.
    pub drive: u32,
    /// The first slab.
    pub slab: u32,
    /// Number of slabs.
    pub slabs: u32,
}

/// Parameters for creating or opening an array. With members that are named by their labels it can
/// be sent to another thread.
pub struct ArrayInit<M = Rc<Member>> {
    /// Layout and places of the array.
    pub spec: ArraySpec,
    /// Usable bytes, at most what the rows hold.
    pub size_bytes: u64,
    /// Places of its rows.
    pub rows: RowTable,
    /// Places of its region map; each holds the same copy.
    pub map: Vec<AreaPlace>,
    /// The areas of its journal; none for a volume without one.
    pub journal: Vec<AreaPlace>,
    /// Epoch never used before for this array: distinguishes a new journal from older ones. When an
    /// array is opened, it is used only if the journal is lost.
    pub journal_epoch: u64,
    /// Every block has a checksum, and every read is verified; the same for the array's whole life.
    pub checksums: Option<SumsInit>,
    /// Blocks of columns that are recorded as lost: column, and block of its linear space.
    pub lost_blocks: BlockSet,
    /// Blocks of the volume that are recorded as dead, all in space 0.
    pub dead_blocks: BlockSet,
    /// The drives that are there and current. What lies on others is missing.
    pub members: Vec<ArrayMember<M>>,
    /// Partial stripes are acknowledged when the journal has them. Needs a journal, and a layout
    /// with parity.
    pub write_back: bool,
    /// Opens the array protected, without writing to its drives. Its members keep writes in memory,
    /// so that the journal can be replayed for a reader after a crash.
    pub read_only: bool,
}

impl ArrayInit<MemberLabel> {
    /// The same with the queues of the members on the thread of `host`, of those at hand.
    pub fn on_thread_of(self, host: &dyn ArrayHost) -> ArrayInit {
        let members = self.members.iter().filter_map(|named| named.on_thread_of(host)).collect();
        ArrayInit {
            spec: self.spec,
            size_bytes: self.size_bytes,
            rows: self.rows,
            map: self.map,
            journal: self.journal,
            journal_epoch: self.journal_epoch,
            checksums: self.checksums,
            lost_blocks: self.lost_blocks,
            dead_blocks: self.dead_blocks,
            members,
            write_back: self.write_back,
            read_only: self.read_only,
        }
    }
}

/// Checksum settings of an array.
#[derive(Clone, Copy, Debug)]
pub struct SumsInit {
    /// Above all stamps of earlier openings of this array: for instance the pool's generation
    /// shifted left by 32 bits.
    pub first_stamp: u64,
    /// Memory for pages.
    pub cache_bytes: usize,
}
