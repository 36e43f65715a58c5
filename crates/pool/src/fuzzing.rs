//! Entry points for fuzzers and for the tests that stand in for them: every decoder of bytes on
//! drives, behind its checksums. A fuzzer never guesses a checksum, so each entry point corrects
//! the checksums before the decoder runs. None of them may panic, hang, or take memory out of
//! proportion to its input.

pub use stripewise_array::fuzzing::{journal_head, page, reseal_page};

/// Decodes bytes as the sections of a checkpoint. If they describe a pool, encodes and decodes them
/// again: nothing may change. True if they describe one.
pub fn sections(bytes: &[u8]) -> bool {
    crate::superblock::changes::survives_rewriting(bytes)
}

/// Corrects the checksums of slot headers at their places in `image`, a whole drive, and of the
/// entries that follow, as far as their lengths are possible.
pub fn reseal_slots(image: &mut [u8]) {
    crate::superblock::entries::reseal_slots(image);
}

/// Replaces the numbers in the pool's record on a drive: `number` is called with each one, in the
/// same order for the same record. `image` is a whole drive.
pub fn change_numbers(image: &mut [u8], mut number: impl FnMut(u64) -> u64) {
    crate::superblock::entries::change_numbers(image, &mut number);
}

/// Corrects the checksums of a stream of a snapshot, as far as its lengths are possible.
pub fn reseal_stream(bytes: &mut [u8]) {
    crate::stream::format::reseal(bytes);
}

/// Reads all of a stream of a snapshot; true if it is whole.
pub async fn stream(bytes: &[u8]) -> bool {
    crate::stream::incoming::is_whole(bytes).await
}
