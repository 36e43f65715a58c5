//! Connections of HTTP clients: how many there may be, and how long each may take over what it
//! sends and what it takes. Only clients that keep to that are heard by the rest of the daemon.
//!
//! Expected faults: clients that are silent, send a byte now and then, send more than they say or
//! never stop, and never read.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stripewise_control::daemon::refusals::Refusals;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};
use tower::Layer;

use super::access::AccessFile;
use super::address::Address;
use super::clients::{Clients, Place};
use super::doors::{OpenDoor, Socket};
use super::guard::{Peer, user_of};
use super::strangers::Strangers;

/// More connections than there can be: those of known callers, and at each place those of others.
const MAX_OPEN: u32 = 1 << 20;
/// Connections that are being told that they are too many at a time; of more than these the
/// connections just end.
const MAX_TOLD: usize = 64;
/// Time for that: who has not sent its request by then, nor taken the answer, does without.
const TOLD_PATIENCE: Duration = Duration::from_secs(2);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 31\r\nretry-after: 1\r\n\
    connection: close\r\n\r\ntoo many clients are connected\n";
/// What is kept of a connection's bytes until they are understood; a longer head is refused.
const HEAD_BYTES: usize = 64 << 10;
/// A request's head has to come within this time, counted from the end of the one before.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Who a client is has to be known within this time.
const STRANGER_PATIENCE: Duration = HEAD_PATIENCE;
/// Some of an answer has to be taken within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Before connections are accepted again when that failed; out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What all connections share.
struct House {
    router: Router,
    access: Arc<AccessFile>,
    refusals: Arc<Refusals>,
    clients: Clients,
    /// One permit of each connection.
    open: Arc<Semaphore>,
    told: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

/// Serves all that connect, until `stopped` ends; then what is under way is finished.
pub(super) async fn serve(
    doors: Vec<OpenDoor>,
    router: Router,
    access: Arc<AccessFile>,
    refusals: Arc<Refusals>,
    clients: Clients,
    stopped: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let (open, told) = (Arc::new(Semaphore::new(MAX_OPEN as usize)), Arc::new(Semaphore::new(MAX_TOLD)));
    let house = House { router, access, refusals, clients, open, told, closing };
    let house = Arc::new(house);
    let accepting: Vec<_> =
        doors.into_iter().map(|door| tokio::spawn(accept_all(door, house.clone()))).collect();
    stopped.await;
    // Socket files go with them.
    accepting.iter().for_each(|door| door.abort());
    // The connections may all have gone.
    let _ = close.send(true);
    let _ = house.open.acquire_many(MAX_OPEN).await;
}

async fn accept_all(door: OpenDoor, house: Arc<House>) {
    // Of this door alone: they keep no client out at others.
    let strangers = Strangers::default();
    loop {
        let Ok((socket, address)) = door.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let place = match user_of(&house.access.current(), address) {
            Some(user) => {
                let mut place = Place::default();
                place.give_to(&user, &house.clients).then_some(place)
            }
            None => strangers.place(address).map(Place::of_stranger),
        };
        let tls = door.tls();
        let (Some(place), Ok(open)) = (place, house.open.clone().try_acquire_owned()) else {
            turn_away(socket, address, &house, tls.is_some());
            continue;
        };
        let peer = Peer { address, place: Arc::new(Mutex::new(place)) };
        let house = house.clone();
        tokio::spawn(async move {
            match (socket, tls) {
                (Socket::Unix(stream), _) => connection(stream, peer, &house).await,
                (Socket::Tcp(stream), None) => connection(stream, peer, &house).await,
                (Socket::Tcp(stream), Some(tls)) => match timeout(HEAD_PATIENCE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, peer, &house).await,
                    Ok(Err(_)) => house.refusals.tell("HTTP", &address, "it agreed on no keys for TLS"),
                    Err(_) => house.refusals.tell("HTTP", &address, "it took too long over TLS"),
                },
            }
            drop(open);
        });
    }
}

/// Tells a client, whatever it asks, that there is no place for it.
fn turn_away(socket: Socket, address: Address, house: &House, is_encrypted: bool) {
    house.refusals.tell("HTTP", &address, "too many clients are connected");
    // To agree on keys first is more than there is room for.
    if is_encrypted {
        return;
    }
    let Ok(place) = house.told.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        // Whatever becomes of it, it is closed.
        let _ = match socket {
            Socket::Unix(stream) => timeout(TOLD_PATIENCE, tell_too_many(stream)).await,
            Socket::Tcp(stream) => timeout(TOLD_PATIENCE, tell_too_many(stream)).await,
        };
        drop(place);
    });
}

async fn tell_too_many(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(TOO_MANY).await?;
    // Closed with something unread, it would lose the answer.
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// One client, from its first request to its last.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer, house: &House) {
    let io = TokioIo::new(Impatient { stream, given_up: None });
    let place = peer.place.clone();
    let service = Extension(peer).layer(house.router.clone());
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES);
    let mut served = pin!(builder.serve_connection(io, TowerToHyperService::new(service)));
    let mut closing = house.closing.clone();
    let mut stranger_patience = pin!(sleep(STRANGER_PATIENCE));
    let is_stranger = || place.lock().unwrap_or_else(PoisonError::into_inner).is_strangers();
    let mut may_be_stranger = true;
    loop {
        // How it ended is the client's matter.
        tokio::select! {
            _ = served.as_mut() => return,
            _ = closing.wait_for(|closing| *closing) => break,
            () = stranger_patience.as_mut(), if may_be_stranger => {
                if is_stranger() {
                    return;
                }
                may_be_stranger = false;
            }
        }
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

/// A connection that fails when nothing of what is written is taken for too long.
struct Impatient<S> {
    stream: S,
    /// While a write waits.
    given_up: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// What a write came to, or that it has waited too long.
    fn within_patience<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.given_up = None;
            return written;
        }
        let given_up = self.given_up.get_or_insert_with(|| Box::pin(sleep(ANSWER_PATIENCE)));
        ready!(given_up.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_patience(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.within_patience(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within_patience(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_patience(context, shut)
    }
}
