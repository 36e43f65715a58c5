//! Prints the response to a request: one JSON document or text, and an exit code. HTTP returns the
//! same documents. The texts are in the files below.

mod drives;
mod found;
mod jobs;
mod load;
mod pool_change;
mod snapshots;
mod volumes;

use stripewise_control::jobs::{Done, ScrubbedVolume};
use stripewise_control::report::{PoolReport, PoolState};
use stripewise_control::response::{Events, KnownPools, PoolChange, PoolSettings, Response};

use crate::commands::App;
use crate::failure::{Exit, Result};
use crate::printer::{Page, Table, plain};
use crate::report::{Shown, volume_table};

pub(crate) use drives::DRIVE_COLUMNS;
pub(crate) use load::print_interval;
pub(crate) use snapshots::SNAPSHOT_COLUMNS;

/// Columns of the list of pools.
pub(crate) const POOL_COLUMNS: [&str; 4] = ["POOL", ">DRIVES", ">PRESENT", "ID"];
/// Columns of the history of a pool.
pub(crate) const EVENT_COLUMNS: [&str; 3] = ["TIME", "KIND", "EVENT"];
/// Columns of the settings of a pool.
pub(crate) const SETTING_COLUMNS: [&str; 2] = ["SETTING", "VALUE"];

const NO_POOLS: &str =
    "no pools are known; create one with `stripewise pool create`, or find one with `stripewise pool import`";

/// Prints the response to a request, or its failure. Returns the exit code.
pub(crate) fn report(result: Result<Response>, app: &App) -> Exit {
    result.and_then(|response| print(&response, app)).unwrap_or_else(|failure| {
        app.printer.failure(&failure);
        Exit::of(&failure)
    })
}

/// Prints the response to a request. Returns the exit code.
pub(crate) fn print(response: &Response, app: &App) -> Result<Exit> {
    before(response, app);
    match response {
        // The data was the output.
        Response::BytesSent => {}
        // Each interval was printed when it ended.
        Response::Load(load) if load.is_told && !app.printer.is_json() => {}
        response => app.printer.result(response, |page| words(response, page))?,
    }
    after(response, app);
    Ok(exit_of_response(response))
}

/// Exit code of the process that made the request.
pub(crate) fn exit_of(result: &Result<Response>) -> Exit {
    match result {
        Ok(response) => exit_of_response(response),
        Err(failure) => Exit::of(failure),
    }
}

fn exit_of_response(response: &Response) -> Exit {
    let is_bad = match response {
        Response::Pools(pools) => return worst(&pools.pools),
        Response::JobsDone(done) => found_damage(done),
        Response::PoolChanged(changed) => {
            matches!(changed.change, PoolChange::DriveRetired { was_waited_for: true, is_gone: false, .. })
        }
        Response::PoolsFound(found) => found.lack_one(),
        Response::AlertsTested(tested) => tested.sent.iter().any(|sent| sent.error.is_some()),
        _ => false,
    };
    if is_bad { Exit::Failure } else { Exit::Success }
}

fn worst(pools: &[PoolReport]) -> Exit {
    let exit_of = |pool: &PoolReport| match pool.state {
        PoolState::Online => Exit::Success,
        PoolState::Degraded => Exit::Degraded,
        PoolState::Failed | PoolState::Unknown => Exit::Failure,
    };
    pools.iter().fold(Exit::Success, |worst, pool| match (worst, exit_of(pool)) {
        (Exit::Failure, _) | (_, Exit::Failure) => Exit::Failure,
        (Exit::Degraded, _) | (_, Exit::Degraded) => Exit::Degraded,
        _ => Exit::Success,
    })
}

fn found_damage(done: &Done) -> bool {
    let is_bad = |scrub: &ScrubbedVolume| match done.only_checked {
        true => scrub.found_something(),
        false => scrub.error.is_some() || scrub.unreadable_strips > 0,
    };
    done.scrubs.iter().any(is_bad)
}

/// Prints the notes that precede the result, on standard error.
fn before(response: &Response, app: &App) {
    match response {
        Response::KnownPools(known) if known.pools.is_empty() => app.note(NO_POOLS),
        Response::Pools(pools) if pools.pools.is_empty() => app.note(NO_POOLS),
        Response::Volumes(volumes) if volumes.volumes.is_empty() => {
            app.note("no volumes; create one with `stripewise volume create POOL/VOL --layout LAYOUT`");
        }
        Response::Snapshots(of) if of.snapshots.is_empty() => {
            app.note("no snapshots; take one with `stripewise snapshot create POOL/VOL@NAME`");
        }
        Response::PoolChanged(changed) => pool_change::before(changed, app),
        _ => {}
    }
}

/// Prints the notes that follow the result, on standard error.
fn after(response: &Response, app: &App) {
    match response {
        Response::PoolChanged(changed) => pool_change::after(changed, app),
        Response::Differences(of) if !of.rest.is_empty() => {
            app.note(format!("more ranges follow: {}", of.rest));
        }
        Response::PoolsFound(found) => found::after(found, app),
        Response::PoolExported(exported) => found::after_export(exported, app),
        _ => {}
    }
}

/// Prints the result as text.
fn words(response: &Response, page: &mut Page) {
    match response {
        Response::KnownPools(known) => known_pools(known, page),
        Response::Pools(pools) => {
            for (index, pool) in pools.pools.iter().enumerate() {
                if index > 0 {
                    page.line("");
                }
                pool.print(page);
            }
        }
        Response::PoolChanged(changed) => pool_change::words(changed, page),
        Response::PoolsFound(found) => found::words(found, page),
        Response::PoolExported(exported) => found::exported(exported, page),
        Response::Events(of) => events(of, page),
        Response::Settings(of) => settings(of, page),
        Response::Load(load) => load::words(load, page),
        Response::JobsDone(done) => jobs::words(done, page),
        Response::Volume(one) => one.volumes.iter().for_each(|volume| volume.print(page)),
        Response::Volumes(volumes) => {
            if !volumes.volumes.is_empty() {
                page.list(volume_table(&volumes.volumes));
            }
        }
        Response::VolumeChanged(changed) => volumes::words(changed, page),
        Response::Snapshots(of) => snapshots::list(&of.snapshots, page),
        Response::SnapshotsChanged(changed) => snapshots::changed(changed, page),
        Response::Differences(of) => snapshots::differences(of, page),
        Response::SnapshotReceived(received) => snapshots::received(received, page),
        Response::BytesSent => {}
        Response::VolumeWritten(written) => volumes::written(written, page),
        Response::DriveList(of) => drives::list(of, page),
        Response::Drives(shown) => {
            for (index, drive) in shown.drives.iter().enumerate() {
                if index > 0 {
                    page.line("");
                }
                drives::words(drive, page);
            }
        }
        Response::Located(located) => {
            let state = if located.on { "on" } else { "off" };
            page.line(format!("the light of {} is {state}", located.path.display()));
        }
        Response::DriveErased(erased) => page.line(match erased.held.is_empty() {
            true => format!("{} was empty", erased.path.display()),
            false => format!("{} is empty; it held {}", erased.path.display(), erased.held.join(" and ")),
        }),
        Response::Mounted(of) => {
            let folder = of.folder.display();
            page.line(match of.mounted {
                true => format!("{} is mounted at {folder}, also after the daemon starts again", of.target),
                false => format!("{} is unmounted from {folder}", of.target),
            });
        }
        Response::AlertsTested(tested) => {
            for sent in &tested.sent {
                match &sent.error {
                    None => page.line(format!("sent by {}", sent.way)),
                    Some(error) => page.line(format!("not sent by {}: {error}", sent.way)),
                }
            }
        }
    }
}

fn known_pools(known: &KnownPools, page: &mut Page) {
    if known.pools.is_empty() {
        return;
    }
    let mut table = Table::new(&POOL_COLUMNS);
    for pool in &known.pools {
        let present = pool.drives.iter().filter(|drive| drive.path.exists()).count();
        table.row([
            plain(&pool.name),
            plain(pool.drives.len().to_string()),
            plain(present.to_string()),
            plain(&pool.id),
        ]);
    }
    page.list(table);
}

fn settings(of: &PoolSettings, page: &mut Page) {
    if of.is_one {
        return of.settings.iter().for_each(|setting| page.line(&setting.value));
    }
    let mut table = Table::new(&SETTING_COLUMNS);
    for setting in &of.settings {
        table.row([plain(&setting.key), plain(&setting.value)]);
    }
    page.list(table);
}

fn events(of: &Events, page: &mut Page) {
    let mut table = Table::new(&EVENT_COLUMNS);
    for event in &of.events {
        table.row([plain(&event.time), plain(&event.kind), plain(&event.text)]);
    }
    page.list(table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use stripewise_control::response::{PoolChanged, Pools};
    use stripewise_pool::JobKind;

    fn pool(state: PoolState) -> PoolReport {
        PoolReport { name: "tank".into(), state, ..PoolReport::default() }
    }

    #[test]
    fn exit_codes_reflect_the_outcome_of_a_request() {
        let pools = |states: &[PoolState]| {
            exit_of(&Ok(Response::Pools(Pools { pools: states.iter().copied().map(pool).collect() })))
        };
        assert_eq!(pools(&[]), Exit::Success);
        assert_eq!(pools(&[PoolState::Online, PoolState::Degraded]), Exit::Degraded);
        assert_eq!(pools(&[PoolState::Failed, PoolState::Degraded, PoolState::Online]), Exit::Failure);
        let retired = |was_waited_for, is_gone| {
            let change = PoolChange::DriveRetired { path: "/d/0".into(), is_gone, was_waited_for };
            exit_of(&Ok(Response::PoolChanged(PoolChanged::new(pool(PoolState::Degraded), change, false))))
        };
        assert_eq!(retired(true, false), Exit::Failure, "waited for, but incomplete");
        assert_eq!((retired(true, true), retired(false, false)), (Exit::Success, Exit::Success));
        let scrubbed = |only_checked, unattributed_blocks, unreadable_strips| {
            let scrub = ScrubbedVolume {
                volume: "a".into(),
                checked_bytes: 1,
                repaired: Vec::new(),
                wrong: Vec::new(),
                places: Vec::new(),
                further_places: 0,
                unattributed_blocks,
                unreadable_strips,
                regions_without_redundancy: 0,
                error: None,
            };
            exit_of(&Ok(Response::JobsDone(Done {
                kind: JobKind::Scrub,
                worked: true,
                only_resync: false,
                only_checked,
                scrubs: vec![scrub],
                pools: vec![pool(PoolState::Online)],
            })))
        };
        assert_eq!((scrubbed(false, 1, 0), scrubbed(false, 0, 1)), (Exit::Success, Exit::Failure));
        assert_eq!((scrubbed(true, 0, 0), scrubbed(true, 1, 0)), (Exit::Success, Exit::Failure));
        assert_eq!(exit_of(&Err(Failure::missing("nothing there"))), Exit::Missing);
    }
}
