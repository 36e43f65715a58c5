//! Where on the drives a new volume goes: the same place on every one of them, first fit, in whole MiB. Pure.
//!
//! A volume that needs fewer drives than there are gets those with most free space. All drives count as large as the
//! smallest, so that any of them can stand in for any other.

use super::error::PoolError;
use super::format::{MIB, Manifest, Role};
use crate::array::ArraySpec;

/// A place for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Drives by number, in the order of the pool.
    pub drives: Vec<u32>,
    pub base_bytes: u64,
    pub space_bytes: u64,
}

/// Drives that can take new volumes.
pub(crate) fn usable_drives(manifest: &Manifest) -> Vec<u32> {
    let data = manifest.drives.iter().filter(|drive| drive.role == Role::Data && drive.is_online());
    data.map(|drive| drive.number).collect()
}

/// Where space for volumes ends on every data drive.
pub(crate) fn common_end_bytes(manifest: &Manifest) -> u64 {
    let data = manifest.drives.iter().filter(|drive| drive.role == Role::Data && !drive.replaced);
    data.map(|drive| drive.end_bytes()).min().unwrap_or(0)
}

/// Stretches used on a drive, in order.
fn used(manifest: &Manifest, drive: u32) -> Vec<(u64, u64)> {
    let mut used: Vec<(u64, u64)> = manifest
        .volumes
        .iter()
        .filter(|volume| volume.slots.iter().any(|slot| slot.drive == drive))
        .map(|volume| (volume.base_bytes, volume.end_bytes()))
        .collect();
    used.sort_unstable();
    used
}

/// Free bytes from `start` on.
fn free_from(used: &[(u64, u64)], start: u64, end: u64) -> u64 {
    if start >= end || used.iter().any(|&(from, to)| from <= start && start < to) {
        return 0;
    }
    let next = used.iter().map(|&(from, _)| from).filter(|&from| from > start).min().unwrap_or(end);
    next.min(end) - start
}

/// Finds room on `width` drives: `needed_bytes` on each, or with `None` the largest stretch there is.
pub(crate) fn find(manifest: &Manifest, width: usize, needed_bytes: Option<u64>) -> Result<Space, PoolError> {
    let end = common_end_bytes(manifest);
    let maps: Vec<(u32, Vec<(u64, u64)>)> =
        usable_drives(manifest).into_iter().map(|drive| (drive, used(manifest, drive))).collect();
    let mut starts: Vec<u64> = vec![MIB];
    starts.extend(maps.iter().flat_map(|(_, used)| used.iter().map(|&(_, to)| to)));
    starts.sort_unstable();
    starts.dedup();
    let mut largest: Option<Space> = None;
    for start in starts {
        // Free here, free in all, drive: the roomiest first.
        let mut free: Vec<(u64, u64, u32)> = maps
            .iter()
            .map(|(drive, used)| {
                let taken: u64 = used.iter().map(|(from, to)| to - from).sum();
                (free_from(used, start, end), end.saturating_sub(MIB + taken), *drive)
            })
            .collect();
        free.sort_by_key(|&(_, _, drive)| drive);
        let here = match needed_bytes {
            Some(needed) => {
                free.retain(|(here, ..)| *here >= needed);
                free.sort_by_key(|&(_, total, _)| std::cmp::Reverse(total));
                needed
            }
            None => {
                free.sort_by_key(|&(here, ..)| std::cmp::Reverse(here));
                free.get(width - 1).map_or(0, |(here, ..)| *here)
            }
        };
        if free.len() < width || here == 0 {
            continue;
        }
        let mut drives: Vec<u32> = free[..width].iter().map(|&(_, _, drive)| drive).collect();
        drives.sort_unstable();
        let space = Space { drives, base_bytes: start, space_bytes: here };
        if needed_bytes.is_some() {
            return Ok(space);
        }
        if largest.as_ref().is_none_or(|largest| here > largest.space_bytes) {
            largest = Some(space);
        }
    }
    match (largest, needed_bytes) {
        (Some(space), None) => Ok(space),
        (_, Some(needed_bytes)) => {
            let free_bytes = find(manifest, width, None).map_or(0, |space| space.space_bytes);
            Err(PoolError::NoSpace { needed_bytes, free_bytes, width })
        }
        (None, None) => Err(PoolError::NoSpace { needed_bytes: 2 * MIB, free_bytes: 0, width }),
    }
}

/// The least space per drive, in whole MiB, with which a volume holds `size_bytes`.
pub(crate) fn space_for(spec: &ArraySpec, size_bytes: u64) -> Result<u64, PoolError> {
    let holds = |mib: u64| {
        let spec = ArraySpec { space_bytes: mib * MIB, ..spec.clone() };
        match spec.geometry() {
            Ok((geometry, _)) => geometry.capacity_bytes() >= size_bytes,
            // Too small for one strip, or so large that it overflows: the latter means enough.
            Err(_) => mib > 1 << 32,
        }
    };
    let mut low = 0;
    let mut high = size_bytes / MIB + 1024;
    while !holds(high) {
        high *= 2;
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    let space_bytes = high * MIB;
    ArraySpec { space_bytes, ..spec.clone() }.geometry()?;
    Ok(space_bytes)
}

#[cfg(test)]
mod tests {
    use stripewise_layout::{LayoutSpec, Level};

    use super::super::format::{SlotRecord, SlotState, VolumeRecord};
    use super::super::ids::Id;
    use super::*;

    fn pool(sizes_mib: &[u64]) -> Manifest {
        let mut manifest = Manifest::new("p", 30);
        for (index, size) in sizes_mib.iter().enumerate() {
            manifest.add_drive(Id(index as u128 + 1), "d", Role::Data, size * MIB);
        }
        manifest
    }

    fn take(manifest: &mut Manifest, space: &Space) {
        let shape = LayoutSpec::new(Level::Raid0).resolve(space.drives.len()).expect("two drives or more");
        let slots = space.drives.iter().map(|&drive| SlotRecord { drive, state: SlotState::Active });
        let number = manifest.volumes.len();
        manifest.volumes.push(VolumeRecord {
            id: Id(number as u128),
            name: format!("v{number}"),
            shape,
            base_bytes: space.base_bytes,
            space_bytes: space.space_bytes,
            slots: slots.collect(),
            lost: Vec::new(),
        });
    }

    #[test]
    fn volumes_follow_one_another_and_fill_gaps() {
        let mut manifest = pool(&[100, 100, 90]);
        let first = find(&manifest, 3, Some(10 * MIB)).unwrap();
        assert_eq!((first.base_bytes, first.drives.len()), (MIB, 3));
        take(&mut manifest, &first);
        let second = find(&manifest, 3, Some(20 * MIB)).unwrap();
        assert_eq!(second.base_bytes, 11 * MIB);
        take(&mut manifest, &second);
        let rest = find(&manifest, 3, None).unwrap();
        // The smallest drive has 90 MiB, of which the last is not for volumes.
        assert_eq!((rest.base_bytes, rest.space_bytes), (31 * MIB, 58 * MIB));
        take(&mut manifest, &rest);
        assert!(matches!(
            find(&manifest, 3, Some(MIB)),
            Err(PoolError::NoSpace { free_bytes: 0, needed_bytes: MIB, .. })
        ));
        manifest.volumes.remove(0);
        assert_eq!(find(&manifest, 3, Some(8 * MIB)).unwrap().base_bytes, MIB);
        assert!(matches!(
            find(&manifest, 3, Some(11 * MIB)),
            Err(PoolError::NoSpace { free_bytes, .. }) if free_bytes == 10 * MIB
        ));
    }

    #[test]
    fn narrow_volumes_go_to_the_emptiest_drives() {
        let mut manifest = pool(&[100; 5]);
        let first = find(&manifest, 2, Some(30 * MIB)).unwrap();
        assert_eq!(first.drives, [0, 1]);
        take(&mut manifest, &first);
        let second = find(&manifest, 2, Some(30 * MIB)).unwrap();
        assert_eq!((second.drives.as_slice(), second.base_bytes), ([2, 3].as_slice(), MIB));
        take(&mut manifest, &second);
        let third = find(&manifest, 2, Some(90 * MIB));
        assert!(third.is_err(), "only one drive is empty");
        let rest = find(&manifest, 4, None).unwrap();
        assert_eq!((rest.base_bytes, rest.space_bytes), (31 * MIB, 68 * MIB));
    }

    #[test]
    fn space_is_just_enough() {
        for (level, width) in [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 8)] {
            let shape = LayoutSpec { columns: Some(width), ..LayoutSpec::new(level) }.resolve(width).unwrap();
            let spec = ArraySpec { id: 1, shape, base_bytes: MIB, space_bytes: 0 };
            for size in [1, 4096, MIB, 10 * MIB + 1, 777 * MIB, 1 << 41] {
                let space = space_for(&spec, size).unwrap();
                let capacity = |space_bytes| {
                    let spec = ArraySpec { space_bytes, ..spec.clone() };
                    spec.geometry().map_or(0, |(geometry, _)| geometry.capacity_bytes())
                };
                assert!(capacity(space) >= size && capacity(space - MIB) < size, "{level} {size}");
            }
        }
    }
}
