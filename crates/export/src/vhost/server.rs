//! The server for vhost-user-blk: a socket for each export, admission of front ends, and shutdown.
//!
//! Expected faults: exports that come and go (their sockets follow within [`LOOK_NS`]), paths at
//! which no socket can be made (reported once, tried again), more front ends than there are places
//! (closed at once), and front ends that are connected at shutdown: their requests in flight are
//! finished, then they are closed; the rest waits in the guest.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Context, Event};
use stripewise_runtime::{ListenError, Listener, Network, OWNER_ONLY, Stream};

use super::connection::{Connected, serve};
use super::limits::{LOOK_NS, VhostLimits};
use crate::block::{Ending, Exports};
use crate::budget::{Budget, Line};
use crate::client_id::ClientId;

/// Pause before accepting again when the system has no free descriptor.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// An event of the server.
#[derive(Debug)]
pub enum VhostNotice {
    /// A front end connected.
    Connected {
        /// The front end.
        peer: String,
        /// The export's full name.
        export: String,
    },
    /// There are too many front ends: this one is closed.
    TooMany {
        /// The front end.
        peer: String,
        /// The export's full name.
        export: String,
    },
    /// The front end disconnected.
    Ended {
        /// The front end.
        peer: String,
        /// The export's full name.
        export: String,
    },
    /// The server dropped the connection.
    GivenUp {
        /// The front end.
        peer: String,
        /// The export's full name.
        export: String,
        /// The cause.
        why: io::Error,
    },
    /// Accepting a connection failed; it is retried.
    NotAccepted {
        /// The socket.
        place: String,
        /// The cause.
        why: io::Error,
    },
    /// An export has no socket; it is retried.
    NoSocket {
        /// The export's full name.
        export: String,
        /// The cause.
        why: String,
    },
}

impl fmt::Display for VhostNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { peer, export } => write!(f, "vhost-user: {peer} uses {export}"),
            Self::TooMany { peer, export } => {
                write!(f, "vhost-user: {peer}, for {export}, turned away: too many front ends are connected")
            }
            Self::Ended { peer, export } => write!(f, "vhost-user: {peer} disconnected from {export}"),
            Self::GivenUp { peer, export, why } => {
                write!(f, "vhost-user: {peer}, which used {export}, was dropped: {why}")
            }
            Self::NotAccepted { place, why } => write!(f, "vhost-user: accept failed on {place}: {why}"),
            Self::NoSocket { export, why } => write!(f, "vhost-user: no socket for {export}: {why}"),
        }
    }
}

/// The server's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VhostStatus {
    /// Open connections.
    pub clients: usize,
    /// Connections since the server started.
    pub connected: u64,
    /// Connections that the server dropped.
    pub given_up: u64,
    /// Connections closed because there were too many.
    pub turned_away: u64,
}

struct Shared<E: Exports> {
    context: Context,
    network: Network,
    exports: E,
    folder: PathBuf,
    limits: VhostLimits,
    memory: Line,
    notices: Box<dyn Fn(&VhostNotice)>,
    /// Sockets by export; ending one removes its file.
    sockets: RefCell<HashMap<String, Rc<Ending>>>,
    /// Exports whose socket could not be made.
    failed: RefCell<BTreeSet<String>>,
    /// Peer and export of each connection.
    clients: RefCell<BTreeMap<u64, (String, String)>>,
    next: Cell<u64>,
    given_up: Cell<u64>,
    turned_away: Cell<u64>,
    /// Number of sockets that are there.
    listening: Cell<usize>,
    stop: Rc<Ending>,
    /// A connection has ended, or a socket.
    gone: Event,
}

/// The server. Clones are the same.
pub struct VhostServer<E: Exports>(Rc<Shared<E>>);

impl<E: Exports> Clone for VhostServer<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Exports> VhostServer<E> {
    /// Serves each export at `folder/POOL/VOL`, from now on. Blocks briefly.
    pub fn start(
        context: &Context,
        network: &Network,
        exports: E,
        folder: &Path,
        limits: VhostLimits,
        budget: &Budget,
        notices: Box<dyn Fn(&VhostNotice)>,
    ) -> Self {
        let server = Self(Rc::new(Shared {
            context: context.clone(),
            network: network.clone(),
            exports,
            folder: folder.to_owned(),
            limits,
            memory: Line::new(budget.listener()),
            notices,
            sockets: RefCell::default(),
            failed: RefCell::default(),
            clients: RefCell::default(),
            next: Cell::new(0),
            given_up: Cell::new(0),
            turned_away: Cell::new(0),
            listening: Cell::new(0),
            stop: Rc::default(),
            gone: Event::new(),
        }));
        let of_task = server.clone();
        drop(context.spawn(async move { of_task.keep_sockets().await }));
        server
    }

    /// Has a socket for each export, and for no other name.
    async fn keep_sockets(&self) {
        let shared = &*self.0;
        while !shared.stop.has_begun() {
            self.look();
            select(pin!(shared.context.sleep_ns(LOOK_NS)), pin!(shared.stop.until_begun())).await;
        }
    }

    fn look(&self) {
        let shared = &*self.0;
        let mut names = shared.exports.list();
        names.truncate(shared.limits.sockets);
        let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        shared.failed.borrow_mut().retain(|name| known.contains(name.as_str()));
        shared.sockets.borrow_mut().retain(|name, socket| {
            let stays = known.contains(name.as_str());
            if !stays {
                socket.begin();
            }
            stays
        });
        for name in names {
            if !shared.sockets.borrow().contains_key(&name) {
                self.open(name);
            }
        }
    }

    fn open(&self, name: String) {
        let shared = &*self.0;
        match listen(&shared.network, &shared.folder.join(&name)) {
            Ok(listener) => {
                let (server, ending) = (self.clone(), Rc::<Ending>::default());
                shared.failed.borrow_mut().remove(&name);
                shared.sockets.borrow_mut().insert(name.clone(), ending.clone());
                shared.listening.set(shared.listening.get() + 1);
                drop(shared.context.spawn(async move {
                    server.accept_all(listener, name, &ending).await;
                    server.0.listening.set(server.0.listening.get() - 1);
                    server.0.gone.notify_all();
                }));
            }
            Err(error) => {
                if shared.failed.borrow_mut().insert(name.clone()) {
                    (shared.notices)(&VhostNotice::NoSocket { export: name, why: error.to_string() });
                }
            }
        }
    }

    async fn accept_all(&self, listener: Listener, name: String, ending: &Ending) {
        let shared = &*self.0;
        let mut ended = pin!(ending.until_begun());
        loop {
            match select(pin!(listener.accept()), ended.as_mut()).await {
                Either::Left((Ok(stream), _)) => self.let_in(stream, &name, listener.place()),
                Either::Left((Err(why), _)) => {
                    let place = listener.place().to_owned();
                    (shared.notices)(&VhostNotice::NotAccepted { place, why });
                    select(pin!(shared.context.sleep_ns(ACCEPT_AGAIN_NS)), ended.as_mut()).await;
                }
                Either::Right(_) => return,
            }
            if ending.has_begun() {
                return;
            }
        }
    }

    fn let_in(&self, stream: Stream, name: &str, place: &str) {
        let shared = &*self.0;
        let number = shared.next.replace(shared.next.get() + 1);
        let (peer, export) = (format!("{} (connection {number})", stream.peer()), name.to_owned());
        let of_one = shared.clients.borrow().values().filter(|(_, used)| used == name).count();
        let is_full =
            shared.clients.borrow().len() >= shared.limits.clients || of_one >= shared.limits.clients_of_one;
        // The export may have just ended, or be held by a command.
        let Some(found) = shared.exports.find(name) else { return };
        if is_full {
            shared.turned_away.set(shared.turned_away.get() + 1);
            return (shared.notices)(&VhostNotice::TooMany { peer, export });
        }
        shared.clients.borrow_mut().insert(number, (peer.clone(), export.clone()));
        (shared.notices)(&VhostNotice::Connected { peer: peer.clone(), export: export.clone() });
        let user = stream.peer_user();
        let client = user.map_or(ClientId::Unknown, |user| ClientId::User { place: place.to_owned(), user });
        let connected = Connected {
            context: shared.context.clone(),
            network: shared.network.clone(),
            export: found,
            name: export.clone(),
            memory: shared.memory.client(&client),
            client,
            limits: shared.limits,
            stop: shared.stop.clone(),
        };
        let server = self.clone();
        drop(shared.context.spawn(async move {
            let outcome = serve(stream, connected).await;
            let shared = &*server.0;
            shared.clients.borrow_mut().remove(&number);
            let notice = match outcome {
                Ok(()) => VhostNotice::Ended { peer, export },
                Err(why) => {
                    shared.given_up.set(shared.given_up.get() + 1);
                    VhostNotice::GivenUp { peer, export, why }
                }
            };
            (shared.notices)(&notice);
            shared.gone.notify_all();
        }));
    }

    /// Front ends that use an export, in the order in which they connected.
    pub fn clients_of(&self, export: &str) -> Vec<String> {
        let clients = self.0.clients.borrow();
        clients.values().filter(|(_, used)| used == export).map(|(peer, _)| peer.clone()).collect()
    }

    /// The server's counters.
    pub fn status(&self) -> VhostStatus {
        VhostStatus {
            clients: self.0.clients.borrow().len(),
            connected: self.0.next.get(),
            given_up: self.0.given_up.get(),
            turned_away: self.0.turned_away.get(),
        }
    }

    /// Removes the sockets, finishes the requests in flight, flushes, and closes all connections.
    /// `true` if that was done within the shutdown timeout.
    pub async fn end(&self) -> bool {
        let shared = &*self.0;
        shared.stop.begin();
        let sockets = shared.sockets.take();
        sockets.values().for_each(|socket| socket.begin());
        let all_gone = async {
            while !shared.clients.borrow().is_empty() || shared.listening.get() > 0 {
                shared.gone.wait().await;
            }
        };
        let in_time = shared.context.time_limit_ns(shared.limits.end_ns, pin!(all_gone)).await.is_ok();
        // Folders of pools that held only sockets go, too.
        for folder in sockets.keys().filter_map(|name| shared.folder.join(name).parent().map(Path::to_owned))
        {
            let _ = std::fs::remove_dir(folder);
        }
        in_time
    }
}

fn listen(network: &Network, path: &Path) -> Result<Listener, ListenError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|source| ListenError::System { place: folder.display().to_string(), source })?;
    }
    network.listen_unix(path, OWNER_ONLY)
}
