//! Rebuild: a member that misses writes gets its strips of all segments in use.
//!
//! Segments that hold data or map pages are read in the order of their places, each block verified,
//! and the member's strips are written. Segments that are written in the meantime go to the member
//! directly, so none is visited twice. Free and planned segments need nothing.
//!
//! The member counts as missing until the roots need nothing that it lacks and the record says that
//! it is complete. Interrupted at any write, a rebuild goes on where the roots say the member was
//! filled to; segments used again since then are filled again. A rebuild that is asked to pause
//! first makes durable what it has.
//!
//! Faults expected: blocks that cannot be reconstructed (counted; they read as lost from the new
//! member, too), and a new member that refuses writes (the rebuild ends, the log goes on).

use std::ops::ControlFlow;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_array::Class;

use crate::core::Core;
use crate::drives::fill::FillingMember;
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::roots::codec::RebuildMark;
use crate::steps::commit::commit;
use crate::steps::whole::{hold, read_whole};
use crate::steps::write::seal_open;
use crate::summary::Summary;

/// Segments that are filled between two marks.
const MARK_SEGMENTS: u32 = 16;

/// Progress of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogProgress {
    /// Segments in use that the member has.
    pub segments: u32,
    /// Segments that were in use when the rebuild began or went on.
    pub of_segments: u32,
}

/// Outcome of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRebuildReport {
    /// False if it paused, because it was asked to.
    pub is_complete: bool,
    /// Segments whose strips were reconstructed.
    pub filled_segments: u64,
    /// Segments that the member had from an interrupted rebuild.
    pub skipped_segments: u64,
    /// Blocks that could not be reconstructed.
    pub lost_blocks: u64,
}

/// Fills a missing member and counts it as present. Pauses where `progress` says so.
pub(crate) async fn rebuild(
    core: &Rc<Core>,
    member: usize,
    identity: u64,
    progress: &dyn Fn(LogProgress) -> ControlFlow<()>,
) -> Result<LogRebuildReport, LogError> {
    let _turn = core.pass_turn.acquire(1).await;
    core.check()?;
    let mut report = LogRebuildReport::default();
    if !core.drives.missing().contains(member) {
        return Ok(LogRebuildReport { is_complete: true, ..report });
    }
    let filling = core.drives.begin_filling(member);
    if is_chosen(Mutation::UnfinishedMemberBelieved) {
        core.drives.include(filling).await?;
        return Ok(LogRebuildReport { is_complete: true, ..report });
    }
    let earlier =
        core.state.borrow().rebuild.filter(|mark| (mark.member, mark.identity) == (member, identity));
    let begun = RebuildMark { member, identity, below: 0, before: 0 };
    core.state.borrow_mut().rebuild = Some(earlier.unwrap_or(begun));
    let of_segments = core.state.borrow().usage.in_use_in(0..core.segments.count);
    let mut next = 0;
    while next < core.segments.count {
        let next_mark = (next / MARK_SEGMENTS + 1) * MARK_SEGMENTS;
        let end = core.segments.count.min(next_mark).min(next + core.limits.in_flight as u32);
        let had = |segment: u32| match earlier.filter(|mark| segment < mark.below) {
            Some(_) if is_chosen(Mutation::FilledWhateverTheUse) => u64::MAX,
            mark => mark.map_or(0, |mark| mark.before),
        };
        let filled = (next..end).map(|segment| fill_segment(core, &filling, segment, had(segment)));
        for filled in join_all(filled).await {
            report.add(filled?);
        }
        next = end;
        let passed = (report.filled_segments + report.skipped_segments) as u32;
        let is_asked = progress(LogProgress { segments: passed.min(of_segments), of_segments }).is_break();
        // Each attempt comes further than the last.
        let pauses = is_asked && earlier.is_none_or(|mark| next > mark.below);
        if next == next_mark || next == core.segments.count || pauses {
            mark(core, &filling, next, earlier).await?;
        }
        if pauses {
            return Ok(report);
        }
    }
    complete(core, filling).await?;
    Ok(LogRebuildReport { is_complete: true, ..report })
}

impl LogRebuildReport {
    fn add(&mut self, other: Self) {
        self.filled_segments += other.filled_segments;
        self.skipped_segments += other.skipped_segments;
        self.lost_blocks += other.lost_blocks;
    }
}

/// Writes the member's strips of a segment, unless it has those of all uses before `had`.
async fn fill_segment(
    core: &Core,
    filling: &FillingMember<'_>,
    segment: u32,
    had: u64,
) -> Result<LogRebuildReport, LogError> {
    let nothing = LogRebuildReport::default();
    let Some(held) = hold(core, segment).await? else { return Ok(nothing) };
    if held.sequence < had {
        return Ok(LogRebuildReport { skipped_segments: 1, ..nothing });
    }
    let is_expected = |found: &Summary| found.sequence == held.sequence;
    let (data, lost_blocks) = match read_whole(core, segment, is_expected, Class::Background).await? {
        Some(whole) => (whole.data, whole.lost.len() as u64),
        None => {
            let place = core.segments.place(segment, 0);
            let data = core.drives.read_raw(place, core.segments.blocks, Class::Background.into()).await;
            (data, core.segments.summary_blocks())
        }
    };
    filling.check()?;
    core.drives.fill(segment, &data, filling.member).await?;
    Ok(LogRebuildReport { filled_segments: 1, lost_blocks, ..nothing })
}

/// Makes durable what the member has, so that the next roots say it.
async fn mark(
    core: &Core,
    filling: &FillingMember<'_>,
    below: u32,
    earlier: Option<RebuildMark>,
) -> Result<(), LogError> {
    let before = core.state.borrow().plan.next_sequence();
    core.when(|state| (state.written_before() >= before).then_some(())).await?;
    core.drives.flush_member(filling.member).await?;
    filling.check()?;
    if earlier.is_none_or(|mark| below >= mark.below)
        && let Some(mark) = &mut core.state.borrow_mut().rebuild
    {
        (mark.below, mark.before) = (below, before);
    }
    Ok(())
}

/// Counts the filled member as present.
async fn complete(core: &Rc<Core>, filling: FillingMember<'_>) -> Result<(), LogError> {
    // Records in the staging area have a copy less than with this member: none may be needed.
    let _turn = core.flush_turn.acquire(1).await;
    let number = core.state.borrow().open.number;
    seal_open(core, number).await?;
    // The new roots need no segment that was given up before it was filled.
    commit(core).await?;
    filling.check()?;
    core.state.borrow_mut().rebuild = None;
    core.drives.include(filling).await
}
