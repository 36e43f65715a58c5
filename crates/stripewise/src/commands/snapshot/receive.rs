//! `snapshot receive`: a stream of `snapshot send` from standard input, into a new volume or onto
//! the newest snapshot of an existing one.
//!
//! Expected faults: streams that are cut short, damaged, or for another volume; a client that has
//! the volume open (refused); interruptions at any point, after which the same stream is sent
//! again.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::VolumeName;
use stripewise_control::operations::volumes::create::choose_interleave;
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::report::SnapshotReport;
use stripewise_control::request::ReceiveSnapshot;
use stripewise_control::response::{Response, SnapshotReceived};
use stripewise_control::size::ByteSize;
use stripewise_layout::LayoutSpec;
use stripewise_pool::{IncomingStream, Pin, PoolError, ReceiveSpec};

use crate::commands::App;
use crate::commands::volume::create::{parse_layout, with_columns};
use crate::failure::{Failure, Result, pool_failure};
use crate::progress::Progress;

/// Read a stream of `snapshot send` from standard input into a volume
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stripewise snapshot receive vault/data < monday.stream\n  \
    stripewise snapshot receive vault/data --layout raid6 < monday.stream")]
pub(crate) struct Options {
    /// The volume: a whole stream creates it, an incremental one changes it
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Layout of the new volume, as for `volume create` [default: that of the source]
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout)]
    layout: Option<LayoutSpec>,
    /// Number of drives per row of the new volume [default: all of the pool's; raid1: 2, single: 1]
    #[arg(long, value_name = "N", requires = "layout")]
    columns: Option<usize>,
    /// Number of groups of the new volume, for raid50 and raid60
    #[arg(long, value_name = "G", requires = "layout")]
    groups: Option<usize>,
    /// Strip size of the new volume [default: as for `volume create`]
    #[arg(long, value_name = "SIZE", requires = "layout")]
    interleave: Option<ByteSize>,
    /// Share of the new volume's space kept free for cleaning, 5 to 50 [default: that of the
    /// source]
    #[arg(long, value_name = "PERCENT")]
    reserve: Option<u32>,
}

impl Options {
    pub(crate) fn request(&self) -> Result<ReceiveSnapshot> {
        let with_details = |layout: LayoutSpec| -> Result<LayoutSpec> {
            Ok(LayoutSpec {
                groups: self.groups,
                interleave_bytes: self.interleave.map(|size| size.0),
                ..with_columns(layout, self.columns)?
            })
        };
        let layout = self.layout.map(with_details).transpose()?;
        Ok(ReceiveSnapshot { volume: self.name.clone(), layout, log_reserve_percent: self.reserve })
    }
}

pub(crate) async fn run(asked: &ReceiveSnapshot, app: &App) -> Result<Response> {
    let name = &asked.volume;
    let what = format!("receive a snapshot into `{name}`");
    refuse_if_used(&app.registry()?, &what, &name.pool, Some(&name.volume))?;
    // Clients cache what they read, and until the end the volume is not whole.
    let _held = app.served.hold(&what, &name.pool, Some(&name.volume))?;
    let failed = |error: PoolError| {
        let failure = pool_failure(format!("cannot {what}"), &error);
        match error {
            PoolError::Layout(_) if asked.layout.is_none() => {
                failure.hint("the source has more drives: --layout gives the new volume another layout")
            }
            _ => failure,
        }
    };
    let received =
        with_pool(app, &name.pool, Access::Change, &format!("snapshot receive {name}"), async |session| {
            session.show_notices();
            // Jobs belong to the pool: any process that keeps it open for long runs them.
            session.start_jobs();
            let input = app.input.clone();
            let stream = IncomingStream::begin(async |bytes: &mut [u8]| input.read_fully(bytes).await).await;
            let mut stream = stream.map_err(|error| failed(error.into()))?;
            let mut layout = asked.layout;
            if let Some(layout) = &mut layout {
                choose_interleave(layout, &session.pool, Pin::None);
            }
            let spec = ReceiveSpec { layout, reserve_percent: asked.log_reserve_percent };
            let size_bytes = stream.header().size_bytes;
            let mut progress = Progress::new(&app.printer);
            let show = |done| progress.bytes(&format!("receiving {name}"), done, Some(size_bytes));
            let received = session.pool.receive(&name.volume, &spec, &mut stream, show).await;
            let received = received.map_err(failed)?;
            let snapshots = session.pool.snapshots(Some(&name.volume)).map_err(failed)?;
            let snapshot = snapshots.into_iter().find(|snapshot| snapshot.path == received.path);
            let snapshot = snapshot.ok_or_else(|| {
                Failure::new(format!("snapshot `{}` was received, and is deleted already", received.path))
            })?;
            Ok(SnapshotReceived {
                snapshot: SnapshotReport::new(session.name(), snapshot),
                data_bytes: received.data_bytes,
                present_bytes: received.present_bytes,
                was_resumed: received.was_resumed,
            })
        })
        .await?;
    Ok(Response::SnapshotReceived(received))
}
