//! Whatever happens to a manifest is read back from the changes that were written of it.

use proptest::prelude::*;
use stripewise_drive::SplitMix64;
use stripewise_layout::Level;

use super::*;
use crate::MIB;
use crate::manifest::events::EventKind;
use crate::testing::{add_volume, change, pool, sample};
use stripewise_array::rows::{SlotPlace, SlotState};

#[test]
fn a_checkpoint_has_everything() {
    let manifest = sample();
    let bytes = changes(None, &manifest);
    assert_eq!(replay(&[(12, bytes)]), Some(manifest.clone()));
    assert!(changes(Some(&manifest), &manifest).is_empty());
}

#[test]
fn random_histories_are_read_back_at_every_moment() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut manifest = if seed % 2 == 0 { sample() } else { pool(&[64, 64, 64, 200, 100], MIB) };
        let mut entries = vec![(manifest.generation, changes(None, &manifest))];
        for _ in 0..40 {
            let before = manifest.clone();
            change(&mut manifest, &mut random);
            entries.push((manifest.generation, changes(Some(&before), &manifest)));
            assert_eq!(replay(&entries).as_ref(), Some(&manifest), "seed {seed}");
        }
        let fresh = changes(None, &manifest);
        assert_eq!(replay(&[(manifest.generation, fresh)]).as_ref(), Some(&manifest), "seed {seed}");
    }
}

#[test]
fn a_row_of_a_large_pool_is_a_small_change() {
    // 60 drives of 20 TB, a thin volume with every row somewhere else.
    let mut manifest = pool(&[20_000_000; 60], 128 * MIB);
    add_volume(&mut manifest, 1, Level::Raid6, 10, 100_000);
    let table = &mut manifest.volumes[0].parts[0].rows;
    let rows: Vec<_> = (0..4096).map(|row| table.run(row).unwrap().places_of(row)).collect();
    for row in 0..4096u64 {
        table.set(row, 1, &rows[(row ^ 1) as usize]);
    }
    assert_eq!(manifest.check(), Ok(()));
    let mut entries = vec![(1, changes(None, &manifest))];
    assert!(entries[0].1.len() < 256 << 10, "{}", entries[0].1.len());
    let mut next = manifest.clone();
    next.generation = 2;
    let table = &mut next.volumes[0].parts[0].rows;
    table.clear(2000, 1);
    table.clear(99_000, 1);
    next.events.push(5, EventKind::Space, "rows were given back");
    entries.push((2, changes(Some(&manifest), &next)));
    assert!(entries[1].1.len() < 300, "{}", entries[1].1.len());
    assert_eq!(replay(&entries), Some(next));
}

#[test]
fn equal_drives_make_a_small_checkpoint() {
    let mut manifest = pool(&[20_000_000; 60], 128 * MIB);
    let begun = std::time::Instant::now();
    add_volume(&mut manifest, 1, Level::Raid6, 60, 149_000);
    let bytes = changes(None, &manifest);
    assert!(begun.elapsed().as_millis() < 500, "{:?}", begun.elapsed());
    assert!(bytes.len() < 32 << 10, "{}", bytes.len());
    assert_eq!(manifest.volumes[0].parts[0].rows.runs().count(), 37, "one per block");
}

#[test]
fn contradictory_change_ends_replay_before_it() {
    let mut manifest = sample();
    let mut entries = vec![(12, changes(None, &manifest))];
    let mut random = SplitMix64::new(4);
    for _ in 0..3 {
        let before = manifest.clone();
        change(&mut manifest, &mut random);
        entries.push((manifest.generation, changes(Some(&before), &manifest)));
    }
    let until_second = replay(&entries[..2]);
    let place = SlotPlace { drive: 0, slab: 0, state: SlotState::Active };
    let run = stripewise_array::rows::Run { first_row: 0, rows: 1, places: [place].into_iter().collect() };
    let patch = Patch { from: 0, to: 1, runs: vec![run] };
    let lost = |changes: &[u8]| Section::Lost { part: Id(1055), dead: false, changes: changes.to_vec() };
    let nonsense: [Vec<Section>; 5] = [
        vec![lost(&[0, 0, 2, 5])],
        vec![Section::Rows { part: Id(0xdead), width: 1, patch: patch.clone() }],
        vec![Section::Rows { part: Id(1055), width: 1, patch }],
        vec![Section::Map { part: Id(1), width: 1, rows: u64::MAX }],
        vec![
            Section::Map { part: Id(1), width: 1, rows: MAX_ROWS },
            Section::Map { part: Id(2), width: 1, rows: MAX_ROWS },
        ],
    ];
    for sections in nonsense {
        let mut bytes = Vec::new();
        sections.iter().for_each(|section| section.put(&mut bytes));
        entries[2].1 = bytes;
        assert_eq!(replay(&entries), until_second);
    }
    entries[2].1 = vec![99, 0, 0, 0, 0];
    assert_eq!(replay(&entries), until_second, "an unknown kind of section");
    entries[0].1.pop();
    assert_eq!(replay(&entries), None);
}

#[test]
fn the_sections_are_as_described() {
    // The bytes of docs/internals/format.md: a change of them changes the version.
    let mut bytes = Vec::new();
    Section::Map { part: Id(0x0102 << 112), width: 3, rows: 0x0405 }.put(&mut bytes);
    let mut expected = vec![4, 26, 0, 0, 0, 1, 2];
    expected.extend([0; 14]);
    expected.extend([3, 0, 5, 4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes, expected);
    let mut bytes = Vec::new();
    Section::Lost { part: Id(0x0102 << 112), dead: true, changes: vec![0, 0, 1, 7] }.put(&mut bytes);
    assert_eq!(bytes[..5], [8, 20, 0, 0, 0]);
    assert_eq!(bytes[21..], [0, 0, 1, 7]);
    let mut bytes = Vec::new();
    Section::Events { number: 7, list: Vec::new() }.put(&mut bytes);
    assert_eq!(bytes, [6, 10, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, b'[', b']']);
}

#[test]
fn the_examples_of_the_documentation_are_sections() {
    let page = include_str!("../../../../../docs/internals/format.md");
    let examples: Vec<&str> =
        page.split("```json\n").skip(1).map(|rest| rest.split_once("```").expect("its end").0).collect();
    let [head, drive, volume, events] = examples[..] else { panic!("four examples") };
    let same = |example: &str, again: serde_json::Value| {
        assert_eq!(serde_json::from_str::<serde_json::Value>(example).unwrap(), again);
    };
    let parsed: Head = serde_json::from_str(head).expect("a head");
    same(head, serde_json::to_value(&parsed).unwrap());
    let parsed: DriveRecord = serde_json::from_str(drive).expect("a drive");
    same(drive, serde_json::to_value(&parsed).unwrap());
    let parsed: VolumeRecord = serde_json::from_str(volume).expect("a volume");
    same(volume, serde_json::to_value(&parsed).unwrap());
    let parsed: Vec<crate::manifest::events::Event> = serde_json::from_str(events).expect("events");
    same(events, serde_json::to_value(&parsed).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(replay(&[(1, bytes)]), None);
    }

    /// Sections with a few bytes changed: whatever is accepted has passed every check, and none of
    /// them panics.
    #[test]
    fn damaged_sections_do_no_harm(
        seed in 0u64..20,
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        in_change: bool,
    ) {
        let mut manifest = sample();
        let mut entries = vec![(12, changes(None, &manifest))];
        let before = manifest.clone();
        change(&mut manifest, &mut SplitMix64::new(seed));
        entries.push((13, changes(Some(&before), &manifest)));
        let bytes = &mut entries[usize::from(in_change)].1;
        prop_assume!(!bytes.is_empty());
        for (at, byte) in changed {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(manifest) = replay(&entries) {
            prop_assert_eq!(manifest.check(), Ok(()));
            for volume in &manifest.volumes {
                let _ = volume.survives(|drive| drive == 2);
                let _ = volume.parts.iter().flat_map(|part| part.lost.iter()).take(10).count();
            }
            let _ = crate::space::slabs::FreeSlabs::new(&manifest);
            let _ = changes(Some(&before), &manifest);
        }
    }
}
