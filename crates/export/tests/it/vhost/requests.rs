//! Requests of a well-behaved guest.

use stripewise_export::vhost::VhostLimits;

use super::front_end::*;
use super::with_served;
use crate::kit::{MIB, contents};

const DONE: u8 = 0;
const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 2;

#[test]
fn written_data_is_read_back() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        for (sector, length) in [(0, 4096), (8, 512), (9, 100 << 10), ((64 * MIB - 4096) / 512, 4096)] {
            let written = contents(sector, length);
            let outcome = front_end.execute(&mut guest, 0, (WRITE, sector), &written, 0).await;
            assert_eq!(outcome.0, DONE, "sector {sector}");
            let (status, read) = front_end.execute(&mut guest, 0, (READ, sector), &[], length as u32).await;
            assert!(status == DONE && read == written, "sector {sector}");
        }
        assert_eq!(front_end.execute(&mut guest, 0, (FLUSH, 0), &[], 0).await.0, DONE);
        let (status, name) = front_end.execute(&mut guest, 0, (GET_ID, 0), &[], 20).await;
        assert_eq!((status, &name[..]), (DONE, &b"tank/v\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..]));
        assert_eq!(front_end.execute(&mut guest, 0, (99, 0), &[], 0).await.0, UNSUPPORTED);
        // The volume has the guest's data.
        let volume = served.pool.volume("v").expect("a volume");
        assert_eq!(volume.read(4096, 512).await.expect("read").to_vec(), contents(8, 512));
    });
}

#[test]
fn ranges_beyond_the_end_fail_and_change_nothing() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        let last = 64 * MIB / 512 - 1;
        let range = |sector: u64, sectors: u32, flags: u32| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        };
        for sector in [last, last + 1, u64::MAX / 512, u64::MAX] {
            assert_eq!(front_end.execute(&mut guest, 0, (WRITE, sector), &[1; 1024], 0).await.0, FAILED);
            assert_eq!(front_end.execute(&mut guest, 0, (READ, sector), &[], 1024).await.0, FAILED);
            for kind in [DISCARD, WRITE_ZEROES] {
                let wrong = range(sector, 2, 0);
                assert_eq!(front_end.execute(&mut guest, 0, (kind, 0), &wrong, 0).await.0, FAILED);
            }
        }
        // No whole sectors.
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &[1; 100], 0).await.0, FAILED);
        assert_eq!(front_end.execute(&mut guest, 0, (DISCARD, 0), &[0; 15], 0).await.0, FAILED);
        assert_eq!(front_end.execute(&mut guest, 0, (DISCARD, 0), &range(0, 8, 2), 0).await.0, UNSUPPORTED);
        let (status, read) = front_end.execute(&mut guest, 0, (READ, last), &[], 512).await;
        assert_eq!((status, read), (DONE, vec![0; 512]));
    });
}

#[test]
fn zeroed_ranges_read_as_zeros() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        let written = contents(1, 64 << 10);
        for flags in [0_u32, 1] {
            assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &written, 0).await.0, DONE);
            // Two ranges: the first sector, and the last 8.
            let ranges = [(0_u64, 1_u32), (120, 8)].map(|(sector, sectors)| {
                [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
            });
            let outcome = front_end.execute(&mut guest, 0, (WRITE_ZEROES, 0), &ranges.concat(), 0).await;
            assert_eq!(outcome.0, DONE);
            let (_, read) = front_end.execute(&mut guest, 0, (READ, 0), &[], 64 << 10).await;
            assert!(read[..512].iter().chain(&read[120 * 512..]).all(|byte| *byte == 0));
            assert_eq!(read[512..120 * 512], written[512..120 * 512]);
        }
        let all = [&0_u64.to_le_bytes()[..], &(64 * MIB as u32 / 512).to_le_bytes(), &[0; 4]].concat();
        assert_eq!(front_end.execute(&mut guest, 0, (DISCARD, 0), &all, 0).await.0, DONE);
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 64 << 10).await.1, vec![0; 64 << 10]);
    });
}

#[test]
fn read_only_volumes_refuse_changes() {
    with_served(VhostLimits::default(), true, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        assert_ne!(front_end.ask_number(1).await & (1 << 5), 0, "the feature that says so");
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &[1; 512], 0).await.0, FAILED);
        for kind in [DISCARD, WRITE_ZEROES] {
            let range = [&[0; 8][..], &[8, 0, 0, 0], &[0; 4]].concat();
            assert_eq!(front_end.execute(&mut guest, 0, (kind, 0), &range, 0).await.0, FAILED);
        }
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 512).await, (DONE, vec![0; 512]));
    });
}

#[test]
fn queues_run_side_by_side() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 2).await;
        assert!(front_end.ask_number(17).await >= 2);
        for round in 0..20_u64 {
            for (queue, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let sector = (round * 4 + queue as u64 * 2 + u64::from(slot)) * 8;
                guest.put_request(queue, slot, WRITE, sector, &contents(sector, 4096), 0);
                guest.make_available(queue, 3 * slot);
            }
            for queue in 0..2 {
                // As a guest does: only if the device asked for it.
                if guest.wants_kick(queue) {
                    front_end.kick(queue).await;
                }
            }
            for queue in 0..2 {
                let mut heads = front_end.until_used(&mut guest, queue, 2).await;
                heads.sort_unstable();
                assert_eq!(heads, [0, 3]);
                assert_eq!([guest.status(queue, 0), guest.status(queue, 1)], [DONE; 2]);
            }
        }
        for sector in (0..80 * 8).step_by(8) {
            let (status, read) = front_end.execute(&mut guest, 1, (READ, sector), &[], 4096).await;
            assert!(status == DONE && read == contents(sector, 4096), "sector {sector}");
        }
    });
}

#[test]
fn indirect_tables_and_scattered_data_are_followed() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        let table = Guest::queue_at(0) + TABLES_AT;
        // The head in two parts, data in three, and the status at the end of the last.
        let put = |guest: &mut Guest, kind: u32, data_flags: u16| {
            guest.put(DATA_AT, &[&kind.to_le_bytes()[..], &[0; 12]].concat());
            guest.put_descriptor(table, 0, DATA_AT, 4, NEXT, 1);
            guest.put_descriptor(table, 1, DATA_AT + 4, 12, NEXT, 2);
            guest.put_descriptor(table, 2, DATA_AT + 0x1000, 100, NEXT | data_flags, 3);
            guest.put_descriptor(table, 3, DATA_AT + 0x3000, 400, NEXT | data_flags, 4);
            guest.put_descriptor(table, 4, DATA_AT + 0x5000, 12, NEXT | data_flags, 5);
            guest.put_descriptor(table, 5, DATA_AT + 0x7000, 1, WRITABLE, 0);
            guest.put_descriptor(Guest::queue_at(0), 7, table, 6 * 16, INDIRECT, 0);
            guest.make_available(0, 7);
        };
        let pieces = [(DATA_AT + 0x1000, 100), (DATA_AT + 0x3000, 400), (DATA_AT + 0x5000, 12)];
        let written = contents(5, 512);
        let mut rest = &written[..];
        for (at, length) in pieces {
            guest.put(at, &rest[..length]);
            rest = &rest[length..];
        }
        for (kind, flags) in [(WRITE, 0), (READ, WRITABLE)] {
            if kind == READ {
                pieces.iter().for_each(|(at, length)| guest.put(*at, &vec![0; *length]));
            }
            put(&mut guest, kind, flags);
            front_end.kick(0).await;
            assert_eq!(front_end.until_used(&mut guest, 0, 1).await, [7]);
            assert_eq!(guest.get(DATA_AT + 0x7000, 1), [DONE]);
        }
        let read: Vec<u8> = pieces.iter().flat_map(|(at, length)| guest.get(*at, *length)).collect();
        assert_eq!(read, written);
    });
}

#[test]
fn without_event_indexes_signals_follow_the_flag() {
    with_served(VhostLimits::default(), false, |served| async move {
        let mut guest = Guest::new(1);
        let mut front_end =
            FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
        front_end.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
        front_end.share(&guest.memory).await;
        front_end.start_queues(&guest).await;
        // Without FLUSH, each write is durable when it is answered.
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &[7; 512], 0).await.0, DONE);
        // The guest polls: no signal comes.
        guest.put(Guest::queue_at(0) + 0x2000, &1_u16.to_le_bytes());
        guest.put_request(0, 0, READ, 0, &[], 512);
        guest.make_available(0, 0);
        front_end.kick(0).await;
        served.until("an answer", || guest.used_index(0) == 2).await;
        guest.put(Guest::queue_at(0) + 0x2000, &0_u16.to_le_bytes());
        assert_eq!(guest.take_used(0), [0]);
        assert_eq!(guest.data(0, 0, 512), [7; 512]);
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 512).await, (DONE, vec![7; 512]));
    });
}

#[test]
fn the_configuration_describes_the_volume() {
    with_served(VhostLimits::default(), false, |served| async move {
        let front_end = FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
        front_end.negotiate(PROTOCOL_FEATURES | VERSION_1).await;
        let head = [0_u32, 60, 0].map(u32::to_le_bytes).concat();
        let (answer, _) = front_end.ask(24, &[head.clone(), vec![0; 60]].concat()).await;
        let (told, config) = answer.split_at(12);
        assert_eq!(told, head);
        let word = |at: usize| u32::from_le_bytes(config[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((u64::from(word(0)) + (u64::from(word(4)) << 32)) * 512, 64 * MIB);
        assert_eq!((word(20), config[24]), (512, 3), "blocks of 512 bytes, physical ones of 4 KiB");
        assert!(word(12) > 0 && word(36) > 0 && word(48) > 0);
    });
}
