//! The decoder takes anything: rubbish, damaged superblocks, and well-sealed nonsense.

use proptest::prelude::*;
use stripewise_drive::MemoryDrive;
use stripewise_layout::{Level, Shape};

use super::super::format::{LostRange, Role, ScrubIntent, SlotRecord, SlotState, Standing, VolumeRecord};
use super::*;

fn manifest() -> Manifest {
    let mut manifest = Manifest::new("tank", 30);
    for index in 0..5 {
        let role = if index < 4 { Role::Data } else { Role::Spare };
        manifest.add_drive(Id(100 + index), &format!("/dev/drive{index}"), role, 64 * MIB);
    }
    manifest.fork(Id(7));
    manifest.generation = 9;
    manifest.fork(Id(8));
    manifest.generation = 12;
    let shape = Shape { level: Level::Raid5, width: 4, groups: 1, interleave_bytes: 65_536 };
    let mut slots: Vec<SlotRecord> =
        (0..4).map(|drive| SlotRecord { drive, state: SlotState::Active }).collect();
    slots[1].state = SlotState::Rebuilding { next_region: 3 };
    manifest.volumes.push(VolumeRecord {
        id: Id(55),
        name: "data".to_owned(),
        shape,
        base_bytes: MIB,
        space_bytes: 20 * MIB,
        slots,
        lost: vec![LostRange(1, 17, 2)],
    });
    manifest.drives[4].standing = Standing::Excluded { reason: "it broke".to_owned(), missing: false };
    manifest.scrub = Some(ScrubIntent { volumes: vec![Id(55)], next_region: 4 });
    manifest
}

fn sealed(json: &[u8], generation: u64, place: u64) -> Vec<u8> {
    encode_slot(Id(1), Id(100), generation, json, place)
}

fn decode(bytes: &[u8], place: u64) -> Option<Superblock> {
    match decode_header(bytes, place) {
        HeaderContent::Valid(header) => header.decode(bytes),
        _ => None,
    }
}

#[test]
fn what_is_written_is_read_back() {
    let manifest = manifest();
    assert_eq!(manifest.check(), Ok(()));
    let slot = sealed(&encode_manifest(&manifest).unwrap(), 12, 4096);
    assert_eq!(slot.len() % 4096, 0);
    let expected = Superblock { pool_id: Id(1), drive_id: Id(100), manifest };
    assert_eq!(decode(&slot, 4096), Some(expected));
    assert_eq!(decode(&slot, 0), None, "an image moved by a block is not believed");
    assert_eq!(decode(&slot[..4000.min(slot.len())], 4096).is_some(), slot.len() <= 4096);
}

#[test]
fn a_slot_is_as_described() {
    // The bytes of docs/format.md: whoever changes them changes the version.
    let slot = encode_slot(Id(0x0102 << 112), Id(0x0304 << 112), 0x0506, b"{}", 0x0708);
    let mut expected = vec![0; 4096];
    expected[..8].copy_from_slice(b"STRPWISE");
    expected[8] = 1;
    expected[32..34].copy_from_slice(&[1, 2]);
    expected[48..50].copy_from_slice(&[3, 4]);
    expected[64..66].copy_from_slice(&[6, 5]);
    expected[72..74].copy_from_slice(&[8, 7]);
    expected[80] = 2;
    expected[84..88].copy_from_slice(&crc(b"{}").to_le_bytes());
    let checksum = crc(&expected[..508]).to_le_bytes();
    expected[508..512].copy_from_slice(&checksum);
    expected[512..514].copy_from_slice(b"{}");
    assert!(slot == expected);
    assert_eq!(crc(b"123456789"), 0xe306_9283, "CRC-32C");
}

#[test]
fn the_example_of_the_documentation_is_a_manifest() {
    let page = include_str!("../../../../../docs/format.md");
    let (_, from) = page.split_once("```json\n").expect("an example");
    let (example, _) = from.split_once("```").expect("its end");
    let manifest: Manifest = serde_json::from_str(example).expect("it can be read");
    assert_eq!(manifest.check(), Ok(()));
    // Nothing that there is to write is missing from it, and nothing is written in another way.
    let again: serde_json::Value = serde_json::from_slice(&encode_manifest(&manifest).unwrap()).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(example).unwrap());
}

#[test]
fn the_places_lie_at_both_ends() {
    assert_eq!(places(100 * MIB, 4), [0, 99 * MIB]);
    assert_eq!(places(100 * MIB + 4096, 5), [512 << 10, 99 * MIB + (512 << 10)]);
}

#[test]
fn a_full_pool_fits() {
    // The widest: 255 drives with long paths, all excluded with long reasons, one volume over all of them.
    let mut manifest = Manifest::new(&"n".repeat(63), 30);
    for index in 0..255u32 {
        let number =
            manifest.add_drive(Id(u128::MAX - u128::from(index)), &"/p".repeat(200), Role::Data, 1 << 50);
        manifest.drive_mut(number).unwrap().standing =
            Standing::Excluded { reason: "r".repeat(200), missing: false };
    }
    manifest.fork(Id(u128::MAX));
    let shape = Shape { level: Level::Raid7, width: 255, groups: 1, interleave_bytes: 65_536 };
    let slots = (0..255).map(|drive| SlotRecord { drive, state: SlotState::Missing }).collect();
    manifest.volumes.push(VolumeRecord {
        id: Id(1),
        name: "v".repeat(63),
        shape,
        base_bytes: MIB,
        space_bytes: 1 << 40,
        slots,
        lost: (0..1500).map(|block| LostRange(254, 100_000 + 2 * block, 1)).collect(),
    });
    assert_eq!(manifest.check(), Ok(()));
    assert!(encode_manifest(&manifest).unwrap().len() < 400 << 10);
}

#[test]
fn nonsense_is_refused_however_well_it_is_sealed() {
    type Spoil = fn(&mut Manifest);
    let spoils: &[(&str, Spoil)] = &[
        ("a drive twice", |m| m.drives[1].id = m.drives[0].id),
        ("a number twice", |m| m.drives[1].number = 0),
        ("a number to come", |m| m.next_number = 3),
        ("a huge drive", |m| m.drives[0].capacity_bytes = u64::MAX),
        ("no branch", |m| m.branches.clear()),
        ("branches out of order", |m| m.branches.reverse()),
        ("a branch to come", |m| m.branches[1].generation = 13),
        ("a wrong name", |m| m.name = "a/b".to_owned()),
        ("no percentage", |m| m.rebuild_priority_percent = 0),
        ("an unknown drive", |m| m.volumes[0].slots[2].drive = 77),
        ("one drive for two slots", |m| m.volumes[0].slots[2].drive = 0),
        ("a slot too many", |m| m.volumes[0].slots.push(SlotRecord { drive: 4, state: SlotState::Active })),
        ("an impossible shape", |m| m.volumes[0].shape.interleave_bytes = 5000),
        ("an impossible width", |m| m.volumes[0].shape.width = usize::MAX),
        ("groups of nothing", |m| m.volumes[0].shape.groups = 0),
        ("a crooked place", |m| m.volumes[0].base_bytes = MIB + 512),
        ("a place on the superblocks", |m| m.volumes[0].base_bytes = 0),
        ("space beyond the drives", |m| m.volumes[0].space_bytes = 63 * MIB),
        ("space beyond reason", |m| m.volumes[0].space_bytes = u64::MAX / MIB * MIB),
        ("no space", |m| m.volumes[0].space_bytes = 0),
        ("lost blocks beyond the end", |m| m.volumes[0].lost[0].1 = u64::MAX),
        ("lost blocks of no slot", |m| m.volumes[0].lost[0].0 = 4),
        ("a volume twice", |m| m.volumes.push(m.volumes[0].clone())),
        ("volumes on top of each other", |m| {
            let mut other = m.volumes[0].clone();
            other.id = Id(56);
            other.name = "other".to_owned();
            other.base_bytes = 20 * MIB;
            m.volumes.push(other);
        }),
    ];
    for (what, spoil) in spoils {
        let mut manifest = manifest();
        spoil(&mut manifest);
        assert!(manifest.check().is_err(), "{what}");
        let slot = sealed(&serde_json::to_vec(&manifest).unwrap(), 12, 0);
        assert_eq!(decode(&slot, 0), None, "{what}");
    }
    // A manifest of another moment than its header's; more than there is; text that is no manifest.
    let json = encode_manifest(&manifest()).unwrap();
    assert_eq!(decode(&sealed(&json, 13, 0), 0), None);
    for json in [&b""[..], b"{}", b"[]", b"null", b"\xff\xff", &[b'['; 100_000]] {
        assert_eq!(decode(&sealed(json, 12, 0), 0), None);
    }
}

#[test]
fn the_newest_whole_copy_counts() {
    let drive = MemoryDrive::new("d", 8 * MIB);
    let put = |generation: u64, end: usize, damage: Option<usize>| {
        let mut manifest = manifest();
        manifest.generation = generation;
        manifest.volumes.clear();
        manifest.scrub = None;
        let place = places(8 * MIB, generation)[end];
        let mut slot = sealed(&encode_manifest(&manifest).unwrap(), generation, place);
        if let Some(at) = damage {
            slot[at] ^= 1;
        }
        drive.poke(place, &slot);
    };
    let newest = || {
        let content = futures_util::FutureExt::now_or_never(read_superblock(&*drive)).expect("memory");
        match content.unwrap() {
            Content::Valid { superblock, intact } => Some((superblock.manifest.generation, intact)),
            Content::None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(newest(), None);
    put(20, 0, None);
    assert_eq!(newest(), Some((20, false)));
    put(20, 1, None);
    assert_eq!(newest(), Some((20, true)));
    put(21, 0, Some(600));
    assert_eq!(newest(), Some((20, true)), "torn in the manifest: the one before counts");
    put(21, 1, None);
    assert_eq!(newest(), Some((21, false)));
    put(21, 0, Some(70));
    assert_eq!(newest(), Some((21, false)), "torn in the header");
    put(22, 0, Some(600));
    put(22, 1, Some(600));
    assert_eq!(newest(), Some((21, false)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rubbish_is_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..6000), place in 0u64..3) {
        prop_assert_eq!(decode_header(&bytes, place), HeaderContent::None);
    }

    #[test]
    fn a_changed_bit_is_noticed(bit in 0usize..8 * 1200) {
        let json = encode_manifest(&manifest()).unwrap();
        let mut slot = sealed(&json, 12, 0);
        prop_assume!(bit / 8 < 512 + json.len());
        slot[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(decode(&slot, 0), None);
    }

    /// Rubbish with a right header, and manifests with a few bytes changed, both sealed with right checksums: whatever
    /// is accepted has passed every check, and none of them panics.
    #[test]
    fn sealed_rubbish_is_taken_apart_without_harm(
        rubbish in proptest::collection::vec(any::<u8>(), 0..2000),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0x20u8..0x7f), 1..4),
    ) {
        prop_assert_eq!(decode(&sealed(&rubbish, 12, 0), 0), None);
        let mut json = encode_manifest(&manifest()).unwrap();
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        if let Some(superblock) = decode(&sealed(&json, 12, 0), 0) {
            prop_assert_eq!(superblock.manifest.check(), Ok(()));
            for volume in &superblock.manifest.volumes {
                let _ = volume.survives(|drive| drive == 2);
                let _ = volume.lost_blocks().take(10).count();
            }
        }
    }

    /// Headers whose every field is anything, sealed: the length is bounded, the place is checked.
    #[test]
    fn headers_of_anything_are_bounded(fields in proptest::collection::vec(any::<u8>(), 504)) {
        let mut header = fields;
        header[..8].copy_from_slice(b"STRPWISE");
        header.resize(508, 0);
        let checksum = crc(&header).to_le_bytes();
        header.extend(checksum);
        for version in [0u8, 1, 2] {
            header[8..12].copy_from_slice(&[version, 0, 0, 0]);
            header[16..24].fill(0);
            let checksum = crc(&header[..508]).to_le_bytes();
            header[508..].copy_from_slice(&checksum);
            let place = u64::from_le_bytes(header[72..80].try_into().unwrap());
            match decode_header(&header, place) {
                HeaderContent::Valid(header) => prop_assert!(header.slot_bytes() as u64 <= SLOT_BYTES),
                HeaderContent::Newer(newer) => prop_assert_eq!((version, newer), (2, 2)),
                HeaderContent::Unknown(_) => prop_assert!(false, "no flags are set"),
                HeaderContent::None => {}
            }
        }
    }
}
