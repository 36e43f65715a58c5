//! Doing what a request asks, on an export.

use stripewise_drive::Buffer;

use super::errors::Failure;
use super::protocol::ENOTSUP;
use super::replies::Outcome;
use super::requests::{Command, Request};
use crate::edges;
use crate::export::Export;

/// Stretches told in one answer, at most; the client asks on from where they end.
const MOST_EXTENTS: usize = 4096;
/// Zeros that may not become holes are written in pieces of this many bytes.
const ZERO_WRITE_BYTES: u64 = 1 << 20;

/// `payload`: what is to be written; empty for other commands.
pub(crate) async fn carry_out(
    export: &impl Export,
    structured: bool,
    request: &Request,
    command: Command,
    payload: Option<Buffer>,
) -> Outcome {
    let outcome = match (command, payload) {
        (Command::Read, _) => read(export, structured, request).await,
        (Command::Write { fua }, Some(payload)) => edges::write(export, request.offset, payload, fua)
            .await
            .map(|()| Outcome::Done)
            .map_err(Failure::from),
        (command, _) => Box::pin(rarer(export, request, command)).await,
    };
    outcome.unwrap_or_else(Outcome::Failed)
}

async fn read(export: &impl Export, structured: bool, request: &Request) -> Result<Outcome, Failure> {
    let (offset, length) = (request.offset, request.length);
    if structured && length > 0 && edges::is_unwritten(export, offset, u64::from(length))? {
        return Ok(Outcome::Hole);
    }
    Ok(Outcome::Data(edges::read(export, offset, length as usize).await?))
}

async fn rarer(export: &impl Export, request: &Request, command: Command) -> Result<Outcome, Failure> {
    let (offset, length) = (request.offset, u64::from(request.length));
    match command {
        // Nothing is written where there is nothing to write.
        Command::Read | Command::Write { .. } => {}
        Command::Flush => export.flush().await?,
        // Reads are served from the drives, whatever was read before: there is nothing to prepare.
        Command::Cache => {}
        Command::Trim { fua } => {
            edges::discard(export, offset, length).await?;
            if fua {
                export.flush().await?;
            }
        }
        Command::WriteZeroes { fua, may_punch, only_fast } => {
            if only_fast && !(may_punch && edges::zeroes_at_once(export, offset, length)?) {
                return Err(Failure::new(ENOTSUP, "zeroing this range is no faster than writing it"));
            }
            if may_punch {
                edges::write_zeroes(export, offset, length).await?;
            } else {
                fill_with_zeroes(export, offset, length).await?;
            }
            if fua {
                export.flush().await?;
            }
        }
        Command::BlockStatus { only_one } => {
            let most = if only_one { 1 } else { MOST_EXTENTS };
            return Ok(Outcome::Status(edges::extents(export, offset, length, most)?));
        }
    }
    Ok(Outcome::Done)
}

/// Zeros that take their space.
async fn fill_with_zeroes(export: &impl Export, offset: u64, length: u64) -> Result<(), Failure> {
    let (mut at, end) = (offset, offset + length);
    while at < end {
        // All pieces but the first and the last are whole sectors.
        let next = ((at / ZERO_WRITE_BYTES + 1) * ZERO_WRITE_BYTES).min(end);
        let zeroes = export.buffers().allocate_zeroed((next - at) as usize);
        edges::write(export, at, zeroes, false).await?;
        at = next;
    }
    Ok(())
}
