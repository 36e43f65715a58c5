//! Pages of a whole row, for jobs: rebuild writes them to a new drive, scrub compares their two
//! places.
//!
//! Which pages there are is the caller's to say: regions that were never written have none that
//! count.

use super::{Checksums, Side};
use crate::error::ArrayError;

/// What an audit of a row found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuditReport {
    /// Pages looked at.
    pub pages: u64,
    /// Pages of which one place was invalid or old; they are written again by the next checkpoint.
    pub repaired: u64,
    /// Pages of which no place was valid and that were not in memory either: nothing is known of
    /// their blocks.
    pub lost: u64,
}

impl Checksums {
    /// After a column was filled on a new drive: has the next checkpoint write what belongs on that
    /// drive, which is the own pages of `column` and the copies of the column before it.
    /// `holds_data` tells which MiB of the row's slabs were ever written.
    pub async fn rewrite(
        &self,
        row: u64,
        column: u16,
        holds_data: &dyn Fn(u16) -> bool,
    ) -> Result<(), ArrayError> {
        for (column, page, _) in self.places_on_drive(column, holds_data) {
            let page = self.page(column, self.number(row, page)).await?;
            self.mark_dirty(&page);
        }
        Ok(())
    }

    /// As [`Self::rewrite`], where the other places of these pages are as they should be, and the
    /// new one does not count before a checkpoint has ended: that writes the new place only, in one
    /// run of pages where it can, and the drives that are not new are not written.
    pub(crate) async fn fill_places(
        &self,
        row: u64,
        column: u16,
        holds_data: &dyn Fn(u16) -> bool,
    ) -> Result<(), ArrayError> {
        for (column, page, side) in self.places_on_drive(column, holds_data) {
            let page = self.page(column, self.number(row, page)).await?;
            self.to_fill.borrow_mut().push((page, side));
        }
        Ok(())
    }

    /// What lies on the drive of a column of a row: whose page, which one, and whether it is its
    /// own place or the copy.
    fn places_on_drive<'a>(
        &self,
        column: u16,
        holds_data: &'a dyn Fn(u16) -> bool,
    ) -> impl Iterator<Item = (u16, u16, Side)> + use<'a> {
        assert!(column < self.spec.width, "column {column} of {}", self.spec.width);
        let before = (column + self.spec.width - 1) % self.spec.width;
        let pages = (0..self.pages_per_slab()).filter(move |&page| holds_data(page));
        pages.flat_map(move |page| [(column, page, Side::Own), (before, page, Side::Copy)])
    }

    /// Compares both places of the pages of a column of a row, and what is in memory: finds the
    /// pages, and so the blocks, whose writes a drive lost together. To be called before the blocks
    /// themselves are verified.
    pub(crate) async fn audit(
        &self,
        row: u64,
        column: u16,
        holds_data: &dyn Fn(u16) -> bool,
    ) -> Result<AuditReport, ArrayError> {
        let mut report = AuditReport::default();
        for page in (0..self.pages_per_slab()).filter(|&page| holds_data(page)) {
            let (page, loaded) = self.load(column, self.number(row, page), true).await?;
            let noted = match loaded {
                Some(noted) => noted,
                // One that is changed will be written to both places anyway, and may be on its way
                // there.
                None if page.dirty.get() => continue,
                None => self.confirm(&page).await?,
            };
            report.pages += 1;
            report.repaired += u64::from(noted.repaired);
            report.lost += u64::from(noted.lost);
        }
        Ok(report)
    }
}
