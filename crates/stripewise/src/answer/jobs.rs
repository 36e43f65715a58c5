//! Results of completed jobs as text.

use stripewise_control::jobs::{Done, ScrubbedVolume};
use stripewise_control::report::{PoolState, counted};
use stripewise_control::size::ByteSize;
use stripewise_pool::JobKind;

use crate::printer::{Page, Style};

/// Prints the result.
pub(super) fn words(done: &Done, page: &mut Page) {
    let pool = &done.pools[0];
    match done.worked {
        true if done.only_resync => page.line(format!(
            "pool {}: crash resync complete. No scrub was pending; `stripewise pool scrub {0} --wait` verifies all data",
            pool.name
        )),
        // Columns without a place stay lacking; the condition below names them.
        true if done.kind == JobKind::Rebuild && pool.state != PoolState::Online => {
            page.line(format!("the rebuild of pool {} has ended; not all is done", pool.name));
        }
        true => page.line(format!("the {} of pool {} is complete", done.kind, pool.name)),
        false if done.kind == JobKind::Scrub => page.line(format!(
            "pool {}: no scrub was pending, nothing was verified; start one with `stripewise pool scrub {0} --wait`",
            pool.name
        )),
        false => page.line(format!("pool {}: no {} is pending", pool.name, done.kind)),
    }
    done.scrubs.iter().for_each(|scrub| print_scrub(scrub, page));
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
    if scrub.repaired.is_empty()
        && scrub.unattributed_blocks == 0
        && scrub.unreadable_strips == 0
        && scrub.error.is_none()
    {
        page.line("    no errors found");
    }
}
