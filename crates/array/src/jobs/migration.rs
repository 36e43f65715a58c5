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

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use stripewise_drive::{Buffer, IoRequest};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::columns::column_work::Migration;
use crate::error::ArrayError;
use crate::member::{Class, MemberLabel};
use crate::read::recover::HeldStripe;
use crate::rows::SlotPlace;
use crate::stripes::lock_order;

/// A column that is being migrated, between the steps of its copy.
#[derive(Clone, Debug)]
pub struct ColumnMigration {
    row: u64,
    column: usize,
    to: SlotPlace,
    /// Regions of the row.
    regions: Range<u64>,
    region_bytes: u64,
    /// The new drive.
    member: MemberLabel,
    /// Number of flushes that the new drive had refused when the migration began.
    failures: u64,
}

impl ColumnMigration {
    /// Regions of the row, each to be copied in order.
    pub fn regions(&self) -> Range<u64> {
        self.regions.clone()
    }

    /// Bytes of a region in the column.
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    fn moved(&self) -> ArrayError {
        ArrayError::Moved { row: self.row, column: self.column }
    }
}

impl Array {
    /// Copies a column of a row to a new slab. On success both hold the same, durably, and both are
    /// written until the pool records the new place ([`Array::set_rows`]) or cancels the migration
    /// ([`Array::cancel_migration`]). The column must be current. Returns the bytes copied.
    pub async fn migrate_column(&self, row: u64, column: usize, to: SlotPlace) -> Result<u64, ArrayError> {
        let migration = self.begin_migration(row, column, to)?;
        let mut bytes = 0;
        for region in migration.regions() {
            if self.has_to_migrate(&migration, region)? {
                bytes += self.migrate_region(&migration, region).await?;
            }
        }
        self.complete_migration(&migration).await?;
        Ok(bytes)
    }

    /// Begins [`Self::migrate_column`] in steps, for a caller that throttles it: from now on both
    /// places are written. Every step that fails cancels the migration.
    pub fn begin_migration(
        &self,
        row: u64,
        column: usize,
        to: SlotPlace,
    ) -> Result<ColumnMigration, ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let Some(from) = inner.columns.rows.borrow().place(row, column) else {
            return Err(ArrayError::Moved { row, column });
        };
        inner.pass_over_refusals_elsewhere();
        let Some(member) = inner.columns.members.borrow().get(to.drive).map(|member| member.member.clone())
        else {
            return Err(ArrayError::Moved { row, column });
        };
        inner.columns.migrations.borrow_mut().insert((row, column), Migration::new(from, to));
        Ok(ColumnMigration {
            row,
            column,
            to,
            regions: inner.columns.regions_of_row(row),
            region_bytes: inner.regions.shape.member_region_bytes,
            member: member.label().clone(),
            failures: member.flush_failures().count(),
        })
    }

    /// True if a region has content to copy.
    pub fn has_to_migrate(&self, migration: &ColumnMigration, region: u64) -> Result<bool, ArrayError> {
        let checked = match self.0.lifecycle.is_closed() {
            true => Err(ArrayError::Closed),
            false => ColumnCopy { array: &self.0, migration }.check(),
        };
        self.cancel_if_failed(migration, checked)?;
        Ok(!self.is_region_unwritten(region))
    }

    /// Copies a region; bytes that this took.
    pub async fn migrate_region(&self, migration: &ColumnMigration, region: u64) -> Result<u64, ArrayError> {
        let copy = ColumnCopy { array: &self.0, migration };
        let copied = lock_order::scope(copy.copy_region(region)).await;
        let checked = copied.and_then(|bytes| copy.check().map(|()| bytes));
        self.cancel_if_failed(migration, checked)
    }

    /// Makes the copy durable, after all regions.
    pub async fn complete_migration(&self, migration: &ColumnMigration) -> Result<(), ArrayError> {
        let completed = ColumnCopy { array: &self.0, migration }.complete().await;
        self.cancel_if_failed(migration, completed)
    }

    fn cancel_if_failed<T>(
        &self,
        migration: &ColumnMigration,
        step: Result<T, ArrayError>,
    ) -> Result<T, ArrayError> {
        if step.is_err() {
            self.cancel_migration(migration.row, migration.column);
        }
        step
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
    migration: &'a ColumnMigration,
}

impl ColumnCopy<'_> {
    async fn complete(&self) -> Result<(), ArrayError> {
        let Self { array, migration } = *self;
        self.check()?;
        let member = array.columns.members.borrow().get(migration.to.drive).map(|now| now.member.clone());
        // Another drive under the same number knows nothing of the migration.
        let member = member.filter(|member| Arc::ptr_eq(member.label(), &migration.member));
        let member = member.ok_or_else(|| migration.moved())?;
        if let Some(sums) = array.sums.get() {
            // Pages whose writing began before the migration went to the old place only, and count
            // as written.
            sums.table.checkpoint().await?;
        }
        self.rewrite_sums().await?;
        let flushed = member.flush_since(migration.failures).await;
        if let Err(error) = flushed {
            array.note_write_error(&error).await?;
            return Err(ArrayError::Drive(error));
        }
        self.check()
    }

    /// Fails if the migration was cancelled, or its new place has failed.
    fn check(&self) -> Result<(), ArrayError> {
        let Self { array, migration } = *self;
        let migrations = array.columns.migrations.borrow();
        match migrations.get(&(migration.row, migration.column)) {
            Some(now) if !now.has_failed() => Ok(()),
            _ => Err(migration.moved()),
        }
    }

    async fn copy_region(&self, region: u64) -> Result<u64, ArrayError> {
        let array = self.array;
        let length = array.geometry.interleave_bytes();
        let mut copies = array.columns.units_on(self.migration.column, region);
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
        let Self { array, migration } = *self;
        match array
            .columns
            .submit_to_slab(migration.to, Class::Background, IoRequest::write(at, data, false))
            .await
        {
            Ok(()) => Ok(()),
            Err(error) => {
                array.note_write_error(&error).await?;
                Err(ArrayError::Drive(error))
            }
        }
    }

    /// Writes the checksum pages of the column's slab to the new place, durably.
    async fn rewrite_sums(&self) -> Result<(), ArrayError> {
        let Self { array, migration } = *self;
        let (row, column) = (migration.row, migration.column);
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
