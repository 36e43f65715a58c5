//! Streams of what happens, as server-sent events: each event is of a kind and has a JSON document
//! of that kind. A stream begins with how everything stands, so a client that was cut off misses
//! nothing that still counts when it follows again; what happened meanwhile is in the pool's
//! events.
//!
//! Expected faults: clients that leave (their place is free at once), clients that take nothing
//! (the stream ends), a daemon that ends (the same).

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::StreamExt;
use stripewise_control::daemon::news::{Followed, PoolNews};

use super::*;

/// Where nothing happens, a comment is sent so often: who has gone is found out, and what is
/// between keeps the connection open.
const QUIET: Duration = Duration::from_secs(15);

/// What happens to all pools and how their jobs go on, from how they stand now. One stream is one
/// of 32 at most, and of 8 of a token or user.
#[utoipa::path(get, path = "/api/v1/events",
    responses((status = 200, body = PoolNews, content_type = "text/event-stream", description = "Server-sent events")))]
pub(super) async fn follow_pools(api: Api) -> Response {
    api.follow(Followed::AllPools).await
}

/// How jobs of a kind (`rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`) of a pool
/// go on: `progress` once a second, and `done` when none is to be done any more, which ends the
/// stream.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/jobs/{job}/events",
    responses((status = 200, body = PoolNews, content_type = "text/event-stream", description = "Server-sent events")))]
pub(super) async fn follow_job(api: Api, Path((pool, job)): Path<(String, String)>) -> Response {
    match parse("job", &job) {
        Ok(kind) => api.follow(Followed::Job { pool, kind }).await,
        Err(wrong) => wrong.into_response(),
    }
}

impl Api {
    async fn follow(self, followed: Followed) -> Response {
        let who = self.visitor.name.clone();
        let Some(place) = self.allowance.streams.take(1) else { return too_many("streams") };
        let news = match self.order(|answer| Order::Follow { followed, who, answer }).await {
            Err(response) => return response,
            Ok(Err(failure)) => return failed(&failure),
            Ok(Ok(news)) => news,
        };
        let events = news.map(move |news| {
            let _place = &place;
            let data = serde_json::to_string(&news).expect("plain data becomes JSON");
            Ok::<_, Infallible>(Event::default().event(news.kind()).data(data))
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(QUIET)).into_response()
    }
}
