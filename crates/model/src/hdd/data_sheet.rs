//! A full description derived from the few numbers of a data sheet.
//!
//! The surface is sixteen zones of equal width whose rate falls linearly from the outer to the
//! inner edge. Rates are sustained ones, so the skew between tracks is part of them: a track holds
//! what the rate delivers in a revolution and a switch of heads.

use super::parameter_error::ParameterError;
use super::parameters::{
    HddParameters, HeadOrder, ReadCacheParameters, WriteCacheParameters, ZoneParameters,
};
use super::seek::SeekCurve;

const ZONES: u32 = 16;
/// Mean of √|x − y| over two uniform places.
const MEAN_SQRT_STROKE: f64 = 8.0 / 15.0;

/// Data sheet of a modern drive.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSheet {
    /// Usable capacity.
    pub capacity_bytes: u64,
    /// Sector size of the medium.
    pub sector_bytes: u32,
    /// Revolutions per minute.
    pub rpm: u32,
    /// Recorded surfaces.
    pub heads: u32,
    /// Sustained, at the outer edge.
    pub outer_mb_per_s: f64,
    /// Sustained, at the inner edge.
    pub inner_mb_per_s: f64,
    /// Shortest seek with settling.
    pub settle_ms: f64,
    /// Mean seek of random reads.
    pub average_seek_ms: f64,
    /// From one track to the next under another head.
    pub head_switch_ms: f64,
    /// Extra settle time of a write.
    pub write_settle_ms: f64,
    /// Electronics, for each command.
    pub command_overhead_ms: f64,
    /// Rate of the interface.
    pub interface_mb_per_s: f64,
    /// Depth of the command queue.
    pub queue_depth: u32,
    /// Streams that the read cache follows.
    pub read_segments: u32,
    /// Amount cached of each stream.
    pub read_segment_kib: u32,
    /// Amount an idle drive reads ahead after a read.
    pub read_ahead_kib: u32,
    /// Zero for a write cache that is off.
    pub write_cache_extents: u32,
    /// Data of acknowledged writes.
    pub write_cache_mib: u32,
}

impl DataSheet {
    /// A generic nearline drive, as the catalogue has it too.
    pub fn generic_8tb_7200() -> Self {
        Self {
            capacity_bytes: 8_001_563_222_016,
            sector_bytes: 4096,
            rpm: 7200,
            heads: 12,
            outer_mb_per_s: 250.0,
            inner_mb_per_s: 125.0,
            settle_ms: 1.0,
            average_seek_ms: 8.0,
            head_switch_ms: 1.0,
            write_settle_ms: 0.3,
            command_overhead_ms: 0.05,
            interface_mb_per_s: 550.0,
            queue_depth: 32,
            read_segments: 32,
            read_segment_kib: 4096,
            read_ahead_kib: 2048,
            write_cache_extents: 64,
            write_cache_mib: 64,
        }
    }

    /// Derives the description; refuses implausible numbers.
    pub fn parameters(&self) -> Result<HddParameters, ParameterError> {
        let within = |name: &str, value: f64, low: f64, high: f64| match value >= low && value <= high {
            true => Ok(()),
            false => Err(ParameterError::new(name, format!("{value} is not within {low} to {high}"))),
        };
        within("revolutions_per_minute", self.rpm.into(), 1000.0, 30_000.0)?;
        within("capacity_bytes", self.capacity_bytes as f64, 1e6, 1e15)?;
        within("sector_bytes", self.sector_bytes.into(), 256.0, 65_536.0)?;
        within("heads", self.heads.into(), 1.0, 255.0)?;
        within("outer_mb_per_s", self.outer_mb_per_s, 0.1, 10_000.0)?;
        within("inner_mb_per_s", self.inner_mb_per_s, 0.1, self.outer_mb_per_s)?;
        within("settle_ms", self.settle_ms, 0.0, 50.0)?;
        within("average_seek_ms", self.average_seek_ms, self.settle_ms, 100.0)?;
        within("head_switch_ms", self.head_switch_ms, 0.0, 20.0)?;
        within("write_settle_ms", self.write_settle_ms, -5.0, 5.0)?;
        within("command_overhead_ms", self.command_overhead_ms, 0.0, 100.0)?;
        within("interface_mb_per_s", self.interface_mb_per_s, 0.1, 100_000.0)?;
        let revolution_ns = (60_000_000_000 / u64::from(self.rpm)) as u32;
        let switch_ns = ms(self.head_switch_ms);
        // Tracks are skewed so that writing streams lose no revolution either.
        let skew_ns = switch_ns + ms(self.write_settle_ms.max(0.0));
        let sector_bytes = f64::from(self.sector_bytes);
        let track_sectors: Vec<u32> = (0..ZONES)
            .map(|zone| {
                let inward = f64::from(zone) / f64::from(ZONES - 1);
                let rate = self.outer_mb_per_s + (self.inner_mb_per_s - self.outer_mb_per_s) * inward;
                let per_track = rate * 1e6 * f64::from(revolution_ns + skew_ns) / 1e9 / sector_bytes;
                (per_track as u32).max(1)
            })
            .collect();
        let capacity_sectors = self.capacity_bytes / u64::from(self.sector_bytes);
        let per_row = track_sectors.iter().map(|sectors| u64::from(*sectors)).sum::<u64>();
        let cylinders = capacity_sectors.div_ceil(per_row * u64::from(self.heads)).max(1);
        let cylinders = u32::try_from(cylinders)
            .ok()
            .filter(|cylinders| cylinders.checked_mul(ZONES).is_some_and(|all| all <= 1 << 28))
            .ok_or_else(|| ParameterError::new("capacity_bytes", "more than such tracks can hold"))?;
        let zones = track_sectors
            .into_iter()
            .enumerate()
            .map(|(index, sectors_per_track)| {
                let skew = u64::from(skew_ns) * u64::from(sectors_per_track);
                let skew = skew.div_ceil(u64::from(revolution_ns)) as u32;
                ZoneParameters {
                    first_cylinder: index as u32 * cylinders,
                    cylinders,
                    sectors_per_track,
                    track_skew_sectors: skew,
                    cylinder_skew_sectors: skew_of_cylinder(self, skew, sectors_per_track),
                    first_sector_offset_sectors: 0,
                    reserved_sectors: 0,
                    spare_region_tracks: 0,
                    spare_sectors: 0,
                    spares_at_front: false,
                }
            })
            .collect();
        let sqrt_ms = (self.average_seek_ms - self.settle_ms) / MEAN_SQRT_STROKE;
        let parameters = HddParameters {
            sector_bytes: self.sector_bytes,
            capacity_sectors,
            revolution_ns,
            heads: self.heads,
            zones,
            head_order: HeadOrder::SerpentineByZone,
            seek: SeekCurve::Stroke { constant_ns: ms(self.settle_ms), sqrt_ns: ms(sqrt_ms), linear_ns: 0 },
            head_switch_ns: switch_ns,
            write_settle_ns: (self.write_settle_ms * 1e6) as i32,
            zero_latency_read: true,
            zero_latency_write: true,
            command_overhead_ns: ms(self.command_overhead_ms).into(),
            interface_bytes_per_second: (self.interface_mb_per_s * 1e6) as u64,
            queue_depth: self.queue_depth,
            read_cache: ReadCacheParameters {
                segments: self.read_segments,
                segment_sectors: kib_sectors(self.read_segment_kib, self.sector_bytes),
                read_ahead_sectors: kib_sectors(self.read_ahead_kib, self.sector_bytes),
            },
            write_cache: WriteCacheParameters {
                extents: self.write_cache_extents,
                bytes: u64::from(self.write_cache_mib) << 20,
            },
        };
        parameters.check()?;
        Ok(parameters)
    }
}

/// Towards the next cylinder the arm moves one track, which the curve may make longer than a switch
/// of heads.
fn skew_of_cylinder(sheet: &DataSheet, track_skew: u32, sectors_per_track: u32) -> u32 {
    let settle_ms = sheet.write_settle_ms.max(0.0);
    let needed_ms = sheet.settle_ms.max(sheet.head_switch_ms) + settle_ms + 0.01 * sheet.average_seek_ms;
    let revolution_ms = 60_000.0 / f64::from(sheet.rpm);
    track_skew.max((needed_ms / revolution_ms * f64::from(sectors_per_track)).ceil() as u32)
}

fn ms(value: f64) -> u32 {
    (value * 1e6).round() as u32
}

fn kib_sectors(kib: u32, sector_bytes: u32) -> u32 {
    (u64::from(kib) * 1024 / u64::from(sector_bytes)).min(1 << 30) as u32
}
