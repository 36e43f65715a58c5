//! Input of an NBD client: settings, flags, options, requests. The server must not panic, and its
//! replies must stay in proportion.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stripewise_export::nbd::fuzzing::client_bytes(input));
