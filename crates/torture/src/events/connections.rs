//! Lost connections to drives, as to a network member: requests in flight are answered as gone, and
//! each may have been executed, may be executed later, or never. The server may have lost its cache
//! as well. The drive comes back as another object, as it does where it is opened again.
//!
//! Late writes end before the drive is back, as an export promises (I36). Where checksums notice
//! them, they may also come after it.
//!
//! One run of four has this ([`crate::Drawn::BeforeConnections`] leaves it out), drawn from a
//! stream of its own.

use std::rc::Rc;

use crate::life::Life;
use crate::subject::{Place, Subject};

/// Time after which a drive is back at the earliest: late writes have been executed by then.
const BACK_NS: u64 = 5_000_000;
/// The latest of those that come after the drive is back.
const LATEST_NS: u64 = 60_000_000;

impl Life {
    /// In runs that have it: perhaps the connection to a drive is lost, and made again.
    pub(crate) async fn perhaps_lose_connection(self: &Rc<Self>, subject: &Subject) {
        let Some(random) = &self.world.connections else { return };
        let draw = |probability: f64| random.borrow_mut().chance(probability);
        if !draw(self.world.bias.connection) || self.is_over() || self.is_beyond.get() {
            return;
        }
        let Some((disk, plugged)) = self.any_victim("the connection is lost to") else { return };
        self.world.cover(|coverage| coverage.lost_connections += 1);
        let is_too_late = self.world.plan.promises.checksums && draw(0.3);
        if is_too_late {
            self.world.disks.borrow_mut()[disk].is_spoiled = true;
        }
        let loses_cache = draw(0.5);
        let latest_ns = if is_too_late { LATEST_NS } else { BACK_NS - 1_000_000 };
        let world = Rc::downgrade(&self.world);
        plugged.wire.lose_connection(latest_ns, loses_cache, move || {
            if let Some(world) = world.upgrade() {
                world.cover(|coverage| coverage.late_writes += 1);
            }
        });
        plugged.is_dead.set(true);
        self.pull_out(disk, &plugged);
        let stays_away = draw(0.3);
        let away_ns = BACK_NS + random.borrow_mut().below(BACK_NS);
        self.context.sleep_ns(away_ns).await;
        // Until a request has met the loss, the pool has no use for a new object.
        let is_out = |place: &Place| place.disk == disk && !place.is_online;
        let out = subject.places().into_iter().find(is_out);
        let Some(out) = out.filter(|_| !stays_away && !self.is_over()) else { return };
        let Some((disk, top)) = self.brought_back(disk) else { return };
        self.world.disks.borrow_mut()[disk].stale.clear();
        let back = self.bounded("taking a drive back", subject.online(out.id, top)).await;
        self.asked(&format!("disk{disk} is connected again"), back);
    }
}
