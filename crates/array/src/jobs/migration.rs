//! Column migration: copies a column of a row to another slab while clients use it. For retiring
//! drives, tiers and balancing.
//!
//! From the beginning of a migration all writes to the column go to both places. Then its existing
//! content is copied, region by region and under the locks of its stripes. After that both places
//! hold the same and are both written, until the pool has recorded the new place and calls
//! [`Array::set_rows`]. So the old place stays current and redundancy is never reduced. A block
//! that no drive holds any more is lost at the new place as well, and the commit that records the
//! place says so. If the new place fails, only the migration is cancelled; if the old one fails,
//! the column is missing as without a migration.

use futures_util::future::join_all;
use stripewise_drive::{Buffer, IoRequest};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::{Array, BLOCK_BYTES, Inner, LocalFuture};
use crate::columns::column_work::Migration;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::read::recover::HeldStripe;
use crate::rows::SlotPlace;
use crate::stripes::lock_order;

/// Throttle, called before each region is copied, with the region's size in bytes; it may take its
/// time. `false`: the migration is to be cancelled.
pub type Pace<'a> = &'a dyn Fn(u64) -> LocalFuture<'a, bool>;

impl Array {
    /// Copies a column of a row to a new slab. On success both hold the same, durably, and both are
    /// written until the pool records the new place ([`Array::set_rows`]) or cancels the migration
    /// ([`Array::cancel_migration`]). The column must be current. Returns the bytes copied.
    pub async fn migrate_column(&self, row: u64, column: usize, to: SlotPlace) -> Result<u64, ArrayError> {
        self.migrate_column_at(row, column, to, &|_| Box::pin(std::future::ready(true))).await
    }

    /// As [`Self::migrate_column`], throttled by `pace`.
    pub async fn migrate_column_at(
        &self,
        row: u64,
        column: usize,
        to: SlotPlace,
        pace: Pace<'_>,
    ) -> Result<u64, ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let Some(from) = inner.columns.rows.borrow().place(row, column) else {
            return Err(ArrayError::Moved { row, column });
        };
        inner.pass_over_refusals_elsewhere();
        inner.columns.migrations.borrow_mut().insert((row, column), Migration::new(from, to));
        let copied = ColumnCopy { array: inner, key: (row, column), to }.run(pace).await;
        if copied.is_err() {
            self.cancel_migration(row, column);
        }
        copied
    }

    /// Number of rows with a column that is being migrated.
    pub fn migrating_rows(&self) -> u64 {
        let migrations = self.0.columns.migrations.borrow();
        let mut rows: Vec<u64> = migrations.keys().map(|(row, _)| *row).collect();
        rows.sort_unstable();
        rows.dedup();
        rows.len() as u64
    }

    /// Cancels a migration; the old place remains the only one.
    pub fn cancel_migration(&self, row: u64, column: usize) {
        self.0.columns.migrations.borrow_mut().remove(&(row, column));
    }
}

/// Copy of a column of a row to another slab.
struct ColumnCopy<'a> {
    array: &'a Inner,
    /// Row and column.
    key: (u64, usize),
    to: SlotPlace,
}

impl ColumnCopy<'_> {
    /// Copies the column, and returns the bytes copied.
    async fn run(&self, pace: Pace<'_>) -> Result<u64, ArrayError> {
        let Self { array, key: (row, column), to } = *self;
        let Some(member) = array.columns.members.borrow().get(to.drive).map(|member| member.member.clone())
        else {
            return Err(ArrayError::Moved { row, column });
        };
        let failures = member.flush_failures().count();
        let mut bytes = 0;
        for region in array.columns.regions_of_row(row) {
            if array.lifecycle.is_closed() {
                return Err(ArrayError::Closed);
            }
            if array.regions.state(region) != RegionState::Unwritten {
                if !pace(array.regions.shape.member_region_bytes).await {
                    return Err(ArrayError::Moved { row, column });
                }
                bytes += lock_order::scope(self.copy_region(region)).await?;
            }
            self.check()?;
        }
        if let Some(sums) = array.sums.get() {
            // Pages whose writing began before the migration went to the old place only, and count
            // as written.
            sums.table.checkpoint().await?;
        }
        self.rewrite_sums().await?;
        let flushed = member.flush_since(failures).await;
        if let Err(error) = flushed {
            array.note_write_error(&error).await?;
            return Err(ArrayError::Drive(error));
        }
        self.check()?;
        Ok(bytes)
    }

    /// Fails if the migration was cancelled, or its new place has failed.
    fn check(&self) -> Result<(), ArrayError> {
        let Self { array, key: (row, column), .. } = *self;
        let migrations = array.columns.migrations.borrow();
        match migrations.get(&(row, column)) {
            Some(migration) if !migration.has_failed() => Ok(()),
            _ => Err(ArrayError::Moved { row, column }),
        }
    }

    async fn copy_region(&self, region: u64) -> Result<u64, ArrayError> {
        let array = self.array;
        let length = array.geometry.interleave_bytes();
        let mut copies = array.columns.units_on(self.key.1, region);
        let _guards = array.table.lock_all(copies.iter().map(|(stripe, _)| stripe.index).collect()).await;
        copies.retain(|(stripe, _)| !array.regions.is_unwritten(stripe.index));
        let bytes = copies.len() as u64 * length;
        let copying = copies.into_iter().map(|(stripe, unit)| async move {
            let at = stripe.units[unit].offset_bytes % array.spec.slab_bytes;
            let whole = UnitRange { unit, start: 0, end: length };
            match HeldStripe::new(array, &stripe, Class::Background).fetch_unit(whole).await {
                Ok(data) => self.write_copy(at, data).await,
                // If a column is missing, its drive may have the data and may come back.
                Err(ArrayError::Lost { .. }) if array.columns.missing_in(stripe.index).is_empty() => {
                    self.copy_blocks(&stripe, unit, at).await
                }
                Err(error) => Err(error),
            }
        });
        join_all(copying).await.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(bytes)
    }

    /// Copies block by block; blocks that no drive holds any more are recorded as lost.
    async fn copy_blocks(&self, stripe: &Stripe, unit: usize, at: u64) -> Result<(), ArrayError> {
        let array = self.array;
        for start in (0..array.geometry.interleave_bytes()).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            match HeldStripe::new(array, stripe, Class::Background).fetch_unit(block).await {
                Ok(data) => self.write_copy(at + start, data).await?,
                Err(ArrayError::Lost { .. }) if array.columns.missing_in(stripe.index).is_empty() => {
                    array.bad.note_unit_lost(stripe, block);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn write_copy(&self, at: u64, data: Buffer) -> Result<(), ArrayError> {
        let Self { array, to, .. } = *self;
        match array.columns.submit_to_slab(to, Class::Background, IoRequest::write(at, data, false)).await {
            Ok(()) => Ok(()),
            Err(error) => {
                array.note_write_error(&error).await?;
                Err(ArrayError::Drive(error))
            }
        }
    }

    /// Writes the checksum pages of the column's slab to the new place, durably.
    async fn rewrite_sums(&self) -> Result<(), ArrayError> {
        let Self { array, key: (row, column), .. } = *self;
        let Some(sums) = array.sums.get() else { return Ok(()) };
        // A row without data has no pages to copy.
        if !array.columns.holds_data(row) {
            return Ok(());
        }
        sums.table.rewrite(row, column as u16, &|page| array.sums.page_holds_data(row, page)).await?;
        array.flush_members().await?;
        array.release_records().await
    }
}
