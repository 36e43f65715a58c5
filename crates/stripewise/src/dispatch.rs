//! Dispatches pool requests to their operations, which run on the executor: alone in a process, or
//! beside other requests in a daemon.

use stripewise_control::operations::{alert_test, drives, jobs, mounts, pools, snapshots, volumes};
use stripewise_control::request::Request;
use stripewise_control::response::Response;

use crate::commands::{App, pool, snapshot, volume};
use crate::failure::Result;

/// Executes a request. The futures are boxed; otherwise every request would take the memory of the
/// largest one.
pub(crate) async fn run(request: &Request, app: &App) -> Result<Response> {
    match request {
        Request::ListPools(asked) => pools::list::run(asked, app),
        Request::ShowPools(asked) => Box::pin(pools::status::run(asked, app)).await,
        Request::CreatePool(asked) => Box::pin(pools::create::run(asked, app)).await,
        Request::ImportPools(asked) => Box::pin(pools::import::run(asked, app)).await,
        Request::ExportPool(asked) => Box::pin(pools::export::run(asked, app)).await,
        Request::RenamePool(asked) => Box::pin(pools::rename::run(asked, app)).await,
        Request::ListEvents(asked) => Box::pin(pools::events::run(asked, app)).await,
        Request::ShowLoad(asked) => Box::pin(pool::iostat::run(asked, app)).await,
        Request::AddDrives(asked) => Box::pin(drives::add::run(asked, app)).await,
        Request::RemoveDrive(asked) => Box::pin(drives::remove::run(asked, app)).await,
        Request::RetireDrive(asked) => Box::pin(drives::retire::run(asked, app)).await,
        Request::TakeOffline(asked) => Box::pin(drives::offline::run(asked, app)).await,
        Request::BringOnline(asked) => Box::pin(drives::online::run(asked, app)).await,
        Request::ReplaceDrive(asked) => Box::pin(drives::replace::run(asked, app)).await,
        Request::GrowPool(asked) => Box::pin(drives::grow::run(asked, app)).await,
        Request::Rebalance(asked) => Box::pin(jobs::rebalance::run(asked, app)).await,
        Request::Scrub(asked) => Box::pin(jobs::scrub::run(asked, app)).await,
        Request::Clear(asked) => Box::pin(drives::clear::run(asked, app)).await,
        Request::WaitForJob(asked) => Box::pin(jobs::wait::run(asked, app)).await,
        Request::ChangeSettings(asked) => Box::pin(pools::set::run(asked, app)).await,
        Request::GetSettings(asked) => Box::pin(pools::get::run(asked, app)).await,
        Request::DestroyPool(asked) => Box::pin(pools::destroy::run(asked, app)).await,
        Request::ListVolumes(asked) => Box::pin(volumes::list::run(asked, app)).await,
        Request::ShowVolume(asked) => Box::pin(volumes::show::run(asked, app)).await,
        Request::CreateVolume(asked) => Box::pin(volumes::create::run(asked, app)).await,
        Request::ResizeVolume(asked) => Box::pin(volumes::resize::run(asked, app)).await,
        Request::ConvertVolume(asked) => Box::pin(volumes::convert::run(asked, app)).await,
        Request::PinVolume(asked) => Box::pin(volumes::pin::run(asked, app)).await,
        Request::SetVolume(asked) => Box::pin(volumes::set::run(asked, app)).await,
        Request::ReadVolume(asked) => Box::pin(volume::read::run(asked, app)).await,
        Request::WriteVolume(asked) => Box::pin(volume::write::run(asked, app)).await,
        Request::DeleteVolume(asked) => Box::pin(volumes::delete::run(asked, app)).await,
        Request::CreateSnapshots(asked) => Box::pin(snapshots::create::run(asked, app)).await,
        Request::ListSnapshots(asked) => Box::pin(snapshots::list::run(asked, app)).await,
        Request::CompareSnapshots(asked) => Box::pin(snapshots::diff::run(asked, app)).await,
        Request::RollBack(asked) => Box::pin(snapshots::rollback::run(asked, app)).await,
        Request::DeleteSnapshots(asked) => Box::pin(snapshots::delete::run(asked, app)).await,
        Request::CloneSnapshot(asked) => Box::pin(snapshots::clone::run(asked, app)).await,
        Request::SendSnapshot(asked) => Box::pin(snapshot::send::run(asked, app)).await,
        Request::ReceiveSnapshot(asked) => Box::pin(snapshot::receive::run(asked, app)).await,
        Request::ListDrives(asked) => Box::pin(drives::list::run(asked, app)).await,
        Request::ShowDrives(asked) => Box::pin(drives::show::run(asked, app)).await,
        Request::Mount(asked) => Box::pin(mounts::mount(asked, app)).await,
        Request::Unmount(asked) => Box::pin(mounts::unmount(asked, app)).await,
        Request::LocateDrive(asked) => Box::pin(drives::locate::run(asked, app)).await,
        Request::ClearDrive(asked) => Box::pin(drives::erase::run(asked, app)).await,
        Request::TestAlerts(asked) => Box::pin(alert_test::run(asked, app)).await,
    }
}
