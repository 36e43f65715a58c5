//! Guests and front ends that break the rules: an error for them, and nothing for others.

use std::fs::File;
use std::rc::Rc;

use stripewise_export::vhost::VhostLimits;
use stripewise_runtime::make_event_file;

use super::front_end::*;
use super::{Served, with_served};

/// A front end that is dropped for what its guest does, beside one that is not.
fn drops(what: &str, why: &'static str, act: impl FnOnce(&mut Guest)) {
    with_served(VhostLimits::default(), false, |served| async move {
        let (good, mut its_guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        let (bad, mut guest) = running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        act(&mut guest);
        bad.kick(0).await;
        bad.until_closed().await;
        served.until_notice(why).await;
        let answered = good.execute(&mut its_guest, 0, (READ, 0), &[], 512).await;
        assert_eq!(answered, (0, vec![0; 512]), "{what}");
    });
}

#[test]
fn chains_that_loop_are_refused() {
    drops("a loop", "loops", |guest| {
        for index in 0..3 {
            guest.put_descriptor(0, index, DATA_AT, 16, NEXT, (index + 1) % 3);
        }
        guest.make_available(0, 0);
    });
    drops("a loop in a table", "loops", |guest| {
        guest.put_descriptor(TABLES_AT, 0, DATA_AT, 16, NEXT, 0);
        guest.put_descriptor(0, 0, TABLES_AT, 16, INDIRECT, 0);
        guest.make_available(0, 0);
    });
}

#[test]
fn tables_within_tables_are_refused() {
    drops("a table in a table", "within a chain or another table", |guest| {
        guest.put_descriptor(TABLES_AT, 0, TABLES_AT, 16, INDIRECT, 0);
        guest.put_descriptor(0, 0, TABLES_AT, 16, INDIRECT, 0);
        guest.make_available(0, 0);
    });
    for length in [0, 8, 17] {
        drops("a table of another length", "an indirect table is malformed", move |guest| {
            guest.put_descriptor(0, 0, TABLES_AT, length, INDIRECT, 0);
            guest.make_available(0, 0);
        });
    }
}

#[test]
fn addresses_outside_the_memory_are_refused() {
    for (address, length) in [
        (0, 16),
        (GUEST + MEMORY_BYTES, 1),
        (GUEST + MEMORY_BYTES - 8, 16),
        (u64::MAX - 4, 16),
        (GUEST, u32::MAX),
    ] {
        drops("a buffer", "refers to no memory", move |guest| {
            guest.put_raw_descriptor(0, 0, address, length, NEXT, 1);
            guest.put_descriptor(0, 1, DATA_AT, 1, WRITABLE, 0);
            guest.make_available(0, 0);
        });
    }
    drops("a table", "outside the memory", |guest| {
        guest.put_raw_descriptor(0, 0, 0, 32, INDIRECT, 0);
        guest.make_available(0, 0);
    });
}

#[test]
fn impossible_indexes_are_refused() {
    drops("a head", "outside the table", |guest| guest.make_available(0, QUEUE_SIZE));
    drops("a next descriptor", "outside the table", |guest| {
        guest.put_descriptor(0, 0, DATA_AT, 16, NEXT, QUEUE_SIZE);
        guest.make_available(0, 0);
    });
    drops("an index far ahead", "more requests are available", |guest| {
        guest.set_available_index(0, QUEUE_SIZE + 1);
    });
}

#[test]
fn chains_without_head_or_status_are_refused() {
    drops("no status", "without a head", |guest| {
        guest.put_descriptor(0, 0, DATA_AT, 16, 0, 0);
        guest.make_available(0, 0);
    });
    drops("half a head", "without a head", |guest| {
        guest.put_descriptor(0, 0, DATA_AT, 15, NEXT, 1);
        guest.put_descriptor(0, 1, DATA_AT, 1, WRITABLE, 0);
        guest.make_available(0, 0);
    });
    drops("a wrong order", "follows a writable one", |guest| {
        guest.put_descriptor(0, 0, DATA_AT, 1, WRITABLE | NEXT, 1);
        guest.put_descriptor(0, 1, DATA_AT, 16, 0, 0);
        guest.make_available(0, 0);
    });
}

#[test]
fn a_request_in_flight_twice_is_refused() {
    drops("one chain twice", "while it is in flight", |guest| {
        guest.put_request(0, 0, READ, 0, &[], 512);
        guest.make_available(0, 0);
        guest.make_available(0, 0);
    });
}

#[test]
fn long_requests_fail_alone() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        // A chain of 20 times the same 4 MiB.
        guest.put_request(0, 0, READ, 0, &[], 512);
        guest.put_descriptor(0, 0, Guest::slot_at(0, 0), 16, NEXT, 10);
        for index in 10..30 {
            guest.put_descriptor(0, index, DATA_AT + (2 << 20), 4 << 20, NEXT | WRITABLE, index + 1);
        }
        guest.put_descriptor(0, 30, DATA_AT + (1 << 20), 1, WRITABLE, 0);
        guest.make_available(0, 0);
        front_end.kick(0).await;
        assert_eq!(front_end.until_used(&mut guest, 0, 1).await, [0]);
        assert_eq!(guest.get(DATA_AT + (1 << 20), 1), [1], "it failed");
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 512).await.0, 0);
    });
}

/// A file in tmpfs, whose size can be changed.
fn changeable(length_bytes: u64) -> File {
    let file = tempfile::tempfile_in("/dev/shm").expect("a file in tmpfs");
    file.set_len(length_bytes).expect("extended");
    file
}

#[test]
fn memory_taken_away_ends_its_connection_alone() {
    // Before a kick, so that the ring is gone, and with the data gone alone.
    for kept_bytes in [0, DATA_AT] {
        with_served(VhostLimits::default(), false, |served| async move {
            let socket = served.socket("tank/v");
            let (good, mut its_guest) = running(&served.network, &served.context, &socket, 1).await;
            let mut guest = Guest::with_memory(changeable(MEMORY_BYTES), 1);
            let bad = join(&served.network, &served.context, &socket, &guest).await;
            assert_eq!(bad.execute(&mut guest, 0, (WRITE, 0), &[7; 4096], 0).await.0, 0);
            guest.put_request(0, 0, WRITE, 0, &[8; 4096], 0);
            guest.make_available(0, 0);
            guest.memory.set_len(kept_bytes).expect("truncated");
            bad.kick(0).await;
            bad.until_closed().await;
            served.until_notice("was truncated").await;
            let read = good.execute(&mut its_guest, 0, (READ, 0), &[], 4096).await;
            assert_eq!(read, (0, vec![7; 4096]), "nothing of the missing memory was written");
        });
    }
}

#[test]
fn memory_that_is_not_there_is_refused() {
    with_served(VhostLimits::default(), false, |served| async move {
        let socket = served.socket("tank/v");
        let program = std::env::current_exe().expect("this program");
        let cases: [(File, Vec<u8>); 5] = [
            (changeable(4096), memory_table(MEMORY_BYTES)),
            (changeable(4096), memory_table(u64::MAX)),
            (changeable(MEMORY_BYTES), memory_table(0)),
            (File::open(program).expect("a file on a disk"), memory_table(4096)),
            (File::open("/dev/shm").expect("a folder"), memory_table(4096)),
        ];
        for (file, table) in cases {
            let front_end = FrontEnd::connect(&served.network, &served.context, &socket).await;
            front_end.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
            front_end.send_wrong(5, &table, Some(&file.into())).await;
        }
        let front_end = FrontEnd::connect(&served.network, &served.context, &socket).await;
        front_end.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
        front_end.send_wrong(5, &memory_table(4096), None).await;
    });
}

#[test]
fn malformed_messages_end_their_connection_alone() {
    with_served(VhostLimits::default(), false, |served| async move {
        let socket = served.socket("tank/v");
        let (good, mut its_guest) = running(&served.network, &served.context, &socket, 1).await;
        let messages: [(u32, Vec<u8>); 8] = [
            (0, vec![]),
            (63, vec![]),
            (2, vec![1]),
            (2, number(u64::MAX)),
            (8, pair(1000, 8)),
            (31, vec![0xff; 24]),
            (5, pair(u32::MAX, 0)),
            (12, number(0x100)),
        ];
        for (code, body) in messages {
            let bad = FrontEnd::connect(&served.network, &served.context, &socket).await;
            bad.send(code, 0, &body, None);
            bad.until_closed().await;
        }
        for head in [[1, 0, 0], [1, 1, u32::MAX], [1, 5, 0]] {
            let bad = FrontEnd::connect(&served.network, &served.context, &socket).await;
            bad.stream.send_at_once(&head.map(u32::to_le_bytes).concat(), None).expect("sent");
            bad.until_closed().await;
        }
        // A kick that is no eventfd.
        let bad = FrontEnd::connect(&served.network, &served.context, &socket).await;
        bad.send(12, 0, &number(0), Some(&changeable(8).into()));
        bad.until_closed().await;
        assert_eq!(good.execute(&mut its_guest, 0, (READ, 0), &[], 512).await.0, 0);
    });
}

#[test]
fn a_front_end_that_stops_half_way_is_dropped() {
    let limits = VhostLimits { message_stall_ns: 50_000_000, ..VhostLimits::default() };
    with_served(limits, false, |served| async move {
        let bad = FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
        bad.stream.send_at_once(&[1, 0, 0], None).expect("sent");
        bad.until_closed().await;
        served.until_notice("stopped within a message").await;
        let bad = FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
        bad.stream
            .send_at_once(&[[2, 1, 8].map(u32::to_le_bytes).concat(), vec![0; 7]].concat(), None)
            .expect("sent");
        bad.until_closed().await;
    });
}

#[test]
fn rings_outside_the_memory_are_refused() {
    with_served(VhostLimits::default(), false, |served| async move {
        for (size, addresses) in [
            (64, [0x7000_0000_0000 + MEMORY_BYTES - 16, 0x7000_0000_1000, 0x7000_0000_2000, 0]),
            (64, [0x7000_0000_0001, 0x7000_0000_1000, 0x7000_0000_2000, 0]),
            (64, [0x7000_0000_0000, 0x7000_0000_1002, 0x7000_0000_2000, 0]),
            (63, [0x7000_0000_0000, 0x7000_0000_1000, 0x7000_0000_2000, 0]),
            (0x8000, [0x7000_0000_0000, 0x7000_0000_1000, 0x7000_0000_2000, 0]),
        ] {
            let guest = Guest::new(1);
            let bad = FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
            bad.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
            bad.share(&guest.memory).await;
            bad.set(8, &pair(0, size), None).await;
            bad.set(9, &[pair(0, 0), addresses.map(u64::to_le_bytes).concat()].concat(), None).await;
            let kick = make_event_file().expect("an eventfd");
            bad.set(12, &number(0), Some(&kick)).await;
            bad.send_wrong(18, &pair(0, 1), None).await;
        }
    });
}

#[test]
fn a_full_signal_keeps_no_queue_from_ending() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        // Its count is as high as it can be, and nothing reads it.
        let call = make_event_file().expect("an eventfd");
        let file = File::from(call.try_clone().expect("a descriptor"));
        std::io::Write::write_all(&mut &file, &(u64::MAX - 1).to_ne_bytes()).expect("counted");
        front_end.set(13, &number(0), Some(&call)).await;
        for answered in 1..10 {
            guest.put_request(0, 0, READ, 0, &[], 512);
            guest.make_available(0, 0);
            front_end.kick(0).await;
            served.until("an answer", || guest.used_index(0) == answered).await;
        }
        let (state, _) = front_end.ask(11, &pair(0, 0)).await;
        assert_eq!(state, pair(0, 9), "the queue has stopped");
    });
}

async fn is_turned_away(served: &Rc<Served>) {
    let one_more = FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
    one_more.until_closed().await;
    served.until_notice("too many").await;
}

#[test]
fn front_ends_are_limited() {
    let limits = VhostLimits { clients_of_one: 2, ..VhostLimits::default() };
    with_served(limits, false, |served| async move {
        let socket = served.socket("tank/v");
        let first = FrontEnd::connect(&served.network, &served.context, &socket).await;
        first.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
        let second = FrontEnd::connect(&served.network, &served.context, &socket).await;
        second.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
        is_turned_away(&served).await;
        drop(first);
        served.until("it left", || served.server.status().clients == 1).await;
        let third = FrontEnd::connect(&served.network, &served.context, &socket).await;
        third.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
    });
}
