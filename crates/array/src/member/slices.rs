//! Time slices for background work, used where its effect on clients' latency is bounded.
//!
//! With a bound, background work gets the drive for one slice at a time: requests that together
//! take no longer than the bound, all in flight at once. The client requests that were waiting when
//! the slice ended go before the next slice. So a client request waits for one slice at each
//! drive, and during a slice the arm stays with the background work.
//!
//! The share of background work holds as long as clients leave that much time between two slices.
//! Where they ask for more than the drive can do, the share falls to [`LEAST_PART`] of the setting,
//! and a client request may wait for a second slice.
//!
//! Fault expected: requests that take longer than those before them. A slice then exceeds the bound
//! by the additional time of its requests in flight.

/// Part of the configured share that background work always keeps.
const LEAST_PART: f64 = 1.0 / 3.0;
/// Smallest merge limit of background requests: used until the service time is known, and also
/// where a request takes longer than a slice, because smaller ones take a disk just as long.
const LEAST_REQUEST_BYTES: u64 = 256 << 10;
/// Largest merge limit; larger requests gain nothing.
const MOST_REQUEST_BYTES: u64 = 4 << 20;

/// The side that the drive currently serves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    /// Background work, which has used this much of its slice.
    Background { used_ns: f64 },
    /// Clients, since this time, after a slice of this length. Client requests with lower numbers
    /// than `waited_below` waited for that slice.
    Clients { since_ns: u64, slice_ns: f64, waited_below: u64 },
}

/// State of the client queue of a member when it asks for the next turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients {
    /// Number of the request that has waited longest.
    pub oldest: Option<u64>,
    /// Number of the next request to arrive.
    pub next: u64,
}

/// The slices of one drive.
#[derive(Debug)]
pub(super) struct Slices {
    /// Maximum length of a slice.
    bound_ns: u64,
    /// Service time of a background request, a moving average; 0 before the first.
    request_ns: f64,
    /// Merge limit of background requests, bytes, so that they fit into a slice.
    request_bytes: u64,
    turn: Turn,
}

impl Slices {
    pub(super) fn new(bound_ns: u64) -> Self {
        let turn = Turn::Clients { since_ns: 0, slice_ns: 0.0, waited_below: 0 };
        Self { bound_ns, request_ns: 0.0, request_bytes: LEAST_REQUEST_BYTES, turn }
    }

    pub(super) fn bound_ns(&self) -> u64 {
        self.bound_ns
    }

    /// Merge limit of background requests, bytes.
    pub(super) fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Credit in virtual time that a slice is worth at this share.
    pub(super) fn slice_credit_ns(&self, share: f64) -> f64 {
        self.bound_ns as f64 / share
    }

    /// True if another background request fits into the slice beside `in_flight` others and the
    /// time used. The first always fits, and no second until its service time is known.
    fn has_room(&self, used_ns: f64, in_flight: usize) -> bool {
        let is_first = in_flight == 0 && used_ns == 0.0;
        let needed_ns = used_ns + (in_flight + 1) as f64 * self.request_ns;
        is_first || (self.request_ns > 0.0 && needed_ns <= self.bound_ns as f64)
    }

    /// True if waiting background work may send a request while the drive has no client requests.
    /// The slice counts as used up when one arrives.
    pub(super) fn may_go_alone(&mut self, in_flight: usize) -> bool {
        self.turn = Turn::Background { used_ns: self.bound_ns as f64 };
        self.has_room(0.0, in_flight)
    }

    /// True if waiting background work may send a request while there are client requests.
    /// `ahead_ns` is the virtual time by which the clients are ahead.
    pub(super) fn may_go(
        &mut self,
        now_ns: u64,
        share: f64,
        in_flight: usize,
        ahead_ns: f64,
        clients: Clients,
    ) -> bool {
        if let Turn::Background { used_ns } = self.turn {
            if self.has_room(used_ns, in_flight) {
                return true;
            }
            let slice_ns = used_ns + in_flight as f64 * self.request_ns;
            self.turn = Turn::Clients { since_ns: now_ns, slice_ns, waited_below: clients.next };
        }
        let Turn::Clients { since_ns, slice_ns, waited_below } = self.turn else { return false };
        let all_went = clients.oldest.is_none_or(|oldest| oldest >= waited_below);
        let is_due = all_went && ahead_ns >= self.slice_credit_ns(share);
        let least = share * LEAST_PART;
        let longest_pause_ns = slice_ns * (1.0 - least) / least;
        if in_flight == 0 && (is_due || now_ns.saturating_sub(since_ns) as f64 >= longest_pause_ns) {
            self.turn = Turn::Background { used_ns: 0.0 };
            return true;
        }
        false
    }

    /// Records the service time of a background request of `bytes`.
    pub(super) fn landed(&mut self, service_ns: f64, bytes: u64) {
        self.request_ns = match self.request_ns {
            0.0 => service_ns,
            before => before + (service_ns - before) / 8.0,
        };
        let slices = service_ns / self.bound_ns as f64;
        if slices > 0.5 {
            self.request_bytes = (self.request_bytes / 2).max(LEAST_REQUEST_BYTES);
        } else if slices < 0.2 && bytes >= self.request_bytes {
            self.request_bytes = (self.request_bytes * 2).min(MOST_REQUEST_BYTES);
        }
        if let Turn::Background { used_ns } = &mut self.turn {
            *used_ns += service_ns;
        }
    }
}
