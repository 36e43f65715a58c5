//! Changes to a pool as text.

use std::collections::BTreeSet;
use std::path::Path;

use stripewise_control::drives::candidates::noted_export;
use stripewise_control::names::in_shell;
use stripewise_control::report::{DriveState, PoolReport, VolumeReport, counted};
use stripewise_control::request::Setting;
use stripewise_control::response::{PoolChange, PoolChanged};
use stripewise_control::size::ByteSize;
use stripewise_pool::Role;

use crate::commands::App;
use crate::printer::Page;
use crate::report::interval_in_words;

/// Prints the notes that precede the result.
pub(super) fn before(changed: &PoolChanged, app: &App) {
    let PoolChange::Created { data_drives } = changed.change else { return };
    note_notices(changed.pool(), app);
    app.note(format!("next: {}", next_command(&changed.pool().name, data_drives)));
}

/// Prints the notes that follow the result.
pub(super) fn after(changed: &PoolChanged, app: &App) {
    if let PoolChange::DrivesAdded { count, role } = changed.change {
        note_notices(changed.pool(), app);
        if role == Role::Data {
            wider_layouts(changed.pool(), count).into_iter().for_each(|note| app.note(note));
        }
    }
    if let PoolChange::Destroyed { wiped: false } = changed.change {
        app.note(format!("until they are used again, `{}` brings it back", undo_command(changed.pool())));
    }
}

/// The command that brings a destroyed pool back. By default it searches block devices and volumes.
fn undo_command(pool: &PoolReport) -> String {
    let mut places = BTreeSet::new();
    for drive in &pool.drives {
        let path = Path::new(&drive.path);
        if noted_export(path).is_some() {
            places.insert(format!(" --drive {}", in_shell(&drive.path)));
        } else if path.is_absolute()
            && !path.starts_with("/dev")
            && let Some(folder) = path.parent()
        {
            places.insert(format!(" --dir {}", in_shell(&folder.to_string_lossy())));
        }
    }
    let places: String = places.into_iter().collect();
    format!("stripewise pool import{places} --destroyed {}", pool.name)
}

/// Notes the volumes whose rows took all data drives before these were added, and do not now.
fn wider_layouts(pool: &PoolReport, added: usize) -> Vec<String> {
    let data = pool.drives.iter().filter(|drive| drive.role == "data" && drive.state.takes_part()).count();
    let before = data.saturating_sub(added);
    let can_widen = |volume: &&VolumeReport| {
        volume.columns == before && !matches!(&*volume.layout, "single" | "raid1" | "raid50" | "raid60")
    };
    let note = |volume: &VolumeReport| {
        let VolumeReport { name, layout, columns, .. } = volume;
        format!(
            "note: volume {name} keeps {columns} columns; to use {data}: stripewise volume convert {0}/{name} \
             --layout {layout} --columns {data}",
            pool.name
        )
    };
    pool.volumes.iter().filter(can_widen).map(note).collect()
}

fn note_notices(pool: &PoolReport, app: &App) {
    for notice in &pool.notices {
        app.note(format!("note: {notice}"));
    }
}

/// Prints the result.
pub(super) fn words(changed: &PoolChanged, page: &mut Page) {
    let pool = changed.pool();
    let name = &pool.name;
    match &changed.change {
        PoolChange::Created { .. } => page.line(format!(
            "pool {name}: {}, {} for volumes and their redundancy",
            counted(pool.drives.len(), "drive"),
            ByteSize(pool.capacity_bytes)
        )),
        PoolChange::DrivesAdded { count, role } => {
            let role = match role {
                Role::Data => "for volumes",
                Role::Spare => "as spare",
                Role::Journal => "for journals",
                Role::Fast => "as fast",
            };
            page.line(format!("pool {name}: {} added {role}", counted(*count, "drive")));
            due(changed, page);
        }
        PoolChange::DriveRemoved { path } => {
            page.line(format!("{path} was removed from pool {name}"));
        }
        PoolChange::DriveRetired { path, is_gone: true, .. } => {
            page.line(format!("{path} is empty and was removed from pool {name}"));
        }
        PoolChange::DriveRetired { path, is_gone: false, .. } => {
            page.line(format!("{path} will be evacuated; no new data is placed on it"));
            due(changed, page);
        }
        PoolChange::DriveOffline { path, id } => {
            page.line(format!("{path} is offline and can be disconnected"));
            page.line(format!(
                "`stripewise pool online {name} {id}` brings it back; only changed data is copied then"
            ));
        }
        PoolChange::DriveOnline { path, was_reopened } => {
            page.line(format!("{path} is back in pool {name}"));
            if *was_reopened {
                page.line(format!(
                    "pool {name} was reopened: it had lost too many drives; clients must reconnect"
                ));
            }
            due(changed, page);
        }
        PoolChange::DriveReplaced { old, new } => {
            page.line(match pool.drives.iter().any(|drive| drive.state == DriveState::Replacing) {
                true => {
                    format!("replacing {old} with {new} in pool {name}; both stay in use until the copy is complete")
                }
                false => format!("{new} replaces {old} in pool {name}"),
            });
            due(changed, page);
        }
        PoolChange::Grown { drives, left } => {
            if !drives.is_empty() {
                let capacity = ByteSize(pool.capacity_bytes);
                page.line(format!("pool {name} has {capacity}: {} in full use", drives.join(", ")));
            }
            if *left > 0 {
                let more = counted(*left, "more drive");
                page.line(format!(
                    "{more} became larger; `stripewise pool grow {name} --yes` goes on when the \
                     rebuild is done"
                ));
            }
            due(changed, page);
        }
        PoolChange::RebalanceBegun => {
            page.line(due_text(changed).unwrap_or_else(|| format!("pool {name} is balanced")));
        }
        PoolChange::NothingToRebalance => {
            page.line(format!("pool {name}: nothing to rebalance; no volume could grow further"));
        }
        PoolChange::RebalanceStopped => {
            page.line(format!("pool {name}: rebalance stopped; data already moved stays where it is"));
        }
        PoolChange::NoRebalance => page.line(format!("pool {name}: no rebalance is pending")),
        PoolChange::ScrubAsked => match due_text(changed) {
            Some(due) => page.line(due),
            None => page.line(format!("pool {name} has no volumes to scrub")),
        },
        PoolChange::Cleared { path: Some(path) } => {
            page.line(format!("pool {name}: error counters of {path} reset"));
        }
        PoolChange::Cleared { path: None } => {
            page.line(format!("pool {name}: all error counters reset"));
        }
        PoolChange::SettingsChanged(settings) => {
            for setting in settings {
                page.line(format!("pool {name}: {}", in_words(*setting)));
            }
        }
        PoolChange::Renamed { from } => page.line(format!("pool {from} renamed to {name}")),
        PoolChange::Destroyed { wiped: true } => {
            page.line(format!("pool {name} destroyed; its drives are erased and free"));
        }
        PoolChange::Destroyed { wiped: false } => {
            page.line(format!("pool {name} destroyed; its drives are free"));
        }
    }
}

fn due(changed: &PoolChanged, page: &mut Page) {
    if let Some(due) = due_text(changed) {
        page.line(due);
    }
}

/// Pending jobs of a pool and the commands that complete them; `None` without pending jobs.
fn due_text(changed: &PoolChanged) -> Option<String> {
    let pool = changed.pool();
    let mut kinds: Vec<&str> = pool.activity.iter().map(|job| job.kind.as_str()).collect();
    kinds.dedup();
    let first = kinds.first()?;
    let name = &pool.name;
    Some(match changed.is_served {
        true => format!(
            "{} running in the daemon; `stripewise pool wait {name} {first}` waits for it",
            kinds.join(" and ")
        ),
        false => {
            let waits = kinds.iter().map(|kind| format!("`stripewise pool wait {name} {kind}`"));
            format!(
                "{} queued, and not running: no daemon serves the pool; {} does it now",
                kinds.join(" and "),
                waits.collect::<Vec<_>>().join(", then ")
            )
        }
    })
}

/// The next command after `pool create`, with layouts that suit the number of drives.
fn next_command(pool: &str, drives: usize) -> String {
    let (layout, others) = match drives {
        1 => ("single", ""),
        2 => ("raid1", "   (raid0, raid10, single)"),
        3 => ("raid5", "   (raid0, raid1, raid10 …)"),
        _ => ("raid5", "   (raid0, raid1, raid6, raid10 …)"),
    };
    format!("stripewise volume create {pool}/VOL --layout {layout}{others}")
}

fn in_words(setting: Setting) -> String {
    match setting {
        Setting::RebuildPriority(percent) => {
            format!("rebuild priority: {percent} % of each drive's time under load")
        }
        Setting::RebuildLatency(None) => "rebuild latency limit: none".to_owned(),
        Setting::RebuildLatency(Some(ms)) => {
            format!("rebuild latency limit: {ms} ms added to a client's request on a drive")
        }
        Setting::PatrolRate(None) => "scrub rate limit: none; the rebuild priority applies".to_owned(),
        Setting::PatrolRate(Some(rate)) => format!("scrub rate limit: {} per second", ByteSize(rate)),
        Setting::PatrolInterval(None) => "automatic scrubs: off".to_owned(),
        Setting::PatrolInterval(Some(seconds)) => {
            format!("automatic scrubs: {}, while a process has the pool open", interval_in_words(seconds))
        }
        Setting::TierRate(None) => "tier migration rate limit: none; the rebuild priority applies".to_owned(),
        Setting::TierRate(Some(rate)) => {
            format!("tier migration rate limit: {} per second", ByteSize(rate))
        }
        Setting::SpaceWarning(percent) => format!("space warning: at {percent} % used"),
    }
}
