//! In the journal first: what is about to be written is durable there before it is sent to its
//! place, and the journal is told when it has arrived, so that records can be released.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::journal::{Kind, Part, Quota, Record};
use crate::lock_order;
use crate::write::work::Work;
use crate::write_log::{Logged, WriteLog};

impl Inner {
    /// Logs and sends as much as the journal takes at once. What is logged is in place before there
    /// is more: whoever has a record in the journal and waits for room there could wait for ever.
    pub(super) async fn log_in_portions(&self, log: &Rc<WriteLog>, works: &mut [Box<Work>]) {
        let mut rest = works;
        while !rest.is_empty() {
            let (portion, later) = rest.split_at_mut(self.portion_of(log, rest));
            self.log_and_send(log, portion).await;
            if !later.is_empty() {
                for work in portion {
                    self.put_in_place(Some(log), work).await;
                }
            }
            rest = later;
        }
    }

    /// How many of the first writes the journal takes at once; at least one.
    fn portion_of(&self, log: &WriteLog, works: &[Box<Work>]) -> usize {
        if works.len() == 1 {
            return 1;
        }
        let mut records: SmallVec<[Record; 4]> = SmallVec::new();
        for (index, work) in works.iter().enumerate() {
            if work.result.is_ok() && !work.virgin {
                records.push(self.record_of(work));
            }
            if index > 0 && !log.fits(&records) {
                return index;
            }
        }
        works.len()
    }

    /// Makes durable in the journal what is about to be written, then sends the writes.
    pub(super) async fn log_and_send(&self, log: &WriteLog, works: &mut [Box<Work>]) {
        let mut prepared = Ok(());
        let must_flush =
            |work: &Work| work.result.is_ok() && log.must_flush_before(work.index, work.record_kind());
        if works.iter().any(|work| must_flush(work)) {
            prepared = self.flush_members().await;
        }
        let to_log: SmallVec<[usize; 4]> =
            (0..works.len()).filter(|&index| works[index].result.is_ok() && !works[index].virgin).collect();
        if prepared.is_ok() && !to_log.is_empty() {
            let is_destaging = works[to_log[0]].covers.is_some();
            let quota = if is_destaging { Quota::Destage } else { Quota::InPlace };
            if !is_destaging {
                let may_be_held =
                    |stripe| !self.regions.is_virgin(stripe) && !self.pending.has_stripe(stripe);
                lock_order::assert_holds_only(&self.table, "room in the journal", may_be_held);
            }
            let records = to_log.iter().map(|&index| self.record_of(&works[index])).collect();
            match log.log(records, quota).await {
                Ok(logged) => {
                    for (&index, logged) in to_log.iter().zip(logged) {
                        works[index].logged = Some(logged);
                    }
                }
                Err(error) => prepared = Err(error),
            }
        }
        for work in works.iter_mut().filter(|work| work.result.is_ok()) {
            work.result = prepared.clone();
            if work.result.is_ok() {
                self.send_writes(work);
            }
        }
    }

    fn record_of(&self, work: &Work) -> Record {
        let plan = work.plan.as_ref().expect("planned");
        let mut record = Record {
            sequence: 0,
            kind: work.record_kind(),
            stripe: work.index,
            covers: work.covers.unwrap_or(0),
            parts: SmallVec::new(),
            sums: self.sum_runs(&work.sums, work.record_kind() == Kind::Intent),
        };
        if record.kind != Kind::Intent {
            let first = if record.kind == Kind::Parity { self.geometry.data_units() } else { 0 };
            record.parts = plan
                .writes
                .iter()
                .filter(|range| range.unit >= first)
                .map(|range| Part {
                    unit: range.unit as u16,
                    start: range.start as u32,
                    segments: self.new_content(work, *range),
                })
                .collect();
        }
        record
    }

    /// A logged write is in place, durably so with `fua`.
    pub(super) async fn note_in_place(
        &self,
        log: &Rc<WriteLog>,
        logged: Logged,
        fua: bool,
    ) -> Result<(), ArrayError> {
        if fua && logged.kind == Kind::Intent && log.is_alone(logged.stripe) {
            log.note_durable(vec![logged]);
            log.mark().await?;
        } else {
            log.note_applied(logged);
            if fua && logged.kind == Kind::Intent {
                // What the journal has of the stripe from before must not outlive it.
                self.flush_members().await?;
                log.mark().await?;
            }
        }
        if self.can_make_room(log) && !log.checkpointing.replace(true) {
            let Some(inner) = self.me.upgrade() else { return Ok(()) };
            let log = log.clone();
            self.context.spawn(async move {
                // Until there is room: whoever waits for some does not come by here. What cannot be
                // flushed shows when somebody asks for a flush.
                while inner.can_make_room(&log)
                    && inner.flush_members().await.is_ok()
                    && inner.release_records().await.is_ok()
                {}
                log.checkpointing.set(false);
            });
        }
        Ok(())
    }

    /// Whether it is time to release records, and would help: a ring is freed from its oldest end,
    /// which only destaging can do where that is pending.
    fn can_make_room(&self, log: &WriteLog) -> bool {
        let oldest = log.journal.oldest();
        let pending = self.pending.oldest_sequence();
        oldest.is_some() && oldest != pending && log.is_filling(pending)
    }
}
