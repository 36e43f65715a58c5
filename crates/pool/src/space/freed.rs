//! Slabs freed by a commit: of rows that moved, shrank or were discarded, and of deleted volumes.
//! They become free for other uses once they are no longer read or written; a request that still
//! uses them began before the commit.
//!
//! Memory: one entry per stretch of slabs that is being waited for.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Weak;
use std::sync::Arc;

use futures_util::future::join_all;
use stripewise_drive::{Cause, Context, Event, IoRequest, Operation};

use crate::Inner;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::space::addresses;
use crate::volume::log::LogArray;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::{Block, Run, SlotPlace, SlotState};
use stripewise_array::{Array, ArrayHandle, Class};

/// Slabs of drives: drive, first slab, end; in order.
type Stretches = Vec<(u32, u64, u64)>;

/// Freed slabs that are still in use.
#[derive(Default)]
pub(crate) struct Freed {
    /// Number of commits with slabs that are not free yet.
    waiting: Cell<usize>,
    /// Number of times that slabs became free.
    given: Cell<u64>,
    /// Value of `given` when a request for slabs last waited in vain.
    in_vain_at: Cell<Option<u64>>,
    done: Event,
}

/// Slabs freed by a commit.
struct FreedSlabs {
    stretches: Stretches,
    /// Arrays that had the slabs and stay open, with their rows of which a column was moved.
    arrays: Vec<(ArrayHandle, Vec<u64>)>,
    /// Arrays of parts that were removed.
    ended: Vec<ArrayHandle>,
    /// Logs of parts that were removed.
    ended_logs: Vec<LogArray>,
}

impl Freed {
    /// Begins waiting for freed slabs.
    fn begin(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    /// Records that the slabs have become free.
    fn end(&self) {
        self.waiting.set(self.waiting.get() - 1);
        self.given.set(self.given.get() + 1);
        self.done.notify_all();
    }

    /// True if any freed slabs are still being waited for.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Waits until all freed slabs are free.
    pub(crate) async fn until_reclaimed(&self) {
        while self.is_reclaiming() {
            self.done.wait().await;
        }
    }

    /// Waits for freed slabs, `patience_ns` at most. True if it makes sense to look for slabs
    /// again. Requests wait one after the other, and hold their stripes; so after one has waited in
    /// vain, the next ones wait only if slabs have become free since.
    pub(crate) async fn slabs_may_come(&self, context: &Context, patience_ns: u64) -> bool {
        if !self.is_reclaiming() || self.in_vain_at.get() == Some(self.given.get()) {
            return false;
        }
        let reclaimed = pin!(self.until_reclaimed());
        if context.time_limit_ns(patience_ns, reclaimed).await.is_err() {
            self.in_vain_at.set(Some(self.given.get()));
        }
        true
    }
}

impl Inner {
    /// Finds the slabs that a commit freed, and makes them free once they are no longer in use.
    pub(crate) fn reclaim(
        &self,
        before: &Manifest,
        next: &Manifest,
        ended: Vec<ArrayHandle>,
        ended_logs: Vec<LogArray>,
    ) {
        let (mut old, mut new): (Stretches, Stretches) = (Vec::new(), Vec::new());
        let mut arrays = Vec::new();
        let of = |manifest: &Manifest| -> BTreeMap<Id, PartRecord> {
            manifest.parts().map(|part| (part.id, part.clone())).collect()
        };
        let (were, are) = (of(before), of(next));
        let ids: BTreeSet<Id> = were.keys().chain(are.keys()).copied().collect();
        for id in ids {
            let (was, is) = (were.get(&id), are.get(&id));
            if was == is {
                continue;
            }
            was.iter().for_each(|part| add_areas(part, &mut old));
            is.iter().for_each(|part| add_areas(part, &mut new));
            let blocks = |part: Option<&PartRecord>| part.map_or(0, |part| part.rows.blocks().len());
            let mut moved = Vec::new();
            for index in 0..blocks(was).max(blocks(is)) {
                let block = |part: Option<&PartRecord>| -> Block {
                    part.and_then(|part| part.rows.blocks().get(index).cloned()).unwrap_or_default()
                };
                let (was, is) = (block(was), block(is));
                if !Arc::ptr_eq(&was, &is) {
                    add_block(&was, &mut old);
                    add_block(&is, &mut new);
                    let is_used = |number: u32| next.is_online(number);
                    moved.extend(is.iter().flat_map(|run| moved_rows(&was, run, is_used)));
                }
            }
            if let Some(array) = self.volumes.array(id) {
                arrays.push((array, moved));
            }
        }
        let stretches = without(old, new);
        if stretches.is_empty() && ended.is_empty() && ended_logs.is_empty() {
            return;
        }
        let freed = FreedSlabs { stretches, arrays, ended, ended_logs };
        self.freed.begin();
        let me = self.me.clone();
        self.context.spawn(async move { wait_and_give(me, freed).await });
    }
}

async fn wait_and_give(pool: Weak<Inner>, freed: FreedSlabs) {
    for log in &freed.ended_logs {
        log.end().await;
    }
    for array in &freed.ended {
        let _ = array.call(async |array| array.close().await).await;
        if let Some(pool) = pool.upgrade() {
            pool.jobs.until_off(Id(array.spec().id)).await;
        }
        array.call(async |array| array.until_quiet().await).await;
    }
    let waits = if mutation::is_chosen(Mutation::FreedAtOnce) { &[][..] } else { &freed.arrays[..] };
    for (array, moved) in waits {
        let moved = moved.clone();
        let quiet = async move |array: Array| {
            for row in moved {
                array.until_row_is_quiet(row).await;
            }
            array.drain_reads().await;
        };
        array.call(quiet).await;
    }
    for array in freed.arrays.iter().map(|(array, _)| array).chain(&freed.ended) {
        let written = async |array: Array| {
            array.until_pages_written().await;
            array.until_map_written().await;
            array.until_journal_written().await;
        };
        array.call(written).await;
    }
    let Some(pool) = pool.upgrade() else { return };
    if !pool.lifecycle.is_closed() {
        discard(&pool, &freed.stretches).await;
    }
    let mut space = pool.space.borrow_mut();
    for (drive, first, end) in freed.stretches {
        space.give(drive, first as u32, (end - first) as u32);
    }
    drop(space);
    pool.freed.end();
    if pool.jobs.forget_conversion_stalls() || pool.is_journal_wanted() {
        pool.kick_jobs();
    }
}

/// Discards the slabs on their drives. This is advisory, so refusals do not matter.
async fn discard(pool: &Inner, stretches: &Stretches) {
    let slab_bytes = pool.manifest.borrow().slab_bytes;
    let mut discards = Vec::new();
    for &(drive, first, end) in stretches {
        let Some(member) = pool.working_member(drive) else { continue };
        let capacity_bytes = pool.manifest.borrow().drive(drive).map_or(0, |drive| drive.capacity_bytes);
        let start = addresses::slabs_base_bytes(capacity_bytes, slab_bytes) + first * slab_bytes;
        let request = IoRequest::range(Operation::Discard, start, (end - first) * slab_bytes);
        discards.push(member.submit(Class::Foreground, request.because(Cause::Discard)));
    }
    join_all(discards).await;
}

fn add_areas(part: &PartRecord, all: &mut Stretches) {
    let slabs = u64::from(part.meta.slabs);
    let map = part.meta.places.iter().map(|place| (place.drive, u64::from(place.slab), slabs));
    let journal =
        part.journal.iter().map(|place| (place.drive, u64::from(place.slab), u64::from(place.slabs)));
    all.extend(map.chain(journal).map(|(drive, first, slabs)| (drive, first, first + slabs)));
}

fn add_block(block: &Block, all: &mut Stretches) {
    for run in block.iter() {
        let stretch = |place: &SlotPlace| {
            let first = u64::from(place.slab);
            (place.drive, first, first + run.rows)
        };
        all.extend(run.places.iter().map(stretch));
    }
}

/// Rows of a run with a column that was on another slab before, which may still be written to.
fn moved_rows(before: &Block, run: &Run, is_used: impl Fn(u32) -> bool) -> Vec<u64> {
    let mut moved = Vec::new();
    let mut at = run.first_row;
    for old in before.iter().filter(|old| old.end_row() > run.first_row && old.first_row < run.end_row()) {
        at = at.max(old.first_row);
        let end = old.end_row().min(run.end_row());
        let left = |(was, is): (&SlotPlace, &SlotPlace)| {
            let elsewhere = (was.drive, was.slab) != (is.drive, is.slab);
            elsewhere && was.state != SlotState::Missing && is_used(was.drive)
        };
        if old.places_of(at).iter().zip(&run.places_of(at)).any(left) {
            moved.extend(at..end);
        }
        at = end;
    }
    moved
}

/// Stretches of `these` without those of `those`.
fn without(mut these: Stretches, mut those: Stretches) -> Stretches {
    these.sort_unstable();
    those.sort_unstable();
    let mut left: Stretches = Vec::new();
    let mut add = |drive: u32, from: u64, to: u64| match left.last_mut() {
        _ if from >= to => {}
        Some(last) if last.0 == drive && last.2 == from => last.2 = to,
        _ => left.push((drive, from, to)),
    };
    let mut next = 0;
    for (drive, from, to) in these {
        while next < those.len() && (those[next].0, those[next].2) <= (drive, from) {
            next += 1;
        }
        let mut at = from;
        for &(_, other_from, other_to) in
            those[next..].iter().take_while(|other| other.0 == drive && other.1 < to)
        {
            add(drive, at, other_from.min(to));
            at = at.max(other_to);
        }
        add(drive, at, to);
    }
    left
}

#[cfg(test)]
mod tests {
    use stripewise_drive::SplitMix64;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn timed_out_request_waits_again_only_after_a_release() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let freed = Freed::default();
            assert!(!freed.slabs_may_come(&context, 10).await, "no freed slabs are in use");
            freed.begin();
            freed.begin();
            assert!(freed.slabs_may_come(&context, 10).await, "waits for the whole patience");
            assert_eq!(context.now_ns(), 10);
            assert!(!freed.slabs_may_come(&context, 10).await);
            freed.end();
            assert!(freed.slabs_may_come(&context, 10).await && freed.is_reclaiming());
            freed.end();
            freed.until_reclaimed().await;
            assert_eq!(context.now_ns(), 20);
        });
    }

    #[test]
    fn freed_slabs_are_those_only_the_old_manifest_used() {
        let mut random = SplitMix64::new(11);
        for _ in 0..500 {
            let mut stretches = || {
                let mut all: Stretches = Vec::new();
                for drive in 0..3 {
                    let mut at = random.below(5);
                    while at < 40 {
                        let end = at + 1 + random.below(6);
                        all.push((drive, at, end));
                        at = end + random.below(3);
                    }
                }
                all.reverse();
                all
            };
            let (old, new) = (stretches(), stretches());
            let has = |all: &Stretches, drive: u32, slab: u64| {
                all.iter().any(|&(other, from, to)| other == drive && (from..to).contains(&slab))
            };
            let left = without(old.clone(), new.clone());
            for drive in 0..3 {
                for slab in 0..50 {
                    let expected = has(&old, drive, slab) && !has(&new, drive, slab);
                    assert_eq!(has(&left, drive, slab), expected, "{drive} {slab}: {old:?} {new:?}");
                }
            }
        }
    }
}
