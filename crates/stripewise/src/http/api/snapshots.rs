//! Paths of snapshots.

use stripewise_control::names::{ReadableName, SnapshotName};
use stripewise_control::response::{Differences, Snapshots, SnapshotsChanged, VolumeChanged};

use super::volumes::{Named, OfVolume};
use super::*;

/// The snapshots of all pools.
#[utoipa::path(get, path = "/api/v1/snapshots",
    responses(
        (status = 200, body = Snapshots),
        (status = 409, body = Problem)))]
pub(super) async fn list_all_snapshots(api: Api) -> Response {
    api.document(ListSnapshots { pool: None, volume: None }).await
}

/// The snapshots of a pool.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/snapshots",
    responses(
        (status = 200, body = Snapshots),
        (status = 409, body = Problem)))]
pub(super) async fn list_pool_snapshots(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ListSnapshots { pool: Some(pool), volume: None }).await
}

/// Snapshots to take.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSnapshots {
    /// Volumes of the pool with the names of their snapshots, as `VOL@NAME`.
    snapshots: Vec<String>,
}

/// Takes snapshots of volumes of a pool, all at one instant.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/snapshots", request_body = NewSnapshots,
    responses((status = 200, body = SnapshotsChanged), (status = 409, body = Problem)))]
pub(super) async fn create_snapshots(
    api: Api,
    Path(pool): Path<PoolName>,
    Document(new): Document<NewSnapshots>,
) -> Response {
    let name = |name: &String| parse::<SnapshotName>("snapshots", &format!("{pool}/{name}"));
    match new.snapshots.iter().map(name).collect::<Result<Vec<_>, Wrong>>() {
        Ok(snapshots) if snapshots.is_empty() => Wrong::new("`snapshots` is empty").into_response(),
        Ok(snapshots) => api.document(CreateSnapshots { snapshots }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// The snapshots of a volume.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots",
    responses(
        (status = 200, body = Snapshots),
        (status = 409, body = Problem)))]
pub(super) async fn list_snapshots(api: Api, Path(Named(volume)): OfVolume) -> Response {
    api.document(ListSnapshots { pool: None, volume: Some(volume) }).await
}

/// A snapshot's name, from the pool, volume and snapshot of a path.
#[derive(Deserialize)]
#[serde(try_from = "(PoolName, String, String)")]
pub(super) struct NamedSnapshot(pub(super) SnapshotName);

impl TryFrom<(PoolName, String, String)> for NamedSnapshot {
    type Error = String;

    fn try_from((pool, volume, snapshot): (PoolName, String, String)) -> Result<Self, String> {
        format!("{pool}/{volume}@{snapshot}").parse().map(Self)
    }
}

/// The snapshot to compare with.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Comparison {
    /// Name of a newer snapshot; left out: the volume as it is now.
    with: Option<String>,
    /// Offset from which ranges are shown.
    #[serde(default)]
    offset: u64,
    /// Most ranges to show, 1 to 100,000; default: 10,000.
    limit: Option<usize>,
}

/// The ranges in which a newer snapshot, or the volume, differs from a snapshot.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/diff", params(Comparison),
    responses(
        (status = 200, body = Differences),
        (status = 409, body = Problem)))]
pub(super) async fn compare_snapshots(
    api: Api,
    Path(NamedSnapshot(snapshot)): Path<NamedSnapshot>,
    Query(Comparison { with, offset, limit }): Query<Comparison>,
) -> Response {
    let volume = &snapshot.volume;
    let newer = with.map_or_else(|| volume.to_string(), |with| format!("{volume}@{with}"));
    match parse::<ReadableName>("with", &newer).map(Box::new) {
        Ok(newer) => api.document(CompareSnapshots { snapshot, newer, offset, limit }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// Treatment of newer snapshots.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Newer {
    /// `true`: delete the snapshots that were taken later; without it they are a reason to refuse.
    #[serde(default)]
    delete_newer: bool,
}

/// Gives a volume the contents of a snapshot; all later writes are lost.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/rollback", params(Newer),
    responses((status = 200, body = SnapshotsChanged), (status = 409, body = Problem)))]
pub(super) async fn roll_back(
    api: Api,
    Path(NamedSnapshot(snapshot)): Path<NamedSnapshot>,
    Query(Newer { delete_newer }): Query<Newer>,
) -> Response {
    api.document(RollBack { snapshot, delete_newer }).await
}

/// Deletes a snapshot.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}",
    responses((status = 200, body = SnapshotsChanged), (status = 409, body = Problem)))]
pub(super) async fn delete_snapshot(
    api: Api,
    Path(NamedSnapshot(snapshot)): Path<NamedSnapshot>,
) -> Response {
    api.document(DeleteSnapshots { snapshots: vec![snapshot] }).await
}

/// A volume that begins as a snapshot.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewClone {
    /// Name of the new volume.
    name: String,
}

/// Creates a volume that begins as a snapshot and shares its blocks.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/clone",
    request_body = NewClone, responses((status = 200, body = VolumeChanged), (status = 409, body = Problem)))]
pub(super) async fn clone_snapshot(
    api: Api,
    Path(NamedSnapshot(snapshot)): Path<NamedSnapshot>,
    Document(new): Document<NewClone>,
) -> Response {
    match parse("name", &format!("{}/{}", snapshot.volume.pool, new.name)) {
        Ok(target) => api.document(CloneSnapshot { snapshot, target }).await,
        Err(wrong) => wrong.into_response(),
    }
}
