//! A checkpoint of a pool's metadata made of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    stripewise_pool::fuzzing::sections(bytes);
});
