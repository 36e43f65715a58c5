//! Paths of drives, in pools and others.

use stripewise_control::response::{DriveErased, Located, ShownDrives};
use stripewise_pool::Role;

use super::*;

/// The pool whose drives are listed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OfPool {
    /// Pool name; all known pools if left out.
    #[param(value_type = Option<String>)]
    pool: Option<PoolName>,
}

/// The drives of pools.
#[utoipa::path(get, path = "/api/v1/drives", params(OfPool),
    responses((status = 200, body = DriveList), (status = 409, body = Problem)))]
pub(super) async fn list_drives(api: Api, Query(of): Query<OfPool>) -> Response {
    api.document(ListDrives { pool: of.pool }).await
}

/// Drives to inspect.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Shown {
    /// Paths, volumes of pools, NBD URIs (which are connected to), or identities.
    drives: Vec<String>,
}

/// Shows the contents of drives: pool, role, state. Reads only; a POST, since the daemon connects
/// to the URIs given.
#[utoipa::path(post, path = "/api/v1/drives/show", request_body = Shown,
    responses((status = 200, body = ShownDrives), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn show_drives(api: Api, Document(shown): Document<Shown>) -> Response {
    let drives = shown.drives.into_iter().map(PathBuf::from).collect::<Vec<_>>();
    if drives.is_empty() {
        return Wrong::new("`drives` is empty").into_response();
    }
    api.document(ShowDrives { drives }).await
}

/// The light of a drive's slot.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Light {
    /// Path, or identity of a drive in a known pool.
    drive: String,
    /// On or off.
    on: bool,
}

/// Switches the light of a drive's slot on or off.
#[utoipa::path(post, path = "/api/v1/drives/locate", request_body = Light,
    responses((status = 200, body = Located), (status = 409, body = Problem)))]
pub(super) async fn locate_drive(api: Api, Document(light): Document<Light>) -> Response {
    api.document(LocateDrive { drive: PathBuf::from(light.drive), on: light.on }).await
}

/// A drive to erase.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Erased {
    /// Path, volume or NBD URI.
    drive: String,
    /// Confirm the loss of what it holds.
    #[serde(default)]
    yes: bool,
    /// Also a drive of a pool that another host has not exported.
    #[serde(default)]
    force: bool,
}

/// Erases a drive that holds an old pool's superblock or other data.
#[utoipa::path(post, path = "/api/v1/drives/clear", request_body = Erased,
    responses((status = 200, body = DriveErased), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn clear_drive(api: Api, Document(erased): Document<Erased>) -> Response {
    let Erased { drive, yes, force } = erased;
    api.document(ClearDrive { drive, yes, force }).await
}

/// Drives to add to a pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewDrives {
    /// Paths, or volumes of other pools.
    drives: Vec<String>,
    /// `data`, `spare`, `journal` or `fast`.
    role: Option<String>,
    /// Overwrite drives that hold data.
    #[serde(default)]
    force: bool,
}

/// Adds drives to a pool.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives", request_body = NewDrives,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn add_drives(
    api: Api,
    Path(pool): Path<PoolName>,
    Document(new): Document<NewDrives>,
) -> Response {
    let NewDrives { drives, role, force } = new;
    if drives.is_empty() {
        return Wrong::new("`drives` is empty").into_response();
    }
    match role.map_or(Ok(Role::Data), |role| role_of(&role)) {
        Ok(role) => api.document(AddDrives { pool, drives, role, force }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// Drives that became larger.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Larger {
    /// Identities or paths; all that became larger if left out.
    #[serde(default)]
    drives: Vec<String>,
    /// Confirm less redundancy while drives with data are filled again.
    #[serde(default)]
    yes: bool,
}

/// Uses the space of drives that became larger.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/grow", params(Wait), request_body = Larger,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn grow_pool(
    api: Api,
    Path(pool): Path<PoolName>,
    Query(how): Query<Wait>,
    Document(larger): Document<Larger>,
) -> Response {
    let Larger { drives, yes } = larger;
    api.document(GrowPool { pool, drives, yes, wait: how.wait }).await
}

fn role_of(word: &str) -> Result<Role, Wrong> {
    match word {
        "data" => Ok(Role::Data),
        "spare" => Ok(Role::Spare),
        "journal" => Ok(Role::Journal),
        "fast" => Ok(Role::Fast),
        _ => Err(Wrong::value("role", word, "valid values: data, spare, journal, fast")),
    }
}

/// Removes an unused drive from a pool. The drive is named by its identity.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/drives/{drive}", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn remove_drive(api: Api, Path((pool, drive)): Path<(PoolName, String)>) -> Response {
    api.document(RemoveDrive { pool, drive }).await
}

/// Evacuates a drive to the others, and removes it.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/retire", params(Wait), responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn retire_drive(
    api: Api,
    Path((pool, drive)): Path<(PoolName, String)>,
    Query(how): Query<Wait>,
) -> Response {
    api.document(RetireDrive { pool, drive, wait: how.wait }).await
}

/// Takes a drive offline.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/offline", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn take_drive_offline(api: Api, Path((pool, drive)): Path<(PoolName, String)>) -> Response {
    api.document(TakeOffline { pool, drive }).await
}

/// Brings a drive online.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/online", params(Wait), responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn take_drive_online(
    api: Api,
    Path((pool, drive)): Path<(PoolName, String)>,
    Query(how): Query<Wait>,
) -> Response {
    api.document(BringOnline { pool, drive, wait: how.wait }).await
}

/// The new drive.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    /// A path, or the identity of one of the pool's spares.
    with: String,
    /// Overwrite it if it holds data.
    #[serde(default)]
    force: bool,
    /// Confirm a smaller drive, with which the pool has less space.
    #[serde(default)]
    yes: bool,
}

/// Replaces a drive, present or lost, and rebuilds onto the new one.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/replace", params(Wait), request_body = Replacement,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn replace_drive(
    api: Api,
    Path((pool, drive)): Path<(PoolName, String)>,
    Query(how): Query<Wait>,
    Document(replacement): Document<Replacement>,
) -> Response {
    let Replacement { with, force, yes } = replacement;
    api.document(ReplaceDrive { pool, old: drive, new: with, force, yes, wait: how.wait }).await
}
