//! Garbage, foreign data and lost areas on opening.

use super::*;
use stripewise_drive::SplitMix64;

const BYTES: u64 = 256 << 10;

/// Creates the drives of a journal with some records, the first three of them released.
async fn filled(context: &Context, count: usize, copies: usize, records: u64) -> Vec<Rc<MemoryDrive>> {
    let drives = memory(count, BYTES);
    let journal =
        create(context, areas(context, &as_drives(&drives), BYTES), copies, &Rc::new(Host::default())).await;
    for tag in 0..records {
        let done = append(&journal, record(tag, &[4096, 512]), Quota::InPlace).await.expect("room");
        if tag < 3 {
            journal.release(done);
        }
    }
    journal.mark().await.expect("a mark");
    drives
}

#[test]
fn garbage_never_panics_or_passes_for_a_record() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let host = Rc::new(Host::default());
    for seed in 1..=150_u64 {
        println!("seed {seed}");
        executor.block_on(async {
            let mut random = SplitMix64::new(seed);
            let drives = filled(&context, 2, 2, 8).await;
            for drive in &drives {
                for _ in 0..1 + random.below(20) {
                    let span = if random.chance(0.5) { 80 << 10 } else { BYTES - 4096 };
                    let at = BASE + random.below(span);
                    let mut bytes = vec![0; 1 + random.below(600) as usize];
                    drive.peek(at, &mut bytes);
                    match random.below(4) {
                        0 => bytes.fill_with(|| random.next_u64() as u8),
                        1 => bytes[0] ^= 1 << random.below(8),
                        2 => bytes.fill(0xff),
                        _ => {
                            // A page of another place.
                            let from = BASE + random.below(40) * 4096;
                            bytes.resize(4096, 0);
                            drive.peek(from, &mut bytes);
                            drive.poke(at / 4096 * 4096, &bytes);
                            continue;
                        }
                    }
                    drive.poke(at, &bytes);
                }
            }
            let areas = areas(&context, &as_drives(&drives), BYTES);
            let Ok((journal, replay)) = open(&context, areas, 2, &host).await else { return };
            for found in replay.records.iter().filter(|found| !found.is_lost) {
                let loaded = journal.load(found).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                check_record(&loaded, &[4096, 512], &format!("seed {seed}"));
                assert!((3..8).contains(&loaded.stripe) || replay.missing_batches > 0, "seed {seed}");
            }
            let done = append(&journal, record(9, &[4096]), Quota::Destage).await;
            done.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        });
    }
}

#[test]
fn wrong_fields_with_right_checksum_do_no_harm() {
    use crc_fast::{CrcAlgorithm, checksum};
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let host = Rc::new(Host::default());
    for seed in 1..=200_u64 {
        println!("seed {seed}");
        executor.block_on(async {
            let mut random = SplitMix64::new(seed);
            let drives = filled(&context, 1, 1, 6).await;
            let at = BASE + 2 * 4096 + random.below(6) * 3 * 4096;
            let mut page = vec![0; 4096];
            drives[0].peek(at, &mut page);
            for _ in 0..1 + random.below(3) {
                let field = 24 + random.below(200) as usize;
                let value = match random.below(3) {
                    0 => 0,
                    1 => 0xff,
                    _ => random.next_u64() as u8,
                };
                let span = 1 + random.below(8) as usize;
                page[field..field + span].fill(value);
            }
            page[104..108].fill(0);
            let sum = checksum(CrcAlgorithm::Crc32Iscsi, &page) as u32;
            page[104..108].copy_from_slice(&sum.to_le_bytes());
            drives[0].poke(at, &page);
            let areas = areas(&context, &as_drives(&drives), BYTES);
            let Ok((journal, replay)) = open(&context, areas, 1, &host).await else { return };
            for found in &replay.records {
                let _ = journal.load(found).await;
            }
            for found in &replay.records {
                journal.release(found.record.sequence);
            }
            let _ = append(&journal, record(9, &[4096]), Quota::Destage).await;
        });
    }
}

#[test]
fn restarted_journal_holds_no_old_records() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let host = Rc::new(Host::default());
    executor.block_on(async {
        let drives = filled(&context, 2, 2, 8).await;
        let areas = areas(&context, &as_drives(&drives), BYTES);
        let buffers = BufferPool::new(0);
        let other = Journal::open(&context, &buffers, VOLUME + 1, None, areas.clone(), 2, host.clone()).await;
        assert!(matches!(other, Err(ArrayError::Journal(_))), "another volume's");
        let journal = Journal::create(&context, &buffers, VOLUME, 2, areas.clone(), 2, host.clone())
            .await
            .expect("new");
        drop(journal);
        let (_, replay) = open(&context, areas.clone(), 2, &host).await.expect("it opens");
        assert_eq!((replay.records.len(), replay.missing_batches), (0, 0));
    });
}

#[test]
fn loss_of_more_areas_than_copies_is_reported() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let host = Rc::new(Host::default());
    executor.block_on(async {
        // Five areas, two copies, and only one area left.
        let drives = filled(&context, 5, 2, 20).await;
        let left = areas(&context, &as_drives(&drives), BYTES).split_off(4);
        let (_, replay) = open(&context, left, 2, &host).await.expect("it opens");
        assert!(replay.missing_batches > 5, "{}", replay.missing_batches);
        assert!(replay.records.len() < 17);
        // A wiped area: its records are found in the other copies, and it is reported as blank.
        let drives = filled(&context, 3, 2, 20).await;
        drives[1].poke(0, &vec![0; (BASE + BYTES) as usize]);
        let all = areas(&context, &as_drives(&drives), BYTES);
        let (journal, replay) = open(&context, all, 2, &host).await.expect("it opens");
        assert_eq!((replay.records.len(), replay.missing_batches), (17, 0));
        assert_eq!(replay.blank, [1]);
        assert!(!journal.is_short(), "copies were restored");
    });
}

/// A cut may lose the release of a record, but not if that of a later record is found: replay runs
/// in order, so the older record would overwrite the newer one.
#[test]
fn release_is_found_only_with_all_earlier_ones() {
    use stripewise_drive::{ModelDrive, ModelSpec};
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (1 << 20, Rc::new(Host::default()));
        let images = memory(2, bytes);
        let spec = ModelSpec { latency_ns: 100_000, bytes_per_second: 1_000_000_000, queue_depth: 32 };
        let slow = |image: &Rc<MemoryDrive>| {
            ModelDrive::new(&context, "model", BASE + bytes, spec, image.clone()) as Rc<dyn Drive>
        };
        let drives: Vec<Rc<dyn Drive>> = images.iter().map(slow).collect();
        let journal = create(&context, areas(&context, &drives, bytes), 1, &host).await;
        journal.set_batch_limits(1 << 20, 1);
        for tag in 1..=5 {
            append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room");
        }
        let contents = || -> Vec<Vec<u8>> {
            let content = |image: &Rc<MemoryDrive>| {
                let mut bytes = vec![0; (BASE + bytes) as usize];
                image.peek(0, &mut bytes);
                bytes
            };
            images.iter().map(content).collect()
        };
        let before = contents();
        // Two notes in two batches, in flight at once.
        [2, 4].into_iter().for_each(|sequence| journal.release(sequence));
        journal.mark().await.expect("a mark");
        let after = contents();
        let is_new = |&(area, page): &(usize, usize)| {
            let range = page * 4096..(page + 1) * 4096;
            before[area][range.clone()] != after[area][range]
        };
        let pages = (0..2).flat_map(|area| (0..after[area].len() / 4096).map(move |page| (area, page)));
        let new: Vec<(usize, usize)> = pages.filter(is_new).collect();
        assert_eq!(new.len(), 2, "each has a batch of its own");
        let mut found = Vec::new();
        for &(area, page) in &new {
            let cut = memory(2, bytes);
            for (image, bytes) in cut.iter().zip(&after) {
                image.poke(0, bytes);
            }
            cut[area].poke((page * 4096) as u64, &[0; 4096]);
            let areas = areas(&context, &as_drives(&cut), bytes);
            let (_, replay) = open(&context, areas, 1, &host).await.expect("it opens");
            found.push(tags(&replay));
        }
        found.sort();
        assert_eq!(found, [vec![1, 2, 3, 4, 5], vec![1, 3, 4, 5]]);
    });
}
