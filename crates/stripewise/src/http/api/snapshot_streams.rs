//! Paths that send and receive snapshots as streams. Neither is held in memory: parts are passed on
//! as they come, and the slower side makes the other wait.
//!
//! Expected faults: clients that leave or stop in the middle. A stream of which the end is missing
//! is whole for no receiver.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream;
use stripewise_control::names::OwnName;
use stripewise_control::response::SnapshotReceived;
use tokio::time::timeout;

use super::snapshots::NamedSnapshot;
use super::volumes::{Named, OfVolume, layout};
use super::*;
use crate::http::orders::{Broken, Part};

/// Memory of a stream: parts that one side has and the other has not taken yet.
const MEMORY_BYTES: u64 = 8 << 20;
/// Parts between the two sides.
const PARTS: usize = 2;
/// Time limit for the next part of a client's stream, whose source may be searching for changes.
const PART_PATIENCE: Duration = Duration::from_secs(600);

/// The snapshot that the receiver has.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Base {
    /// Name of an older snapshot: only what changed since is sent.
    from: Option<String>,
}

/// A snapshot as a stream, for `receive`. It has an end record: a stream without it was cut short.
#[utoipa::path(get, path = "/api/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/stream", params(Base),
    responses(
        (status = 200, content_type = "application/octet-stream"),
        (status = 400, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn send_snapshot(
    api: Api,
    Path(NamedSnapshot(snapshot)): Path<NamedSnapshot>,
    Query(Base { from }): Query<Base>,
) -> Response {
    let from = match from.map(|from| parse::<OwnName>("from", &from)).transpose() {
        Ok(from) => from,
        Err(wrong) => return wrong.into_response(),
    };
    let Some(memory) = api.allowance.memory.take(MEMORY_BYTES) else { return no_memory() };
    let (output, mut parts) = mpsc::channel(PARTS);
    let request = SendSnapshot { snapshot, from };
    let answer = match api.begin(request.into(), false, Input::Whole(Vec::new()), Some(output)).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    // A failure before the first part has a status.
    let Some(first) = parts.next().await else { return outcome(answer).await };
    let rest = stream::unfold((Some(first), parts, Some(answer)), async |(first, mut parts, answer)| {
        let part = match first {
            Some(first) => Some(first),
            None => parts.next().await,
        };
        if let Some(part) = part {
            return Some((Ok(Bytes::from(part)), (None, parts, answer)));
        }
        match answer?.await {
            Ok(Answer { result: Ok(_), .. }) => None,
            _ => Some((Err(io::Error::other("the stream was cut short")), (None, parts, None))),
        }
    });
    let body = Body::from_stream(rest.map(move |part| {
        let _memory = &memory;
        part
    }));
    ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

/// Choices for a volume that a whole stream creates.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct NewLog {
    /// Layout, as of a new volume. Default: that of the source.
    layout: Option<String>,
    /// Number of drives per row; requires `layout`.
    columns: Option<u32>,
    /// Number of groups; requires `layout`.
    groups: Option<u32>,
    /// Strip size; requires `layout`.
    interleave_bytes: Option<u64>,
    /// Share of the space kept free for cleaning, 5 to 50. Default: that of the source.
    reserve_percent: Option<u32>,
}

impl NewLog {
    fn request(self, volume: stripewise_control::names::VolumeName) -> Result<ReceiveSnapshot, Wrong> {
        let Self { layout: name, columns, groups, interleave_bytes, reserve_percent } = self;
        let has_details = columns.is_some() || groups.is_some() || interleave_bytes.is_some();
        let layout = match name {
            Some(name) => Some(layout(&name, columns, groups, interleave_bytes)?),
            None if has_details => {
                return Err(Wrong::new("`columns`, `groups` and `interleave_bytes` require `layout`"));
            }
            None => None,
        };
        Ok(ReceiveSnapshot { volume, layout, log_reserve_percent: reserve_percent })
    }
}

/// Receives a stream: a whole one creates the volume, an incremental one changes it. If it is
/// interrupted, the volume is not served until the same stream was sent again.
#[utoipa::path(post, path = "/api/v1/pools/{pool}/volumes/{volume}/receive", params(NewLog),
    request_body(content_type = "application/octet-stream"),
    responses(
        (status = 200, body = SnapshotReceived),
        (status = 409, body = Problem)))]
pub(super) async fn receive_snapshot(
    api: Api,
    Path(Named(volume)): OfVolume,
    Query(new): Query<NewLog>,
    body: Body,
) -> Response {
    let request = match new.request(volume) {
        Ok(request) => request,
        Err(wrong) => return wrong.into_response(),
    };
    let Some(_memory) = api.allowance.memory.take(MEMORY_BYTES) else { return no_memory() };
    let (input, parts) = mpsc::channel(PARTS);
    let answer = match api.begin(request.into(), true, Input::Parts(parts), None).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    let (passing, answering) = (Box::pin(pass_on(body, input)), Box::pin(outcome(answer)));
    match select(passing, answering).await {
        Either::Left(((), answering)) => answering.await,
        // The rest of the body is not read.
        Either::Right((response, _)) => ([(header::CONNECTION, "close")], response).into_response(),
    }
}

/// Passes on a body until it ends or is no longer wanted.
async fn pass_on(body: Body, mut input: mpsc::Sender<Part>) {
    let mut body = body.into_data_stream();
    loop {
        let part = match timeout(PART_PATIENCE, body.next()).await {
            Ok(None) => return,
            Ok(Some(Ok(part))) => Ok(part),
            Ok(Some(Err(_))) | Err(_) => Err(Broken),
        };
        let is_broken = part.is_err();
        if input.send(part).await.is_err() || is_broken {
            return;
        }
    }
}

async fn outcome(answer: oneshot::Receiver<Answer>) -> Response {
    answer.await.map_or_else(|_| ending(), answered)
}

impl Api {
    /// Begins a request; its answer comes when it is done.
    async fn begin(
        &self,
        request: Request,
        json: bool,
        input: Input,
        output: Option<mpsc::Sender<Vec<u8>>>,
    ) -> Result<oneshot::Receiver<Answer>, Response> {
        if let Some(refusal) = self.refusal(&request) {
            return Err(refusal);
        }
        let (visitor, request) = (self.visitor.clone(), Box::new(request));
        let (answer, answered) = oneshot::channel();
        let order = Order::Request { request, json, input, output, visitor, answer };
        self.house.orders.clone().send(order).await.map_err(|_| ending())?;
        Ok(answered)
    }
}
