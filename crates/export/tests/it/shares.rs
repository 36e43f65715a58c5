//! Clients that take all they can get: clients of other listeners are served as if they were not
//! there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::kit::client::{Client, OPT_GO, READ, info, option_bytes, request_bytes};
use crate::kit::{MIB, Served, Wanted, contents};
use stripewise_export::nbd::Limits;

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Connects a client over TCP, and reads the greeting.
fn over_tcp(served: &Served) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).expect("connected");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    stream
}

#[test]
fn untaken_answers_block_no_other_listener() {
    let served = Served::start(Wanted { tcp: true, memory_bytes: 64 * MIB, ..Wanted::default() });
    let mut victim = Client::ready(&served.socket, "tank/data");
    let bytes = contents(1, 1 << 20);
    victim.write(0, &bytes);
    let deaf: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = over_tcp(&served);
            let asked = (0..31).map(|cookie| request_bytes(READ, 0, cookie, 0, 1 << 20));
            let go = option_bytes(OPT_GO, &info("tank/data", &[]));
            stream.write_all(&[3_u32.to_be_bytes().to_vec(), go].concat()).expect("sent");
            stream.write_all(&asked.collect::<Vec<_>>().concat()).expect("sent");
            stream
        })
        .collect();
    until("they hold all that they can have", || served.memory.used_bytes() >= 63 * MIB);
    let begin = Instant::now();
    for _ in 0..20 {
        assert!(victim.read(0, 4096) == bytes[..4096]);
        assert!(victim.read(0, 1 << 20) == bytes);
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    drop(deaf);
    until("all is given back", || served.memory.used_bytes() == 0);
}

#[test]
fn one_address_cannot_take_every_place() {
    // Each listener has 2 of the 16 places reserved.
    for (clients_of_one, over_it) in [(6, 6), (16, 14)] {
        let limits = Limits { clients: 16, clients_of_one, place_ns: 100_000_000, ..Limits::default() };
        let served = Served::start(Wanted { tcp: true, limits, ..Wanted::default() });
        let mut all: Vec<_> = (0..over_it).map(|_| over_tcp(&served)).collect();
        assert_eq!(served.notices_of("turned away"), 0, "{over_it} have places");
        all.push(over_tcp(&served));
        until("one more is turned away", || served.notices_of("turned away") == 1);
        let local: Vec<_> = (0..2).map(|_| Client::ready(&served.socket, "tank/data")).collect();
        drop((all, local));
    }
}
