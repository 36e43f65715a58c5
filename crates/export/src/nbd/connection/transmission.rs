//! The transmission phase of one client: each request is read, then runs as a task of its own, up
//! to its reply in the outbox. It runs on the shard of the volume, or on another one with messages
//! to that ([`Backend`]).
//!
//! Expected faults: those of `connection.rs`; a request that fails ends with its answer.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Buffer, Context, Event, Semaphore, yield_now};

use crate::budget::ClientLine;
use crate::nbd::connection::backend::Backend;
use crate::nbd::connection::outbox::{Outbox, Permits};
use crate::nbd::limits::Limits;
use crate::nbd::shutting_down::ShuttingDown;
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::wire::errors::rubbish;
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::protocol::CMD_DISC;
use crate::nbd::wire::replies::{Outcome, Reply};
use crate::nbd::wire::requests::{Command, REQUEST_BYTES, Request};

/// Minimum transfer, bytes, after whose start the reader yields, so that the request can be
/// answered before the next one is read if its drives answer at once: the client takes the reply
/// in that time.
const LONG_TRANSFER: u32 = 128 << 10;

/// A connection whose requests are to be served.
pub(crate) struct Transmission {
    pub context: Context,
    pub limits: Limits,
    pub shutting_down: ShuttingDown,
    pub transport: Rc<Transport>,
    pub inbox: Inbox,
    pub terms: Terms,
    pub memory: Rc<ClientLine>,
}

/// State shared by a connection and its requests.
struct Client<B> {
    backend: B,
    terms: Terms,
    outbox: Outbox,
    memory: Rc<ClientLine>,
    in_flight: Cell<usize>,
    idle: Event,
}

/// Reads requests until the client or its export ends, and waits for all replies.
pub(crate) async fn transmit(connection: Transmission, backend: impl Backend) -> io::Result<()> {
    let Transmission { context, limits, shutting_down, transport, inbox, terms, memory } = connection;
    let client = Rc::new(Client {
        backend,
        terms,
        outbox: Outbox::default(),
        memory,
        in_flight: Cell::new(0),
        idle: Event::new(),
    });
    let sending = {
        let (client, transport) = (client.clone(), transport.clone());
        let (of_task, stall_ns) = (context.clone(), limits.reply_stall_ns);
        context.spawn(async move { client.outbox.run(&of_task, &transport, stall_ns, &client.memory).await })
    };
    let read = {
        let reading = pin!(read_requests(&context, &limits, &shutting_down, &transport, inbox, &client));
        match select(reading, pin!(client.backend.until_ended())).await {
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
    sent.and(read)
}

async fn read_requests<B: Backend>(
    context: &Context,
    limits: &Limits,
    shutting_down: &ShuttingDown,
    transport: &Transport,
    mut inbox: Inbox,
    client: &Rc<Client<B>>,
) -> io::Result<()> {
    let places = Semaphore::new(limits.client_requests as u64);
    let room = Semaphore::new(limits.client_bytes);
    loop {
        if shutting_down.has_begun()
            || !inbox.need(transport, REQUEST_BYTES).await?
            || shutting_down.has_begun()
        {
            return Ok(());
        }
        // A client that has left may have sent thousands of requests before.
        if client.outbox.is_broken() {
            return Ok(());
        }
        let Some(request) = Request::parse(&inbox.take()) else {
            return Err(rubbish("malformed request"));
        };
        if request.kind == CMD_DISC {
            return Ok(());
        }
        let own = [places.acquire(1).await, room.acquire(u64::from(request.transfer_bytes())).await];
        let mut wanted = client.memory.wanted(context);
        let command = request.command(&client.backend.rules());
        let payload = match &command {
            Ok(Command::Write { .. }) if request.length > 0 => {
                let payload = client.backend.buffers().allocate(request.length as usize);
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
        let command = command.and_then(|command| match client.backend.news(&command) {
            Some(failure) => Err(failure),
            None => Ok(command),
        });
        match command {
            Ok(command) => {
                begin(context, client, request, command, payload, permits);
                if request.transfer_bytes() >= LONG_TRANSFER {
                    yield_now().await;
                }
            }
            Err(failure) => answer(client, &request, Outcome::Failed(failure), permits),
        }
    }
}

fn begin<B: Backend>(
    context: &Context,
    client: &Rc<Client<B>>,
    request: Request,
    command: Command,
    payload: Option<Buffer>,
    permits: Permits,
) {
    client.in_flight.set(client.in_flight.get() + 1);
    let client = client.clone();
    context.spawn(async move {
        let outcome = client.backend.execute(request, command, payload).await;
        answer(&client, &request, outcome, permits);
        client.in_flight.set(client.in_flight.get() - 1);
        if client.in_flight.get() == 0 {
            client.idle.notify_all();
        }
    });
}

fn answer<B>(client: &Client<B>, request: &Request, outcome: Outcome, permits: Permits) {
    client.outbox.push(Reply::new(request, client.terms.structured, outcome), permits);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use stripewise_drive::BufferPool;
    use stripewise_runtime::{OWNER_ONLY, RealExecutor};

    use super::*;
    use crate::budget::{Budget, Line};
    use crate::client_id::ClientId;
    use crate::nbd::wire::errors::Failure;
    use crate::nbd::wire::protocol::{CMD_READ, REQUEST_MAGIC};
    use crate::nbd::wire::requests::Rules;

    const TERMS: Terms = Terms { structured: false, block_status: false };
    const LENGTH: u32 = 64 << 10;

    /// Answers every read, and counts them.
    struct Counting {
        buffers: BufferPool,
        executed: Rc<Cell<u64>>,
    }

    impl Backend for Counting {
        fn rules(&self) -> Rules {
            Rules { terms: TERMS, size_bytes: 1 << 30, read_only: true }
        }

        fn buffers(&self) -> &BufferPool {
            &self.buffers
        }

        fn news(&self, _command: &Command) -> Option<Failure> {
            None
        }

        async fn execute(&self, request: Request, _command: Command, _payload: Option<Buffer>) -> Outcome {
            self.executed.set(self.executed.get() + 1);
            Outcome::Data(self.buffers.allocate_zeroed(request.length as usize))
        }

        async fn until_ended(&self) {
            std::future::pending().await
        }
    }

    #[test]
    fn requests_of_a_client_that_left_are_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let executor = RealExecutor::new().expect("io_uring");
        let listener = executor.network().listen_unix(&path, OWNER_ONLY).expect("a socket");
        let mut leaver = UnixStream::connect(&path).expect("connected");
        let sent = 2000;
        let kind = [&REQUEST_MAGIC.to_be_bytes()[..], &[0, 0], &CMD_READ.to_be_bytes()].concat();
        let request = [&kind[..], &[0; 16], &LENGTH.to_be_bytes()].concat();
        leaver.write_all(&request.repeat(sent)).expect("sent");
        drop(leaver);
        let executed = Rc::new(Cell::new(0));
        let limits = Limits::default();
        executor.block_on(async {
            let context = executor.context();
            let stream = Rc::new(listener.accept().await.expect("it was there"));
            let connection = Transmission {
                inbox: Inbox::new(&context, limits.request_stall_ns),
                context,
                limits,
                shutting_down: ShuttingDown::default(),
                transport: Rc::new(Transport::Plain(stream)),
                terms: TERMS,
                memory: Line::new(Budget::default().listener()).client(&ClientId::Unknown),
            };
            let backend = Counting { buffers: BufferPool::new(0), executed: executed.clone() };
            transmit(connection, backend).await.expect_err("its answers cannot be sent");
        });
        let most = limits.client_requests as u64 + 1;
        assert!(executed.get() <= most, "{} of {sent} were executed", executed.get());
    }
}
