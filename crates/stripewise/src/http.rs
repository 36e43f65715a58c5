//! The HTTP interface of a daemon: the commands on pools and volumes under `/api/v1`, described in
//! OpenAPI, metrics for Prometheus under `/metrics`, and the web console at `/` (`console.rs`).
//!
//! HTTP runs on a thread of its own. A call becomes a request (`api.rs`), which the daemon's
//! executor runs like a typed command (`orders.rs`); the document of its response is the answer.
//! `doors.rs` opens the listeners, `guard.rs` with `access.rs` authenticates and authorises,
//! `connections.rs` with `clients.rs` limits numbers and time, `bodies.rs` the length of bodies.
//!
//! Expected faults: an address in use, an address that other machines reach without TLS (refused),
//! tokens that cannot be read, clients that send anything, are slow, or leave.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use clap::Args;
use futures_channel::{mpsc, oneshot};
use stripewise_control::daemon::news::News;
use stripewise_control::daemon::refusals::Refusals;
use stripewise_control::daemon::turns::Turns;
use stripewise_export::budget::Budget;
use stripewise_runtime::SocketFile;

use crate::commands::App;
use crate::failure::{Failure, Result, system_text};

mod access;
mod address;
mod api;
mod bodies;
mod clients;
mod connections;
mod console;
mod doors;
mod guard;
mod handshakes;
mod metrics;
mod metrics_page;
mod orders;
mod problem;
mod visitor;

use access::AccessFile;
use clients::Clients;
use console::sessions::Sessions;
use doors::{Door, HttpPlace, TlsFiles};
use guard::Guard;
use orders::Order;

/// Maximum requests queued for the executor; more wait.
const MAX_ORDERS: usize = 64;

/// Maximum threads that parse documents.
const MAX_PARSERS: usize = 2;

/// Options for HTTP.
#[derive(Args)]
pub(crate) struct HttpOptions {
    /// Also listen for HTTP here, besides http.sock in the state folder: unix:PATH, a port of this
    /// machine, or ADDRESS:PORT (with --http-tls-cert if other machines reach it). Unix sockets
    /// recognise users of this machine; TCP always requires a token. May be given several times.
    /// OpenAPI describes the paths at /api/v1/openapi.json; /metrics is for Prometheus
    #[arg(long = "http", value_name = "ADDR|unix:PATH")]
    http_places: Vec<HttpPlace>,
    /// File of tokens and users, each with the role read, operate or admin; read again when it
    /// changes. Default: http.tokens in the state folder. If it does not exist and TCP is used, it
    /// is created with one admin token (mode 0600)
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
    /// Certificate (PEM), for HTTP over TCP with TLS
    #[arg(long = "http-tls-cert", value_name = "FILE", requires_all = ["http_places", "http_key"])]
    http_certificate: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long = "http-tls-key", value_name = "FILE", requires = "http_certificate")]
    http_key: Option<PathBuf>,
}

/// The listening interface.
pub(crate) struct Http {
    orders: Option<mpsc::Receiver<Order>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Dropping the interface ends these event streams.
    news: Rc<News>,
    /// Socket files, removed on drop.
    _files: Vec<Option<SocketFile>>,
}

impl Http {
    /// Starts listening.
    pub(crate) async fn open(options: &HttpOptions, budget: &Budget, app: &App) -> Result<Self> {
        let tls = match (&options.http_certificate, &options.http_key) {
            (Some(certificate), Some(key)) => {
                let files = TlsFiles::load(app.absolute(certificate), app.absolute(key));
                Some(Arc::new(files.map_err(|error| Failure::because("cannot encrypt HTTP", &error))?))
            }
            _ => None,
        };
        for place in &options.http_places {
            if let HttpPlace::Tcp(address) = place
                && !address.ip().is_loopback()
                && tls.is_none()
            {
                return Err(Failure::usage(format!(
                    "{address} is reachable from other machines, and tokens would be sent \
                     unencrypted: TLS is required"
                ))
                .hint("add --http-tls-cert and --http-tls-key; 127.0.0.1 needs neither"));
            }
        }
        let registry = app.registry()?;
        let needs_token = options.http_places.iter().any(|place| matches!(place, HttpPlace::Tcp(_)));
        let tokens = options.http_token_file.as_ref().map(|path| app.absolute(path));
        let tokens = tokens.map_or_else(|| registry.http_tokens_path(), Ok)?;
        let access = Arc::new(AccessFile::open(&tokens, needs_token)?);
        let mut doors = vec![Door::default(app, &registry.http_path()?).await?];
        for place in &options.http_places {
            doors.push(Door::open(app, place, tls.as_ref()).await?);
        }
        for door in &doors {
            app.printer.note(format!("listening for HTTP at {}", door.place));
        }
        if needs_token {
            app.printer.note(format!("HTTP tokens are in {}", access.path().display()));
        }
        Self::serve_at(doors, access, budget, app.news.clone())
    }

    fn serve_at(doors: Vec<Door>, access: Arc<AccessFile>, budget: &Budget, news: Rc<News>) -> Result<Self> {
        let refused =
            |error: std::io::Error| Failure::new(format!("cannot listen for HTTP: {}", system_text(&error)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MAX_PARSERS)
            .build()
            .map_err(refused)?;
        let (orders_in, orders) = mpsc::channel(MAX_ORDERS);
        let (stop, stopped) = oneshot::channel();
        let refusals = Arc::new(Refusals::default());
        let clients = Clients::new(budget);
        let guard = Guard {
            access: access.clone(),
            refusals: refusals.clone(),
            clients: clients.clone(),
            sessions: Sessions::default(),
        };
        let guard = Arc::new(guard);
        let router = api::router(orders_in, guard.clone(), console::views()).merge(console::pages(guard));
        let (doors, files): (Vec<_>, Vec<_>) = {
            let _inside = runtime.enter();
            let open = doors.into_iter().map(Door::into_open).collect::<std::io::Result<Vec<_>>>();
            open.map_err(refused)?.into_iter().unzip()
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let until_stopped = async {
                    // An error means that the daemon dropped the sender: the same.
                    let _ = stopped.await;
                };
                connections::serve(doors, router, access, refusals, clients, until_stopped).await;
            });
        });
        let thread = thread.map_err(refused)?;
        Ok(Self { orders: Some(orders), stop: Some(stop), thread: Some(thread), news, _files: files })
    }

    /// Runs requests while it is polled.
    pub(crate) async fn serve(&mut self, app: &App, turns: &Rc<Turns>) {
        if let Some(orders) = &mut self.orders {
            orders::execute_all(orders, app, turns).await;
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // Waiting callers get no answer.
        self.orders.take();
        self.news.end();
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.thread.take();
    }
}
