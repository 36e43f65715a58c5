//! Clients: each does one thing after the other to one volume after the other, of every size and
//! alignment, several at the same places, and looks at what it reads. In crowded lives one of them
//! gives up whole regions beside the others.

use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::SplitMix64;

use super::Life;
use crate::subject::{Refusal, Store};
use crate::world::bias::Deed;
use crate::world::content::{SECTOR_BYTES, stamp};
use crate::world::descriptors::Meaning;
use crate::world::guarded::{Guarded, Target, bytes_of};

/// The largest write, sectors.
const LARGEST_SECTORS: u32 = 512;
/// Data of a region, sectors, for the rare discard of whole regions: 1 MiB for each data unit.
const REGION_SECTORS: u32 = 2048;

fn draw_range(random: &mut SplitMix64, guarded: &Guarded) -> Range<u32> {
    let total = guarded.oracle.borrow().sector_count();
    let hot = &guarded.hot[random.below(guarded.hot.len() as u64) as usize];
    // The volume may have become smaller.
    let at = (hot.start + random.below(u64::from(hot.end - hot.start)) as u32).min(total - 1);
    let (first, count) = match random.below(10) {
        0..=2 => (at, 1 + random.below(8) as u32),
        3..=6 => (at / 8 * 8, 8 * (1 + random.below(4) as u32)),
        7 => (at / 8 * 8, 8 * (1 + random.below(32) as u32)),
        // Whole stripes.
        _ => {
            let stripe = guarded.stripe_sectors;
            (at / stripe * stripe, stripe * (1 + random.below(2) as u32))
        }
    };
    first..(first + count.min(LARGEST_SECTORS)).min(total)
}

/// Performs `steps` operations, with pauses, until stopped.
pub(crate) async fn client(life: Rc<Life>, targets: Vec<Target>, seed: u64, steps: u64) {
    let mut random = SplitMix64::new(seed);
    let nap_ns = if life.world.plan.manner.is_long { 2_000_000_000 } else { 5_000_000 };
    for _ in 0..steps {
        if life.is_over() {
            return;
        }
        let (store, guarded) = &targets[random.below(targets.len() as u64) as usize];
        let sectors = draw_range(&mut random, guarded);
        let deed = life.world.bias.habits.deed(random.below(100));
        let sectors = match deed {
            // Seldom: from then on there is much to look at.
            Deed::WideZeroes | Deed::Discard if random.chance(life.world.bias.habits.wide) => {
                widened(&mut random, guarded)
            }
            _ => sectors,
        };
        let forces_zeroes = life.world.forced_zeroes;
        let is_change = matches!(deed, Deed::Zeroes | Deed::WideZeroes | Deed::Discard);
        let fua = is_change && forces_zeroes > 0.0 && random.chance(forces_zeroes);
        match deed {
            Deed::Flush => flush(&life, store, guarded).await,
            Deed::Read => read(&life, store, guarded, sectors).await,
            Deed::Zeroes | Deed::WideZeroes => write_zeroes(&life, store, guarded, sectors, fua).await,
            Deed::Discard => discard(&life, store, guarded, sectors, fua).await,
            Deed::Nap => life.context.sleep_ns(random.below(nap_ns)).await,
            Deed::Write { is_forced } => write(&life, store, guarded, sectors, is_forced).await,
        }
    }
}

/// At least a region, if the volume is so large.
pub(crate) fn widened(random: &mut SplitMix64, guarded: &Guarded) -> Range<u32> {
    let total = guarded.oracle.borrow().sector_count();
    let first = random.below(u64::from(total)) as u32 / REGION_SECTORS * REGION_SECTORS;
    first..(first.saturating_add(REGION_SECTORS * 8)).min(total)
}

async fn read(life: &Life, store: &Store, guarded: &Guarded, sectors: Range<u32>) {
    let since = guarded.oracle.borrow_mut().tick();
    let (offset, length) = bytes_of(&sectors);
    match life.answered("a read", store.read(offset, length)).await {
        Some(Ok(bytes)) => life.judge(guarded, &sectors, &bytes, since, false, "beside writes"),
        Some(Err(why)) => life.judge_refusal(guarded, &sectors, since, &why.to_string(), "beside writes"),
        None => {}
    }
}

/// Writes, and notes what came of it.
pub(crate) async fn write(life: &Life, store: &Store, guarded: &Guarded, sectors: Range<u32>, fua: bool) {
    let begun_ns = life.context.now_ns();
    let store = &if fua { life.through_either(store, guarded) } else { store.clone() };
    let ticket = guarded.oracle.borrow_mut().begin_write(sectors.clone());
    let (offset, length) = bytes_of(&sectors);
    let mut bytes = vec![0; length];
    stamp(&mut bytes, guarded.number, sectors.start, ticket.version);
    life.note(&format!("write {} {sectors:?} version {} fua {fua}", guarded.name, ticket.version));
    let Some(answer) = life.answered("a write", store.write(offset, &bytes, fua)).await else { return };
    guarded.oracle.borrow_mut().end_write(&ticket, answer.is_ok(), fua);
    acknowledged(
        life,
        store,
        guarded,
        &answer,
        fua.then_some((begun_ns, ticket.begun, Meaning::OtherFailure)),
    );
    changed(life, guarded, "a write", &sectors, ticket.begun, answer);
}

/// Notes the answer to a forced change: the times of the clock and of the model at which it began,
/// and the meaning of an I/O error. `None`: it was not forced.
fn acknowledged(
    life: &Life,
    store: &Store,
    guarded: &Guarded,
    answer: &Result<(), Refusal>,
    forced: Option<(u64, u64, Meaning)>,
) {
    let Some((begun_ns, begun, meaning)) = forced else { return };
    match answer {
        Ok(()) => life.acknowledged_durably(begun_ns),
        Err(_) => guarded.oracle.borrow_mut().reported(),
    }
    life.synced(store, guarded, begun, answer, meaning);
}

/// The end of a note on a change. Nothing where it is not forced, so that runs of kept seeds have
/// the notes that they had.
fn forced(fua: bool) -> &'static str {
    if fua { " forced" } else { "" }
}

/// Writes zeros, and notes what came of it.
pub(crate) async fn write_zeroes(
    life: &Life,
    store: &Store,
    guarded: &Guarded,
    sectors: Range<u32>,
    fua: bool,
) {
    let begun_ns = life.context.now_ns();
    let store = &if fua { life.through_either(store, guarded) } else { store.clone() };
    let ticket = guarded.oracle.borrow_mut().begin_zeroes(sectors.clone(), false);
    let (offset, length) = bytes_of(&sectors);
    life.note(&format!("zero {} {sectors:?}{}", guarded.name, forced(fua)));
    let work = store.write_zeroes(offset, length as u64, fua);
    let Some(answer) = life.answered("a write of zeros", work).await else { return };
    guarded.oracle.borrow_mut().end_write(&ticket, answer.is_ok(), fua);
    acknowledged(
        life,
        store,
        guarded,
        &answer,
        fua.then_some((begun_ns, ticket.begun, Meaning::PerhapsLoss)),
    );
    changed(life, guarded, "a write of zeros", &sectors, ticket.begun, answer);
}

/// Discards, and notes what came of it.
pub(crate) async fn discard(life: &Life, store: &Store, guarded: &Guarded, sectors: Range<u32>, fua: bool) {
    let begun_ns = life.context.now_ns();
    let store = &if fua { life.through_either(store, guarded) } else { store.clone() };
    let ticket = guarded.oracle.borrow_mut().begin_zeroes(sectors.clone(), true);
    let (offset, length) = bytes_of(&sectors);
    life.note(&format!("discard {} {sectors:?}{}", guarded.name, forced(fua)));
    let work = store.discard(offset, length as u64, fua);
    let Some(answer) = life.answered("a discard", work).await else { return };
    guarded.oracle.borrow_mut().end_write(&ticket, answer.is_ok(), fua);
    acknowledged(
        life,
        store,
        guarded,
        &answer,
        fua.then_some((begun_ns, ticket.begun, Meaning::PerhapsLoss)),
    );
    changed(life, guarded, "a discard", &sectors, ticket.begun, answer);
}

/// Makes durable what was written to a volume.
pub(crate) async fn flush(life: &Life, store: &Store, guarded: &Guarded) {
    let begun_ns = life.context.now_ns();
    let store = &life.through_either(store, guarded);
    let begun = guarded.oracle.borrow_mut().tick();
    let Some(answer) = life.answered("a flush", store.flush()).await else { return };
    match &answer {
        Ok(()) => {
            guarded.oracle.borrow_mut().end_flush(begun);
            life.acknowledged_durably(begun_ns);
        }
        Err(_) => guarded.oracle.borrow_mut().reported(),
    }
    life.synced(store, guarded, begun, &answer, Meaning::Loss);
    life.note(&format!("flushed {} {}", guarded.name, answer.is_ok()));
    changed(life, guarded, "a flush", &(0..0), begun, answer);
}

/// Checks that a refused change was beyond the promises.
fn changed(
    life: &Life,
    guarded: &Guarded,
    what: &str,
    sectors: &Range<u32>,
    begun: u64,
    answer: Result<(), Refusal>,
) {
    let Err(why) = answer else {
        guarded.is_changed.set(true);
        return;
    };
    life.note(&format!("refused {} {what} {sectors:?}: {why}", guarded.name));
    if guarded.is_leaving.get() || (why.is_full && guarded.is_thin) {
        return;
    }
    // A part written needs what is missing to be understood.
    if !guarded.lost().is_empty() {
        guarded.oracle.borrow_mut().lose_suspects();
    }
    let may_refuse = sectors.start < sectors.end && {
        let oracle = guarded.oracle.borrow();
        let stripe = guarded.stripe_sectors;
        let from = sectors.start / stripe * stripe;
        let to = sectors.end.next_multiple_of(stripe).min(oracle.sector_count());
        oracle.may_refuse(from..to, begun)
    };
    if !guarded.is_failed.get() && !guarded.may_refuse_writes.get() && !may_refuse {
        let detail = format!("{}: {what} of sectors {sectors:?}: {why}", guarded.name);
        life.broken("nothing-refused", detail);
    }
}

impl Life {
    /// In a crowded life: goes on giving up whole regions that clients write to, until the life is
    /// over.
    pub(crate) async fn stir(self: Rc<Self>, targets: Vec<Target>, seed: u64) {
        let mut random = SplitMix64::new(seed);
        for _ in 0..40 {
            self.context.sleep_ns(random.below(4_000_000)).await;
            if self.is_over() {
                return;
            }
            let (store, guarded) = &targets[random.below(targets.len() as u64) as usize];
            let total = guarded.oracle.borrow().sector_count();
            let region = (store.region_bytes() / SECTOR_BYTES) as u32;
            let first = random.below(2) as u32 * region;
            if first >= total {
                continue;
            }
            let regions = 1 + random.below(2) as u32;
            let range = first..first.saturating_add(region.saturating_mul(regions)).min(total);
            match random.below(3) {
                0 => write_zeroes(&self, store, guarded, range, false).await,
                _ => discard(&self, store, guarded, range, false).await,
            }
        }
    }
}
