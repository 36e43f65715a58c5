//! Paths on drives: those of pools, and others.

use super::*;

/// Drives to look at.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Shown {
    /// Paths, volumes of pools, NBD URIs (which are connected to), or identities.
    drives: Vec<String>,
}

/// What drives hold: pool, role, state. Reads only; a POST, since a URI has the daemon connect to
/// where it leads.
#[utoipa::path(post, path = "/api/v1/drives/show", request_body = Shown,
    responses((status = 200), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn show_drives(api: Api, Json(shown): Json<Shown>) -> Response {
    api.document(Words::new("drive show").operands(&shown.drives)).await
}

/// Drives to come into a pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewDrives {
    /// Paths, or volumes of other pools.
    drives: Vec<String>,
    /// `data`, `spare`, `journal` or `fast`.
    role: Option<String>,
    /// Overwrite drives that hold something.
    #[serde(default)]
    force: bool,
}

/// Puts drives into a pool.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives", request_body = NewDrives,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn add_drives(api: Api, Path(pool): Path<String>, Json(new): Json<NewDrives>) -> Response {
    let words = Words::new("pool add").operand(pool).operands(&new.drives);
    api.document(words.option("as", new.role).flag("force", new.force)).await
}

/// Takes a drive that holds nothing of the pool out of it for good. A drive is named by its
/// identity.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/drives/{drive}", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn remove_drive(api: Api, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool remove").operand(pool).operand(drive)).await
}

/// Empties a drive onto the others and lets go of it.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/retire", params(Wait), responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn retire_drive(
    api: Api,
    Path((pool, drive)): Path<(String, String)>,
    Query(how): Query<Wait>,
) -> Response {
    api.document(Words::new("pool retire").flag("wait", how.wait).operand(pool).operand(drive)).await
}

/// Stops using a drive for a while.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/offline", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn take_drive_offline(api: Api, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool offline").operand(pool).operand(drive)).await
}

/// Uses a drive again.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/online", params(Wait), responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn take_drive_online(
    api: Api,
    Path((pool, drive)): Path<(String, String)>,
    Query(how): Query<Wait>,
) -> Response {
    api.document(Words::new("pool online").flag("wait", how.wait).operand(pool).operand(drive)).await
}

/// The drive that comes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    /// A path, or the identity of one of the pool's spares.
    with: String,
    /// Overwrite it even if it holds something.
    #[serde(default)]
    force: bool,
}

/// Puts a new drive in the place of an old or lost one, and rebuilds onto it.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/replace", params(Wait), request_body = Replacement,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
pub(super) async fn replace_drive(
    api: Api,
    Path((pool, drive)): Path<(String, String)>,
    Query(how): Query<Wait>,
    Json(replacement): Json<Replacement>,
) -> Response {
    let words = Words::new("pool replace").operand(pool).operand(drive).operand(replacement.with);
    api.document(words.flag("force", replacement.force).flag("wait", how.wait)).await
}
