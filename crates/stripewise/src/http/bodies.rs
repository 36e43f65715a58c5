//! Bodies of requests: taken whole, within a time and a bounded memory, before anything is done.
//!
//! Expected faults: bodies that are too long, do not come whole, or come too slowly.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use stripewise_export::shares::{Taken, Urgency};
use tokio::time::timeout;

use super::clients::Allowance;
use super::problem::error;

/// Bytes of a volume in one request, and bytes of any body.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// A request's body has to come within this time.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Goes on with a request when all of its body is here. Memory for it is taken as it comes.
pub(super) async fn whole_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_BYTES as u64) {
        return too_large();
    }
    let Some(allowance) = parts.extensions.get::<Allowance>() else {
        return error(StatusCode::UNAUTHORIZED, "it is not known who asks", None).into_response();
    };
    let mut memory = allowance.memory.nothing();
    match timeout(BODY_PATIENCE, collect(body, &mut memory)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(BodyError::TooLarge)) => too_large(),
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

async fn collect(body: Body, memory: &mut Taken) -> Result<Vec<u8>, BodyError> {
    let (mut body, mut bytes) = (body.into_data_stream(), Vec::new());
    while let Some(part) = body.next().await {
        let part = part.map_err(|_| BodyError::Broken)?;
        if bytes.len() + part.len() > MAX_BYTES {
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

/// There is no memory for a request now.
pub(super) fn no_memory() -> Response {
    let again = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let text = "the memory for connections is in use";
    (again, error(StatusCode::SERVICE_UNAVAILABLE, text, Some("try again"))).into_response()
}

fn too_large() -> Response {
    let text = format!("a request's body has at most {MAX_BYTES} bytes");
    let closed = [(header::CONNECTION, "close")];
    (closed, error(StatusCode::PAYLOAD_TOO_LARGE, &text, Some("send it in pieces"))).into_response()
}
