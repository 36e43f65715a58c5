//! Pages as they are, for a check that changes nothing: reads both places of each page, counts no
//! error against a drive and repairs no place. Nothing that is read here stays in memory.
//!
//! The caller holds the stripes of the range, so that no page of it changes in between.

use std::rc::Rc;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_drive::Buffer;

use super::cache::{pages_of, parts, whole_blocks};
use super::entries::Page;
use super::store::{Found, Newest};
use super::{BLOCKS_PER_PAGE, Checksums, PageId, Side, Verdict};

/// Pages of a range of a column.
pub(crate) struct SeenPages {
    first: u64,
    pages: Vec<Rc<Page>>,
    /// Places that could not be read, or that hold a damaged or an outdated page.
    pub(crate) wrong: Vec<(PageId, Side)>,
    /// Pages with no valid place.
    pub(crate) lost: u64,
}

impl SeenPages {
    /// True if a block of the column, by its number, has a recorded checksum.
    pub(crate) fn is_recorded(&self, block: u64) -> bool {
        let page = &self.pages[(block / BLOCKS_PER_PAGE as u64 - self.first) as usize];
        page.sum((block % BLOCKS_PER_PAGE as u64) as usize).is_some()
    }
}

impl Checksums {
    /// Reads the pages of a range of a column. Pages in memory that wait for a checkpoint are newer
    /// than their places, which are not read then.
    pub(crate) async fn look(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> SeenPages {
        let numbers = pages_of(offset_bytes, length_bytes);
        let first = numbers.start;
        let all = join_all(numbers.map(|number| self.look_at(column, number))).await;
        let mut seen = SeenPages { first, pages: Vec::new(), wrong: Vec::new(), lost: 0 };
        for (page, wrong, is_lost) in all {
            let id = page.id;
            seen.wrong.extend(wrong.into_iter().map(|side| (id, side)));
            seen.lost += u64::from(is_lost);
            seen.pages.push(page);
        }
        seen
    }

    async fn look_at(&self, column: u16, number: u64) -> (Rc<Page>, SmallVec<[Side; 2]>, bool) {
        let cached = self.cache.get(Self::key(column, number));
        if let Some(page) = cached.as_ref().filter(|page| page.dirty.get()) {
            return (page.clone(), SmallVec::new(), false);
        }
        let id = self.id(column, number);
        let (own, copy) = join(self.try_read_side(id, Side::Own), self.try_read_side(id, Side::Copy)).await;
        // Errors are findings here: nothing is counted against the drive.
        let (own, copy) = (own.unwrap_or(Found::Unreadable), copy.unwrap_or(Found::Unreadable));
        let unreadable = [(&own, Side::Own), (&copy, Side::Copy)]
            .into_iter()
            .filter_map(|(found, side)| matches!(found, Found::Unreadable).then_some(side))
            .collect::<SmallVec<[Side; 2]>>();
        let known = cached.as_ref().map(|page| page.stamp.get()).filter(|stamp| *stamp > 0);
        let newest = Newest::of(own, copy, known);
        let mut wrong = newest.wrong.clone();
        wrong.extend(unreadable);
        let newer = newest.image.as_ref().filter(|image| Some(image.stamp) > known);
        let page = match (cached, newer) {
            (Some(page), None) => page,
            (_, image) => {
                let page = self.new_page(column, number, image);
                if newest.lost {
                    page.doubt_all();
                }
                page
            }
        };
        (page, wrong, newest.lost)
    }

    /// Verifies `data`, read from `offset_bytes` of a column, with pages that were read by
    /// [`Self::look`].
    pub(crate) fn verify_by(&self, seen: &SeenPages, offset_bytes: u64, data: &Buffer) -> Verdict {
        let mut verdict = Verdict::default();
        data.with(|bytes| {
            for part in parts(whole_blocks(offset_bytes, bytes.len() as u64)) {
                let page = &seen.pages[(part.number - seen.first) as usize];
                Self::check_part(page, part.number, part.blocks, offset_bytes, bytes, &mut verdict);
            }
        });
        verdict
    }
}
