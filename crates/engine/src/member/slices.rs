//! Background work in slices, where its effect on the clients' latency is bounded.
//!
//! With a bound, background work gets the drive for one slice at a time: requests that take the
//! drive no longer than the bound, all in flight together. The clients' requests that waited when
//! the slice ended go before the next one. So a client's request waits for one slice at each drive,
//! and in a slice the arm stays with the background work.
//!
//! The share of background work holds as long as the clients leave that much time between two
//! slices. Where they ask for more than the drive can do, the share falls to [`LEAST_PART`] of what
//! was set, and a request may wait for a second slice.
//!
//! Expected fault: requests that take longer than those before them. A slice is then longer than
//! the bound by what its requests in flight take longer.

/// Of the share that is set, the part that background work keeps in any case.
const LEAST_PART: f64 = 1.0 / 3.0;
/// Background requests are merged to this size, until it is known what they take, and also where
/// one takes longer than a slice: smaller ones cost a disk as much time.
const LEAST_REQUEST_BYTES: u64 = 256 << 10;
/// No longer one is worth it.
const MOST_REQUEST_BYTES: u64 = 4 << 20;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    /// Background work that has used this much of its slice.
    Background { used_ns: f64 },
    /// The clients', since then, after a slice of that length. Their requests below the number
    /// waited for it.
    Clients { since_ns: u64, slice_ns: f64, waited_below: u64 },
}

/// What a member knows of its clients' queue when it asks for the next turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients {
    /// The number of the request that waits longest.
    pub oldest: Option<u64>,
    /// The number that the next request to come will have.
    pub next: u64,
}

/// The slices of one drive.
#[derive(Debug)]
pub(super) struct Slices {
    /// No slice is longer.
    bound_ns: u64,
    /// What a background request takes, a moving average; 0 before the first.
    request_ns: f64,
    /// Background requests are not merged to more than this, so that they fit into a slice.
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

    /// Background requests are not merged to more than this.
    pub(super) fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// The credit in virtual time that a slice is worth at this share.
    pub(super) fn slice_credit_ns(&self, share: f64) -> f64 {
        self.bound_ns as f64 / share
    }

    /// Whether one more background request fits beside `in_flight` of them and what the slice has
    /// used. One always does, and nothing else before the first was measured.
    fn has_room(&self, used_ns: f64, in_flight: usize) -> bool {
        let is_first = in_flight == 0 && used_ns == 0.0;
        let needed_ns = used_ns + (in_flight + 1) as f64 * self.request_ns;
        is_first || (self.request_ns > 0.0 && needed_ns <= self.bound_ns as f64)
    }

    /// Whether background work, of which something waits, may send a request while the drive has
    /// no clients. The slice counts as used up when one comes.
    pub(super) fn may_go_alone(&mut self, in_flight: usize) -> bool {
        self.turn = Turn::Background { used_ns: self.bound_ns as f64 };
        self.has_room(0.0, in_flight)
    }

    /// Whether background work, of which something waits, may send a request while there are
    /// clients. `ahead_ns` is the virtual time by which the clients are ahead.
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

    /// A background request of so many bytes took the drive this long.
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
