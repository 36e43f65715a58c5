//! Paths of volumes and their contents.

use axum::body::Bytes;
use stripewise_control::names::{ReadableName, VolumeName};
use stripewise_control::response::{VolumeChanged, VolumeWritten, Volumes};
use stripewise_control::size::WantedSize;
use stripewise_layout::LayoutSpec;
use stripewise_pool::{Pin, USUAL_RESERVE_PERCENT};

use super::*;
use crate::commands::volume::create::{parse_layout, with_columns};

/// The volumes of all pools.
#[utoipa::path(get, path = "/api/v1/volumes",
    responses(
        (status = 200, body = Volumes),
        (status = 409, body = Problem)))]
pub(super) async fn list_all_volumes(api: Api) -> Response {
    api.document(ListVolumes { pool: None }).await
}

/// The volumes of a pool.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes",
    responses(
        (status = 200, body = Volumes),
        (status = 409, body = Problem)))]
pub(super) async fn list_volumes(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ListVolumes { pool: Some(pool) }).await
}

/// A volume to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewVolume {
    name: String,
    /// `single`, `raid0`, `raid1`, `raid4`, `raid5`, `raid6`, `raid7`, `raid10`, `raid50`, `raid60`
    /// or an alias.
    layout: String,
    columns: Option<u32>,
    groups: Option<u32>,
    /// Default: 262,144 on disks unless it is a mirror, else 65,536.
    interleave_bytes: Option<u64>,
    /// Default: all free space.
    size_bytes: Option<u64>,
    /// Allocate space only when it is written.
    #[serde(default)]
    thin: bool,
    /// `true`: small writes are acknowledged from the journal; `false` (default): once they are in
    /// place.
    write_back: Option<bool>,
    /// Default: `true`.
    checksums: Option<bool>,
    /// `fast` or `slow`.
    pin: Option<String>,
    /// Make a log volume, which never overwrites.
    #[serde(default)]
    log: bool,
    /// Share of a log volume's space kept free for cleaning, 5 to 50. Default: 15.
    reserve_percent: Option<u32>,
    /// Number of arrays that extents of some MiB go to in turn, 1 to 8; more than 1 not on disks.
    /// Default: 1.
    slices: Option<u32>,
}

/// Creates a volume.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes", request_body = NewVolume,
    responses((status = 200, body = VolumeChanged), (status = 409, body = Problem)))]
pub(super) async fn create_volume(
    api: Api,
    Path(pool): Path<PoolName>,
    Document(new): Document<NewVolume>,
) -> Response {
    match new.request(&pool) {
        Ok(request) => api.document(request).await,
        Err(wrong) => wrong.into_response(),
    }
}

impl NewVolume {
    fn request(self, pool: &PoolName) -> Result<CreateVolume, Wrong> {
        if self.thin && self.size_bytes.is_none() {
            return Err(Wrong::new("a thin volume requires `size_bytes`"));
        }
        if self.reserve_percent.is_some() && !self.log {
            return Err(Wrong::new("`reserve_percent` requires `log`"));
        }
        let layout = layout(&self.layout, self.columns, self.groups, self.interleave_bytes)?;
        Ok(CreateVolume {
            volume: parse("name", &format!("{pool}/{}", self.name))?,
            layout,
            size_bytes: self.size_bytes.map(WantedSize::Bytes),
            thin: self.thin,
            write_back: self.write_back,
            checksums: self.checksums,
            pin: self.pin.map_or(Ok(Pin::None), |pin| pin_of(&pin))?,
            log_reserve_percent: self.log.then(|| self.reserve_percent.unwrap_or(USUAL_RESERVE_PERCENT)),
            slices: self.slices,
        })
    }
}

/// Parses a layout.
pub(super) fn layout(
    name: &str,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
) -> Result<LayoutSpec, Wrong> {
    let layout = parse_layout(name).map_err(|why| Wrong::value("layout", name, why))?;
    let layout = with_columns(layout, columns.map(|columns| columns as usize))
        .map_err(|why| Wrong { detail: why.message, hint: why.hint })?;
    Ok(LayoutSpec { groups: groups.map(|groups| groups as usize), interleave_bytes, ..layout })
}

fn pin_of(word: &str) -> Result<Pin, Wrong> {
    match word {
        "fast" => Ok(Pin::Fast),
        "slow" => Ok(Pin::Slow),
        "none" => Ok(Pin::None),
        _ => Err(Wrong::value("pin", word, "valid values: fast, slow, none")),
    }
}

/// A volume's name, from the pool and volume of a path.
#[derive(Deserialize)]
#[serde(try_from = "(PoolName, String)")]
pub(super) struct Named(pub(super) VolumeName);

impl TryFrom<(PoolName, String)> for Named {
    type Error = String;

    fn try_from((pool, volume): (PoolName, String)) -> Result<Self, String> {
        format!("{pool}/{volume}").parse().map(Self)
    }
}

pub(super) type OfVolume = Path<Named>;

/// A volume and its status.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}",
    responses(
        (status = 200, body = Volumes),
        (status = 409, body = Problem)))]
pub(super) async fn show_volume(api: Api, Path(Named(volume)): OfVolume) -> Response {
    api.document(ShowVolume { volume }).await
}

/// One change of a volume.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum VolumeChange {
    /// New size, bytes.
    SizeBytes(u64),
    /// `fast`, `slow` or `none`.
    Pin(String),
    /// New layout; the volume stays in use during the conversion.
    Convert(NewLayout),
    /// `true`: cancel the running conversion, and return to the previous layout.
    CancelConversion(bool),
    /// Automatic snapshots of a log volume.
    SnapshotSchedule(NewSchedule),
}

/// Numbers of automatic snapshots to keep, 1 to 1000; 0: none are taken. Those left out stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSchedule {
    /// Number for the last hours.
    hourly: Option<u32>,
    /// Number for the last days.
    daily: Option<u32>,
    /// Number for the last weeks.
    weekly: Option<u32>,
}

impl NewSchedule {
    fn request(self, volume: VolumeName) -> Result<SetVolume, Wrong> {
        let kept = |kept: u32| (kept > 0).then_some(kept);
        let settings: Vec<VolumeSetting> = [
            self.hourly.map(kept).map(VolumeSetting::HourlySnapshots),
            self.daily.map(kept).map(VolumeSetting::DailySnapshots),
            self.weekly.map(kept).map(VolumeSetting::WeeklySnapshots),
        ]
        .into_iter()
        .flatten()
        .collect();
        match settings.is_empty() {
            true => Err(Wrong::new("`snapshot_schedule` names no number")),
            false => Ok(SetVolume { volume, settings }),
        }
    }
}

/// A new layout for an existing volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLayout {
    /// Default: unchanged; required with any of the next three.
    layout: Option<String>,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
    /// Number of slices. Default: unchanged.
    slices: Option<u32>,
    /// Confirm a layout that survives the loss of fewer drives.
    #[serde(default)]
    yes: bool,
}

impl NewLayout {
    fn request(self, volume: VolumeName, wait: bool) -> Result<ConvertVolume, Wrong> {
        let Self { layout: name, columns, groups, interleave_bytes, slices, yes } = self;
        let has_details = columns.is_some() || groups.is_some() || interleave_bytes.is_some();
        let layout = match name {
            Some(name) => Some(layout(&name, columns, groups, interleave_bytes)?),
            None if has_details || slices.is_none() => {
                return Err(Wrong::new("a conversion requires `layout` or `slices`"));
            }
            None => None,
        };
        Ok(ConvertVolume { volume, layout, slices, yes, wait })
    }
}

/// Changes a volume's size, layout or tier. `wait` applies to the last two.
#[utoipa::path(patch, path = "/api/v1/pools/{pool}/volumes/{volume}", params(Wait), request_body = VolumeChange,
    responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
pub(super) async fn change_volume(
    api: Api,
    Path(Named(volume)): OfVolume,
    Query(how): Query<Wait>,
    Document(change): Document<VolumeChange>,
) -> Response {
    let wait = how.wait;
    let request: Result<Request, Wrong> = match change {
        VolumeChange::SizeBytes(bytes) => {
            Ok(ResizeVolume { volume, size_bytes: WantedSize::Bytes(bytes) }.into())
        }
        VolumeChange::Pin(pin) => pin_of(&pin).map(|pin| PinVolume { volume, pin, wait }.into()),
        VolumeChange::Convert(new) => new.request(volume, wait).map(Request::from),
        VolumeChange::CancelConversion(true) => {
            Ok(ConvertVolume { volume, layout: None, slices: None, yes: false, wait }.into())
        }
        VolumeChange::SnapshotSchedule(new) => new.request(volume).map(Request::from),
        VolumeChange::CancelConversion(false) => Err(Wrong::new("no change is requested")),
    };
    match request {
        Ok(request) => api.document(request).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// Deletes a volume.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/volumes/{volume}", params(Confirmation),
    responses(
        (status = 200, body = Volumes),
        (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn delete_volume(
    api: Api,
    Path(Named(volume)): OfVolume,
    Query(confirmation): Query<Confirmation>,
) -> Response {
    api.document(DeleteVolume { volume, yes: confirmation.yes }).await
}

/// A volume, or a snapshot as `VOL@NAME`, from the pool and volume of a path.
#[derive(Deserialize)]
#[serde(try_from = "(PoolName, String)")]
pub(super) struct Readable(ReadableName);

impl TryFrom<(PoolName, String)> for Readable {
    type Error = String;

    fn try_from((pool, name): (PoolName, String)) -> Result<Self, String> {
        format!("{pool}/{name}").parse().map(Self)
    }
}

/// A range of bytes.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Range {
    /// Offset of the first byte.
    #[serde(default)]
    offset: u64,
    /// Number of bytes; at most 16 MiB.
    length: Option<u64>,
}

/// Reads bytes of a volume, or of its snapshot `VOL@NAME`.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Range),
    responses(
        (status = 200, content_type = "application/octet-stream"),
        (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn read_volume(
    api: Api,
    Path(Readable(volume)): Path<Readable>,
    Query(range): Query<Range>,
) -> Response {
    let Some(length) = range.length.filter(|length| *length <= MAX_BYTES as u64) else {
        return error(StatusCode::BAD_REQUEST, "`length` is required, at most 16 MiB", None).into_response();
    };
    let request = ReadVolume { volume, offset: range.offset, length: Some(length) };
    // Held until the client has read the last byte, which may take long.
    let Some(memory) = api.allowance.memory.take(length) else { return no_memory() };
    match api.request(request.into(), false, Vec::new()).await {
        Err(response) => response,
        Ok(answer) if answer.result.is_ok() => {
            let bytes = held(answer.collected.output, memory);
            let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
            (axum::Extension(Counted), kind, bytes).into_response()
        }
        Ok(answer) => answered(answer),
    }
}

/// A position in the volume.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Place {
    /// Offset of the first byte.
    #[serde(default)]
    offset: u64,
}

/// Writes bytes to a volume, at most 16 MiB; they are durable when this is answered.
#[utoipa::path(put, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Place),
    request_body(content_type = "application/octet-stream"),
    responses(
        (status = 200, body = VolumeWritten),
        (status = 409, body = Problem)))]
pub(super) async fn write_volume(
    api: Api,
    Path(Named(volume)): OfVolume,
    Query(place): Query<Place>,
    bytes: Bytes,
) -> Response {
    let request = WriteVolume { volume, offset: place.offset };
    match api.request(request.into(), true, bytes.into()).await {
        Err(response) => response,
        Ok(answer) => answered(answer),
    }
}
