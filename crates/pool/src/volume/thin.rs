//! Services of a pool to its volumes' arrays: excludes drives, records losses, allocates rows to
//! thin volumes on first write, and releases rows that no longer hold data.
//!
//! A volume that is written from one end to the other gets several rows at once, so that not every
//! row costs a commit; the number doubles as it goes on and begins again at one when the pool is
//! opened. Faults expected: no room left, drives that fail while a row is being recorded.

use std::ops::Range;
use std::rc::{Rc, Weak};

use crate::Inner;
use crate::error::PoolError;
use crate::jobs::rebalance_plan::room;
use crate::manifest::drive_record::{DriveRecord, Role};
use crate::manifest::format::Manifest;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::volume_record::Pin;
use crate::space::slabs::{FreeSlabs, NewRows, put_rows};
use crate::superblock::commit::Change;
use crate::volume::sliced::Sliced;
use stripewise_array::ArrayError;
use stripewise_array::lock_order;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::SlotState;
use stripewise_array::{ArrayHandle, ArrayHost, HostRequest, LocalFuture};
use stripewise_array::{Member, MemberLabel};

/// An array's view of its pool.
pub(crate) struct PoolHost(Weak<Inner>);

impl PoolHost {
    pub(crate) fn of(pool: &Weak<Inner>) -> Rc<dyn ArrayHost> {
        Rc::new(Self(pool.clone()))
    }

    fn pool(&self) -> Result<Rc<Inner>, String> {
        self.0.upgrade().ok_or_else(|| "the pool is closed".to_owned())
    }
}

impl ArrayHost for PoolHost {
    fn ask(&self, array: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let answer = self.pool()?.answer(Id(array), request).await;
            answer.map_err(|error| error.to_string())
        })
    }

    fn member(&self, drive: &MemberLabel) -> Option<Rc<Member>> {
        self.0.upgrade()?.drives.labelled(drive).map(|(_, member)| member)
    }
}

impl Inner {
    /// Executes a request of an array.
    async fn answer(&self, part: Id, request: HostRequest) -> Result<(), PoolError> {
        match request {
            HostRequest::Exclude { drive, reason } => self.exclude_member(&drive, &reason).await,
            HostRequest::NoteFull { drive } => {
                self.news.note_full(&drive);
                Ok(())
            }
            HostRequest::RecordLost => self.record_lost().await,
            HostRequest::RecordLosses => {
                self.record_lost().await?;
                match self.are_losses_recorded(part) || mutation::is_chosen(Mutation::LossesNeedNoRecord) {
                    true => Ok(()),
                    false => Err(PoolError::LossesFull { pool: self.name() }),
                }
            }
            HostRequest::CheckSession => {
                self.session.look_for_gate().await;
                Ok(())
            }
            HostRequest::KeepSession => {
                self.session.keep();
                Ok(())
            }
            HostRequest::AllocateRows { first_row, rows } => self.allocate_rows(part, first_row, rows).await,
        }
    }

    async fn record_lost(&self) -> Result<(), PoolError> {
        // Every commit records what the arrays know.
        if self.lifecycle.is_read_only() || self.is_up_to_date() {
            return Ok(());
        }
        self.commit(None, |_| ()).await
    }
}

/// A volume's wish for rows.
struct Wanted {
    first_row: u64,
    rows: u64,
    width: usize,
    /// Drives that they may lie on, those that they belong on first.
    roles: &'static [Role],
}

impl Inner {
    /// Gives slabs to the rows of a thin volume that have none yet, and perhaps to some behind
    /// them.
    pub(crate) async fn allocate_rows(&self, part: Id, first_row: u64, rows: u64) -> Result<(), PoolError> {
        // Also while the pool is being closed: data acknowledged from the journal is then destaged,
        // and the volume may have given the row back since.
        if self.lifecycle.is_read_only() {
            return Err(PoolError::ReadOnly { pool: self.name() });
        }
        for row in first_row..first_row + rows {
            let _alone = self.growth.turn().await;
            loop {
                let step = self.growth.next_rows(part);
                let Some(wanted) = wanted(&self.manifest.borrow(), part, row, step)? else { break };
                let new = self.take_rows_in_time(part, &wanted).await?;
                if self.record_rows(part, row, new).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn take_rows_in_time(&self, part: Id, wanted: &Wanted) -> Result<Vec<NewRows>, PoolError> {
        let taken = self.take_rows(part, wanted);
        if taken.is_err() && self.freed.slabs_may_come(&self.context, self.tuning().thin_patience_ns).await {
            return self.take_rows(part, wanted);
        }
        taken
    }

    /// Takes slabs for as many of the rows as there is room for, at least for one.
    fn take_rows(&self, part: Id, wanted: &Wanted) -> Result<Vec<NewRows>, PoolError> {
        let mut space = self.space.borrow_mut();
        for &role in wanted.roles {
            let drives = self.drives.usable(&self.manifest.borrow(), &space, role);
            let rows = space.max_rows(&drives, wanted.width).min(wanted.rows);
            if rows == 0 {
                continue;
            }
            if let Ok(new) = space.allocate_rows(&drives, wanted.width, rows, wanted.first_row) {
                self.growth.grew(part, self.tuning().thin_rows);
                return Ok(new);
            }
        }
        drop(space);
        Err(self.no_rows(part, wanted))
    }

    /// Why there is no row to be had.
    fn no_rows(&self, part: Id, wanted: &Wanted) -> PoolError {
        let manifest = self.manifest.borrow();
        let volume = manifest.volumes.iter().find(|volume| volume.part(part).is_some());
        let (pool, volume) =
            (manifest.name.clone(), volume.map_or_else(String::new, |volume| volume.name.clone()));
        let (working, away) = self.drives.count_with_room(&manifest, &self.space.borrow(), wanted.roles);
        if working < wanted.width && working + away >= wanted.width {
            return PoolError::RowNeedsDrives { pool, volume, needed: wanted.width, working };
        }
        let (used_slabs, slabs) = slabs_in_use(&manifest, &self.space.borrow());
        PoolError::Full { pool, volume, used_slabs, slabs }
    }

    /// Records the slabs of new rows. Returns false if one of the drives has gone, fails during the
    /// commit, or is to be emptied.
    async fn record_rows(&self, part: Id, first_row: u64, new: Vec<NewRows>) -> Result<bool, PoolError> {
        let (rows, pool) = (new.clone(), self.rc());
        let recorded = self
            .try_commit(None, move |manifest| {
                let takes_new = |drive: u32| manifest.drive(drive).is_some_and(DriveRecord::takes_new);
                if !rows.iter().flat_map(|new| &new.places).all(|(drive, _)| takes_new(*drive)) {
                    return Ok(Change::Nothing(false));
                }
                let count: u64 = rows.iter().map(|new| new.rows).sum();
                let before = manifest.clone();
                let record = manifest.part_mut(part).filter(|part| first_row + count <= part.rows.rows());
                let Some(record) = record else {
                    return Err(PoolError::Job("the volume was deleted or made smaller".to_owned()));
                };
                put_rows(&mut record.rows, first_row, &rows, SlotState::Active);
                let width = record.rows.width() as u64;
                pool.commits.check_runs((&before, manifest), rows.len() as u64, width)?;
                Ok(Change::Commit(true))
            })
            .await;
        if !matches!(recorded, Ok(true)) {
            self.space.borrow_mut().give_rows(&new);
            return recorded;
        }
        let taken_back = rows_without_slabs(&self.manifest.borrow(), part, first_row, &new);
        self.space.borrow_mut().give_rows(&taken_back);
        Ok(taken_back.is_empty())
    }

    /// Gives back rows of a thin volume of which nothing is left after a discard. What cannot be
    /// given back now stays: it is space, not data.
    pub(crate) async fn release_unused(
        &self,
        volume: VolumeId,
        arrays: &Sliced,
        offset_bytes: u64,
        length_bytes: u64,
    ) {
        let is_thin = self.manifest.borrow().volume_by_id(volume).is_some_and(|volume| volume.thin);
        if !is_thin || length_bytes == 0 || self.check_changeable().is_err() {
            return;
        }
        for (array, range) in arrays.ranges(offset_bytes, length_bytes) {
            self.release_unused_rows(array, range).await;
        }
    }

    /// Gives back rows of an array in a range that is not empty.
    async fn release_unused_rows(&self, array: &ArrayHandle, range: Range<u64>) {
        let Ok(row_bytes) = array.spec().row_data_bytes() else { return };
        let candidates = range.start / row_bytes..=(range.end - 1) / row_bytes;
        let unused: Vec<u64> = array.visit(|array| {
            let rows = array.rows();
            candidates.filter(|&row| !rows.is_hole(row) && array.is_row_unwritten(row)).collect()
        });
        for batch in unused.chunks(self.tuning().released_rows as usize) {
            if lock_order::scope(self.release_rows(array, batch)).await.is_err() {
                return;
            }
        }
    }

    /// Takes rows out of the slab map while writers are locked out of them.
    async fn release_rows(&self, array: &ArrayHandle, rows: &[u64]) -> Result<(), ArrayError> {
        let _held = array.lock_rows(rows.to_vec()).await;
        let unused: Vec<u64> =
            array.visit(|array| rows.iter().copied().filter(|&row| array.is_row_unwritten(row)).collect());
        if unused.is_empty() {
            return Ok(());
        }
        // That nothing is there must be durable before the slabs can hold something else.
        array.call(async |array| array.persist_map().await).await?;
        let (part, pool) = (Id(array.spec().id), self.rc());
        let released = self.try_commit(None, move |manifest| {
            let before = manifest.clone();
            let Some(record) = manifest.part_mut(part) else { return Ok(Change::Nothing(())) };
            let (rows, count, width) = (record.rows.rows(), unused.len() as u64, record.rows.width() as u64);
            for row in unused.into_iter().filter(|row| *row < rows) {
                record.rows.clear(row, 1);
            }
            // Holes cut runs.
            pool.commits.check_runs((&before, manifest), count, width)?;
            Ok(Change::Commit(()))
        });
        released.await.map_err(|error| ArrayError::CannotRecord(error.to_string()))
    }

    /// Notes when space becomes short for thin volumes, and when it no longer is.
    pub(crate) fn note_space(&self) {
        let manifest = self.manifest.borrow();
        let short = self.short_space(&manifest);
        self.news.note_space(short.map(|space| (space.used_slabs, space.slabs)));
    }
}

/// Number of rows to allocate from `first_row` on, `step` at most; `None` if it has slabs already.
fn wanted(manifest: &Manifest, part: Id, first_row: u64, step: u64) -> Result<Option<Wanted>, PoolError> {
    let found = manifest.volumes.iter().find_map(|volume| Some((volume, volume.part(part)?)));
    let Some((volume, record)) = found.filter(|(_, record)| first_row < record.rows.rows()) else {
        return Err(PoolError::Job("the volume was deleted or made smaller".to_owned()));
    };
    if !record.rows.is_hole(first_row) {
        return Ok(None);
    }
    let end = record.rows.rows().min(first_row + step);
    let holes = (first_row..end).take_while(|row| record.rows.is_hole(*row)).count() as u64;
    let is_converted = volume.conversion.is_some();
    let roles: &[Role] = match volume.pin {
        // A conversion that was begun comes to its end; then the rows move to where they
        // belong.
        Pin::Fast if is_converted => &[Role::Fast, Role::Data],
        Pin::Slow if is_converted => &[Role::Data, Role::Fast],
        Pin::Fast => &[Role::Fast],
        Pin::Slow => &[Role::Data],
        Pin::None => &[Role::Data, Role::Fast],
    };
    Ok(Some(Wanted { first_row, rows: holes, width: record.rows.width(), roles }))
}

/// Those of some new rows, from one on, that have no slabs all the same.
fn rows_without_slabs(manifest: &Manifest, part: Id, first_row: u64, new: &[NewRows]) -> Vec<NewRows> {
    let Some(record) = manifest.parts().find(|record| record.id == part) else { return Vec::new() };
    let one = |new: &NewRows, offset: u64| NewRows {
        rows: 1,
        places: new.places.iter().map(|&(drive, slab)| (drive, slab + offset as u32)).collect(),
    };
    let each = new.iter().flat_map(|new| (0..new.rows).map(move |offset| one(new, offset)));
    let lacks_slabs = |row: u64| row < record.rows.rows() && record.rows.is_hole(row);
    let numbered = (first_row..).zip(each);
    numbered.filter(|(row, _)| lacks_slabs(*row)).map(|(_, new)| new).collect()
}

/// Slabs in use on drives that hold volumes, and with those that the layouts there are can use.
pub(crate) fn slabs_in_use(manifest: &Manifest, books: &FreeSlabs) -> (u64, u64) {
    let data = manifest.drives.iter().filter(|drive| drive.role == Role::Data && !drive.replaced);
    let used: u64 = data.map(|drive| books.used_slabs(drive.number)).sum();
    (used, used + room(manifest, books).usable_slabs)
}
