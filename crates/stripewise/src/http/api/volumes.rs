//! Paths on volumes and their bytes.

use axum::body::Bytes;
use stripewise_export::budget::Taken;

use super::*;

/// The volumes of all pools.
#[utoipa::path(get, path = "/api/v1/volumes", responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn list_all_volumes(api: Api) -> Response {
    api.document(Words::new("volume list")).await
}

/// The volumes of a pool.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes", responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn list_volumes(api: Api, Path(pool): Path<String>) -> Response {
    api.document(Words::new("volume list").operand(pool)).await
}

/// A volume to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewVolume {
    name: String,
    /// `single`, `raid0`, `raid1`, `raid4`, `raid5`, `raid6`, `raid7`, `raid10`, `raid50`, `raid60`
    /// or an alias.
    layout: String,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
    /// All the room there is if left out.
    size_bytes: Option<u64>,
    /// Takes room only as it is written.
    #[serde(default)]
    thin: bool,
    /// `true`: small writes are acknowledged from the journal; `false` or left out: when they are
    /// in place.
    write_back: Option<bool>,
    /// On unless `false`.
    checksums: Option<bool>,
    /// `fast` or `slow`.
    pin: Option<String>,
}

/// Makes a volume.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes", request_body = NewVolume,
    responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn create_volume(
    api: Api,
    Path(pool): Path<String>,
    Json(new): Json<NewVolume>,
) -> Response {
    let checksums = new.checksums.map(|on| if on { "on" } else { "off" });
    let words = Words::new("volume create")
        .operand(format!("{pool}/{}", new.name))
        .option("layout", Some(new.layout))
        .option("columns", new.columns)
        .option("groups", new.groups)
        .option("interleave", new.interleave_bytes)
        .option("size", new.size_bytes)
        .flag("thin", new.thin)
        .flag("write-back", new.write_back == Some(true))
        .flag("write-through", new.write_back == Some(false))
        .option("checksums", checksums)
        .option("pin", new.pin);
    api.document(words).await
}

pub(super) type OfVolume = Path<(String, String)>;

/// A volume, as it stands.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}", responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn show_volume(api: Api, Path((pool, volume)): OfVolume) -> Response {
    api.document(Words::new("volume show").operand(format!("{pool}/{volume}"))).await
}

/// One change of a volume.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum VolumeChange {
    /// Another size.
    SizeBytes(u64),
    /// `fast`, `slow` or `none`.
    Pin(String),
    /// Another layout, taken on while the volume is used.
    Convert(NewLayout),
    /// `true`: back to the layout that the volume had before the conversion under way.
    CancelConversion(bool),
}

/// A layout for a volume that is there.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLayout {
    layout: String,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
    /// Also to a layout that survives the loss of fewer drives.
    #[serde(default)]
    yes: bool,
}

/// Changes a volume: its size, its layout, or where it stays. Only the last two can be waited for.
#[utoipa::path(patch, path = "/api/v1/pools/{pool}/volumes/{volume}", params(Wait), request_body = VolumeChange,
    responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn change_volume(
    api: Api,
    Path((pool, volume)): OfVolume,
    Query(how): Query<Wait>,
    Json(change): Json<VolumeChange>,
) -> Response {
    let name = format!("{pool}/{volume}");
    let words = match change {
        VolumeChange::SizeBytes(size) => Words::new("volume resize").operand(name).operand(size),
        VolumeChange::Pin(pin) => Words::new("volume pin").flag("wait", how.wait).operand(name).operand(pin),
        VolumeChange::Convert(new) => Words::new("volume convert")
            .operand(name)
            .option("layout", Some(new.layout))
            .option("columns", new.columns)
            .option("groups", new.groups)
            .option("interleave", new.interleave_bytes)
            .flag("yes", new.yes)
            .flag("wait", how.wait),
        VolumeChange::CancelConversion(cancel) => {
            Words::new("volume convert").operand(name).flag("cancel", cancel).flag("wait", how.wait)
        }
    };
    api.document(words).await
}

/// Erases a volume.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/volumes/{volume}", params(Confirmation),
    responses((status = 200, body = Volumes), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn delete_volume(
    api: Api,
    Path((pool, volume)): OfVolume,
    Query(confirmation): Query<Confirmation>,
) -> Response {
    let words = Words::new("volume delete").flag("yes", confirmation.yes);
    api.document(words.operand(format!("{pool}/{volume}"))).await
}

/// Which bytes.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Range {
    /// The first byte.
    #[serde(default)]
    offset: u64,
    /// How many; at most 16 MiB.
    length: Option<u64>,
}

/// Bytes of a volume.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Range),
    responses((status = 200, content_type = "application/octet-stream"), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn read_volume(
    api: Api,
    Path((pool, volume)): OfVolume,
    Query(range): Query<Range>,
) -> Response {
    let Some(length) = range.length.filter(|length| *length <= MAX_BYTES as u64) else {
        return error(StatusCode::BAD_REQUEST, "`length` is needed, and is 16 MiB at most", None)
            .into_response();
    };
    let words = Words::new("volume read")
        .operand(format!("{pool}/{volume}"))
        .option("offset", Some(range.offset))
        .option("length", Some(length));
    // Until the last of it was taken, since a client may be slow to take it.
    let mut memory = api.house.budget.nothing();
    if !memory.try_add(length) {
        return no_memory();
    }
    match api.command(words.plain(), Vec::new()).await {
        Err(response) => response,
        Ok(answer) if answer.exit == Exit::Success => {
            let bytes = Bytes::from_owner(Held { bytes: answer.collected.output, _memory: memory });
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        Ok(answer) => answered(answer),
    }
}

/// Bytes on their way to a client, and their part of the memory for connections.
struct Held {
    bytes: Vec<u8>,
    _memory: Taken,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Where bytes go.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Place {
    /// The first byte.
    #[serde(default)]
    offset: u64,
}

/// Writes bytes into a volume, at most 16 MiB; they are durable when this is answered.
#[utoipa::path(put, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Place),
    request_body(content_type = "application/octet-stream"), responses((status = 200), (status = 409, body = Problem)))]
pub(super) async fn write_volume(
    api: Api,
    Path((pool, volume)): OfVolume,
    Query(place): Query<Place>,
    bytes: Bytes,
) -> Response {
    let words = Words::new("volume write")
        .operand(format!("{pool}/{volume}"))
        .option("offset", Some(place.offset))
        .with_json();
    match api.command(words, bytes.into()).await {
        Err(response) => response,
        Ok(answer) => answered(answer),
    }
}
