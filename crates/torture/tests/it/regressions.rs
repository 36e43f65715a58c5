//! Seeds that once showed a fault of the engine, or of the judge, by now mended; each runs as it
//! was drawn then.

use stripewise_torture::{Drawn, Options, run};

fn keeps_every_promise(seed: u64, drawn: Drawn) {
    let failures = run(seed, &Options { drawn, ..Options::default() }).failures;
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A test for each seed, named by it, with the fault that it showed.
macro_rules! seeds {
    ($($(#[$fault:meta])* $name:ident: $drawn:ident $seed:expr,)+) => {
        $(
            $(#[$fault])*
            #[test]
            fn $name() {
                keeps_every_promise($seed, Drawn::$drawn);
            }
        )+
    };
}

seeds! {
    /// A drive lost a durable write, and after a cut its older block was taken for one that was
    /// being written.
    seed_307: BeforeConversions 307,
    /// A volume without a drive that had one of the few copies of its map counted as whole.
    seed_669: BeforeConversions 669,
    /// A resync went on at a region's number when the volume had been made smaller.
    seed_1090: BeforeConversions 1090,
    /// A row of a thin volume was recorded on a drive that had just been accepted to be emptied,
    /// so there was no room left.
    seed_1101: BeforeConversions 1101,
    /// Power went in a commit when one drive had it; that drive was away next, and came back as
    /// the other half of a diverged pool.
    seed_1494: BeforeConversions 1494,
    /// A journal that was lost got an area which nothing was written to, and the volume could not
    /// be opened for it.
    seed_1570: BeforeConversions 1570,
    /// A retired drive took with it what only its area of the journal had said, and released
    /// records were replayed.
    seed_2036: BeforeConversions 2036,
    /// A flush beside the loss of too many drives passed, and the journal forgot what they
    /// lacked.
    seed_2109: BeforeConversions 2109,
    /// The judge asked of a partial write, refused beside one that made the lost block whole, to
    /// have come after it.
    seed_2993: BeforeConversions 2993,
    /// A volume without one of its two journal drives counted as whole, and without the other
    /// took no more writes.
    seed_3588: BeforeConversions 3588,
    /// A drive went while copies were being compared after a cut; they counted as equal, and were
    /// not.
    seed_3754: BeforeConversions 3754,
    /// A volume counted as able to lose a drive while the only area of its journal was there.
    seed_3907: BeforeConversions 3907,
    /// A drive was accepted to be emptied into room that a rebuild was about to take.
    seed_4614: BeforeConversions 4614,
    /// A drive could not be emptied though there was room, on drives that other rows had first to
    /// be moved to.
    seed_4774: BeforeConversions 4774,
    /// Two drives were accepted to be emptied into the same room.
    seed_5886: BeforeConversions 5886,
    /// A drive that had got one commit more than all others before it was left out, and was
    /// replaced since, came back as the other half of a diverged pool when only drives were at
    /// hand that had come later.
    seed_6948: BeforeConversions 6948,
    /// A drive that had got one commit more than all others before it was left out, and was
    /// replaced since, came back as the other half of a diverged pool when only drives were at
    /// hand that had come later.
    seed_14646: BeforeConversions 14_646,
    /// Blocks of a torn stripe were lost although the journal had newer data of them.
    seed_7988: BeforeConversions 7988,
    /// No spare took over from a drive that had nothing but a map and a journal.
    seed_9315: BeforeConversions 9315,
    /// An empty drive was let go of that another one, being emptied, needed.
    seed_10302: BeforeConversions 10_302,
    /// Parity whose recorded checksum nothing had counted as lost, though all data were there.
    seed_14227: BeforeConversions 14_227,
    /// The judge forgot that a drive was gone, of which the engine did not know yet, and which a
    /// thin volume then used.
    seed_17161: BeforeConversions 17_161,
    /// A drive could not be emptied because of a block that no drive had any more.
    seed_18493: BeforeConversions 18_493,
}

seeds! {
    /// The slabs of an array that had ended were given away while it was still destaging.
    seed_315: BeforeTuning 315,
    /// The slabs of an array that had ended were given away while it was still destaging.
    seed_387: BeforeTuning 387,
    /// Records that had been released, but not durably so, came back after a cut over a region
    /// zeroed and written again.
    seed_1007: BeforeTuning 1007,
    /// A record from before a column went, released but not durably so, was replayed after a
    /// cut on the spare that had taken over, over data written while the column was missing.
    seed_14751: BeforeTuning 14_751,
    /// As seed 6948.
    seed_14763: BeforeTuning 14_763,
    /// An array that took no more writes when it ended left its journal writing to slabs that
    /// were others' by then.
    seed_15647: BeforeTuning 15_647,
}

seeds! {
    /// Two drives took both places of a page of checksums with them, and nothing was recorded of
    /// the blocks that they were filled with.
    seed_18501: BeforeTuning 18_501,
}

seeds! {
    /// A drive lost the write of a page, and the drive with its other place was missing: what the
    /// others gave was refused.
    seed_5176: BeforeTuning 5176,
    /// A drive lost the write of a page, and the drive with its other place was missing: what the
    /// others gave was refused.
    seed_9841: BeforeTuning 9841,
    /// A page rotted, and the drive with its other place was missing: a block that had rotted as
    /// well was given out.
    seed_17836: BeforeTuning 17_836,
    /// A flush ended while a region not known as written yet was being discarded; what was
    /// written to it was not made durable any more, and older records of it were found after a
    /// cut.
    seed_369: BeforeTuning 369,
    /// A write that had begun during one conversion was still in flight when the next one copied
    /// what it wrote to.
    seed_2359: BeforeTuning 2359,
    /// Small areas of journals were put into the only ten slabs in a row that a large one could
    /// go to, so a drive that had been accepted to be emptied could not be.
    seed_9901598: BeforeTuning 9_901_598,
}

seeds! {
    /// A block that was lost was written; the drive failed its flush and lost its cache, and the
    /// commit that said so counted the block as whole: what stood in for it was given out.
    seed_200116: BeforeConnections 200_116,
    /// A cut left areas of a journal on a drive that was being replaced and on its successor, and
    /// the drive of a third area was lost: the drive could not be emptied for good.
    seed_213: BeforeShards 213,
    /// A drive refused a flush and lost its cache; a mirror read from it before the flush of its
    /// own that had it excluded.
    seed_1172: BeforeConnections 1172,
    /// A conversion without room waited for slabs of the volume that was being deleted, which
    /// waited for the conversion.
    seed_5211: BeforeShards 5211,
    /// As seed 213, and no third drive had room for an area: that of the drive being replaced and
    /// that of its successor were counted as two, and the one that was lost given up for them.
    seed_5501: BeforeShards 5501,
    /// Notes of released records went out in several batches; a cut lost the first of them, and
    /// an old record came back without the newer one of its stripe.
    seed_35226: BeforeShards 35_226,
    /// Notes of released records went out in several batches; a cut lost the first of them, and
    /// an old record came back without the newer one of its stripe.
    seed_2078000231: BeforeShards 2_078_000_231,
    /// A block that was lost for the second time took what had stood in for it the first time for
    /// an old version of itself.
    seed_35917: BeforeShards 35_917,
    /// A write was in flight when its drive refused a flush and lost its cache, and was
    /// acknowledged after a client had been informed: the next flush vouched for it.
    seed_27246: BeforeShards 27_246,
    /// Writes to a full thin volume waited one after the other for slabs whose rows they kept in
    /// use themselves.
    seed_23720: BeforeConnections 23_720,
    /// The judge took a volume for one that has nothing on a drive whose flush fails, as when
    /// that was prepared; its rows had moved there since.
    seed_26872: BeforeConnections 26_872,
    /// A volume that had just been deleted had a drive excluded that others could not do without.
    seed_27743: BeforeShards 27_743,
    /// A drive was let go of, its columns being elsewhere, while a block was read from it: the
    /// block counted as lost.
    seed_30392: BeforeConnections 30_392,
    /// A drive was let go of, its columns being elsewhere, while a block was read from it: the
    /// block counted as lost.
    seed_31281: BeforeShards 31_281,
    /// Rows moved to a drive that had refused a flush before, and had it excluded for that; later
    /// only where the flush that met the refusal was still waiting for other drives.
    seed_33362: BeforeShards 33_362,
    /// A drive fell out while it was recorded that a column had moved there: the column went with
    /// it, though it was still at its old place.
    seed_26126: BeforeShards 26_126,
    /// A thin volume on one drive had its journal, a single copy of each record, on six; one of
    /// those was lost, and with the next cut checksums of flushed blocks.
    seed_30767: BeforeShards 30_767,
    /// A scrub blamed a block beyond the end of a volume that had become smaller.
    seed_31508: BeforeConnections 31_508,
    /// Drives were pulled at once: those of the journal were excluded in one round of a commit and
    /// those that the volume cannot do without in the next: when all came back its journal
    /// counted as lost.
    seed_39854: BeforeShards 39_854,
    /// One place of a page of checksums was missing and the write of the other was lost; the
    /// block was refused, though its drive and all others agreed on it.
    seed_71480: BeforeConnections 71_480,
    /// The judge did not know that a write reported to a client may be torn by the next
    /// cut.
    seed_81608: BeforeConnections 81_608,
    /// A row of a thin volume got its first slabs, in a commit, on a drive that fell out.
    seed_101105: BeforeShards 101_105,
    /// A read that decodes waited for a stripe while it was discarded, and gave out what the
    /// drives still held there.
    seed_102025: BeforeShards 102_025,
    /// A journal that keeps a copy more than its layout asks for did not leave a drive that was
    /// to be emptied.
    seed_302021: BeforeShards 302_021,
    /// Slabs for a copy of a map were given back while a page was on its way there, and taken for
    /// another map.
    seed_403338: BeforeShards 403_338,
    /// Waiting for conversions ended when one was tried again.
    seed_403915: BeforeShards 403_915,
    /// The judge trusted a drive whose passing errors had ended, and the last of them was still
    /// on its way.
    seed_502129: BeforeShards 502_129,
    /// After a drive had lost a write and the next one was torn, the older block was taken for
    /// right although the write that was lost had been flushed. The judge knows what the
    /// journal cannot.
    seed_500754: BeforeShards 500_754,
    /// A dead block that only the journal had made whole was recorded as dead for ever.
    seed_600490: BeforeShards 600_490,
    /// The judge counted a drive that came back as another one once only.
    seed_600545: BeforeShards 600_545,
    /// The array that a conversion left behind took a drive out of service.
    seed_601183: BeforeShards 601_183,
    /// A torn block of which nothing was recorded could pass for its former content.
    seed_701210: BeforeShards 701_210,
    /// Lost blocks of a region stayed lost when the region was discarded.
    seed_808056: BeforeConnections 808_056,
    /// A drive that could not be spared lost the zeros that a new region had been filled with.
    seed_808346: BeforeShards 808_346,
    /// Torture waited for a drive to be emptied while it held another one offline, whose copy of
    /// a map had to come back first.
    seed_823556: BeforeConnections 823_556,
    /// A checkpoint of a degraded array wrote the place of a page twice at once, as one to be
    /// filled and as one between others.
    seed_903537: BeforeShards 903_537,
    /// A checkpoint of a degraded array wrote the place of a page twice at once, as one to be
    /// filled and as one between others.
    seed_911377: BeforeShards 911_377,
    /// The judge did not know that a drive whose flush fails is left out by a volume that has
    /// rows on their way there.
    seed_1000634: BeforeShards 1_000_634,
    /// The judge saw room on a drive whose place a spare had taken before it came back.
    seed_1110124: BeforeConnections 1_110_124,
    /// Torture drew a layout for no drives at all.
    seed_2078000019: BeforeShards 2_078_000_019,
    /// After a cut, parity that a record had of a block was taken for what a later record,
    /// written without that drive, had left of it.
    seed_6000357: BeforeShards 6_000_357,
    /// A record in the journal of a conversion's new array counted as newer than the loss of the
    /// block in the old one.
    seed_6001075: BeforeShards 6_001_075,
    /// Nothing had it recorded, after destaging, that a dead block had become whole.
    seed_7000910: BeforeShards 7_000_910,
    /// Records were kept until that was recorded: some blocks and their parity did not
    /// agree after a rebuild.
    seed_8005760: BeforeConnections 8_005_760,
    /// A volume that was being made when power went had no judge.
    seed_9003106: BeforeShards 9_003_106,
    /// On a full file system a read was refused that needed a page of checksums.
    seed_20002252: BeforeConnections 20_002_252,
    /// The judge did not reckon with zeros of a new region that went with a refused flush.
    seed_20002402: BeforeShards 20_002_402,
    /// After a cut an old redo record came over what an intent after it had put in place.
    seed_20003336: BeforeConnections 20_003_336,
    /// A rebalance never got on beside tiers whose period was short.
    seed_20008054: BeforeShards 20_008_054,
    /// A dead block counted as whole though the flush was refused that its write needed.
    seed_20012682: BeforeShards 20_012_682,
    /// The judge took a drive for away that was on its way back when power went.
    seed_40013099: BeforeShards 40_013_099,
    /// The judge counted room in pieces as room for an area of a journal.
    seed_91000216: BeforeConnections 91_000_216,
    /// The journal of a conversion that was refused wrote headers in slabs that were given back.
    seed_92005879: BeforeShards 92_005_879,
    /// The journal of a conversion that was refused wrote headers in slabs that were given back.
    seed_93005651: BeforeShards 93_005_651,
    /// Closing a pool refused a row to what the journal of a thin volume had.
    seed_40015842: BeforeShards 40_015_842,
    /// A discard made a region unwritten, and power went before it was recorded that the blocks
    /// dead there are whole. Zeros written later were skipped, and the blocks stayed dead.
    seed_40021510: BeforeShards 40_021_510,
    /// A discard made a region unwritten, and power went before it was recorded that the blocks
    /// dead there are whole. Zeros written later were skipped, and the blocks stayed dead.
    seed_50006917: BeforeShards 50_006_917,
    /// A row was given back and taken again on other drives while one of its columns was about to
    /// move; the move was recorded all the same, and the row had a drive twice.
    seed_50006895: BeforeShards 50_006_895,
    /// A flush that began before a conversion and ended after it was refused, as the array that
    /// it had asked was no more.
    seed_40031459: BeforeShards 40_031_459,
    /// Rows on their way to a drive counted there before a refused flush of that drive was
    /// answered; the judge did not know.
    seed_50000347: BeforeShards 50_000_347,
    /// A volume that shrank and grew again refused to read a block that had been dead beyond the
    /// smaller size.
    seed_60003209: BeforeShards 60_003_209,
    /// A client got an error for a refused flush; the engine counted the lost blocks that had
    /// been written since the last good one as lost again, the judge as whole.
    seed_70003548: BeforeConnections 70_003_548,
    /// The judge waited at the end for a drive that had been taken offline and was added as a new
    /// one since.
    seed_70020459: BeforeShards 70_020_459,
}
