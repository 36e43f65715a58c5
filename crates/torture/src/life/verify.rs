//! Looking at everything that was ever written, and judging it.

use std::ops::Range;

use super::Life;
use super::clients::write;
use crate::subject::Store;
use crate::world::content::{BLOCK_BYTES, SECTOR_BYTES};
use crate::world::guarded::{Guarded, bytes_of};

const BLOCK_SECTORS: u32 = (BLOCK_BYTES / SECTOR_BYTES) as u32;
/// Read at a time.
const STRETCH_SECTORS: u32 = 512;

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
}
