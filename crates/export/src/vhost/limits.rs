//! Limits on front ends. Faults expected: none.

/// Time between two looks at the list of exports, and at the size of an export in use.
pub(super) const LOOK_NS: u64 = 1_000_000_000;

/// Limits on front ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VhostLimits {
    /// Maximum exports with a socket.
    pub sockets: usize,
    /// Maximum connections.
    pub clients: usize,
    /// Maximum connections at one socket.
    pub clients_of_one: usize,
    /// Maximum requests in flight of a connection.
    pub client_requests: usize,
    /// Time for the rest of a message that has begun, nanoseconds.
    pub message_stall_ns: u64,
    /// Shutdown timeout of requests in flight, nanoseconds.
    pub end_ns: u64,
}

impl Default for VhostLimits {
    fn default() -> Self {
        Self {
            sockets: 1024,
            clients: 256,
            clients_of_one: 16,
            client_requests: 512,
            message_stall_ns: 30_000_000_000,
            end_ns: 10_000_000_000,
        }
    }
}
