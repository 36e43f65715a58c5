//! From a command to its file. These are the commands on pools and volumes, which run on the
//! executor: alone in their own process, or beside each other in one that serves pools.

use crate::cli::{AlertCommand, Command, DriveCommand, PoolCommand, VolumeCommand};
use crate::commands::*;
use crate::failure::{Exit, Failure, Result};

/// Carries out a command. Boxed, since the future of one command is as large as that of the
/// largest.
pub async fn run(command: &Command, app: &App) -> Result<Exit> {
    match command {
        Command::Drive(DriveCommand::Show(options)) => Box::pin(drive_show::run(options, app)).await,
        Command::Pool(command) => Box::pin(pool(command, app)).await,
        Command::Volume(command) => Box::pin(volume(command, app)).await,
        Command::Alert(AlertCommand::Test(options)) => Box::pin(alert_test::run(options, app)).await,
        Command::Serve(options) => match app.commands_at() {
            None => Box::pin(serve::run(options, app)).await,
            Some(_) => Err(Failure::new("this process serves pools already")),
        },
        Command::Mount(options) => match app.commands_at() {
            None => Box::pin(mount::run(options, app)).await,
            Some(_) => Err(Failure::new("the pool is kept open by a daemon, which mounts nothing for others yet").hint(
                "end that one first; or have it show its volumes from its start on: stripewise serve --fuse DIR",
            )),
        },
        Command::Evaluate(_)
        | Command::Lab(_)
        | Command::Model(_)
        | Command::Advise(_)
        | Command::Simulate(_)
        | Command::Drive(DriveCommand::Make(_) | DriveCommand::Measure(_)) => {
            Err(Failure::usage("this command concerns no pool that is open here"))
        }
    }
}

async fn pool(command: &PoolCommand, app: &App) -> Result<Exit> {
    match command {
        PoolCommand::Create(options) => pool_create::run(options, app).await,
        PoolCommand::Advise(options) => pool_advise::run(options, app).await,
        PoolCommand::List(options) => pool_list::run(options, app),
        PoolCommand::Status(options) => pool_status::run(options, app).await,
        PoolCommand::Import(options) => pool_import::run(options, app).await,
        PoolCommand::Export(options) => pool_export::run(options, app).await,
        PoolCommand::Rename(options) => pool_rename::run(options, app).await,
        PoolCommand::Events(options) => pool_events::run(options, app).await,
        PoolCommand::Iostat(options) => pool_iostat::run(options, app).await,
        PoolCommand::Add(options) => pool_add::run(options, app).await,
        PoolCommand::Remove(options) => pool_remove::run(options, app).await,
        PoolCommand::Retire(options) => pool_retire::run(options, app).await,
        PoolCommand::Offline(options) => pool_offline::run(options, app).await,
        PoolCommand::Online(options) => pool_online::run(options, app).await,
        PoolCommand::Replace(options) => pool_replace::run(options, app).await,
        PoolCommand::Rebalance(options) => pool_rebalance::run(options, app).await,
        PoolCommand::Scrub(options) => pool_scrub::run(options, app).await,
        PoolCommand::Clear(options) => pool_clear::run(options, app).await,
        PoolCommand::Wait(options) => pool_wait::run(options, app).await,
        PoolCommand::Set(options) => pool_set::run(options, app).await,
        PoolCommand::Destroy(options) => pool_destroy::run(options, app).await,
    }
}

async fn volume(command: &VolumeCommand, app: &App) -> Result<Exit> {
    match command {
        VolumeCommand::Create(options) => volume_create::run(options, app).await,
        VolumeCommand::List(options) => volume_list::run(options, app).await,
        VolumeCommand::Show(options) => volume_show::run(options, app).await,
        VolumeCommand::Resize(options) => volume_resize::run(options, app).await,
        VolumeCommand::Convert(options) => volume_convert::run(options, app).await,
        VolumeCommand::Pin(options) => volume_pin::run(options, app).await,
        VolumeCommand::Read(options) => volume_read::run(options, app).await,
        VolumeCommand::Write(options) => volume_write::run(options, app).await,
        VolumeCommand::Delete(options) => volume_delete::run(options, app).await,
    }
}
