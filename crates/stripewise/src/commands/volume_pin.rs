//! `volume pin`: says on which kind of drives a volume lives. Its rows move there while everything
//! goes on, now with `--wait`, else whenever a process has the pool open for long.
//!
//! Expected faults: too little room where it is to live (refused, with the numbers).

use clap::{Args, ValueEnum};
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::PinVolume;
use stripewise_control::response::{Response, VolumeChange, VolumeChanged};
use stripewise_engine::pool::{JobKind, Pin};

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Pin a volume to fast or slow drives, or let its data move with use
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// fast: all of it on fast drives; slow: none of it; none: what is used most moves there
    #[arg(value_name = "fast|slow|none", value_enum)]
    pin: PinChoice,
    /// Move its rows now, and return when they are there
    #[arg(long)]
    wait: bool,
}

/// Drives to stay on as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PinChoice {
    Fast,
    Slow,
    None,
}

impl From<PinChoice> for Pin {
    fn from(choice: PinChoice) -> Self {
        match choice {
            PinChoice::Fast => Self::Fast,
            PinChoice::Slow => Self::Slow,
            PinChoice::None => Self::None,
        }
    }
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> PinVolume {
        PinVolume { volume: self.name.clone(), pin: self.pin.into(), wait: self.wait }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &PinVolume, app: &App) -> Result<Response> {
    let (name, pin) = (&asked.volume, asked.pin);
    let doing = format!("volume pin {name} {pin}");
    let volume = with_pool(app, &name.pool, Access::Change, &doing, async |session| {
        let pinned = session.pool.set_pin(&name.volume, pin).await;
        pinned.map_err(|error| pool_failure(format!("cannot pin volume `{name}` {pin}"), &error))?;
        if asked.wait {
            work(app, session, JobKind::Tier).await?;
        }
        session.volume_report(name)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Pinned(pin),
    }))
}
