//! Input of a virtual machine: a message of its front end, and its memory with a ring in it. The
//! server must not panic, and must not leave the memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| stripewise_export::vhost::fuzzing::guest_bytes(input));
