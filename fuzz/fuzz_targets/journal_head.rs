//! The head of a batch of a journal made of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    stripewise_pool::fuzzing::journal_head(bytes);
});
