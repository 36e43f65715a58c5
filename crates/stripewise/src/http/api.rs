//! The paths under `/api/v1`, their parameters, and the request that each of them becomes (drives
//! and volumes: `drives.rs`, `volumes.rs`). The OpenAPI description is made from these files (`GET
//! /api/v1/openapi.json`). `tests.rs` checks that each command has its path, or a reason why not.
//!
//! Answers are the documents that the commands print with `--json`, except for event streams
//! (`streams.rs`). Status 200: done; 400: invalid request; 409: it failed, `error` and `hint` say
//! why; 401 and 403: not allowed; 503: the daemon is shutting down.

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
use stripewise_control::jobs::Done as JobsDone;
use stripewise_control::names::PoolName;
use stripewise_control::pools::load::Load;
use stripewise_control::request::*;
use stripewise_control::response::{
    AlertsTested, DriveList, Events, KnownPools, PoolExported, PoolSettings, Pools, PoolsFound,
};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{Document, MAX_BYTES, whole_body};
use super::clients::{Allowance, Counted, count_answer, held, too_many};
use super::guard::{Guard, let_in};
use super::orders::{Answer, Input, Order};
use super::problem::{self, Problem, bad_outcome, error, no_memory};
use super::visitor::Visitor;
use crate::answer::exit_of;
use crate::failure::{Exit, Failure};
use crate::printer::document_text;

mod description;
mod drives;
mod mounts;
#[cfg(test)]
mod openapi_rules;
#[cfg(test)]
mod openapi_values;
mod roles;
mod snapshot_streams;
mod snapshots;
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

/// All paths, and those of `views`, behind the guard.
pub(super) fn router(orders: mpsc::Sender<Order>, guard: Arc<Guard>, views: Router<House>) -> Router {
    let refusals = guard.refusals.clone();
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(import_pools))
        .routes(routes!(show_pool, change_pool, destroy_pool))
        .routes(routes!(export_pool))
        .routes(routes!(rename_pool))
        .routes(routes!(list_events))
        .routes(routes!(get_settings))
        .routes(routes!(streams::follow_pools))
        .routes(routes!(streams::follow_job))
        .routes(routes!(show_load))
        .routes(routes!(scrub_pool))
        .routes(routes!(clear_pool))
        .routes(routes!(rebalance_pool, stop_rebalance))
        .routes(routes!(wait_for_job))
        .routes(routes!(list_known_pools))
        .routes(routes!(test_alerts))
        .routes(routes!(drives::list_drives))
        .routes(routes!(drives::show_drives))
        .routes(routes!(drives::locate_drive))
        .routes(routes!(drives::clear_drive))
        .routes(routes!(drives::add_drives))
        .routes(routes!(drives::remove_drive))
        .routes(routes!(drives::retire_drive))
        .routes(routes!(drives::grow_pool))
        .routes(routes!(drives::take_drive_offline))
        .routes(routes!(drives::take_drive_online))
        .routes(routes!(drives::replace_drive))
        .routes(routes!(mounts::mount, mounts::unmount))
        .routes(routes!(volumes::list_all_volumes))
        .routes(routes!(volumes::list_volumes, volumes::create_volume))
        .routes(routes!(volumes::show_volume, volumes::change_volume, volumes::delete_volume))
        .routes(routes!(volumes::read_volume, volumes::write_volume))
        .routes(routes!(snapshots::list_all_snapshots))
        .routes(routes!(snapshots::list_pool_snapshots, snapshots::create_snapshots))
        .routes(routes!(snapshots::list_snapshots))
        .routes(routes!(snapshots::delete_snapshot))
        .routes(routes!(snapshots::compare_snapshots))
        .routes(routes!(snapshots::roll_back))
        .routes(routes!(snapshots::clone_snapshot))
        .routes(routes!(snapshot_streams::send_snapshot))
        .routes(routes!(snapshot_streams::receive_snapshot))
        .split_for_parts();
    let description = description::text(&description);
    let openapi = move || {
        let description = description.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], description) }
    };
    router
        .route("/api/v1/openapi.json", axum::routing::get(openapi))
        .route("/metrics", axum::routing::get(metrics))
        .merge(views)
        .fallback(async || error(StatusCode::NOT_FOUND, "no such path", Some("GET /api/v1/openapi.json")))
        .layer(middleware::map_response(problem::in_one_shape))
        // `whole_body` limits bodies, with all of them in view.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn(whole_body))
        .layer(middleware::from_fn(count_answer))
        .layer(middleware::from_fn_with_state(refusals.clone(), roles::role_first))
        .layer(middleware::from_fn_with_state(guard.clone(), let_in))
        .with_state(House { orders, refusals, guard })
}

/// State that the handlers share.
#[derive(Clone)]
pub(super) struct House {
    orders: mpsc::Sender<Order>,
    refusals: Arc<Refusals>,
    guard: Arc<Guard>,
}

/// The daemon, as one visitor may use it.
pub(super) struct Api {
    house: House,
    pub(super) visitor: Visitor,
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
    /// The answer to a request that the visitor's role does not allow.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let is_allowed = self.visitor.role >= request.needs();
        (!is_allowed).then(|| {
            roles::refused(&self.visitor, request.needs(), &request.to_string(), &self.house.refusals)
        })
    }

    /// The guard of all requests.
    pub(super) fn guard(&self) -> &Guard {
        &self.house.guard
    }

    /// Sends an order to the daemon's executor, and waits for the answer.
    pub(super) async fn order<T>(
        self,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Result<T, Response> {
        let mut orders = self.house.orders;
        let (answer, answered) = oneshot::channel();
        orders.send(order(answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())
    }

    /// Runs a request.
    async fn request(self, request: Request, json: bool, input: Vec<u8>) -> Result<Answer, Response> {
        if let Some(refusal) = self.refusal(&request) {
            return Err(refusal);
        }
        let (visitor, input, output) = (self.visitor.clone(), Input::Whole(input), None);
        let request = Box::new(request);
        self.order(|answer| Order::Request { request, json, input, output, visitor, answer }).await
    }

    /// Runs a request whose answer is a document.
    async fn document(self, request: impl Into<Request>) -> Response {
        match self.request(request.into(), true, Vec::new()).await {
            Ok(answer) => answered(answer),
            Err(response) => response,
        }
    }
}

/// The answer while the daemon ends.
fn ending() -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is shutting down", None).into_response()
}

/// An invalid request.
struct Wrong {
    detail: String,
    hint: Option<String>,
}

impl Wrong {
    fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), hint: None }
    }

    /// A field with an invalid value.
    fn value(field: &str, text: &str, why: impl Display) -> Self {
        Self::new(format!("invalid value '{text}' for `{field}`: {why}"))
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        problem_of(StatusCode::BAD_REQUEST, &self.detail, self.hint.as_deref())
    }
}

/// Parses a value; `field` names it in the error.
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

/// The response to a request: its document, or a problem. A bad outcome is a problem with the
/// document in it.
fn answered(answer: Answer) -> Response {
    let status = status_of(exit_of(&answer.result));
    match &answer.result {
        Err(failure) => failed(failure),
        Ok(response) if status.is_success() => {
            (status, [(header::CONTENT_TYPE, "application/json")], document_text(response)).into_response()
        }
        Ok(response) => {
            let detail = match answer.collected.messages.trim() {
                "" => "the request was done, with a bad outcome",
                messages => messages,
            };
            let document = serde_json::from_str(&document_text(response)).ok();
            bad_outcome(status, &problem::text(detail), None, document).into_response()
        }
    }
}

/// The response to a failed request.
fn failed(failure: &Failure) -> Response {
    problem::with_command_hint(status_of(Exit::of(failure)), &failure.message, failure.hint.as_deref())
}

fn problem_of(status: StatusCode, detail: &str, hint: Option<&str>) -> Response {
    let hint = hint.and_then(problem::hint);
    error(status, &problem::text(detail), hint.as_deref()).into_response()
}

/// All pools and their status.
#[utoipa::path(get, path = "/api/v1/pools",
    responses(
        (status = 200, body = Pools),
        (status = 409, body = Problem)))]
async fn list_pools(api: Api) -> Response {
    api.document(ShowPools { pool: None }).await
}

/// A pool to create.
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
    /// Allocation unit, bytes: a power of two, 1 MiB to 128 MiB.
    slab_bytes: Option<u64>,
    /// Overwrite drives that hold data.
    #[serde(default)]
    force: bool,
}

/// Creates a pool.
#[utoipa::path(post, path = "/api/v1/pools", request_body = NewPool,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn create_pool(api: Api, Document(pool): Document<NewPool>) -> Response {
    let NewPool { name, drives, spares, journals, fast, slab_bytes, force } = pool;
    let pool = match parse("name", &name) {
        Ok(pool) => pool,
        Err(wrong) => return wrong.into_response(),
    };
    if drives.is_empty() {
        return Wrong::new("`drives` is empty").into_response();
    }
    api.document(CreatePool { pool, drives, spares, journals, fast, slab_bytes, force }).await
}

/// Places to search for pools, and the pools to import.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    /// Folders to search; if neither folders nor drives are named: all block devices.
    #[serde(default)]
    folders: Vec<String>,
    /// Drives to search: paths or NBD URIs.
    #[serde(default)]
    drives: Vec<String>,
    /// The pool to import, by name or identity.
    pool: Option<String>,
    /// Import all pools found; without it and `pool` they are only listed.
    #[serde(default)]
    all: bool,
    /// New name for the pool.
    new_name: Option<String>,
    /// Take the pool from the host that has it, even if drives were restored from older copies and
    /// outvote the others.
    #[serde(default)]
    force: bool,
    /// Give a copy of a pool an identity of its own.
    #[serde(default)]
    new_identity: bool,
    /// Destroyed pools, and no others; a named one is brought back.
    #[serde(default)]
    destroyed: bool,
}

/// Finds pools on drives; lists them, or imports the named ones.
#[utoipa::path(post, path = "/api/v1/import", request_body = Import,
    responses((status = 200, body = PoolsFound), (status = 409, body = Problem)))]
async fn import_pools(api: Api, Document(import): Document<Import>) -> Response {
    let Import { folders, drives, pool, all, new_name, force, new_identity, destroyed } = import;
    let wrong = |what: &str| Wrong::new(what).into_response();
    if all && pool.is_some() {
        return wrong("`all` and `pool` exclude each other");
    }
    if all && destroyed {
        return wrong("`all` and `destroyed` exclude each other");
    }
    if new_name.is_some() && pool.is_none() {
        return wrong("`new_name` requires `pool`");
    }
    let new_name = match new_name.map(|name| parse("new_name", &name)).transpose() {
        Ok(new_name) => new_name,
        Err(wrong) => return wrong.into_response(),
    };
    let folders = folders.into_iter().map(PathBuf::from).collect();
    let asked = ImportPools { folders, drives, pool, all, new_name, force, new_identity, destroyed };
    api.document(asked).await
}

/// A pool and its status.
#[utoipa::path(get, path = "/api/v1/pools/{pool}",
    responses(
        (status = 200, body = Pools),
        (status = 409, body = Problem)))]
async fn show_pool(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ShowPools { pool: Some(pool) }).await
}

/// Settings to change; those left out stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `low`, `medium`, `high` or 1 to 100 percent of each drive's time.
    rebuild_priority: Option<String>,
    /// Maximum time that rebuilds add to a request's wait for a drive, such as `20ms`, or `off`.
    rebuild_latency: Option<String>,
    /// Maximum scrub rate per second, such as `20MB`; `none` removes the limit.
    patrol_rate: Option<String>,
    /// Interval between automatic scrubs: `monthly`, `weekly`, `daily`, days as in `30d`, or `off`.
    scrub: Option<String>,
    /// The same as `scrub`.
    patrol_interval: Option<String>,
    /// Percentage of space in use at which the status warns.
    space_warning: Option<u32>,
    /// Maximum rate of tiering between fast and data drives per second, such as `100MB`, or `off`.
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
        ("scrub", settings.scrub),
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

/// Confirmation of a request that cannot be undone.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Confirmation {
    /// `true`: confirm destroying all data.
    #[serde(default)]
    yes: bool,
}

/// The way in which a pool is destroyed.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Destruction {
    /// `true`: confirm destroying all data.
    #[serde(default)]
    yes: bool,
    /// Erase its drives, so that it cannot be brought back.
    #[serde(default)]
    wipe: bool,
}

/// Ends a pool with everything in it.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}", params(Destruction),
    responses(
        (status = 200, body = Pools),
        (status = 400, body = Problem),
        (status = 409, body = Problem)))]
async fn destroy_pool(
    api: Api,
    Path(pool): Path<PoolName>,
    Query(Destruction { yes, wipe }): Query<Destruction>,
) -> Response {
    api.document(DestroyPool { pool, yes, wipe }).await
}

/// Unregisters a pool, so that its drives can be used on another host.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/export",
    responses(
        (status = 200, body = PoolExported),
        (status = 409, body = Problem)))]
async fn export_pool(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(ExportPool { pool }).await
}

/// A pool's new name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewName {
    name: String,
}

/// Renames a pool.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/rename", request_body = NewName,
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn rename_pool(api: Api, Path(pool): Path<PoolName>, Document(new): Document<NewName>) -> Response {
    match parse("name", &new.name) {
        Ok(new_name) => api.document(RenamePool { pool, new_name }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// The setting to get.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Key {
    /// Name of a setting; all if left out.
    key: Option<String>,
}

/// The settings of a pool.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/settings", params(Key),
    responses(
        (status = 200, body = PoolSettings),
        (status = 409, body = Problem)))]
async fn get_settings(api: Api, Path(pool): Path<PoolName>, Query(of): Query<Key>) -> Response {
    api.document(GetSettings { pool, key: of.key }).await
}

/// Number of events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Last {
    /// Show only the last N events.
    last: Option<usize>,
}

/// Events of a pool, oldest first.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/events", params(Last),
    responses(
        (status = 200, body = Events),
        (status = 409, body = Problem)))]
async fn list_events(api: Api, Path(pool): Path<PoolName>, Query(of): Query<Last>) -> Response {
    api.document(ListEvents { pool, last: of.last }).await
}

/// The measuring intervals.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Times {
    /// Length of an interval, 1 to 86,400 seconds; the answer follows the last interval. Default:
    /// the time since the pool was opened.
    seconds: Option<f64>,
    /// Number of intervals; default 1.
    count: Option<u32>,
}

/// I/O statistics of a pool's drives.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/iostat", params(Times),
    responses(
        (status = 200, body = Load),
        (status = 409, body = Problem)))]
async fn show_load(api: Api, Path(pool): Path<PoolName>, Query(times): Query<Times>) -> Response {
    // Without a length there are no intervals to count.
    let count = times.seconds.and(times.count);
    api.document(ShowLoad { pool, seconds: times.seconds, count, causes: false }).await
}

/// Option to wait for the job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wait {
    /// `true`: answer when the job is done, however long it takes; the job continues if the client
    /// disconnects.
    #[serde(default)]
    wait: bool,
}

/// Manner of a scrub.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ScrubManner {
    /// `true`: answer when the scrub is done; it continues if the client disconnects.
    #[serde(default)]
    wait: bool,
    /// `true`: report what is wrong, and where, and write nothing; ends if the client disconnects.
    #[serde(default)]
    check_only: bool,
}

/// Requests a scrub: every stripe is read, compared and repaired.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/scrub", params(ScrubManner),
    responses(
        (status = 200, body = Pools, description = "The pool; with `wait` the document of `wait?job=scrub`"),
        (status = 409, body = Problem)))]
async fn scrub_pool(api: Api, Path(pool): Path<PoolName>, Query(how): Query<ScrubManner>) -> Response {
    api.document(Scrub { pool, wait: how.wait, check_only: how.check_only }).await
}

/// The drive; all if left out.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OneDrive {
    /// The drive, by path or identity.
    drive: Option<String>,
}

/// Resets error counters, and acknowledges the drive conditions that the status reports.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/clear", params(OneDrive),
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn clear_pool(api: Api, Path(pool): Path<PoolName>, Query(which): Query<OneDrive>) -> Response {
    api.document(Clear { pool, drive: which.drive }).await
}

/// Starts a rebalance: spreads volumes over all data drives, so that free space can be used.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/rebalance", params(Wait),
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn rebalance_pool(api: Api, Path(pool): Path<PoolName>, Query(how): Query<Wait>) -> Response {
    api.document(Rebalance { pool, wait: how.wait, stop: false }).await
}

/// Stops a rebalance; data already moved stays where it is.
#[utoipa::path(delete, path = "/api/v1/pools/{pool}/rebalance",
    responses((status = 200, body = Pools), (status = 409, body = Problem)))]
async fn stop_rebalance(api: Api, Path(pool): Path<PoolName>) -> Response {
    api.document(Rebalance { pool, wait: false, stop: true }).await
}

/// The job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Job {
    /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
    job: String,
}

/// Waits until a pool has no job of this kind left; the job continues if the client disconnects.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/wait", params(Job),
    responses(
        (status = 200, body = JobsDone),
        (status = 400, body = Problem),
        (status = 409, body = Problem)))]
async fn wait_for_job(api: Api, Path(pool): Path<PoolName>, Query(job): Query<Job>) -> Response {
    match parse("job", &job.job) {
        Ok(job) => api.document(WaitForJob { pool, job }).await,
        Err(wrong) => wrong.into_response(),
    }
}

/// The registered pools, served or not.
#[utoipa::path(get, path = "/api/v1/known-pools",
    responses(
        (status = 200, body = KnownPools),
        (status = 409, body = Problem)))]
async fn list_known_pools(api: Api) -> Response {
    api.document(ListPools {}).await
}

/// Sends a test alert through every configured channel, and reports the outcome.
#[utoipa::path(post, path = "/api/v1/alerts/test",
    responses(
        (status = 200, body = AlertsTested),
        (status = 409, body = Problem)))]
async fn test_alerts(api: Api) -> Response {
    api.document(TestAlerts {}).await
}

/// Metrics for Prometheus.
async fn metrics(api: Api) -> Response {
    match api.order(Order::Metrics).await {
        Err(response) => response,
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
    }
}
