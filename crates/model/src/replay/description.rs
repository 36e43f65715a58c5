//! A drive in the neutral form: JSON with times in milliseconds and lengths in sectors.
//!
//! Descriptions are extracted by hand and by programs, so they differ in what they leave out: what
//! is absent or `null` in the cache, the bus and the overheads is off, switches are `true` or
//! numbers, seek tables may repeat a distance, and the capacity may exceed what the zones add up to
//! by a little.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::ReplayError;
use crate::hdd::{
    Geometry, HddParameters, HeadOrder, ParameterError, ReadCacheParameters, SeekCurve, WriteCacheParameters,
    ZoneParameters, hold_capacity,
};

/// A drive as it was described, checked.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its path.
    pub file: String,
    /// Name of the drive; nothing depends on it.
    pub name: String,
    pub(super) hdd: HddParameters,
    pub(super) overheads: Overheads,
    pub(super) bus: Bus,
    pub(super) cache: Cache,
    pub(super) read_sector_ns: u64,
    pub(super) write_sector_ns: u64,
}

/// Times of the electronics in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overheads {
    pub read_hit: AfterWhich,
    pub read_miss: AfterWhich,
    pub write_hit: AfterWhich,
    pub write_miss: AfterWhich,
    pub read_completion: u64,
    pub write_completion: u64,
    pub data_preparation: u64,
    pub first_reselect: u64,
    pub other_reselect: u64,
    pub read_disconnect: AfterWhich,
    pub write_disconnect: u64,
    pub extra_command: u64,
    pub extra_first: u64,
    pub extra_gap: u64,
    pub extra_second: u64,
    pub extra_seek_delay: u64,
    pub minimum_write_seek_delay: u64,
}

/// Depends on what the request before was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AfterWhich {
    pub read: u64,
    pub write: u64,
}

impl AfterWhich {
    pub(super) fn after(&self, write: bool) -> u64 {
        if write { self.write } else { self.read }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bus {
    #[serde(deserialize_with = "switch")]
    pub hold_bus_entire_read: bool,
    #[serde(deserialize_with = "switch")]
    pub hold_bus_entire_write: bool,
    #[serde(deserialize_with = "switch")]
    pub never_disconnect: bool,
    #[serde(deserialize_with = "switch")]
    pub extra_write_disconnect: bool,
    #[serde(deserialize_with = "or_default")]
    pub read_reconnect_watermark: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cache {
    #[serde(deserialize_with = "count")]
    pub enabled: u32,
    #[serde(deserialize_with = "count")]
    pub segments: u32,
    #[serde(deserialize_with = "count")]
    pub segment_sectors: u32,
    #[serde(deserialize_with = "switch")]
    pub dedicated_write_segment: bool,
    #[serde(deserialize_with = "switch")]
    pub read_on_write_data: bool,
    #[serde(deserialize_with = "count")]
    pub continuous_read: u32,
    #[serde(deserialize_with = "count")]
    pub min_readahead: u32,
    #[serde(deserialize_with = "count")]
    pub max_readahead: u32,
    #[serde(deserialize_with = "switch")]
    pub readahead_may_overwrite_requested: bool,
    #[serde(deserialize_with = "switch")]
    pub readahead_after_full_hit: bool,
    #[serde(deserialize_with = "switch")]
    pub read_sectors_before_request: bool,
    #[serde(deserialize_with = "count")]
    pub fast_write: u32,
    #[serde(deserialize_with = "switch")]
    pub combine_sequential_writes: bool,
    #[serde(deserialize_with = "count")]
    pub zero_latency_read: u32,
    #[serde(deserialize_with = "count")]
    pub zero_latency_write: u32,
    #[serde(deserialize_with = "switch")]
    pub stop_prefetch_mid_sector: bool,
    #[serde(deserialize_with = "switch")]
    pub transfer_partial_hit_immediately: bool,
    #[serde(deserialize_with = "switch")]
    pub almost_read_hits: bool,
}

#[derive(Deserialize)]
struct Raw {
    name: String,
    sector_bytes: u32,
    capacity_sectors: u64,
    rpm: f64,
    surfaces: u32,
    #[serde(default, deserialize_with = "or_default")]
    lbn_mapping: u32,
    #[serde(default, deserialize_with = "or_default")]
    spare_scheme_code: u32,
    #[serde(default)]
    spare_range_cylinders: Option<u32>,
    zones: Vec<RawZone>,
    #[serde(default)]
    seek_ms: Option<Vec<(f64, f64)>>,
    #[serde(default)]
    seek_formula: Option<RawFormula>,
    cylinders: u32,
    #[serde(default, deserialize_with = "or_default")]
    head_switch_ms: f64,
    #[serde(default, deserialize_with = "or_default")]
    write_settle_ms: f64,
    bus_sector_transfer_ms: RawSectorTransfer,
    #[serde(default, deserialize_with = "or_default")]
    overheads_ms: RawOverheads,
    #[serde(default, deserialize_with = "or_default")]
    bus_behaviour: Bus,
    #[serde(default, deserialize_with = "or_default")]
    cache: Cache,
}

#[derive(Deserialize)]
struct RawZone {
    first_cylinder: u32,
    last_cylinder: u32,
    sectors_per_track: u32,
    #[serde(default, deserialize_with = "or_default")]
    track_skew_sectors: f64,
    #[serde(default, deserialize_with = "or_default")]
    cylinder_skew_sectors: f64,
    #[serde(default, deserialize_with = "or_default")]
    first_sector_offset_sectors: f64,
    #[serde(default, deserialize_with = "or_default")]
    reserved_sectors_at_front: u32,
    #[serde(default, deserialize_with = "or_default")]
    spares: u32,
}

#[derive(Deserialize)]
struct RawFormula {
    #[serde(default, deserialize_with = "or_default")]
    first_ten_ms: Vec<f64>,
    sqrt_below_cylinders: u32,
    sqrt_constant_ms: f64,
    sqrt_coefficient_ms: f64,
    linear_constant_ms: f64,
    linear_coefficient_ms_per_cylinder: f64,
    #[serde(default)]
    single_cylinder_ms: Option<f64>,
}

#[derive(Deserialize)]
struct RawSectorTransfer {
    read: f64,
    write: f64,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct RawOverheads {
    #[serde(deserialize_with = "or_default")]
    read_hit_after_read: f64,
    #[serde(deserialize_with = "or_default")]
    read_hit_after_write: f64,
    #[serde(deserialize_with = "or_default")]
    read_miss_after_read: f64,
    #[serde(deserialize_with = "or_default")]
    read_miss_after_write: f64,
    #[serde(deserialize_with = "or_default")]
    write_hit_after_read: f64,
    #[serde(deserialize_with = "or_default")]
    write_hit_after_write: f64,
    #[serde(deserialize_with = "or_default")]
    write_miss_after_read: f64,
    #[serde(deserialize_with = "or_default")]
    write_miss_after_write: f64,
    #[serde(deserialize_with = "or_default")]
    read_completion: f64,
    #[serde(deserialize_with = "or_default")]
    write_completion: f64,
    #[serde(deserialize_with = "or_default")]
    data_preparation: f64,
    #[serde(deserialize_with = "or_default")]
    first_reselect: f64,
    #[serde(deserialize_with = "or_default")]
    other_reselect: f64,
    #[serde(deserialize_with = "or_default")]
    read_disconnect_after_read: f64,
    #[serde(deserialize_with = "or_default")]
    read_disconnect_after_write: f64,
    #[serde(deserialize_with = "or_default")]
    write_disconnect: f64,
    #[serde(deserialize_with = "or_default")]
    extra_write_disconnect_command: f64,
    #[serde(deserialize_with = "or_default")]
    extra_write_disconnect_first: f64,
    #[serde(deserialize_with = "or_default")]
    extra_write_disconnect_gap: f64,
    #[serde(deserialize_with = "or_default")]
    extra_write_disconnect_second: f64,
    #[serde(deserialize_with = "or_default")]
    extra_write_disconnect_seek_delay: f64,
    #[serde(deserialize_with = "or_default")]
    minimum_write_seek_delay: f64,
}

/// Treats `null` as an absent value.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A whole number; some descriptions say `true` for 1.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let number = match &value {
        serde_json::Value::Null => Some(0.0),
        serde_json::Value::Bool(on) => Some(f64::from(u8::from(*on))),
        other => other.as_f64(),
    };
    let whole = number.filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    whole
        .map(|whole| whole as u32)
        .ok_or_else(|| Error::custom(format!("{value} is not a whole number from 0")))
}

/// On or off; some descriptions say it in numbers, of which all but 0 are on.
fn switch<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Null => Ok(false),
        serde_json::Value::Bool(on) => Ok(on),
        serde_json::Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        other => Err(Error::custom(format!("{other} is neither true nor false"))),
    }
}

/// A capacity may be larger than the zones add up to by this share: lists of zones leave out
/// cylinders.
const CAPACITY_TOLERANCE: f64 = 0.03;

/// No time of a drive is longer.
const LONGEST_MS: f64 = 1000.0;

fn ns(parameter: &str, ms: f64) -> Result<u64, ParameterError> {
    match (0.0..=LONGEST_MS).contains(&ms) {
        true => Ok((ms * 1e6).round() as u64),
        false => Err(ParameterError::new(parameter, format!("{ms} ms is not within 0 to {LONGEST_MS}"))),
    }
}

fn sectors(parameter: &str, value: f64) -> Result<u32, ParameterError> {
    match (0.0..1e6).contains(&value) {
        true => Ok(value.round() as u32),
        false => Err(ParameterError::new(parameter, format!("{value} sectors are not within 0 to 1000000"))),
    }
}

impl Description {
    /// Reads JSON; `file` is for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReplayError> {
        let raw: Raw = serde_json::from_str(text).map_err(|error| ReplayError {
            file: file.into(),
            line: error.line(),
            column: error.column(),
            why: strip_place(&error.to_string()),
        })?;
        raw.checked(file).map_err(|error| ReplayError {
            file: file.into(),
            line: line_of(text, &error.parameter),
            column: 0,
            why: error.to_string(),
        })
    }
}

/// Strips the position that the parser's message ends with, since the error has its own.
fn strip_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).into()
}

/// Returns the line of the last part of a parameter's name.
fn line_of(text: &str, parameter: &str) -> usize {
    let key = format!("\"{}\"", parameter.rsplit('.').next().unwrap_or(parameter));
    text.lines().position(|line| line.contains(&key)).map_or(0, |at| at + 1)
}

impl Raw {
    fn checked(self, file: &str) -> Result<Description, ParameterError> {
        if !(self.rpm >= 60.0 && self.rpm <= 60_000.0) {
            return Err(ParameterError::new("rpm", format!("{} is not within 60 to 60000", self.rpm)));
        }
        let mut cache = self.cache.clone();
        if cache.segments > 10_000 {
            let why = format!("{} is not within 0 to 10000", cache.segments);
            return Err(ParameterError::new("cache.segments", why));
        }
        // Without segments there is nothing that a read could find.
        if cache.segments == 0 {
            cache.enabled = 0;
        }
        let watermark = self.bus_behaviour.read_reconnect_watermark;
        if !(0.0..=1.0).contains(&watermark) {
            let why = format!("{watermark} is not within 0 to 1");
            return Err(ParameterError::new("bus_behaviour.read_reconnect_watermark", why));
        }
        let mut hdd = HddParameters {
            sector_bytes: self.sector_bytes,
            capacity_sectors: self.capacity_sectors,
            revolution_ns: (60e9 / self.rpm).round() as u32,
            heads: self.surfaces,
            zones: self.zone_parameters()?,
            head_order: match self.lbn_mapping {
                0 => HeadOrder::Ascending,
                1 => HeadOrder::SerpentineByZone,
                2 => HeadOrder::SerpentineByCylinder,
                other => {
                    return Err(ParameterError::new("lbn_mapping", format!("{other} is none of 0, 1, 2")));
                }
            },
            seek: self.seek()?,
            head_switch_ns: ns("head_switch_ms", self.head_switch_ms)? as u32,
            write_settle_ns: match self.write_settle_ms.abs() <= LONGEST_MS / 10.0 {
                true => (self.write_settle_ms * 1e6).round() as i32,
                false => {
                    return Err(ParameterError::new(
                        "write_settle_ms",
                        format!("{} ms", self.write_settle_ms),
                    ));
                }
            },
            zero_latency_read: cache.zero_latency_read != 0 || cache.read_sectors_before_request,
            zero_latency_write: cache.zero_latency_write != 0,
            command_overhead_ns: 0,
            interface_bytes_per_second: 1 << 30,
            queue_depth: 1,
            read_cache: ReadCacheParameters { segments: 0, segment_sectors: 0, read_ahead_sectors: 0 },
            write_cache: WriteCacheParameters { extents: 0, bytes: 0 },
        };
        hold_capacity(&mut hdd, CAPACITY_TOLERANCE)?;
        Geometry::new(&hdd)?;
        let transfer = &self.bus_sector_transfer_ms;
        Ok(Description {
            file: file.into(),
            name: self.name.clone(),
            hdd,
            overheads: self.overheads_ms.checked()?,
            read_sector_ns: ns("bus_sector_transfer_ms.read", transfer.read)?,
            write_sector_ns: ns("bus_sector_transfer_ms.write", transfer.write)?,
            bus: self.bus_behaviour,
            cache,
        })
    }

    fn zone_parameters(&self) -> Result<Vec<ZoneParameters>, ParameterError> {
        self.zones
            .iter()
            .enumerate()
            .map(|(index, zone)| {
                let name = |field: &str| format!("zones[{index}].{field}");
                let last_cylinder = zone.last_cylinder.checked_sub(zone.first_cylinder);
                let cylinders =
                    last_cylinder.and_then(|cylinders| cylinders.checked_add(1)).ok_or_else(|| {
                        ParameterError::new(name("last_cylinder"), "it lies before the first".to_string())
                    })?;
                let heads = self.surfaces;
                let spare_tracks = zone.spares.saturating_mul(zone.sectors_per_track);
                let (spare_region_tracks, spare_sectors, spares_at_front) = match self.spare_scheme_code {
                    0 | 7 => (0, 0, false),
                    1 => (0, spare_tracks, false),
                    2 | 4 => (heads, zone.spares, false),
                    3 => (1, zone.spares, false),
                    5 | 6 => (heads, zone.spares, true),
                    8 => {
                        let range = self.spare_range_cylinders.filter(|range| *range > 0);
                        let range = range.ok_or_else(|| {
                            ParameterError::new("spare_range_cylinders", "needed by this spare scheme")
                        })?;
                        (range.saturating_mul(heads), zone.spares, false)
                    }
                    9 | 10 => (0, zone.spares, false),
                    other => {
                        let why = format!("{other} is not within 0 to 10");
                        return Err(ParameterError::new("spare_scheme_code", why));
                    }
                };
                let track_skew = sectors(&name("track_skew_sectors"), zone.track_skew_sectors)?;
                let cylinder_skew = sectors(&name("cylinder_skew_sectors"), zone.cylinder_skew_sectors)?;
                let offset = sectors(&name("first_sector_offset_sectors"), zone.first_sector_offset_sectors)?;
                Ok(ZoneParameters {
                    first_cylinder: zone.first_cylinder,
                    cylinders,
                    sectors_per_track: zone.sectors_per_track,
                    track_skew_sectors: track_skew,
                    cylinder_skew_sectors: cylinder_skew,
                    first_sector_offset_sectors: offset,
                    reserved_sectors: zone.reserved_sectors_at_front,
                    spare_region_tracks,
                    spare_sectors,
                    spares_at_front,
                })
            })
            .collect()
    }

    fn seek(&self) -> Result<SeekCurve, ParameterError> {
        let points = match (&self.seek_ms, &self.seek_formula) {
            (Some(points), None) => points.clone(),
            (None, Some(formula)) => formula.points(self.cylinders),
            _ => {
                let why = "exactly one of seek_ms and seek_formula is needed";
                return Err(ParameterError::new("seek_ms", why));
            }
        };
        // Several times of one distance are measurements of the same: their mean.
        let mut by_distance: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (distance, ms) in points {
            if !(0.0..1e9).contains(&distance) {
                let why = format!("a distance of {distance} cylinders");
                return Err(ParameterError::new("seek_ms", why));
            }
            by_distance.entry(distance.round() as u32).or_default().push(ms);
        }
        // A seek over nothing is none.
        by_distance.remove(&0);
        let point = |(distance, times): (u32, Vec<f64>)| {
            let mean_ms = times.iter().sum::<f64>() / times.len() as f64;
            Ok((distance, ns("seek_ms", mean_ms)? as u32))
        };
        let points = by_distance.into_iter().map(point).collect::<Result<_, ParameterError>>()?;
        Ok(SeekCurve::Table(points))
    }
}

impl RawFormula {
    /// One point for each distance.
    fn points(&self, cylinders: u32) -> Vec<(f64, f64)> {
        let time_ms = |distance: u32| {
            let first = self.first_ten_ms.get(distance as usize - 1).copied();
            let single = self.single_cylinder_ms.filter(|_| distance == 1);
            let distance_cylinders = f64::from(distance);
            first.or(single).unwrap_or(match distance < self.sqrt_below_cylinders {
                true => self.sqrt_constant_ms + self.sqrt_coefficient_ms * distance_cylinders.sqrt(),
                false => {
                    self.linear_constant_ms + self.linear_coefficient_ms_per_cylinder * distance_cylinders
                }
            })
        };
        let distances = 1..cylinders.clamp(2, 1 << 20);
        distances.map(|distance| (f64::from(distance), time_ms(distance))).collect()
    }
}

impl RawOverheads {
    fn checked(&self) -> Result<Overheads, ParameterError> {
        let ns = |name: &str, ms: f64| ns(&format!("overheads_ms.{name}"), ms);
        Ok(Overheads {
            read_hit: AfterWhich {
                read: ns("read_hit_after_read", self.read_hit_after_read)?,
                write: ns("read_hit_after_write", self.read_hit_after_write)?,
            },
            read_miss: AfterWhich {
                read: ns("read_miss_after_read", self.read_miss_after_read)?,
                write: ns("read_miss_after_write", self.read_miss_after_write)?,
            },
            write_hit: AfterWhich {
                read: ns("write_hit_after_read", self.write_hit_after_read)?,
                write: ns("write_hit_after_write", self.write_hit_after_write)?,
            },
            write_miss: AfterWhich {
                read: ns("write_miss_after_read", self.write_miss_after_read)?,
                write: ns("write_miss_after_write", self.write_miss_after_write)?,
            },
            read_completion: ns("read_completion", self.read_completion)?,
            write_completion: ns("write_completion", self.write_completion)?,
            data_preparation: ns("data_preparation", self.data_preparation)?,
            first_reselect: ns("first_reselect", self.first_reselect)?,
            other_reselect: ns("other_reselect", self.other_reselect)?,
            read_disconnect: AfterWhich {
                read: ns("read_disconnect_after_read", self.read_disconnect_after_read)?,
                write: ns("read_disconnect_after_write", self.read_disconnect_after_write)?,
            },
            write_disconnect: ns("write_disconnect", self.write_disconnect)?,
            extra_command: ns("extra_write_disconnect_command", self.extra_write_disconnect_command)?,
            extra_first: ns("extra_write_disconnect_first", self.extra_write_disconnect_first)?,
            extra_gap: ns("extra_write_disconnect_gap", self.extra_write_disconnect_gap)?,
            extra_second: ns("extra_write_disconnect_second", self.extra_write_disconnect_second)?,
            extra_seek_delay: ns(
                "extra_write_disconnect_seek_delay",
                self.extra_write_disconnect_seek_delay,
            )?,
            minimum_write_seek_delay: ns("minimum_write_seek_delay", self.minimum_write_seek_delay)?,
        })
    }
}
