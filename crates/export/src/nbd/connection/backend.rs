//! Execution of a connection's requests: on this shard ([`LocalBackend`]), or by messages on the
//! shard of the volume (`shards/remote.rs`).
//!
//! Expected faults: a volume that ends or changes its size between two requests (each request is
//! checked against the volume as it is), lost writes of which the client was not informed, and
//! requests that fail, which end with their answer.

use std::future::Future;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool};

use crate::block::{self, Export};
use crate::losses::Connection;
use crate::nbd::wire::errors::Failure;
use crate::nbd::wire::negotiation::Terms;
use crate::nbd::wire::protocol::{EIO, ENOTSUP, ESHUTDOWN};
use crate::nbd::wire::replies::Outcome;
use crate::nbd::wire::requests::{Command, Request, Rules};

/// Maximum extents in one reply; the client asks again from where they end.
const MOST_EXTENTS: usize = 4096;

/// Reported once to each client that had a volume open whose pool was reopened with a loss.
const MAY_BE_LOST: &str = "some earlier unflushed writes may be lost";

/// The volume of a connection.
pub(crate) trait Backend: 'static {
    /// Rules for the requests that are read now.
    fn rules(&self) -> Rules;
    /// Pool of the buffers of payloads and answers.
    fn buffers(&self) -> &BufferPool;
    /// The reason to refuse a request that relies on earlier writes: a loss that the client was not
    /// informed of. It is marked as reported.
    fn news(&self, command: &Command) -> Option<Failure>;
    /// Executes a command. `payload`: the data of a write; empty for other commands.
    fn execute(
        &self,
        request: Request,
        command: Command,
        payload: Option<Buffer>,
    ) -> impl Future<Output = Outcome>;
    /// Waits until the volume is no longer served.
    fn until_ended(&self) -> impl Future<Output = ()>;
}

/// An export of this shard.
pub(crate) struct LocalBackend<X> {
    pub export: Rc<X>,
    pub terms: Terms,
    /// Losses of the volume still to be reported to this client.
    pub losses: Rc<Connection>,
}

impl<X: Export> LocalBackend<X> {
    /// Checks and executes a request that another shard has read.
    pub(crate) async fn perform(&self, request: Request, payload: Option<Buffer>) -> Outcome {
        let command = match request.command(&self.rules()) {
            Ok(command) => command,
            Err(failure) => return Outcome::Failed(failure),
        };
        match self.news(&command) {
            Some(failure) => Outcome::Failed(failure),
            None => self.execute(request, command, payload).await,
        }
    }
}

impl<X: Export> Backend for LocalBackend<X> {
    fn rules(&self) -> Rules {
        Rules {
            terms: self.terms,
            size_bytes: self.export.size_bytes(),
            read_only: self.export.is_read_only(),
        }
    }

    fn buffers(&self) -> &BufferPool {
        self.export.buffers()
    }

    fn news(&self, command: &Command) -> Option<Failure> {
        (command.relies_on_writes() && self.losses.takes_news()).then(|| Failure::new(EIO, MAY_BE_LOST))
    }

    async fn execute(&self, request: Request, command: Command, payload: Option<Buffer>) -> Outcome {
        let export = &*self.export;
        let outcome = match (command, payload) {
            (Command::Read, _) => read(export, self.terms.structured, &request).await,
            (Command::Write { fua }, Some(payload)) => block::write(export, request.offset, payload, fua)
                .await
                .map(|()| Outcome::Done)
                .map_err(Failure::from),
            (command, _) => Box::pin(rarer(export, &request, command)).await,
        };
        let outcome = outcome.unwrap_or_else(Outcome::Failed);
        if matches!(&outcome, Outcome::Failed(failure) if failure.errno == ESHUTDOWN) {
            export.ending().begin();
        }
        outcome
    }

    async fn until_ended(&self) {
        self.export.ending().until_begun().await;
    }
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
                block::fill_with_zeroes(export, offset, length).await?;
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
