//! `volume write`: bytes from standard input into a volume, several pieces in flight, durable when the command ends.
//!
//! Expected faults: input that does not fit (what fits is written, and said so), drives missing, ranges that begin or end
//! within a block of 512 bytes (the rest of the block is kept), a volume that a client has open (refused).

use std::collections::VecDeque;
use std::ops::Range;

use clap::Args;
use serde::Serialize;
use stripewise_drive::{Buffer, Context, JoinHandle};
use stripewise_engine::ArrayError;
use stripewise_engine::pool::Volume;

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::input::Input;
use crate::names::VolumeName;
use crate::nest::refuse_if_used;
use crate::pieces::{BLOCK_BYTES, IN_FLIGHT, Pieces, aligned, find_volume};
use crate::progress::Progress;
use crate::report::counted;
use crate::session::{Access, with_pool};
use crate::size::ByteSize;

/// Copy bytes from standard input into a volume
#[derive(Args)]
pub struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Where the first byte goes
    #[arg(long, value_name = "N", default_value = "0")]
    offset: ByteSize,
}

#[derive(Serialize)]
struct Written {
    volume: String,
    offset_bytes: u64,
    written_bytes: u64,
}

/// Runs it.
pub async fn run(options: &Options, app: &App) -> Result<Exit> {
    let (name, offset) = (&options.name, options.offset.0);
    let what = format!("write to `{name}`");
    refuse_if_used(&app.home()?, &what, &name.pool, Some(&name.volume))?;
    // A client may keep in memory what it read: a file system that is mounted would not survive it.
    app.served.refuse_if_open(&what, &name.pool, Some(&name.volume))?;
    let written_bytes =
        with_pool(app, &name.pool, Access::Change, &format!("volume write {name}"), async |session| {
            session.show_notices();
            // Jobs belong to the pool: whoever has it open for long works on them.
            session.start_jobs();
            let volume = find_volume(session, name)?;
            let capacity = volume.capacity_bytes();
            if offset > capacity {
                return Err(Failure::new(format!(
                    "cannot write at {offset} of volume `{name}`: it ends at {capacity}"
                )));
            }
            let mut work = Writing {
                context: session.executor().context(),
                volume: volume.clone(),
                name,
                offset,
                total: app.input.length_bytes(),
                input: app.input.clone(),
                progress: Progress::new(&app.printer),
            };
            if let Some(total) = work.total.filter(|total| *total > capacity - offset) {
                return Err(too_long(
                    name,
                    offset,
                    capacity,
                    &format!("{} of input", counted(total as usize, "byte")),
                )
                .hint("nothing was written"));
            }
            work.copy().await
        })
        .await?;
    let written = Written { volume: name.to_string(), offset_bytes: offset, written_bytes };
    app.printer.result(&written, |page| {
        page.line(format!("{} written to {name} at {offset}", counted(written_bytes as usize, "byte")));
    })?;
    Ok(Exit::Success)
}

fn too_long(name: &VolumeName, offset: u64, capacity: u64, what: &str) -> Failure {
    Failure::new(format!(
        "{what} do not fit into volume `{name}` at {offset}: it ends at {capacity}, {} further on",
        counted((capacity - offset) as usize, "byte")
    ))
}

struct Writing<'a> {
    context: Context,
    volume: Volume,
    name: &'a VolumeName,
    offset: u64,
    total: Option<u64>,
    progress: Progress<'a>,
    input: Input,
}

type Answer = JoinHandle<std::result::Result<(), ArrayError>>;

impl Writing<'_> {
    /// Gives how many bytes were written; all of them are durable then.
    async fn copy(&mut self) -> Result<u64> {
        let capacity = self.volume.capacity_bytes();
        let mut pieces = Pieces::new(self.volume.geometry().stripe_data_bytes(), self.offset..capacity);
        let mut in_flight: VecDeque<(Range<u64>, Answer)> = VecDeque::new();
        let mut ended = false;
        let mut end = self.offset;
        while !ended && let Some(room) = pieces.next() {
            let (piece, buffer) = self.next_piece(room.clone()).await?;
            ended = piece.end < room.end;
            end = piece.end;
            if piece.is_empty() {
                break;
            }
            let (volume, start) = (self.volume.clone(), aligned(&piece).0);
            in_flight.push_back((
                piece,
                self.context.spawn(async move { volume.write(start, buffer, false).await }),
            ));
            // Lets the piece be sent off before the next one is waited for.
            stripewise_drive::yield_now().await;
            if in_flight.len() == IN_FLIGHT {
                self.finish(&mut in_flight).await?;
            }
        }
        while !in_flight.is_empty() {
            self.finish(&mut in_flight).await?;
        }
        self.volume.flush().await.map_err(|error| self.failure(end, &error))?;
        let mut beyond = [0];
        if !ended && end == capacity && self.input.read_fully(&mut beyond).await.is_ok_and(|read| read > 0) {
            return Err(too_long(self.name, self.offset, capacity, "all bytes of the input").hint(format!(
                "{} were written, up to the volume's end",
                counted((end - self.offset) as usize, "byte")
            )));
        }
        Ok(end - self.offset)
    }

    /// The next bytes of the input, at most as many as `room` takes, in a buffer of whole blocks: where the piece begins
    /// or ends within a block, the rest of the block is as the volume has it.
    async fn next_piece(&self, room: Range<u64>) -> Result<(Range<u64>, Buffer)> {
        let (start, length) = aligned(&room);
        let buffer = self.volume.buffers().allocate(length);
        let skip = (room.start - start) as usize;
        // Not into the buffer at once: its memory is not to be held while the input is waited for.
        let mut bytes = vec![0; (room.end - room.start) as usize];
        let read = self.input.read_fully(&mut bytes).await;
        let read = read.map_err(|error| Failure::because("cannot read standard input", &error))?;
        let piece = room.start..room.start + read as u64;
        let (_, length) = aligned(&piece);
        let buffer = buffer.slice(0..length);
        if piece.is_empty() {
            return Ok((piece, buffer));
        }
        buffer.slice(skip..skip + read).copy_from(&Buffer::from_bytes(&bytes[..read]));
        let block = BLOCK_BYTES as usize;
        let behind = skip + read;
        if skip > 0 {
            let old =
                self.volume.read(start, block).await.map_err(|error| self.failure(piece.start, &error))?;
            buffer.slice(0..skip).copy_from(&old.slice(0..skip));
        }
        if behind < length {
            let last = start + (length - block) as u64;
            let old = self.volume.read(last, block).await.map_err(|error| self.failure(piece.end, &error))?;
            let kept = behind - (length - block)..block;
            buffer.slice(behind..length).copy_from(&old.slice(kept));
        }
        Ok((piece, buffer))
    }

    async fn finish(&mut self, in_flight: &mut VecDeque<(Range<u64>, Answer)>) -> Result<()> {
        let Some((piece, answer)) = in_flight.pop_front() else { return Ok(()) };
        answer.await.map_err(|error| self.failure(piece.start, &error))?;
        self.progress.bytes(&format!("writing {}", self.name), piece.end - self.offset, self.total);
        Ok(())
    }

    fn failure(&self, at: u64, error: &ArrayError) -> Failure {
        let name = self.name;
        Failure::because(format!("cannot write volume `{name}` at {at}"), error).hint(format!(
            "of the input, {} before that place were written; `stripewise pool status {}` tells how the drives are",
            counted((at - self.offset) as usize, "byte"),
            name.pool
        ))
    }
}
