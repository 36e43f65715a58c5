//! Feeds decoders of on-drive data arbitrary bytes, with corrected checksums so that the bytes
//! reach them: none may panic, hang, or take memory out of proportion. Uses the same entry points
//! as `fuzz/`, which goes further.

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive, SplitMix64};
use stripewise_pool::{OpenMode, Pool, fuzzing, inspect};

/// Size of the damaged drives: the smallest that a volume fits on.
const DRIVE_MIB: u64 = 16;

/// Creates a pool with most kinds of records.
fn drives_of_a_pool() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, DRIVE_MIB);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..3], &drives[3..]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid5", Some(2 * MIB))).await.unwrap();
        pool.set_rebuild_priority(44).await.unwrap();
        pool.close().await.unwrap();
    });
    images
}

fn bytes_of(drive: &MemoryDrive) -> Vec<u8> {
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    bytes
}

/// Changes some bytes: bit flips, limits of numbers, pieces cut out, repeated or moved.
fn mutate(bytes: &mut [u8], random: &mut SplitMix64) {
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9', b'"', b']'][random.below(8) as usize],
            2 => {
                let end = (at + 1 + random.below(8) as usize).min(bytes.len());
                bytes[at..end].fill([0, 0xff][random.below(2) as usize]);
            }
            3 => bytes.copy_within(at.., at.saturating_sub(random.below(40) as usize)),
            _ => {
                let length = (random.below(64) as usize).min(bytes.len() - at);
                let from = random.below((bytes.len() - length) as u64 + 1) as usize;
                bytes.copy_within(from..from + length, at);
            }
        }
    }
}

/// Returns the sections of the first checkpoint of a drive.
fn checkpoint(image: &[u8]) -> Vec<u8> {
    let entry = &image[4096..];
    let length = u32::from_le_bytes(entry[28..32].try_into().unwrap()) as usize;
    entry[64..64 + length].to_vec()
}

#[test]
fn checkpoint_sections_survive_any_bytes() {
    let images = drives_of_a_pool();
    let image = bytes_of(&images[0]);
    let slots = [0, 512 << 10].map(|slot| checkpoint(&image[slot..]));
    let slots: Vec<Vec<u8>> = slots.into_iter().filter(|sections| !sections.is_empty()).collect();
    assert!(slots.iter().any(|sections| fuzzing::sections(sections)), "the original describes a pool");
    let (mut random, mut made) = (SplitMix64::new(1), 0);
    for round in 0..30_000 {
        let mut sections = slots[round % slots.len()].clone();
        mutate(&mut sections, &mut random);
        made += u64::from(fuzzing::sections(&sections));
    }
    assert!(made > 100, "mutants reach the semantic checks: {made}");
}

#[test]
fn batch_heads_survive_any_bytes() {
    // One record of one part with one run of checksums, and a release note.
    let mut head = vec![0u8; 4096];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(32, &5u64.to_le_bytes()); // number
    put(40, &5u64.to_le_bytes()); // written at
    put(80, &1u32.to_le_bytes()); // records
    put(84, &1u32.to_le_bytes()); // notes
    put(96, &4096u64.to_le_bytes()); // payload bytes
    put(112, &(40u32 + 12 + 12).to_le_bytes()); // length of the descriptor
    put(116, &[1, 0]); // kind, flags
    put(118, &1u16.to_le_bytes()); // parts
    put(136, &4096u64.to_le_bytes()); // bytes
    put(148, &1u32.to_le_bytes()); // runs of sums
    put(160, &4096u32.to_le_bytes()); // the part's length
    put(166, &1u16.to_le_bytes()); // sums in the run
    assert!(fuzzing::journal_head(&head), "the original is valid");
    let (mut random, mut whole) = (SplitMix64::new(2), 0);
    for _ in 0..30_000 {
        let mut bytes = head.clone();
        mutate(&mut bytes[32..260], &mut random);
        whole += u64::from(fuzzing::journal_head(&bytes));
    }
    assert!(whole > 100, "{whole}");
}

#[test]
fn pages_survive_any_bytes() {
    let (mut random, mut page, mut taken) = (SplitMix64::new(4), vec![0u8; 4096], 0);
    for _ in 0..10_000 {
        mutate(&mut page, &mut random);
        taken += u64::from(fuzzing::page(&page));
        let mut sealed = page.clone();
        let magic: [&[u8; 8]; 4] = [b"STRPSUMS", b"SWREGMAP", b"SWJAREA\0", b"SWJBATCH"];
        sealed[..8].copy_from_slice(magic[random.below(4) as usize]);
        let length = random.below(4097) as usize;
        fuzzing::reseal_page(&mut sealed[..length]);
    }
    assert_eq!(taken, 10_000, "page contents are accepted as they are");
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("readable");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

/// Replaces each number of the pool's manifest in turn by an absurd one, on all of its drives and
/// with correct checksums.
#[test]
fn numbers_on_a_drive_cannot_exhaust_memory() {
    let images = drives_of_a_pool();
    let sound: Vec<Vec<u8>> = images.iter().map(|drive| bytes_of(drive)).collect();
    let mut numbers = 0;
    fuzzing::change_numbers(&mut sound[0].clone(), |number| {
        numbers += 1;
        number
    });
    assert!(numbers > 40, "{numbers}");
    let life = Life::new();
    let before = resident_bytes();
    let mut opened = 0;
    for index in 0..numbers {
        for value in [0, 1 << 32, 1 << 60, u64::MAX] {
            let copies = images.iter().zip(&sound).map(|(drive, bytes)| {
                let (mut bytes, mut at) = (bytes.clone(), 0);
                fuzzing::change_numbers(&mut bytes, |number| {
                    at += 1;
                    if at - 1 == index { value } else { number }
                });
                let copy = drive.duplicate(&drive.info().label);
                copy.poke(0, &bytes);
                copy as Rc<dyn Drive>
            });
            let copies: Vec<Rc<dyn Drive>> = copies.collect();
            life.run(async {
                let _ = inspect(&*copies[0]).await;
                let opening =
                    Pool::open(&life.context, &life.buffers, copies, OpenMode::ReadOnly, options(7));
                if let Ok(pool) = opening.await {
                    opened += 1;
                    let _ = pool.status();
                    let _ = pool.close().await;
                }
            });
        }
        assert!(resident_bytes() < before + (512 << 20), "number {index}");
    }
    assert!(opened > 0, "some numbers are harmless");
}

#[test]
fn superblocks_survive_any_bytes() {
    let images = drives_of_a_pool();
    let sound: Vec<Vec<u8>> = images.iter().map(|drive| bytes_of(drive)).collect();
    let life = Life::new();
    let (mut random, mut opened, mut recognised) = (SplitMix64::new(3), 0, 0);
    for round in 0..400 {
        let mut bytes = sound[0].clone();
        let at = [0, 512 << 10][round % 2];
        // The same at both ends, or they would repair each other.
        let mut slot = bytes[at..at + (8 << 10)].to_vec();
        let from = if random.below(3) == 0 { 8 } else { 4096 };
        mutate(&mut slot[from..], &mut random);
        let end = bytes.len() - (1 << 20);
        for start in [at, end + at] {
            bytes[start..start + slot.len()].copy_from_slice(&slot);
        }
        // Each copy records its own place.
        let start = end + at;
        bytes[start + 72..start + 80].copy_from_slice(&(start as u64).to_le_bytes());
        bytes[start + 4096 + 40..start + 4096 + 48].copy_from_slice(&(start as u64 + 4096).to_le_bytes());
        fuzzing::reseal_slots(&mut bytes);
        let broken = MemoryDrive::new("drive0", DRIVE_MIB * MIB);
        broken.poke(0, &bytes);
        let mut drives: Vec<Rc<dyn Drive>> = as_drives(&images[1..]);
        drives.push(broken.clone());
        life.run(async {
            recognised += u64::from(inspect(&*broken).await.is_ok_and(|label| label.is_some()));
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                let copies: Vec<Rc<dyn Drive>> = match mode {
                    OpenMode::ReadOnly => drives.clone(),
                    OpenMode::ReadWrite => {
                        let all = images[1..].iter().chain([&broken]);
                        all.map(|drive| drive.duplicate(&drive.info().label) as Rc<dyn Drive>).collect()
                    }
                };
                if let Ok(pool) = Pool::open(&life.context, &life.buffers, copies, mode, options(7)).await {
                    opened += 1;
                    let _ = pool.status();
                    let _ = pool.close().await;
                }
            }
        });
    }
    assert!(recognised > 50 && opened > 200, "{recognised} {opened}");
}
