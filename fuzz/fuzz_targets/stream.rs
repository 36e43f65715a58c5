//! A stream of a snapshot of any bytes, with right checksums.
#![no_main]

use stripewise_pool::fuzzing;
use stripewise_runtime::VirtualExecutor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    fuzzing::reseal_stream(&mut bytes);
    VirtualExecutor::new().block_on(fuzzing::stream(&bytes));
});
