//! Sessions: starting and stopping queues, changes of memory and size, and front ends that come
//! back.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::pin::pin;

use stripewise_export::vhost::VhostLimits;
use stripewise_layout::LayoutSpec;
use stripewise_pool::VolumeSpec;

use super::front_end::*;
use super::with_served;
use crate::kit::{MIB, contents};

#[test]
fn a_stopped_queue_goes_on_where_it_was() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (mut front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        for sector in 0..5 {
            assert_eq!(front_end.execute(&mut guest, 0, (WRITE, sector), &[7; 512], 0).await.0, 0);
        }
        let (state, _) = front_end.ask(11, &pair(0, 0)).await;
        assert_eq!(state, pair(0, 5));
        // Nothing is taken while the queue is stopped.
        guest.put_request(0, 0, READ, 0, &[], 512);
        guest.make_available(0, 0);
        front_end.start_queues(&guest).await;
        assert_eq!(front_end.until_used(&mut guest, 0, 1).await, [0]);
        assert_eq!(guest.data(0, 0, 512), [7; 512]);
        front_end.set(34, &[], None).await;
        front_end.negotiate(EVENT_IDX | PROTOCOL_FEATURES | FLUSHES | VERSION_1).await;
        front_end.start_queues(&guest).await;
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 512).await, (0, vec![7; 512]));
    });
}

#[test]
fn memory_is_added_and_removed_while_queues_run() {
    with_served(VhostLimits::default(), false, |served| async move {
        let mut guest = Guest::new(1);
        let mut front_end =
            FrontEnd::connect(&served.network, &served.context, &served.socket("tank/v")).await;
        front_end.negotiate(EVENT_IDX | PROTOCOL_FEATURES | FLUSHES | VERSION_1).await;
        let file: OwnedFd = guest.memory.try_clone().expect("a descriptor").into();
        let part = |at: u64, length: u64| [vec![0; 8], region(at, length)].concat();
        assert!(front_end.ask_number(36).await >= 8);
        // The second begins within the data of slot 0, which then extends over both.
        let second = Guest::slot_at(0, 0) + 1024;
        front_end.set(37, &part(0, 4096 * (second / 4096)), Some(&file)).await;
        front_end.start_queues(&guest).await;
        let rest = 4096 * (second / 4096);
        front_end.set(37, &part(rest, MEMORY_BYTES - rest), Some(&file)).await;
        let written = contents(1, 64 << 10);
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &written, 0).await.0, 0);
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 64 << 10).await, (0, written));
        front_end.set(38, &part(rest, MEMORY_BYTES - rest), None).await;
        guest.put_request(0, 0, READ, 0, &[], 512);
        guest.make_available(0, 0);
        front_end.kick(0).await;
        front_end.until_closed().await;
        served.until_notice("refers to no memory").await;
    });
}

#[test]
fn a_resize_is_announced() {
    with_served(VhostLimits::default(), false, |served| async move {
        let (front_end, mut guest) =
            running(&served.network, &served.context, &served.socket("tank/v"), 1).await;
        let (own, theirs) = UnixStream::pair().expect("sockets");
        front_end.set(21, &[], Some(&theirs.into())).await;
        let first_new = 64 * MIB / 512;
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, first_new), &[1; 512], 0).await.0, 1);
        served.pool.resize_volume("v", 80 * MIB).await.expect("resized");
        let own = served.network.adopt_unix(own.into());
        let (mut message, mut files) = ([0; 12], Vec::new());
        let received = {
            let receiving = pin!(own.receive_with_descriptors(&mut message, &mut files));
            served.context.time_limit_ns(30_000_000_000, receiving).await
        };
        assert_eq!(received.expect("announced in time").expect("received"), 12);
        assert_eq!(message, [2_u32, 1, 0].map(u32::to_le_bytes).concat()[..]);
        let (config, _) =
            front_end.ask(24, &[[0_u32, 8, 0].map(u32::to_le_bytes).concat(), vec![0; 8]].concat()).await;
        assert_eq!(config[12..], (80 * MIB / 512).to_le_bytes());
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, first_new), &[1; 512], 0).await.0, 0);
    });
}

#[test]
fn requests_left_in_flight_are_done_once() {
    with_served(VhostLimits::default(), false, |served| async move {
        let socket = served.socket("tank/v");
        let mut guest = Guest::new(1);
        let mut front_end = FrontEnd::connect(&served.network, &served.context, &socket).await;
        let inflight = {
            front_end.negotiate(EVENT_IDX | PROTOCOL_FEATURES | FLUSHES | VERSION_1).await;
            front_end.get_inflight(1).await
        };
        front_end.share(&guest.memory).await;
        front_end.set_inflight(&inflight).await;
        front_end.start_queues(&guest).await;
        for sector in 0..5 {
            assert_eq!(front_end.execute(&mut guest, 0, (WRITE, sector), &[1; 512], 0).await.0, 0);
        }
        drop(front_end);
        served.until("it left", || served.server.status().clients == 0).await;
        // As a process leaves it that was killed with three requests in flight, begun in this
        // order: they write the same sector.
        for (order, slot) in [(100_u64, 2_u16), (101, 1), (102, 3)] {
            guest.put_request(0, slot, WRITE, 9, &[slot as u8; 512], 0);
            guest.make_available(0, 3 * slot);
            let entry = 16 + 16 * u64::from(3 * slot);
            inflight.file.write_all_at(&order.to_le_bytes(), entry + 8).expect("recorded");
            inflight.file.write_all_at(&[1], entry).expect("recorded");
        }
        // One more that was not begun.
        guest.put_request(0, 4, READ, 0, &[], 512);
        guest.make_available(0, 12);
        let mut front_end = FrontEnd::connect(&served.network, &served.context, &socket).await;
        front_end.set_up(&guest, Some(&inflight)).await;
        let mut heads = front_end.until_used(&mut guest, 0, 4).await;
        heads.sort_unstable();
        assert_eq!(heads, [3, 6, 9, 12]);
        assert_eq!([1, 2, 3, 4].map(|slot| guest.status(0, slot)), [0; 4]);
        assert_eq!(guest.data(0, 4, 512), [1; 512]);
        // None is left: another start repeats nothing.
        drop(front_end);
        served.until("it left", || served.server.status().clients == 0).await;
        let mut front_end = FrontEnd::connect(&served.network, &served.context, &socket).await;
        front_end.set_up(&guest, Some(&inflight)).await;
        assert_eq!(front_end.execute(&mut guest, 0, (READ, 0), &[], 512).await, (0, vec![1; 512]));
        assert_eq!(guest.used_index(0), 10);
    });
}

#[test]
fn sockets_follow_the_volumes() {
    with_served(VhostLimits::default(), false, |served| async move {
        let layout = LayoutSpec::parse("raid0").expect("a layout");
        let size_bytes = Some(16 * MIB);
        served
            .pool
            .create_volume(VolumeSpec { size_bytes, ..VolumeSpec::new("w", layout) })
            .await
            .expect("made");
        let socket = served.socket("tank/w");
        served.until("a socket", || socket.exists()).await;
        let (front_end, mut guest) = running(&served.network, &served.context, &socket, 1).await;
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 0), &[7; 512], 0).await.0, 0);
        assert_eq!(served.server.clients_of("tank/w").len(), 1);
        drop(front_end);
        served.until("it left", || served.server.status().clients == 0).await;
        served.pool.delete_volume("w").await.expect("deleted");
        served.until("no socket", || !socket.exists()).await;
    });
}
