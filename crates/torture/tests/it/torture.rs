//! Many seeds, each the same every time, and proof that the judge finds what is broken.

use stripewise_torture::{Drawn, Options, Sabotage, run, run_many};

/// In every test run.
const SEEDS: u64 = 100;

/// Seeds that once showed a fault of the engine, or of the judge, by now mended. They are run
/// without what came to torture since, as they were then.
///
/// 307: a drive lost a durable write, and after a cut its older block was taken for one that was
/// being written.
///
/// 669: a volume without a drive that had one of the few copies of its map counted as whole.
///
/// 1090: a resync went on at a region's number when the volume had been made smaller.
///
/// 1101: a row of a thin volume was recorded on a drive that had just been accepted to be emptied,
/// so there was no room left.
///
/// 1494: power went in a commit when one drive had it; that drive was away next, and came back as
/// the other half of a diverged pool.
///
/// 1570: a journal that was lost got an area which nothing was written to, and the volume could not
/// be opened for it.
///
/// 2036: a retired drive took what only its area of the journal had said with it, and released
/// records were carried out.
///
/// 2109: a flush beside the loss of too many drives passed, and the journal forgot what they
/// lacked.
///
/// 2993: the judge asked of a partial write, refused beside one that made the lost block whole, to
/// have come after it.
///
/// 3588: a volume without one of its two journal drives counted as whole, and without the other
/// took no more writes.
///
/// 3754: a drive went while copies were being compared after a cut; they counted as equal, and were
/// not.
///
/// 3907: a volume counted as able to lose a drive while the only area of its journal was there.
///
/// 4614: a drive was accepted to be emptied into room that a rebuild was about to take.
///
/// 4774: a drive could not be emptied though there was room, on drives that other rows had first to
/// be moved to.
///
/// 5886: two drives were accepted to be emptied into the same room.
///
/// 6948, 14646: a drive that had got one commit more than all others before it was left out, and
/// was replaced since, came back as the other half of a diverged pool when only drives were at hand
/// that had come later.
///
/// 7988: blocks of a torn stripe were lost although the journal had newer data of them.
///
/// 9315: no spare took over from a drive that had nothing but a map and a journal.
///
/// 10302: an empty drive was let go of that another one, being emptied, needed.
///
/// 14227: parity whose recorded checksum nothing had counted as lost, though all data were there.
///
/// 17161: the judge forgot that a drive was gone, of which the engine did not know yet, and which a
/// thin volume then used.
///
/// 18493: a drive could not be emptied because of a block that nobody had any more.
const REGRESSIONS: [u64; 23] = [
    307, 669, 1090, 1101, 1494, 1570, 2036, 2109, 2993, 3588, 3754, 3907, 4614, 4774, 5886, 6948, 7988, 9315,
    10302, 14227, 14646, 17161, 18493,
];

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[test]
fn every_promise_holds_for_random_seeds() {
    let summary = run_many(1, SEEDS, threads(), &Options::default(), |_| true);
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    // A harness that does nothing finds nothing.
    let tried = summary.coverage.counts();
    assert!(summary.runs == SEEDS && tried.iter().all(|(_, count)| *count > 0), "{tried:?}");
}

/// As these, with conversions.
///
/// 315, 387: the slabs of an array that had ended were given away while it was still destaging.
///
/// 1007: records that had been released, but not durably so, came back after a cut over a region
/// zeroed and written again.
///
/// 14751: a record from before a column went, released but not durably so, was carried out after a
/// cut on the spare that had taken over, over what was written while the column was missing.
///
/// 14763: as 6948.
///
/// 15647: an array that took no more writes when it ended left its journal writing to slabs that
/// were others' by then.
const REGRESSIONS_OF_CONVERSIONS: [u64; 6] = [315, 387, 1007, 14751, 14763, 15647];

/// As these, with power that goes with a drive.
///
/// 18501: two drives took both places of a page of checksums with them, and nothing was recorded of
/// the blocks that they were filled with.
const REGRESSIONS_OF_LOSSES: [u64; 1] = [18501];

/// With both.
///
/// 5176, 9841: a drive lost the write of a page, and the drive with its other place was missing:
/// what the others gave was refused.
///
/// 17836: a page rotted, and the drive with its other place was missing: a block that had rotted as
/// well was given out.
const REGRESSIONS_OF_PAGES: [u64; 3] = [5176, 9841, 17836];

/// With both.
///
/// 369: a flush ended while a region not known as written yet was being discarded; what was written
/// to it was not made durable any more, and older records of it were found after a cut.
///
/// 2359: a write that had begun during one conversion was still under way when the next one copied
/// what it wrote to.
const REGRESSIONS_OF_LONG_WRITES: [u64; 2] = [369, 2359];

/// As these.
///
/// 9901598: small areas of journals were put into the only ten slabs in a row that a large one
/// could go to, so a drive that had been accepted to be emptied could not be.
const REGRESSIONS_OF_ROOM: [u64; 1] = [9_901_598];

/// With everything there is.
///
/// 200116: a block that was lost was written; the drive failed its flush and lost its cache, and
/// the commit that said so counted the block as whole: what stood in for it was given out.
///
/// 213: a cut left areas of a journal on a drive that was being replaced and on its successor, and
/// the drive of a third area was lost: the drive could not be emptied for good.
///
/// 1172: a drive refused a flush and lost its cache; a mirror read from it before the flush of its
/// own that had it excluded.
///
/// 5211: a conversion without room waited for slabs of the volume that was being deleted, which
/// waited for the conversion.
///
/// 5501: as 213, and no third drive had room for an area: that of the drive being replaced and
/// that of its successor were counted as two, and the one that was lost given up for them.
///
/// 35226, 2078000231: notes of released records went out in several batches; a cut lost the first
/// of them, and an old record came back without the newer one of its stripe.
///
/// 35917: a block that was lost for the second time took what had stood in for it the first time
/// for an old version of itself.
///
/// 27246: a write was under way when its drive refused a flush and lost its cache, and was
/// acknowledged after a client had been told: the next flush vouched for it.
///
/// 23720: writes to a full thin volume waited one after the other for slabs whose rows they kept
/// in use themselves.
///
/// 26872: the judge took a volume for one that has nothing on a drive whose flush fails, as when
/// that was prepared; its rows had moved there since.
///
/// 27743: a volume that had just been deleted had a drive excluded that others could not do
/// without.
///
/// 30392, 31281: a drive was let go of, its columns being elsewhere, while a block was read from
/// it: the block counted as lost.
///
/// 33362: rows moved to a drive that had refused a flush before, and had it excluded for that.
///
/// 26126: a drive fell out while it was recorded that a column had moved there: the column went
/// with it, though it was still at its old place.
///
/// 30767: a thin volume on one drive had its journal, a single copy of each record, on six; one of
/// those was lost, and with the next cut checksums of flushed blocks.
///
/// 31508: a scrub blamed a block beyond the end of a volume that had become smaller.
///
/// 39854: of drives pulled at once those of the journal were excluded in one round of a commit and
/// those that the volume cannot do without in the next: when all came back its journal counted as
/// lost.
///
/// 71480: of a page of checksums one place was missing and the write of the other was lost; the
/// block was refused, though its drive and all others agreed on it.
///
/// 81608: the judge did not know that a write of which a client was told may be torn by the next
/// cut.
///
/// 101105: a row of a thin volume got its first slabs, in a commit, on a drive that fell out
/// meanwhile.
///
/// 102025: a read that decodes waited for a stripe while it was discarded, and gave out what the
/// drives still held there.
///
/// 302021: a journal that keeps a copy more than its layout asks for did not leave a drive that was
/// to be emptied.
///
/// 403338: slabs for a copy of a map were given back while a page was on its way there, and taken
/// for another map.
///
/// 403915: who waited for conversions was told that they had ended when one was tried again.
///
/// 502129: the judge trusted a drive whose passing errors had ended, and the last of them was still
/// on its way.
///
/// 500754: after a drive had lost a write and the next one was torn, the older block was taken for
/// right although the write that was lost had been flushed. Where the journal cannot tell, the
/// judge knows.
///
/// 600490: a dead block that only the journal had made whole was recorded as dead for ever.
///
/// 600545: the judge counted a drive that came back as another one once only.
///
/// 601183: the array that a conversion left behind took a drive out of service.
///
/// 701210: where nothing was recorded of a block, it could be taken, torn, for what it was before.
///
/// 808056: what was lost of a region stayed lost when the region was discarded.
///
/// 808346: a drive that could not be spared lost the zeros that a new region had been filled with.
///
/// 823556: torture waited for a drive to be emptied while it held another one offline, whose copy
/// of a map had to come back first.
///
/// 903537, 911377: a checkpoint of a degraded array wrote the place of a page twice at once, as one
/// to be filled and as one between others.
///
/// 1000634: the judge did not know that a drive whose flush fails is left out by a volume that has
/// rows on their way there.
///
/// 1110124: the judge saw room on a drive whose place a spare had taken before it came back.
///
/// 2078000019: torture drew a layout for no drives at all.
///
/// 6000357: after a cut, parity that a record had of a block was taken for what a later record,
/// written without that drive, had left of it.
///
/// 6001075: what the journal of a conversion's new array still had of a block that the old one had
/// lost since counted as written after that.
///
/// 7000910: nothing had it recorded, after destaging, that a dead block had become whole.
///
/// 8005760: where records were kept until that was recorded, some blocks and their parity did not
/// agree after a rebuild.
///
/// 9003106: a volume that was being made when power went had no judge.
///
/// 20002252: where a file system was full a read was refused that needed a page of checksums.
///
/// 20002402: the judge did not reckon with zeros of a new region that went with a refused flush.
///
/// 20003336: after a cut an old redo record came over what an intent after it had put in place.
///
/// 20008054: a rebalance never got on beside tiers whose period was short.
///
/// 20012682: a dead block counted as whole though the flush was refused that its write needed.
///
/// 40013099: the judge took a drive for away that was on its way back when power went.
///
/// 91000216: the judge counted room in pieces as room for an area of a journal.
///
/// 92005879, 93005651: the journal of a conversion that was refused wrote headers in slabs that
/// were given back.
///
/// 40015842: closing a pool refused a row to what the journal of a thin volume had.
const REGRESSIONS_OF_TODAY: [u64; 63] = [
    200_116,
    213,
    1172,
    5211,
    5501,
    35_226,
    2_078_000_231,
    35_917,
    27_246,
    23_720,
    26_872,
    27_743,
    30_392,
    31_281,
    33_362,
    26_126,
    30_767,
    31_508,
    39_854,
    71_480,
    81_608,
    101_105,
    102_025,
    302_021,
    403_338,
    403_915,
    502_129,
    500_754,
    600_490,
    600_545,
    601_183,
    701_210,
    808_056,
    808_346,
    823_556,
    903_537,
    911_377,
    1_000_634,
    1_110_124,
    2_078_000_019,
    6_000_357,
    6_001_075,
    7_000_910,
    8_005_760,
    9_003_106,
    20_002_252,
    20_002_402,
    20_003_336,
    20_008_054,
    20_012_682,
    40_013_099,
    40_015_842,
    40_021_510,
    40_031_459,
    50_000_347,
    50_006_895,
    50_006_917,
    60_003_209,
    70_003_548,
    70_020_459,
    91_000_216,
    92_005_879,
    93_005_651,
];

#[test]
fn seeds_that_once_failed_pass() {
    for seed in REGRESSIONS_OF_TODAY {
        let failures = run(seed, &Options::default()).failures;
        assert!(failures.is_empty(), "{failures:#?}");
    }
    let as_drawn_then = REGRESSIONS_OF_CONVERSIONS
        .into_iter()
        .chain(REGRESSIONS_OF_LOSSES)
        .chain(REGRESSIONS_OF_PAGES)
        .chain(REGRESSIONS_OF_LONG_WRITES)
        .chain(REGRESSIONS_OF_ROOM);
    let before_tuning = Options { drawn: Drawn::BeforeTuning, ..Options::default() };
    for seed in as_drawn_then {
        let failures = run(seed, &before_tuning).failures;
        assert!(failures.is_empty(), "{failures:#?}");
    }
    let as_they_were = Options { drawn: Drawn::BeforeConversions, ..Options::default() };
    for seed in REGRESSIONS {
        let failures = run(seed, &as_they_were).failures;
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 1000..1006 {
        let (first, again) = (run(seed, &Options::default()), run(seed, &Options::default()));
        assert_eq!(first, again, "seed {seed}");
        assert_ne!(first.trace_hash, run(seed + 100, &Options::default()).trace_hash);
    }
}

/// Whether one of some seeds shows one of these broken.
fn found(sabotage: Sabotage, promises: &[&str]) -> bool {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let shows =
        |seed: u64| run(seed, &options).failures.into_iter().any(|f| promises.contains(&f.promise.as_str()));
    (1..=40).any(shows)
}

#[test]
fn drives_that_ignore_flushes_are_found() {
    assert!(found(Sabotage::IgnoredFlushes, &["flushed-data-survives"]));
}

#[test]
fn data_changed_behind_the_engines_back_are_found() {
    // With checksums they are refused.
    assert!(found(Sabotage::Rot, &["nothing-refused"]) && found(Sabotage::Rot, &["no-wrong-bytes"]));
}

#[test]
fn writes_that_were_never_done_are_found() {
    assert!(found(Sabotage::LostWrites, &["flushed-data-survives", "nothing-refused"]));
}
