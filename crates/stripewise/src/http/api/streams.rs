//! Event streams, as server-sent events: each event has a kind and a JSON document of that kind. A
//! stream begins with the current state, so a client that reconnects is up to date; events that it
//! missed are in the pool's events.
//!
//! Expected faults: clients that leave (their place is free at once), clients that do not read (the
//! stream ends), a daemon that ends (the same), a token that is withdrawn (the same).

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::StreamExt;
use stripewise_control::daemon::news::{Followed, PoolNews};

use super::*;

/// Interval of comments on an idle stream: they reveal that a client has gone, and keep proxies
/// from closing the connection.
const QUIET: Duration = Duration::from_secs(15);

/// Events and job progress of all pools, beginning with the current state. There are at most 32
/// streams, 8 for each token or user.
#[utoipa::path(get, path = "/api/v1/events",
    responses((status = 200, body = PoolNews, content_type = "text/event-stream", description = "Server-sent events")))]
pub(super) async fn follow_pools(api: Api) -> Response {
    api.follow(Followed::AllPools).await
}

/// Progress of a pool's jobs of a kind (`rebuild`, `scrub`, `convert`, `destage`, `tier` or
/// `rebalance`): `progress` once a second, and `done` when no such job is left, which ends the
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
        let (who, client) = (self.visitor.name.clone(), self.visitor.client.clone());
        let access = self.guard().access.clone();
        let at_first = access.current();
        let Some(place) = self.allowance.streams.take(1) else { return too_many("streams") };
        let news = match self.order(|answer| Order::Follow { followed, who, answer }).await {
            Err(response) => return response,
            Ok(Err(failure)) => return failed(&failure),
            Ok(Ok(news)) => news,
        };
        // A token that is withdrawn or replaced ends its streams.
        let is_admitted = move |_: &PoolNews| ready(access.current().still_admits(&client, &at_first));
        let events = news.take_while(is_admitted).map(move |news| {
            let _place = &place;
            let data = serde_json::to_string(&news).expect("plain data becomes JSON");
            Ok::<_, Infallible>(Event::default().event(news.kind()).data(data))
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(QUIET)).into_response()
    }
}
