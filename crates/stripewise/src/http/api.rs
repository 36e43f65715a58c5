//! The paths under `/api/v1`, what they take, and the request that each of them becomes (those on
//! drives and volumes: `drives.rs`, `volumes.rs`). The description in OpenAPI is made from these
//! files (`GET /api/v1/openapi.json`). `tests.rs` holds them against the commands: each has its
//! path, or a reason why not.
//!
//! Answers are the documents of responses, which the commands print with `--json`, but for streams
//! of what happens (`streams.rs`). Status 200: done; 400: the request makes no sense; 409: it could
//! not be done, `error` and `hint` say why; 401 and 403: not let in; 503: the daemon is ending.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use futures_channel::{mpsc, oneshot};
use futures_util::SinkExt;
use serde::Deserialize;
use stripewise_control::daemon::refusals::Refusals;
use stripewise_control::names::PoolName;
use stripewise_control::request::*;
use stripewise_control::response::{Events, Pools};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{Document, MAX_BYTES, no_memory, whole_body};
use super::clients::{Allowance, Counted, count_answer, held, too_many};
use super::guard::{Guard, Visitor, let_in};
use super::orders::{Answer, Order};
use super::problem::{self, Problem, bad_outcome, error};
use crate::answer::exit_of;
use crate::failure::{Exit, Failure};
use crate::printer::document_text;

mod description;
mod drives;
#[cfg(test)]
mod openapi_rules;
mod roles;
mod streams;
#[cfg(test)]
mod tests;
mod volumes;

#[derive(OpenApi)]
#[openapi(info(
    title = "Stripewise",
    description = "Pools and volumes of a Stripewise daemon. Sizes are bytes."
))]
struct Description;

/// All paths, behind the guard.
pub(super) fn router(orders: mpsc::Sender<Order>, guard: Guard) -> Router {
    let refusals = guard.refusals.clone();
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(import_pools))
        .routes(routes!(show_pool, change_pool, destroy_pool))
        .routes(routes!(export_pool))
        .routes(routes!(rename_pool))
        .routes(routes!(list_events))
        .routes(routes!(streams::follow_pools))
        .routes(routes!(streams::follow_job))
        .routes(routes!(show_load))
        .routes(routes!(scrub_pool))
        .routes(routes!(clear_pool))
        .routes(routes!(rebalance_pool, stop_rebalance))
        .routes(routes!(wait_for_job))
        .routes(routes!(list_known_pools))
        .routes(routes!(test_alerts))
        .routes(routes!(drives::show_drives))
        .routes(routes!(drives::add_drives))
        .routes(routes!(drives::remove_drive))
        .routes(routes!(drives::retire_drive))
        .routes(routes!(drives::take_drive_offline))
        .routes(routes!(drives::take_drive_online))
        .routes(routes!(drives::replace_drive))
        .routes(routes!(volumes::list_all_volumes))
        .routes(routes!(volumes::list_volumes, volumes::create_volume))
        .routes(routes!(volumes::show_volume, volumes::change_volume, volumes::delete_volume))
        .routes(routes!(volumes::read_volume, volumes::write_volume))
        .split_for_parts();
    let description = description::text(&description);
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
        .layer(middleware::map_response(problem::in_one_shape))
        // Bodies are cut before, with all of them at hand.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(whole_body))
        .layer(middleware::from_fn(count_answer))
        .layer(middleware::from_fn_with_state(refusals.clone(), roles::role_first))
        .layer(middleware::from_fn_with_state(Arc::new(guard), let_in))
        .with_state(House { orders, refusals })
}

/// What the handlers share.
#[derive(Clone)]
struct House {
    orders: mpsc::Sender<Order>,
    refusals: Arc<Refusals>,
}

/// The daemon, as one visitor may use it.
struct Api {
    house: House,
    visitor: Visitor,
    allowance: Allowance,
}

impl FromRequestParts<House> for Api {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, house: &House) -> Result<Self, Response> {
        match (parts.extensions.get::<Visitor>(), parts.extensions.get::<Allowance>()) {
            (Some(visitor), Some(allowance)) => {
                Ok(Self { house: house.clone(), visitor: visitor.clone(), allowance: allowance.clone() })
            }
            _ => Err(error(StatusCode::UNAUTHORIZED, "it is not known who asks", None).into_response()),
        }
    }
}

impl Api {
    /// The answer to what this visitor may not ask for.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let is_allowed = self.visitor.role >= request.needs();
        (!is_allowed).then(|| {
            roles::refused(&self.visitor, request.needs(), &request.to_string(), &self.house.refusals)
        })
    }

    /// Has something done by the daemon's executor.
    async fn order<T>(self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T, Response> {
        let ending = || error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending", None).into_response();
        let mut orders = self.house.orders;
        let (answer, answered) = oneshot::channel();
        orders.send(order(answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())
    }

    /// Carries out a request.
    async fn request(self, request: Request, json: bool, input: Vec<u8>) -> Result<Answer, Response> {
        if let Some(refusal) = self.refusal(&request) {
            return Err(refusal);
        }
        let visitor = self.visitor.clone();
        self.order(|answer| Order::Request { request, json, input, visitor, answer }).await
    }

    /// Carries out a request whose answer is a document.
    async fn document(self, request: impl Into<Request>) -> Response {
        match self.request(request.into(), true, Vec::new()).await {
            Ok(answer) => answered(answer),
            Err(response) => response,
        }
    }
}

/// A request that makes no sense.
struct Wrong {
    detail: String,
    hint: Option<String>,
}

impl Wrong {
    fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), hint: None }
    }

    /// A field with a value that it cannot have.
    fn value(field: &str, text: &str, why: impl Display) -> Self {
        Self::new(format!("invalid value '{text}' for `{field}`: {why}"))
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        problem_of(StatusCode::BAD_REQUEST, &self.detail, self.hint.as_deref())
    }
}

/// A value as it was sent; `field` names it where it is none.
fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|why| Wrong::value(field, text, why))
}

fn status_of(exit: Exit) -> StatusCode {
    match exit {
        Exit::Success | Exit::Degraded => StatusCode::OK,
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::Missing => StatusCode::NOT_FOUND,
        Exit::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Exit::Forbidden => StatusCode::FORBIDDEN,
        Exit::Failure => StatusCode::CONFLICT,
    }
}

/// What came of a request, as its document or as the problem that it met. A bad outcome is a
/// problem with the document in it.
fn answered(answer: Answer) -> Response {
    let status = status_of(exit_of(&answer.result));
    match &answer.result {
        Err(failure) => failed(failure),
        Ok(response) if status.is_success() => {
            (status, [(header::CONTENT_TYPE, "application/json")], document_text(response)).into_response()
        }
        Ok(response) => {
            let detail = match answer.collected.messages.trim() {
                "" => "it was done, and the outcome is bad",
                messages => messages,
            };
            let document = serde_json::from_str(&document_text(response)).ok();
            bad_outcome(status, &problem::text(detail), None, document).into_response()
        }
    }
}

/// What could not be done.
fn failed(failure: &Failure) -> Response {
    problem_of(status_of(Exit::of(failure)), &failure.message, failure.hint.as_deref())
}

fn problem_of(status: StatusCode, detail: &str, hint: Option<&str>) -> Response {
    let hint = hint.and_then(problem::hint);
    error(status, &problem::text(detail), hint.as_deref()).into_response()
}

/// All pools, as they stand.
#[utoipa::path(get, path = "/api/v1/pools", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn list_pools(api: Api) -> Response {
    api.document(ShowPools { pool: None }).await
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
async fn create_pool(api: Api, Document(pool): Document<NewPool>) -> Response {
    let NewPool { name, drives, spares, journals, fast, slab_bytes, force } = pool;
    let pool = match parse("name", &name) {
        Ok(pool) => pool,
        Err(wrong) => return wrong.into_response(),
    };
    if drives.is_empty() {
        return Wrong::new("`drives` names no drive").into_response();
    }
    api.document(CreatePool { pool, drives, spares, journals, fast, slab_bytes, force }).await
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
    /// The one to import, by name or identity.
    pool: Option<String>,
    /// Import all that are found; without it and `pool` they are only listed.
    #[serde(default)]
    all: bool,
    /// The name that the pool gets.
    new_name: Option<String>,
    /// Take the pool from the host that has it; also where drives were put back from older copies
    /// and outvote the others.
    #[serde(default)]
    force: bool,
}

/// Finds pools on drives: lists them, or imports those that are named.
#[utoipa::path(post, path = "/api/v1/import", request_body = Import,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn import_pools(api: Api, Document(import): Document<Import>) -> Response {
    let Import { folders, drives, pool, all, new_name, force } = import;
    let wrong = |what: &str| Wrong::new(what).into_response();
    if all && pool.is_some() {
        return wrong("`all` and `pool` do not go together");
    }
    if new_name.is_some() && pool.is_none() {
        return wrong("`new_name` is for the one that `pool` names");
    }
    let new_name = match new_name.map(|name| parse("new_name", &name)).transpose() {
        Ok(new_name) => new_name,
        Err(wrong) => return wrong.into_response(),
    };
    let folders = folders.into_iter().map(PathBuf::from).collect();
    api.document(ImportPools { folders, drives, pool, all, new_name, force }).await
}

/// A pool, as it stands.
#[utoipa::path(get, path = "/api/v1/pools/{pool}", responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn show_pool(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ShowPools { pool: Some(pool) }).await
}

/// Settings to be changed; what is left out stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `low`, `medium`, `high` or 1 to 100 percent of each drive's time.
    rebuild_priority: Option<String>,
    /// What rebuilds add at most to the time that a request waits for a drive, as in `20ms`, or
    /// `off`.
    rebuild_latency: Option<String>,
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
    api: Api,
    Path(pool): Path<PoolName>,
    Document(settings): Document<Settings>,
) -> Response {
    let space_warning = settings.space_warning.map(|percent| percent.to_string());
    let settings = [
        ("rebuild-priority", settings.rebuild_priority),
        ("rebuild-latency", settings.rebuild_latency),
        ("patrol-rate", settings.patrol_rate),
        ("patrol-interval", settings.patrol_interval),
        ("space-warning", space_warning),
        ("tier-rate", settings.tier_rate),
    ];
    let named = settings.into_iter().filter_map(|(name, value)| Some(Setting::of(name, &value?)));
    match named.collect::<Result<Vec<_>, String>>() {
        Ok(settings) if settings.is_empty() => Wrong::new("no setting is named").into_response(),
        Ok(settings) => api.document(ChangeSettings { pool, settings }).await,
        Err(why) => Wrong::new(why).into_response(),
    }
}

/// Whether what cannot be undone is meant.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Confirmation {
    /// `true`: yes, lose everything in it.
    #[serde(default)]
    yes: bool,
}

/// Erases a pool from its drives, with everything in it.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}", params(Confirmation),
    responses((status = 200, body = Pools), (status = 400, body = Problem), (status = 409, body = Problem)))]
async fn destroy_pool(
    api: Api,
    Path(pool): Path<PoolName>,
    Query(confirmation): Query<Confirmation>,
) -> Response {
    api.document(DestroyPool { pool, yes: confirmation.yes }).await
}

/// Takes a pool off the list, to use its drives elsewhere.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/export", responses((status = 200), (status = 409, body = Problem)))]
async fn export_pool(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ExportPool { pool }).await
}

/// A pool's new name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewName {
    name: String,
}

/// Gives a pool another name.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/rename", request_body = NewName,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn rename_pool(api: Api, Path(pool): Path<PoolName>, Document(new): Document<NewName>) -> Response {
    match parse("name", &new.name) {
        Ok(new_name) => api.document(RenamePool { pool, new_name }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// How many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Last {
    /// Only the last so many.
    last: Option<usize>,
}

/// What happened to a pool, oldest first.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/events", params(Last), responses((status = 200, body = Events), (status = 409, body = Problem)))]
async fn list_events(api: Api, Path(pool): Path<PoolName>, Query(of): Query<Last>) -> Response {
    api.document(ListEvents { pool, last: of.last }).await
}

/// Which time is looked at.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Times {
    /// Length of an interval, 1 to 86,400 seconds; the answer comes when they are over. Left out:
    /// since the pool was opened.
    seconds: Option<f64>,
    /// How many intervals; one if left out.
    count: Option<u32>,
}

/// What a pool's drives were asked.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/iostat", params(Times), responses((status = 200), (status = 409, body = Problem)))]
async fn show_load(api: Api, Path(pool): Path<PoolName>, Query(times): Query<Times>) -> Response {
    // A count is of intervals.
    let count = times.seconds.and(times.count);
    api.document(ShowLoad { pool, seconds: times.seconds, count, causes: false }).await
}

/// Whether the answer comes when the work is done.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wait {
    /// `true`: answer when the job is done, however long it takes; a caller that leaves before ends
    /// the waiting, and not the job.
    #[serde(default)]
    wait: bool,
}

/// Asks for every stripe to be read, compared and repaired.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/scrub", params(Wait),
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn scrub_pool(api: Api, Path(pool): Path<PoolName>, Query(how): Query<Wait>) -> Response {
    api.document(Scrub { pool, wait: how.wait }).await
}

/// Which drive; all if left out.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OneDrive {
    /// The drive, by path or identity.
    drive: Option<String>,
}

/// Resets error counts, and acknowledges what the status reports of drives.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/clear", params(OneDrive),
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn clear_pool(api: Api, Path(pool): Path<PoolName>, Query(which): Query<OneDrive>) -> Response {
    api.document(Clear { pool, drive: which.drive }).await
}

/// Has what volumes take spread over all data drives, so that free space can be used.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/rebalance", params(Wait),
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn rebalance_pool(api: Api, Path(pool): Path<PoolName>, Query(how): Query<Wait>) -> Response {
    api.document(Rebalance { pool, wait: how.wait, stop: false }).await
}

/// Stops that; what has moved stays where it is.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/rebalance",
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn stop_rebalance(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(Rebalance { pool, wait: false, stop: true }).await
}

/// Which job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Job {
    /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
    job: String,
}

/// Answers when a pool has no job of a kind to do any more; a caller that leaves before ends the
/// waiting, and not the job.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/wait", params(Job),
    responses((status = 200, body = Pools), (status = 400, body = Problem), (status = 409, body = Problem)))]
async fn wait_for_job(api: Api, Path(pool): Path<PoolName>, Query(job): Query<Job>) -> Response {
    match parse("job", &job.job) {
        Ok(job) => api.document(WaitForJob { pool, job }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// The pools on the list, served or not.
#[utoipa::path(get, path = "/api/v1/known-pools", responses((status = 200), (status = 409, body = Problem)))]
async fn list_known_pools(api: Api) -> Response {
    api.document(ListPools {}).await
}

/// Has a test alert sent by every way that the daemon was given, and tells what came of it.
#[utoipa::path(post, path = "/api/v1/alerts/test", responses((status = 200), (status = 409, body = Problem)))]
async fn test_alerts(api: Api) -> Response {
    api.document(TestAlerts {}).await
}

/// Figures for Prometheus.
async fn metrics(api: Api) -> Response {
    match api.order(Order::Metrics).await {
        Err(response) => response,
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
    }
}
