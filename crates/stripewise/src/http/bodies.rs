//! Bodies of requests: taken whole, within a time and a bounded memory, before anything is done.
//! Documents are short, and parsed by a thread of their own: this one accepts clients.
//!
//! Expected faults: bodies that are too long, do not come whole, or come too slowly; documents with
//! millions of values.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, MatchedPath, Request};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use stripewise_control::json::check_json;
use stripewise_export::shares::{Taken, Urgency};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::clients::Allowance;
use super::problem::{error, no_memory};

/// Bytes of a volume in one request.
pub(super) const MAX_BYTES: usize = 16 << 20;
/// Bytes of any other body.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;
/// Values in a document, and how deep they are nested.
const MAX_VALUES: usize = 4096;
const MAX_DEPTH: usize = 32;
/// The one path that takes bytes of a volume ends so.
const BYTES_PATH: &str = "/bytes";

/// The one path that takes a stream, part by part, ends so.
const STREAM_PATH: &str = "/receive";

/// A request's body has to come within this time.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Goes on with a request when all of its body is here. Memory for it is taken as it comes.
pub(super) async fn whole_body(request: Request, next: Next) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        // There is nothing that would read it.
        return next.run(request).await;
    };
    if path.as_str().ends_with(STREAM_PATH) {
        return next.run(request).await;
    }
    let most = if path.as_str().ends_with(BYTES_PATH) { MAX_BYTES } else { MAX_DOCUMENT_BYTES };
    let (parts, body) = request.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most as u64) {
        return too_large(most);
    }
    let Some(allowance) = parts.extensions.get::<Allowance>() else {
        return error(StatusCode::UNAUTHORIZED, "it is not known who asks", None).into_response();
    };
    let mut memory = allowance.memory.nothing();
    match timeout(BODY_PATIENCE, collect(body, most, &mut memory)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(BodyError::TooLarge)) => too_large(most),
        Ok(Err(BodyError::NoMemory)) => no_memory(),
        Ok(Err(BodyError::Broken)) => {
            let closed = [(header::CONNECTION, "close")];
            (closed, error(StatusCode::BAD_REQUEST, "the request's body did not come whole", None))
                .into_response()
        }
        Err(_) => {
            let text = format!("the request's body did not come within {} s", BODY_PATIENCE.as_secs());
            let closed = [(header::CONNECTION, "close")];
            (closed, error(StatusCode::REQUEST_TIMEOUT, &text, None)).into_response()
        }
    }
}

/// Why there is no body.
enum BodyError {
    TooLarge,
    NoMemory,
    Broken,
}

async fn collect(body: Body, most: usize, memory: &mut Taken) -> Result<Vec<u8>, BodyError> {
    let (mut body, mut bytes) = (body.into_data_stream(), Vec::new());
    while let Some(part) = body.next().await {
        let part = part.map_err(|_| BodyError::Broken)?;
        if bytes.len() + part.len() > most {
            return Err(BodyError::TooLarge);
        }
        // Growing, it is there twice for a moment.
        if !memory.try_add(2 * part.len() as u64, Urgency::FirstOfGroup) {
            return Err(BodyError::NoMemory);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

fn too_large(most: usize) -> Response {
    let text = format!("this request's body has at most {most} bytes");
    let closed = [(header::CONNECTION, "close")];
    (closed, error(StatusCode::PAYLOAD_TOO_LARGE, &text, Some("send it in pieces"))).into_response()
}

/// A document that was sent.
pub(super) struct Document<T>(pub T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let text = "a document is needed, with `Content-Type: application/json`";
            return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, text, None).into_response());
        }
        let bytes = Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        match spawn_blocking(move || parse(&bytes)).await {
            Ok(parsed) => parsed.map_err(|response| *response),
            Err(_) => {
                let text = "the document could not be read";
                Err(error(StatusCode::INTERNAL_SERVER_ERROR, text, None).into_response())
            }
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<Document<T>, Box<Response>> {
    check_json(bytes, MAX_VALUES, MAX_DEPTH).map_err(|why| {
        let text = format!("the document is larger than any request: {why}");
        error(StatusCode::PAYLOAD_TOO_LARGE, &text, None).into_response()
    })?;
    Json::from_bytes(bytes).map(|Json(sent)| Document(sent)).map_err(|error| Box::new(error.into_response()))
}
