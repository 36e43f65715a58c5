//! The full description of a hard disk, and its validity checks.

use super::parameter_error::ParameterError;
use super::seek::SeekCurve;

/// A run of cylinders with the same number of sectors on each track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneParameters {
    /// Counted from the outer edge.
    pub first_cylinder: u32,
    /// Number of cylinders in the zone.
    pub cylinders: u32,
    /// Places of each track.
    pub sectors_per_track: u32,
    /// Sectors between the end of one track and the start of the next under another head.
    pub track_skew_sectors: u32,
    /// The same towards the next cylinder.
    pub cylinder_skew_sectors: u32,
    /// Start of the zone's first track, in sectors from the index.
    pub first_sector_offset_sectors: u32,
    /// Sectors at the start of the zone that carry no addresses.
    pub reserved_sectors: u32,
    /// Number of tracks in a run with spare sectors of its own; 0: the zone is one run.
    pub spare_region_tracks: u32,
    /// Number of spare sectors in each run.
    pub spare_sectors: u32,
    /// At the start of the run rather than at its end.
    pub spares_at_front: bool,
}

/// Order in which the tracks of a cylinder are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadOrder {
    /// From the first head to the last.
    Ascending,
    /// Every other cylinder of a zone from the last to the first.
    SerpentineByZone,
    /// Odd cylinders from the last to the first.
    SerpentineByCylinder,
}

/// Segments of the read cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCacheParameters {
    /// Number of streams that the cache follows; 0: no read cache.
    pub segments: u32,
    /// Sectors cached of each stream.
    pub segment_sectors: u32,
    /// Sectors that an idle drive reads beyond the end of a request.
    pub read_ahead_sectors: u32,
}

/// Writes that are complete before they are on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCacheParameters {
    /// Number of extents that it holds, from which the scheduler chooses; 0: writes complete on the
    /// medium.
    pub extents: u32,
    /// Amount of data that it holds.
    pub bytes: u64,
}

/// A hard disk.
#[derive(Clone, Debug, PartialEq)]
pub struct HddParameters {
    /// Sector size of the medium; a power of two.
    pub sector_bytes: u32,
    /// Usable capacity; at most that of the zones.
    pub capacity_sectors: u64,
    /// Duration of one revolution.
    pub revolution_ns: u32,
    /// Recorded surfaces.
    pub heads: u32,
    /// From the outer edge; sectors are numbered in this order.
    pub zones: Vec<ZoneParameters>,
    /// Numbering of the tracks.
    pub head_order: HeadOrder,
    /// For reads.
    pub seek: SeekCurve,
    /// At least this between tracks of different heads.
    pub head_switch_ns: u32,
    /// Added to any movement before a write; may be negative.
    pub write_settle_ns: i32,
    /// True if a read within a track starts with the first of its sectors to pass the head.
    pub zero_latency_read: bool,
    /// The same of writes.
    pub zero_latency_write: bool,
    /// Electronics, before anything moves or is transferred.
    pub command_overhead_ns: u64,
    /// Rate of the interface.
    pub interface_bytes_per_second: u64,
    /// Depth of the command queue.
    pub queue_depth: u32,
    /// Read cache.
    pub read_cache: ReadCacheParameters,
    /// Write cache.
    pub write_cache: WriteCacheParameters,
}

impl HddParameters {
    /// Refuses impossible descriptions.
    pub fn check(&self) -> Result<(), ParameterError> {
        let within = |parameter: &str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(ParameterError::new(parameter, format!("{value} is not within {low} to {high}"))),
        };
        within("sector_bytes", self.sector_bytes.into(), 256, 65536)?;
        if !self.sector_bytes.is_power_of_two() {
            return Err(ParameterError::new("sector_bytes", "not a power of two"));
        }
        within("revolution_ns", self.revolution_ns.into(), 1_000_000, 100_000_000)?;
        within("heads", self.heads.into(), 1, 255)?;
        within("queue_depth", self.queue_depth.into(), 1, 4096)?;
        within("interface_bytes_per_second", self.interface_bytes_per_second, 100_000, 1 << 40)?;
        within("head_switch_ns", self.head_switch_ns.into(), 0, 100_000_000)?;
        within("command_overhead_ns", self.command_overhead_ns, 0, 1_000_000_000)?;
        within("write_settle_ns", self.write_settle_ns.unsigned_abs().into(), 0, 100_000_000)?;
        within("zones", self.zones.len() as u64, 1, 4096)?;
        let mut next_cylinder = 0;
        for (index, zone) in self.zones.iter().enumerate() {
            let name = |field: &str| format!("zones[{index}].{field}");
            within(&name("sectors_per_track"), zone.sectors_per_track.into(), 1, 1 << 20)?;
            within(&name("cylinders"), zone.cylinders.into(), 1, 1 << 28)?;
            if zone.first_cylinder < next_cylinder {
                let why = format!("{} lies in the zone before", zone.first_cylinder);
                return Err(ParameterError::new(name("first_cylinder"), why));
            }
            next_cylinder = zone
                .first_cylinder
                .checked_add(zone.cylinders)
                .filter(|end| *end <= 1 << 28)
                .ok_or_else(|| ParameterError::new(name("cylinders"), "more cylinders than 2^28"))?;
        }
        self.seek.check()
    }
}
