//! Ways in for fuzzers and for the tests that stand in for them: every decoder of what lies on drives, behind its checksums.
//!
//! A fuzzer never guesses a checksum, so each way in makes those right that stand before the decoder. None of them may panic,
//! hang, or take memory out of proportion to the bytes given.

use crate::journal;
use crate::pool;

/// Reads bytes as the sections of a checkpoint, and, where they make a pool, writes and reads them again: nothing may change.
/// Gives whether they made one.
pub fn sections(bytes: &[u8]) -> bool {
    pool::changes::survives_rewriting(bytes)
}

/// Reads bytes as the head of a batch of a journal, with what says how long it is and whose made right. Gives whether it was one.
pub fn journal_head(bytes: &[u8]) -> bool {
    journal::decode_sealed(bytes)
}

/// Makes the checksums of what begins at these places of a drive right again: headers of slots, and the entries behind them as
/// far as their lengths are possible. `image` is a whole drive.
pub fn reseal_slots(image: &mut [u8]) {
    pool::entries::reseal_slots(image);
}
