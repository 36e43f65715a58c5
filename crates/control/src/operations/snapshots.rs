//! Snapshots: taken, listed, compared, deleted; volumes rolled back to them.

pub mod clone;
pub mod create;
pub mod delete;
pub mod diff;
pub mod list;
pub mod rollback;

use crate::failure::{Result, pool_failure};
use crate::messages::report::SnapshotReport;
use crate::notation::names::SnapshotName;
use crate::pools::session::Session;

/// Names by their pools, in the order in which the pools are named first.
fn by_pool(names: &[SnapshotName]) -> Vec<(String, Vec<SnapshotName>)> {
    let mut pools: Vec<(String, Vec<SnapshotName>)> = Vec::new();
    for name in names {
        match pools.iter_mut().find(|(pool, _)| *pool == name.volume.pool) {
            Some((_, of_pool)) => of_pool.push(name.clone()),
            None => pools.push((name.volume.pool.clone(), vec![name.clone()])),
        }
    }
    pools
}

/// Names in one line.
fn in_words(names: &[SnapshotName]) -> String {
    match names {
        [one] => format!("snapshot {one}"),
        [first, ..] => format!("{} snapshots ({first}, …)", names.len()),
        [] => "no snapshot".to_owned(),
    }
}

/// Snapshots of a pool's volume, or of all of them.
fn reports(session: &Session, volume: Option<&str>) -> Result<Vec<SnapshotReport>> {
    let snapshots = session.pool.snapshots(volume);
    let snapshots = snapshots.map_err(|error| pool_failure("cannot list snapshots".to_owned(), &error))?;
    Ok(snapshots.into_iter().map(|snapshot| SnapshotReport::new(session.name(), snapshot)).collect())
}

/// Snapshots of the volumes of these.
fn reports_beside(session: &Session, names: &[SnapshotName]) -> Result<Vec<SnapshotReport>> {
    let is_beside = |report: &SnapshotReport| names.iter().any(|name| name.volume.volume == report.volume);
    let mut all = reports(session, None)?;
    all.retain(is_beside);
    Ok(all)
}
