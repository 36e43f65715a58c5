//! A shard that serves connections: its thread's work, and the volumes of its connections, which
//! are messages away.
//!
//! Expected faults: those of a connection; a home that has ended (the connections end with it).

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use stripewise_drive::{Answerer, Buffer, BufferPool, Context, Delivery, HalfPort, Port};
use stripewise_runtime::Network;

use crate::block::Ending;
use crate::budget::Line;
use crate::direct::DirectExport;
use crate::nbd::connection::backend::Backend;
use crate::nbd::connection::transmission::{Transmission, transmit};
use crate::nbd::limits::Limits;
use crate::nbd::shards::messages::{Handed, Remote, ToHome, ToShard};
use crate::nbd::shutting_down::ShuttingDown;
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::wire::errors::Failure;
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::protocol::ESHUTDOWN;
use crate::nbd::wire::replies::Outcome;
use crate::nbd::wire::requests::{Command, Request, Rules};
use crate::shares::Group;

type HomePort = Port<ToHome, ToShard>;

struct Remotes {
    context: Context,
    network: Network,
    limits: Limits,
    shutting_down: ShuttingDown,
    port: Rc<HomePort>,
    buffers: BufferPool,
    /// Memory by listener.
    lines: RefCell<Vec<Rc<Line>>>,
    /// Ends of volumes by number of the connection.
    endings: RefCell<HashMap<u64, Rc<Ending>>>,
}

/// Serves connections until the home closes the link.
pub(super) async fn run(
    (context, buffers): (Context, BufferPool),
    network: Network,
    link: HalfPort<ToHome, ToShard>,
    limits: Limits,
    shutting_down: ShuttingDown,
) {
    let port = link.open(&context, Delivery::AtOnce);
    let shard = Rc::new(Remotes {
        context,
        network,
        limits,
        shutting_down,
        port: port.clone(),
        buffers,
        lines: RefCell::default(),
        endings: RefCell::default(),
    });
    let noted = |note| match note {
        ToShard::VolumeEnded(number) => {
            // The connection may have ended at the same time.
            if let Some(ending) = shard.endings.borrow().get(&number) {
                ending.begin();
            }
        }
        ToShard::Serve(_) | ToShard::Outcome(..) => unreachable!("a call and an answer are no notes"),
    };
    let called = |call, answerer: Answerer<ToHome>| {
        let ToShard::Serve(handed) = call else { unreachable!("the home hands over connections only") };
        let ending = Rc::<Ending>::default();
        shard.endings.borrow_mut().insert(handed.number, ending.clone());
        let of_task = shard.clone();
        shard.context.spawn(async move {
            let number = handed.number;
            let outcome = of_task.serve(*handed, ending).await;
            of_task.endings.borrow_mut().remove(&number);
            answerer.answer(ToHome::Over(outcome));
        });
    };
    port.serve(noted, called).await;
    port.close();
}

impl Remotes {
    async fn serve(&self, handed: Handed, ending: Rc<Ending>) -> io::Result<()> {
        let Handed { number, stream, tls, received, terms, client, memory, direct } = handed;
        let stream = Rc::new(self.network.take_over(stream));
        let transport = match tls {
            None => Transport::Plain(stream),
            Some(session) => Transport::Tls(stream, Box::new(RefCell::new(session.into()))),
        };
        let connection = Transmission {
            context: self.context.clone(),
            limits: self.limits,
            shutting_down: self.shutting_down.clone(),
            transport: Rc::new(transport),
            inbox: Inbox::with(&self.context, self.limits.request_stall_ns, &received),
            terms,
            memory: self.line(memory).client(&client),
        };
        let (port, buffers) = (self.port.clone(), self.buffers.clone());
        let context = self.context.clone();
        let backend = RemoteBackend { context, port, connection: number, terms, buffers, ending, direct };
        transmit(connection, backend).await
    }

    fn line(&self, of: Group) -> Rc<Line> {
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.iter().find(|line| line.is_of(&of)) {
            return line.clone();
        }
        let line = Rc::new(Line::new(of));
        lines.push(line.clone());
        line
    }
}

/// A volume of the home, which may have arrays on this thread.
struct RemoteBackend {
    context: Context,
    port: Rc<HomePort>,
    connection: u64,
    terms: Terms,
    buffers: BufferPool,
    ending: Rc<Ending>,
    direct: Option<DirectExport>,
}

impl RemoteBackend {
    /// Executes a read or write on this thread; `None` if it has to go to the home.
    async fn execute_here(
        &self,
        request: &Request,
        command: Command,
        payload: Option<&Buffer>,
    ) -> Option<Outcome> {
        let direct = self.direct.as_ref()?;
        match (command, payload) {
            (Command::Read, _) => {
                let (length, finds_holes) = (request.length as usize, self.terms.structured);
                let read = direct.read(&self.context, request.offset, length, finds_holes).await?;
                Some(read.map_or(Outcome::Hole, Outcome::Data))
            }
            (Command::Write { fua: false }, Some(payload)) => {
                let written = direct.write(&self.context, request.offset, payload.clone()).await;
                written.then_some(Outcome::Done)
            }
            _ => None,
        }
    }
}

impl Backend for RemoteBackend {
    /// The home checks size and protection, which may change.
    fn rules(&self) -> Rules {
        Rules { terms: self.terms, size_bytes: u64::MAX, read_only: false }
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    /// Comes with the answer.
    fn news(&self, _command: &Command) -> Option<Failure> {
        None
    }

    async fn execute(&self, request: Request, command: Command, payload: Option<Buffer>) -> Outcome {
        if let Some(outcome) = self.execute_here(&request, command, payload.as_ref()).await {
            return outcome;
        }
        let memory = match payload {
            Some(payload) => Some(payload.into_moved()),
            None if command == Command::Read => self.buffers.spare(request.transfer_bytes() as usize),
            None => None,
        };
        let remote = Remote { connection: self.connection, request, memory };
        match self.port.call(ToHome::Request(remote)).await {
            Some(ToShard::Outcome(outcome, spare)) => {
                self.buffers.keep_spare(spare);
                outcome.arrived(&self.buffers)
            }
            Some(_) => unreachable!("the answer to a request is its outcome"),
            None => Outcome::Failed(Failure::new(ESHUTDOWN, "the server has shut down")),
        }
    }

    async fn until_ended(&self) {
        self.ending.until_begun().await;
    }
}
