//! The parts of a volume form groups. A group has all of the volume's data, as one part or as its
//! slices; there are two groups while the volume is converted.

use stripewise_layout::Slicing;

use crate::BLOCK_BYTES;
use crate::manifest::slice_record::{MOST_SLICES, SliceRecord};
use crate::manifest::volume_record::{PartRecord, VolumeRecord};

/// No extent is larger, bytes.
const MOST_EXTENT_BYTES: u64 = 1 << 40;

impl PartRecord {
    /// Size of the part's array in a volume of this size, bytes.
    pub(crate) fn bytes_of(&self, volume_bytes: u64) -> u64 {
        match &self.slice {
            None => volume_bytes,
            Some(slice) => slice.slicing().bytes_below(slice.number as usize, volume_bytes),
        }
    }

    fn begins_group(&self) -> bool {
        self.slice.is_none_or(|slice| slice.number == 0)
    }
}

impl VolumeRecord {
    /// Parts by group: one group, or, while the volume is converted, the old one and the new one.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[PartRecord]> {
        self.parts.chunk_by(|_, next| !next.begins_group())
    }

    /// The group that has all of the volume, or will have it after the conversion.
    pub(crate) fn last_group(&self) -> &[PartRecord] {
        self.groups().last().unwrap_or(&[])
    }

    /// Addresses of the slices of [`Self::last_group`]; `None` if it has one part.
    pub(crate) fn slicing(&self) -> Option<Slicing> {
        Some(self.last_group().first()?.slice?.slicing())
    }

    /// Validates the slices of each group.
    pub(crate) fn check_slices(&self) -> Result<(), String> {
        match self.groups().all(|group| is_whole(group, self.size_bytes)) {
            true => Ok(()),
            false => Err(format!("volume {} is cut into slices in an impossible way", self.name)),
        }
    }
}

/// True if a group is one part, or all slices of a volume of this size, alike and in order.
fn is_whole(group: &[PartRecord], volume_bytes: u64) -> bool {
    let Some((first, slice)) = group.first().and_then(|first| Some((first, first.slice?))) else {
        return group.len() == 1;
    };
    (2..=MOST_SLICES).contains(&slice.of)
        && group.len() == slice.of as usize
        && (BLOCK_BYTES..=MOST_EXTENT_BYTES).contains(&slice.extent_bytes)
        && slice.extent_bytes.is_multiple_of(BLOCK_BYTES)
        // No slice is empty.
        && volume_bytes >= u64::from(slice.of) * slice.extent_bytes
        && group.iter().zip(0..).all(|(part, number)| {
            part.slice == Some(SliceRecord { number, ..slice })
                && part.shape == first.shape
                && part.log.is_none()
        })
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::MIB;
    use crate::manifest::format::Manifest;
    use crate::manifest::volume_record::Conversion;
    use crate::testing;

    /// A pool with a volume of three slices of five rows each.
    fn sliced() -> Manifest {
        let mut manifest = testing::pool(&[64; 4], MIB);
        testing::add_sliced_volume(&mut manifest, 55, 3, 5);
        manifest
    }

    #[test]
    fn slices_have_the_volume_between_them() {
        let manifest = sliced();
        let volume = &manifest.volumes[0];
        let sizes: Vec<u64> = volume.parts.iter().map(|part| part.bytes_of(volume.size_bytes)).collect();
        assert_eq!((sizes.len(), sizes.iter().sum()), (3, volume.size_bytes));
        assert_eq!(volume.groups().count(), 1);
        assert_eq!(volume.slicing().map(|slicing| slicing.slices()), Some(3));
    }

    #[test]
    fn impossible_slices_are_refused() {
        type Spoil = fn(&mut VolumeRecord);
        let spoilt: [(&str, Spoil); 11] = [
            ("a slice is missing", |v| drop(v.parts.pop())),
            ("the first slice is missing", |v| drop(v.parts.remove(0))),
            ("two slices have changed places", |v| v.parts.swap(1, 2)),
            ("a part is no slice", |v| v.parts[2].slice = None),
            ("a slice of another number", |v| v.parts[1].slice.as_mut().unwrap().of = 4),
            ("another extent", |v| v.parts[1].slice.as_mut().unwrap().extent_bytes *= 2),
            ("no extent", |v| v.parts.iter_mut().for_each(|p| p.slice.as_mut().unwrap().extent_bytes = 0)),
            ("half a block", |v| {
                v.parts.iter_mut().for_each(|p| p.slice.as_mut().unwrap().extent_bytes = 2048);
            }),
            ("an endless extent", |v| {
                v.parts.iter_mut().for_each(|p| p.slice.as_mut().unwrap().extent_bytes = !4095);
            }),
            ("an empty slice", |v| v.size_bytes = MIB),
            ("another shape", |v| v.parts[1].shape.interleave_bytes *= 2),
        ];
        for (what, spoil) in spoilt {
            let mut manifest = sliced();
            spoil(&mut manifest.volumes[0]);
            assert!(manifest.check().is_err(), "{what}");
        }
        let mut alone = sliced();
        alone.volumes[0].parts.truncate(1);
        alone.volumes[0].parts[0].slice.as_mut().unwrap().of = 1;
        assert!(alone.check().is_err(), "one slice of one");
        let mut converted = sliced();
        converted.volumes[0].conversion = Some(Conversion::begun());
        assert!(converted.check().is_err(), "a conversion of one group");
    }

    #[test]
    fn part_behind_slices_is_a_group_of_its_own() {
        let mut manifest = sliced();
        let new = testing::part(&manifest, 3000, Level::Raid5, 3, 15);
        let volume = &mut manifest.volumes[0];
        volume.parts.push(new);
        volume.conversion = Some(Conversion::begun());
        assert_eq!(manifest.check(), Ok(()));
        let volume = &manifest.volumes[0];
        let groups: Vec<usize> = volume.groups().map(<[PartRecord]>::len).collect();
        assert_eq!((groups, volume.slicing()), (vec![3, 1], None));
    }
}
