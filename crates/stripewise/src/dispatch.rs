//! From what is asked of pools to the file that carries it out: on the executor, alone in a process
//! of its own, or beside other commands in one that serves pools.

use stripewise_control::request::Request;
use stripewise_control::response::Response;

use crate::commands::*;
use crate::failure::Result;

/// Carries out what is asked. Boxed, since the future of one command is as large as that of the
/// largest.
pub(crate) async fn run(request: &Request, app: &App) -> Result<Response> {
    match request {
        Request::ListPools(asked) => pool_list::run(asked, app),
        Request::ShowPools(asked) => Box::pin(pool_status::run(asked, app)).await,
        Request::CreatePool(asked) => Box::pin(pool_create::run(asked, app)).await,
        Request::ImportPools(asked) => Box::pin(pool_import::run(asked, app)).await,
        Request::ExportPool(asked) => Box::pin(pool_export::run(asked, app)).await,
        Request::RenamePool(asked) => Box::pin(pool_rename::run(asked, app)).await,
        Request::ListEvents(asked) => Box::pin(pool_events::run(asked, app)).await,
        Request::ShowLoad(asked) => Box::pin(pool_iostat::run(asked, app)).await,
        Request::AddDrives(asked) => Box::pin(pool_add::run(asked, app)).await,
        Request::RemoveDrive(asked) => Box::pin(pool_remove::run(asked, app)).await,
        Request::RetireDrive(asked) => Box::pin(pool_retire::run(asked, app)).await,
        Request::TakeOffline(asked) => Box::pin(pool_offline::run(asked, app)).await,
        Request::BringOnline(asked) => Box::pin(pool_online::run(asked, app)).await,
        Request::ReplaceDrive(asked) => Box::pin(pool_replace::run(asked, app)).await,
        Request::Rebalance(asked) => Box::pin(pool_rebalance::run(asked, app)).await,
        Request::Scrub(asked) => Box::pin(pool_scrub::run(asked, app)).await,
        Request::Clear(asked) => Box::pin(pool_clear::run(asked, app)).await,
        Request::WaitForJob(asked) => Box::pin(pool_wait::run(asked, app)).await,
        Request::ChangeSettings(asked) => Box::pin(pool_set::run(asked, app)).await,
        Request::DestroyPool(asked) => Box::pin(pool_destroy::run(asked, app)).await,
        Request::ListVolumes(asked) => Box::pin(volume_list::run(asked, app)).await,
        Request::ShowVolume(asked) => Box::pin(volume_show::run(asked, app)).await,
        Request::CreateVolume(asked) => Box::pin(volume_create::run(asked, app)).await,
        Request::ResizeVolume(asked) => Box::pin(volume_resize::run(asked, app)).await,
        Request::ConvertVolume(asked) => Box::pin(volume_convert::run(asked, app)).await,
        Request::PinVolume(asked) => Box::pin(volume_pin::run(asked, app)).await,
        Request::ReadVolume(asked) => Box::pin(volume_read::run(asked, app)).await,
        Request::WriteVolume(asked) => Box::pin(volume_write::run(asked, app)).await,
        Request::DeleteVolume(asked) => Box::pin(volume_delete::run(asked, app)).await,
        Request::ShowDrives(asked) => Box::pin(drive_show::run(asked, app)).await,
        Request::TestAlerts(asked) => Box::pin(alert_test::run(asked, app)).await,
    }
}
