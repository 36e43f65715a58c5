//! A packed drive made of any bytes; what can be unpacked is the same when packed and unpacked
//! again.
#![no_main]

use stripewise_drive::{Drive, MemoryDrive};

/// Larger ones take long: all of them is read to pack them.
const MOST_BYTES: u64 = 4 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(drive) = MemoryDrive::unpack("drive", bytes) else { return };
    if drive.info().capacity_bytes <= MOST_BYTES {
        let packed = drive.pack();
        let again = MemoryDrive::unpack("again", &packed).expect("what was packed can be unpacked");
        assert!(again.pack() == packed);
    }
});
