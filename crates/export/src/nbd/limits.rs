//! Limits on clients' use of resources and time.

/// Limits of a server. Time limits count only time in which the server could respond
/// (`patience.rs`). Memory for the requests and answers of all clients is the server's budget
/// (`ServerOptions::budget`), plus some 100 KiB for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum concurrent connections; each listener has at most 16 of them reserved.
    pub clients: usize,
    /// Maximum connections of one address (IPv6: one /64) or user; further ones get a "busy" reply.
    pub clients_of_one: usize,
    /// Maximum TCP connections of one listener that have not agreed on an export yet; further ones
    /// are closed.
    pub strangers: usize,
    /// Maximum of these from one address (IPv6: one /64).
    pub strangers_of_one: usize,
    /// Time that further clients wait for a place, nanoseconds, counted from when the last was
    /// taken. Then they get a "busy" reply.
    pub place_ns: u64,
    /// Maximum requests of a connection that are unanswered, or whose answer was not read; its next
    /// requests are read later.
    pub client_requests: usize,
    /// Maximum bytes that these may transfer; a longer request waits for all others.
    pub client_bytes: u64,
    /// Time from connecting to the first request, nanoseconds, TLS included.
    pub negotiation_ns: u64,
    /// Time between two parts of a request that has begun, nanoseconds. Between requests a client
    /// may be silent for ever.
    pub request_stall_ns: u64,
    /// Time to read answers, of at most 4 MiB together or one longer one, nanoseconds.
    pub reply_stall_ns: u64,
    /// Shutdown timeout of requests in flight, nanoseconds; then connections are closed.
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
