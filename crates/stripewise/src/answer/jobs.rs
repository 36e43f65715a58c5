//! What came of jobs that were worked on until they were done, in words.

use stripewise_control::jobs::{Done, ScrubbedVolume};
use stripewise_control::report::{PoolState, counted};
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::JobKind;

use crate::printer::{Page, Style};

/// The result.
pub(super) fn words(done: &Done, page: &mut Page) {
    let pool = &done.pools[0];
    match done.worked {
        true if done.only_resync => page.line(format!(
            "pool {}: what a crash left open was compared. No scrub was asked for; `stripewise pool scrub {0} --wait` reads \
             and compares everything",
            pool.name
        )),
        true => page.line(format!("the {} of pool {} is done", done.kind, pool.name)),
        false if done.kind == JobKind::Scrub => page.line(format!(
            "pool {}: no scrub was asked for, so nothing was checked; `stripewise pool scrub {0} --wait` does that",
            pool.name
        )),
        false => page.line(format!("pool {} has no {} to do", pool.name, done.kind)),
    }
    done.scrubs.iter().for_each(|scrub| print_scrub(scrub, page));
    if pool.state != PoolState::Online {
        page.field("state", pool.state.to_string(), Style::Warning);
        page.field("condition", &pool.condition, Style::Plain);
        page.field("action", &pool.action, Style::Strong);
    }
}

fn print_scrub(scrub: &ScrubbedVolume, page: &mut Page) {
    page.line(format!("  volume {}: {} read and compared", scrub.volume, ByteSize(scrub.checked_bytes)));
    for drive in &scrub.repaired {
        let blocks = counted(drive.blocks as usize, "block");
        page.line(format!(
            "    {} held {blocks} of 4 KiB that were wrong; repaired from the others",
            drive.path
        ));
    }
    if scrub.unattributed_blocks > 0 {
        let blocks = counted(scrub.unattributed_blocks as usize, "block");
        page.line(format!("    {blocks} of 4 KiB disagreed with their redundancy, and this layout cannot tell which is right;"));
        page.line("    data were taken as they are, redundancy was made to agree");
    }
    if scrub.unreadable_strips > 0 {
        page.line(format!(
            "    {} could be neither read nor rebuilt",
            counted(scrub.unreadable_strips as usize, "strip")
        ));
    }
    if scrub.regions_without_redundancy > 0 {
        page.line("    parts have no redundancy at the moment and could not be compared");
    }
    if let Some(error) = &scrub.error {
        page.line(format!("    ended early: {error}"));
    }
    if scrub.repaired.is_empty()
        && scrub.unattributed_blocks == 0
        && scrub.unreadable_strips == 0
        && scrub.error.is_none()
    {
        page.line("    nothing wrong was found");
    }
}
