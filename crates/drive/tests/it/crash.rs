//! Contents after a power cut, checked against a plain list of every version each sector ever had.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::kit::{Executor, at_once, pattern};
use stripewise_drive::{
    Buffer, CrashDrive, CutReport, Delay, Drive, DriveErrorKind, IoRequest, IoResult, MemoryDrive, Operation,
    SplitMix64,
};

const CAPACITY: u64 = 64 * 512;

fn write(drive: &CrashDrive, offset: u64, bytes: &[u8], fua: bool) {
    at_once(drive.submit(IoRequest::write(offset, Buffer::from_bytes(bytes), fua))).unwrap();
}

fn flush(drive: &CrashDrive) {
    at_once(drive.submit(IoRequest::flush())).unwrap();
}

fn contents(drive: &CrashDrive) -> Vec<u8> {
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    bytes
}

fn contents_of(image: &MemoryDrive) -> Vec<u8> {
    let mut bytes = vec![0; image.info().capacity_bytes as usize];
    image.peek(0, &mut bytes);
    bytes
}

/// True if `sector` begins as one of `versions` and ends as an older one.
fn is_torn_from(sector: &[u8], versions: &[Vec<u8>]) -> bool {
    (1..512).any(|cut| {
        let newer = versions.iter().rposition(|version| version[..cut] == sector[..cut]);
        let older = versions.iter().position(|version| version[cut..] == sector[cut..]);
        newer.zip(older).is_some_and(|(newer, older)| older <= newer)
    })
}

#[test]
fn reads_see_writes_and_a_flush_makes_them_durable() {
    let drive = CrashDrive::new("crash", CAPACITY);
    assert!(drive.info().volatile_cache);
    let written = pattern(8192, 1);
    write(&drive, 4096, &written, false);
    let buffer = Buffer::from_bytes(&[0; 8192]);
    at_once(drive.submit(IoRequest::read(4096, buffer.clone()))).unwrap();
    assert_eq!(buffer.to_vec(), written);
    assert_eq!(drive.volatile_bytes(), 8192);
    flush(&drive);
    assert_eq!(drive.volatile_bytes(), 0);
    for seed in 0..50 {
        assert_eq!(contents_of(&drive.image_after_cut("image", seed))[4096..12288], written);
        assert_eq!(drive.power_cut(seed), CutReport::default());
        drive.power_on();
        assert_eq!(contents(&drive)[4096..12288], written);
    }
}

#[test]
fn without_power_nothing_is_answered() {
    let drive = CrashDrive::new("crash", CAPACITY);
    drive.power_cut(1);
    let error = at_once(drive.submit(IoRequest::flush())).unwrap_err();
    assert_eq!(error.kind, DriveErrorKind::Gone);
    drive.power_on();
    flush(&drive);
}

#[test]
fn unflushed_writes_are_kept_lost_or_torn() {
    let (old, new) = (pattern(4096, 1), pattern(4096, 2));
    let mut outcomes = BTreeSet::new();
    let mut sum = CutReport::default();
    for seed in 0..2000 {
        let drive = CrashDrive::new("crash", CAPACITY);
        write(&drive, 0, &old, false);
        flush(&drive);
        write(&drive, 0, &new, false);
        let image = contents_of(&drive.image_after_cut("image", seed));
        let report = drive.power_cut(seed);
        assert_eq!(image, contents(&drive), "image and cut differ");
        assert_eq!(report.kept + report.lost + report.torn, 8);
        sum.kept += report.kept;
        sum.lost += report.lost;
        sum.torn += report.torn;
        let outcome: Vec<u8> = image[..4096]
            .chunks(512)
            .zip(old.chunks(512).zip(new.chunks(512)))
            .map(|(sector, (old, new))| match sector {
                _ if sector == new => b'n',
                _ if sector == old => b'o',
                _ => {
                    assert!(is_torn_from(sector, &[old.to_vec(), new.to_vec()]));
                    b't'
                }
            })
            .collect();
        outcomes.insert(outcome);
    }
    assert!(sum.kept > 4000 && sum.lost > 4000 && sum.torn > 200, "{sum:?}");
    for expected in [b"nnnnnnnn", b"oooooooo", b"nnnnoooo", b"onnnnnnn"] {
        assert!(outcomes.contains(expected.as_slice()), "{} never came", String::from_utf8_lossy(expected));
    }
}

#[test]
fn sectors_stay_whole_when_configured() {
    for seed in 0..500 {
        let drive = CrashDrive::new("crash", CAPACITY);
        drive.set_tears_sectors(false);
        write(&drive, 0, &[1; 4096], false);
        assert_eq!(drive.power_cut(seed).torn, 0);
        assert!(contents(&drive).chunks(512).all(|sector| sector.iter().all(|byte| byte == &sector[0])));
    }
}

#[test]
fn fua_makes_only_its_own_range_durable() {
    let mut lost_others = false;
    for seed in 0..200 {
        let drive = CrashDrive::new("crash", CAPACITY);
        write(&drive, 0, &[1; 1024], false);
        write(&drive, 512, &[2; 512], true);
        write(&drive, 1024, &[3; 512], false);
        drive.power_cut(seed);
        let found = contents(&drive);
        assert_eq!(found[512..1024], [2; 512], "seed {seed}");
        lost_others |= found[..512] != [1; 512] && found[1024..1536] != [3; 512];
    }
    assert!(lost_others, "FUA acted as a flush");
}

#[test]
fn flush_ignoring_drive_loses_flushed_data() {
    let lost = (0..100).any(|seed| {
        let drive = CrashDrive::new("crash", CAPACITY);
        drive.set_ignores_flushes(true);
        write(&drive, 0, &[1; 512], true);
        flush(&drive);
        drive.power_cut(seed);
        contents(&drive)[..512] == [0; 512]
    });
    assert!(lost);
}

#[test]
fn zeroes_and_discards_are_volatile_too() {
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let drive = CrashDrive::new("crash", CAPACITY);
        write(&drive, 0, &[1; 512], true);
        drive.set_tears_sectors(false);
        at_once(drive.submit(IoRequest::range(Operation::WriteZeroes, 0, 512))).unwrap();
        drive.power_cut(seed);
        found.insert(contents(&drive)[0]);
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_cache_is_bounded() {
    let drive = CrashDrive::new("crash", 512 << 20);
    let buffer = Buffer::from_bytes(&vec![1; 1 << 20]);
    for index in 0..80 {
        at_once(drive.submit(IoRequest::write(index << 20, buffer.clone(), false))).unwrap();
    }
    assert_eq!(drive.volatile_bytes(), 64 << 20, "the oldest writes became durable");
    at_once(drive.submit(IoRequest::range(Operation::Discard, 0, 512 << 20))).unwrap();
    assert_eq!(
        drive.volatile_bytes(),
        0,
        "a write larger than the cache is durable at once, with all before it"
    );
}

#[test]
fn restart_begins_with_the_image_contents() {
    let drive = CrashDrive::new("crash", CAPACITY);
    write(&drive, 0, &[1; 512], true);
    let restarted = CrashDrive::from_image("again", &drive.image_after_cut("image", 1));
    assert_eq!(contents(&restarted)[..512], [1; 512]);
    write(&restarted, 0, &[2; 512], true);
    assert_eq!(contents(&drive)[..512], [1; 512], "a copy");
}

/// Every version a sector may hold after a cut, oldest first: the first is durable.
struct Sectors {
    versions: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Sectors {
    fn versions(&mut self, sector: u64) -> &mut Vec<Vec<u8>> {
        self.versions.entry(sector).or_insert_with(|| vec![vec![0; 512]])
    }
}

#[test]
fn random_cuts_leave_only_allowed_versions() {
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let drive = CrashDrive::new("crash", CAPACITY);
        let mut model = Sectors { versions: BTreeMap::new() };
        for step in 0..random.below(60) {
            let sector = random.below(60);
            let count = 1 + random.below(4);
            match random.below(8) {
                0 => {
                    flush(&drive);
                    model
                        .versions
                        .values_mut()
                        .for_each(|versions| drop(versions.drain(..versions.len() - 1)));
                }
                1 => {
                    at_once(drive.submit(IoRequest::range(Operation::Discard, sector * 512, count * 512)))
                        .unwrap();
                    (sector..sector + count).for_each(|at| model.versions(at).push(vec![0; 512]));
                }
                kind => {
                    let fua = kind == 2;
                    let bytes = pattern(count as usize * 512, seed * 1000 + step);
                    write(&drive, sector * 512, &bytes, fua);
                    for (at, bytes) in (sector..).zip(bytes.chunks(512)) {
                        let versions = model.versions(at);
                        versions.push(bytes.to_vec());
                        versions.drain(..if fua { versions.len() - 1 } else { 0 });
                    }
                }
            }
        }
        // Several images of the same instant, then the cut itself.
        let images = (0..4).map(|cut| contents_of(&drive.image_after_cut("image", cut)));
        let mut found: Vec<Vec<u8>> = images.collect();
        drive.power_cut(seed);
        found.push(contents(&drive));
        for (cut, found) in found.iter().enumerate() {
            for (sector, bytes) in (0..).zip(found.chunks(512)) {
                let versions = model.versions(sector);
                let allowed =
                    versions.iter().any(|version| version == bytes) || is_torn_from(bytes, versions);
                assert!(
                    allowed,
                    "seed {seed}, cut {cut}: sector {sector} holds contents that were never written"
                );
            }
        }
    }
}

/// Runs one-sector writes in flight together with occasional flushes, and cuts power in the middle.
fn crash_in_flight(seed: u64) -> (Vec<u8>, BTreeMap<u64, u8>, u64) {
    let executor = Executor::new();
    let context = executor.context();
    let delay = Delay::Exponential { mean_ns: 1000 };
    let drive = CrashDrive::with_delay(&context, "crash", CAPACITY, delay, seed);
    let promised = Rc::new(std::cell::RefCell::new(BTreeMap::new()));
    let gone = Rc::new(std::cell::Cell::new(0));
    // Eight writers own eight sectors each and write rising numbers; each flushes after every third
    // write.
    for writer in 0..8 {
        let (drive, promised, gone) = (drive.clone(), promised.clone(), gone.clone());
        let write_on = async move || -> IoResult {
            let mut random = SplitMix64::new(seed ^ writer);
            let mut since_flush = Vec::new();
            for value in 1..=200_u8 {
                let sector = writer * 8 + random.below(8);
                let request = IoRequest::write(sector * 512, Buffer::from_bytes(&[value; 512]), false);
                drive.submit(request).await?;
                since_flush.push((sector, value));
                if value % 3 == 0 {
                    drive.submit(IoRequest::flush()).await?;
                    promised.borrow_mut().extend(since_flush.drain(..));
                }
            }
            Ok(())
        };
        context.spawn(async move {
            let failed = write_on().await.is_err();
            gone.set(gone.get() + u64::from(failed));
        });
    }
    let (inside, at_ns) = (drive.clone(), SplitMix64::new(seed).below(200_000));
    let sleep = context.sleep_ns(at_ns);
    context.spawn(async move {
        sleep.await;
        inside.set_tears_sectors(false);
        inside.power_cut(seed);
    });
    executor.run_until_idle();
    let promised = promised.take();
    (contents(&drive), promised, gone.get())
}

#[test]
fn answered_flush_is_durable_with_writes_in_flight() {
    let mut interrupted = 0;
    for seed in 0..200 {
        let (found, promised, gone) = crash_in_flight(seed);
        interrupted += gone;
        for (sector, value) in promised {
            let held = found[sector as usize * 512];
            assert!(held >= value, "seed {seed}: sector {sector} holds {held}, promised {value}");
        }
    }
    assert!(interrupted > 1000, "cuts must find requests in flight: {interrupted}");
}

#[test]
fn flush_covers_only_writes_answered_before_it() {
    for seed in 0..20 {
        let executor = Executor::new();
        let delay = Delay::Between { least_ns: 1, most_ns: 1000 };
        let drive = CrashDrive::with_delay(&executor.context(), "crash", CAPACITY, delay, seed);
        drop(drive.submit(IoRequest::write(0, Buffer::from_bytes(&[1; 512]), false)));
        drop(drive.submit(IoRequest::flush()));
        executor.run_until_idle();
        assert_eq!(drive.volatile_bytes(), 512, "seed {seed}: the worst case that the rules allow");
        drop(drive.submit(IoRequest::flush()));
        executor.run_until_idle();
        assert_eq!(drive.volatile_bytes(), 0);
    }
}

#[test]
fn a_crash_is_repeatable() {
    for seed in 0..20 {
        assert_eq!(crash_in_flight(seed), crash_in_flight(seed));
    }
    let images: BTreeSet<Vec<u8>> = (0..20).map(|seed| crash_in_flight(seed).0).collect();
    assert!(images.len() > 15, "images must differ by seed");
}

#[test]
fn drive_that_loses_its_cache_keeps_durable_data() {
    let (old, new) = (pattern(8192, 1), pattern(8192, 2));
    let mut reports = Vec::new();
    for seed in 0..50 {
        let drive = CrashDrive::new("crash", CAPACITY);
        write(&drive, 0, &old, true);
        write(&drive, 16384, &new, true);
        write(&drive, 0, &new, false);
        reports.push(drive.lose_cache(seed));
        assert_eq!(drive.volatile_bytes(), 0);
        let now = contents(&drive);
        for at in (0..8192).step_by(512) {
            let sector = &now[at..at + 512];
            assert!(sector == &old[at..at + 512] || sector == &new[at..at + 512], "torn, seed {seed}");
        }
        assert_eq!(now[16384..24576], new, "what was durable stays");
        write(&drive, 0, &new, true);
        assert_eq!(contents(&drive)[..8192], new, "it takes writes as before");
    }
    assert!(reports.iter().any(|report| report.lost > 0) && reports.iter().all(|report| report.torn == 0));
}
