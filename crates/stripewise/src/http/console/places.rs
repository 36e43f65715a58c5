//! Places of drives for a new pool or a replacement: block devices, or the files of a folder. Only
//! names; what a drive holds is shown by `POST /api/v1/drives/show`.
//!
//! Expected faults: folders that are missing, unreadable or full of other files.

use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use stripewise_control::roles::Role;
use tokio::task::spawn_blocking;

use crate::failure::system_text;
use crate::http::api::Api;
use crate::http::problem::error;

/// Smaller files are no drives.
const LEAST_BYTES: u64 = 8 << 20;
/// Maximum number of places in an answer.
const MAX_PLACES: usize = 256;

/// The folder to list; block devices without one.
#[derive(Deserialize)]
pub(super) struct Asked {
    folder: Option<PathBuf>,
}

/// Lists places of drives.
pub(super) async fn places(api: Api, Query(asked): Query<Asked>) -> Response {
    // Only callers that may name any path as a drive list folders.
    let needed = if asked.folder.is_some() { Role::Admin } else { Role::Operate };
    if api.visitor.role < needed {
        let why = format!("it needs the role {needed}, and this caller has the role {}", api.visitor.role);
        return error(StatusCode::FORBIDDEN, &why, None).into_response();
    }
    let listed = spawn_blocking(move || match &asked.folder {
        Some(folder) => files_in(folder),
        None => Ok(block_devices()),
    });
    match listed.await {
        Ok(Ok(mut paths)) => {
            paths.sort();
            paths.truncate(MAX_PLACES);
            Json(json!({ "paths": paths })).into_response()
        }
        Ok(Err(why)) => error(StatusCode::BAD_REQUEST, &why, None).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "no places could be listed", None).into_response(),
    }
}

fn files_in(folder: &Path) -> Result<Vec<String>, String> {
    if !folder.is_absolute() {
        return Err(format!("`{}` is not an absolute path", folder.display()));
    }
    let entries = std::fs::read_dir(folder)
        .map_err(|why| format!("cannot list {}: {}", folder.display(), system_text(&why)))?;
    let is_drive = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() >= LEAST_BYTES)
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(is_drive);
    Ok(paths.filter_map(|path| Some(path.to_str()?.to_owned())).collect())
}

/// Block devices with a medium.
fn block_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let has_medium = |entry: &std::fs::DirEntry| {
        let size = std::fs::read_to_string(entry.path().join("size")).unwrap_or_default();
        size.trim().parse::<u64>().is_ok_and(|sectors| sectors * 512 >= LEAST_BYTES)
    };
    let names = entries.filter(has_medium).filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| !name.starts_with("ram"))
        .map(|name| format!("/dev/{}", name.replace('!', "/")))
        .collect()
}
