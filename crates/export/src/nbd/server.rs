//! The NBD server: admission of clients, and shutdown.
//!
//! Expected faults: more clients than there are places (they wait a little, since a client that
//! just left may still hold its place; then they get a "busy" reply and are closed), no free
//! descriptors (accepting is retried a little later), and clients that are still connected at
//! shutdown: their requests are finished and answered, then they are closed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Context, Event, Semaphore};
use stripewise_runtime::{Listener, Stream};

use crate::block::Exports;
use crate::budget::{Budget, Line};
use crate::nbd::connection::handshakes::HandshakeSlots;
use crate::nbd::connection::server_context::ServerContext;
use crate::nbd::connection::turned_away;
use crate::nbd::connection::{origin, serve};
use crate::nbd::door::{Door, Rule};
use crate::nbd::limits::Limits;
use crate::nbd::shards::Shards;
use crate::nbd::shutting_down::ShuttingDown;
use crate::nbd::transport::tls::{Tls, TlsPolicy};
use crate::shares::{Client, Group, ShareRules, Shares, Taken};

/// Pause before accepting again when the system has no free descriptor.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// Maximum concurrent "busy" replies; beyond it, connections are closed without one.
const MAX_BUSY_REPLIES: usize = 64;

/// Maximum steps of TLS handshakes computed at the same time; others wait for their turn.
const MAX_COMPUTING: u64 = 2;

/// Places reserved for each listener, where there are eight times as many.
const LISTENER_PLACES: usize = 16;

/// Send buffer of a unix socket, bytes: a long answer is handed to the kernel at once, so that the
/// client can take it while the next one is read. Of 1, 2 and 4 MB the first did best (1.13, 1.08
/// and 1.06 of nbdkit's rate of 1 MiB reads); the default is 0.2.
const UNIX_SEND_ROOM_BYTES: usize = 1_000_000;

/// An event in a client's life.
#[derive(Debug)]
pub enum Notice {
    /// A client connected.
    Connected {
        /// The client.
        peer: String,
    },
    /// The client and the server have negotiated; transmission begins.
    Begins {
        /// The client.
        peer: String,
        /// The export's full name.
        export: String,
    },
    /// The server has been full for long: the client gets a "busy" reply, where possible, and is
    /// closed.
    TooMany {
        /// The client.
        peer: String,
    },
    /// The client disconnected in order.
    Ended {
        /// The client.
        peer: String,
        /// The export that it used, if it had chosen one.
        export: Option<String>,
    },
    /// The server dropped the connection.
    GivenUp {
        /// The client.
        peer: String,
        /// The export that it used, if it had chosen one.
        export: Option<String>,
        /// The cause.
        why: io::Error,
    },
    /// Accepting a connection failed; it is retried.
    NotAccepted {
        /// The listener's address.
        place: String,
        /// The cause.
        why: io::Error,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { peer } => write!(f, "NBD: {peer} connected"),
            Self::Begins { peer, export } => write!(f, "NBD: {peer} uses {export}"),
            Self::TooMany { peer } => write!(f, "NBD: {peer} turned away: too many clients are connected"),
            Self::Ended { peer, export: None } => write!(f, "NBD: {peer} disconnected"),
            Self::Ended { peer, export: Some(export) } => write!(f, "NBD: {peer} disconnected from {export}"),
            Self::GivenUp { peer, export: None, why } => write!(f, "NBD: {peer} was dropped: {why}"),
            Self::GivenUp { peer, export: Some(export), why } => {
                write!(f, "NBD: {peer}, which used {export}, was dropped: {why}")
            }
            Self::NotAccepted { place, why } => write!(f, "NBD: accept failed on {place}: {why}"),
        }
    }
}

/// Settings of a server.
pub struct ServerOptions {
    /// Limits on what clients may use.
    pub limits: Limits,
    /// Certificate and key, where connections may be encrypted.
    pub tls: Option<Tls>,
    /// Encryption policy. `None` in any case without a certificate.
    pub tls_policy: TlsPolicy,
    /// Memory for the requests of all clients; other listeners may share it.
    pub budget: Budget,
    /// Exports visible to each client; `None`: all clients see all.
    pub rules: Option<Vec<Rule>>,
    /// Receives notices about clients.
    pub notices: Box<dyn Fn(&Notice)>,
}

impl Default for ServerOptions {
    /// Unencrypted, without notices.
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            limits,
            tls: None,
            tls_policy: TlsPolicy::None,
            budget: Budget::default(),
            rules: None,
            notices: Box::new(|_| {}),
        }
    }
}

/// A server's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Open connections.
    pub clients: usize,
    /// Connections since the server started.
    pub connected: u64,
    /// Connections that the server dropped.
    pub given_up: u64,
    /// Connections closed because the server was full.
    pub turned_away: u64,
}

struct Shared<E: Exports> {
    context: Context,
    exports: E,
    options: ServerOptions,
    rules: Option<Rc<Vec<Rule>>>,
    places: Shares,
    /// Permits to compute steps of TLS handshakes.
    computing: Semaphore,
    clients: RefCell<BTreeMap<u64, Rc<Stream>>>,
    /// Peer and export of each connection that transmits.
    transmitting: RefCell<BTreeMap<u64, (String, String)>>,
    next: Cell<u64>,
    listening: Cell<usize>,
    given_up: Cell<u64>,
    turned_away: Cell<u64>,
    /// "Busy" replies in flight.
    busy_replies: Cell<usize>,
    shutting_down: ShuttingDown,
    shards: Shards<E::Export>,
    /// The server shuts down.
    stop: Event,
    /// A client or a listener has gone.
    gone: Event,
}

/// A listener, with the state that its clients share.
struct Entrance {
    door: Door,
    memory: Line,
    places: Group,
    strangers: HandshakeSlots,
    /// Time since which newcomers have had to wait for a place, ns.
    full_since_ns: Cell<Option<u64>>,
}

fn places(limits: &Limits) -> Shares {
    Shares::new(ShareRules {
        total: limits.clients as u64,
        group_reserve: LISTENER_PLACES.min(limits.clients / 8) as u64,
        least_common: 0,
        client_limit: limits.clients_of_one as u64,
        client_first: 0,
        client_beside: 0,
    })
}

/// An NBD server. Clones are the same server.
pub struct Server<E: Exports>(Rc<Shared<E>>);

impl<E: Exports> Clone for Server<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Exports> Server<E> {
    /// A server without listeners.
    pub fn new(context: &Context, exports: E, mut options: ServerOptions) -> Self {
        if options.tls.is_none() {
            options.tls_policy = TlsPolicy::None;
        }
        Self(Rc::new(Shared {
            context: context.clone(),
            exports,
            rules: options.rules.take().map(Rc::new),
            places: places(&options.limits),
            computing: Semaphore::new(MAX_COMPUTING),
            options,
            clients: RefCell::default(),
            transmitting: RefCell::default(),
            next: Cell::new(0),
            listening: Cell::new(0),
            given_up: Cell::new(0),
            turned_away: Cell::new(0),
            busy_replies: Cell::new(0),
            shutting_down: ShuttingDown::default(),
            shards: Shards::default(),
            stop: Event::new(),
            gone: Event::new(),
        }))
    }

    /// Has connections served by the other threads of its context
    /// ([`start_threads`](crate::start_threads)).
    pub fn use_shards(&self) {
        let shared = &*self.0;
        for thread in shared.context.shards() {
            shared.shards.add(&shared.context, &thread, shared.options.limits, &shared.shutting_down);
        }
    }

    /// The exports served.
    pub fn exports(&self) -> &E {
        &self.0.exports
    }

    /// Accepts clients on `listener` until the server ends. May be called for several listeners.
    pub fn listen(&self, listener: Listener) {
        let (server, shared) = (self.clone(), &self.0);
        let entrance = Rc::new(Entrance {
            door: Door { rules: shared.rules.clone(), place: listener.place().to_owned() },
            memory: Line::new(shared.options.budget.listener()),
            places: shared.places.group(),
            strangers: HandshakeSlots::default(),
            full_since_ns: Cell::new(None),
        });
        shared.listening.set(shared.listening.get() + 1);
        shared.context.spawn(async move {
            server.accept_all(&listener, &entrance).await;
            drop(listener);
            server.0.listening.set(server.0.listening.get() - 1);
            server.0.gone.notify_all();
        });
    }

    async fn accept_all(&self, listener: &Listener, entrance: &Rc<Entrance>) {
        let shared = &*self.0;
        let mut stop = pin!(shared.stop.wait());
        while !shared.shutting_down.has_begun() {
            let accepted = match select(pin!(listener.accept()), stop.as_mut()).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right(_) => return,
            };
            match accepted {
                Ok(stream) => {
                    let client = entrance.places.client(origin(&stream, &entrance.door));
                    match select(pin!(self.place(&client, entrance)), stop.as_mut()).await {
                        Either::Left((Some(place), _)) => self.let_in(stream, entrance, place),
                        Either::Left((None, _)) => self.turn_away(stream),
                        Either::Right(_) => return,
                    }
                }
                Err(why) => {
                    (shared.options.notices)(&Notice::NotAccepted {
                        place: listener.place().to_owned(),
                        why,
                    });
                    let again = pin!(shared.context.sleep_ns(ACCEPT_AGAIN_NS));
                    select(again, stop.as_mut()).await;
                }
            }
        }
    }

    /// A place for one more client, now or soon. A client that has used up its own share does not
    /// wait: others would wait behind it.
    async fn place(&self, client: &Client, entrance: &Entrance) -> Option<Taken> {
        let shared = &*self.0;
        loop {
            if let Some(place) = client.take(1) {
                entrance.full_since_ns.set(None);
                return Some(place);
            }
            let now_ns = shared.context.now_ns();
            let since_ns = entrance.full_since_ns.get().unwrap_or(now_ns);
            let end_ns = since_ns.saturating_add(shared.options.limits.place_ns);
            if !client.has_share(1) || now_ns >= end_ns {
                return None;
            }
            entrance.full_since_ns.set(Some(since_ns));
            // The loop checks again, whether a client left or the time is over.
            let _ = shared.context.time_limit_ns(end_ns - now_ns, pin!(shared.gone.wait())).await;
        }
    }

    /// Sends a "busy" reply, where possible, and closes the connection.
    fn turn_away(&self, stream: Stream) {
        let shared = &*self.0;
        shared.turned_away.set(shared.turned_away.get() + 1);
        (shared.options.notices)(&Notice::TooMany { peer: stream.peer() });
        if shared.busy_replies.get() >= MAX_BUSY_REPLIES {
            return;
        }
        shared.busy_replies.set(shared.busy_replies.get() + 1);
        let server = self.clone();
        shared.context.spawn(async move {
            turned_away::tell(&server.0.context, Rc::new(stream)).await;
            server.0.busy_replies.set(server.0.busy_replies.get() - 1);
        });
    }

    fn let_in(&self, stream: Stream, entrance: &Rc<Entrance>, place: Taken) {
        let shared = &*self.0;
        let limits = &shared.options.limits;
        let strangers = &entrance.strangers;
        let among_them = |address| strangers.place(address, limits.strangers, limits.strangers_of_one);
        let stranger = match stream.peer_address().map(among_them) {
            Some(None) => return self.turn_away(stream),
            other => other.flatten(),
        };
        if stream.is_unix() {
            stream.set_send_room_bytes(UNIX_SEND_ROOM_BYTES);
        }
        let stream = Rc::new(stream);
        // The number distinguishes connections of one peer.
        let peer = format!("{} (connection {})", stream.peer(), shared.next.get());
        let number = shared.next.replace(shared.next.get() + 1);
        shared.clients.borrow_mut().insert(number, stream.clone());
        (shared.options.notices)(&Notice::Connected { peer: peer.clone() });
        let (server, entrance) = (self.clone(), entrance.clone());
        shared.context.spawn(async move {
            let shared = &*server.0;
            let server_context = ServerContext {
                line: &entrance.memory,
                door: &entrance.door,
                context: &shared.context,
                exports: &shared.exports,
                limits: shared.options.limits,
                tls: shared.options.tls.as_ref(),
                tls_policy: shared.options.tls_policy,
                computing: &shared.computing,
                shutting_down: &shared.shutting_down,
                shards: &shared.shards,
                number,
            };
            let mut export = None;
            let begins = |name: &str| {
                export = Some(name.to_owned());
                shared.transmitting.borrow_mut().insert(number, (peer.clone(), name.to_owned()));
                (shared.options.notices)(&Notice::Begins { peer: peer.clone(), export: name.to_owned() });
            };
            let outcome = serve(&server_context, stream, begins, stranger).await;
            shared.clients.borrow_mut().remove(&number);
            shared.transmitting.borrow_mut().remove(&number);
            drop(place);
            let notice = match outcome {
                Ok(()) => Notice::Ended { peer, export },
                Err(why) => {
                    shared.given_up.set(shared.given_up.get() + 1);
                    Notice::GivenUp { peer, export, why }
                }
            };
            (shared.options.notices)(&notice);
            shared.gone.notify_all();
        });
    }

    /// Clients that use an export, in the order in which they connected.
    pub fn clients_of(&self, export: &str) -> Vec<String> {
        let transmitting = self.0.transmitting.borrow();
        transmitting.values().filter(|(_, used)| used == export).map(|(peer, _)| peer.clone()).collect()
    }

    /// The server's counters.
    pub fn status(&self) -> ServerStatus {
        ServerStatus {
            clients: self.0.clients.borrow().len(),
            connected: self.0.next.get(),
            given_up: self.0.given_up.get(),
            turned_away: self.0.turned_away.get(),
        }
    }

    /// Accepts no more clients, finishes and answers the requests in flight, flushes, and closes
    /// all connections. Connections that are not done within the shutdown timeout are closed then;
    /// requests still in the engine get the same time once more. `true` if nothing is left.
    pub async fn end(&self) -> bool {
        let shared = &*self.0;
        shared.shutting_down.begin();
        shared.stop.notify_all();
        let all_gone = self.close_connections().await;
        shared.shards.close().await;
        all_gone
    }

    async fn close_connections(&self) -> bool {
        let shared = &*self.0;
        for how in [Shutdown::Read, Shutdown::Both] {
            for stream in shared.clients.borrow().values() {
                stream.shutdown(how);
            }
            let all_gone = pin!(self.until_all_are_gone());
            if shared.context.time_limit_ns(shared.options.limits.end_ns, all_gone).await.is_ok() {
                return true;
            }
        }
        false
    }

    async fn until_all_are_gone(&self) {
        while !self.0.clients.borrow().is_empty() || self.0.listening.get() > 0 {
            self.0.gone.wait().await;
        }
    }
}
