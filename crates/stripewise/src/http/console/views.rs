//! Views that only the pages need: the last hour of a pool, its rows, the use of a volume, and the
//! order of strips in a layout.
//!
//! Expected faults: pools and volumes that are not served here, layouts that are not possible.

use axum::Json;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use stripewise_control::roles::Role;
use stripewise_layout::{Geometry, Level, Shape};
use stripewise_pool::RowRun;

use crate::http::api::Api;
use crate::http::orders::{Order, Service, VolumeUse};
use crate::http::problem::error;

/// Maximum number of runs of rows in an answer.
const MAX_RUNS: usize = 2000;

/// The load of a pool over the last hour, in steps of ten seconds, oldest first.
pub(super) async fn hour(api: Api, Path(pool): Path<String>) -> Response {
    match api.order(|answer| Order::History { pool, answer }).await {
        Ok(points) => Json(json!({ "points": points })).into_response(),
        Err(response) => response,
    }
}

/// The rows of a pool's volumes: runs, with drives, states and redundancy left.
pub(super) async fn rows(api: Api, Path(pool): Path<String>) -> Response {
    let missing = format!("pool `{pool}` is not served here");
    match api.order(|answer| Order::Rows { pool, answer }).await {
        Ok(Some(runs)) => {
            let left_out = runs.len().saturating_sub(MAX_RUNS);
            let runs: Vec<Value> = runs.iter().take(MAX_RUNS).map(in_json).collect();
            Json(json!({ "runs": runs, "left_out": left_out })).into_response()
        }
        Ok(None) => error(StatusCode::NOT_FOUND, &missing, None).into_response(),
        Err(response) => response,
    }
}

fn in_json(run: &RowRun) -> Value {
    let column = |column: &stripewise_pool::RowColumn| {
        json!({
            "drive": column.drive.to_string(),
            "first_slab": column.first_slab,
            "state": column.state.word(),
        })
    };
    json!({
        "volume": run.volume,
        "rows": run.rows,
        "redundancy": run.redundancy,
        "redundancy_left": run.redundancy_left,
        "columns": run.columns.iter().map(column).collect::<Vec<_>>(),
    })
}

/// Requests to a volume in flight, its journal, and its clients.
pub(super) async fn volume_use(api: Api, Path((pool, volume)): Path<(String, String)>) -> Response {
    let missing = format!("volume `{pool}/{volume}` is not open here");
    match api.order(|answer| Order::VolumeUse { pool, volume, answer }).await {
        Ok(Some(VolumeUse { load, nbd_clients, vhost_clients })) => {
            let (used, size) = load.journal.unzip();
            let document = json!({
                "in_flight": load.in_flight,
                "journal_used_bytes": used,
                "journal_size_bytes": size,
                "nbd_clients": nbd_clients,
                "vhost_clients": vhost_clients,
            });
            Json(document).into_response()
        }
        Ok(None) => error(StatusCode::NOT_FOUND, &missing, None).into_response(),
        Err(response) => response,
    }
}

/// Ways to all volumes, and for callers that may change something the channels of alerts: commands
/// may hold secrets.
pub(super) async fn service(api: Api) -> Response {
    let sees_alerts = api.visitor.role >= Role::Operate;
    match api.order(Order::Service).await {
        Ok(Service { nbd, vhost_user, alerts }) => {
            let alerts = sees_alerts.then_some(alerts);
            Json(json!({ "nbd": nbd, "vhost_user": vhost_user, "alerts": alerts })).into_response()
        }
        Err(response) => response,
    }
}

/// Number of rows of strips in a drawing.
const DRAWN_ROWS: u64 = 8;

/// A layout.
#[derive(Deserialize)]
pub(super) struct Drawn {
    layout: String,
    columns: usize,
    groups: usize,
    /// Rows after which parity rotates.
    rotation_rows: u32,
}

/// The first rows of strips of a layout: by column, the number of the data strip, or `P`, `Q`, `R`.
/// One row is drawn of each group of rows that share the place of parity.
pub(super) async fn layout(Query(drawn): Query<Drawn>) -> Response {
    match strips(&drawn) {
        Ok(rows) => Json(json!({ "rows": rows, "each": drawn.rotation_rows })).into_response(),
        Err(why) => error(StatusCode::BAD_REQUEST, &why, None).into_response(),
    }
}

fn strips(drawn: &Drawn) -> Result<Vec<Vec<String>>, String> {
    /// The least strip; its size has no influence on the order.
    const STRIP_BYTES: u64 = 4096;
    let level: Level = drawn.layout.parse().map_err(|why: stripewise_layout::LayoutError| why.to_string())?;
    let Drawn { columns: width, groups, rotation_rows, .. } = *drawn;
    let shape = Shape { level, width, groups, interleave_bytes: STRIP_BYTES, rotation_rows };
    let step = u64::from(rotation_rows.clamp(1, 1 << 16));
    let member_bytes = DRAWN_ROWS * step * STRIP_BYTES;
    let geometry = Geometry::new(shape, member_bytes).map_err(|why| why.to_string())?;
    let mut rows = vec![vec![String::new(); geometry.width()]; DRAWN_ROWS as usize];
    let data = geometry.data_units();
    for index in 0..geometry.stripes() {
        for (unit, place) in geometry.stripe(index).units.iter().enumerate() {
            let row = place.offset_bytes / STRIP_BYTES;
            if !row.is_multiple_of(step) {
                continue;
            }
            let text = match unit.checked_sub(data * geometry.copies()) {
                Some(parity) => ["P", "Q", "R"][parity.min(2)].to_owned(),
                None => (index * data as u64 + (unit % data) as u64).to_string(),
            };
            rows[(row / step) as usize][place.member] = text;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(layout: &str, columns: usize, rotation_rows: u32) -> Vec<String> {
        let rows = strips(&Drawn { layout: layout.to_owned(), columns, groups: 1, rotation_rows });
        rows.expect("a layout").iter().take(2).map(|row| row.join(" ")).collect()
    }

    #[test]
    fn layouts_are_drawn_as_strips_by_column() {
        assert_eq!(drawn("raid0", 3, 1), ["0 1 2", "3 4 5"]);
        assert_eq!(drawn("raid1", 2, 1), ["0 0", "1 1"]);
        assert_eq!(drawn("raid10", 4, 1), ["0 0 1 1", "2 2 3 3"]);
        assert_eq!(drawn("raid5", 3, 1), ["0 1 P", "3 P 2"]);
        assert_eq!(drawn("raid5", 3, 2), ["0 1 P", "5 P 4"]);
        let wrong = Drawn { layout: "raid5".to_owned(), columns: 1, groups: 1, rotation_rows: 1 };
        assert!(strips(&wrong).is_err());
    }
}
