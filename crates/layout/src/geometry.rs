//! The address map of a volume: volume offset → stripe → member and offset, and back.
//!
//! Location of the units of stripe `s`, with `n` members (in a group), `m` parity units, strips
//! numbered in rows:
//!
//! | layout | units |
//! |---|---|
//! | single, RAID 0 | member `s mod n`, row `s / n` |
//! | RAID 1 | every member, row `s` |
//! | RAID 10 | strips counted across the members: copies at `2s` and `2s + 1`; odd `n` works |
//! | RAID 4 | data `i` on member `i`, P on the last, row `s` |
//! | RAID 5, 6, 7 | P on `n - 1 - (s / t mod n)`, then Q, R, the data, each on the next member |
//! | RAID 50, 60 | group `s mod G`, consecutive members; in it RAID 5, 6 with row `s / G` |
//!
//! With `t` = 1 the rotation is the one Linux md calls left-symmetric: data go on where the last
//! stripe's ended, so that reading in sequence takes the members in turn. On drives with arms
//! parity stays for `t` rows ([`Shape::rotation_rows`]), so that a reader passes over it in one
//! long step instead of many that cost as much as reading it. The maps are bijections (see the
//! tests); the only strip without a unit is the very last of a RAID 10 with an odd number of
//! strips.
//!
//! Everything here runs for every request, so divisions are multiplications ([`Divisor`]) and
//! nothing allocates for up to 12 units. Faults expected: an invalid shape or size from metadata;
//! addresses out of range are bugs.

use smallvec::SmallVec;

use crate::divisor::Divisor;
use crate::error::LayoutError;
use crate::level::Level;
use crate::members::MemberSet;
use crate::spec::Shape;
use crate::unit_range::UnitRange;

/// A place on a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The member.
    pub member: usize,
    /// Bytes from the start of the volume's space on it.
    pub offset_bytes: u64,
}

/// One redundancy set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Number of the stripe.
    pub index: u64,
    /// Start of each unit: data `0..k`, then parity `k..k+m` (P, Q, R); for mirrors the copies.
    pub units: SmallVec<[Place; 12]>,
}

/// Unit at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitAt {
    /// The stripe.
    pub stripe: u64,
    /// The unit of the stripe.
    pub unit: usize,
    /// Bytes from the start of the unit.
    pub offset_in_unit: u64,
}

/// Location of a volume offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The stripe.
    pub stripe: u64,
    /// Bytes from the start of the stripe's data.
    pub from: u64,
}

/// The part of a request that lies in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The stripe.
    pub stripe: u64,
    /// First byte, from the start of the stripe's data.
    pub from: u64,
    /// One past the last byte, from the start of the stripe's data.
    pub to: u64,
}

/// The rule by which units lie on members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Striped,
    Mirrored,
    StripedMirrors,
    FixedParity,
    RotatingParity,
}

/// A shape over members of a size: the address map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    shape: Shape,
    placement: Placement,
    member_bytes: u64,
    stripes: u64,
    interleave_shift: u32,
    rotation_shift: u32,
    data_units: usize,
    parity_units: usize,
    copies: usize,
    group_width: usize,
    by_data_units: Divisor,
    by_width: Divisor,
    by_group_width: Divisor,
    by_groups: Divisor,
}

impl Geometry {
    /// Lays the shape over members that have `member_bytes` for the volume each; what is left over
    /// after the last whole strip is not used. Fails where the shape is impossible, the members
    /// have no room for one strip, or all of them together pass 2^64 bytes.
    pub fn new(shape: Shape, member_bytes: u64) -> Result<Geometry, LayoutError> {
        shape.check()?;
        let Shape { level, width, groups, interleave_bytes, rotation_rows } = shape;
        let rows = member_bytes / interleave_bytes;
        if rows == 0 {
            return Err(LayoutError::MembersTooSmall { member_bytes, interleave_bytes });
        }
        let used_bytes = rows * interleave_bytes;
        if used_bytes.checked_mul(width as u64).is_none() {
            return Err(LayoutError::TooLarge { width, member_bytes });
        }
        let (placement, stripes) = match level {
            Level::Single | Level::Raid0 => (Placement::Striped, rows * width as u64),
            Level::Raid1 => (Placement::Mirrored, rows),
            Level::Raid10 => (Placement::StripedMirrors, rows * width as u64 / 2),
            Level::Raid4 => (Placement::FixedParity, rows),
            Level::Raid5 | Level::Raid6 | Level::Raid7 | Level::Raid50 | Level::Raid60 => {
                (Placement::RotatingParity, rows * groups as u64)
            }
        };
        Ok(Geometry {
            shape,
            placement,
            member_bytes: used_bytes,
            stripes,
            interleave_shift: interleave_bytes.trailing_zeros(),
            rotation_shift: rotation_rows.trailing_zeros(),
            data_units: shape.data_units(),
            parity_units: shape.parity_units(),
            copies: shape.copies(),
            group_width: shape.group_width(),
            by_data_units: Divisor::new(shape.data_units() as u64),
            by_width: Divisor::new(width as u64),
            by_group_width: Divisor::new(shape.group_width() as u64),
            by_groups: Divisor::new(groups as u64),
        })
    }

    /// Shape of the volume.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Members in all.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// Bytes used on every member: whole strips.
    pub fn member_bytes(&self) -> u64 {
        self.member_bytes
    }

    /// Capacity of the volume in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.stripes * self.stripe_data_bytes()
    }

    /// Bytes per strip.
    pub fn interleave_bytes(&self) -> u64 {
        self.shape.interleave_bytes
    }

    /// Data units per stripe; 1 for mirrors and for the levels without redundancy.
    pub fn data_units(&self) -> usize {
        self.data_units
    }

    /// Parity units per stripe: 0 to 3.
    pub fn parity_units(&self) -> usize {
        self.parity_units
    }

    /// Copies of every strip of data.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Units per stripe: data and parity, or copies.
    pub fn units(&self) -> usize {
        self.data_units * self.copies + self.parity_units
    }

    /// Number of members that can be lost in any combination.
    pub fn fault_tolerance(&self) -> usize {
        self.shape.fault_tolerance()
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Bytes of data in a stripe.
    pub fn stripe_data_bytes(&self) -> u64 {
        (self.data_units as u64) << self.interleave_shift
    }

    /// Returns the location of a volume offset. An offset at or past the capacity gives a stripe
    /// past the last.
    #[inline]
    pub fn locate(&self, volume_offset: u64) -> Location {
        let strip = volume_offset >> self.interleave_shift;
        let in_strip = volume_offset & (self.shape.interleave_bytes - 1);
        let (stripe, unit) = self.by_data_units.divide(strip);
        Location { stripe, from: (unit << self.interleave_shift) + in_strip }
    }

    /// Returns the volume offset of a place in a data unit, the inverse of [`Geometry::locate`];
    /// `None` for parity. Every copy of a mirror gives the same volume offset. Panics if the stripe
    /// does not exist.
    pub fn volume_offset(&self, stripe: u64, unit: usize, offset_in_unit: u64) -> Option<u64> {
        assert!(stripe < self.stripes, "stripe {stripe} of {}", self.stripes);
        if unit >= self.data_units * self.copies {
            return None;
        }
        let data_unit = if self.copies > 1 { 0 } else { unit as u64 };
        let start = stripe * self.stripe_data_bytes() + (data_unit << self.interleave_shift);
        Some(start + offset_in_unit)
    }

    /// Cuts a request into the parts that lie in one stripe each, in order.
    pub fn segments(&self, volume_offset: u64, length: u64) -> impl Iterator<Item = Segment> + use<> {
        let stripe_data_bytes = self.stripe_data_bytes();
        let first = self.locate(volume_offset);
        let mut next = first;
        let mut left = length;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let part = left.min(stripe_data_bytes - next.from);
            let segment = Segment { stripe: next.stripe, from: next.from, to: next.from + part };
            next = Location { stripe: next.stripe + 1, from: 0 };
            left -= part;
            Some(segment)
        })
    }

    /// Cuts a part of a stripe's data, `from..to`, into one range per data unit, in order: what
    /// [`crate::plan_write`] takes.
    pub fn data_ranges(&self, from: u64, to: u64) -> impl Iterator<Item = UnitRange> + use<> {
        let shift = self.interleave_shift;
        let mut next = from;
        std::iter::from_fn(move || {
            if next >= to {
                return None;
            }
            let unit = next >> shift;
            let unit_start = unit << shift;
            let end = to.min(unit_start + (1 << shift));
            let range = UnitRange { unit: unit as usize, start: next - unit_start, end: end - unit_start };
            next = end;
            Some(range)
        })
    }

    /// Returns the places of a stripe's units. Panics if the stripe does not exist.
    #[inline]
    pub fn stripe(&self, index: u64) -> Stripe {
        assert!(index < self.stripes, "stripe {index} of {}", self.stripes);
        let mut units = SmallVec::new();
        match self.placement {
            Placement::Striped => {
                let (row, member) = self.by_width.divide(index);
                units.push(self.place(member as usize, row));
            }
            Placement::Mirrored => {
                units.extend((0..self.copies).map(|member| self.place(member, index)));
            }
            Placement::StripedMirrors => {
                let (row, member) = self.by_width.divide(2 * index);
                units.push(self.place(member as usize, row));
                let (row, member) = self.by_width.divide(2 * index + 1);
                units.push(self.place(member as usize, row));
            }
            Placement::FixedParity => {
                units.extend((0..self.shape.width).map(|member| self.place(member, index)));
            }
            Placement::RotatingParity => {
                let (row, base, parity) = self.rotation(index);
                let first_data = parity + self.parity_units;
                let end = base + self.group_width;
                let mut member = base + wrapped(first_data, self.group_width);
                units.extend((0..self.group_width).map(|_| {
                    let place = self.place(member, row);
                    member += 1;
                    if member == end {
                        member = base;
                    }
                    place
                }));
            }
        }
        Stripe { index, units }
    }

    /// Returns the start of one unit of a stripe, without computing the others. Panics if the
    /// stripe or unit does not exist.
    #[inline]
    pub fn place_of_unit(&self, stripe: u64, unit: usize) -> Place {
        assert!(stripe < self.stripes, "stripe {stripe} of {}", self.stripes);
        assert!(unit < self.units(), "unit {unit} of {}", self.units());
        match self.placement {
            Placement::Striped => {
                let (row, member) = self.by_width.divide(stripe);
                self.place(member as usize, row)
            }
            Placement::Mirrored | Placement::FixedParity => self.place(unit, stripe),
            Placement::StripedMirrors => {
                let (row, member) = self.by_width.divide(2 * stripe + unit as u64);
                self.place(member as usize, row)
            }
            Placement::RotatingParity => {
                let (row, base, parity) = self.rotation(stripe);
                // From P on, round the group: the parity units, then the data.
                let after_parity =
                    if unit < self.data_units { unit + self.parity_units } else { unit - self.data_units };
                self.place(base + wrapped(parity + after_parity, self.group_width), row)
            }
        }
    }

    /// Returns the place of the byte at a volume offset, and the number of bytes from there to the
    /// end of its strip (including it). For mirrors: its first copy; [`Geometry::copy_place`] has
    /// the others.
    #[inline]
    pub fn data_unit_place(&self, volume_offset: u64) -> (Place, u64) {
        self.copy_place(volume_offset, 0)
    }

    /// Returns the same as [`Geometry::data_unit_place`] for one of the copies. Panics if the copy
    /// does not exist.
    #[inline]
    pub fn copy_place(&self, volume_offset: u64, copy: usize) -> (Place, u64) {
        assert!(copy < self.copies, "copy {copy} of {}", self.copies);
        let in_strip = volume_offset & (self.shape.interleave_bytes - 1);
        let (stripe, unit) = self.by_data_units.divide(volume_offset >> self.interleave_shift);
        let unit = if self.copies > 1 { copy } else { unit as usize };
        let Place { member, offset_bytes } = self.place_of_unit(stripe, unit);
        let place = Place { member, offset_bytes: offset_bytes + in_strip };
        (place, self.shape.interleave_bytes - in_strip)
    }

    /// Returns the unit at a place; the inverse of [`Geometry::stripe`]. `None` for a place that
    /// holds no unit: past the members, past their used space, and the last strip of a RAID 10 with
    /// an odd number of strips.
    pub fn unit_at(&self, member: usize, offset_bytes: u64) -> Option<UnitAt> {
        if member >= self.shape.width || offset_bytes >= self.member_bytes {
            return None;
        }
        let row = offset_bytes >> self.interleave_shift;
        let (stripe, unit) = match self.placement {
            Placement::Striped => (row * self.shape.width as u64 + member as u64, 0),
            Placement::Mirrored | Placement::FixedParity => (row, member),
            Placement::StripedMirrors => {
                let position = row * self.shape.width as u64 + member as u64;
                (position / 2, (position % 2) as usize)
            }
            Placement::RotatingParity => {
                let group = member / self.group_width;
                let stripe = row * self.shape.groups as u64 + group as u64;
                let (_, base, parity) = self.rotation(stripe);
                let after_parity = wrapped(member - base + self.group_width - parity, self.group_width);
                let unit = if after_parity < self.parity_units {
                    after_parity + self.data_units
                } else {
                    after_parity - self.parity_units
                };
                (stripe, unit)
            }
        };
        if stripe >= self.stripes {
            return None;
        }
        Some(UnitAt { stripe, unit, offset_in_unit: offset_bytes & (self.shape.interleave_bytes - 1) })
    }

    /// True if every stripe can still be read with these members missing. Numbers that are not
    /// members of this volume do not count.
    pub fn survives(&self, missing: &MemberSet) -> bool {
        let width = self.shape.width;
        let gone = |member: usize| missing.contains(member);
        match self.placement {
            Placement::Striped => !(0..width).any(gone),
            Placement::Mirrored => !(0..width).all(gone),
            Placement::StripedMirrors => {
                // With an even width the pairs repeat in every row. With an odd one they shift by a
                // member from row to row, so that two rows show all of them.
                let stripes_to_see = self.stripes.min(width as u64);
                (0..stripes_to_see).all(|stripe| self.stripe_survives(stripe, missing))
            }
            Placement::FixedParity | Placement::RotatingParity => {
                (0..width).step_by(self.group_width).all(|base| {
                    (base..base + self.group_width).filter(|&m| gone(m)).count() <= self.parity_units
                })
            }
        }
    }

    /// True if one stripe can still be read with these members missing. Panics if the stripe does
    /// not exist.
    pub fn stripe_survives(&self, stripe: u64, missing: &MemberSet) -> bool {
        let lost = (0..self.units())
            .filter(|&unit| missing.contains(self.place_of_unit(stripe, unit).member))
            .count();
        lost <= self.fault_tolerance()
    }

    #[inline]
    fn place(&self, member: usize, row: u64) -> Place {
        Place { member, offset_bytes: row << self.interleave_shift }
    }

    /// Returns, for a stripe with rotating parity, its row, the first member of its group, and the
    /// position of P in the group.
    #[inline]
    fn rotation(&self, stripe: u64) -> (u64, usize, usize) {
        let (row, group) = if self.shape.groups == 1 { (stripe, 0) } else { self.by_groups.divide(stripe) };
        let turn = self.by_group_width.remainder(row >> self.rotation_shift) as usize;
        (row, group as usize * self.group_width, self.group_width - 1 - turn)
    }
}

/// `number mod width` for numbers below twice the width.
#[inline]
fn wrapped(number: usize, width: usize) -> usize {
    if number >= width { number - width } else { number }
}
