//! Written records are read back; torn, decayed or foreign ones are not; none harms the reader.

use std::rc::Rc;

use futures_util::FutureExt;
use proptest::prelude::*;
use stripewise_drive::{Delay, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_runtime::VirtualExecutor;

use super::*;
use crate::manifest::events::EventKind;
use crate::manifest::ids::Id;
use crate::space::addresses::{end_of_slabs, slot_bytes};
use crate::superblock::room::{checkpoint_bytes, slot_room_bytes};
use crate::superblock::writer::{Target, Writer, wipe};
use crate::testing::{add_volume, change, pool, sample};
use stripewise_array::Member;

const POOL: Id = Id(1);

fn read(drive: &MemoryDrive) -> Content {
    read_superblock(drive).now_or_never().expect("memory answers at once").expect("it can be read")
}

fn newest(drive: &MemoryDrive) -> Option<(Manifest, usize, bool)> {
    match read(drive) {
        Content::Valid { superblock, slot, intact } => {
            assert_eq!(superblock.pool_id, POOL);
            Some((superblock.manifest, slot, intact))
        }
        Content::None | Content::Unreadable { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// The drives of a manifest, in memory.
struct Rig {
    executor: VirtualExecutor,
    images: Vec<Rc<MemoryDrive>>,
    targets: Vec<Target>,
    writer: Writer,
}

impl Rig {
    fn new(manifest: &Manifest) -> Self {
        let executor = VirtualExecutor::new();
        let images: Vec<_> =
            manifest.drives.iter().map(|drive| MemoryDrive::new(&drive.path, drive.capacity_bytes)).collect();
        let target = |(index, image): (usize, &Rc<MemoryDrive>)| Target {
            number: index as u32,
            id: Id(100 + index as u128),
            capacity_bytes: image.info().capacity_bytes,
            member: Member::new(&executor.context(), image.clone(), MemberOptions::default()),
        };
        let targets = images.iter().enumerate().map(target).collect();
        Self { executor, images, targets, writer: Writer::new(POOL, 1 << 20, u64::MAX) }
    }

    fn commit(&self, manifest: &Manifest) {
        for (number, result) in
            self.executor.block_on(self.writer.commit(manifest, None, &self.targets)).unwrap()
        {
            assert!(result.is_ok(), "drive {number}: {result:?}");
        }
    }

    /// As after closing and opening.
    fn reopen(&mut self) {
        self.writer = Writer::new(POOL, 1 << 20, u64::MAX);
        for (number, image) in self.images.iter().enumerate() {
            let (_, slot, _) = newest(image).expect("a state");
            self.writer.found(number as u32, slot);
        }
    }
}

fn small(generation: u64) -> Manifest {
    let mut manifest = pool(&[8], MIB);
    manifest.generation = generation;
    manifest
}

#[test]
fn commits_survive_full_logs_and_reopening() {
    let mut manifest = pool(&[64, 64, 70], MIB);
    add_volume(&mut manifest, 5, stripewise_layout::Level::Raid5, 3, 9);
    let mut rig = Rig::new(&manifest);
    let mut random = SplitMix64::new(11);
    let (mut switches, mut last) = (0, None);
    for step in 0..400 {
        rig.commit(&manifest);
        for image in &rig.images {
            let (found, slot, intact) = newest(image).expect("a state");
            assert!(found == manifest && intact, "step {step}");
            switches += usize::from(last.is_some_and(|last| last != slot));
            last = Some(slot);
        }
        if random.below(40) == 0 {
            rig.reopen();
        }
        // Drives are not added or left out here: the images are three.
        let before = manifest.clone();
        change(&mut manifest, &mut random);
        if manifest.drives.len() > 3 || manifest.drives.iter().any(|drive| !drive.is_online()) {
            manifest = before;
            manifest.generation += 1;
        }
    }
    assert!(switches >= 6, "{switches}");
}

#[test]
fn full_log_switches_to_a_checkpoint_in_other_slot() {
    let rig = Rig::new(&small(1));
    let mut slots = Vec::new();
    for generation in 1..=260 {
        rig.commit(&small(generation));
        slots.push(newest(&rig.images[0]).unwrap().1);
    }
    // 127 blocks of 4 KiB in a slot, one for each of these.
    assert_eq!([slots[126], slots[127], slots[253], slots[254]], [0, 1, 1, 0]);
}

#[test]
fn either_end_or_both_restore_the_superblock() {
    let rig = Rig::new(&small(1));
    for generation in 1..=6 {
        rig.commit(&small(generation));
    }
    let image = &rig.images[0];
    let [start, end] = slot_places(8 * MIB, 0);
    let spoil = |image: &MemoryDrive, at: u64| image.poke(at, &[0x55; 100]);
    let state = |spoilt: &[u64]| {
        let copy = image.duplicate("copy");
        spoilt.iter().for_each(|at| spoil(&copy, *at));
        newest(&copy).map(|(manifest, _, intact)| (manifest.generation, intact))
    };
    let entry = |end: u64, index: u64| end + (1 + index) * BLOCK_BYTES;
    assert_eq!(state(&[]), Some((6, true)));
    assert_eq!(state(&[start]), Some((6, false)), "a header");
    assert_eq!(state(&[entry(start, 0)]), Some((6, false)), "a checkpoint");
    assert_eq!(state(&[entry(start, 2), entry(end, 4)]), Some((6, false)), "each end lacks something else");
    assert_eq!(
        state(&[entry(start, 4), entry(end, 4)]),
        Some((4, true)),
        "what is gone at both ends ends the log"
    );
    assert_eq!(state(&[start, end]), None, "without a header its pool is unknown");
    assert_eq!(state(&[entry(start, 0), entry(end, 0)]), None, "nor without a checkpoint");
}

/// Changes each byte of the header and of each of four states behind it.
fn change_each_byte(block: u64) {
    let rig = Rig::new(&small(1));
    let mut states = Vec::new();
    let mut manifest = small(1);
    for generation in 1..=4 {
        manifest.generation = generation;
        manifest.events.push(generation, EventKind::Pool, "a thing that happened");
        rig.commit(&manifest);
        states.push(manifest.clone());
    }
    let image = rig.images[0].duplicate("copy");
    let places = slot_places(8 * MIB, 0);
    let mut noticed = 0;
    for at in block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES {
        // The same byte at both ends, or the other end would stand in for it.
        let mut byte = [[0; 1]; 2];
        for (end, place) in places.iter().enumerate() {
            image.peek(place + at, &mut byte[end]);
            image.poke(place + at, &[byte[end][0] ^ (1 << (at % 8))]);
        }
        match newest(&image) {
            Some((found, ..)) => {
                assert!(states.contains(&found), "byte {at}");
                noticed += usize::from(found != states[3]);
            }
            None => noticed += 1,
        }
        for (end, place) in places.iter().enumerate() {
            image.poke(place + at, &byte[end]);
        }
    }
    // All but the zeros behind it.
    let expected = match block.checked_sub(1).map(|index| index as usize) {
        None => 512,
        Some(index) => {
            let before = index.checked_sub(1).map(|before| &states[before]);
            64 + crate::superblock::changes::changes(before, &states[index]).len()
        }
    };
    assert_eq!(noticed, expected);
    assert_eq!(newest(&image).unwrap().0, states[3]);
}

test_cases! {
    every_byte_of_a_log_counts = change_each_byte {
        header: 0,
        checkpoint: 1,
        second_state: 2,
        third_state: 3,
        newest_state: 4,
    }
}

#[test]
fn torn_commits_leave_the_state_before_or_after() {
    let mut manifest = sample();
    manifest.drives.iter_mut().for_each(|drive| drive.errors.write = 0);
    let rig = Rig::new(&manifest);
    let online: Vec<Target> =
        rig.targets.iter().filter(|target| manifest.is_online(target.number)).cloned().collect();
    let commit = |manifest: &Manifest| {
        rig.executor.block_on(rig.writer.commit(manifest, None, &online)).unwrap();
    };
    commit(&manifest);
    let mut random = SplitMix64::new(3);
    for round in 0..60 {
        let before = (manifest.clone(), rig.images[0].duplicate("before"));
        manifest.generation += 1;
        manifest.drives[1].errors.read += 1;
        (0..round).for_each(|n| manifest.events.push(n, EventKind::Loss, &"x".repeat(180)));
        commit(&manifest);
        // Each 512 bytes that differ made it or not, by themselves.
        let torn = before.1.duplicate("torn");
        let share = random.below(5);
        for place in (0..2).flat_map(|slot| slot_places(64 * MIB, slot)) {
            for sector in 0..slot_bytes(64 * MIB) / 512 {
                let mut bytes = [0; 512];
                rig.images[0].peek(place + sector * 512, &mut bytes);
                let made_it = random.below(4) < share;
                if made_it && bytes != [0; 512] {
                    torn.poke(place + sector * 512, &bytes);
                }
            }
        }
        let (found, ..) = newest(&torn).expect("a state");
        assert!(found == before.0 || found == manifest, "round {round}: {}", found.generation);
        assert!(share < 4 || found == manifest);
    }
}

#[test]
fn leftovers_of_other_pools_and_slots_are_rejected() {
    let rig = Rig::new(&small(9));
    rig.commit(&small(9));
    rig.commit(&small(10));
    let image = &rig.images[0];
    let mut slot = vec![0; 3 * BLOCK_BYTES as usize];
    image.peek(0, &mut slot);
    // Slot A's bytes in slot B's place, and moved by a block.
    let other = MemoryDrive::new("other", 8 * MIB);
    other.poke(slot_bytes(8 * MIB), &slot);
    other.poke(BLOCK_BYTES, &slot);
    assert_eq!(newest(&other), None);
    // The same drive in another pool: its header is new, the log is not.
    let header = Header { pool_id: POOL, drive_id: Id(5), capacity_bytes: 8 * MIB };
    other.poke(0, &header.encode(0, 0, Id(0)));
    other.poke(BLOCK_BYTES, &slot[BLOCK_BYTES as usize..]);
    assert_eq!(newest(&other), None);
    rig.executor.block_on(wipe(&rig.targets[0].member)).unwrap();
    assert_eq!(newest(image), None);
}

#[test]
fn a_generation_without_a_successor_is_damage() {
    for last in [1 << 62, u64::MAX] {
        let rig = Rig::new(&small(1));
        for generation in [1, (1 << 62) - 1, last] {
            rig.commit(&small(generation));
        }
        assert_eq!(newest(&rig.images[0]).map(|(found, ..)| found.generation), Some((1 << 62) - 1));
    }
}

#[test]
fn grown_drive_is_found_and_tiny_drive_is_empty() {
    let rig = Rig::new(&small(1));
    rig.commit(&small(1));
    let grown = MemoryDrive::new("grown", 12 * MIB);
    let mut bytes = vec![0; 8 << 20];
    rig.images[0].peek(0, &mut bytes);
    grown.poke(0, &bytes);
    assert_eq!(newest(&grown), Some((small(1), 0, true)));
    assert_eq!(read(&MemoryDrive::new("small", MIB)), Content::None);
}

#[test]
fn other_format_versions_are_identified() {
    let header = Header { pool_id: POOL, drive_id: Id(2), capacity_bytes: 8 * MIB };
    let mut block = header.encode(0, 0, Id(0x5e));
    let seal = |block: &mut Vec<u8>| {
        let checksum = crate::superblock::entries::crc(&block[..508]).to_le_bytes();
        block[508..512].copy_from_slice(&checksum);
    };
    // The bytes of docs/internals/format.md: a change of them changes the version.
    let mut expected = vec![0; 4096];
    expected[..8].copy_from_slice(b"STRPWISE");
    (expected[8], expected[16], expected[47], expected[63], expected[66]) = (2, 1, 1, 2, 0x80);
    (expected[24], expected[95]) = (1, 0x5e);
    seal(&mut expected);
    assert_eq!(block, expected);
    let drive = MemoryDrive::new("d", 8 * MIB);
    for (version, content) in [(1u8, Content::Older(1)), (3, Content::Newer(3))] {
        block[8] = version;
        seal(&mut block);
        for place in version_1_places(8 * MIB) {
            let drive = MemoryDrive::new("d", 8 * MIB);
            drive.poke(place, &block);
            assert_eq!(read(&drive), content);
        }
    }
    // A large drive of version 1, whose second slot is not where one of version 2 is.
    let large = MemoryDrive::new("large", 1 << 40);
    block[8] = 1;
    seal(&mut block);
    large.poke(MIB / 2, &block);
    assert_eq!(read(&large), Content::Older(1));
    block[8] = 2;
    block[16] = 128;
    seal(&mut block);
    drive.poke(0, &block);
    assert_eq!(read(&drive), Content::Unknown(128));
}

#[test]
fn an_entry_is_as_described() {
    let header = Header { pool_id: Id(1), drive_id: Id(2), capacity_bytes: 8 * MIB };
    let before = Before { generation: 0x0203, sections_crc: 0x0405_0607 };
    let bytes = EntryHeader::new(0x0809, 0x0708, Some(before), b"abc").encode(&header, 0x3000);
    let mut expected = [0; 64];
    expected[..8].copy_from_slice(b"SWCHANGE");
    expected[8..10].copy_from_slice(&[9, 8]);
    expected[16..18].copy_from_slice(&[3, 2]);
    expected[24..28].copy_from_slice(&[7, 6, 5, 4]);
    expected[28] = 3;
    expected[32..36].copy_from_slice(&crate::superblock::entries::crc(b"abc").to_le_bytes());
    expected[41] = 0x30;
    expected[48..50].copy_from_slice(&[8, 7]);
    let mut sealed = expected[..60].to_vec();
    sealed.extend(1u128.to_be_bytes());
    sealed.extend(2u128.to_be_bytes());
    expected[60..].copy_from_slice(&crate::superblock::entries::crc(&sealed).to_le_bytes());
    assert_eq!(bytes, expected);
    assert_eq!(crate::superblock::entries::crc(b"123456789"), 0xe306_9283, "CRC-32C");
}

#[test]
fn one_working_end_of_a_drive_is_enough() {
    let executor = VirtualExecutor::new();
    let image = MemoryDrive::new("d", 8 * MIB);
    let faults = FaultyDrive::new(&executor.context(), image.clone(), 1);
    faults.set_delay(Delay::Exponential { mean_ns: 1000 });
    let member = Member::new(&executor.context(), faults.clone(), MemberOptions::default());
    let target = Target { number: 0, id: Id(100), capacity_bytes: 8 * MIB, member };
    let writer = Writer::new(POOL, 1 << 20, u64::MAX);
    for generation in 1..=3 {
        executor.block_on(writer.commit(&small(generation), None, std::slice::from_ref(&target))).unwrap();
    }
    // An unreadable sector of the log at either end, and more behind it.
    let [start, end] = slot_places(8 * MIB, 0);
    faults.make_unreadable(start + 2 * BLOCK_BYTES..start + 2 * BLOCK_BYTES + 512);
    faults.make_unreadable(end + 60 * BLOCK_BYTES..end + 60 * BLOCK_BYTES + 512);
    let content = executor.block_on(read_superblock(&*faults)).unwrap();
    let Content::Valid { superblock, slot: 0, intact: false } = content else { panic!("{content:?}") };
    assert_eq!(superblock.manifest, small(3));
    assert_eq!(end, end_of_slabs(8 * MIB));
}

#[test]
fn first_drives_refusal_stops_the_commit() {
    let mut manifest = pool(&[8, 8], MIB);
    let rig = Rig::new(&manifest);
    let commit = |manifest: &Manifest, first| {
        let results = rig.executor.block_on(rig.writer.commit(manifest, first, &rig.targets)).unwrap();
        results.into_iter().map(|(number, result)| (number, result.is_ok())).collect::<Vec<_>>()
    };
    assert_eq!(commit(&manifest, None), [(0, true), (1, true)]);
    rig.targets[1].member.fail("pulled");
    manifest.generation = 2;
    assert_eq!(commit(&manifest, Some(1)), [(1, false)]);
    assert_eq!(newest(&rig.images[0]).unwrap().0.generation, 1);
    // The log goes on where it was.
    manifest.generation = 3;
    let results = rig.executor.block_on(rig.writer.commit(&manifest, None, &rig.targets[..1])).unwrap();
    assert!(results[0].1.is_ok());
    assert_eq!(newest(&rig.images[0]), Some((manifest.clone(), 0, true)));
    manifest.generation = 4;
    assert_eq!(commit(&manifest, None), [(0, true), (1, false)], "a checkpoint, since drive 1 lacks the log");
    assert_eq!(newest(&rig.images[0]), Some((manifest, 1, true)));
}

#[test]
fn oversized_manifest_is_refused_with_the_numbers() {
    let mut manifest = pool(&[64; 3], MIB);
    for index in 0..500u128 {
        let path = "/p".repeat(200);
        let number =
            manifest.add_drive(Id(index << 64), &path, crate::manifest::drive_record::Role::Spare, 64 * MIB);
        manifest.drive_mut(number).unwrap().path = "p".repeat(1000);
    }
    let rig = Rig::new(&pool(&[64; 3], MIB));
    let refused = rig.executor.block_on(rig.writer.commit(&manifest, None, &rig.targets)).unwrap_err();
    assert_eq!(refused.room_bytes, slot_room_bytes(&manifest));
    assert_eq!(refused.needed_bytes, checkpoint_bytes(&manifest));
    assert!(refused.needed_bytes > refused.room_bytes);
    assert_eq!(newest(&rig.images[0]), None, "nothing was written");
}

#[test]
fn a_large_checkpoint_goes_in_pieces() {
    let mut manifest = pool(&[200_000, 200_000], MIB);
    for index in 0..500u128 {
        let number =
            manifest.add_drive(Id(index << 64), "", crate::manifest::drive_record::Role::Spare, 64 << 30);
        manifest.drive_mut(number).unwrap().path = "p".repeat(5000);
    }
    let rig = Rig::new(&pool(&[200_000, 200_000], MIB));
    rig.commit(&manifest);
    assert!(checkpoint_bytes(&manifest) > 2 * MIB);
    assert_eq!(newest(&rig.images[1]), Some((manifest, 0, true)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_not_a_superblock(bytes in prop::collection::vec(any::<u8>(), 0..9000), at in 0u64..4) {
        prop_assert_eq!(Header::decode(&bytes, at), HeaderContent::None);
        let header = Header { pool_id: POOL, drive_id: Id(100), capacity_bytes: 8 * MIB };
        prop_assert_eq!(EntryHeader::decode(&bytes, &header, at, 1 << 20), None);
        let drive = MemoryDrive::new("d", 8 * MIB);
        drive.poke(slot_places(8 * MIB, (at % 2) as usize)[(at / 2) as usize], &bytes);
        prop_assert_eq!(read(&drive), Content::None);
        // Rubbish behind a header that is right.
        drive.poke(0, &header.encode(0, 0, Id(0)));
        drive.poke(BLOCK_BYTES, &bytes);
        prop_assert_eq!(read(&drive), Content::Unreadable { pool_id: POOL, drive_id: Id(100) });
    }

    /// Entry headers whose every field is anything, sealed: lengths are bounded by the room before
    /// anything is read.
    #[test]
    fn sealed_garbage_headers_have_bounded_lengths(fields in prop::collection::vec(any::<u8>(), 56), kind: bool, room in 0u64..200_000) {
        let of = Header { pool_id: POOL, drive_id: Id(100), capacity_bytes: 8 * MIB };
        let mut bytes = if kind { *b"SWCHKPNT" } else { *b"SWCHANGE" }.to_vec();
        bytes.extend(fields);
        let place = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
        let mut sealed = bytes[..60].to_vec();
        sealed.extend(POOL.0.to_be_bytes());
        sealed.extend(100u128.to_be_bytes());
        bytes[60..64].copy_from_slice(&crate::superblock::entries::crc(&sealed).to_le_bytes());
        if let Some(header) = EntryHeader::decode(&bytes, &of, place, room) {
            prop_assert!(header.entry_bytes() <= room);
            prop_assert_eq!(header.sections(&bytes).is_some(), header.sections_bytes == 0 && header.sections_crc == 0);
        }
    }
}
