//! Computes and verifies checksums of blocks.
//!
//! When a block does not agree with a page of which only the own place was read, the copy is read
//! too; if it is newer, it decides. So a page whose last write was lost does not condemn good
//! blocks.
//!
//! Buffers without bytes (performance models) have a constant checksum and always agree; their
//! pages are loaded all the same, so that the cost is modelled.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::Buffer;

use super::cache::{Pinned, pages_of, parts, whole_blocks};
use super::entries::Page;
use super::page::{crc, word};
use super::store::Noted;
use super::{BLOCK_BYTES, BLOCKS_PER_PAGE, Checksums};
use crate::error::ArrayError;

/// One checksum for each block.
pub type Sums = SmallVec<[u32; 4]>;

/// Result of verifying a range of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Blocks with wrong contents, by their number in the column (`offset / 4096`), in order.
    pub bad_blocks: SmallVec<[u64; 4]>,
    /// Blocks without a recorded checksum; they pass.
    pub unrecorded_blocks: u64,
    /// Unrecorded blocks whose checksum was on a page that was lost, by their number in the
    /// column, in order: with redundancy they have to be compared with it.
    pub doubted_blocks: SmallVec<[u64; 4]>,
    /// Bytes of partial blocks at both ends, which cannot be verified. A caller that needs a
    /// verdict reads whole blocks.
    pub unverified_bytes: u64,
}

impl Verdict {
    /// True if no block is known to be wrong.
    pub fn is_good(&self) -> bool {
        self.bad_blocks.is_empty()
    }
}

/// Blocks that lie entirely within a byte range, and the number of bytes outside of them.
fn inner_blocks(offset_bytes: u64, length_bytes: u64) -> (Range<u64>, u64) {
    let end_bytes = offset_bytes + length_bytes;
    let first = offset_bytes.div_ceil(BLOCK_BYTES);
    let end = (end_bytes / BLOCK_BYTES).max(first);
    (first..end, length_bytes - (end - first) * BLOCK_BYTES)
}

fn block_bytes(bytes: &[u8], offset_bytes: u64, block: u64) -> &[u8] {
    let at = (block * BLOCK_BYTES - offset_bytes) as usize;
    &bytes[at..at + BLOCK_BYTES as usize]
}

impl Checksums {
    /// Computes the checksums of whole blocks to be stored at `offset_bytes` of a column.
    pub fn compute(&self, column: u16, offset_bytes: u64, data: &Buffer) -> Sums {
        let blocks = whole_blocks(offset_bytes, data.len() as u64);
        let sums = data.with(|bytes| {
            let mut sums = Sums::with_capacity((blocks.end - blocks.start) as usize);
            for part in parts(blocks.clone()) {
                let id = self.id(column, part.number);
                let base = self.identity.base(id.row, column);
                let first_in_slab = u32::from(id.page) * BLOCKS_PER_PAGE as u32;
                for block in part.blocks {
                    let number = part.number * BLOCKS_PER_PAGE as u64 + block as u64;
                    let crc = crc(block_bytes(bytes, offset_bytes, number));
                    sums.push(crc ^ word(base, first_in_slab + block as u32));
                }
            }
            sums
        });
        sums.unwrap_or_else(|| SmallVec::from_elem(0, (blocks.end - blocks.start) as usize))
    }

    /// Converts checksums to those of the same bytes at another place, for a second copy.
    pub(crate) fn translate(&self, sums: &[u32], from: (u16, u64), to: (u16, u64)) -> Sums {
        let words = |(column, offset_bytes): (u16, u64)| {
            (offset_bytes / BLOCK_BYTES..).take(sums.len()).map(move |block| {
                let number = block / BLOCKS_PER_PAGE as u64;
                let id = self.id(column, number);
                let in_page = (block % BLOCKS_PER_PAGE as u64) as u32;
                let in_slab = u32::from(id.page) * BLOCKS_PER_PAGE as u32 + in_page;
                word(self.identity.base(id.row, column), in_slab)
            })
        };
        sums.iter().zip(words(from).zip(words(to))).map(|(sum, (from, to))| sum ^ from ^ to).collect()
    }

    /// True if the pages of a range of a column are in memory.
    pub(crate) fn has_pages(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> bool {
        pages_of(offset_bytes, length_bytes).all(|number| self.is_loaded(column, number))
    }

    /// Compares blocks with their page. True if all agree.
    #[inline]
    pub(super) fn check_part(
        page: &Page,
        number: u64,
        blocks: Range<usize>,
        offset_bytes: u64,
        bytes: &[u8],
        verdict: &mut Verdict,
    ) -> bool {
        let mut all_good = true;
        for block in blocks {
            let Some(expected) = page.sum(block) else {
                verdict.unrecorded_blocks += 1;
                if page.is_doubted(block) {
                    verdict.doubted_blocks.push(number * BLOCKS_PER_PAGE as u64 + block as u64);
                }
                continue;
            };
            let in_column = number * BLOCKS_PER_PAGE as u64 + block as u64;
            let crc = crc(block_bytes(bytes, offset_bytes, in_column));
            if crc ^ word(page.identity_base, page.first_block_in_slab + block as u32) != expected {
                verdict.bad_blocks.push(in_column);
                all_good = false;
            }
        }
        all_good
    }

    /// Verifies `data`, read from `offset_bytes` of a column. `None` if that needs a page that is
    /// not in memory, or the other place of a page: use [`Self::verify`] then.
    ///
    /// A bad verdict is final only if the caller holds the stripe: without, a write may have come
    /// between the read and the check, and the block has to be read again under the lock.
    pub fn try_verify(&self, column: u16, offset_bytes: u64, data: &Buffer) -> Option<Verdict> {
        let (blocks, unverified_bytes) = inner_blocks(offset_bytes, data.len() as u64);
        let mut verdict = Verdict { unverified_bytes, ..Verdict::default() };
        let checked = data.with(|bytes| {
            parts(blocks.clone()).all(|part| {
                let is_decided = self.cache.with(Self::key(column, part.number), |page| {
                    Self::check_part(page, part.number, part.blocks, offset_bytes, bytes, &mut verdict)
                        || page.confirmed.get()
                });
                is_decided == Some(true)
            })
        });
        // Buffers without bytes agree once the pages are loaded.
        let all = checked.unwrap_or_else(|| parts(blocks).all(|part| self.is_loaded(column, part.number)));
        all.then_some(verdict)
    }

    fn is_loaded(&self, column: u16, number: u64) -> bool {
        self.cache.with(Self::key(column, number), |_| ()).is_some()
    }

    /// Like [`Self::try_verify`], but reads the pages that are needed.
    pub async fn verify(&self, column: u16, offset_bytes: u64, data: &Buffer) -> Result<Verdict, ArrayError> {
        loop {
            if let Some(verdict) = self.try_verify(column, offset_bytes, data) {
                return Ok(verdict);
            }
            let length_bytes = data.len() as u64;
            let pin = self.pin(column, offset_bytes, length_bytes).await?;
            if let Some(verdict) = self.try_verify(column, offset_bytes, data) {
                return Ok(verdict);
            }
            for number in pages_of(offset_bytes, length_bytes) {
                let page: &Pinned = pin.page(number);
                if !page.confirmed.get() {
                    self.confirm(page).await?;
                }
            }
        }
    }

    /// Reads both places of a page in memory, takes newer entries from them, and marks the page
    /// dirty if a place is outdated.
    pub(super) async fn confirm(&self, page: &Rc<Page>) -> Result<Noted, ArrayError> {
        let stamp = page.stamp.get();
        let known = (stamp > 0).then_some(stamp);
        let newest = self.read_both(page.id, known).await?;
        // A page read while it is being written may be torn; that is no fault.
        let undisturbed = !page.dirty.get() && page.stamp.get() == stamp;
        let newer = newest.image.as_ref().filter(|image| image.stamp > page.stamp.get());
        if let Some(image) = newer {
            self.cache.change(page, |page| page.merge(image));
        }
        page.confirmed.set(true);
        page.at_both_places.set(newest.at_both_places);
        if newer.is_none() && !undisturbed {
            return Ok(Noted::default());
        }
        if newer.is_some() || !newest.behind.is_empty() {
            self.mark_dirty(page);
        }
        Ok(self.note(page.id, &newest))
    }
}
