//! `volume write`: copies standard input into a volume, with several pieces in flight. The data is
//! durable when the command ends.
//!
//! Expected faults: input that does not fit (the part that fits is written and reported), missing
//! drives, ranges that begin or end within a sector (the rest of the block is kept,
//! also against concurrent writers), a volume that a client has open (refused), a full file system
//! below (the durable part of this write is reported).

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use clap::Args;
use stripewise_array::ArrayError;
use stripewise_control::access::Access;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::pieces::{IN_FLIGHT, Pieces, find_volume};
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::report::counted;
use stripewise_control::request::WriteVolume;
use stripewise_control::response::{Response, VolumeWritten};
use stripewise_control::size::ByteSize;
use stripewise_drive::{Buffer, Context, JoinHandle};
use stripewise_export::VolumeExport;
use stripewise_pool::Volume;

use crate::commands::App;
use crate::failure::{Failure, Result};
use crate::input::Input;
use crate::progress::Progress;

/// Copy data from standard input into a volume
#[derive(Args)]
#[command(after_help = "Example: stripewise volume write tank/data --offset 0")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Offset of the first byte
    #[arg(long, value_name = "N", default_value = "0")]
    offset: ByteSize,
}

impl Options {
    pub(crate) fn request(&self) -> WriteVolume {
        WriteVolume { volume: self.name.clone(), offset: self.offset.0 }
    }
}

pub(crate) async fn run(asked: &WriteVolume, app: &App) -> Result<Response> {
    let (name, offset) = (&asked.volume, asked.offset);
    let what = format!("write to `{name}`");
    refuse_if_used(&app.registry()?, &what, &name.pool, Some(&name.volume))?;
    // Clients cache what they read: writing behind a mounted file system would corrupt it.
    let held = app.served.hold(&what, &name.pool, Some(&name.volume))?;
    let written_bytes =
        with_pool(app, &name.pool, Access::Change, &format!("volume write {name}"), async |session| {
            session.show_notices();
            // Jobs belong to the pool: any process that keeps it open for long runs them.
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
                export: held.export(&volume),
                volume: volume.clone(),
                name,
                offset,
                total: app.input.length_bytes(),
                input: app.input.clone(),
                progress: Progress::new(&app.printer),
            };
            if work.total.is_some_and(|total| total > capacity - offset) {
                return Err(too_long(name, offset, capacity, 0));
            }
            work.copy().await
        })
        .await?;
    let volume = name.to_string();
    Ok(Response::VolumeWritten(VolumeWritten { volume, offset_bytes: offset, written_bytes }))
}

/// The error for input that does not fit, of which `written` bytes were written.
fn too_long(name: &VolumeName, offset: u64, capacity: u64, written: u64) -> Failure {
    let written = match written {
        0 => "nothing was written".to_owned(),
        written => format!("the first {} were written", ByteSize(written)),
    };
    Failure::new(format!("the input is larger than the volume; {written}")).hint(format!(
        "volume {name} has {} from byte {offset} on; `stripewise volume resize {name} SIZE` grows it",
        counted((capacity - offset) as usize, "byte")
    ))
}

struct Writing<'a> {
    context: Context,
    volume: Volume,
    export: Rc<VolumeExport>,
    name: &'a VolumeName,
    offset: u64,
    total: Option<u64>,
    progress: Progress<'a>,
    input: Input,
}

/// A transfer that ended early: its cause, and the offset up to which all writes were acknowledged.
struct Failed {
    at: u64,
    why: Failure,
}

type Answer = JoinHandle<std::result::Result<(), ArrayError>>;

impl Writing<'_> {
    /// Returns the number of bytes written, all durable. An error names the number of durable
    /// bytes.
    async fn copy(&mut self) -> Result<u64> {
        let mut in_flight = VecDeque::new();
        let failed = match self.transfer(&mut in_flight).await {
            Err(failed) => failed,
            copied => return copied.map_err(|failed| failed.why),
        };
        for (_, answer) in in_flight {
            let _ = answer.await;
        }
        let durable = self.volume.durable_until(self.offset, failed.at).await - self.offset;
        let durable = match durable {
            0 => "nothing of this write is known to be durable".to_owned(),
            some => format!("of this write, the first {} are durable", counted(some as usize, "byte")),
        };
        let hint = failed.why.hint.map_or_else(|| durable.clone(), |hint| format!("{durable}; {hint}"));
        Err(Failure { hint: Some(hint), ..failed.why })
    }

    async fn transfer(
        &mut self,
        in_flight: &mut VecDeque<(Range<u64>, Answer)>,
    ) -> std::result::Result<u64, Failed> {
        let capacity = self.volume.capacity_bytes();
        let mut pieces = Pieces::new(self.volume.geometry().stripe_data_bytes(), self.offset..capacity);
        let mut ended = false;
        let mut end = self.offset;
        while !ended && let Some(room) = pieces.next() {
            let next = self.next_piece(room.clone()).await;
            let (piece, buffer) = match next {
                Ok(next) => next,
                Err(why) => {
                    while !in_flight.is_empty() {
                        self.finish(in_flight).await?;
                    }
                    return Err(Failed { at: end, why });
                }
            };
            ended = piece.end < room.end;
            end = piece.end;
            if piece.is_empty() {
                break;
            }
            let (export, start) = (self.export.clone(), piece.start);
            in_flight.push_back((
                piece,
                self.context
                    .spawn(async move { stripewise_export::write(&*export, start, buffer, false).await }),
            ));
            // Lets the piece be sent off before the next one is waited for.
            stripewise_drive::yield_now().await;
            if in_flight.len() == IN_FLIGHT {
                self.finish(in_flight).await?;
            }
        }
        while !in_flight.is_empty() {
            self.finish(in_flight).await?;
        }
        self.volume.flush().await.map_err(|error| self.failure(end, "flush", &error))?;
        let mut beyond = [0];
        if !ended && end == capacity && self.input.read_fully(&mut beyond).await.is_ok_and(|read| read > 0) {
            let why = too_long(self.name, self.offset, capacity, end - self.offset);
            return Err(Failed { at: end, why });
        }
        Ok(end - self.offset)
    }

    /// The next bytes of the input, at most as many as `room` takes.
    async fn next_piece(&self, room: Range<u64>) -> Result<(Range<u64>, Buffer)> {
        // Not into the buffer at once: its memory is not to be held while the input is waited for.
        let mut bytes = vec![0; (room.end - room.start) as usize];
        let read = self.input.read_fully(&mut bytes).await;
        let read = read.map_err(|error| Failure::because("cannot read standard input", &error))?;
        Ok((room.start..room.start + read as u64, Buffer::from_bytes(&bytes[..read])))
    }

    async fn finish(
        &mut self,
        in_flight: &mut VecDeque<(Range<u64>, Answer)>,
    ) -> std::result::Result<(), Failed> {
        let Some((piece, answer)) = in_flight.pop_front() else { return Ok(()) };
        answer.await.map_err(|error| self.failure(piece.start, "write", &error))?;
        self.progress.bytes(&format!("writing {}", self.name), piece.end - self.offset, self.total);
        Ok(())
    }

    fn failure(&self, at: u64, doing: &str, error: &ArrayError) -> Failed {
        let name = self.name;
        let what = match doing {
            "write" => format!("cannot write volume `{name}` at {at}"),
            _ => format!("cannot {doing} the data written to volume `{name}`"),
        };
        let hint = match error {
            ArrayError::FileSystemFull { .. } => {
                "free space in that file system, then write the rest".to_owned()
            }
            _ => format!("`stripewise pool status {}` shows the state of its drives", name.pool),
        };
        Failed { at, why: Failure::because(what, error).hint(hint) }
    }
}
