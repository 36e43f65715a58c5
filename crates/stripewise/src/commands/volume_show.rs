//! `volume show`: one volume at length.

use clap::Args;

use crate::commands::{App, Volumes};
use crate::failure::{Exit, Failure, Result};
use crate::names::VolumeName;
use crate::report::VolumeReport;
use crate::session::{Access, Session, with_pool};

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
    let volume = with_pool(app, &name.pool, Access::Look, "volume show", |session| find(session, name))?;
    let volumes = Volumes { volumes: vec![volume] };
    app.printer.result(&volumes, |page| volumes.volumes[0].print(page))?;
    Ok(Exit::Success)
}

fn find(session: &Session<'_>, name: &VolumeName) -> Result<VolumeReport> {
    let volumes = session.report().volumes;
    let known: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
    volumes.into_iter().find(|volume| volume.name == name.volume).ok_or_else(|| {
        Failure::new(format!("pool `{}` has no volume `{}`", name.pool, name.volume)).hint(
            match known.as_slice() {
                [] => "it has no volumes yet".to_owned(),
                _ => format!("it has {}", known.join(", ")),
            },
        )
    })
}
