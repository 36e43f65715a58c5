//! Byte stream of a connection, plain or encrypted.

pub(super) mod inbox;
pub(super) mod patience;
pub(super) mod tls;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use rustls::pki_types::CertificateDer;
use stripewise_drive::Buffer;
use stripewise_runtime::{Piece, Stream};

use crate::nbd::transport::tls::{HandedSession, Session};

pub(crate) enum Transport {
    Plain(Rc<Stream>),
    Tls(Rc<Stream>, Box<RefCell<Session>>),
}

impl Transport {
    pub(super) fn stream(&self) -> &Rc<Stream> {
        match self {
            Self::Plain(stream) | Self::Tls(stream, _) => stream,
        }
    }

    /// The TLS session, for another thread that continues with it.
    pub(super) fn into_session(self) -> Option<HandedSession> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(_, session) => Some(session.into_inner().into()),
        }
    }

    /// The peer's certificate, if it presented one.
    pub(super) fn certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(_, session) => session.borrow().certificate(),
        }
    }

    /// Receives available bytes; 0 at the end of the stream.
    pub(super) async fn receive(&self, into: Buffer) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.receive(into).await,
            Self::Tls(stream, session) => loop {
                if let Some(bytes) = session.borrow_mut().decrypted(&into)? {
                    return Ok(bytes);
                }
                let encrypted = session.borrow().room();
                match stream.receive(encrypted).await? {
                    0 => return Ok(0),
                    bytes => session.borrow_mut().received(bytes),
                }
            },
        }
    }

    /// Fills all of `into`.
    pub(super) async fn receive_all(&self, into: Buffer) -> io::Result<()> {
        if let Self::Plain(stream) = self {
            return stream.receive_all(into).await;
        }
        let mut done = 0;
        while done < into.len() {
            match self.receive(into.slice(done..into.len())).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => done += bytes,
            }
        }
        Ok(())
    }

    /// Sends all pieces. Only one send may run at a time.
    pub(super) async fn send(&self, pieces: Vec<Piece>) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.send(pieces).await,
            Self::Tls(stream, session) => {
                let mut taken = (0, 0);
                loop {
                    let encrypted = session.borrow_mut().encrypt(&pieces, &mut taken)?;
                    if encrypted.is_empty() {
                        return Ok(());
                    }
                    stream.send(vec![Piece::from(encrypted)]).await?;
                }
            }
        }
    }

    /// Ends the stream in the sending direction.
    pub(super) async fn say_end(&self) {
        if let Self::Tls(stream, session) = self {
            let last = session.borrow_mut().close();
            let _ = stream.send(vec![Piece::from(last)]).await;
        }
        self.stream().shutdown(std::net::Shutdown::Write);
    }
}
