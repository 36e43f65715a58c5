//! A drive that is lost and the power with it: as when a failing supply takes first one drive, then
//! all. Power goes in the instant in which something is acknowledged as durable that the drive does
//! not have; so what makes that true has to be on the other drives by then, above all that the
//! drive is out. With the power the drive is back.
//!
//! One run of four has this ([`crate::Drawn::BeforeConversions`] leaves it out), drawn from a
//! stream of its own.

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::select;

use crate::life::{Life, Plugged};
use crate::power::LastAnswer;

impl Life {
    /// In runs that have it: perhaps a drive is pulled, or hangs, and power is to go with the first
    /// answer that counts without it.
    pub(crate) async fn perhaps_lose_power_with_a_drive(&self) {
        let Some(random) = &self.world.losses else { return };
        if !random.borrow_mut().chance(self.world.bias.power_with_drive)
            || self.is_over()
            || self.is_beyond.get()
        {
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
        let now_ns = self.context.now_ns();
        if random.borrow_mut().chance(0.3) {
            self.note(&format!("pull disk{disk}, and the power with it"));
            self.pull_out(disk, plugged);
            self.world.disks.borrow_mut()[disk].is_away = false;
            self.last_answer.set(Some(LastAnswer { began_after_ns: now_ns, answered_after_ns: 0 }));
            return;
        }
        // Writers wait for it until the engine gives it up; by then all other drives have long
        // answered.
        self.note(&format!("disk{disk} hangs, and the power goes with it"));
        let timeout_ns = self.world.plan.settings.timeout_ns;
        let answered_after_ns = now_ns + timeout_ns / 10 * 9;
        self.last_answer.set(Some(LastAnswer { began_after_ns: 0, answered_after_ns }));
        self.count_loss();
        self.stick_for(plugged.clone(), timeout_ns * 3 / 2);
        select(pin!(self.context.sleep_ns(timeout_ns * 3 / 2)), pin!(self.power.until_off())).await;
    }
}
