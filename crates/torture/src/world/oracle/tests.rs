//! Tests of the model: it must allow everything that the guarantees allow, and nothing else.

use super::*;

const NO_JOURNAL: Promises =
    Promises { journal: false, checksums: false, atomic_blocks: false, atomic_drives: false };
const STRICT: Promises =
    Promises { journal: true, checksums: true, atomic_blocks: true, atomic_drives: true };

fn data(sector: u32, count: usize, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; count * SECTOR_BYTES as usize];
    if version > 0 {
        stamp(&mut bytes, 3, sector, version);
    }
    bytes
}

fn oracle(promises: Promises) -> Oracle {
    Oracle::new(3, 64 * SECTOR_BYTES, Some(8 * SECTOR_BYTES), promises)
}

fn holds(oracle: &mut Oracle, sector: u32, version: u32) -> bool {
    let since = oracle.tick();
    oracle.check(sector, &data(sector, 1, version), since).is_ok()
}

fn write(oracle: &mut Oracle, sectors: Range<u32>, fua: bool) -> u32 {
    let ticket = oracle.begin_write(sectors);
    oracle.end_write(&ticket, true, fua);
    ticket.version
}

fn flush(oracle: &mut Oracle) {
    let begun = oracle.tick();
    oracle.end_flush(begun);
}

#[test]
fn acknowledged_write_must_be_read_back() {
    let mut oracle = oracle(NO_JOURNAL);
    assert!(holds(&mut oracle, 5, 0));
    let ticket = oracle.begin_write(5..6);
    assert!(holds(&mut oracle, 5, 0) && holds(&mut oracle, 5, 1), "in flight it is either");
    oracle.end_write(&ticket, true, false);
    assert!(!holds(&mut oracle, 5, 0) && holds(&mut oracle, 5, 1));
    assert!(!holds(&mut oracle, 5, 2), "never written");
    let since = oracle.tick();
    assert!(oracle.check(5, &data(6, 1, 1), since).is_err(), "of another place");
}

#[test]
fn earlier_read_may_return_the_old_version() {
    let mut oracle = oracle(NO_JOURNAL);
    let since = oracle.tick();
    write(&mut oracle, 5..6, true);
    assert!(oracle.check(5, &data(5, 1, 0), since).is_ok());
    assert!(!holds(&mut oracle, 5, 0));
}

#[test]
fn cut_may_revert_unflushed_writes_only() {
    let mut oracle = oracle(NO_JOURNAL);
    let one = write(&mut oracle, 5..6, false);
    flush(&mut oracle);
    let two = write(&mut oracle, 5..6, false);
    let three = write(&mut oracle, 5..6, false);
    assert!(!holds(&mut oracle, 5, two));
    oracle.power_cut();
    for version in [one, two, three] {
        assert!(holds(&mut oracle, 5, version));
    }
    assert!(!holds(&mut oracle, 5, 0));
    let four = write(&mut oracle, 5..6, true);
    let five = write(&mut oracle, 5..6, false);
    oracle.power_cut();
    assert!(holds(&mut oracle, 5, four) && holds(&mut oracle, 5, five) && !holds(&mut oracle, 5, three));
}

#[test]
fn flush_covers_only_writes_acknowledged_before_it() {
    let mut oracle = oracle(NO_JOURNAL);
    let ticket = oracle.begin_write(1..2);
    let begun = oracle.tick();
    oracle.end_write(&ticket, true, false);
    oracle.end_flush(begun);
    oracle.power_cut();
    assert!(holds(&mut oracle, 1, 0) && holds(&mut oracle, 1, ticket.version));
}

#[test]
fn discard_allows_old_or_zeros_and_zeroing_only_zeros() {
    let mut oracle = oracle(NO_JOURNAL);
    let one = write(&mut oracle, 0..2, true);
    let ticket = oracle.begin_zeroes(0..1, true);
    oracle.end_write(&ticket, true, false);
    let ticket = oracle.begin_zeroes(1..2, false);
    oracle.end_write(&ticket, true, false);
    flush(&mut oracle);
    assert!(holds(&mut oracle, 0, one) && holds(&mut oracle, 0, 0));
    assert!(!holds(&mut oracle, 1, one) && holds(&mut oracle, 1, 0));
}

#[test]
fn stripe_in_flight_may_be_lost_only_without_journal() {
    for promises in [NO_JOURNAL, STRICT] {
        let mut oracle = oracle(promises);
        let neighbour = write(&mut oracle, 15..16, true);
        write(&mut oracle, 9..10, false);
        oracle.power_cut();
        oracle.lose_suspects();
        assert_eq!(holds(&mut oracle, 15, 77), !promises.journal, "in the same stripe");
        assert!(holds(&mut oracle, 15, neighbour));
        assert!(oracle.may_refuse(15..16, IN_FLIGHT), "the block that was in flight, which here is a stripe");
        assert!(!holds(&mut oracle, 17, 77), "in another stripe");
        // Written again before the resync, it may still be lost by what goes then.
        let again = write(&mut oracle, 15..16, false);
        assert!(holds(&mut oracle, 15, again));
        assert_eq!(holds(&mut oracle, 15, 77), !promises.journal);
        oracle.resynchronised();
        // Written again after it, it must hold that.
        let again = write(&mut oracle, 15..16, false);
        assert!(holds(&mut oracle, 15, again) && !holds(&mut oracle, 15, 77));
        assert_eq!(oracle.suspect_count(), 0);
    }
}

#[test]
fn torn_sectors_need_a_cut_and_no_block_promise() {
    // The same for a write that was reported to a client as possibly lost.
    for (promises, is_reported) in [(NO_JOURNAL, false), (NO_JOURNAL, true), (STRICT, false), (STRICT, true)]
    {
        let mut oracle = oracle(promises);
        let one = write(&mut oracle, 8..9, true);
        let two = write(&mut oracle, 8..9, false);
        if is_reported {
            oracle.put_at_risk();
            oracle.reported();
        }
        let mut torn = data(8, 1, two);
        torn[100..].copy_from_slice(&data(8, 1, one)[100..]);
        let since = oracle.tick();
        assert!(oracle.check(8, &torn, since).is_err());
        oracle.power_cut();
        let since = oracle.tick();
        assert_eq!(oracle.check(8, &torn, since).is_ok(), !promises.atomic_blocks, "reported {is_reported}");
    }
}

#[test]
fn a_block_half_old_half_new_is_found() {
    let mut oracle = oracle(STRICT);
    let one = write(&mut oracle, 0..16, true);
    let two = write(&mut oracle, 0..16, false);
    oracle.power_cut();
    let since = oracle.tick();
    let mixed = |at: usize| [data(0, at, two), data(at as u32, 16 - at, one)].concat();
    assert!(oracle.check(0, &mixed(8), since).is_ok(), "each block on its own");
    let wrong = oracle.check(0, &mixed(5), since).unwrap_err();
    assert!(wrong.is_torn_block, "{wrong:?}");
}

#[test]
fn once_pinned_nothing_changes_any_more() {
    let mut oracle = oracle(NO_JOURNAL);
    let one = write(&mut oracle, 4..5, false);
    oracle.power_cut();
    assert!(holds(&mut oracle, 4, 0) && holds(&mut oracle, 4, one));
    oracle.pin(4, &data(4, 1, one));
    assert!(!holds(&mut oracle, 4, 0) && holds(&mut oracle, 4, one));
}

#[test]
fn a_refused_write_may_be_there_or_not() {
    let mut oracle = oracle(NO_JOURNAL);
    let ticket = oracle.begin_write(4..5);
    oracle.end_write(&ticket, false, false);
    flush(&mut oracle);
    assert!(holds(&mut oracle, 4, 0) && holds(&mut oracle, 4, ticket.version));
    assert_eq!(oracle.suspect_count(), 1);
}

#[test]
fn overlapping_write_may_leave_a_block_refused() {
    let torn = Promises { atomic_drives: false, ..STRICT };
    for is_flushed in [false, true] {
        let mut oracle = oracle(torn);
        write(&mut oracle, 8..16, false);
        oracle.power_cut();
        let beside = oracle.begin_write(9..10);
        assert!(oracle.may_refuse(8..16, beside.begun), "a drive may have kept it in part");
        // Another one writes all of the block, and is faster.
        write(&mut oracle, 8..16, false);
        if is_flushed {
            flush(&mut oracle);
        }
        assert!(oracle.may_refuse(8..16, beside.begun), "flushed {is_flushed}");
        let later = oracle.tick();
        assert!(!oracle.may_refuse(8..16, later), "flushed {is_flushed}");
    }
}

#[test]
fn flush_loss_is_reported_before_an_acknowledgement() {
    for is_reported in [false, true] {
        let mut oracle = oracle(STRICT);
        let old = write(&mut oracle, 5..6, true);
        let new = write(&mut oracle, 5..6, false);
        oracle.put_at_risk();
        assert!(holds(&mut oracle, 5, old) && holds(&mut oracle, 5, new), "the drive may have lost it");
        assert!(oracle.may_refuse(5..6, oracle.now + 1));
        if is_reported {
            oracle.reported();
        }
        flush(&mut oracle);
        assert!(holds(&mut oracle, 5, new));
        assert_eq!(holds(&mut oracle, 5, old), is_reported, "a flush that is acknowledged vouches for it");
    }
}

#[test]
fn neighbour_in_a_lost_block_may_be_refused() {
    let mut oracle = oracle(STRICT);
    let neighbour = write(&mut oracle, 12..13, false);
    let other_block = write(&mut oracle, 16..17, false);
    flush(&mut oracle);
    write(&mut oracle, 10..11, false);
    oracle.put_at_risk();
    let since = oracle.tick();
    assert!(oracle.may_refuse(12..13, since) && !oracle.may_refuse(16..17, since));
    assert!(holds(&mut oracle, 12, neighbour) && !holds(&mut oracle, 12, 0));
    assert!(holds(&mut oracle, 16, other_block));
}

#[test]
fn rewrite_of_lost_data_is_lost_again_by_a_refusal() {
    for is_reported in [false, true] {
        let mut oracle = oracle(Promises { atomic_drives: false, ..STRICT });
        write(&mut oracle, 8..16, false);
        oracle.power_cut();
        let again = write(&mut oracle, 8..16, false);
        if is_reported {
            oracle.reported();
        }
        flush(&mut oracle);
        let since = oracle.tick();
        assert_eq!(oracle.may_refuse(8..16, since), is_reported);
        assert!(holds(&mut oracle, 8, again), "reported {is_reported}");
    }
}

#[test]
fn rewrite_of_a_lost_block_counts_when_flushed() {
    let mut oracle = oracle(STRICT);
    write(&mut oracle, 8..16, false);
    oracle.put_at_risk();
    let began = oracle.tick();
    write(&mut oracle, 8..16, false);
    let whole = write(&mut oracle, 24..32, false);
    assert!(oracle.may_refuse(8..16, oracle.now + 1), "the engine may meet the refusal now");
    assert!(!oracle.may_refuse(24..32, oracle.now + 1) && holds(&mut oracle, 24, whole));
    flush(&mut oracle);
    assert!(oracle.may_refuse(8..16, began), "a read that began before");
    write(&mut oracle, 8..16, false);
    assert!(!oracle.may_refuse(8..16, oracle.now + 1), "an acknowledged flush vouches for it");
}

#[test]
fn flush_after_any_loss_vouches_for_the_block() {
    let mut oracle = oracle(STRICT);
    write(&mut oracle, 8..16, false);
    oracle.put_at_risk();
    oracle.reported();
    let again = write(&mut oracle, 8..16, false);
    flush(&mut oracle);
    for cut in [false, true] {
        if cut {
            oracle.power_cut();
        }
        let since = oracle.tick();
        assert!(!oracle.may_refuse(8..16, since) && holds(&mut oracle, 8, again), "cut {cut}");
    }
}

#[test]
fn durable_data_is_safe_from_a_failed_flush() {
    let mut oracle = oracle(STRICT);
    let version = write(&mut oracle, 5..6, false);
    flush(&mut oracle);
    oracle.put_at_risk();
    oracle.reported();
    assert!(holds(&mut oracle, 5, version) && !holds(&mut oracle, 5, 0));
    let since = oracle.tick();
    assert!(!oracle.may_refuse(5..6, since));
}

#[test]
fn possible_zeros_do_not_count_as_certain_data() {
    let mut oracle = oracle(STRICT);
    write(&mut oracle, 5..9, false);
    assert_eq!(oracle.surely_holds_data_from(0), Some(5));
    assert_eq!(oracle.surely_holds_data_from(7), Some(7));
    assert_eq!(oracle.surely_holds_data_from(9), None);
    let discard = oracle.begin_zeroes(5..8, true);
    oracle.end_write(&discard, true, false);
    assert_eq!(oracle.surely_holds_data_from(0), Some(8));
}
