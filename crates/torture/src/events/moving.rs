//! Movements under load: working drives are replaced, and rows are spread over all drives. None of
//! them harms anything: all redundancy stays, so no drive counts as lost for it, and as many as
//! before may be taken away during it.
//!
//! Rebalances are drawn from a stream of their own ([`crate::Drawn`]).

use std::collections::BTreeSet;

use crate::life::Life;
use crate::subject::{Place, Subject};

impl Life {
    /// Replaces a drive that works; no volume may lack anything for it.
    pub(crate) async fn replace_healthy(&self, subject: &Subject) {
        let online: Vec<Place> =
            subject.places().into_iter().filter(|place| place.is_online && place.is_data).collect();
        let Some(old) = self.world.pick(&online) else { return };
        let stays = self.world.options.drawn.has_tuning();
        if !stays && !self.try_harm(&BTreeSet::from([old.disk])) {
            return;
        }
        let Some((disk, top)) = self.new_disk() else { return };
        if !stays {
            // As it was once: the old drive is out before the new one is filled.
            let failed = self.bounded("failing a drive", subject.fail_drive(old.id)).await;
            self.asked(&format!("fail disk{}", old.disk), failed);
        }
        let replaced = self.bounded("replacing a drive", subject.replace(old.id, top)).await;
        let has_begun = stays && matches!(replaced, Some(Ok(())));
        self.world.cover(|coverage| coverage.replacements += u64::from(has_begun));
        self.asked(&format!("replace healthy disk{} by disk{disk}", old.disk), replaced);
    }

    /// Perhaps has rows spread over all drives, with a drive more in one of three, or has that
    /// stopped.
    pub(crate) async fn perhaps_rebalance(&self, subject: &Subject) {
        let Some(random) = &self.world.moving else { return };
        if !random.borrow_mut().chance(self.world.bias.rebalance) || self.is_over() || self.is_beyond.get() {
            return;
        }
        if random.borrow_mut().chance(0.2) {
            let stopped = self.bounded("stopping a rebalance", subject.stop_rebalance()).await;
            return self.asked("stop rebalancing", stopped);
        }
        if random.borrow_mut().chance(0.3)
            && let Some((disk, top)) = self.new_disk()
        {
            let added = self.bounded("adding a drive", subject.add_data(top)).await;
            self.asked(&format!("add disk{disk} to spread onto"), added);
        }
        let begun = self.bounded("beginning a rebalance", subject.rebalance()).await;
        self.world.cover(|coverage| coverage.rebalances += u64::from(matches!(begun, Some(Ok(true)))));
        self.asked("rebalance", begun.map(|begun| begun.map(|_| ())));
        if random.borrow_mut().chance(0.7) {
            subject.start_jobs();
        }
        let pause_ns = random.borrow_mut().below(20_000_000);
        self.context.sleep_ns(pause_ns).await;
    }
}
