//! Redundancy groups: the drives of each group, and the number of them that may be missing.
//!
//! Groups are independent but for the spares they share. Where a layout has fewer columns than
//! there are drives, each row uses another set of drives, so all drives are one group: a loss
//! beyond a row's tolerance loses some row.

use stripewise_layout::{LayoutError, LayoutSpec, Level};

/// Drives that share redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Any `tolerance` of them may be missing.
    Any {
        /// Drives.
        drives: usize,
        /// Number of them that may be missing.
        tolerance: usize,
    },
    /// Each shares its data with the next, the last with the first: no two neighbours may be
    /// missing.
    Ring {
        /// Drives, three or more.
        drives: usize,
    },
    /// Arrays that stand in for each other: volumes of pools under another pool.
    Stacked(Stacked),
}

/// Equal arrays of which some may be lost. An array is lost when one of its parts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stacked {
    /// Arrays.
    pub arrays: usize,
    /// Number of them that may be lost.
    pub tolerance: usize,
    /// Parts of an array: the groups of its own layout.
    pub parts: usize,
    /// Drives of a part.
    pub drives: usize,
    /// Number of each part's drives that may be missing.
    pub part_tolerance: usize,
}

impl Stacked {
    /// Drives of one array.
    pub(crate) fn array_drives(&self) -> usize {
        self.parts * self.drives
    }
}

impl Group {
    /// Number of drives that may be missing in every case.
    pub fn tolerance(&self) -> usize {
        match *self {
            Self::Any { tolerance, .. } => tolerance,
            Self::Ring { .. } => 1,
            Self::Stacked(stacked) => (stacked.tolerance + 1) * (stacked.part_tolerance + 1) - 1,
        }
    }

    /// Drives in it.
    pub fn drives(&self) -> usize {
        match *self {
            Self::Any { drives, .. } | Self::Ring { drives } => drives,
            Self::Stacked(stacked) => stacked.arrays * stacked.array_drives(),
        }
    }
}

/// An array as reliability sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// One or more.
    pub groups: Vec<Group>,
    /// Drives' worth of data that one group holds, in 1/1000 of a drive.
    pub data_per_group_milli: u64,
    /// True if there are more drives than columns, so that each row uses another set of drives.
    pub declustered: bool,
}

impl Structure {
    /// Returns the structure of a layout on this number of drives. RAID 1 on more drives than it
    /// has columns is a set of mirrors, or a ring of copies where the columns do not divide the
    /// drives.
    pub fn of(layout: &LayoutSpec, drives: usize) -> Result<Self, LayoutError> {
        let shape = layout.resolve(drives)?;
        let (width, tolerance) = match shape.level {
            Level::Single => (1, 0),
            Level::Raid0 => (shape.width, 0),
            Level::Raid1 => (shape.width, shape.width - 1),
            Level::Raid10 => (2, 1),
            level => (shape.group_width(), level.parity_units()),
        };
        let mirrored = matches!(shape.level, Level::Raid1 | Level::Raid10);
        let used = match shape.level {
            Level::Single => 1,
            _ => drives,
        };
        let data = if mirrored { 1 } else { width - tolerance };
        let (groups, declustered) = match used.is_multiple_of(width) {
            true if mirrored || shape.width == used => {
                (vec![Group::Any { drives: width, tolerance }; used / width], false)
            }
            false if mirrored && width == 2 => (vec![Group::Ring { drives }], shape.width < drives),
            _ => (vec![Group::Any { drives, tolerance }], true),
        };
        let held = used * data * 1000 / width / groups.len();
        Ok(Self { groups, data_per_group_milli: held as u64, declustered })
    }

    /// Returns the structure of a pool whose drives are volumes of other pools, each of `inner` on
    /// `drives` drives. A ring of copies, on either level, counts as a group that any two missing
    /// members break.
    pub fn stacked(
        outer: &LayoutSpec,
        volumes: usize,
        inner: &LayoutSpec,
        drives: usize,
    ) -> Result<Self, LayoutError> {
        let (outer, inner) = (Self::of(outer, volumes)?, Self::of(inner, drives)?);
        let part = |group: &Group| match *group {
            Group::Any { drives, tolerance } => (drives, tolerance),
            Group::Ring { drives } => (drives, 1),
            Group::Stacked(_) => unreachable!("a layout alone stacks nothing"),
        };
        // All groups of one layout are alike.
        let (part_drives, part_tolerance) = part(&inner.groups[0]);
        let inner_data = inner.data_per_group_milli * inner.groups.len() as u64;
        let (groups, data_per_group_milli) = match part(&outer.groups[0]) {
            // Without redundancy between the volumes each part is on its own.
            (_, 0) => {
                let group = Group::Any { drives: part_drives, tolerance: part_tolerance };
                let count = inner.groups.len() * outer.drives();
                (vec![group; count], inner.data_per_group_milli)
            }
            (arrays, tolerance) => {
                let parts = inner.groups.len();
                let stacked = Stacked { arrays, tolerance, parts, drives: part_drives, part_tolerance };
                let data = outer.data_per_group_milli * inner_data / 1000;
                (vec![Group::Stacked(stacked); outer.groups.len()], data)
            }
        };
        Ok(Self { groups, data_per_group_milli, declustered: outer.declustered || inner.declustered })
    }

    /// The same with rows on ever other drives: any drives beyond the tolerance lose some row.
    #[must_use]
    pub fn on_varying_drives(self) -> Self {
        let drives = self.drives();
        let tolerance = match self.groups[0] {
            Group::Any { tolerance, .. } => tolerance,
            Group::Ring { .. } => 1,
            Group::Stacked(_) => return self,
        };
        let data_per_group_milli = self.data_per_group_milli * self.groups.len() as u64;
        Self { groups: vec![Group::Any { drives, tolerance }], data_per_group_milli, declustered: true }
    }

    /// Drives in all.
    pub fn drives(&self) -> usize {
        self.groups.iter().map(Group::drives).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(layout: &str, columns: Option<usize>, groups: Option<usize>, drives: usize) -> Structure {
        let spec = LayoutSpec { groups, ..layout.parse().unwrap() };
        let spec = LayoutSpec { columns: columns.or(spec.columns), ..spec };
        Structure::of(&spec, drives).unwrap_or_else(|error| panic!("{layout} of {drives}: {error}"))
    }

    #[test]
    fn every_layout_has_its_groups() {
        let any = |drives, tolerance| Group::Any { drives, tolerance };
        assert_eq!(of("single", None, None, 1).groups, [any(1, 0)]);
        assert_eq!(of("raid0", None, None, 4).groups, [any(4, 0)]);
        assert_eq!(of("raid1", None, None, 2).groups, [any(2, 1)]);
        assert_eq!(of("mirror3", None, None, 3).groups, [any(3, 2)]);
        assert_eq!(of("raid1", None, None, 8).groups, vec![any(2, 1); 4]);
        assert_eq!(of("raid4", None, None, 5).groups, [any(5, 1)]);
        assert_eq!(of("raid5", None, None, 8).groups, [any(8, 1)]);
        assert_eq!(of("raid6", None, None, 8).groups, [any(8, 2)]);
        assert_eq!(of("raid7", None, None, 8).groups, [any(8, 3)]);
        assert_eq!(of("raid10", None, None, 8).groups, vec![any(2, 1); 4]);
        assert_eq!(of("raid10", None, None, 5).groups, [Group::Ring { drives: 5 }]);
        assert_eq!(of("raid50", None, Some(2), 8).groups, vec![any(4, 1); 2]);
        assert_eq!(of("raid60", None, Some(6), 60).groups, vec![any(10, 2); 6]);
        assert_eq!(of("raid60", None, Some(6), 60).data_per_group_milli, 8000);
    }

    #[test]
    fn volumes_of_pools_are_stacked() {
        let spec = |text: &str| text.parse::<LayoutSpec>().unwrap();
        let stacked = |outer: &str, volumes, inner: &str, drives| {
            Structure::stacked(&spec(outer), volumes, &spec(inner), drives).unwrap()
        };
        let mirrored = stacked("raid1", 2, "raid5", 4);
        let wanted = Stacked { arrays: 2, tolerance: 1, parts: 1, drives: 4, part_tolerance: 1 };
        assert_eq!(mirrored.groups, [Group::Stacked(wanted)]);
        assert_eq!((mirrored.drives(), mirrored.data_per_group_milli), (8, 3000));
        let striped = stacked("raid0", 3, "raid6", 5);
        assert_eq!(striped.groups, vec![Group::Any { drives: 5, tolerance: 2 }; 3]);
        assert_eq!((striped.drives(), striped.data_per_group_milli), (15, 3000));
        let parity = stacked("raid5", 4, "raid10", 4);
        let wanted = Stacked { arrays: 4, tolerance: 1, parts: 2, drives: 2, part_tolerance: 1 };
        assert_eq!((parity.groups, parity.data_per_group_milli), (vec![Group::Stacked(wanted)], 6000));
        assert!(Structure::stacked(&spec("raid5"), 2, &spec("raid5"), 4).is_err());
    }

    #[test]
    fn rows_narrower_than_the_array_make_it_one_group() {
        let wide = of("raid6", Some(6), None, 12);
        assert_eq!(wide.groups, [Group::Any { drives: 12, tolerance: 2 }]);
        assert_eq!((wide.data_per_group_milli, wide.declustered), (8000, true));
    }
}
