//! A drive behind a connection: an export of an NBD server, on this machine or another.
//!
//! Each drive has a task that keeps the connection, with any number of requests in flight. A
//! request without an answer within the timeout ends it: the drive is *lost*, answers all requests
//! as gone and stays so, like a file that was removed; a caller that wants it back opens it again.
//! A shorter absence is bridged:
//!
//! - A connection that the *server* ended is made again, within the same time, and unanswered
//!   requests are sent again, unless acknowledged writes may have been lost, the server has changes
//!   that it did not answer (`ledger.rs`), or its data is not the same (`identity_probe.rs`).
//! - A connection that *we* end, because the server is silent or violates the protocol, is final.
//!
//! A server may still execute requests of a connection that is over, even after requests of a new
//! one. So an export is opened for writing again only when each change that was left with its
//! server is as old as a request may become (`unsettled.rs`).
//!
//! After half the timeout without requests a block is read, so that the loss of an idle server is
//! noticed.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveErrorKind, DriveInfo, DriveKind, Event, IoRequest, Operation,
    completion,
};
use stripewise_runtime::{Network, Piece};

use super::answers;
use super::connect::{Link, Peer, Terms, connect};
use super::error::{ConnectError, ConnectFault};
use super::identity_probe::Seen;
use super::ledger::{Abilities, Completed, Ledger, Loss, request_head};
use super::unsettled;
use super::uri::NbdUri;
use crate::nbd::wire::protocol::*;

/// Block size of the drive, bytes: that of checksums, so that no checksum block is written in part.
const BLOCK_BYTES: u32 = 4096;
/// Requests worth having in flight: as on a file.
const QUEUE_DEPTH: u32 = 64;
/// Bytes worth having in flight.
const QUEUE_BYTES: u64 = 16 << 20;
/// The longest request that pays, bytes.
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// The longest single transfer, even if the server takes more, bytes.
const MAX_TRANSFER_BYTES: u64 = LONGEST_TRANSFER as u64;
/// Maximum bytes per send, unless one request alone is longer, and maximum requests.
const SEND_BYTES: u64 = 4 << 20;
const SEND_REQUESTS: usize = 256;
/// Time that the server has to take the disconnect request.
const FAREWELL_NS: u64 = 1_000_000_000;
/// Pauses between attempts to reconnect.
const FIRST_PAUSE_NS: u64 = 50_000_000;
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;

struct Shared {
    context: Context,
    network: Network,
    uri: NbdUri,
    info: DriveInfo,
    read_only: bool,
    terms: Terms,
    /// The server as first connected to.
    peer: Peer,
    ledger: RefCell<Ledger>,
    /// A request waits to be sent, the connection ends, or the drive was dropped.
    changed: Event,
    closed: Cell<bool>,
    /// The reason for the loss, once the drive is lost.
    lost: RefCell<Option<Arc<str>>>,
    heard_ns: Cell<u64>,
    reconnections: Cell<u64>,
}

/// An NBD export as a drive. Dropping it disconnects from the server in order.
pub struct NetworkDrive(Rc<Shared>);

impl NetworkDrive {
    /// Connects within the URI's request timeout. For writing, it first waits until the server can
    /// no longer hold changes from earlier connections of this process.
    pub async fn open(
        context: &Context,
        network: &Network,
        uri: &NbdUri,
        read_only: bool,
    ) -> Result<Rc<Self>, ConnectError> {
        let failed = |why| ConnectError { uri: uri.to_string(), why };
        if !read_only {
            unsettled::until_settled(context, &uri.address).await;
        }
        let mut link = connect(context, network, uri, uri.timeout_ns).await.map_err(failed)?;
        let terms = link.terms;
        check(&terms, read_only).map_err(failed)?;
        let offers = |flag: u16| terms.flags & flag != 0;
        let longest = u64::from(terms.longest_bytes).min(MAX_TRANSFER_BYTES) / u64::from(BLOCK_BYTES);
        let longest_bytes = longest.max(1) * u64::from(BLOCK_BYTES);
        let mut ledger = Ledger::new(Abilities {
            fua: offers(SEND_FUA),
            trim: offers(SEND_TRIM),
            zeroes: offers(SEND_WRITE_ZEROES),
            longest_bytes,
        });
        let limit_ns = uri.timeout_ns;
        let look = Box::pin(look_at(&mut link, 0, BLOCK_BYTES as usize));
        match context.time_limit_ns(limit_ns, look).await {
            Ok(Ok(seen)) => ledger.witness.read(seen),
            // A drive whose first block cannot be read is a drive all the same.
            Ok(Err(error)) if error.raw_os_error().is_some() => {}
            Ok(Err(error)) => return Err(failed(ConnectFault::BrokenOff { error })),
            Err(_) => return Err(failed(ConnectFault::Silent { limit_ns })),
        }
        let info = DriveInfo {
            label: uri.to_string().into(),
            kind: DriveKind::Network,
            capacity_bytes: terms.size_bytes - terms.size_bytes % u64::from(BLOCK_BYTES),
            logical_block_bytes: BLOCK_BYTES,
            queue_depth: QUEUE_DEPTH,
            queue_bytes: QUEUE_BYTES,
            max_request_bytes: MAX_REQUEST_BYTES.min(longest_bytes),
            volatile_cache: true,
            cheap_zeroes: offers(SEND_WRITE_ZEROES),
            gap_bytes: 0,
        };
        let shared = Rc::new(Shared {
            context: context.clone(),
            network: network.clone(),
            uri: uri.clone(),
            info,
            read_only,
            terms,
            peer: link.peer,
            ledger: RefCell::new(ledger),
            changed: Event::new(),
            closed: Cell::new(false),
            lost: RefCell::new(None),
            heard_ns: Cell::new(context.now_ns()),
            reconnections: Cell::new(0),
        });
        drop(context.spawn(keep(shared.clone(), link)));
        Ok(Rc::new(Self(shared)))
    }

    /// The drive's address.
    pub fn uri(&self) -> &NbdUri {
        &self.0.uri
    }

    /// The server.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// The reason for the loss, once the drive is lost; it then stays lost.
    pub fn lost(&self) -> Option<Arc<str>> {
        self.0.lost.borrow().clone()
    }

    /// Ends the drive at once, for a caller that must be sure that nothing more is written: later
    /// requests are answered as gone.
    pub fn close(&self) {
        self.0.lost.borrow_mut().get_or_insert_with(|| "it was closed".into());
        self.0.closed.set(true);
        self.0.changed.notify_all();
    }

    /// Number of times the connection was made again.
    pub fn reconnections(&self) -> u64 {
        self.0.reconnections.get()
    }
}

impl Drop for NetworkDrive {
    fn drop(&mut self) {
        self.0.closed.set(true);
        self.0.changed.notify_all();
    }
}

impl Drive for NetworkDrive {
    fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let shared = &*self.0;
        let fail = |kind| Completion::ready(Err(request.error(&shared.info.label, kind, None)));
        if shared.lost.borrow().is_some() {
            return fail(DriveErrorKind::Gone);
        }
        if let Err(error) = request.check(&shared.info) {
            return Completion::ready(Err(error));
        }
        let is_flush = request.operation == Operation::Flush;
        if shared.read_only && !matches!(request.operation, Operation::Read | Operation::Flush) {
            return fail(DriveErrorKind::Denied);
        }
        if (shared.read_only && is_flush) || (request.length_bytes == 0 && !is_flush) {
            return Completion::ready(Ok(()));
        }
        let (sender, completion) = completion();
        let done = shared.ledger.borrow_mut().submit(request, Some(sender), shared.context.now_ns());
        match done {
            Some(completed) => completed.tell(&shared.info.label),
            None => shared.changed.notify_all(),
        }
        completion
    }
}

/// Tests if an export can be used.
fn check(terms: &Terms, read_only: bool) -> Result<(), ConnectFault> {
    let offers = |flag: u16| terms.flags & flag != 0;
    if terms.smallest_bytes > BLOCK_BYTES || !terms.smallest_bytes.is_power_of_two() {
        return Err(ConnectFault::Blocks { smallest_bytes: terms.smallest_bytes });
    }
    if terms.size_bytes < u64::from(BLOCK_BYTES) {
        return Err(ConnectFault::TooSmall { size_bytes: terms.size_bytes });
    }
    if !read_only && offers(READ_ONLY) {
        return Err(ConnectFault::ReadOnly);
    }
    if !read_only && !offers(SEND_FLUSH) {
        return Err(ConnectFault::NoFlush);
    }
    Ok(())
}

/// The reason for a connection's end.
enum Ending {
    /// The drive was closed or dropped.
    Closed,
    /// The server ended it, as far as is known.
    Theirs(io::Error),
    /// This side ended it.
    Ours(String),
}

/// Keeps the connection until the drive is dropped or lost.
async fn keep(shared: Rc<Shared>, mut link: Link) {
    loop {
        let error = match serve(&shared, link).await {
            // Requests in flight at the closing fail as gone.
            Ending::Closed => return give_up(&shared, "it was closed"),
            Ending::Ours(why) => return give_up(&shared, &why),
            Ending::Theirs(error) => error,
        };
        if shared.closed.get() {
            return give_up(&shared, "it was closed");
        }
        let lost = format!("the connection was lost ({})", in_words(&error));
        let loss = shared.ledger.borrow_mut().connection_lost();
        match loss {
            Loss::AskAgain => {}
            Loss::Unflushed => {
                return give_up(&shared, &format!("{lost} before acknowledged writes were flushed"));
            }
            Loss::InHand => {
                return give_up(
                    &shared,
                    &format!("{lost} before the server answered writes; it may still apply them"),
                );
            }
        }
        match again(&shared).await {
            Ok(Some(next)) => link = next,
            Ok(None) => return give_up(&shared, "it was closed"),
            Err(fault) => return give_up(&shared, &format!("{lost}, and {fault}")),
        }
        shared.reconnections.set(shared.reconnections.get() + 1);
        shared.heard_ns.set(shared.context.now_ns());
    }
}

fn give_up(shared: &Shared, why: &str) {
    *shared.lost.borrow_mut() = Some(why.into());
    let in_hand_ns = shared.ledger.borrow().in_hand_ns();
    if let Some(asked_ns) = in_hand_ns {
        let until_ns = asked_ns.saturating_add(shared.uri.timeout_ns);
        unsettled::note(&shared.context, &shared.uri.address, until_ns);
    }
    let completed = shared.ledger.borrow_mut().give_up();
    completed.into_iter().for_each(|completed| completed.tell(&shared.info.label));
}

/// Runs until the connection ends. The kernel then holds no buffer of it any more.
async fn serve(shared: &Shared, link: Link) -> Ending {
    let Link { transport, mut inbox, .. } = link;
    let ending: RefCell<Option<Ending>> = RefCell::new(None);
    let end = |why: Ending| {
        ending.borrow_mut().get_or_insert(why);
        transport.stream().shutdown(Shutdown::Both);
        shared.changed.notify_all();
    };
    let is_over = || ending.borrow().is_some();
    let reading = async {
        loop {
            match answers::take(&mut inbox, &transport, &shared.ledger).await {
                Ok(Some(completed)) => {
                    shared.heard_ns.set(shared.context.now_ns());
                    completed.into_iter().for_each(|completed| completed.tell(&shared.info.label));
                    // The answer may make a follow-up flush due.
                    if shared.ledger.borrow().has_to_send() {
                        shared.changed.notify_all();
                    }
                }
                Ok(None) => return end(Ending::Theirs(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return end(ended_by(error)),
            }
        }
    };
    let sending = async {
        loop {
            while !is_over() && !shared.closed.get() && !shared.ledger.borrow().has_to_send() {
                shared.changed.wait().await;
            }
            if is_over() {
                return;
            }
            if shared.closed.get() {
                let farewell = Piece::copy_of(&request_head(CMD_DISC, 0, 0, 0, 0));
                let _ = transport.send(vec![farewell]).await;
                transport.say_end().await;
                return end(Ending::Closed);
            }
            let pieces = gather(&mut shared.ledger.borrow_mut());
            if let Err(error) = transport.send(pieces).await {
                return end(ended_by(error));
            }
        }
    };
    let watching = async {
        let mut not_before_ns = 0;
        while !is_over() {
            let changed = pin!(shared.changed.wait());
            if shared.closed.get() {
                // The server did not take the disconnect request in time.
                if let Either::Left(_) = select(pin!(shared.context.sleep_ns(FAREWELL_NS)), changed).await {
                    return end(Ending::Closed);
                }
                continue;
            }
            match time_left(shared, not_before_ns) {
                0 => {
                    let why = format!("no answer for {} s", shared.uri.timeout_ns as f64 / 1e9);
                    return end(Ending::Ours(why));
                }
                left_ns => {
                    let wanted_ns = shared.context.now_ns() + left_ns;
                    select(pin!(shared.context.sleep_ns(left_ns)), changed).await;
                    // This process stood still: answers that arrived in that time are read first.
                    // Only once, so that the wait is bounded.
                    let (now_ns, moment_ns) = (shared.context.now_ns(), moment_ns(shared));
                    if now_ns.saturating_sub(wanted_ns) > moment_ns && wanted_ns != not_before_ns {
                        not_before_ns = now_ns + moment_ns;
                    }
                }
            }
            if !is_over() {
                probe_if_quiet(shared);
            }
        }
    };
    futures_util::join!(reading, sending, watching);
    ending.take().unwrap_or(Ending::Closed)
}

/// Time left until the server counts as silent, ns; not before `not_before_ns`.
fn time_left(shared: &Shared, not_before_ns: u64) -> u64 {
    let now_ns = shared.context.now_ns();
    let deadline_ns = match shared.ledger.borrow().oldest_ns() {
        Some(since_ns) => since_ns.saturating_add(shared.uri.timeout_ns).max(not_before_ns),
        None => return shared.uri.timeout_ns / 2,
    };
    deadline_ns.saturating_sub(now_ns)
}

/// Extra time for the server where this process was late itself, ns: less than the engine's own
/// extra wait in that case.
fn moment_ns(shared: &Shared) -> u64 {
    shared.uri.timeout_ns / 8
}

/// Reads a block if the connection is idle and has been silent for half the timeout.
fn probe_if_quiet(shared: &Shared) {
    let now_ns = shared.context.now_ns();
    let is_quiet = now_ns.saturating_sub(shared.heard_ns.get()) >= shared.uri.timeout_ns / 2;
    if !is_quiet || !shared.ledger.borrow().is_idle() {
        return;
    }
    let block = IoRequest::read(0, Buffer::from_bytes(&[0; BLOCK_BYTES as usize]));
    let done = shared.ledger.borrow_mut().submit(block, None, now_ns);
    debug_assert!(done.is_none(), "a read needs the server");
    shared.changed.notify_all();
}

fn gather(ledger: &mut Ledger) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut bytes = 0;
    for _ in 0..SEND_REQUESTS {
        if bytes >= SEND_BYTES {
            break;
        }
        let Some((head, data)) = ledger.next_to_send() else { break };
        pieces.push(Piece::copy_of(&head));
        bytes += data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        pieces.extend(data.into_iter().map(Piece::from));
    }
    pieces
}

/// Classifies an error: only if the server ended the connection has it nothing left to execute.
fn ended_by(error: io::Error) -> Ending {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Ending::Theirs(error),
        _ => Ending::Ours(format!("the connection was dropped ({})", in_words(&error))),
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed it".to_owned(),
        _ => error.to_string().split(" (os error ").next().unwrap_or_default().to_owned(),
    }
}

/// Reconnects, within the request timeout; `None` if the drive was closed.
async fn again(shared: &Shared) -> Result<Option<Link>, ConnectFault> {
    let limit_ns = shared.uri.timeout_ns;
    let since_ns = shared.context.now_ns();
    let oldest_ns = shared.ledger.borrow().oldest_ns().unwrap_or(since_ns);
    // The time may be over if this process stood still; one attempt is made all the same.
    let deadline_ns = oldest_ns.saturating_add(limit_ns).max(since_ns + moment_ns(shared));
    let mut pause_ns = FIRST_PAUSE_NS;
    loop {
        if shared.closed.get() {
            return Ok(None);
        }
        let left_ns = deadline_ns.saturating_sub(shared.context.now_ns());
        if left_ns == 0 {
            return Err(ConnectFault::Silent { limit_ns });
        }
        let fault = match shared.context.time_limit_ns(left_ns, pin!(same_again(shared, left_ns))).await {
            Ok(Ok(link)) => return Ok(Some(link)),
            Ok(Err(fault)) => fault,
            Err(_) => return Err(ConnectFault::Silent { limit_ns }),
        };
        // A server that is there but has changed will not change back.
        let left_ns = deadline_ns.saturating_sub(shared.context.now_ns());
        if !fault.is_absence() || left_ns == 0 {
            return Err(fault);
        }
        let pause = pin!(shared.context.sleep_ns(pause_ns.min(left_ns)));
        if let Either::Right(_) = select(pause, pin!(until_closed(shared))).await {
            return Ok(None);
        }
        pause_ns = (2 * pause_ns).min(LONGEST_PAUSE_NS);
    }
}

async fn until_closed(shared: &Shared) {
    while !shared.closed.get() {
        shared.changed.wait().await;
    }
}

/// Makes a new connection, if it leads to the same export.
async fn same_again(shared: &Shared, limit_ns: u64) -> Result<Link, ConnectFault> {
    let mut link = connect(&shared.context, &shared.network, &shared.uri, limit_ns).await?;
    check(&link.terms, shared.read_only)?;
    let (then, now) = (&shared.terms, &link.terms);
    if now.size_bytes != then.size_bytes {
        let (then, now) = (then.size_bytes, now.size_bytes);
        return Err(ConnectFault::Changed(format!("it has {now} bytes now, and had {then}")));
    }
    if now.flags & then.flags != then.flags || now.longest_bytes < then.longest_bytes {
        return Err(ConnectFault::Changed("the server offers less than before".to_owned()));
    }
    let seen = shared.ledger.borrow().witness.durable();
    if let Some(seen) = seen {
        let now = look_at(&mut link, seen.offset, seen.length).await;
        let now = now.map_err(|error| ConnectFault::BrokenOff { error })?;
        if now != seen {
            let at = seen.offset;
            return Err(ConnectFault::Changed(format!("data written at offset {at} is missing")));
        }
    }
    Ok(link)
}

/// Reads a block on a connection without other requests in flight. A refusal is an error with the
/// server's number.
async fn look_at(link: &mut Link, offset: u64, length: usize) -> io::Result<Seen> {
    let block = Buffer::from_bytes(&vec![0; length]);
    let abilities = Abilities { fua: false, trim: false, zeroes: true, longest_bytes: MAX_TRANSFER_BYTES };
    let ledger = RefCell::new(Ledger::new(abilities));
    let (sender, answer) = completion();
    let done = ledger.borrow_mut().submit(IoRequest::read(offset, block.clone()), Some(sender), 0);
    debug_assert!(done.is_none(), "a read needs the server");
    let pieces = gather(&mut ledger.borrow_mut());
    link.transport.send(pieces).await?;
    let completed: Completed = loop {
        match answers::take(&mut link.inbox, &link.transport, &ledger).await? {
            Some(Some(completed)) => break completed,
            Some(None) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    completed.tell(&"".into());
    let answered = answer.await;
    answered.map_err(|error| io::Error::from_raw_os_error(error.os_code.unwrap_or(EIO as i32)))?;
    Ok(Seen::of(offset, &block.to_vec()))
}
