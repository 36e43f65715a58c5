//! To the drives: the plan's writes are sent and waited for. A drive that refuses one twice is
//! excluded, and only then is the write acknowledged.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{Cause, Completion, DriveError, IoRequest, Operation, Segments};
use stripewise_layout::UnitRange;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::write::work::Work;
use crate::write_log::WriteLog;

impl Inner {
    pub(super) fn send_writes(&self, work: &mut Work) {
        let plan = work.plan.as_ref().expect("planned");
        let fua = work.is_fua_in_place();
        for &range in &plan.writes {
            let segments = self.new_content(work, range);
            let answer = self.submit_unit_write(work, range, segments.clone(), fua);
            work.writes.push((range, segments, answer));
        }
    }

    /// What is to be written to a unit, data or parity.
    pub(super) fn new_content(&self, work: &Work, range: UnitRange) -> Segments {
        let data_units = self.geometry.data_units();
        if self.geometry.parity_units() == 0 {
            work.parts[0].iter().map(|(_, data)| data.clone()).collect()
        } else if range.unit < data_units {
            work.parts[range.unit].iter().map(|(_, data)| data.clone()).collect()
        } else {
            SmallVec::from_iter([work.parity[range.unit - data_units].clone()])
        }
    }

    fn submit_unit_write(&self, work: &Work, range: UnitRange, segments: Segments, fua: bool) -> Completion {
        let place = work.stripe.units[range.unit];
        let own_units = if self.geometry.copies() > 1 { 1 } else { self.geometry.data_units() };
        let cause = match work.covers {
            Some(_) => Cause::Destage,
            None if range.unit >= own_units => Cause::Parity,
            None => Cause::Data,
        };
        let request =
            IoRequest::with_segments(Operation::Write { fua }, place.offset_bytes + range.start, segments);
        self.submit(place.member, work.class, request.because(cause))
    }

    /// Waits until what was sent is in place, and has the journal know.
    pub(super) async fn put_in_place(&self, log: Option<&Rc<WriteLog>>, work: &mut Work) {
        if std::mem::replace(&mut work.in_place, true) {
            return;
        }
        let written = self.finish_writes(work).await;
        if work.result.is_ok() {
            work.result = written;
        }
        if work.result.is_ok() {
            self.regions.mark_initialised(work.index);
            if let (Some(log), Some(logged)) = (log, work.logged) {
                work.result = self.note_in_place(log, logged, work.fua).await;
            }
        } else if let (Some(log), Some(logged)) = (log, work.logged)
            && self.geometry.parity_units() == 0
            && !self.lifecycle.is_protected()
        {
            // Each block is what its sum says by now, so there is nothing to put right. Where there
            // is parity, what failed takes no more writes, and the record is needed.
            log.note_applied(logged);
        }
    }

    /// Awaits the writes. A member that refuses twice is excluded; the others then hold what it
    /// lacks, as long as the layout can do without all that are gone.
    pub(super) async fn finish_writes(&self, work: &mut Work) -> Result<(), ArrayError> {
        if work.result.is_err() {
            return Ok(());
        }
        let mut failed: SmallVec<[DriveError; 2]> = SmallVec::new();
        for (range, segments, answer) in std::mem::take(&mut work.writes) {
            if let Err(_first) = answer.await
                && let Err(error) =
                    self.submit_unit_write(work, range, segments, work.is_fua_in_place()).await
            {
                failed.push(error);
                continue;
            }
            self.forget_lost(&work.stripe, range);
        }
        let sequence = work.logged.map_or(1, |logged| logged.sequence);
        let result = self.note_failed_writes(work, failed).await;
        if result.is_ok() {
            work.sums.iter().for_each(|of_unit| self.set_sums(of_unit, sequence));
        } else {
            self.settle_failed_write(&work.stripe, &work.sums, sequence).await;
        }
        result
    }

    async fn note_failed_writes(
        &self,
        work: &Work,
        mut failed: SmallVec<[DriveError; 2]>,
    ) -> Result<(), ArrayError> {
        if failed.is_empty() {
            return Ok(());
        }
        for error in &failed {
            self.note_write_error(error).await?;
        }
        if !self.lifecycle.is_protected()
            && self.geometry.stripe_survives(work.index, &self.missing_in(work.index))
        {
            return Ok(());
        }
        Err(ArrayError::Drive(failed.swap_remove(0)))
    }
}
