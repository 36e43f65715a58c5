//! Audit and rewriting of the checksum pages of a whole row: rebuild writes them to a new drive,
//! scrub compares their two places.
//!
//! The caller decides which pages exist: regions that were never written have no valid pages.

use super::{Checksums, Side};
use crate::error::ArrayError;

/// Result of auditing a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuditReport {
    /// Pages examined.
    pub pages: u64,
    /// Pages with one invalid or outdated place; the next checkpoint writes them again.
    pub repaired: u64,
    /// Pages with no valid place that were not in memory either: the checksums of their blocks are
    /// lost.
    pub lost: u64,
}

impl Checksums {
    /// Schedules the pages that belong on the drive of `column` for the next checkpoint: the
    /// column's own pages and the copies of the column before it. Called after the column was
    /// filled on a new drive. `holds_data` is true for each MiB of the row's slabs that was ever
    /// written.
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

    /// Like [`Self::rewrite`], but writes the new drive only, in one run of pages where possible.
    /// Requires that the other places of these pages are current and that the new places do not
    /// count before a checkpoint has ended.
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

    /// Pages on the drive of a column of a row: column, page number, and whether this is the page's
    /// own place or its copy.
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

    /// Compares both places of a column's pages in a row, and the pages in memory: finds pages, and
    /// so blocks, whose writes one drive lost together. Must run before the blocks themselves are
    /// verified.
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
                // A dirty page will be written to both places anyway; the write may be in flight.
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
