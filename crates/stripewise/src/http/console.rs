//! The web console: the pages at `/`, which use the same paths as any program, and paths that only
//! they need: sessions (`sessions.rs`), views below `/console` (`views.rs`, `places.rs`), and
//! commands in processes of their own (`tools.rs`, `lab.rs`).
//!
//! The pages are in `web/`, compressed into the program (`build.rs`, `assets.rs`).

mod assets;
mod lab;
mod login;
mod places;
pub(super) mod sessions;
mod tools;
mod views;

use std::sync::Arc;

use axum::middleware;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};

use super::api::House;
use super::guard::Guard;
use super::problem::in_one_shape;

/// Paths that need no token: the pages, and the login.
pub(super) fn pages(guard: Arc<Guard>) -> Router {
    Router::new()
        .route("/", get(assets::index))
        .route("/console/assets/{hash}/{*name}", get(assets::asset))
        .route("/console/login", post(login::login))
        .layer(middleware::map_response(in_one_shape))
        .with_state(guard)
}

/// Paths that only the pages use. They may change with the pages.
pub(super) fn views() -> Router<House> {
    Router::new()
        .route("/console/session", get(login::session))
        .route("/console/logout", post(login::logout))
        .route("/console/pools/{pool}/hour", get(views::hour))
        .route("/console/pools/{pool}/rows", get(views::rows))
        .route("/console/pools/{pool}/volumes/{volume}/use", get(views::volume_use))
        .route("/console/layout", get(views::layout))
        .route("/console/service", get(views::service))
        .route("/console/places", get(places::places))
        .route("/console/lab/runs", get(lab::list).post(lab::begin))
        .route("/console/lab/runs/{number}", delete(lab::stop))
        .route("/console/lab/reports/{run}", get(lab::report))
        .route("/console/tools/{tool}", post(tools::tool))
        .layer(Extension(Arc::<lab::LabRuns>::default()))
}
