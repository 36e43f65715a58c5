//! A drive that is lost and the power with it: as when a failing supply takes first one drive, then all. Power goes in the
//! instant in which something is acknowledged as durable that the drive does not have; so what makes that true has to be on the
//! other drives by then, above all that the drive is out. It is plugged in again, or not, in the next life.
//!
//! One run of four has this ([`crate::Options::as_kept`] leaves it out), drawn from a stream of its own.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::life::{Life, Plugged};

impl Life {
    /// In runs that have it: perhaps pulls a drive, and has power go with the first answer that counts without it.
    pub fn perhaps_lose_power_with_a_drive(&self) {
        let Some(random) = &self.world.losses else { return };
        if !random.borrow_mut().chance(0.3) || self.is_over() || self.is_beyond.get() {
            return;
        }
        let plugged = self.plugged.borrow().clone();
        let fine: Vec<(&usize, &Rc<Plugged>)> =
            plugged.iter().filter(|(_, plugged)| !plugged.is_troubled.get()).collect();
        if fine.is_empty() {
            return;
        }
        let (&disk, plugged) = fine[random.borrow_mut().below(fine.len() as u64) as usize];
        if !self.try_harm(&BTreeSet::from([disk])) {
            return;
        }
        self.note(&format!("pull disk{disk}, and the power with it"));
        self.pull_out(disk, plugged);
        self.lost_with_power_ns.set(Some(self.context.now_ns()));
    }

    /// What was begun at this time is acknowledged, durably.
    pub fn acknowledged_durably(&self, begun_ns: u64) {
        if self.lost_with_power_ns.get().is_some_and(|lost_ns| lost_ns < begun_ns) {
            self.note("acknowledged without the drive that was lost: power goes");
            self.power.cut();
        }
    }
}
