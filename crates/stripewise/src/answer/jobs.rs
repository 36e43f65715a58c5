//! Results of completed jobs as text.

use stripewise_control::jobs::{Done, Fault, ScrubbedVolume};
use stripewise_control::report::{PoolState, counted};
use stripewise_control::size::ByteSize;
use stripewise_pool::JobKind;

use crate::printer::{Page, Style, Table, plain};

/// Prints the result.
pub(super) fn words(done: &Done, page: &mut Page) {
    let pool = &done.pools[0];
    match done.worked {
        true if done.only_checked => {
            page.line(format!("pool {} was checked; nothing was written", pool.name));
        }
        true if done.only_resync => page.line(format!(
            "pool {}: crash resync complete. No scrub was pending; `stripewise pool scrub {0} --wait` verifies all data",
            pool.name
        )),
        // Columns without a place stay lacking; the condition below names them.
        true if done.kind == JobKind::Rebuild && pool.state != PoolState::Online => {
            page.line(format!("the rebuild of pool {} has ended; not all is done", pool.name));
        }
        true => page.line(format!("the {} of pool {} is complete", done.kind, pool.name)),
        false if done.kind == JobKind::Scrub && pool.volumes.is_empty() => {
            page.line(format!("pool {} has no volumes to scrub", pool.name));
        }
        false if done.kind == JobKind::Scrub => page.line(format!(
            "pool {}: no scrub was pending, nothing was verified; start one with `stripewise pool scrub {0} --wait`",
            pool.name
        )),
        false => page.line(format!("pool {}: no {} is pending", pool.name, done.kind)),
    }
    done.scrubs.iter().for_each(|scrub| match done.only_checked {
        true => print_check(scrub, page),
        false => print_scrub(scrub, page),
    });
    if done.only_checked && done.scrubs.iter().any(ScrubbedVolume::found_something) {
        page.line(format!("`stripewise pool scrub {}` repairs what the redundancy allows", pool.name));
    }
    if pool.state != PoolState::Online {
        page.field("state", pool.state.to_string(), Style::Warning);
        page.field("condition", &pool.condition, Style::Plain);
        page.field("action", &pool.action, Style::Strong);
    }
}

fn print_scrub(scrub: &ScrubbedVolume, page: &mut Page) {
    page.line(format!("  volume {}: {} verified", scrub.volume, ByteSize(scrub.checked_bytes)));
    for drive in &scrub.repaired {
        let blocks = counted(drive.blocks as usize, "corrupt block");
        page.line(format!("    {}: {blocks} of 4 KiB, repaired from the other drives", drive.path));
    }
    if scrub.unattributed_blocks > 0 {
        let blocks = counted(scrub.unattributed_blocks as usize, "block");
        page.line(format!(
            "    {blocks} of 4 KiB did not match their redundancy, and this layout cannot locate the error;"
        ));
        page.line("    the data was kept, the redundancy rewritten");
    }
    if scrub.unreadable_strips > 0 {
        page.line(format!(
            "    {} could not be read or reconstructed",
            counted(scrub.unreadable_strips as usize, "strip")
        ));
    }
    if scrub.regions_without_redundancy > 0 {
        page.line("    some regions have no redundancy at present and could not be verified");
    }
    if let Some(error) = &scrub.error {
        page.line(format!("    ended early: {error}"));
    }
    if !scrub.found_something() {
        page.line("    no errors found");
    }
}

/// Prints the result of a check: the places that are wrong.
fn print_check(check: &ScrubbedVolume, page: &mut Page) {
    page.line(format!("  volume {}: {} read", check.volume, ByteSize(check.checked_bytes)));
    if !check.places.is_empty() {
        let mut table = Table::new(&[">OFFSET", ">BYTES", "FAULT", "DRIVE"]).indented();
        for place in &check.places {
            let drives: Vec<&str> = place.drives.iter().map(|drive| drive.path.as_str()).collect();
            table.row([
                plain(place.offset_bytes.to_string()),
                plain(place.length_bytes.to_string()),
                plain(fault_in_words(place.fault)),
                plain(drives.join(" or ")),
            ]);
        }
        page.table(&table);
    }
    if check.further_places > 0 {
        page.line(format!("    {} are not listed", counted(check.further_places as usize, "further place")));
    }
    if check.unreadable_strips > 0 {
        let strips = counted(check.unreadable_strips as usize, "strip");
        page.line(format!("    {strips} cannot be reconstructed from the other drives"));
    }
    if check.regions_without_redundancy > 0 {
        page.line("    some regions have no redundancy at present, or wait for a crash resync: not compared");
    }
    if let Some(error) = &check.error {
        page.line(format!("    ended early: {error}"));
    }
    if !check.found_something() {
        page.line("    no errors found");
    }
}

fn fault_in_words(fault: Fault) -> &'static str {
    match fault {
        Fault::Unreadable => "unreadable",
        Fault::Checksum => "wrong checksum",
        Fault::Mismatch => "mismatch",
        Fault::ChecksumPage => "damaged checksums",
    }
}
