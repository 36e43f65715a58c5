//! How much clients may take, and how long.

/// Limits of a server. Those of time count only what the server had time to notice (`patience.rs`).
/// Memory for requests and their answers of all clients is the server's budget
/// (`ServerOptions::budget`), and some 100 KiB for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; each listener has a reserve of at most 16 of them.
    pub clients: usize,
    /// Of them, those of one address (IPv6: one /64) or user; further ones are told so and closed.
    pub clients_of_one: usize,
    /// Of those that came over TCP to one listener, those that have not agreed on an export yet;
    /// further ones are closed.
    pub strangers: usize,
    /// Of these, from one address (IPv6: one /64).
    pub strangers_of_one: usize,
    /// Further ones wait for a place, nanoseconds, from when there was none any more. Then they are
    /// told so and closed.
    pub place_ns: u64,
    /// Requests of a connection that are not answered yet, or whose answer was not taken; its next
    /// ones are not read before.
    pub client_requests: usize,
    /// Bytes that these may have to transfer; a longer one waits for all others.
    pub client_bytes: u64,
    /// From connecting to the first request, nanoseconds, TLS included.
    pub negotiation_ns: u64,
    /// Between two parts of a request that has begun, nanoseconds. Between requests a client may be
    /// silent for ever.
    pub request_stall_ns: u64,
    /// For answers to be taken, of at most 4 MiB at a time or one longer one, nanoseconds.
    pub reply_stall_ns: u64,
    /// For requests under way when the server ends, nanoseconds; then connections are closed.
    pub end_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            clients_of_one: 128,
            strangers: 64,
            strangers_of_one: 32,
            place_ns: 10 * SECOND_NS,
            client_requests: 128,
            client_bytes: 32 << 20,
            negotiation_ns: 10 * SECOND_NS,
            request_stall_ns: 30 * SECOND_NS,
            reply_stall_ns: 60 * SECOND_NS,
            end_ns: 10 * SECOND_NS,
        }
    }
}
