//! A page of checksums and a page of a region map made of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    stripewise_pool::fuzzing::page(bytes);
});
