//! What an NBD client may send: settings, flags, options, requests. Nothing may panic, and answers
//! stay in proportion.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stripewise_export::nbd::fuzzing::client_bytes(input));
