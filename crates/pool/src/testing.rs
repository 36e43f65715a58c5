//! Manifests for tests: plain pools, one with everything in it, and random changes.

use std::sync::Arc;

use stripewise_drive::SplitMix64;
use stripewise_layout::{LayoutSpec, Level};

use crate::MIB;
use crate::manifest::care::{LastScrub, ScrubRecord, Takeover};
use crate::manifest::drive_record::{Exclusion, ExclusionKind, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::{Manifest, RebalanceIntent, ScrubIntent};
use crate::manifest::ids::Id;
use crate::manifest::slice_record::SliceRecord;
use crate::manifest::volume_record::{
    Conversion, JournalPlaceRecord, MetaPlaceRecord, MetaRecord, PartRecord, Pin, PlaceState, VolumeRecord,
};
use crate::space::slabs::{FreeSlabs, put_rows};
use stripewise_array::rows::{RowTable, SlotState};

/// Drives of these sizes with identities from 100 on, in generation 1.
pub(crate) fn pool(sizes_mib: &[u64], slab_bytes: u64) -> Manifest {
    let mut manifest = Manifest::new("tank", slab_bytes, 30);
    for (index, size) in sizes_mib.iter().enumerate() {
        manifest.add_drive(Id(100 + index as u128), &format!("/dev/d{index}"), Role::Data, size * MIB);
    }
    manifest.fork(Id(1), manifest.generation);
    manifest.generation = 1;
    manifest
}

/// A part of `rows` rows, on slabs that are free, with its map on every drive of the first row.
pub(crate) fn part(manifest: &Manifest, id: u128, level: Level, width: usize, rows: u64) -> PartRecord {
    let mut space = FreeSlabs::new(manifest);
    let drives = space.usable(Role::Data);
    let shape =
        LayoutSpec { columns: Some(width), ..LayoutSpec::new(level) }.resolve(width).expect("a shape");
    let places = space.allocate_places(&drives[..width], 1).expect("room for maps");
    let new = space.allocate_rows(&drives, width, rows, id as u64).expect("room for rows");
    let mut table = RowTable::new(width, rows);
    put_rows(&mut table, 0, &new, SlotState::Active);
    let place = |(drive, slab)| MetaPlaceRecord { drive, slab, state: PlaceState::Active };
    PartRecord {
        id: Id(id),
        shape,
        meta: MetaRecord { slabs: 1, map_rows: rows, places: places.into_iter().map(place).collect() },
        log: None,
        slice: None,
        journal: Vec::new(),
        old_lost: Vec::new(),
        old_dead: Vec::new(),
        lost: Default::default(),
        dead: Default::default(),
        rows: table,
    }
}

pub(crate) fn add_volume(manifest: &mut Manifest, id: u128, level: Level, width: usize, rows: u64) {
    let part = part(manifest, id + 1000, level, width, rows);
    manifest.volumes.push(VolumeRecord {
        id: Id(id),
        name: format!("v{id}"),
        size_bytes: rows * manifest.slab_bytes,
        thin: false,
        write_back: false,
        checksums: true,
        pin: Pin::None,
        parts: vec![part],
        conversion: None,
        received: None,
        receiving: None,
        clones: Vec::new(),
        schedule: None,
    });
    assert_eq!(manifest.check(), Ok(()));
}

/// Adds a RAID 5 over three drives that is cut into slices of as many rows each.
pub(crate) fn add_sliced_volume(manifest: &mut Manifest, id: u128, slices: u32, rows: u64) {
    let row_bytes = 2 * manifest.slab_bytes;
    manifest.volumes.push(VolumeRecord {
        id: Id(id),
        name: format!("v{id}"),
        size_bytes: u64::from(slices) * rows * row_bytes,
        thin: false,
        write_back: false,
        checksums: true,
        pin: Pin::None,
        parts: Vec::new(),
        conversion: None,
        received: None,
        receiving: None,
        clones: Vec::new(),
        schedule: None,
    });
    for number in 0..slices {
        let part = part(manifest, id + 1000 + u128::from(number), Level::Raid5, 3, rows);
        let slice = Some(SliceRecord { number, of: slices, extent_bytes: row_bytes });
        manifest.volumes.last_mut().expect("just added").parts.push(PartRecord { slice, ..part });
    }
    assert_eq!(manifest.check(), Ok(()));
}

/// Some of everything there is.
pub(crate) fn sample() -> Manifest {
    let mut manifest = pool(&[64, 64, 64, 64, 96, 64, 64], MIB);
    manifest.drives[5].role = Role::Journal;
    manifest.drives[6].role = Role::Spare;
    manifest.drives[6].retiring = true;
    manifest.generation = 9;
    manifest.fork(Id(8), manifest.generation);
    manifest.generation = 12;
    manifest.former = vec![Id(77)];
    add_volume(&mut manifest, 55, Level::Raid5, 4, 9);
    add_volume(&mut manifest, 56, Level::Raid10, 4, 5);
    let volume = &mut manifest.volumes[0];
    volume.parts[0].journal =
        vec![JournalPlaceRecord { drive: 5, slab: 2, slabs: 3, state: PlaceState::Active }];
    volume.parts[0].lost = Arc::new([(1, 17), (1, 18)].into_iter().collect());
    volume.parts[0].dead = Arc::new([(0, 300)].into_iter().collect());
    volume.write_back = true;
    let mut places = volume.parts[0].rows.run(3).expect("a row").places_of(3);
    places[1].state = SlotState::CatchingUp;
    volume.parts[0].rows.set(3, 1, &places);
    let new = part(&manifest, 3000, Level::Raid6, 4, 3);
    let volume = &mut manifest.volumes[1];
    volume.parts.push(new);
    volume.conversion = Some(Conversion { next_offset_bytes: MIB, until_offset_bytes: None });
    volume.thin = true;
    volume.pin = Pin::Slow;
    volume.parts[0].rows.resize(40);
    volume.parts[0].meta.map_rows = 100;
    manifest.exclude(&[Exclusion { drive: 4, reason: "it broke".to_owned(), kind: ExclusionKind::Failed }]);
    manifest.drives[2].successor = Some(3);
    manifest.scrub = Some(ScrubIntent {
        volumes: vec![Id(55)],
        next_region: 4,
        began_unix_s: Some(1_700_000_000),
        found: ScrubRecord { checked_bytes: 9 * MIB, blamed: vec![(Some(2), 3)], ..ScrubRecord::default() },
        done: vec![ScrubRecord { volume: "v56".to_owned(), unreadable_strips: 1, ..ScrubRecord::default() }],
    });
    manifest.care.last_scrub = Some(LastScrub {
        began_unix_s: 1_600_000_000,
        ended_unix_s: 1_600_000_100,
        cut_short: 1,
        ..LastScrub::default()
    });
    manifest.care.note_takeover(Takeover {
        unix_s: 1_650_000_000,
        drive: Id(77),
        path: "/dev/old".to_owned(),
        spare: Id(104),
        spare_path: "/dev/d4".to_owned(),
    });
    manifest.rebalance = Some(RebalanceIntent { moved_slabs: 3, moved_bytes: 2 * MIB });
    manifest.patrol.interval_s = Some(86_400);
    manifest.patrol.last_unix_s = Some(1_700_000_000);
    manifest.settings.tier_bytes_per_s = Some(50_000_000);
    manifest.events.push(1_700_000_000_123, EventKind::Drive, "/dev/d4 gave errors");
    assert_eq!(manifest.check(), Ok(()));
    manifest
}

/// Changes something, so that it is still possible; the generation is counted up.
pub(crate) fn change(manifest: &mut Manifest, random: &mut SplitMix64) {
    let generation = manifest.generation;
    match random.below(10) {
        0 => manifest.events.push(generation, EventKind::Pool, "something happened"),
        1 => {
            let index = random.below(manifest.drives.len() as u64) as usize;
            manifest.drives[index].errors.read += 1;
        }
        2 if manifest.volumes.len() < 6 => {
            let free = FreeSlabs::new(manifest);
            let rows = 1 + random.below(20);
            let drives = free.usable(Role::Data);
            if drives.len() >= 3 && free.max_rows(&drives, 3) > rows + 3 {
                add_volume(manifest, u128::from(10_000 * generation), Level::Raid5, 3, rows);
            }
        }
        3 if manifest.volumes.len() > 1 => {
            let index = random.below(manifest.volumes.len() as u64) as usize;
            manifest.volumes.remove(index);
            manifest.scrub = None;
        }
        4 => {
            let drive = random.below(manifest.drives.len() as u64) as u32;
            let kind = ExclusionKind::Offline;
            if manifest.drives.iter().filter(|drive| drive.is_online()).count() > 3 {
                manifest.exclude(&[Exclusion { drive, reason: "off".to_owned(), kind }]);
                manifest.fork(Id(u128::from(generation) << 32), manifest.generation);
            }
        }
        5 if !manifest.volumes.is_empty() => {
            // A row given up, and one taken.
            let mut free = FreeSlabs::new(manifest);
            let index = random.below(manifest.volumes.len() as u64) as usize;
            let part = &mut manifest.volumes[index].parts[0];
            let row = random.below(part.rows.rows());
            (part.lost, part.dead) = Default::default();
            part.rows.clear(row, 1);
            let hole = random.below(part.rows.rows());
            let drives = free.usable(Role::Data);
            let width = part.rows.width();
            if part.rows.is_hole(hole)
                && let Ok(new) = free.allocate_rows(&drives, width, 1, hole)
            {
                put_rows(&mut part.rows, hole, &new, SlotState::Active);
            }
        }
        6 if !manifest.volumes.is_empty() => {
            let index = random.below(manifest.volumes.len() as u64) as usize;
            let (volume, slab_bytes) = (&mut manifest.volumes[index], manifest.slab_bytes);
            let part = &mut volume.parts[0];
            let rows = 1 + random.below(2 * part.rows.rows());
            volume.size_bytes = volume.size_bytes.min(rows * slab_bytes);
            (part.lost, part.dead) = Default::default();
            part.rows.resize(rows);
            part.meta.map_rows = part.meta.map_rows.max(rows);
        }
        8 if !manifest.volumes.is_empty() => {
            let part = &mut manifest.volumes[0].parts[0];
            let block = random.below(part.rows.rows()) * 256 + random.below(256);
            let (lost, dead) = (Arc::make_mut(&mut part.lost), Arc::make_mut(&mut part.dead));
            lost.insert(random.below(3) as usize, block..=block / 256 * 256 + 255);
            lost.remove(random.below(3) as usize, 0..=random.below(block + 1));
            dead.insert(0, block..=block + random.below(600));
        }
        7 => manifest.rebuild_priority_percent = 1 + random.below(100) as u32,
        _ => {
            manifest.add_drive(Id(u128::from(generation) << 64), "/dev/new", Role::Data, 80 * MIB);
        }
    }
    // A volume that could not do without a drive may, with fewer rows.
    manifest.note_missing();
    manifest.generation += 1;
    assert_eq!(manifest.check(), Ok(()));
}
