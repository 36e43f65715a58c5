//! `volume show`: one volume at length.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::{find_volume, with_pool};
use stripewise_control::request::ShowVolume;
use stripewise_control::response::{Response, Volumes};

use crate::commands::App;
use crate::failure::Result;

/// Show a volume: layout, size, drives
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowVolume {
        ShowVolume { volume: self.name.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ShowVolume, app: &App) -> Result<Response> {
    let name = &asked.volume;
    let home = app.home()?;
    let known = home.pool(&name.pool)?;
    // Whoever has the pool open knows how it is used and what is being moved.
    let volume = match other_process::wait_for(app, &home, &known).await? {
        Some(word) => find_volume(word.report, name)?,
        None => {
            with_pool(app, &name.pool, Access::Look, "volume show", async |session| {
                session.volume_report(name)
            })
            .await?
        }
    };
    Ok(Response::Volume(Volumes { volumes: vec![volume] }))
}
