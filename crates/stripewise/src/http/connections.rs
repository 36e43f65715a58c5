//! Connections of HTTP clients: how many there may be, and how long each may take over what it sends and what it takes. Only whoever
//! keeps to that is heard by the rest of the daemon.
//!
//! Expected faults: clients that are silent, send a byte now and then, send more than they say or never stop, and never read.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};

use super::api::{MAX_BYTES, error};

/// Connections at a time; further ones are told so and closed.
const MAX_CONNECTIONS: usize = 256;
/// Connections that are being told so at a time; of more than these the connections just end.
const MAX_TOLD: usize = 64;
/// Time for that: who has not sent its request by then, nor taken the answer, does without.
const TOLD_PATIENCE: Duration = Duration::from_secs(2);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 31\r\nretry-after: 1\r\n\
    connection: close\r\n\r\ntoo many clients are connected\n";
/// Bodies that are kept while they come, or while what they are for is done; more wait.
const MAX_BODIES: usize = 16;
/// A request's head has to come within this time, counted from the end of the one before.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// A request's body has to come within this time.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
/// Some of an answer has to be taken within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Before connections are accepted again when that failed; out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves whoever connects, until `stopped` ends; then what is under way is finished.
pub async fn serve(listener: TcpListener, router: Router, stopped: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let told = Arc::new(Semaphore::new(MAX_TOLD));
    let (close, closing) = watch::channel(false);
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                turn_away(stream, &told);
                continue;
            };
            let (router, closing) = (router.clone(), closing.clone());
            tokio::spawn(async move {
                connection(stream, router, closing).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stopped => {}
    }
    // They may all have gone.
    let _ = close.send(true);
    let _ = places.acquire_many(MAX_CONNECTIONS as u32).await;
}

/// Tells a client, whatever it asks, that there is no place for it.
fn turn_away(stream: TcpStream, told: &Arc<Semaphore>) {
    tracing::warn!(target: "client", "HTTP: a client is turned away: too many clients are connected");
    let Ok(place) = told.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let telling = async {
            stream.writable().await?;
            // There is room for so little in every connection that begins.
            stream.try_write(TOO_MANY)?;
            // Closed with something unread, it would lose the answer.
            let mut unread = [0; 4096];
            loop {
                stream.readable().await?;
                match stream.try_read(&mut unread) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(0) => return Ok(()),
                    other => drop(other?),
                }
            }
        };
        // Whatever becomes of it, it is closed.
        let _: std::result::Result<io::Result<()>, _> = timeout(TOLD_PATIENCE, telling).await;
        drop(place);
    });
}

/// One client, from its first request to its last.
async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<bool>) {
    let io = TokioIo::new(Impatient { stream, given_up: None });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let mut served = pin!(builder.serve_connection(io, TowerToHyperService::new(router)));
    // How it ended is the client's matter.
    tokio::select! {
        _ = served.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

/// Places for bodies.
pub fn body_places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_BODIES))
}

/// Goes on with a request when all of its body is here.
pub async fn whole_body(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let has_none = !parts.headers.contains_key(header::TRANSFER_ENCODING)
        && parts.headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    if has_none {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let Ok(_place) = places.acquire().await else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending", None).into_response();
    };
    match timeout(BODY_PATIENCE, to_bytes(body, MAX_BYTES)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(_)) => {
            let text = format!("a request's body has at most {MAX_BYTES} bytes");
            error(StatusCode::PAYLOAD_TOO_LARGE, &text, Some("send it in pieces")).into_response()
        }
        Err(_) => {
            let text = format!("the request's body did not come within {} s", BODY_PATIENCE.as_secs());
            let closed = [(header::CONNECTION, "close")];
            (closed, error(StatusCode::REQUEST_TIMEOUT, &text, None)).into_response()
        }
    }
}

/// A connection that fails when nothing of what is written is taken for too long.
struct Impatient {
    stream: TcpStream,
    /// While a write waits.
    given_up: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
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

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
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
