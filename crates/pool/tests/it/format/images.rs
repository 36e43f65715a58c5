//! Images of pools as each version of the format left them (`tests/images`): the current version
//! reads every supported one completely, finishes interrupted jobs, and leaves unknown formats
//! untouched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::kit::images::{
    BLOCK, Expected, difference, drives_in, expected_in, folder, kept_status, label, open,
};
use stripewise_drive::{BufferPool, Context, Drive, MemoryDrive};
use stripewise_pool::{
    DriveState, JobKind, OpenMode, Pool, PoolError, PoolSpec, PoolState, VolumeState, inspect,
};
use stripewise_runtime::VirtualExecutor;

type Drives = Vec<Rc<MemoryDrive>>;

/// Readable format versions; the error for older ones is tested below.
const READABLE: [&str; 1] = ["format-2"];

fn readable_images() -> Vec<(PathBuf, Expected)> {
    let versions = READABLE.iter().map(|version| folder().join(version));
    let images = versions.flat_map(|version| std::fs::read_dir(version).expect("a folder of images"));
    let mut paths: Vec<PathBuf> = images.map(|image| image.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 3, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), expected_in(&path))).collect()
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

fn copies(drives: &Drives) -> Drives {
    drives.iter().map(|drive| drive.duplicate(&drive.info().label)).collect()
}

fn bytes_of(drive: &MemoryDrive) -> Vec<u8> {
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    bytes
}

fn live<T>(life: impl AsyncFnOnce(&Context, &BufferPool) -> T) -> T {
    let executor = VirtualExecutor::new();
    let (context, buffers) = (executor.context(), BufferPool::new(16 << 20));
    executor.block_on(life(&context, &buffers))
}

#[test]
fn images_are_read_without_writing() {
    for (path, expected) in readable_images() {
        let drives = drives_in(&path);
        let before: Vec<Vec<u8>> = drives.iter().map(|drive| bytes_of(drive)).collect();
        live(async |context, buffers| {
            for drive in &drives {
                let file = &*drive.info().label;
                let now = label(drive).await;
                let differs = difference(&expected.labels[file], &now, file);
                assert_eq!(differs, None, "{}", name(&path));
                assert_eq!(now["format_version"], expected.format_version);
            }
            let pool = open(context, buffers, &drives, OpenMode::ReadOnly).await.expect("opened");
            let mut then = expected.status.clone();
            // Later versions count free space only as far as rows of the existing layouts can use
            // it.
            then.as_object_mut().expect("a pool").remove("capacity_bytes");
            assert_eq!(difference(&then, &kept_status(&pool), "status"), None, "{}", name(&path));
            // Reads, now and a minute later, must not write.
            let _ = expected.check_contents(&pool).await;
            context.sleep_ns(60_000_000_000).await;
            pool.close().await.expect("closed");
        });
        for (drive, before) in drives.iter().zip(before) {
            assert!(bytes_of(drive) == before, "{} was written to", drive.info().label);
        }
    }
}

#[test]
fn images_recover_and_finish_their_jobs() {
    for (path, expected) in readable_images() {
        let (image, drives) = (name(&path), copies(&drives_in(&path)));
        live(async |context, buffers| {
            let held = async |pool: &Pool, when: &str| {
                expected
                    .check_contents(pool)
                    .await
                    .unwrap_or_else(|wrong| panic!("{image}, {when}: {wrong}"));
            };
            let pool = open(context, buffers, &drives, OpenMode::ReadWrite).await.expect("opened");
            held(&pool, "after a crash").await;
            pool.start_jobs();
            for drive in pool.status().drives.iter().filter(|drive| drive.state == DriveState::Offline) {
                pool.online(drive.id, None).await.expect("brought back");
            }
            pool.wait(JobKind::Rebuild).await.expect("rebuilt");
            pool.wait(JobKind::Convert).await.expect("converted");
            pool.wait(JobKind::Rebalance).await.expect("spread");
            held(&pool, "when all is done").await;
            pool.scrub().await.expect("begun");
            pool.wait(JobKind::Scrub).await.expect("scrubbed");
            for summary in pool.scrub_reports() {
                let report = &summary.report;
                assert!(summary.error.is_none() && report.blamed.is_empty(), "{image}: {summary:?}");
                assert_eq!(report.unattributed_blocks, 0, "{image}: {summary:?}");
            }
            pool.close().await.expect("closed");
            let pool = open(context, buffers, &drives, OpenMode::ReadWrite).await.expect("opened again");
            held(&pool, "opened again").await;
            let status = pool.status();
            let is_done = status.activity.is_empty() && status.state == PoolState::Online;
            assert!(
                is_done && status.volumes.iter().all(|volume| volume.conversion.is_none()),
                "{status:#?}"
            );
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn images_are_readable_without_redundant_drives() {
    let mut read = 0;
    // A lost block leaves its stripe without redundancy.
    for (path, expected) in readable_images().into_iter().filter(|(path, _)| !path.ends_with("lost")) {
        let all = drives_in(&path);
        for left_out in 0..all.len() {
            let mut drives = copies(&all);
            let gone = drives.remove(left_out);
            live(async |context, buffers| {
                let pool = open(context, buffers, &drives, OpenMode::ReadWrite).await.expect("opened");
                for info in pool.volumes().iter().filter(|volume| volume.state != VolumeState::Failed) {
                    let contents = expected.volumes.iter().find(|volume| volume.name == info.name);
                    let volume = pool.volume(&info.name).expect("it can be used");
                    let checked = contents.expect("recorded").check(&volume).await;
                    checked.unwrap_or_else(|wrong| {
                        panic!("{} without {}: {wrong}", name(&path), gone.info().label)
                    });
                    read += 1;
                }
                pool.close().await.expect("closed");
            });
        }
    }
    assert!(read >= 50, "{read} volumes could be read");
}

/// The images are useful only if they hold what they claim to hold.
#[test]
fn images_hold_writes_that_only_the_journal_has() {
    let has_no_journal =
        |path: &Path| ["rebuild", "lost", "destroyed", "snapshots"].iter().any(|name| path.ends_with(name));
    for (path, expected) in readable_images().into_iter().filter(|(path, _)| !has_no_journal(path)) {
        let drives = copies(&drives_in(&path));
        for drive in &drives {
            let bytes = bytes_of(drive);
            let pages = (0..bytes.len()).step_by(BLOCK as usize);
            for at in pages.filter(|&at| bytes[at..].starts_with(b"SWJBATCH")) {
                drive.poke(at as u64, &[0; BLOCK as usize]);
            }
        }
        live(async |context, buffers| {
            let pool = open(context, buffers, &drives, OpenMode::ReadWrite).await.expect("opened");
            let checked = expected.check_contents(&pool).await;
            assert!(checked.is_err(), "{} is whole without its journal", name(&path));
            let _ = pool.close().await;
        });
    }
}

const CRC: crc_fast::CrcAlgorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Changes a number in every header on a drive; returns the number of headers.
fn in_all_headers(drive: &MemoryDrive, at: usize, value: &[u8]) -> usize {
    let bytes = bytes_of(drive);
    let places: BTreeSet<usize> =
        (0..bytes.len()).step_by(BLOCK as usize).filter(|&at| bytes[at..].starts_with(b"STRPWISE")).collect();
    for &place in &places {
        let mut header = bytes[place..place + 512].to_vec();
        header[at..at + value.len()].copy_from_slice(value);
        let checksum = crc_fast::checksum(CRC, &header[..508]) as u32;
        header[508..].copy_from_slice(&checksum.to_le_bytes());
        drive.poke(place as u64, &header);
    }
    places.len()
}

/// Tries everything on drives of another version, and checks that nothing is written.
fn is_left_alone(drives: &Drives, is_right: impl Fn(&PoolError) -> bool) {
    let before: Vec<Vec<u8>> = drives.iter().map(|drive| bytes_of(drive)).collect();
    live(async |context, buffers| {
        let mut errors = Vec::new();
        for drive in drives {
            errors.push(inspect(&**drive).await.expect_err("not shown as if it were understood"));
        }
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            errors.push(open(context, buffers, drives, mode).await.err().expect("refused"));
        }
        let drives = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let spec = PoolSpec { name: "other".to_owned(), drives, ..PoolSpec::default() };
        errors.push(Pool::create(context, buffers, spec).await.err().expect("refused"));
        for error in errors {
            assert!(is_right(&error), "{error}");
        }
    });
    for (drive, before) in drives.iter().zip(before) {
        assert!(bytes_of(drive) == before, "{} was written to", drive.info().label);
    }
}

#[test]
fn format_1_drives_are_identified_and_left_alone() {
    let drives = drives_in(&folder().join("format-1/raid5"));
    assert_eq!(drives.len(), 3);
    is_left_alone(&drives, |error| {
        matches!(error, PoolError::OlderFormat { version: 1, .. }) && error.to_string().contains("version 1")
    });
    // A lost slot makes no difference: there are three more.
    for drive in &drives {
        drive.poke(0, &[0; 4096]);
    }
    is_left_alone(&drives, |error| matches!(error, PoolError::OlderFormat { version: 1, .. }));
    let forced = copies(&drives);
    live(async |context, buffers| {
        let drives = forced.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let spec = PoolSpec { name: "new".to_owned(), drives, force: true, ..PoolSpec::default() };
        Pool::create(context, buffers, spec).await.expect("made").close().await.expect("closed");
        assert_eq!(
            inspect(&*forced[1]).await.expect("readable").expect("a drive of a pool").pool_name,
            "new"
        );
    });
}

#[test]
fn newer_formats_are_identified_and_left_alone() {
    let (path, expected) = readable_images().swap_remove(0);
    let newer = copies(&drives_in(&path));
    for drive in &newer {
        assert!(in_all_headers(drive, 8, &3u32.to_le_bytes()) >= 4);
    }
    is_left_alone(&newer, |error| {
        matches!(error, PoolError::NewerFormat { version: 3, known: 2, .. })
            && error.to_string().contains("version 3")
    });
    let unknown = copies(&drives_in(&path));
    for drive in &unknown {
        in_all_headers(drive, 16, &(1u64 << 63).to_le_bytes());
    }
    is_left_alone(
        &unknown,
        |error| matches!(error, PoolError::UnknownFeatures { flags, .. } if *flags == 1 << 63),
    );
    // One such header is enough: a newer version has written it.
    let mut one = copies(&drives_in(&path));
    one.truncate(1);
    let mut header = vec![0; 512];
    one[0].peek(512 << 10, &mut header);
    let slot = MemoryDrive::new("slot", 4096);
    slot.poke(0, &header);
    assert_eq!(in_all_headers(&slot, 16, &[128]), 1);
    slot.peek(0, &mut header);
    one[0].poke(512 << 10, &header);
    is_left_alone(&one, |error| matches!(error, PoolError::UnknownFeatures { flags: 128, .. }));
    // Unknown compatible flags are no reason to refuse.
    let harmless = copies(&drives_in(&path));
    for drive in &harmless {
        in_all_headers(drive, 24, &[0xff; 8]);
    }
    live(async |context, buffers| {
        let pool = open(context, buffers, &harmless, OpenMode::ReadWrite).await.expect("opened");
        expected.check_contents(&pool).await.expect("all of it");
        pool.close().await.expect("closed");
    });
}
