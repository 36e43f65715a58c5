//! Errors of layout requests, with hints.
//!
//! Every message names the numbers involved; [`LayoutError::hint`] suggests a remedy separately.

use std::cmp::Ordering;

use thiserror::Error;

use crate::level::Level;
use crate::limits::{MAXIMUM_INTERLEAVE_BYTES, MAXIMUM_ROTATION_ROWS, MINIMUM_INTERLEAVE_BYTES};

/// Reason why a layout is impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No layout has this name.
    #[error("there is no layout {name:?}")]
    UnknownLayout {
        /// Name as given.
        name: String,
    },
    /// Alias such as `mirror3` where only a level fits.
    #[error("mirror3 is raid1 with 3 columns, not a level of its own")]
    ThreeCopiesAreNoLevel,
    /// Fewer drives than the level needs.
    #[error("{level} needs at least {}, {} given", counted(*needed, "drive"), were(*given))]
    TooFewDrives {
        /// The level asked for.
        level: Level,
        /// Its minimum.
        needed: usize,
        /// Number of drives available.
        given: usize,
    },
    /// More drives than any volume can use, and no columns to choose some of them.
    #[error("{level} uses at most {}, {} given", counted(*allowed, "drive"), were(*given))]
    TooManyDrives {
        /// The level asked for.
        level: Level,
        /// Its maximum.
        allowed: usize,
        /// Number of drives available.
        given: usize,
    },
    /// Fewer columns than the level needs.
    #[error("{level} needs at least {}, {} asked for", counted(*needed, "column"), were(*given))]
    TooFewColumns {
        /// The level asked for.
        level: Level,
        /// Its minimum.
        needed: usize,
        /// Columns asked for.
        given: usize,
    },
    /// More columns than the level can have.
    #[error("{level} has at most {}, {} asked for", counted(*allowed, "column"), were(*given))]
    TooManyColumns {
        /// The level asked for.
        level: Level,
        /// Its maximum.
        allowed: usize,
        /// Columns asked for.
        given: usize,
    },
    /// More columns than drives: every column needs a drive of its own.
    #[error("{level} with {columns} columns needs {columns} drives, {} given", were(*given))]
    ColumnsExceedDrives {
        /// The level asked for.
        level: Level,
        /// Columns asked for.
        columns: usize,
        /// Number of drives available.
        given: usize,
    },
    /// Groups asked for where the level has none.
    #[error("{level} has no groups, {groups} were asked for")]
    NoGroupsInLevel {
        /// The level asked for.
        level: Level,
        /// Groups asked for.
        groups: usize,
    },
    /// A grouped level over less than two groups.
    #[error("{level} needs at least 2 groups, {} asked for", were(*groups))]
    TooFewGroups {
        /// The level asked for.
        level: Level,
        /// Groups asked for.
        groups: usize,
    },
    /// The groups would not be equally wide.
    #[error("{groups} groups do not divide the {width} drives of {level} equally")]
    UnequalGroups {
        /// The level asked for.
        level: Level,
        /// Groups asked for.
        groups: usize,
        /// Members in all.
        width: usize,
    },
    /// The groups would be narrower than the level needs.
    #[error("{groups} groups of {width} drives have {} each, a group of {level} needs at least {needed}", width / groups)]
    GroupsTooNarrow {
        /// The level asked for.
        level: Level,
        /// Groups asked for.
        groups: usize,
        /// Members in all.
        width: usize,
        /// Members a group needs.
        needed: usize,
    },
    /// No number of groups divides the drives.
    #[error("{width} drives cannot be divided into equal groups of at least {needed} for {level}")]
    NoEqualGroups {
        /// The level asked for.
        level: Level,
        /// Members in all.
        width: usize,
        /// Members a group needs.
        needed: usize,
    },
    /// The interleave is not a power of two.
    #[error("an interleave of {given_bytes} bytes is not a power of two")]
    InterleaveNotPowerOfTwo {
        /// Interleave asked for.
        given_bytes: u64,
    },
    /// The interleave is too small or too large.
    #[error(
        "an interleave of {} is outside {} to {}",
        size(*given_bytes), size(MINIMUM_INTERLEAVE_BYTES), size(MAXIMUM_INTERLEAVE_BYTES)
    )]
    InterleaveOutOfRange {
        /// Interleave asked for.
        given_bytes: u64,
    },
    /// Parity cannot stay on its members for this number of rows.
    #[error("parity of {level} cannot move on every {rows} rows")]
    RotationImpossible {
        /// The level.
        level: Level,
        /// Number of rows as given.
        rows: u32,
    },
    /// The members have no room for a single stripe.
    #[error(
        "members of {} have no room for one strip of {}", size(*member_bytes), size(*interleave_bytes)
    )]
    MembersTooSmall {
        /// Room on every member.
        member_bytes: u64,
        /// Size of a strip.
        interleave_bytes: u64,
    },
    /// More bytes than a 64-bit address reaches.
    #[error("{width} members of {member_bytes} bytes exceed what a 64-bit address reaches")]
    TooLarge {
        /// Members in all.
        width: usize,
        /// Room on every member.
        member_bytes: u64,
    },
}

impl LayoutError {
    /// Suggested remedy, in the words of the command line.
    pub fn hint(&self) -> String {
        match *self {
            LayoutError::UnknownLayout { .. } => {
                let names = Level::ALL.map(Level::name).join(", ");
                format!(
                    "the layouts are {names}; also simple, mirror, mirror3, parity, dual-parity, raidz1, raidz2, raidz3"
                )
            }
            LayoutError::ThreeCopiesAreNoLevel => "use raid1 with --columns 3".to_owned(),
            LayoutError::TooFewDrives { given, .. } => fitting(given),
            LayoutError::TooManyDrives { allowed, .. } => {
                format!("--columns {allowed} uses {allowed} of the drives")
            }
            LayoutError::TooFewColumns { level: Level::Single, .. } => "give --columns 1".to_owned(),
            LayoutError::TooFewColumns { needed, .. } => format!("give --columns {needed} or more"),
            LayoutError::TooManyColumns { level: Level::Single, .. } => {
                "use raid0 to spread the data over several drives, raid1 to keep it on several".to_owned()
            }
            LayoutError::TooManyColumns { allowed, .. } => format!("give --columns {allowed} or fewer"),
            LayoutError::ColumnsExceedDrives { level, columns, given } => {
                let add = format!("add {}", counted(columns - given, "more drive"));
                match given.cmp(&level.minimum_width()) {
                    Ordering::Less => add,
                    Ordering::Equal => format!("{add}, or give --columns {given}"),
                    Ordering::Greater => format!("{add}, or give --columns {given} or fewer"),
                }
            }
            LayoutError::NoGroupsInLevel { .. } => {
                "leave --groups out; raid50 and raid60 are the layouts with groups".to_owned()
            }
            LayoutError::TooFewGroups { level, .. } => {
                let ungrouped = if level == Level::Raid50 { "raid5" } else { "raid6" };
                format!("give --groups 2 or more; one group of {level} is {ungrouped}")
            }
            LayoutError::UnequalGroups { level, width, .. }
            | LayoutError::GroupsTooNarrow { level, width, .. }
            | LayoutError::NoEqualGroups { level, width, .. } => grouping(level, width),
            LayoutError::InterleaveNotPowerOfTwo { given_bytes } => {
                let highest = MAXIMUM_INTERLEAVE_BYTES;
                let above =
                    given_bytes.min(highest).next_power_of_two().clamp(MINIMUM_INTERLEAVE_BYTES, highest);
                let below = (above / 2).max(MINIMUM_INTERLEAVE_BYTES);
                if above > given_bytes && below < given_bytes {
                    format!("the nearest that work are {} and {}", size(below), size(above))
                } else {
                    format!("the nearest that works is {}", size(above))
                }
            }
            LayoutError::InterleaveOutOfRange { .. } => format!(
                "give --interleave a power of two from {} to {}",
                size(MINIMUM_INTERLEAVE_BYTES),
                size(MAXIMUM_INTERLEAVE_BYTES)
            ),
            LayoutError::RotationImpossible { .. } => format!(
                "a power of two up to {MAXIMUM_ROTATION_ROWS} is possible where parity rotates, else 1"
            ),
            LayoutError::MembersTooSmall { .. } => "use larger drives or a smaller --interleave".to_owned(),
            LayoutError::TooLarge { .. } => "use fewer or smaller drives".to_owned(),
        }
    }
}

/// Returns the layouts that this few drives allow.
fn fitting(drives: usize) -> String {
    let allowed = |level: &Level| {
        let width_fits = (level.minimum_width()..=level.maximum_width()).contains(&drives);
        width_fits && (!level.is_grouped() || !group_counts(*level, drives).is_empty())
    };
    let names: Vec<&str> = Level::ALL.into_iter().filter(allowed).map(Level::name).collect();
    match drives {
        0 => "name at least one drive".to_owned(),
        1 => "one drive allows only single".to_owned(),
        _ => format!("{drives} drives allow {}", names.join(", ")),
    }
}

/// Returns the group counts that divide this width, or the nearest widths that can be divided.
fn grouping(level: Level, width: usize) -> String {
    let needed = level.minimum_group_width();
    let counts = group_counts(level, width);
    if !counts.is_empty() {
        return format!("{width} drives allow --groups {}", alternatives(&counts));
    }
    let narrower = (2 * needed..width).rev().find_map(|narrower| {
        let groups = *group_counts(level, narrower).first()?;
        Some(format!("--columns {narrower} --groups {groups} uses {narrower} of them"))
    });
    narrower.unwrap_or_else(|| format!("{level} needs at least {} drives", 2 * needed))
}

/// Returns every number of groups that divides the width into groups wide enough.
pub(crate) fn group_counts(level: Level, width: usize) -> Vec<usize> {
    (2..=width / level.minimum_group_width()).filter(|groups| width.is_multiple_of(*groups)).collect()
}

fn alternatives(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(usize::to_string).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.join(""),
    }
}

fn were(number: usize) -> String {
    if number == 1 { "1 was".to_owned() } else { format!("{number} were") }
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Formats a size: `64 KiB` where that is exact, else bytes.
fn size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}
