//! Location of a sector: zone, cylinder, head, angle. Angles are nanoseconds of rotation from the
//! index, so that no rounding comes between the end of one sector and the start of the next.

use super::parameter_error::ParameterError;
use super::parameters::{HddParameters, HeadOrder};
use super::seek::SeekTable;

/// Start of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Counted from the outer edge.
    pub cylinder: u32,
    /// Counted from the first.
    pub head: u16,
    /// Index into the zones.
    pub zone: u16,
    /// Position on the track, counted in slots that pass the head.
    pub slot: u32,
    /// Addressed sectors of the track before this one.
    pub before_on_track: u32,
    /// Addressed sectors from here to the end of this piece of track.
    pub left_on_track: u32,
    /// Rotation at which the sector starts, below one revolution.
    pub angle_ns: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    first_lba: u64,
    first_cylinder: u32,
    sectors_per_track: u32,
    track_skew: u64,
    cylinder_skew: u64,
    offset: u64,
    reserved: u64,
    /// Addressed sectors of a region, and the places that it takes.
    region_sectors: u64,
    region_places: u64,
    /// Places at the start of a region without addresses.
    spares_before: u64,
}

/// The surface of a drive.
#[derive(Clone, Debug)]
pub struct Geometry {
    revolution_ns: u32,
    pub(super) seek: SeekTable,
    zones: Vec<Zone>,
    heads: u32,
    head_order: HeadOrder,
    capacity_sectors: u64,
    cylinders: u32,
}

impl Geometry {
    /// Refuses a capacity that the zones do not hold.
    pub fn new(parameters: &HddParameters) -> Result<Self, ParameterError> {
        let (zones, held) = zones(parameters)?;
        if parameters.capacity_sectors == 0 || parameters.capacity_sectors > held {
            let why = format!("{} is not within the {held} that the zones hold", parameters.capacity_sectors);
            return Err(ParameterError::new("capacity_sectors", why));
        }
        let last = parameters.zones.last().expect("checked: at least one zone");
        let cylinders = last.first_cylinder + last.cylinders;
        Ok(Self {
            revolution_ns: parameters.revolution_ns,
            seek: parameters.seek.compile(cylinders),
            zones,
            heads: parameters.heads,
            head_order: parameters.head_order,
            capacity_sectors: parameters.capacity_sectors,
            cylinders,
        })
    }

    /// Sectors that clients see.
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// From the outer to the inner edge.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Duration of one.
    #[inline]
    pub(crate) fn revolution_ns(&self) -> u32 {
        self.revolution_ns
    }

    /// Places of a track of this zone.
    pub(crate) fn sectors_per_track(&self, zone: u16) -> u32 {
        self.zones[usize::from(zone)].sectors_per_track
    }

    /// Rotation at which a place starts; one revolution for the end of the last.
    #[inline]
    pub(super) fn angle_ns(&self, zone: u16, slot: u32) -> u32 {
        let places = u64::from(self.zones[usize::from(zone)].sectors_per_track);
        (u64::from(slot) * u64::from(self.revolution_ns) / places) as u32
    }

    /// Panics beyond the capacity.
    pub fn target(&self, lba: u64) -> Target {
        assert!(lba < self.capacity_sectors, "sector {lba} beyond {}", self.capacity_sectors);
        let index = self.zones.partition_point(|zone| zone.first_lba <= lba) - 1;
        let zone = &self.zones[index];
        let numbered = lba - zone.first_lba + zone.reserved;
        let region = numbered / zone.region_sectors;
        let in_region = numbered % zone.region_sectors;
        let place = region * zone.region_places + zone.spares_before + in_region;
        let per_track = u64::from(zone.sectors_per_track);
        let (track, sector) = (place / per_track, place % per_track);
        let heads = u64::from(self.heads);
        let (cylinder, mut head) = (track / heads, track % heads);
        let odd = match self.head_order {
            HeadOrder::Ascending => false,
            HeadOrder::SerpentineByZone => cylinder % 2 == 1,
            HeadOrder::SerpentineByCylinder => (u64::from(zone.first_cylinder) + cylinder) % 2 == 1,
        };
        if odd {
            head = heads - 1 - head;
        }
        let skew = zone.offset + (track - cylinder) * zone.track_skew + cylinder * zone.cylinder_skew;
        let slot = ((sector + skew) % per_track) as u32;
        let before_on_track = sector.min(in_region) as u32;
        let left_on_track = (per_track - sector).min(zone.region_sectors - in_region) as u32;
        Target {
            cylinder: zone.first_cylinder + cylinder as u32,
            head: head as u16,
            zone: index as u16,
            slot,
            before_on_track,
            left_on_track,
            angle_ns: self.angle_ns(index as u16, slot),
        }
    }
}

/// Lengthens the last zone where the zones hold less than the capacity, by at most this share
/// of it.
pub(crate) fn hold_capacity(parameters: &mut HddParameters, tolerance: f64) -> Result<(), ParameterError> {
    let wanted = parameters.capacity_sectors;
    let held = zones(parameters)?.1;
    let missing = wanted.saturating_sub(held);
    if missing == 0 || missing as f64 > wanted as f64 * tolerance {
        return Ok(());
    }
    let last = parameters.zones.last_mut().expect("checked: at least one zone");
    let spares = match last.spare_region_tracks {
        0 => 0,
        tracks => u64::from(last.spare_sectors).div_ceil(u64::from(tracks)),
    };
    let on_track = u64::from(last.sectors_per_track).saturating_sub(spares).max(1);
    let cylinders = missing.div_ceil(on_track * u64::from(parameters.heads));
    // One more, as a run of tracks with spare sectors may end within the last.
    last.cylinders = last.cylinders.saturating_add(cylinders.min(1 << 28) as u32 + 1);
    Ok(())
}

/// The zones, and the sectors that they hold together.
fn zones(parameters: &HddParameters) -> Result<(Vec<Zone>, u64), ParameterError> {
    parameters.check()?;
    let heads = u64::from(parameters.heads);
    let mut first_lba = 0;
    let mut zones = Vec::with_capacity(parameters.zones.len());
    for (index, zone) in parameters.zones.iter().enumerate() {
        let places = u64::from(zone.cylinders) * heads * u64::from(zone.sectors_per_track);
        let reserved = u64::from(zone.reserved_sectors);
        let region_places = match zone.spare_region_tracks {
            0 => places,
            tracks => u64::from(tracks) * u64::from(zone.sectors_per_track),
        };
        let spares = u64::from(zone.spare_sectors);
        if spares >= region_places || reserved >= places {
            let why = format!("{} spare and {} reserved sectors are the whole", spares, reserved);
            return Err(ParameterError::new(format!("zones[{index}]"), why));
        }
        let region_sectors = region_places - spares;
        let last_places = places % region_places;
        let sectors = places / region_places * region_sectors + last_places.min(region_sectors);
        zones.push(Zone {
            first_lba,
            first_cylinder: zone.first_cylinder,
            sectors_per_track: zone.sectors_per_track,
            track_skew: zone.track_skew_sectors.into(),
            cylinder_skew: zone.cylinder_skew_sectors.into(),
            offset: zone.first_sector_offset_sectors.into(),
            reserved,
            region_sectors,
            region_places,
            spares_before: if zone.spares_at_front { spares } else { 0 },
        });
        first_lba += sectors.saturating_sub(reserved);
    }
    Ok((zones, first_lba))
}
