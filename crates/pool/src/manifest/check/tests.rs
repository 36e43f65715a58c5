//! Nonsense of every kind is refused.

use super::*;
use crate::MIB;
use crate::manifest::clone_record::CloneRecord;
use crate::manifest::drive_record::{ExclusionKind, Standing};
use crate::manifest::ids::Id;
use crate::manifest::snapshot_schedule::SnapshotSchedule;
use crate::manifest::volume_record::{Conversion, MetaPlaceRecord, PlaceState};
use crate::testing::{add_volume, pool, sample};
use stripewise_array::rows::{RowTable, Run, SlotPlace};

/// Records blocks of the first volume as lost.
fn lose(manifest: &mut Manifest, blocks: impl IntoIterator<Item = (usize, u64)>) {
    manifest.volumes[0].parts[0].lost = Arc::new(blocks.into_iter().collect());
}

fn clone(name: &str, head: u32) -> CloneRecord {
    let (id, of) = (Id(u128::from(head) + 500), "v@one".to_owned());
    CloneRecord { id, name: name.to_owned(), size_bytes: 4096, head, of }
}

#[test]
fn inconsistent_manifests_are_refused() {
    type Spoil = fn(&mut Manifest);
    let spoils: &[(&str, Spoil)] = &[
        ("a drive twice", |m| m.drives[1].id = m.drives[0].id),
        ("a number twice", |m| m.drives[1].number = 0),
        ("a number to come", |m| m.next_number = 3),
        ("drives out of order", |m| m.drives.swap(0, 1)),
        ("a huge drive", |m| m.drives[0].capacity_bytes = u64::MAX),
        ("a tiny drive", |m| m.drives[0].capacity_bytes = MIB),
        ("no branch", |m| m.branches.clear()),
        ("branches out of order", |m| m.branches.reverse()),
        ("a branch to come", |m| m.branches[1].generation = 13),
        ("lived on what was not yet", |m| m.branches[0].tentative = true),
        ("a wrong name", |m| m.name = "a/b".to_owned()),
        ("no percentage", |m| m.rebuild_priority_percent = 0),
        ("no percentage of space", |m| m.settings.space_warning_percent = 101),
        ("no bound of latencies", |m| m.settings.rebuild_latency_ms = Some(0)),
        ("odd slabs", |m| m.slab_bytes = 3 * MIB),
        ("larger slabs than before", |m| m.slab_bytes = 64 * MIB),
        ("a volume twice", |m| m.volumes.push(m.volumes[0].clone())),
        ("a scrub that blames more drives than are recorded", |m| {
            m.scrub.as_mut().expect("there").found.blamed = vec![(None, 1); 18];
        }),
        ("a name twice", |m| m.volumes[1].name = m.volumes[0].name.clone()),
        ("an array twice", |m| m.volumes[1].parts[0].id = m.volumes[0].parts[0].id),
        ("a schedule of a volume in place", |m| {
            m.volumes[0].schedule = Some(SnapshotSchedule { hourly: 1, ..Default::default() });
        }),
        ("a clone in a volume in place", |m| m.volumes[0].clones.push(clone("c", 1))),
        ("no part", |m| m.volumes[0].parts.clear()),
        ("a part too few", |m| m.volumes[0].conversion = Some(Conversion::begun())),
        ("a part too many", |m| m.volumes[1].conversion = None),
        ("converted beyond its end", |m| {
            m.volumes[1].conversion =
                Some(Conversion { next_offset_bytes: 1 << 40, until_offset_bytes: None })
        }),
        ("a size beyond its rows", |m| m.volumes[0].size_bytes *= 4),
        ("a size beyond all drives", |m| m.volumes[0].size_bytes = 1 << 60),
        ("a map beyond its slabs", |m| m.volumes[0].parts[0].meta.map_rows = 1 << 30),
        ("a size beyond reason", |m| m.volumes[0].size_bytes = u64::MAX),
        ("an impossible shape", |m| m.volumes[0].parts[0].shape.interleave_bytes = 5000),
        ("an impossible width", |m| m.volumes[0].parts[0].shape.width = usize::MAX),
        ("another width", |m| m.volumes[0].parts[0].shape.width = 3),
        ("groups of nothing", |m| m.volumes[0].parts[0].shape.groups = 0),
        ("no map", |m| m.volumes[0].parts[0].meta.places.clear()),
        ("a map of nothing", |m| m.volumes[0].parts[0].meta.slabs = 0),
        ("a map without room", |m| m.volumes[0].parts[0].meta.map_rows = 1),
        ("a map on a slab in use", |m| {
            let place = m.volumes[0].parts[0].rows.place(0, 0).unwrap();
            let (drive, slab) = (place.drive, place.slab);
            m.volumes[0].parts[0].meta.places[0] = MetaPlaceRecord { drive, slab, state: PlaceState::Active };
        }),
        ("a map beyond the drive", |m| m.volumes[0].parts[0].meta.places[0].slab = 63),
        ("a map beyond everything", |m| m.volumes[0].parts[0].meta.places[0].slab = u32::MAX),
        ("a journal on an unknown drive", |m| m.volumes[0].parts[0].journal[0].drive = 99),
        ("a journal on itself", |m| {
            let place = m.volumes[0].parts[0].journal[0];
            m.volumes[0].parts[0].journal.push(place);
        }),
        ("a row on an unknown drive", |m| spoil_row(m, |place| place.drive = 99)),
        ("a row with a drive twice", |m| spoil_row(m, |place| place.drive ^= 1)),
        ("a row beyond the drive", |m| spoil_row(m, |place| place.slab = 62)),
        ("a row beyond everything", |m| spoil_row(m, |place| place.slab = u32::MAX)),
        ("a slab used twice", |m| {
            let places = m.volumes[0].parts[0].rows.run(0).unwrap().places_of(0);
            m.volumes[0].parts[0].rows.set(1, 1, &places);
        }),
        ("two volumes on a slab", |m| {
            let places = m.volumes[0].parts[0].rows.run(0).unwrap().places_of(0);
            m.volumes[1].parts[0].rows.set(39, 1, &places);
        }),
        ("runs out of order", |m| {
            let mut runs: Vec<Run> = m.volumes[0].parts[0].rows.runs().cloned().collect();
            runs.reverse();
            m.volumes[0].parts[0].rows.set_block(0, runs);
        }),
        ("a long run", |m| {
            let mut runs: Vec<Run> = m.volumes[0].parts[0].rows.runs().cloned().collect();
            runs.last_mut().unwrap().rows = u64::MAX;
            m.volumes[0].parts[0].rows.set_block(0, runs);
        }),
        ("too many rows", |m| {
            let part = &mut m.volumes[0].parts[0];
            part.rows = RowTable::new(4, MAX_ROWS + 1);
            part.meta.map_rows = MAX_ROWS + 1;
        }),
        ("lost blocks beyond the end", |m| lose(m, [(1, 9 * 256)])),
        ("lost blocks of no column", |m| lose(m, [(4, 17)])),
        ("more lost than can be kept", |m| lose(m, (0..1 << 20).map(|span| (0, span * 256)))),
        ("dead blocks beyond anything", |m| {
            m.volumes[0].parts[0].dead = Arc::new([(0, 1 << 50)].into_iter().collect());
        }),
        ("a drive that is left out counts as current", |m| {
            *m = pool(&[64; 3], MIB);
            add_volume(m, 1, stripewise_layout::Level::Raid5, 3, 4);
            let reason = String::new();
            m.drives[1].standing = Standing::Excluded { reason, kind: ExclusionKind::Missing };
        }),
    ];
    for (what, spoil) in spoils {
        let mut manifest = sample();
        spoil(&mut manifest);
        assert!(manifest.check().is_err(), "{what}");
    }
}

#[test]
fn changed_rows_are_checked_before_commit() {
    let before = sample();
    assert_eq!(before.clone().check_changed_rows(&before), Ok(()));
    let mut next = before.clone();
    spoil_row(&mut next, |place| place.drive ^= 1);
    let wrong = next.check_changed_rows(&before).expect_err("the first row has a drive twice");
    assert!(wrong.contains("uses a drive twice"), "{wrong}");
    let mut moved = before.clone();
    spoil_row(&mut moved, |place| place.slab += 1);
    assert_eq!(moved.check_changed_rows(&before), Ok(()));
}

fn spoil_row(manifest: &mut Manifest, spoil: fn(&mut SlotPlace)) {
    let rows = &mut manifest.volumes[0].parts[0].rows;
    let mut runs: Vec<Run> = rows.runs().cloned().collect();
    spoil(&mut runs[0].places[0]);
    rows.set_block(0, runs);
}

#[test]
fn sample_has_two_volumes_with_distinct_rows() {
    let manifest = sample();
    assert_eq!(manifest.check(), Ok(()));
    assert_eq!(manifest.volumes.iter().map(|volume| volume.id).collect::<Vec<_>>(), [Id(55), Id(56)]);
    assert!(manifest.volumes[0].parts[0].rows.runs().count() > 1);
}

#[test]
fn impossible_clones_and_schedules_are_refused() {
    let mut volume = sample().volumes[0].clone();
    volume.parts[0].log = Some(LogRecord {
        reserve_percent: 15,
        segment_bytes: 1 << 20,
        slot_bytes: 1 << 16,
        filled_since: 0,
        snapshots: true,
    });
    volume.clones = vec![clone("c", 1), clone("d", 2)];
    assert_eq!(check_clones(&volume), Ok(()));
    for wrong in [
        vec![clone("c", 0)],
        vec![clone("c", 1), clone("d", 1)],
        vec![clone("a/b", 1)],
        vec![CloneRecord { of: "v".to_owned(), ..clone("c", 1) }],
        vec![CloneRecord { of: "v@a/b".to_owned(), ..clone("c", 1) }],
    ] {
        volume.clones = wrong;
        assert!(check_clones(&volume).is_err(), "{:?}", volume.clones);
    }
    for (weekly, is_possible) in [(MOST_KEPT, true), (MOST_KEPT + 1, false)] {
        volume.schedule = Some(SnapshotSchedule { weekly, ..Default::default() });
        assert_eq!(check_received(&volume).is_ok(), is_possible);
    }
}
