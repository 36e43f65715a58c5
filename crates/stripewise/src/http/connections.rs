//! Connections of HTTP clients: their number, and time limits for sending and receiving. Only
//! clients that keep to them reach the rest of the daemon.
//!
//! Expected faults: clients that are silent, send a byte now and then, send more than they announce
//! or never stop, and never read.

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
use super::handshakes::HandshakeSlots;

/// More connections than there can be: of known callers, and of others at each listener.
const MAX_OPEN: u32 = 1 << 20;
/// Maximum concurrent "busy" replies; beyond it, connections are closed without one.
const MAX_BUSY_REPLIES: usize = 64;
/// Time for a "busy" reply: a client that has not sent its request and read the reply by then is
/// closed.
const BUSY_REPLY_PATIENCE: Duration = Duration::from_secs(2);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 31\r\nretry-after: 1\r\n\
    connection: close\r\n\r\ntoo many clients are connected\n";
/// Maximum length of a request's head, bytes; a longer one is refused.
const HEAD_BYTES: usize = 64 << 10;
/// Time limit for a request's head, from the end of the previous request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for authentication.
const STRANGER_PATIENCE: Duration = HEAD_PATIENCE;
/// Time limit for the client to take some of an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Pause after a failed accept, most likely for lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// State that all connections share.
struct House {
    router: Router,
    access: Arc<AccessFile>,
    refusals: Arc<Refusals>,
    clients: Clients,
    /// One permit for each connection.
    open: Arc<Semaphore>,
    busy_replies: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

/// Serves all connections until `stopped` ends; then requests in progress are finished.
pub(super) async fn serve(
    doors: Vec<OpenDoor>,
    router: Router,
    access: Arc<AccessFile>,
    refusals: Arc<Refusals>,
    clients: Clients,
    stopped: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let (open, busy_replies) =
        (Arc::new(Semaphore::new(MAX_OPEN as usize)), Arc::new(Semaphore::new(MAX_BUSY_REPLIES)));
    let house = House { router, access, refusals, clients, open, busy_replies, closing };
    let house = Arc::new(house);
    let accepting: Vec<_> =
        doors.into_iter().map(|door| tokio::spawn(accept_all(door, house.clone()))).collect();
    stopped.await;
    // Dropping the listeners removes their socket files.
    accepting.iter().for_each(|door| door.abort());
    // Fails only if all connections have gone.
    let _ = close.send(true);
    let _ = house.open.acquire_many(MAX_OPEN).await;
}

async fn accept_all(door: OpenDoor, house: Arc<House>) {
    // One set for each listener: its strangers keep no client out at others.
    let strangers = HandshakeSlots::default();
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
        let peer = Peer { address, place: Arc::new(Mutex::new(place)), is_encrypted: tls.is_some() };
        let house = house.clone();
        tokio::spawn(async move {
            match (socket, tls) {
                (Socket::Unix(stream), _) => connection(stream, peer, &house).await,
                (Socket::Tcp(stream), None) => connection(stream, peer, &house).await,
                (Socket::Tcp(stream), Some(tls)) => match timeout(HEAD_PATIENCE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, peer, &house).await,
                    Ok(Err(_)) => house.refusals.tell("HTTP", &address, "TLS handshake failed"),
                    Err(_) => house.refusals.tell("HTTP", &address, "TLS handshake timed out"),
                },
            }
            drop(open);
        });
    }
}

/// Sends a "busy" reply, if the connection is unencrypted, and closes it.
fn turn_away(socket: Socket, address: Address, house: &House, is_encrypted: bool) {
    house.refusals.tell("HTTP", &address, "too many clients are connected");
    // A TLS handshake would take the resources that are lacking.
    if is_encrypted {
        return;
    }
    let Ok(place) = house.busy_replies.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        // The connection is closed with or without the reply.
        let _ = match socket {
            Socket::Unix(stream) => timeout(BUSY_REPLY_PATIENCE, send_busy_reply(stream)).await,
            Socket::Tcp(stream) => timeout(BUSY_REPLY_PATIENCE, send_busy_reply(stream)).await,
        };
        drop(place);
    });
}

async fn send_busy_reply(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(TOO_MANY).await?;
    // Closing it with unread data would lose the reply.
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Serves one client, from its first request to its last.
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
        // The result is ignored: a broken connection concerns only its client.
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

/// A connection that fails when the client takes nothing of the output for too long.
struct Impatient<S> {
    stream: S,
    /// Runs while a write waits.
    given_up: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// The result of a write, or a timeout.
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
