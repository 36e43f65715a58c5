//! Measured parameters of a drive.

use super::response::ResponseTable;
use crate::hdd::ParameterError;

/// A measured drive.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredParameters {
    /// Usable capacity.
    pub capacity_bytes: u64,
    /// Useful queue depth, as reported by the drive.
    pub queue_depth: u32,
    /// Useful queue size in bytes, as reported by the drive.
    pub queue_bytes: u64,
    /// Longest request that pays, as reported by the drive.
    pub longest_request_bytes: u64,
    /// Longest gap worth reading over, as reported by the drive.
    pub gap_bytes: u64,
    /// Reads at random places.
    pub random_read: ResponseTable,
    /// Sequential reads.
    pub sequential_read: ResponseTable,
    /// Writes at random places, in the state that such writes leave.
    pub random_write: ResponseTable,
    /// Sequential writes.
    pub sequential_write: ResponseTable,
    /// Time of a short read by the distance to the one before, in bytes; distances ascending.
    pub seek: Vec<(f64, f64)>,
    /// Rate of long reads by place, as a share of the drive from 0 to 1; places ascending.
    pub zones: Vec<(f64, f64)>,
    /// The largest working set whose reads come from a cache; 0: none was found.
    pub read_cache_kib: u64,
    /// Time of such a cached read.
    pub read_cache_us: f64,
    /// Short writes that an idle drive takes faster than it can go on; 0: none.
    pub write_burst_kib: u64,
    /// Time of such a burst write.
    pub write_burst_us: f64,
    /// Time of a flush with nothing left to write.
    pub flush_us: f64,
    /// Time of a short write that completes only when it is durable.
    pub forced_write_us: f64,
    /// Share of a short command's time that long transfers hide in a mix: 0 none, 100 all.
    pub overlap_percent: f64,
    /// Time of reads and writes in alternation, in percent of their time by themselves, by size;
    /// sizes ascending.
    pub mixing: Vec<(f64, f64)>,
}

impl MeasuredParameters {
    /// Refuses impossible parameters.
    pub fn check(&self) -> Result<(), ParameterError> {
        let within = |name: &str, value: f64, low: f64, high: f64| match value >= low && value <= high {
            true => Ok(()),
            false => Err(ParameterError::new(name, format!("{value} is not within {low} to {high}"))),
        };
        within("capacity_bytes", self.capacity_bytes as f64, 1e6, 1e15)?;
        within("queue_depth", self.queue_depth.into(), 1.0, 1e5)?;
        within("queue_bytes", self.queue_bytes as f64, 4096.0, 1e12)?;
        within("longest_request_bytes", self.longest_request_bytes as f64, 4096.0, 1e12)?;
        within("gap_bytes", self.gap_bytes as f64, 0.0, 1e12)?;
        within("read_cache_kib", self.read_cache_kib as f64, 0.0, 1e9)?;
        within("read_cache_us", self.read_cache_us, 0.0, 1e7)?;
        within("write_burst_kib", self.write_burst_kib as f64, 0.0, 1e12)?;
        within("write_burst_us", self.write_burst_us, 0.0, 1e7)?;
        within("flush_us", self.flush_us, 0.0, 6e7)?;
        within("forced_write_us", self.forced_write_us, 0.0, 6e7)?;
        within("overlap_percent", self.overlap_percent, 0.0, 100.0)?;
        curve("seek_us", &self.seek, 1e15, 6e7)?;
        curve("mixing_percent", &self.mixing, 1e12, 1e5)?;
        curve("zones_mb_per_s", &self.zones, 1.0, 1e6)
    }
}

/// At least one point, ascending, above zero.
fn curve(name: &str, points: &[(f64, f64)], most: f64, highest: f64) -> Result<(), ParameterError> {
    let refuse = |why: String| Err(ParameterError::new(name, why));
    if points.is_empty() {
        return refuse("it has no points".into());
    }
    if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return refuse(format!("{} comes after {}", pair[1].0, pair[0].0));
    }
    let is_wrong =
        |point: &&(f64, f64)| !((0.0..=most).contains(&point.0) && point.1 > 0.0 && point.1 <= highest);
    match points.iter().find(is_wrong) {
        Some(point) => refuse(format!("the point {point:?} is out of range")),
        None => Ok(()),
    }
}

/// The curve at a place: straight lines between points, flat beyond.
pub(super) fn at(points: &[(f64, f64)], place: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < place);
    if after == 0 {
        return points[0].1;
    }
    if after == points.len() {
        return points[after - 1].1;
    }
    let (a, b) = (points[after - 1], points[after]);
    a.1 + (b.1 - a.1) * (place - a.0) / (b.0 - a.0)
}
