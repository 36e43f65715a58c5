//! The least role that each path needs: a caller that has not even that is refused before its body
//! is read. Whether its role is enough for what the body asks is found out later
//! (`Request::needs`).

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stripewise_control::daemon::refusals::Refusals;
use stripewise_control::roles::Role;

use crate::http::problem::error;
use crate::http::visitor::Visitor;

/// The least role of those that a path's requests need. A path that is not here needs `operate` for
/// all but GET.
pub(super) fn least_role(method: &Method, path: &str) -> Role {
    let below_pool = path.strip_prefix("/api/v1/pools/{pool}");
    match (method.as_str(), below_pool) {
        // To read bytes of a volume is more than to see how it is.
        (
            "GET" | "HEAD",
            Some("/volumes/{volume}/bytes" | "/volumes/{volume}/snapshots/{snapshot}/stream"),
        ) => Role::Operate,
        ("GET" | "HEAD", _) => Role::Read,
        ("POST", None) if matches!(path, "/api/v1/pools" | "/api/v1/import" | "/api/v1/drives/clear") => {
            Role::Admin
        }
        (_, None) if path == "/api/v1/mounts" => Role::Admin,
        ("POST", Some("/export" | "/rename")) => Role::Admin,
        ("DELETE", Some("" | "/volumes/{volume}")) => Role::Admin,
        // Data is lost with a snapshot, and by going back to one.
        ("DELETE", Some("/volumes/{volume}/snapshots/{snapshot}")) => Role::Admin,
        ("POST", Some("/volumes/{volume}/snapshots/{snapshot}/rollback")) => Role::Admin,
        ("POST", None) if path == "/console/logout" => Role::Read,
        ("PUT", Some("/volumes/{volume}/bytes")) => Role::Admin,
        ("POST", Some("/volumes/{volume}/receive")) => Role::Admin,
        _ => Role::Operate,
    }
}

/// Refuses a caller whose role is too low for whatever its body may ask.
pub(super) async fn role_first(
    State(refusals): State<Arc<Refusals>>,
    request: Request,
    next: Next,
) -> Response {
    let extensions = request.extensions();
    if let (Some(path), Some(visitor)) = (extensions.get::<MatchedPath>(), extensions.get::<Visitor>()) {
        let needed = least_role(request.method(), path.as_str());
        if visitor.role < needed {
            return refused(visitor, needed, &format!("{} {}", request.method(), path.as_str()), &refusals);
        }
    }
    next.run(request).await
}

/// The answer to what a caller may not ask for.
pub(super) fn refused(visitor: &Visitor, needed: Role, asked: &str, refusals: &Refusals) -> Response {
    let Visitor { name, role, .. } = visitor;
    let why = format!("it needs the role {needed}, and this caller has the role {role}");
    refusals.tell("HTTP", name, &format!("`{asked}`: {why}"));
    error(StatusCode::FORBIDDEN, &why, None).into_response()
}
