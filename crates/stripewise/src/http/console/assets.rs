//! The files of the pages, compressed when the program is built. Their address has a hash over all
//! of them, so browsers keep them until a program with other files is installed; the first page is
//! asked for each time, with its tag.
//!
//! The policy of the pages allows only scripts and styles of this program, and no request to
//! another host.

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::problem::error;

/// A file of the pages.
struct Asset {
    /// Path below `web/`.
    name: &'static str,
    /// Content type.
    kind: &'static str,
    /// Content, compressed with gzip.
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Content security policy of the pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Files with a hash in their address never change.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// The first page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    let tag = format!("\"{HASH}\"");
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let common = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if is_known {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, file("index.html")).into_response()
}

/// A file of the pages.
pub(super) async fn asset(Path((hash, name)): Path<(String, String)>) -> Response {
    if hash != HASH {
        let hint = "reload the page: the program was replaced";
        return error(StatusCode::NOT_FOUND, "no such version of the console", Some(hint)).into_response();
    }
    ([(header::CACHE_CONTROL, FOREVER)], file(&name)).into_response()
}

fn file(name: &str) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return error(StatusCode::NOT_FOUND, "the console has no such file", None).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CONTENT_ENCODING, "gzip"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit for all files together.
    const MAX_BYTES: usize = 200 << 10;

    #[test]
    fn the_pages_fit_into_200_kib() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes < MAX_BYTES, "{bytes} bytes");
        assert!(ASSETS.iter().any(|asset| asset.name == "vendor/preact.js"));
    }
}
