//! The HTTP interface of a daemon: what the command line can do to pools and volumes, under `/api/v1`, described in OpenAPI,
//! and figures for Prometheus under `/metrics`.
//!
//! HTTP runs on a thread of its own. What is asked becomes a command line (`api.rs`), is carried out by the daemon's executor as if it
//! had been typed (`orders.rs`), and the JSON document that it prints is the answer. `guard.rs` says who is let in,
//! `connections.rs` how many at a time, and for how long.
//!
//! Expected faults: an address in use, one beyond this machine without a token (refused), a token that cannot be read, clients that
//! send anything, are slow, or leave.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;
use std::thread::JoinHandle;

use futures_channel::{mpsc, oneshot};
use stripewise_drive::Semaphore;

use crate::commands::App;
use crate::failure::{Failure, Result, system_text};
use crate::ways_in::TAKEN_HINT;

mod api;
mod connections;
mod guard;
mod metrics;
mod metrics_page;
mod orders;

use guard::Guard;
use orders::Order;

/// Requests on their way to the executor; more wait.
const MAX_ORDERS: usize = 64;

/// The interface, listening.
pub struct Http {
    orders: Option<mpsc::Receiver<Order>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Http {
    /// Begins to listen. Beyond this machine a token is needed.
    pub fn open(address: SocketAddr, token_file: Option<&Path>) -> Result<Self> {
        let token = token_file.map(read_token).transpose()?;
        if !address.ip().is_loopback() && token.is_none() {
            return Err(Failure::usage(format!(
                "{address} is reached from other machines: who may command the daemon there needs a token"
            ))
            .hint("--http-token-file FILE names a file with a secret of 16 characters or more; 127.0.0.1 needs none"));
        }
        let refused = |error: std::io::Error| {
            let failure =
                Failure::new(format!("cannot listen for HTTP at {address}: {}", system_text(&error)));
            match error.kind() {
                std::io::ErrorKind::AddrInUse => failure.hint(TAKEN_HINT),
                _ => failure,
            }
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let (orders_in, orders) = mpsc::channel(MAX_ORDERS);
        let (stop, stopped) = oneshot::channel();
        let router = api::router(orders_in, Guard { token });
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let told = async {
                    // Also where the daemon ends without a word.
                    let _ = stopped.await;
                };
                connections::serve(listener, router, told).await;
            });
        });
        let thread = thread.map_err(refused)?;
        Ok(Self { orders: Some(orders), stop: Some(stop), thread: Some(thread), address })
    }

    /// Where it listens, with the port that was chosen where none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries out what is asked, for as long as it is polled.
    pub async fn serve(&mut self, app: &App, turns: &Rc<Semaphore>) {
        if let Some(orders) = &mut self.orders {
            orders::carry_out_all(orders, app, turns).await;
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // Whoever still waits for an answer gets none.
        self.orders.take();
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.thread.take();
    }
}

fn read_token(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("cannot read the token in {}: {}", path.display(), system_text(&error)))
    })?;
    let token = text.trim();
    match token.len() >= guard::LEAST_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(Failure::new(format!("{} holds no token", path.display()))
            .hint("16 printable characters or more in one line, as from `openssl rand -hex 32`")),
    }
}
