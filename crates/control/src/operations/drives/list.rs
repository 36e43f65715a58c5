//! `drive list`: the drives of one or all pools, as `pool status` shows them.
//!
//! Expected faults: those of `pool status`.

use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::{ListDrives, ShowPools};
use crate::messages::response::{DriveList, ListedDrive, Response};
use crate::operations::pools::status;

/// Executes `drive list`.
pub async fn run(asked: &ListDrives, control: &Control) -> Result<Response> {
    let pools = status::reports(&ShowPools { pool: asked.pool.clone() }, control).await?;
    let drives = pools.into_iter().flat_map(|pool| {
        let name = pool.name;
        pool.drives.into_iter().map(move |drive| ListedDrive { pool: name.clone(), drive })
    });
    Ok(Response::DriveList(DriveList { drives: drives.collect() }))
}
