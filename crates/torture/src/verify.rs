//! Looking at everything that was ever written, and judging it.

use std::ops::Range;

use crate::clients::write;
use crate::content::{BLOCK_BYTES, SECTOR_BYTES};
use crate::life::Life;
use crate::oracle::Wrong;
use crate::subject::Store;
use crate::world::Guarded;

const BLOCK_SECTORS: u32 = (BLOCK_BYTES / SECTOR_BYTES) as u32;
/// Read at a time.
const STRETCH_SECTORS: u32 = 512;

/// The promise that a wrong sector breaks.
pub(crate) fn broken_promise(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong { is_torn_block: true, .. } => "old-or-new",
        Wrong { is_old: true, .. } => "flushed-data-survives",
        _ => "no-wrong-bytes",
    }
}

/// Bytes of a range of sectors: where, and how many.
pub(crate) fn bytes_of(sectors: &Range<u32>) -> (u64, usize) {
    let length = u64::from(sectors.end - sectors.start) * SECTOR_BYTES;
    (u64::from(sectors.start) * SECTOR_BYTES, length as usize)
}

/// Stretches of whole blocks in which something was ever written.
fn touched(guarded: &Guarded) -> Vec<Range<u32>> {
    let oracle = guarded.oracle.borrow();
    let mut stretches: Vec<Range<u32>> = Vec::new();
    for first in (0..oracle.sector_count()).step_by(BLOCK_SECTORS as usize) {
        let end = (first + BLOCK_SECTORS).min(oracle.sector_count());
        if !(first..end).any(|sector| oracle.is_touched(sector)) {
            continue;
        }
        match stretches.last_mut() {
            Some(last) if last.end == first && end - last.start <= STRETCH_SECTORS => last.end = end,
            _ => stretches.push(first..end),
        }
    }
    stretches
}

impl Life {
    /// Reads all that was written, and a place where nothing was. With `is_quiet` there are no
    /// concurrent writes: what is read becomes the expected contents, and lost blocks are written.
    pub(crate) async fn verify(&self, store: &Store, guarded: &Guarded, is_quiet: bool, when: &str) {
        let mut stretches = touched(guarded);
        let blocks = u64::from(guarded.oracle.borrow().sector_count() / BLOCK_SECTORS);
        if blocks > 0 {
            let first = self.world.below(blocks) as u32 * BLOCK_SECTORS;
            stretches.push(first..first + BLOCK_SECTORS);
        }
        for stretch in stretches {
            if self.world.is_broken() || self.power.is_off() {
                return;
            }
            let since = guarded.oracle.borrow_mut().tick();
            let (offset, length) = bytes_of(&stretch);
            match self.bounded("a read", store.read(offset, length)).await {
                Some(Ok(bytes)) => self.judge(guarded, &stretch, &bytes, since, is_quiet, when),
                Some(Err(_)) => self.verify_by_block(store, guarded, stretch, is_quiet, when).await,
                None => return,
            }
        }
    }

    async fn verify_by_block(
        &self,
        store: &Store,
        guarded: &Guarded,
        stretch: Range<u32>,
        is_quiet: bool,
        when: &str,
    ) {
        for first in stretch.clone().step_by(BLOCK_SECTORS as usize) {
            let block = first..(first + BLOCK_SECTORS).min(stretch.end);
            let since = guarded.oracle.borrow_mut().tick();
            let (offset, length) = bytes_of(&block);
            match self.bounded("a read", store.read(offset, length)).await {
                Some(Ok(bytes)) => self.judge(guarded, &block, &bytes, since, is_quiet, when),
                Some(Err(why)) => {
                    self.judge_refusal(guarded, &block, since, &why.to_string(), when);
                    if is_quiet && !self.world.is_broken() {
                        // A block that is lost, as it may be, is written again by its user, and is
                        // whole then.
                        write(self, store, guarded, block, false).await;
                    }
                }
                None => return,
            }
        }
    }

    /// Whether what was read is right.
    pub(crate) fn judge(
        &self,
        guarded: &Guarded,
        sectors: &Range<u32>,
        bytes: &[u8],
        since: u64,
        is_quiet: bool,
        when: &str,
    ) {
        if guarded.is_leaving.get() {
            return;
        }
        let mut checked = guarded.oracle.borrow().check(sectors.start, bytes, since);
        let is_old = matches!(&checked, Err(wrong) if wrong.is_old);
        if is_old && !self.world.spoiled().is_empty() {
            guarded.oracle.borrow_mut().bring_back(sectors.start, bytes);
            checked = guarded.oracle.borrow().check(sectors.start, bytes, since);
        }
        match checked {
            Err(wrong) => {
                let promise = broken_promise(&wrong);
                self.broken(promise, format!("{}, {when}: {}", guarded.name, wrong.what));
            }
            Ok(()) if is_quiet => guarded.oracle.borrow_mut().pin(sectors.start, bytes),
            Ok(()) => {}
        }
    }

    /// Whether a read may be refused.
    pub(crate) fn judge_refusal(
        &self,
        guarded: &Guarded,
        sectors: &Range<u32>,
        since: u64,
        why: &str,
        when: &str,
    ) {
        if guarded.is_failed.get()
            || guarded.is_leaving.get()
            || guarded.oracle.borrow().may_refuse(sectors.clone(), since)
        {
            return;
        }
        let detail = format!("{}, {when}: reading sectors {sectors:?}: {why}", guarded.name);
        self.broken("nothing-refused", detail);
    }
}
