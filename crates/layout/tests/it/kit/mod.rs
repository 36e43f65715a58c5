//! Shared set-ups of this crate's tests: small geometries of every kind, and every set of missing
//! members.

pub mod field;
pub mod simulation;

use stripewise_layout::{Geometry, LayoutSpec, Level, MemberSet, Shape};

pub const INTERLEAVE_BYTES: u64 = 4096;

/// A geometry of `rows` strips of 4 KiB per member.
pub fn geometry(level: Level, width: usize, groups: Option<usize>, rows: u64) -> Geometry {
    let spec = LayoutSpec {
        columns: Some(width),
        groups,
        interleave_bytes: Some(INTERLEAVE_BYTES),
        ..LayoutSpec::new(level)
    };
    let shape = spec.resolve(width).unwrap_or_else(|error| panic!("{level} on {width} members: {error}"));
    Geometry::new(shape, rows * INTERLEAVE_BYTES).unwrap()
}

/// Returns the same geometry with parity that stays on its members for this number of rows.
pub fn staying(geometry: &Geometry, rotation_rows: u32) -> Geometry {
    let shape = Shape { rotation_rows, ..*geometry.shape() };
    Geometry::new(shape, geometry.member_bytes()).unwrap()
}

/// Every level on every width up to `widest`, and up to `widest_grouped` with every possible number
/// of groups.
pub fn small_geometries(widest: usize, widest_grouped: usize, rows: u64) -> Vec<Geometry> {
    let mut geometries = Vec::new();
    for level in Level::ALL {
        if level.is_grouped() {
            for width in level.minimum_width()..=widest_grouped {
                let counts = 2..=width / level.minimum_group_width();
                for groups in counts.filter(|groups| width.is_multiple_of(*groups)) {
                    geometries.push(geometry(level, width, Some(groups), rows));
                }
            }
        } else {
            for width in level.minimum_width()..=widest.min(level.maximum_width()) {
                geometries.push(geometry(level, width, None, rows));
            }
        }
    }
    let rotating = |geometry: &Geometry| geometry.shape().level.rotates_parity();
    let staying: Vec<Geometry> = geometries
        .iter()
        .filter(|geometry| rotating(geometry))
        .map(|geometry| staying(geometry, 4))
        .collect();
    geometries.extend(staying);
    geometries
}

/// As many stripes as it takes until the pattern of members repeats, but no more than there are.
pub fn period(geometry: &Geometry) -> u64 {
    let shape = geometry.shape();
    ((shape.groups * shape.group_width()) as u64).min(geometry.stripes())
}

/// The members whose bits are set.
pub fn members(bits: u32) -> MemberSet {
    (0..32).filter(|member| bits & (1 << member) != 0).collect()
}

/// Numbers that look random, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
