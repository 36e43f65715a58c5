//! The paths under `/api/v1`, what they take, and the command line that each of them becomes. The description in OpenAPI is made from
//! this file (`GET /api/v1/openapi.json`).
//!
//! Answers are the documents that the commands print with `--json`. Status 200: done; 400: the request makes no sense; 409: it could not be
//! done, `error` and `hint` say why; 401 and 403: not let in; 503: the daemon is ending.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::guard::{Guard, let_in};
use super::orders::{Answer, Order, What};
use crate::failure::Exit;
use crate::printer::OUTPUT_VERSION;
use crate::report::{EventReport, PoolReport, VolumeReport};

/// Bytes of a volume in one request, and bytes of any body.
const MAX_BYTES: usize = 16 << 20;

#[derive(OpenApi)]
#[openapi(info(
    title = "Stripewise",
    description = "Pools and volumes of a Stripewise daemon. Sizes are bytes."
))]
struct Description;

/// All paths, behind the guard.
pub fn router(orders: mpsc::Sender<Order>, guard: Guard) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(import_pools))
        .routes(routes!(show_pool, change_pool, destroy_pool))
        .routes(routes!(export_pool))
        .routes(routes!(list_events))
        .routes(routes!(show_load))
        .routes(routes!(scrub_pool))
        .routes(routes!(add_drives))
        .routes(routes!(remove_drive))
        .routes(routes!(retire_drive))
        .routes(routes!(take_drive_offline))
        .routes(routes!(take_drive_online))
        .routes(routes!(replace_drive))
        .routes(routes!(list_volumes, create_volume))
        .routes(routes!(show_volume, change_volume, delete_volume))
        .routes(routes!(read_volume, write_volume))
        .split_for_parts();
    let description = description.to_json().expect("plain data becomes JSON");
    let openapi = move || {
        let description = description.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], description) }
    };
    router
        .route("/api/v1/openapi.json", axum::routing::get(openapi))
        .route("/metrics", axum::routing::get(metrics))
        .fallback(async || {
            error(StatusCode::NOT_FOUND, "there is nothing at this path", Some("GET /api/v1/openapi.json"))
        })
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .layer(middleware::from_fn_with_state(Arc::new(guard), let_in))
        .with_state(Api { orders })
}

#[derive(Clone)]
struct Api {
    orders: mpsc::Sender<Order>,
}

impl Api {
    async fn ask(mut self, what: What) -> Result<Answer, Response> {
        let ending = || error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending", None).into_response();
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order { what, answer }).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())
    }

    /// Carries out a command that prints a document.
    async fn document(self, words: Words) -> Response {
        let answer = match self.ask(What::Command(words.with_json(), Vec::new())).await {
            Ok(answer) => answer,
            Err(response) => return response,
        };
        let status = status_of(answer.exit);
        let printed = answer.collected.output;
        if printed.is_empty() {
            // A command line that is wrong says so before it is known to print JSON.
            return said(status, &answer.collected.messages);
        }
        (status, [(header::CONTENT_TYPE, "application/json")], printed).into_response()
    }
}

fn status_of(exit: Exit) -> StatusCode {
    match exit {
        Exit::Success | Exit::Degraded => StatusCode::OK,
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::Failure => StatusCode::CONFLICT,
    }
}

/// What went wrong.
#[derive(Serialize, ToSchema)]
pub struct Problem {
    output_version: u32,
    /// What, where and why.
    error: String,
    /// What to do about it.
    hint: Option<String>,
}

/// A problem as an answer.
pub fn error(status: StatusCode, error: &str, hint: Option<&str>) -> impl IntoResponse + use<> {
    let hint = hint.map(str::to_owned);
    (status, Json(Problem { output_version: OUTPUT_VERSION, error: error.to_owned(), hint }))
}

/// A problem from what a command said to people.
fn said(status: StatusCode, messages: &str) -> Response {
    let after = |mark: &str| {
        let line = messages.lines().find_map(|line| line.strip_prefix(mark));
        line.map(|text| text.trim().to_owned())
    };
    let text = after("error:").unwrap_or_else(|| messages.trim().to_owned());
    error(status, &text, after("hint:").as_deref()).into_response()
}

/// A command line: names of the command, options, and what stands for itself, which cannot be taken for an option.
struct Words {
    command: Vec<String>,
    options: Vec<String>,
    operands: Vec<String>,
}

impl Words {
    fn new(command: &str) -> Self {
        let command = command.split(' ').map(str::to_owned).collect();
        Self { command, options: Vec::new(), operands: Vec::new() }
    }

    fn operand(mut self, operand: impl ToString) -> Self {
        self.operands.push(operand.to_string());
        self
    }

    fn operands(self, operands: &[String]) -> Self {
        operands.iter().fold(self, Self::operand)
    }

    fn option(mut self, name: &str, value: Option<impl ToString>) -> Self {
        self.options.extend(value.map(|value| format!("--{name}={}", value.to_string())));
        self
    }

    fn options(self, name: &str, values: &[String]) -> Self {
        values.iter().fold(self, |words, value| words.option(name, Some(value)))
    }

    fn flag(mut self, name: &str, is_set: bool) -> Self {
        self.options.extend(is_set.then(|| format!("--{name}")));
        self
    }

    fn plain(self) -> Vec<String> {
        let Self { mut command, options, operands } = self;
        command.extend(options);
        command.push("--".to_owned());
        command.extend(operands);
        command
    }

    fn with_json(self) -> Vec<String> {
        self.flag("json", true).flag("quiet", true).plain()
    }
}

/// Pools.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "describes what commands print")]
struct Pools {
    output_version: u32,
    pools: Vec<PoolReport>,
}

/// Volumes.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "describes what commands print")]
struct Volumes {
    output_version: u32,
    volumes: Vec<VolumeReport>,
}

/// What happened to a pool.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "describes what commands print")]
struct Events {
    output_version: u32,
    pool: String,
    events: Vec<EventReport>,
}

/// All pools, as they stand.
#[utoipa::path(get, path = "/api/v1/pools", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn list_pools(State(api): State<Api>) -> Response {
    api.document(Words::new("pool status")).await
}

/// A pool to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPool {
    name: String,
    /// Paths of files or block devices, or volumes of other pools (POOL/VOL).
    drives: Vec<String>,
    #[serde(default)]
    spares: Vec<String>,
    #[serde(default)]
    journals: Vec<String>,
    #[serde(default)]
    fast: Vec<String>,
    /// Space is handed out in pieces of this size.
    slab_bytes: Option<u64>,
    /// Overwrite drives that hold something.
    #[serde(default)]
    force: bool,
}

/// Makes a pool.
#[utoipa::path(post, path = "/api/v1/pools", request_body = NewPool,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn create_pool(State(api): State<Api>, Json(pool): Json<NewPool>) -> Response {
    let words = Words::new("pool create")
        .operand(&pool.name)
        .operands(&pool.drives)
        .options("spare", &pool.spares)
        .options("journal", &pool.journals)
        .options("fast", &pool.fast)
        .option("slab", pool.slab_bytes)
        .flag("force", pool.force);
    api.document(words).await
}

/// Where to look for pools.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    /// Folders to look into; with no drives named either: all block devices.
    #[serde(default)]
    folders: Vec<String>,
    /// Drives to look at: paths or NBD URIs.
    #[serde(default)]
    drives: Vec<String>,
    /// Only this one, by name or identity.
    pool: Option<String>,
}

/// Finds pools on drives and puts them on the list.
#[utoipa::path(post, path = "/api/v1/import", request_body = Import,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn import_pools(State(api): State<Api>, Json(import): Json<Import>) -> Response {
    let words = Words::new("pool import").options("dir", &import.folders).options("drive", &import.drives);
    api.document(import.pool.iter().fold(words, Words::operand)).await
}

/// A pool, as it stands.
#[utoipa::path(get, path = "/api/v1/pools/{pool}", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn show_pool(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("pool status").operand(pool)).await
}

/// Settings to be changed; what is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `low`, `medium`, `high` or 1 to 100 percent of each drive's time.
    rebuild_priority: Option<String>,
    /// Most that a scrub reads per second, as in `20MB`; `none` takes the limit away.
    patrol_rate: Option<String>,
    /// Days after which a scrub begins by itself; `none`: only by hand.
    patrol_interval: Option<String>,
    /// Percent of the space in use from which on the status warns.
    space_warning: Option<u32>,
    /// Most that is moved between fast and data drives per second, as in `100MB`, or `off`.
    tier_rate: Option<String>,
}

/// Changes settings of a pool.
#[utoipa::path(patch, path = "/api/v1/pools/{pool}", request_body = Settings,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn change_pool(
    State(api): State<Api>,
    Path(pool): Path<String>,
    Json(settings): Json<Settings>,
) -> Response {
    let space_warning = settings.space_warning.map(|percent| percent.to_string());
    let settings = [
        ("rebuild-priority", settings.rebuild_priority),
        ("patrol-rate", settings.patrol_rate),
        ("patrol-interval", settings.patrol_interval),
        ("space-warning", space_warning),
        ("tier-rate", settings.tier_rate),
    ];
    let settings: Vec<String> =
        settings.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
    api.document(Words::new("pool set").operand(pool).operands(&settings)).await
}

/// Whether what cannot be undone is meant.
#[derive(Deserialize, IntoParams)]
struct Confirmation {
    /// `true`: yes, lose everything in it.
    #[serde(default)]
    yes: bool,
}

/// Erases a pool from its drives, with everything in it.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}", params(Confirmation),
    responses((status = 200, body = Pools), (status = 400, body = Problem), (status = 409, body = Problem)))]
async fn destroy_pool(
    State(api): State<Api>,
    Path(pool): Path<String>,
    Query(confirmation): Query<Confirmation>,
) -> Response {
    api.document(Words::new("pool destroy").flag("yes", confirmation.yes).operand(pool)).await
}

/// Takes a pool off the list, to use its drives elsewhere.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/export", responses((status = 200), (status = 409, body = Problem)))]
async fn export_pool(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("pool export").operand(pool)).await
}

/// What happened to a pool, oldest first.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/events", responses((status = 200, body = Events), (status = 409, body = Problem)))]
async fn list_events(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("pool events").operand(pool)).await
}

/// What a pool's drives were asked since it was opened.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/iostat", responses((status = 200), (status = 409, body = Problem)))]
async fn show_load(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("pool iostat").operand(pool)).await
}

/// Asks for every stripe to be read, compared and repaired.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/scrub", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn scrub_pool(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("pool scrub").operand(pool)).await
}

/// Drives to come into a pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewDrives {
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
async fn add_drives(
    State(api): State<Api>,
    Path(pool): Path<String>,
    Json(new): Json<NewDrives>,
) -> Response {
    let words = Words::new("pool add").operand(pool).operands(&new.drives);
    api.document(words.option("as", new.role).flag("force", new.force)).await
}

/// Takes a drive that holds nothing of the pool out of it for good. A drive is named by its identity.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/drives/{drive}", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn remove_drive(State(api): State<Api>, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool remove").operand(pool).operand(drive)).await
}

/// Empties a drive onto the others and lets go of it.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/retire", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn retire_drive(State(api): State<Api>, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool retire").operand(pool).operand(drive)).await
}

/// Stops using a drive for a while.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/offline", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn take_drive_offline(State(api): State<Api>, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool offline").operand(pool).operand(drive)).await
}

/// Uses a drive again.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/online", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn take_drive_online(State(api): State<Api>, Path((pool, drive)): Path<(String, String)>) -> Response {
    api.document(Words::new("pool online").operand(pool).operand(drive)).await
}

/// The drive that comes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Replacement {
    /// A path, or the identity of one of the pool's spares.
    with: String,
    /// Overwrite it even if it holds something.
    #[serde(default)]
    force: bool,
}

/// Puts a new drive in the place of an old or lost one, and rebuilds onto it.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/drives/{drive}/replace", request_body = Replacement,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn replace_drive(
    State(api): State<Api>,
    Path((pool, drive)): Path<(String, String)>,
    Json(replacement): Json<Replacement>,
) -> Response {
    let words = Words::new("pool replace").operand(pool).operand(drive).operand(replacement.with);
    api.document(words.flag("force", replacement.force)).await
}

/// The volumes of a pool.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes", responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
async fn list_volumes(State(api): State<Api>, Path(pool): Path<String>) -> Response {
    api.document(Words::new("volume list").operand(pool)).await
}

/// A volume to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewVolume {
    name: String,
    /// `single`, `raid0`, `raid1`, `raid4`, `raid5`, `raid6`, `raid7`, `raid10`, `raid50`, `raid60` or an alias.
    layout: String,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
    /// All the room there is if left out.
    size_bytes: Option<u64>,
    /// Takes room only as it is written.
    #[serde(default)]
    thin: bool,
    /// Small writes are acknowledged from the journal.
    #[serde(default)]
    write_back: bool,
    /// On unless `false`.
    checksums: Option<bool>,
    /// `fast` or `slow`.
    pin: Option<String>,
}

/// Makes a volume.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes", request_body = NewVolume,
    responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
async fn create_volume(
    State(api): State<Api>,
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
        .flag("write-back", new.write_back)
        .option("checksums", checksums)
        .option("pin", new.pin);
    api.document(words).await
}

type OfVolume = Path<(String, String)>;

/// A volume, as it stands.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}", responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
async fn show_volume(State(api): State<Api>, Path((pool, volume)): OfVolume) -> Response {
    api.document(Words::new("volume show").operand(format!("{pool}/{volume}"))).await
}

/// One change of a volume.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum VolumeChange {
    /// Another size.
    SizeBytes(u64),
    /// `fast`, `slow` or `none`.
    Pin(String),
    /// Another layout, taken on while the volume is used.
    Convert(NewLayout),
}

/// A layout for a volume that is there.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewLayout {
    layout: String,
    columns: Option<u32>,
    groups: Option<u32>,
    interleave_bytes: Option<u64>,
}

/// Changes a volume: its size, its layout, or where it stays.
#[utoipa::path(patch, path = "/api/v1/pools/{pool}/volumes/{volume}", request_body = VolumeChange,
    responses((status = 200, body = Volumes), (status = 409, body = Problem)))]
async fn change_volume(
    State(api): State<Api>,
    Path((pool, volume)): OfVolume,
    Json(change): Json<VolumeChange>,
) -> Response {
    let name = format!("{pool}/{volume}");
    let words = match change {
        VolumeChange::SizeBytes(size) => Words::new("volume resize").operand(name).operand(size),
        VolumeChange::Pin(pin) => Words::new("volume pin").operand(name).operand(pin),
        VolumeChange::Convert(new) => Words::new("volume convert")
            .operand(name)
            .option("layout", Some(new.layout))
            .option("columns", new.columns)
            .option("groups", new.groups)
            .option("interleave", new.interleave_bytes),
    };
    api.document(words).await
}

/// Erases a volume.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/volumes/{volume}", params(Confirmation),
    responses((status = 200, body = Volumes), (status = 400, body = Problem), (status = 409, body = Problem)))]
async fn delete_volume(
    State(api): State<Api>,
    Path((pool, volume)): OfVolume,
    Query(confirmation): Query<Confirmation>,
) -> Response {
    let words = Words::new("volume delete").flag("yes", confirmation.yes);
    api.document(words.operand(format!("{pool}/{volume}"))).await
}

/// Which bytes.
#[derive(Deserialize, IntoParams)]
struct Range {
    /// The first byte.
    #[serde(default)]
    offset: u64,
    /// How many; at most 16 MiB.
    length: Option<u64>,
}

/// Bytes of a volume.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Range),
    responses((status = 200, content_type = "application/octet-stream"), (status = 400, body = Problem), (status = 409, body = Problem)))]
async fn read_volume(
    State(api): State<Api>,
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
    match api.ask(What::Command(words.plain(), Vec::new())).await {
        Err(response) => response,
        Ok(answer) if answer.exit == Exit::Success => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], answer.collected.output).into_response()
        }
        Ok(answer) => said(status_of(answer.exit), &answer.collected.messages),
    }
}

/// Where bytes go.
#[derive(Deserialize, IntoParams)]
struct Place {
    /// The first byte.
    #[serde(default)]
    offset: u64,
}

/// Writes bytes into a volume, at most 16 MiB; they are durable when this is answered.
#[utoipa::path(put, path = "/api/v1/pools/{pool}/volumes/{volume}/bytes", params(Place),
    request_body(content_type = "application/octet-stream"), responses((status = 200), (status = 409, body = Problem)))]
async fn write_volume(
    State(api): State<Api>,
    Path((pool, volume)): OfVolume,
    Query(place): Query<Place>,
    bytes: Bytes,
) -> Response {
    let words = Words::new("volume write")
        .operand(format!("{pool}/{volume}"))
        .option("offset", Some(place.offset))
        .with_json();
    match api.ask(What::Command(words, bytes.to_vec())).await {
        Err(response) => response,
        Ok(answer) => {
            (status_of(answer.exit), [(header::CONTENT_TYPE, "application/json")], answer.collected.output)
                .into_response()
        }
    }
}

/// Figures for Prometheus.
async fn metrics(State(api): State<Api>) -> Response {
    match api.ask(What::Metrics).await {
        Err(response) => response,
        Ok(answer) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], answer.collected.output).into_response()
        }
    }
}
