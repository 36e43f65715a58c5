//! Connections on other threads than the volumes. The other tests run with several threads as well:
//! `STRIPEWISE_TEST_CORES=3 cargo test -p stripewise-export`.

use std::net::Shutdown;

use crate::kit::client::{BLOCK_STATUS, Client, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};
use crate::kit::{MIB, Served, Wanted, contents};

const CORES: usize = 3;
const EIO: u32 = 5;
const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

fn served() -> Served {
    Served::start(Wanted { cores: CORES, ..Wanted::default() })
}

/// One client for each shard and one more.
fn clients(served: &Served) -> Vec<Client> {
    (0..=CORES).map(|_| Client::ready(&served.socket, "tank/data")).collect()
}

#[test]
fn clients_of_all_cores_use_one_volume() {
    let served = served();
    let mut all = clients(&served);
    let bytes = contents(1, 3 << 20);
    // Aligned and not, short and long, from each core; read on the next one.
    for (index, length) in [4096, 100, 1_000_001, 3 << 20].into_iter().enumerate() {
        let at = index as u64 * (4 << 20) + index as u64 * 77;
        assert_eq!(all[index].ask(WRITE, FUA * (index as u16 % 2), at, length as u32, &bytes[..length]), 0);
        let next = (index + 1) % all.len();
        assert!(all[next].read(at, length as u32) == bytes[..length], "{length} bytes at {at}");
    }
    assert_eq!(all[0].ask(WRITE_ZEROES, FUA, 0, 1 << 20, &[]), 0);
    assert_eq!(all[1].read(0, 4096), [0; 4096]);
    assert_eq!(all[2].ask(TRIM, 0, 0, 1 << 20, &[]), 0);
    assert_eq!(all[3].ask(FLUSH, 0, 0, 0, &[]), 0);
    // Errors are those of the volume, and concern their request alone.
    for client in &mut all {
        let end = 64 * MIB;
        assert_eq!(client.ask(READ, 0, end, 512, &[]), EINVAL);
        assert_eq!(client.ask(WRITE, 0, end - 512, 1024, &bytes[..1024]), ENOSPC);
        assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 0, &[]), EINVAL);
        assert_eq!(client.ask(READ, 0, u64::MAX, 512, &[]), EINVAL);
        assert_eq!(client.read(end - 512, 512), [0; 512]);
    }
}

#[test]
fn a_read_only_volume_refuses_writes_of_all_cores() {
    let served = Served::start(Wanted { cores: CORES, read_only: true, ..Wanted::default() });
    for client in &mut clients(&served) {
        assert_eq!(client.ask(WRITE, 0, 0, 4096, &[1; 4096]), EPERM);
        assert_eq!(client.read(0, 4096), [0; 4096]);
    }
}

#[test]
fn losses_reach_the_clients_of_all_cores_once() {
    let served = served();
    let mut all = clients(&served);
    all[1].write(0, &contents(1, 8192));
    served.lose_and_reopen();
    assert!(all.iter_mut().all(Client::is_closed), "their volume has ended");
    let mut all = clients(&served);
    for client in &mut all {
        assert_eq!(client.ask(READ, 0, 0, 0, &[]), 0);
        assert_eq!(client.ask(WRITE, 0, 0, 512, &[1; 512]), EIO);
        assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]), 0, "reported once");
    }
    assert_eq!(Client::ready(&served.socket, "tank/data").ask(FLUSH, 0, 0, 0, &[]), 0);
}

#[test]
fn shutdown_answers_the_requests_of_all_cores() {
    let mut served = served();
    let mut all = clients(&served);
    let bytes = contents(5, 1 << 20);
    for (index, client) in all.iter_mut().enumerate() {
        for cookie in 0..8 {
            client.request(WRITE, 0, cookie, (index as u64 * 8 + cookie) << 20, 1 << 20);
            client.send(&bytes);
        }
        // The server answers each request that it has received; some may come after its end.
        client.answer();
    }
    served.ask_to_end();
    for client in &mut all {
        client.stream.shutdown(Shutdown::Write).expect("shut down");
        // The simple replies of writes, and nothing half.
        let mut rest = Vec::new();
        let ended = std::io::Read::read_to_end(&mut client.stream, &mut rest);
        assert!(rest.len() % 16 == 0 && rest.len() <= 7 * 16, "{ended:?}, {} bytes", rest.len());
        assert!(rest.chunks(16).all(|reply| reply[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]));
    }
    assert!(served.end(), "nothing is left");
}
