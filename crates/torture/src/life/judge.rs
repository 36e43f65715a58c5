//! Judges the result or the refusal of a read by the model of its volume.

use std::ops::Range;

use super::Life;
use crate::world::guarded::Guarded;
use crate::world::oracle::Wrong;

/// Name of the guarantee that a wrong sector breaks.
pub(crate) fn broken_promise(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong { is_torn_block: true, .. } => "old-or-new",
        Wrong { is_old: true, .. } => "flushed-data-survives",
        _ => "no-wrong-bytes",
    }
}

impl Life {
    /// Judges the data of a read.
    pub(crate) fn judge(
        &self,
        guarded: &Guarded,
        sectors: &Range<u32>,
        bytes: &[u8],
        since: u64,
        is_quiet: bool,
        when: &str,
    ) {
        if guarded.is_leaving.get() {
            return;
        }
        let mut checked = guarded.oracle.borrow().check(sectors.start, bytes, since);
        let is_old = matches!(&checked, Err(wrong) if wrong.is_old);
        if is_old && !self.world.spoiled().is_empty() {
            guarded.oracle.borrow_mut().bring_back(sectors.start, bytes);
            checked = guarded.oracle.borrow().check(sectors.start, bytes, since);
        }
        match checked {
            Err(wrong) => {
                let promise = broken_promise(&wrong);
                self.broken(promise, format!("{}, {when}: {}", guarded.name, wrong.what));
            }
            Ok(()) if is_quiet => guarded.oracle.borrow_mut().pin(sectors.start, bytes),
            Ok(()) => {}
        }
    }

    /// Judges the refusal of a read.
    pub(crate) fn judge_refusal(
        &self,
        guarded: &Guarded,
        sectors: &Range<u32>,
        since: u64,
        why: &str,
        when: &str,
    ) {
        if guarded.is_failed.get()
            || guarded.is_leaving.get()
            || guarded.oracle.borrow().may_refuse(sectors.clone(), since)
        {
            return;
        }
        let detail = format!("{}, {when}: reading sectors {sectors:?}: {why}", guarded.name);
        self.broken("nothing-refused", detail);
    }
}
