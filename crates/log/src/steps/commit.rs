//! The commit: the roots of one instant become durable.
//!
//! The state is encoded at once; then everything that it rests on is made durable, then the roots
//! are replaced. Segments that the new roots do not need are free after that, and those that they
//! plan may be written.

use rustc_hash::FxHashSet;

use crate::core::{Core, State};
use crate::error::LogError;
use crate::open_segment::OpenSegment;
use crate::roots::codec::{DataRoot, Roots};

/// Replaces the roots. Returns when roots at least as new as the call are durable.
pub(crate) async fn commit(core: &Core) -> Result<(), LogError> {
    let Some(round) = core.commits.begin().await else { return core.check() };
    core.check()?;
    let (roots, retired, sealed) = {
        let state = &mut *core.state.borrow_mut();
        state.wanted.commit = false;
        let retired = prepare(core, state);
        (capture(core, state), retired, state.plan.next_sequence())
    };
    core.make_durable(sealed).await?;
    core.roots.commit(roots.encode()).await?;
    {
        let state = &mut *core.state.borrow_mut();
        state.plan.durable_before(roots.next_sequence + roots.plan.len() as u64);
        state.usage.release(&retired, core.readers.next());
        state.usage.settle(core.readers.oldest());
        state.retired = 0;
        state.figures.commits += 1;
    }
    round.ends_well();
    core.progress.notify_all();
    core.work.notify_all();
    Ok(())
}

/// Segments that are being written, or whose blocks are still being moved.
pub(crate) fn held(state: &State) -> FxHashSet<u32> {
    let in_flight = state.in_flight.values().map(|flight| flight.segment);
    in_flight.chain(state.survivors.iter().flat_map(OpenSegment::origins)).collect()
}

/// Retires what is not needed and fills up the plan.
fn prepare(core: &Core, state: &mut State) -> Vec<u32> {
    state.usage.settle(core.readers.oldest());
    while state.plan.len() < core.limits.planned
        && let Some(segment) = state.usage.plan()
    {
        state.plan.push(segment);
    }
    let held = held(state);
    let retired = state.usage.retire(|segment| held.contains(&segment));
    state.retired = retired.len();
    // The entries of a retired segment were all replaced by later ones, so recovery does without.
    state.recent.retain(|(_, segment)| !retired.contains(segment));
    retired
}

/// The roots of this instant.
fn capture(core: &Core, state: &State) -> Roots {
    Roots {
        volume: core.identity.volume,
        segment_blocks: core.segments.blocks,
        heads: state.heads.roots(),
        staged_through: state.staged_through,
        next_run: state.next_run,
        next_sequence: state.plan.next_sequence(),
        plan: state.plan.segments().collect(),
        recent: state.recent.clone(),
        frozen_through: state.frozen_through,
        rebuild: state.rebuild,
        runs: state.map.runs.iter().map(|run| run.root.clone()).collect(),
        data: state.usage.iter().filter_map(|(segment, used)| Some((segment, DataRoot::of(used)?))).collect(),
    }
}
