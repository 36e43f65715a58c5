//! One client, from its first byte to its last: negotiation, then requests (`transmission.rs`).
//!
//! Expected faults: clients that leave at any moment, send wrong lengths or malformed data, stop
//! half-way, or ask for more than they may; an export that ends under them (its pool is closed,
//! perhaps to be reopened). Each ends with an error reply or with this connection; requests in
//! flight are finished all the same.

pub(super) mod backend;
pub(super) mod handshakes;
pub(super) mod outbox;
pub(super) mod server_context;
pub(super) mod transmission;
pub(super) mod turned_away;

use std::io;
use std::rc::Rc;

use stripewise_runtime::{Piece, Stream};

use crate::block::{Export, Exports};
use crate::client_id::ClientId;
use crate::nbd::connection::backend::LocalBackend;
use crate::nbd::connection::handshakes::HandshakeSlot;
use crate::nbd::connection::server_context::ServerContext;
use crate::nbd::connection::transmission::{Transmission, transmit};
use crate::nbd::door::{Allowed, Client as Comer, Door};
use crate::nbd::shards::Handed;
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::transport::patience::within;
use crate::nbd::wire::errors::rubbish;
use crate::nbd::wire::negotiation::{Agreed, Negotiation, Next, Terms, greeting, reply};
use crate::nbd::wire::options::{LONGEST_OPTION, OPTION_HEAD_BYTES, parse_option_head};
use crate::nbd::wire::protocol::REP_ERR_TOO_BIG;

/// Maximum options in one negotiation.
const MOST_OPTIONS: usize = 1000;

/// Serves a client; calls `begins` with the name of its export once that is agreed. An error is the
/// reason for dropping the client. `stranger` is its place among clients without an export.
pub(crate) async fn serve<E: Exports>(
    server: &ServerContext<'_, E>,
    stream: Rc<Stream>,
    begins: impl FnOnce(&str),
    stranger: Option<HandshakeSlot>,
) -> io::Result<()> {
    let mut inbox = Inbox::new(server.context, server.limits.request_stall_ns);
    let negotiated = {
        let negotiation = Box::pin(negotiate(server, stream, &mut inbox));
        let limited = within(server.context, server.limits.negotiation_ns, negotiation).await;
        limited.ok_or_else(|| {
            io::Error::new(io::ErrorKind::TimedOut, "negotiation took longer than allowed")
        })??
    };
    let Some((transport, agreed)) = negotiated else { return Ok(()) };
    drop(stranger);
    begins(&agreed.name);
    let id = client_id(server.door, &transport);
    let Agreed { export, terms, .. } = agreed;
    // Held until the end: a client that leaves before the flush has unflushed writes.
    let losses = Rc::new(export.losses().connect(id.clone()));
    let backend = LocalBackend { export: export.clone(), terms, losses: losses.clone() };
    let outcome = transmit_somewhere(server, transport, inbox, terms, id, backend).await;
    if server.shutting_down.has_begun() && !export.is_read_only() {
        export.flush().await.map_err(|error| io::Error::other(error.to_string()))?;
    }
    drop(losses);
    outcome
}

/// Serves the requests of a connection, here or on another shard.
async fn transmit_somewhere<E: Exports>(
    server: &ServerContext<'_, E>,
    transport: Transport,
    inbox: Inbox,
    terms: Terms,
    client: ClientId,
    backend: LocalBackend<E::Export>,
) -> io::Result<()> {
    let direct = if backend.losses.has_news() { None } else { backend.export.direct() };
    // Without a descriptor for it, the connection stays here.
    let elsewhere = server
        .shards
        .choose(direct.as_ref())
        .and_then(|shard| Some((shard, transport.stream().hand_over().ok()?)));
    if let Some((shard, stream)) = elsewhere {
        let (tls, received) = (transport.into_session(), inbox.rest());
        let (number, memory) = (server.number, server.line.group().clone());
        let handed = Handed { number, stream, tls, received, terms, client, memory, direct };
        return shard.serve(handed, Rc::new(backend)).await;
    }
    let _at_home = server.shards.stay();
    let connection = Transmission {
        context: server.context.clone(),
        limits: server.limits,
        shutting_down: server.shutting_down.clone(),
        transport: Rc::new(transport),
        inbox,
        terms,
        memory: server.line.client(&client),
    };
    transmit(connection, backend).await
}

/// The identity of a client with an export.
fn client_id(door: &Door, transport: &Transport) -> ClientId {
    let certificate = transport.certificate();
    certificate.map_or_else(
        || origin(transport.stream(), door),
        |certificate| ClientId::Certificate(certificate.to_vec()),
    )
}

/// The identity of a client before negotiation.
pub(super) fn origin(stream: &Stream, door: &Door) -> ClientId {
    let user = |user| ClientId::User { place: door.place.clone(), user };
    let address = stream.peer_address().map(ClientId::from);
    address.or_else(|| stream.peer_user().map(user)).unwrap_or(ClientId::Unknown)
}

type Negotiated<X> = Option<(Transport, Agreed<X>)>;

async fn negotiate<E: Exports>(
    server: &ServerContext<'_, E>,
    stream: Rc<Stream>,
    inbox: &mut Inbox,
) -> io::Result<Negotiated<E::Export>> {
    let mut transport = Transport::Plain(stream);
    transport.send(vec![Piece::from(greeting())]).await?;
    if !inbox.need(&transport, 4).await? {
        return Ok(None);
    }
    let flags = u32::from_be_bytes(inbox.take());
    let Some(mut negotiation) = Negotiation::new(server.tls_policy, flags) else {
        return Err(rubbish("its flags are unknown"));
    };
    let mut comer = Comer::new(server.door, None);
    for _ in 0..MOST_OPTIONS {
        if server.shutting_down.has_begun() || !inbox.need(&transport, OPTION_HEAD_BYTES).await? {
            return Ok(None);
        }
        let head = inbox.take::<OPTION_HEAD_BYTES>();
        let Some((option, length)) = parse_option_head(&head) else {
            return Err(rubbish("malformed option"));
        };
        let mut replies = Vec::new();
        if length > LONGEST_OPTION {
            reply(&mut replies, option, REP_ERR_TOO_BIG, b"options are at most 32 KiB long");
            transport.send(vec![Piece::from(replies)]).await?;
            return Err(rubbish("an option is longer than 32 KiB"));
        }
        inbox.need_more(&transport, length as usize).await?;
        let data = inbox.take_vec(length as usize);
        let exports = Allowed { exports: server.exports, comer: &comer };
        let next = negotiation.option(&exports, option, &data, &mut replies);
        transport.send(vec![Piece::from(replies)]).await?;
        match next {
            Next::Option => {}
            Next::End => return Ok(None),
            Next::Refused(why) => return Err(io::Error::new(io::ErrorKind::NotFound, why)),
            Next::Transmission(agreed) => return Ok(Some((transport, agreed))),
            Next::StartTls => {
                if inbox.available() > 0 {
                    // Data in the clear may come from another sender than the TLS peer.
                    return Err(rubbish("it sent unencrypted data after asking for TLS"));
                }
                let Some(tls) = server.tls else { return Ok(None) };
                let stream = transport.stream().clone();
                let session = tls.handshake(&stream, server.computing).await?;
                transport = Transport::Tls(stream, Box::new(session.into()));
                comer = Comer::new(server.door, transport.certificate().as_ref());
                negotiation.is_encrypted_now();
            }
        }
    }
    Err(rubbish("too many options in one negotiation"))
}
