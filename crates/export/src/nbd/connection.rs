//! One client, from its first byte to its last: negotiation, then requests, each of them a task of
//! its own.
//!
//! Expected faults: clients that go at any moment, lie about lengths, send rubbish, stop half-way,
//! or ask for more than they may; an export that ends under them (its pool is closed, perhaps to be
//! opened anew). Each ends with an answer or with this connection; requests under way are finished
//! all the same.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Buffer, Context, Event, Semaphore, yield_now};
use stripewise_runtime::{Piece, Stream};

use super::carry_out::carry_out;
use super::door::{Allowed, Client as Comer, Door};
use super::inbox::Inbox;
use super::limits::Limits;
use super::negotiation::{Agreed, Negotiation, Next, Terms, greeting, reply};
use super::options::{LONGEST_OPTION, OPTION_HEAD_BYTES, parse_option_head};
use super::outbox::{Outbox, Permits};
use super::patience::within;
use super::protocol::{CMD_DISC, ESHUTDOWN, REP_ERR_TOO_BIG};
use super::replies::{Outcome, Reply};
use super::requests::{Command, REQUEST_BYTES, Request, Rules};
use super::strangers::Stranger;
use super::tls::{Tls, TlsPolicy};
use super::transport::Transport;
use crate::budget::Line;
use crate::export::{Export, Exports};

/// A request that transfers so much, bytes, is begun, and answered if its drives answer at once,
/// before the next one is looked at: the client then takes the answer while the next one is read.
const LONG_TRANSFER: u32 = 128 << 10;
/// Options that a negotiation may have.
const MOST_OPTIONS: usize = 1000;

/// What a connection needs of its server.
pub(crate) struct Terrain<'a, E> {
    pub context: &'a Context,
    pub exports: &'a E,
    pub limits: Limits,
    pub tls: Option<&'a Tls>,
    pub tls_policy: TlsPolicy,
    /// Memory for requests of all connections.
    pub line: &'a Line,
    /// Where it came in, and what it may open there.
    pub door: &'a Door,
    /// Set when the server ends: no further requests are read.
    pub ending: &'a Cell<bool>,
}

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
    transmit(terrain, Rc::new(transport), inbox, agreed.export, agreed.terms).await
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

fn rubbish(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// What a connection and its requests share.
struct Client<X> {
    export: Rc<X>,
    terms: Terms,
    outbox: Outbox,
    under_way: Cell<usize>,
    idle: Event,
}

async fn transmit<E: Exports>(
    terrain: &Terrain<'_, E>,
    transport: Rc<Transport>,
    inbox: Inbox,
    export: Rc<E::Export>,
    terms: Terms,
) -> io::Result<()> {
    let outbox = Outbox::default();
    let client = Rc::new(Client { export, terms, outbox, under_way: Cell::new(0), idle: Event::new() });
    let sending = {
        let (client, transport) = (client.clone(), transport.clone());
        let (context, stall_ns) = (terrain.context.clone(), terrain.limits.reply_stall_ns);
        terrain.context.spawn(async move { client.outbox.run(&context, &transport, stall_ns).await })
    };
    let read = {
        let reading = pin!(read_requests(terrain, &transport, inbox, &client));
        match select(reading, pin!(client.export.ending().until_begun())).await {
            Either::Left((read, _)) => read,
            // What comes now belongs to whatever has its name next: the client has to ask for that.
            Either::Right(_) => {
                Err(io::Error::new(io::ErrorKind::NotConnected, "its volume is served no more"))
            }
        }
    };
    while client.under_way.get() > 0 {
        client.idle.wait().await;
    }
    client.outbox.end();
    let sent = sending.await;
    if sent.is_ok() {
        transport.say_end().await;
    }
    if terrain.ending.get() && !client.export.is_read_only() {
        client.export.flush().await.map_err(|error| io::Error::other(error.to_string()))?;
    }
    sent.and(read)
}

async fn read_requests<E: Exports>(
    terrain: &Terrain<'_, E>,
    transport: &Transport,
    mut inbox: Inbox,
    client: &Rc<Client<E::Export>>,
) -> io::Result<()> {
    let places = Semaphore::new(terrain.limits.client_requests as u64);
    let room = Semaphore::new(terrain.limits.client_bytes);
    loop {
        if terrain.ending.get() || !inbox.need(transport, REQUEST_BYTES).await? || terrain.ending.get() {
            return Ok(());
        }
        let Some(request) = Request::parse(&inbox.take()) else {
            return Err(rubbish("what should be a request is none"));
        };
        if request.kind == CMD_DISC {
            return Ok(());
        }
        let own = [places.acquire(1).await, room.acquire(u64::from(request.transfer_bytes())).await];
        let mut wanted = terrain.line.wanted(terrain.context);
        let rules = Rules {
            terms: client.terms,
            size_bytes: client.export.size_bytes(),
            read_only: client.export.is_read_only(),
        };
        let command = request.command(&rules);
        let payload = match &command {
            Ok(Command::Write { .. }) if request.length > 0 => {
                let payload = client.export.buffers().allocate(request.length as usize);
                inbox.fill_from_budget(transport, &payload, &mut wanted).await?;
                payload.freeze();
                Some(payload)
            }
            _ => {
                inbox.skip(transport, u64::from(request.payload_bytes())).await?;
                None
            }
        };
        if matches!(command, Ok(Command::Read)) {
            wanted.add(u64::from(request.transfer_bytes())).await;
        }
        let permits = Permits { _own: own, _memory: wanted.into_taken() };
        match command {
            Ok(command) => {
                begin(terrain.context, client, request, command, payload, permits);
                if request.transfer_bytes() >= LONG_TRANSFER {
                    yield_now().await;
                }
            }
            Err(failure) => answer(client, &request, Outcome::Failed(failure), permits),
        }
    }
}

fn begin<X: Export>(
    context: &Context,
    client: &Rc<Client<X>>,
    request: Request,
    command: Command,
    payload: Option<Buffer>,
    permits: Permits,
) {
    client.under_way.set(client.under_way.get() + 1);
    let client = client.clone();
    context.spawn(async move {
        let outcome = carry_out(&*client.export, client.terms.structured, &request, command, payload).await;
        if matches!(&outcome, Outcome::Failed(failure) if failure.errno == ESHUTDOWN) {
            client.export.ending().begin();
        }
        answer(&client, &request, outcome, permits);
        client.under_way.set(client.under_way.get() - 1);
        if client.under_way.get() == 0 {
            client.idle.notify_all();
        }
    });
}

fn answer<X>(client: &Client<X>, request: &Request, outcome: Outcome, permits: Permits) {
    client.outbox.push(Reply::new(request, client.terms.structured, outcome), permits);
}
