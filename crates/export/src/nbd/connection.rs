//! One client, from its first byte to its last: negotiation, then requests (`transmission.rs`).
//!
//! Expected faults: clients that go at any moment, lie about lengths, send rubbish, stop half-way,
//! or ask for more than they may; an export that ends under them (its pool is closed, perhaps to be
//! opened again). Each ends with an answer or with this connection; requests under way are finished
//! all the same.

pub(super) mod outbox;
pub(super) mod strangers;
pub(super) mod terrain;
pub(super) mod transmission;
pub(super) mod turned_away;

use std::io;
use std::rc::Rc;

use stripewise_runtime::{Piece, Stream};

use crate::block::Exports;
use crate::client_id::ClientId;
use crate::nbd::connection::strangers::Stranger;
use crate::nbd::connection::terrain::Terrain;
use crate::nbd::connection::transmission::transmit;
use crate::nbd::door::{Allowed, Client as Comer, Door};
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::transport::patience::within;
use crate::nbd::wire::errors::rubbish;
use crate::nbd::wire::negotiation::{Agreed, Negotiation, Next, greeting, reply};
use crate::nbd::wire::options::{LONGEST_OPTION, OPTION_HEAD_BYTES, parse_option_head};
use crate::nbd::wire::protocol::REP_ERR_TOO_BIG;

/// Options that a negotiation may have.
const MOST_OPTIONS: usize = 1000;

/// Serves a client; `begins` is told which export it uses as soon as that is agreed. An error says
/// why it was given up. `stranger` is its place among those that have not agreed on anything yet.
pub(crate) async fn serve<E: Exports>(
    terrain: &Terrain<'_, E>,
    stream: Rc<Stream>,
    begins: impl FnOnce(&str),
    stranger: Option<Stranger>,
) -> io::Result<()> {
    let mut inbox = Inbox::new(terrain.context, terrain.limits.request_stall_ns);
    let negotiated = {
        let negotiation = Box::pin(negotiate(terrain, stream, &mut inbox));
        let limited = within(terrain.context, terrain.limits.negotiation_ns, negotiation).await;
        limited.ok_or_else(|| {
            io::Error::new(io::ErrorKind::TimedOut, "negotiation took longer than allowed")
        })??
    };
    let Some((transport, agreed)) = negotiated else { return Ok(()) };
    drop(stranger);
    begins(&agreed.name);
    let id = client_id(terrain.door, &transport);
    transmit(terrain, Rc::new(transport), inbox, agreed.export, agreed.terms, id).await
}

/// The identity of a client that has agreed on an export.
fn client_id(door: &Door, transport: &Transport) -> ClientId {
    let certificate = transport.certificate();
    certificate.map_or_else(
        || origin(transport.stream(), door),
        |certificate| ClientId::Certificate(certificate.to_vec()),
    )
}

/// The identity of a client that has said nothing yet.
pub(super) fn origin(stream: &Stream, door: &Door) -> ClientId {
    let user = |user| ClientId::User { place: door.place.clone(), user };
    let address = stream.peer_address().map(ClientId::from);
    address.or_else(|| stream.peer_user().map(user)).unwrap_or(ClientId::Unknown)
}

type Negotiated<X> = Option<(Transport, Agreed<X>)>;

async fn negotiate<E: Exports>(
    terrain: &Terrain<'_, E>,
    stream: Rc<Stream>,
    inbox: &mut Inbox,
) -> io::Result<Negotiated<E::Export>> {
    let mut transport = Transport::Plain(stream);
    transport.send(vec![Piece::from(greeting())]).await?;
    if !inbox.need(&transport, 4).await? {
        return Ok(None);
    }
    let flags = u32::from_be_bytes(inbox.take());
    let Some(mut negotiation) = Negotiation::new(terrain.tls_policy, flags) else {
        return Err(rubbish("its flags are unknown"));
    };
    for _ in 0..MOST_OPTIONS {
        if terrain.ending.get() || !inbox.need(&transport, OPTION_HEAD_BYTES).await? {
            return Ok(None);
        }
        let head = inbox.take::<OPTION_HEAD_BYTES>();
        let Some((option, length)) = parse_option_head(&head) else {
            return Err(rubbish("what should be an option is none"));
        };
        let mut replies = Vec::new();
        if length > LONGEST_OPTION {
            reply(&mut replies, option, REP_ERR_TOO_BIG, b"options are at most 32 KiB long");
            transport.send(vec![Piece::from(replies)]).await?;
            return Err(rubbish("an option is longer than 32 KiB"));
        }
        inbox.need_more(&transport, length as usize).await?;
        let data = inbox.take_vec(length as usize);
        let comer = Comer { door: terrain.door, certificate: transport.certificate() };
        let exports = Allowed { exports: terrain.exports, comer };
        let next = negotiation.option(&exports, option, &data, &mut replies);
        transport.send(vec![Piece::from(replies)]).await?;
        match next {
            Next::Option => {}
            Next::End => return Ok(None),
            Next::Refused(why) => return Err(io::Error::new(io::ErrorKind::NotFound, why)),
            Next::Transmission(agreed) => return Ok(Some((transport, agreed))),
            Next::StartTls => {
                if inbox.available() > 0 {
                    // Whoever put this here may not be who the keys are agreed with.
                    return Err(rubbish("it sent more in the clear after asking for TLS"));
                }
                let Some(tls) = terrain.tls else { return Ok(None) };
                let stream = transport.stream().clone();
                let session = tls.handshake(&stream).await?;
                transport = Transport::Tls(stream, Box::new(session.into()));
                negotiation.is_encrypted_now();
            }
        }
    }
    Err(rubbish("it negotiated without end"))
}
