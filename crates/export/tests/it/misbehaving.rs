//! Clients that send malformed data, stop half-way, never read, or are too many: each is answered
//! or disconnected, and other clients are served as usual.

use crate::damage::damage;
use crate::kit;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::kit::client::{
    Client, DISC, ERROR, FLUSH, OPT_ABORT, OPT_EXPORT_NAME, OPT_GO, OPT_INFO, OPT_LIST_META_CONTEXT,
    OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY, READ, WRITE, info, option_bytes, request_bytes,
};
use crate::kit::{MIB, Served, Wanted, contents};
use stripewise_export::nbd::{Limits, fuzzing};

const SECOND_NS: u64 = 1_000_000_000;

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that other clients are served as usual.
fn all_is_well(served: &Served) {
    let mut client = Client::ready(&served.socket, "tank/data");
    let bytes = contents(42, 10_000);
    client.write(777, &bytes);
    assert!(client.read(777, 10_000) == bytes);
    client.request(DISC, 0, 0, 0, 0);
    assert!(client.is_closed());
}

fn short_limits() -> Limits {
    Limits {
        negotiation_ns: SECOND_NS / 5,
        request_stall_ns: SECOND_NS / 5,
        reply_stall_ns: SECOND_NS / 2,
        ..Limits::default()
    }
}

/// Random input of a client: valid options and requests, then with bytes changed, truncated,
/// duplicated or invented.
fn malformed(seed: u64) -> Vec<u8> {
    let mut random = stripewise_drive::SplitMix64::new(seed);
    let name = ["tank/data", "", "tank/none", "\u{e9}"][random.below(4) as usize];
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    for _ in 0..random.below(4) {
        let option = random.below(13) as u32;
        let data = match option {
            OPT_INFO | OPT_GO => info(name, &[0, 1, 2, 3, 9]),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => {
                kit::client::meta_context(name, &["base:allocation", "base:", "x"])
            }
            _ => vec![b'x'; random.below(3) as usize * 10],
        };
        bytes.extend(option_bytes(option, &data));
    }
    for _ in 0..random.below(5) {
        let length = [0, 1, 512, 4096, 1 << 25, u32::MAX][random.below(6) as usize];
        let offset = [0, 1, 64 * MIB - 512, u64::MAX - 100][random.below(4) as usize];
        let request = request_bytes(
            random.below(10) as u16,
            random.below(64) as u16,
            random.next_u64(),
            offset,
            length,
        );
        bytes.extend(request);
        bytes.extend(vec![0xAB; random.below(600) as usize]);
    }
    damage(&mut bytes, &mut random);
    bytes
}

#[test]
fn parsers_survive_a_thousand_malformed_inputs() {
    for seed in 0..1000 {
        let bytes = malformed(seed);
        for choice in [0, 0x7f] {
            let input = [&[choice], &bytes[..]].concat();
            fuzzing::client_bytes(&input);
        }
    }
}

#[test]
fn a_server_survives_a_thousand_malformed_inputs() {
    let served = Served::start(Wanted { limits: short_limits(), ..Wanted::default() });
    for group in 0..50 {
        let clients: Vec<_> = (0..20)
            .map(|index| {
                let socket = served.socket.clone();
                std::thread::spawn(move || {
                    let mut client = Client::connect_silently(&socket);
                    // The server may disconnect before all of it is sent.
                    let _ = client.stream.write_all(&malformed(group * 20 + index));
                    let _ = client.stream.shutdown(std::net::Shutdown::Write);
                    // The server closes the connection after any input.
                    let mut rest = Vec::new();
                    match client.stream.read_to_end(&mut rest) {
                        Ok(_) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}")
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("closed by the server"));
    }
    all_is_well(&served);
}

#[test]
fn stalled_requests_time_out_and_idle_clients_stay() {
    let served = Served::start(Wanted { limits: short_limits(), ..Wanted::default() });
    let mut patient = Client::ready(&served.socket, "tank/data");
    // Stalls at the start, in an option, in a request, and in a payload.
    let mut silent = Client::connect_silently(&served.socket);
    silent.receive(18);
    let mut half_option = Client::connect(&served.socket);
    half_option.send(&option_bytes(OPT_GO, &info("tank/data", &[]))[..20]);
    let mut half_request = Client::ready(&served.socket, "tank/data");
    half_request.send(&request_bytes(READ, 0, 1, 0, 512)[..27]);
    let mut half_payload = Client::ready(&served.socket, "tank/data");
    half_payload.send(&request_bytes(WRITE, 0, 1, 0, 8 << 20));
    half_payload.send(&vec![9; 3 << 20]);
    for client in [&mut silent, &mut half_option, &mut half_request, &mut half_payload] {
        assert!(client.is_closed());
    }
    served.wait_for_notice("negotiation took longer");
    served.wait_for_notice("stopped in the middle of a request");
    assert_eq!(patient.read(0, 512), [0; 512], "and nothing of half a write was written");
    all_is_well(&served);
}

#[test]
fn clients_that_read_no_replies_are_disconnected() {
    let limits = Limits { reply_stall_ns: 2 * SECOND_NS, ..Limits::default() };
    let served = Served::start(Wanted { limits, ..Wanted::default() });
    let mut other = Client::ready(&served.socket, "tank/data");
    for at in 0..8 {
        other.write(at << 20, &contents(at, 1 << 20));
    }
    let mut deaf = Client::ready(&served.socket, "tank/data");
    deaf.stream.set_write_timeout(Some(Duration::from_millis(100))).expect("set");
    // The kernel's buffers and the server's inbox hold some thousands; it would be 20,000 if the
    // server kept reading.
    let mut sent = 0;
    while sent < 20_000 && deaf.stream.write_all(&request_bytes(READ, 0, sent, 0, 16 << 10)).is_ok() {
        sent += 1;
    }
    assert!(sent < 10_000, "the server keeps reading requests: {sent}");
    assert!(other.read(1 << 20, 1 << 20) == contents(1, 1 << 20));
    served.wait_for_notice("did not read its replies");
    all_is_well(&served);
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    let limits = Limits { clients: 3, place_ns: SECOND_NS / 5, ..Limits::default() };
    let served = Served::start(Wanted { limits, tcp: true, ..Wanted::default() });
    let mut clients: Vec<_> = (0..3).map(|_| Client::ready(&served.socket, "tank/data")).collect();
    // Every option of the next client gets the reason.
    let mut fourth = Client::connect(&served.socket);
    for (option, data) in
        [(OPT_STRUCTURED_REPLY, vec![]), (OPT_GO, info("tank/data", &[3])), (OPT_ABORT, vec![])]
    {
        let replies = fourth.option(option, &data);
        assert_eq!(replies[0].0, ERROR + 2, "{replies:?}");
        assert!(String::from_utf8_lossy(&replies[0].1).contains("too many clients"), "{replies:?}");
    }
    assert!(fourth.is_closed());
    served.wait_for_notice("too many clients");
    // A client that cannot be sent an error, and one that sends nothing.
    let mut old = Client::connect(&served.socket);
    old.send(&option_bytes(OPT_EXPORT_NAME, b"tank/data"));
    assert!(old.is_closed());
    let mut silent = Client::connect_silently(&served.socket);
    silent.receive(18);
    assert!(silent.is_closed());
    assert_eq!(served.notices_of("too many clients"), 3);
    assert_eq!(clients[0].read(0, 512), [0; 512]);
    drop(clients.pop());
    served.wait_for_notice("disconnected from tank/data");
    let mut again = Client::ready(&served.socket, "tank/data");
    assert_eq!(again.read(0, 512), [0; 512]);
}

/// A disconnected client may hold its slot for a moment.
#[test]
fn a_client_waits_for_a_free_connection_slot() {
    let limits = Limits { clients: 3, ..Limits::default() };
    let served = Served::start(Wanted { limits, tcp: true, ..Wanted::default() });
    let clients: Vec<_> = (0..3).map(|_| Client::ready(&served.socket, "tank/data")).collect();
    let mut waiting = Client::connect_silently(&served.socket);
    waiting.stream.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    assert!(waiting.stream.read(&mut [0]).is_err(), "neither accepted nor closed");
    waiting.stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    drop(clients);
    waiting.receive(18);
    assert_eq!(served.notices_of("too many clients"), 0);
    all_is_well(&served);
}

/// Three hundred clients at once with eight slots, while others keep the server busy.
#[test]
fn hundreds_of_simultaneous_clients_are_served() {
    // Each stays as briefly as it can, so that none is refused even on a slow machine.
    let limits = Limits { clients: 8 + 4, place_ns: 60 * SECOND_NS, ..Limits::default() };
    let served = Served::start(Wanted { limits, ..Wanted::default() });
    let goes_on = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        for place in 0..4 {
            let mut busy = Client::ready(&served.socket, "tank/data");
            let (goes_on, bytes) = (&goes_on, contents(place, 1 << 20));
            scope.spawn(move || {
                while goes_on.load(std::sync::atomic::Ordering::Relaxed) {
                    busy.write((32 + place) << 20, &bytes);
                    assert!(busy.read((32 + place) << 20, 1 << 20) == bytes);
                }
            });
        }
        let comers: Vec<_> = (0..300)
            .map(|number| {
                let socket = &served.socket;
                scope.spawn(move || {
                    let mut client = Client::ready(socket, "tank/data");
                    let bytes = contents(number, 4096);
                    client.write(number * 4096, &bytes);
                    assert!(client.read(number * 4096, 4096) == bytes);
                })
            })
            .collect();
        let served_all: Vec<bool> = comers.into_iter().map(|comer| comer.join().is_ok()).collect();
        goes_on.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(served_all.iter().all(|is_ok| *is_ok), "{:?}", served.notices.lock());
    });
    assert_eq!(
        served.notices_of("dropped") + served.notices_of("too many"),
        0,
        "{:?}",
        served.notices.lock()
    );
}

/// Each turn of the server takes longer than the negotiation timeout.
#[test]
fn a_slow_server_does_not_time_out_its_clients() {
    let limits =
        Limits { negotiation_ns: SECOND_NS / 10, request_stall_ns: SECOND_NS / 10, ..Limits::default() };
    let served = Served::start(Wanted { limits, stands_still_ms: 150, ..Wanted::default() });
    let mut client = Client::ready(&served.socket, "tank/data");
    let bytes = contents(3, 30_000);
    client.write(4096, &bytes);
    assert!(client.read(4096, 30_000) == bytes);
    assert_eq!(served.notices_of("dropped"), 0, "{:?}", served.notices.lock());
    // A silent client is still disconnected.
    let mut silent = Client::connect_silently(&served.socket);
    silent.receive(18);
    assert!(silent.is_closed());
    served.wait_for_notice("negotiation took longer");
}

/// The protocol has no reply here, so the reason goes to the log.
#[test]
fn dropped_clients_are_logged_with_the_reason() {
    let served = Served::start(Wanted::default());
    let mut client = Client::connect(&served.socket);
    client.send(&option_bytes(OPT_EXPORT_NAME, b"tank/none"));
    assert!(client.is_closed());
    served.wait_for_notice("dropped: it asked for the unknown export \"tank/none\"");
    let mut client = Client::ready(&served.socket, "tank/data");
    served.wait_for_notice(&format!("process {} (connection 1) uses tank/data", std::process::id()));
    client.send(&[0; 28]);
    served.wait_for_notice("which used tank/data, was dropped: malformed request");
}

#[test]
fn oversized_option_lengths_take_no_memory() {
    let served = Served::start(Wanted::default());
    let mut client = Client::connect(&served.socket);
    client.send(&[&b"IHAVEOPT"[..], &7_u32.to_be_bytes(), &u32::MAX.to_be_bytes()].concat());
    let answer = client.receive(20);
    assert_eq!(answer[12..16], (ERROR + 9).to_be_bytes());
    client.receive(u32::from_be_bytes(answer[16..20].try_into().expect("four")) as usize);
    assert!(client.is_closed());
    let mut client = Client::connect(&served.socket);
    let lies = [&u32::MAX.to_be_bytes()[..], b"tank/data", &[0, 0]].concat();
    assert_eq!(client.option(OPT_GO, &lies)[0].0, ERROR + 3);
    let lies = [&9_u32.to_be_bytes()[..], b"tank/data", &u32::MAX.to_be_bytes()].concat();
    assert_eq!(client.option(OPT_LIST_META_CONTEXT, &lies)[0].0, ERROR + 3);
    all_is_well(&served);
}

#[test]
fn shutdown_finishes_and_answers_pending_requests() {
    let mut served = Served::start(Wanted::default());
    let idle = Client::ready(&served.socket, "tank/data");
    let negotiating = Client::connect(&served.socket);
    let mut busy = Client::ready(&served.socket, "tank/data");
    let bytes = contents(5, 1 << 20);
    for cookie in 0..32 {
        busy.request(WRITE, 0, cookie, cookie << 20, 1 << 20);
        busy.send(&bytes);
    }
    let (first, _, _) = busy.answer();
    served.ask_to_end();
    // Every received request is answered before the server closes.
    let mut answered = vec![first];
    let mut head = [0; 16];
    while busy.stream.read_exact(&mut head).is_ok() {
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        answered.push(u64::from_be_bytes(head[8..].try_into().expect("eight")));
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..answered.len() as u64).collect::<Vec<_>>());
    for mut client in [idle, negotiating] {
        assert!(client.is_closed());
    }
    assert!(served.end(), "nothing is left");
    assert!(!served.socket.exists());
}

#[test]
fn a_client_that_never_reads_cannot_block_shutdown() {
    let limits = Limits { end_ns: SECOND_NS / 2, ..Limits::default() };
    let mut served = Served::start(Wanted { limits, ..Wanted::default() });
    let mut deaf = Client::ready(&served.socket, "tank/data");
    deaf.write(0, &contents(1, 1 << 20));
    for cookie in 0..30 {
        deaf.request(READ, 0, cookie, 0, 1 << 20);
    }
    deaf.request(FLUSH, 0, 99, 0, 0);
    std::thread::sleep(Duration::from_millis(100));
    assert!(served.end(), "nothing is left");
}

#[test]
fn closing_a_pool_answers_and_disconnects_clients() {
    let served = Served::start(Wanted::default());
    let mut idle = Client::ready(&served.socket, "tank/data");
    let mut negotiating = Client::connect(&served.socket);
    let mut busy = Client::ready(&served.socket, "tank/data");
    let bytes = contents(5, 1 << 20);
    busy.write(0, &bytes);
    // More than the kernel buffers for a client, sent at once, so that all of it is in flight when
    // the first is answered.
    let requests: Vec<u8> =
        (0..100).flat_map(|cookie| request_bytes(READ, 0, cookie, (cookie % 16) << 16, 1 << 16)).collect();
    busy.send(&requests);
    let mut answered = vec![busy.answer()];
    served.close_pool();
    assert!(idle.is_closed(), "its export is gone");
    answered.extend((1..100).map(|_| busy.answer()));
    for (cookie, _, payload) in answered {
        let at = (cookie as usize % 16) << 16;
        assert!(payload[8..] == bytes[at..at + (1 << 16)], "read {cookie}");
    }
    assert!(busy.is_closed());
    let told = || served.notices_of("which used tank/data, was dropped: its volume is no longer served");
    wait_until("both are in the log", || told() == 2);
    // A later client gets an error for an unknown export.
    assert_eq!(negotiating.option(OPT_GO, &info("tank/data", &[3])).last().expect("an answer").0, ERROR + 6);
}
