//! Paths of mounts that the daemon keeps.

use stripewise_control::file_system::FileSystem;
use stripewise_control::names::VolumeName;
use stripewise_control::response::Mounted;

use super::*;

/// A mount to begin.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMount {
    /// Pool, whose volumes appear as files, or with `file_system` a volume (POOL/VOL).
    target: String,
    /// Mount point: an empty folder, absolute.
    folder: String,
    /// Type of the file system on the volume; created if the volume is empty.
    file_system: Option<FileSystem>,
    /// Options of `mount` for the file system, such as `noatime`.
    #[serde(default)]
    options: Vec<String>,
}

/// Mounts volumes as files, or the file system on a volume, on the daemon's machine.
#[utoipa::path(post, path = "/api/v1/mounts", request_body = NewMount,
    responses((status = 200, body = Mounted), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn mount(api: Api, Document(new): Document<NewMount>) -> Response {
    let NewMount { target, folder, file_system, options } = new;
    let folder = PathBuf::from(folder);
    let (pool, volume) = match (target.contains('/'), file_system) {
        (false, None) => (parse("target", &target), None),
        (true, Some(_)) => match parse::<VolumeName>("target", &target) {
            Ok(name) => (parse("target", &name.pool), Some(name)),
            Err(wrong) => return wrong.into_response(),
        },
        _ => return Wrong::new("`file_system` goes with a volume, and a pool without it").into_response(),
    };
    match pool {
        Ok(pool) => api.document(Mount { pool, volume, folder, file_system, options, of_system: None }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// The mount to end.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OfMount {
    /// Pool, volume, or mount point.
    target: String,
}

/// Ends a mount, and does not mount it again.
#[utoipa::path(delete, path = "/api/v1/mounts", params(OfMount),
    responses((status = 200, body = Mounted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn unmount(api: Api, Query(of): Query<OfMount>) -> Response {
    api.document(Unmount { target: PathBuf::from(of.target) }).await
}
