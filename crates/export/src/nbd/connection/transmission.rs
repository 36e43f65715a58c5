//! The transmission phase of one client: each request is read, then runs as a task of its own, up
//! to its reply in the outbox.
//!
//! Expected faults: those of `connection.rs`; a request that fails ends with its answer.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Buffer, Context, Event, Semaphore, yield_now};

use crate::block::{self, Export, Exports};
use crate::budget::ClientLine;
use crate::client_id::ClientId;
use crate::losses::Connection;
use crate::nbd::connection::outbox::{Outbox, Permits};
use crate::nbd::connection::server_context::ServerContext;
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::wire::errors::{Failure, rubbish};
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::protocol::{CMD_DISC, EIO, ENOTSUP, ESHUTDOWN};
use crate::nbd::wire::replies::{Outcome, Reply};
use crate::nbd::wire::requests::{Command, REQUEST_BYTES, Request, Rules};

/// Minimum transfer, bytes, after whose start the reader yields, so that the request can be
/// answered before the next one is read if its drives answer at once: the client takes the reply
/// in that time.
const LONG_TRANSFER: u32 = 128 << 10;
/// Maximum extents in one reply; the client asks again from where they end.
const MOST_EXTENTS: usize = 4096;
/// Length of writes of zeros that must not become holes, bytes.
const ZERO_WRITE_BYTES: u64 = 1 << 20;

/// Reported once to each client that had a volume open whose pool was reopened with a loss.
const MAY_BE_LOST: &str = "some earlier unflushed writes may be lost";

/// State shared by a connection and its requests.
struct Client<X> {
    export: Rc<X>,
    terms: Terms,
    outbox: Outbox,
    memory: Rc<ClientLine>,
    /// Losses of the volume still to be reported to this client.
    losses: Connection,
    in_flight: Cell<usize>,
    idle: Event,
}

/// Reads requests until the client or its export ends, and waits for all replies.
pub(crate) async fn transmit<E: Exports>(
    server: &ServerContext<'_, E>,
    transport: Rc<Transport>,
    inbox: Inbox,
    export: Rc<E::Export>,
    terms: Terms,
    id: ClientId,
) -> io::Result<()> {
    let (outbox, memory) = (Outbox::default(), server.line.client(&id));
    let losses = export.losses().connect(id);
    let client = Rc::new(Client {
        export,
        terms,
        outbox,
        memory,
        losses,
        in_flight: Cell::new(0),
        idle: Event::new(),
    });
    let sending = {
        let (client, transport) = (client.clone(), transport.clone());
        let (context, stall_ns) = (server.context.clone(), server.limits.reply_stall_ns);
        server
            .context
            .spawn(async move { client.outbox.run(&context, &transport, stall_ns, &client.memory).await })
    };
    let read = {
        let reading = pin!(read_requests(server, &transport, inbox, &client));
        match select(reading, pin!(client.export.ending().until_begun())).await {
            Either::Left((read, _)) => read,
            // Later requests would concern another export of this name: the client has to
            // reconnect.
            Either::Right(_) => {
                Err(io::Error::new(io::ErrorKind::NotConnected, "its volume is no longer served"))
            }
        }
    };
    while client.in_flight.get() > 0 {
        client.idle.wait().await;
    }
    client.outbox.end();
    let sent = sending.await;
    if sent.is_ok() {
        transport.say_end().await;
    }
    if server.ending.get() && !client.export.is_read_only() {
        client.export.flush().await.map_err(|error| io::Error::other(error.to_string()))?;
    }
    sent.and(read)
}

async fn read_requests<E: Exports>(
    server: &ServerContext<'_, E>,
    transport: &Transport,
    mut inbox: Inbox,
    client: &Rc<Client<E::Export>>,
) -> io::Result<()> {
    let places = Semaphore::new(server.limits.client_requests as u64);
    let room = Semaphore::new(server.limits.client_bytes);
    loop {
        if server.ending.get() || !inbox.need(transport, REQUEST_BYTES).await? || server.ending.get() {
            return Ok(());
        }
        let Some(request) = Request::parse(&inbox.take()) else {
            return Err(rubbish("malformed request"));
        };
        if request.kind == CMD_DISC {
            return Ok(());
        }
        let own = [places.acquire(1).await, room.acquire(u64::from(request.transfer_bytes())).await];
        let mut wanted = client.memory.wanted(server.context);
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
        let command =
            command.and_then(|command| match command.relies_on_writes() && client.losses.takes_news() {
                true => Err(Failure::new(EIO, MAY_BE_LOST)),
                false => Ok(command),
            });
        match command {
            Ok(command) => {
                begin(server.context, client, request, command, payload, permits);
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
    client.in_flight.set(client.in_flight.get() + 1);
    let client = client.clone();
    context.spawn(async move {
        let outcome = execute(&*client.export, client.terms.structured, &request, command, payload).await;
        if matches!(&outcome, Outcome::Failed(failure) if failure.errno == ESHUTDOWN) {
            client.export.ending().begin();
        }
        answer(&client, &request, outcome, permits);
        client.in_flight.set(client.in_flight.get() - 1);
        if client.in_flight.get() == 0 {
            client.idle.notify_all();
        }
    });
}

fn answer<X>(client: &Client<X>, request: &Request, outcome: Outcome, permits: Permits) {
    client.outbox.push(Reply::new(request, client.terms.structured, outcome), permits);
}

/// Executes a command. `payload`: the data of a write; empty for other commands.
async fn execute(
    export: &impl Export,
    structured: bool,
    request: &Request,
    command: Command,
    payload: Option<Buffer>,
) -> Outcome {
    let outcome = match (command, payload) {
        (Command::Read, _) => read(export, structured, request).await,
        (Command::Write { fua }, Some(payload)) => block::write(export, request.offset, payload, fua)
            .await
            .map(|()| Outcome::Done)
            .map_err(Failure::from),
        (command, _) => Box::pin(rarer(export, request, command)).await,
    };
    outcome.unwrap_or_else(Outcome::Failed)
}

async fn read(export: &impl Export, structured: bool, request: &Request) -> Result<Outcome, Failure> {
    let (offset, length) = (request.offset, request.length);
    if structured && length > 0 && block::is_unwritten(export, offset, u64::from(length))? {
        return Ok(Outcome::Hole);
    }
    Ok(Outcome::Data(block::read(export, offset, length as usize).await?))
}

async fn rarer(export: &impl Export, request: &Request, command: Command) -> Result<Outcome, Failure> {
    let (offset, length) = (request.offset, u64::from(request.length));
    match command {
        // Reads are handled above, and a write without payload has no effect.
        Command::Read | Command::Write { .. } => {}
        Command::Flush => export.flush().await?,
        // Reads always come from the drives: there is no cache to prepare.
        Command::Cache => {}
        Command::Trim { fua } => block::discard(export, offset, length, fua).await?,
        Command::WriteZeroes { fua, may_punch, only_fast } => {
            if only_fast && !(may_punch && block::zeroes_at_once(export, offset, length)?) {
                return Err(Failure::new(ENOTSUP, "zeroing this range is no faster than writing it"));
            }
            if may_punch {
                block::write_zeroes(export, offset, length, fua).await?;
            } else {
                fill_with_zeroes(export, offset, length).await?;
                block::flush_if(export, fua).await?;
            }
        }
        Command::BlockStatus { only_one } => {
            let most = if only_one { 1 } else { MOST_EXTENTS };
            return Ok(Outcome::Status(block::extents(export, offset, length, most)?));
        }
    }
    Ok(Outcome::Done)
}

/// Writes zeros, which take up space.
async fn fill_with_zeroes(export: &impl Export, offset: u64, length: u64) -> Result<(), Failure> {
    let (mut at, end) = (offset, offset + length);
    while at < end {
        // Pieces end at multiples of `ZERO_WRITE_BYTES`, so only the first and last are unaligned.
        let next = ((at / ZERO_WRITE_BYTES + 1) * ZERO_WRITE_BYTES).min(end);
        let zeroes = export.buffers().allocate_zeroed((next - at) as usize);
        block::write(export, at, zeroes, false).await?;
        at = next;
    }
    Ok(())
}
