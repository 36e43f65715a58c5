//! Drive errors: counts them, and excludes a drive that has failed. The exclusion is recorded on
//! all other drives before a write that the drive lacks is acknowledged. Drives join and leave
//! here.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{DriveError, DriveErrorKind, IoRequest};
use stripewise_layout::MemberSet;

use crate::array::{Array, ArrayMember, BLOCK_BYTES, HostRequest, Inner};
use crate::error::ArrayError;
use crate::flush_losses::OnRefusedFlush;
use crate::member::{Class, Member, MemberLabel};
use crate::mutation::{self, Mutation};
use crate::rows::RowTable;

impl Array {
    /// A drive that rows name, or soon will. To be called before they do.
    pub fn add_member(&self, member: ArrayMember) {
        let inner = &self.0;
        let block_bytes = u64::from(member.member.info().logical_block_bytes);
        inner.block_bytes.set(inner.block_bytes.get().max(block_bytes));
        inner.losses.deal_with(member.number, member.member.flush_failures());
        member.member.tell_of_refusals(inner.me.clone());
        // If no row names the drive yet, no page in memory can have a place there.
        let may_know_pages = inner.columns.has_rows_on(member.number);
        inner.columns.add_member(member);
        if may_know_pages {
            inner.sums.reload();
        }
    }

    /// As [`Self::add_member`], for a drive that is named by its label.
    pub fn join_member(&self, named: &ArrayMember<MemberLabel>) {
        if let Some(member) = named.on_thread_of(&*self.0.host) {
            self.add_member(member);
        }
    }

    /// A drive is out: to be called by the pool after it recorded that.
    pub fn drive_gone(&self, number: u32) {
        self.0.drive_gone(number);
    }

    /// The queue of a drive, where the array has it.
    pub fn member(&self, number: u32) -> Option<Rc<Member>> {
        self.0.columns.members.borrow().get(number).map(|member| member.member.clone())
    }

    /// True if the array has a drive and it works.
    pub fn works_on(&self, number: u32) -> bool {
        self.member(number).is_some_and(|member| !member.is_failed())
    }

    /// Places of the rows.
    pub fn rows(&self) -> RowTable {
        self.0.columns.rows.borrow().clone()
    }

    /// Takes over a slab map that was recorded. Columns that are being filled go on from where they
    /// are if their place stays.
    pub fn set_rows(&self, rows: RowTable) {
        let inner = &self.0;
        inner.pass_over_refusals_elsewhere();
        inner.columns.set_rows(rows);
        inner.bad.retain_lost(|(column, block)| inner.columns.holds_block(column, block, BLOCK_BYTES));
    }

    /// Rows in which anything is missing or to be filled: first row, rows, columns lacking, and how
    /// many more columns could be lost (negative where too many are).
    pub fn lacking_rows(&self) -> Vec<(u64, u64, MemberSet, isize)> {
        self.0.columns.lacking_rows()
    }

    /// True if everything can be read.
    pub fn is_readable(&self) -> bool {
        let inner = &self.0;
        self.lacking_rows().iter().all(|(_, _, lacking, _)| inner.geometry.survives(lacking))
    }
}

impl Inner {
    /// True if every column is present and current everywhere, and no block is known as lost.
    pub(crate) fn is_whole(&self) -> bool {
        self.columns.is_whole() && self.bad.has_no_lost()
    }

    /// A read was refused: counts it against its drive and, where that is finished, excludes it.
    pub(crate) async fn note_read_error(&self, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.columns.member_that_gave(error) else { return Ok(()) };
        member.member.note_read_error(error, self.columns.can_spare(member.number));
        self.exclude_if_failed(&member).await
    }

    /// A write was refused, also the second time. The drive is excluded, unless the array cannot do
    /// without it: then the write has failed, and what the drive still holds stays readable. A
    /// drive whose file system is full is not broken, and others are likely to lie there, too:
    /// writing stops instead.
    pub(crate) async fn note_write_error(&self, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.columns.member_that_gave(error) else { return Ok(()) };
        if error.kind == DriveErrorKind::NoSpace {
            member.member.note_write_error(error, false);
            if self.lifecycle.fill_up(member.member.label().clone()) {
                let drive = member.member.label().clone();
                let _ = self.host.ask(self.spec.id, HostRequest::NoteFull { drive }).await;
            }
            return Err(ArrayError::FileSystemFull { drive: member.member.label().to_string() });
        }
        let spare = self.gives_up(member.number);
        member.member.note_write_error(error, spare);
        if !spare {
            return Err(ArrayError::Drive(error.clone()));
        }
        self.exclude_if_failed(&member).await
    }

    /// True if a drive that refuses a write or a flush is excluded. Other volumes may depend on it,
    /// so an array whose volume was deleted or converted excludes no drive: requests of clients
    /// that still had the volume open may be in flight.
    fn gives_up(&self, number: u32) -> bool {
        !self.lifecycle.is_abandoned() && self.columns.can_spare(number)
    }

    /// Columns are about to lie on drives that have none yet. The flushes that these drives refused
    /// so far lost nothing of the array's, and must not count as if they had.
    pub(crate) fn pass_over_refusals_elsewhere(&self) {
        for member in self.columns.members.borrow().iter() {
            let failures = member.member.flush_failures();
            let is_news = self.losses.news(member.number, failures).is_some();
            if is_news && !self.columns.has_rows_on(member.number) {
                self.losses.deal_with(member.number, failures);
            }
        }
    }

    /// Writes to a stripe were refused twice, one at least. The write counts all the same where the
    /// stripe survives without all that are gone.
    pub(crate) async fn note_failed_writes(
        &self,
        stripe: u64,
        mut failed: Vec<DriveError>,
    ) -> Result<(), ArrayError> {
        for error in &failed {
            self.note_write_error(error).await?;
        }
        if !self.lifecycle.is_protected()
            && self.geometry.stripe_survives(stripe, &self.columns.missing_in(stripe))
        {
            return Ok(());
        }
        Err(ArrayError::Drive(failed.swap_remove(0)))
    }

    async fn exclude_if_failed(&self, failed: &ArrayMember) -> Result<(), ArrayError> {
        let Some(reason) = failed.member.failed() else { return Ok(()) };
        // One at a time; a caller that waited finds the work done.
        self.exclusion.until_free().await;
        let is_here = || {
            let members = self.columns.members.borrow();
            members.get(failed.number).is_some_and(|now| Rc::ptr_eq(&now.member, &failed.member))
        };
        if !is_here() {
            return Ok(());
        }
        let _under_way = self.exclusion.begin();
        let (drive, reason) = (failed.member.label().clone(), reason.to_string());
        let result = self.host.ask(self.spec.id, HostRequest::Exclude { drive, reason }).await;
        // It may be back as a new drive in the meantime.
        if result.is_ok() && is_here() {
            self.drive_gone(failed.number);
        }
        result.map_err(ArrayError::CannotExclude)
    }

    pub(crate) fn drive_gone(&self, number: u32) {
        let is_on_it =
            |(column, block): (usize, u64)| self.columns.is_block_on(column, block, BLOCK_BYTES, number);
        self.bad.retain_lost(|block| !is_on_it(block));
        self.log.remove_area(number);
        self.columns.remove_member(number);
    }

    /// Makes what the drives acknowledged durable. An error, too, where a drive that the array
    /// cannot do without has refused a flush of another array since this one last asked: what it
    /// had in its cache may be lost.
    pub(crate) async fn flush_drives(&self) -> Result<(), ArrayError> {
        let flush =
            |member: &ArrayMember| (member.clone(), member.member.submit(Class::Upkeep, IoRequest::flush()));
        let flushes: SmallVec<[_; 12]> = self.columns.members.borrow().iter().map(flush).collect();
        let mut first_error = None;
        let losses = self.losses.count();
        for (member, answer) in flushes {
            let failures = member.member.flush_failures();
            let refused = match answer.await {
                Err(error) => Some(error),
                Ok(()) if mutation::is_chosen(Mutation::RefusedFlushForgotten) => None,
                Ok(()) => self.losses.news(member.number, failures),
            };
            let refused = refused.filter(|_| !mutation::is_chosen(Mutation::FlushErrorDropped));
            let Some(refused) = refused else { continue };
            // Rows may have come to the drive while other drives were waited for.
            let had_none = || {
                let is_handled = self.losses.news(member.number, failures).is_none();
                !self.columns.has_rows_on(member.number) || (is_handled && self.losses.count() == losses)
            };
            if member.member.is_still_there_after(&refused) && had_none() {
                // The array had nothing in its cache: what the refusal means is for those to say
                // that did.
                self.losses.deal_with(member.number, failures);
                continue;
            }
            if let Err(error) = self.note_write_error(&refused).await {
                self.losses.note_lost(member.number, failures, &refused);
                self.bad.repairs_may_be_lost();
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)?;
        // One that cannot be spared is not among the drives any more, and has perhaps not kept what
        // it acknowledged.
        if self.lifecycle.is_protected() { Err(ArrayError::Protected) } else { Ok(()) }
    }
}

impl OnRefusedFlush for Inner {
    /// Takes the drive out of service where the array can do without it; the flush that meets the
    /// error, or the next one, has it excluded. Where the array cannot, that flush reports what was
    /// lost.
    fn flush_was_refused(&self, error: &DriveError) {
        if mutation::is_chosen(Mutation::FlushErrorDropped)
            || mutation::is_chosen(Mutation::RefusedFlushForgotten)
        {
            return;
        }
        let Some(member) = self.columns.member_that_gave(error) else { return };
        if self.columns.has_rows_on(member.number) && self.gives_up(member.number) {
            member.member.fail_with(error);
        }
    }
}
