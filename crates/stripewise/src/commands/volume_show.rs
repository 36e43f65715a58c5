//! `volume show`: one volume at length.

use clap::Args;

use crate::commands::{App, Volumes};
use crate::failure::{Exit, Result};
use crate::names::VolumeName;
use crate::session::{Access, with_pool};

/// Show a volume: layout, size, where it lies
#[derive(Args)]
pub struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let name = &options.name;
    let volume =
        with_pool(app, &name.pool, Access::Look, "volume show", |session| session.volume_report(name))?;
    let volumes = Volumes { volumes: vec![volume] };
    app.printer.result(&volumes, |page| volumes.volumes[0].print(page))?;
    Ok(Exit::Success)
}
