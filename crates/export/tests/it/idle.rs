//! Memory of idle clients. The test measures its process, so it runs in a process of its own.
//!
//! Invariant I6 (`docs/internals/invariants.md`).

use crate::kit::client::Client;
use crate::kit::{MIB, Served, Wanted};
use crate::own_process::is_own_process;

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let numbers = std::fs::read_to_string("/proc/self/statm").expect("a file of Linux");
    numbers.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn a_hundred_idle_clients_cost_less_than_20_mib() {
    if !is_own_process("idle::a_hundred_idle_clients_cost_less_than_20_mib") {
        return;
    }
    let served = Served::start(Wanted::default());
    drop(Client::ready(&served.socket, "tank/data"));
    let before = resident_bytes();
    let mut clients: Vec<_> = (0..100)
        .map(|_| {
            let mut client = Client::ready(&served.socket, "tank/data");
            assert_eq!(client.read(0, 4096), [0; 4096]);
            client
        })
        .collect();
    let cost = resident_bytes().saturating_sub(before);
    println!("100 clients that asked once and wait: {} KiB", cost >> 10);
    assert!(cost < 20 * MIB, "{cost} bytes");
    for client in &mut clients {
        assert_eq!(client.read(4096, 512), [0; 512], "all of them are still served");
    }
}
