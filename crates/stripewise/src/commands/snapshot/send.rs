//! `snapshot send`: a snapshot as a stream on standard output, for `snapshot receive`.
//!
//! Expected faults: as for `volume read`, and snapshots that are deleted while they are sent. A
//! stream that was cut short is refused where it is received.

use clap::Args;
use stripewise_control::names::{OwnName, SnapshotName};
use stripewise_control::pools::session::with_pool_to_read;
use stripewise_control::request::SendSnapshot;
use stripewise_control::response::Response;

use crate::commands::App;
use crate::failure::{Failure, Result, pool_failure};
use crate::progress::Progress;

/// Write a snapshot to standard output as a stream, whole or what changed since an older one
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stripewise snapshot send tank/data@monday | ssh nas stripewise snapshot receive vault/data\n  \
    stripewise snapshot send tank/data@tuesday --from @monday > tuesday.stream")]
pub(crate) struct Options {
    /// The snapshot
    #[arg(value_name = "POOL/VOL@NAME")]
    name: SnapshotName,
    /// Send only what changed since this older snapshot, which the receiver has
    #[arg(long, value_name = "@OLD")]
    from: Option<OwnName>,
}

impl Options {
    pub(crate) fn request(&self) -> SendSnapshot {
        SendSnapshot { snapshot: self.name.clone(), from: self.from.clone() }
    }
}

pub(crate) async fn run(asked: &SendSnapshot, app: &App) -> Result<Response> {
    if app.printer.is_json() {
        return Err(Failure::usage("snapshot send prints a stream; it cannot be combined with --json"));
    }
    let name = &asked.snapshot;
    let failed = |error| pool_failure(format!("cannot send snapshot `{name}`"), &error);
    with_pool_to_read(app, &name.volume.pool, &format!("snapshot send {name}"), async |session| {
        session.show_notices();
        let from = asked.from.as_ref().map(|from| from.0.as_str());
        let mut stream = session.pool.send(&name.path(), from).map_err(failed)?;
        let mut progress = Progress::new(&app.printer);
        while let Some(bytes) = stream.next().await.map_err(failed)? {
            app.printer.bytes(&bytes).await?;
            let (done, total) = (stream.sent_through_bytes(), stream.size_bytes());
            progress.bytes(&format!("sending {name}"), done, Some(total));
        }
        Ok(())
    })
    .await?;
    Ok(Response::BytesSent)
}
