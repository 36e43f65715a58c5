//! The server's protocol byte by byte: negotiation, requests and errors.

use crate::kit::client::{
    ACK, BLOCK_STATUS, CACHE, Client, ERROR, FAST_ZERO, FLUSH, FUA, NO_HOLE, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STARTTLS,
    OPT_STRUCTURED_REPLY, READ, TRIM, WRITE, WRITE_ZEROES, info, meta_context, option_bytes,
};
use crate::kit::{MIB, Served, Wanted, contents};

const HOLE: u32 = 3;

#[test]
fn exports_are_listed_and_described() {
    let served = Served::start(Wanted { volumes: vec![("a", 32), ("b", 16)], ..Wanted::default() });
    let mut client = Client::connect(&served.socket);
    let listed = client.option(OPT_LIST, &[]);
    assert_eq!(listed[0], (2, b"\0\0\0\x06tank/a".to_vec()));
    assert_eq!(listed[1], (2, b"\0\0\0\x06tank/b".to_vec()));
    assert_eq!(listed[2], (ACK, vec![]));
    assert_eq!(client.option(OPT_LIST, b"x")[0].0, ERROR + 3);

    let replies = client.option(OPT_INFO, &info("tank/b", &[1, 2, 3]));
    assert_eq!(replies.len(), 5);
    let (size, flags) =
        (replies[0].1[2..10].to_vec(), u16::from_be_bytes([replies[0].1[10], replies[0].1[11]]));
    assert_eq!(size, (16 * MIB).to_be_bytes());
    // Flags, flush, FUA, trim, zeroes, several connections, cache, fast zeroes; DF only with
    // structured replies.
    assert_eq!(flags, 1 | 4 | 8 | 0x20 | 0x40 | 0x100 | 0x400 | 0x800);
    assert_eq!(replies[1].1, b"\0\x01tank/b");
    assert_eq!(replies[2].1, b"\0\x02volume b of pool tank");
    assert_eq!(replies[3].1, b"\0\x03\0\0\0\x01\0\x01\0\0\x02\0\0\0", "1 byte, 64 KiB, 32 MiB");
    let unknown = client.option(OPT_GO, &info("tank/c", &[]));
    assert_eq!(unknown[0].0, ERROR + 6);
    assert!(String::from_utf8_lossy(&unknown[0].1).contains("tank/c"));
    assert_eq!(client.option(OPT_GO, &info("", &[]))[0].0, ERROR + 6, "which of the two?");
    assert_eq!(client.option(OPT_STARTTLS, &[])[0].0, ERROR + 2, "there is no certificate");
    assert_eq!(client.option(1234, b"what")[0].0, ERROR + 1);
    assert_eq!(client.option(OPT_ABORT, &[])[0].0, ACK);
    assert!(client.is_closed());
}

#[test]
fn the_export_name_option_enters_or_disconnects() {
    let served = Served::start(Wanted::default());
    let mut client = Client::connect(&served.socket);
    client.send(&option_bytes(OPT_EXPORT_NAME, b""));
    let reply = client.receive(10);
    assert_eq!(reply[..8], (64 * MIB).to_be_bytes(), "the only export goes without a name");
    client.request(READ, 0, 5, 0, 512);
    let answer = client.receive(16 + 512);
    assert_eq!(answer[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    client.request(BLOCK_STATUS, 0, 6, 0, 512);
    assert_eq!(client.receive(16)[4..8], 22_u32.to_be_bytes());

    let mut client = Client::connect(&served.socket);
    client.send(&option_bytes(OPT_EXPORT_NAME, b"tank/none"));
    assert!(client.is_closed());
    // Followed by zeroes for clients that have not declined them.
    let mut client = Client::connect_silently(&served.socket);
    client.receive(18);
    client.send(&1_u32.to_be_bytes());
    client.send(&option_bytes(OPT_EXPORT_NAME, b"tank/data"));
    assert_eq!(client.receive(10 + 124)[10..], [0; 124]);
}

#[test]
fn metadata_contexts_apply_to_their_own_export() {
    let served = Served::start(Wanted { volumes: vec![("a", 16), ("b", 16)], ..Wanted::default() });
    let mut client = Client::connect(&served.socket);
    let query = meta_context("tank/a", &["base:allocation"]);
    assert_eq!(client.option(OPT_SET_META_CONTEXT, &query)[0].0, ERROR + 3, "structured replies come first");
    let listed = client.option(OPT_LIST_META_CONTEXT, &meta_context("tank/a", &[]));
    assert_eq!(listed[0], (4, b"\0\0\0\0base:allocation".to_vec()));
    assert_eq!(client.option(OPT_LIST_META_CONTEXT, &meta_context("tank/a", &["qemu:"])).len(), 1);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    assert_eq!(client.option(OPT_SET_META_CONTEXT, &meta_context("tank/c", &[]))[0].0, ERROR + 6);
    assert_eq!(client.option(OPT_SET_META_CONTEXT, &query)[0], (4, b"\0\0\0\x01base:allocation".to_vec()));
    assert_eq!(client.option(OPT_GO, &info("tank/b", &[])).last().expect("an answer").0, ACK);
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 512, &[]), 22, "asked for the other export");
}

#[test]
fn unaligned_writes_are_read_back_exactly() {
    let served = Served::start(Wanted::default());
    let mut client = Client::ready(&served.socket, "tank/data");
    let mut expected = vec![0; 4 << 20];
    let places = [
        (0, 512),
        (1, 1),
        (511, 2),
        (4096, 4096),
        (70_000, 100_001),
        (1 << 20, 1 << 20),
        (3_000_001, 510),
        (2_000_128, 40),
    ];
    for (index, (offset, length)) in places.into_iter().enumerate() {
        let bytes = contents(index as u64, length);
        client.write(offset, &bytes);
        expected[offset as usize..][..length].copy_from_slice(&bytes);
        assert!(client.read(offset, length as u32) == bytes, "{length} at {offset}");
    }
    assert!(client.read(0, 4 << 20) == expected);
    assert!(client.read(4_095, 100_003) == expected[4_095..][..100_003]);
    for (offset, length) in [(100, 100), (70_001, 70_000), (1 << 20, 4096), (3_000_100, 1), (511, 2)] {
        for flags in [0, NO_HOLE, FUA] {
            assert_eq!(client.ask(WRITE_ZEROES, flags, offset, length, &[]), 0);
        }
        expected[offset as usize..][..length as usize].fill(0);
    }
    assert!(client.read(0, 4 << 20) == expected);
    assert_eq!(client.ask(WRITE, FUA, 0, 0, &[]), 0, "nothing at all");
    assert_eq!(client.read(17, 0), Vec::<u8>::new().as_slice());
}

#[test]
fn clients_writing_within_one_sector_lose_nothing() {
    let served = Served::start(Wanted::default());
    let threads: Vec<_> = (0..8_u8)
        .map(|index| {
            let socket = served.socket.clone();
            std::thread::spawn(move || {
                let mut client = Client::ready(&socket, "tank/data");
                for round in 0..50_u8 {
                    client.write(u64::from(index) * 64, &[round ^ (index << 5) | 1; 64]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("ended"));
    let mut client = Client::ready(&served.socket, "tank/data");
    let expected: Vec<u8> = (0..8_u8).flat_map(|index| [49 ^ (index << 5) | 1; 64]).collect();
    assert_eq!(client.read(0, 512), expected);
}

#[test]
fn unwritten_ranges_are_reported_as_holes() {
    let served = Served::start(Wanted { layout: "raid0", ..Wanted::default() });
    let mut client = Client::ready(&served.socket, "tank/data");
    assert_eq!(client.status(0, 64 << 20), [(64 << 20, HOLE)]);
    client.write(20 << 20, &contents(1, 4096));
    let status = client.status(0, 64 << 20);
    assert_eq!(status.len(), 3, "{status:?}");
    assert_eq!((status[0], status[1].1, status[2].1), ((20 << 20, HOLE), 0, HOLE));
    assert_eq!(client.status((20 << 20) + 1, 7), [(7, 0)], "odd bytes are reported as well");
    client.request(READ, 0, 1, 0, 4096);
    assert_eq!(client.answer(), (1, 2, b"\0\0\0\0\0\0\0\0\0\0\x10\0".to_vec()), "a hole instead of zeros");
    // Whole regions are zeroed at once, parts of them are not.
    assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 20 << 20, 4096, &[]), 95);
    assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO | NO_HOLE, 0, 64 << 20, &[]), 95);
    assert_eq!(client.read(20 << 20, 4096), contents(1, 4096), "refused means untouched");
    assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 0, 64 << 20, &[]), 0);
    assert_eq!(client.status(0, 64 << 20), [(64 << 20, HOLE)]);
    // Zeros with NO_HOLE are written.
    assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE, 0, 8 << 20, &[]), 0);
    assert_eq!(client.status(0, 8 << 20), [(8 << 20, 0)]);
    assert_eq!(client.ask(TRIM, FUA, 100, 64 << 20, &[]), 28, "beyond the end");
    assert_eq!(client.ask(TRIM, FUA, 1, (64 << 20) - 1, &[]), 0);
    assert_eq!(client.status(4 << 20, 60 << 20), [(60 << 20, HOLE)]);
    assert_eq!(client.ask(CACHE, 0, 0, 64 << 20, &[]), 0);
}

#[test]
fn invalid_requests_fail_and_the_connection_stays() {
    let served = Served::start(Wanted::default());
    let mut client = Client::ready(&served.socket, "tank/data");
    let end = 64 * MIB;
    assert_eq!(client.ask(READ, 0, end, 1, &[]), 22);
    assert_eq!(client.ask(READ, 0, u64::MAX, 512, &[]), 22);
    assert_eq!(client.ask(READ, 0, 0, (32 << 20) + 1, &[]), 75);
    assert_eq!(client.ask(WRITE, 0, end - 1, 2, b"xy"), 28, "and what it sent is passed over");
    let long = vec![1; (32 << 20) + 512];
    assert_eq!(client.ask(WRITE, 0, 0, long.len() as u32, &long), 75);
    assert_eq!(client.ask(99, 0, 0, 0, &[]), 22);
    assert_eq!(client.ask(READ, 1 << 9, 0, 512, &[]), 22);
    assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0);
    assert_eq!(client.read(0, 32 << 20).len(), 32 << 20);
    assert_eq!(client.read(0, 512), [0; 512]);

    let served = Served::start(Wanted { read_only: true, ..Wanted::default() });
    let mut client = Client::ready(&served.socket, "tank/data");
    for (kind, payload) in [(WRITE, &[7; 512][..]), (TRIM, &[]), (WRITE_ZEROES, &[])] {
        assert_eq!(client.ask(kind, 0, 0, 512, payload), 1);
    }
    assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0);
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn many_requests_at_once_are_each_answered_once() {
    let served = Served::start(Wanted::default());
    let mut client = Client::ready(&served.socket, "tank/data");
    let mut writer = Client { stream: client.stream.try_clone().expect("cloned") };
    let sender = std::thread::spawn(move || {
        for cookie in 0..2000_u64 {
            let offset = cookie % 500 * 8192;
            writer.request(if cookie < 500 { WRITE } else { READ }, 0, cookie, offset, 8192);
            if cookie < 500 {
                writer.send(&contents(cookie, 8192));
            }
            if cookie == 499 {
                // Reads of written data wait for the replies to the writes.
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
        }
    });
    let mut answered = vec![false; 2000];
    for _ in 0..2000 {
        let (cookie, _, payload) = client.answer();
        assert!(!std::mem::replace(&mut answered[cookie as usize], true), "answered twice");
        if cookie >= 500 {
            assert!(payload[8..] == contents(cookie % 500, 8192), "read {cookie}");
        }
    }
    sender.join().expect("ended");
}
