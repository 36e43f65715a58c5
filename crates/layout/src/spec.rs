//! Layout requests ([`LayoutSpec`]), which are checked against the available drives and become a
//! [`Shape`].
//!
//! Faults expected: requests that cannot be met, and invalid shapes read from metadata. Both are
//! refused with the numbers named.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{LayoutError, group_counts};
use crate::level::Level;
use crate::limits::{
    DEFAULT_INTERLEAVE_BYTES, MAXIMUM_INTERLEAVE_BYTES, MAXIMUM_ROTATION_ROWS, MINIMUM_INTERLEAVE_BYTES,
};

/// A layout request: everything but the level may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutSpec {
    /// The level.
    pub level: Level,
    /// Members in all; left out: all drives (two for RAID 1, one for `single`).
    #[serde(default)]
    pub columns: Option<usize>,
    /// Groups of RAID 50 and 60; left out: the fewest that divide the members equally.
    #[serde(default)]
    pub groups: Option<usize>,
    /// Bytes per strip; left out: [`DEFAULT_INTERLEAVE_BYTES`].
    #[serde(default)]
    pub interleave_bytes: Option<u64>,
    /// Rows for which parity stays on its members; left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation_rows: Option<u32>,
}

impl LayoutSpec {
    /// The level with everything else left open.
    pub fn new(level: Level) -> LayoutSpec {
        LayoutSpec { level, columns: None, groups: None, interleave_bytes: None, rotation_rows: None }
    }

    /// Reads a layout by name or alias. Unlike [`Level::from_str`] it knows `mirror3`, RAID 1 with
    /// 3 columns.
    pub fn parse(name: &str) -> Result<LayoutSpec, LayoutError> {
        match name.parse() {
            Ok(level) => Ok(LayoutSpec::new(level)),
            Err(LayoutError::ThreeCopiesAreNoLevel) => {
                Ok(LayoutSpec { columns: Some(3), ..LayoutSpec::new(Level::Raid1) })
            }
            Err(error) => Err(error),
        }
    }

    /// Fills in the open fields and checks the result against the number of available drives.
    pub fn resolve(&self, drives: usize) -> Result<Shape, LayoutError> {
        let level = self.level;
        let width = self.resolve_width(drives)?;
        let groups = match self.groups {
            Some(groups) => groups,
            None if !level.is_grouped() => 1,
            None => match group_counts(level, width).first() {
                Some(&groups) => groups,
                None => {
                    let needed = level.minimum_group_width();
                    return Err(LayoutError::NoEqualGroups { level, width, needed });
                }
            },
        };
        let interleave_bytes = self.interleave_bytes.unwrap_or(DEFAULT_INTERLEAVE_BYTES);
        let rotation_rows = self.rotation_rows.unwrap_or(1);
        let shape = Shape { level, width, groups, interleave_bytes, rotation_rows };
        shape.check()?;
        Ok(shape)
    }

    fn resolve_width(&self, drives: usize) -> Result<usize, LayoutError> {
        let level = self.level;
        let needed = level.minimum_width();
        let Some(columns) = self.columns else {
            if drives < needed {
                return Err(LayoutError::TooFewDrives { level, needed, given: drives });
            }
            if matches!(level, Level::Single | Level::Raid1) {
                return Ok(needed);
            }
            if drives > level.maximum_width() {
                let allowed = level.maximum_width();
                return Err(LayoutError::TooManyDrives { level, allowed, given: drives });
            }
            return Ok(drives);
        };
        check_columns(level, columns)?;
        if columns > drives {
            return Err(LayoutError::ColumnsExceedDrives { level, columns, given: drives });
        }
        Ok(columns)
    }
}

impl FromStr for LayoutSpec {
    type Err = LayoutError;

    fn from_str(name: &str) -> Result<LayoutSpec, LayoutError> {
        LayoutSpec::parse(name)
    }
}

fn check_columns(level: Level, columns: usize) -> Result<(), LayoutError> {
    if columns < level.minimum_width() {
        return Err(LayoutError::TooFewColumns { level, needed: level.minimum_width(), given: columns });
    }
    if columns > level.maximum_width() {
        return Err(LayoutError::TooManyColumns { level, allowed: level.maximum_width(), given: columns });
    }
    Ok(())
}

/// A layout with nothing left open. [`LayoutSpec::resolve`] makes valid ones; a shape from
/// elsewhere (metadata) is checked by [`Shape::check`], which [`crate::Geometry::new`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Members in all.
    pub width: usize,
    /// Groups that the members are divided into; 1 for the levels without groups.
    pub groups: usize,
    /// Bytes per strip.
    pub interleave_bytes: u64,
    /// Rows for which parity stays on its members before it moves on, a power of two; 1 for the
    /// levels whose parity does not rotate.
    #[serde(default = "every_row", skip_serializing_if = "is_every_row")]
    pub rotation_rows: u32,
}

fn every_row() -> u32 {
    1
}

fn is_every_row(rows: &u32) -> bool {
    *rows == 1
}

impl Shape {
    /// Checks that such a layout can exist.
    pub fn check(&self) -> Result<(), LayoutError> {
        let Shape { level, width, groups, interleave_bytes, rotation_rows } = *self;
        check_columns(level, width)?;
        if !level.is_grouped() {
            if groups != 1 {
                return Err(LayoutError::NoGroupsInLevel { level, groups });
            }
        } else if groups < 2 {
            return Err(LayoutError::TooFewGroups { level, groups });
        } else if !width.is_multiple_of(groups) {
            return Err(LayoutError::UnequalGroups { level, groups, width });
        } else if width / groups < level.minimum_group_width() {
            let needed = level.minimum_group_width();
            return Err(LayoutError::GroupsTooNarrow { level, groups, width, needed });
        }
        if !interleave_bytes.is_power_of_two() {
            return Err(LayoutError::InterleaveNotPowerOfTwo { given_bytes: interleave_bytes });
        }
        if !(MINIMUM_INTERLEAVE_BYTES..=MAXIMUM_INTERLEAVE_BYTES).contains(&interleave_bytes) {
            return Err(LayoutError::InterleaveOutOfRange { given_bytes: interleave_bytes });
        }
        let is_possible = rotation_rows.is_power_of_two() && rotation_rows <= MAXIMUM_ROTATION_ROWS;
        if rotation_rows != 1 && !(is_possible && level.rotates_parity()) {
            return Err(LayoutError::RotationImpossible { level, rows: rotation_rows });
        }
        Ok(())
    }

    /// Members in one group; all of them where there are no groups.
    pub fn group_width(&self) -> usize {
        self.width / self.groups.max(1)
    }

    /// Copies of every strip of data: the width for RAID 1, 2 for RAID 10, else 1.
    pub fn copies(&self) -> usize {
        match self.level {
            Level::Raid1 => self.width,
            Level::Raid10 => 2,
            _ => 1,
        }
    }

    /// Parity units per stripe.
    pub fn parity_units(&self) -> usize {
        self.level.parity_units()
    }

    /// Data units per stripe; 1 for mirrors and for the levels without redundancy.
    pub fn data_units(&self) -> usize {
        match self.parity_units() {
            0 => 1,
            parity_units => self.group_width().saturating_sub(parity_units),
        }
    }

    /// Units per stripe: data and parity, or copies.
    pub fn units(&self) -> usize {
        self.data_units() * self.copies() + self.parity_units()
    }

    /// Number of members that can be lost in any combination.
    pub fn fault_tolerance(&self) -> usize {
        self.copies().saturating_sub(1) + self.parity_units()
    }
}
