//! Size of request futures in memory: the caller copies each once or twice, for every few KiB that
//! it transfers.
//!
//! Invariant I6 (`docs/internals/invariants.md`).

use crate::kit::pool::*;
use stripewise_drive::Buffer;

/// A request of 4 KiB copies this many bytes of data.
const MOST_BYTES: usize = 4096;

#[test]
fn request_futures_are_smaller_than_their_data() {
    let life = Life::new();
    let drives = memory_drives(4, 32);
    life.run(async {
        let pool = life.create(&as_drives(&drives), &[]).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("a", "raid5", Some(8 * MIB))).await.expect("a volume");
        let read = size_of_val(&volume.read(0, 4096));
        let write = size_of_val(&volume.write(0, Buffer::phantom(4096), false));
        println!("a read takes {read} bytes, a write {write}");
        assert!(read <= MOST_BYTES && write <= MOST_BYTES, "a read takes {read} bytes, a write {write}");
    });
}
