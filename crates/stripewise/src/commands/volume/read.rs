//! `volume read`: copies a volume to standard output, with several pieces in flight.
//!
//! Expected faults: ranges beyond the end, missing drives (data is reconstructed), a reader that
//! closes the pipe early, a pool that was not closed (it is recovered, in memory if its drives are
//! read-only).

use std::collections::VecDeque;

use clap::Args;
use stripewise_array::ArrayError;
use stripewise_control::names::ReadableName;
use stripewise_control::pools::pieces::{IN_FLIGHT, Pieces, aligned, find_readable};
use stripewise_control::pools::session::with_pool_to_read;
use stripewise_control::request::ReadVolume;
use stripewise_control::response::Response;
use stripewise_control::size::ByteSize;
use stripewise_drive::{Buffer, Context, JoinHandle};
use stripewise_pool::Volume;

use crate::commands::App;
use crate::failure::{Failure, Result};
use crate::printer::Printer;
use crate::progress::Progress;

/// Copy data from a volume to standard output
#[derive(Args)]
#[command(after_help = "Example: stripewise volume read tank/data --offset 0 --length 1MiB")]
pub(crate) struct Options {
    /// The volume, or a snapshot of one
    #[arg(value_name = "POOL/VOL[@NAME]")]
    name: ReadableName,
    /// Offset of the first byte
    #[arg(long, value_name = "N", default_value = "0")]
    offset: ByteSize,
    /// Number of bytes [default: to the end of the volume]
    #[arg(long, value_name = "N")]
    length: Option<ByteSize>,
}

impl Options {
    pub(crate) fn request(&self) -> ReadVolume {
        ReadVolume {
            volume: self.name.clone(),
            offset: self.offset.0,
            length: self.length.map(|length| length.0),
        }
    }
}

pub(crate) async fn run(asked: &ReadVolume, app: &App) -> Result<Response> {
    if app.printer.is_json() {
        return Err(Failure::usage("volume read prints raw data; it cannot be combined with --json"));
    }
    let name = &asked.volume;
    with_pool_to_read(app, name.pool(), &format!("volume read {name}"), async |session| {
        session.show_notices();
        let volume = find_readable(session, name)?;
        let (capacity, offset) = (volume.capacity_bytes(), asked.offset);
        let length = asked.length.unwrap_or_else(|| capacity.saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > capacity) {
            return Err(Failure::new(format!(
                "cannot read {length} bytes at {offset} of volume `{name}`: it ends at {capacity}"
            ))
            .hint("omit --length to read to the end"));
        }
        let context = session.executor().context();
        copy(&context, &volume, name, offset..offset + length, &app.printer).await
    })
    .await?;
    Ok(Response::BytesSent)
}

type Answer = JoinHandle<std::result::Result<Buffer, ArrayError>>;

async fn copy(
    context: &Context,
    volume: &Volume,
    name: &ReadableName,
    range: std::ops::Range<u64>,
    printer: &Printer,
) -> Result<()> {
    let mut progress = Progress::new(printer);
    let sector_bytes = volume.sector_bytes();
    let mut pieces = Pieces::new(volume.geometry().stripe_data_bytes(), range.clone());
    let mut in_flight: VecDeque<(std::ops::Range<u64>, Answer)> = VecDeque::new();
    loop {
        while in_flight.len() < IN_FLIGHT
            && let Some(piece) = pieces.next()
        {
            let (start, length) = aligned(&piece, sector_bytes);
            let volume = volume.clone();
            in_flight.push_back((piece, context.spawn(async move { volume.read(start, length).await })));
        }
        let Some((piece, answer)) = in_flight.pop_front() else { return Ok(()) };
        let buffer = answer.await.map_err(|error| {
            Failure::because(format!("cannot read volume `{name}` at {}", piece.start), &error)
                .hint(format!("`stripewise pool status {}` shows the state of its drives", name.pool()))
        })?;
        let skip = (piece.start - aligned(&piece, sector_bytes).0) as usize;
        let bytes = buffer.slice(skip..skip + (piece.end - piece.start) as usize);
        printer.bytes(&bytes).await?;
        progress.bytes(&format!("reading {name}"), piece.end - range.start, Some(range.end - range.start));
    }
}
