//! Streams of each version of their format (`tests/images/stream-*`): they stay receivable.

use crate::io::streams::received;
use crate::kit::images::folder;
use crate::kit::pool::*;
use stripewise_pool::Pool;

const SIZE: usize = 4 << 20;

/// The bytes that were written to the volume before it was sent.
fn pattern(seed: usize, offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(|at| ((at / 7 * 31 + seed * 17 + at) % 251) as u8).collect()
}

#[test]
fn kept_streams_can_be_received() {
    let (life, drives) = (Life::new(), memory_drives(3, 64));
    let stream = |name: &str| std::fs::read(folder().join("stream-1").join(name)).expect("a kept stream");
    life.run(async {
        let pool = Pool::create(&life.context, &life.buffers, spec("to", &as_drives(&drives), &[]));
        let pool = pool.await.expect("a pool");
        let mut expected = vec![0; SIZE];
        expected[8192..20_480].copy_from_slice(&pattern(1, 8192, 12_288));
        expected[1 << 20..(1 << 20) + 8192].copy_from_slice(&pattern(2, 12_288, 8192));
        let holds = async |name: &str| {
            let volume = pool.volume(name).expect("complete");
            volume.read(0, SIZE).await.expect("read").to_vec()
        };
        let done = received(&pool, "w", &stream("whole")).await.expect("received");
        assert_eq!((done.path.to_string().as_str(), done.data_bytes), ("w@one", 20_480));
        assert!(holds("w").await == expected);
        expected[12_288..20_480].copy_from_slice(&pattern(2, 12_288, 8192));
        let done = received(&pool, "w", &stream("changes")).await.expect("received");
        assert_eq!((done.path.to_string().as_str(), done.data_bytes), ("w@two", 8192));
        assert!(holds("w").await == expected);
        pool.close().await.expect("closed");
    });
}
