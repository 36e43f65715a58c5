//! Found, imported and exported pools as text.

use stripewise_control::drives::candidates::noted_export;
use stripewise_control::report::counted;
use stripewise_control::response::{FoundPool, PoolExported, PoolsFound};
use stripewise_control::times::{host_in_words, moment_text};

use crate::commands::App;
use crate::printer::{Page, Style, Table, plain};
use crate::report::short_id;

/// Prints the notes that follow the result.
pub(super) fn after(found: &PoolsFound, app: &App) {
    if found.are_only_listed && found.pools.iter().any(|one| !one.imported) {
        app.note(match found.are_destroyed {
            true => "nothing was changed; the commands above bring one pool back",
            false => "nothing was imported; the commands above import one pool, --all imports all",
        });
    }
}

/// Prints the result.
pub(super) fn words(found: &PoolsFound, page: &mut Page) {
    for (index, one) in found.pools.iter().enumerate() {
        match found.are_only_listed {
            true => listed(one, page, index > 0),
            false if one.imported => imported(one, page),
            false => {}
        }
    }
}

fn imported(found: &FoundPool, page: &mut Page) {
    let in_use = found.used_by.as_ref().map_or_else(String::new, |user| format!("; in use by {user}"));
    page.line(format!(
        "pool {}: {}, {}, {}{in_use}",
        found.pool.name,
        found.pool.state,
        counted(found.pool.drives.len(), "drive"),
        counted(found.pool.volumes.len(), "volume")
    ));
}

fn listed(found: &FoundPool, page: &mut Page, is_behind_another: bool) {
    if is_behind_another {
        page.line("");
    }
    page.field("pool", &found.pool.name, Style::Strong);
    page.field("id", &found.pool.id, Style::Plain);
    page.field("state", found.pool.state.to_string(), Style::Plain);
    page.field("condition", &found.pool.condition, Style::Plain);
    if let Some(unix_s) = found.destroyed_unix_s {
        page.field("destroyed", moment_text(unix_s.saturating_mul(1000)), Style::Plain);
    }
    if let Some(host) = &found.last_host {
        page.field("last host", host_in_words(host), Style::Plain);
    }
    match (&found.held_back, found.imported) {
        (None, _) if found.destroyed_unix_s.is_some() => {
            page.field("bring back", &found.command, Style::Plain);
        }
        (_, true) if found.has_moved => {
            page.field("import", format!("its drives have moved: {}", found.command), Style::Warning);
        }
        (_, true) => page.field("import", "already imported", Style::Plain),
        (Some(why), false) => page.field("held back", why, Style::Warning),
        (None, false) => {
            page.field("import", &found.command, Style::Plain);
        }
    }
    let mut drives = Table::new(&["DRIVE", "ROLE", "STATE", "ID"]).indented().shortening_first();
    for drive in &found.pool.drives {
        drives.row([
            plain(&drive.path),
            plain(&drive.role),
            plain(drive.state.to_string()),
            plain(short_id(&drive.id)),
        ]);
    }
    page.table(&drives);
}

/// Prints an exported pool.
pub(super) fn exported(exported: &PoolExported, page: &mut Page) {
    let pool = &exported.exported;
    page.line(format!("pool {} exported; its drives:", pool.name));
    for drive in &pool.drives {
        page.line(format!("  {}", drive.path.display()));
    }
}

/// Prints the command that imports an exported pool.
pub(super) fn after_export(exported: &PoolExported, app: &App) {
    let pool = &exported.exported;
    let export = pool.drives.iter().find(|drive| noted_export(&drive.path).is_some());
    let by =
        export.map_or_else(|| "--dir DIR".to_owned(), |drive| format!("--drive '{}'", drive.path.display()));
    app.note(format!("`stripewise pool import {by} {}` imports it again", pool.name));
}
