//! One life from its beginning to its end: clients use the pool, things happen to it, and it is
//! closed or power is cut at any instant, that of opening included.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{join_all, select};
use stripewise_drive::SplitMix64;
use stripewise_runtime::VirtualExecutor;

use crate::life::clients::client;
use crate::life::closing::end_of_life;
use crate::life::{Life, new_executor};
use crate::power::Ending;
use crate::world::World;
use crate::world::manner::{Manner, SECOND_NS};
use crate::world::plan::within;

/// Polls of tasks at one instant at most. Each request to a drive takes time, so the work between
/// two of them is bounded.
const MOST_POLLS: u64 = 200_000;

/// Leads one life. `kept`: executors, which a panic must not drop.
pub(crate) fn live(world: &Rc<World>, number: usize, kept: &RefCell<Vec<Rc<VirtualExecutor>>>) {
    let executor = new_executor(world, kept);
    executor.limit_polls(MOST_POLLS);
    let absent = world.draw_absent(number);
    let present: BTreeSet<usize> =
        (0..world.disks.borrow().len()).filter(|disk| !absent.contains(disk)).collect();
    let ending = world.draw_ending(number);
    let life = Life::new(world, executor.context(), &present);
    life.note(&format!("life {number}, absent {absent:?}, to end by {ending:?}"));
    executor.block_on(async {
        let lead = pin!(life.clone().lead(number, ending));
        let cut = pin!(life.power.until_off());
        select(lead, cut).await;
    });
    end_of_life(&life, number, matches!(ending, Ending::Close));
}

impl Life {
    /// A life in which anything may happen.
    async fn lead(self: Rc<Self>, number: usize, ending: Ending) {
        if number > 0 {
            self.arm(ending);
        }
        let subject = if number == 0 { self.create().await } else { self.open().await };
        let Some(subject) = subject else { return };
        *self.subject.borrow_mut() = Some(subject.clone());
        let targets = self.targets(&subject);
        if number == 0 {
            self.arm(ending);
        }
        for (store, guarded) in &targets {
            self.verify(store, guarded, false, "after opening").await;
            if !store.needs_resync() && guarded.lost().is_empty() {
                guarded.oracle.borrow_mut().resynchronised();
            }
        }
        if targets.is_empty() || self.is_over() {
            return;
        }
        if self.world.chance(0.6) {
            subject.start_jobs();
        }
        let (manner, bias) = (self.world.plan.manner, self.world.bias);
        let rests = manner.is_paired && self.world.is_copy_to_be_seen(number);
        let targets = match manner.is_paired {
            true => targets,
            false => self.change_volumes(&subject, targets).await,
        };
        if targets.is_empty() || self.is_over() {
            return;
        }
        if !manner.is_paired {
            self.perhaps_convert(&subject, &targets).await;
        }
        let targets = self.perhaps_mount(&subject, targets).await;
        let clients = match manner.is_crowded {
            _ if rests => 3,
            true => 8 + self.world.below(33),
            false => within(&mut self.world.random.borrow_mut(), bias.clients),
        };
        let steps = match manner.is_often {
            _ if rests => 10 + self.world.below(40),
            true => self.world.below(12),
            false if manner.is_crowded => 10 + self.world.below(2000) / clients,
            false => bias.steps.0 + self.world.below(bias.steps.1) / clients,
        };
        let mut random = SplitMix64::new(self.world.next_seed());
        let mut running: Vec<_> = (0..clients)
            .map(|_| client(self.clone(), targets.clone(), random.next_u64(), steps))
            .map(|client| self.context.spawn(client))
            .collect();
        if manner.is_crowded && !rests {
            running.push(self.context.spawn(self.clone().stir(targets.clone(), random.next_u64())));
        }
        self.count_manner();
        let actions = match manner {
            Manner { is_often: true, .. } => self.world.below(3),
            Manner { is_paired: true, .. } => 0,
            Manner { is_crowded: true, .. } => 4 + self.world.below(16),
            _ => within(&mut self.world.random.borrow_mut(), bias.actions),
        };
        for _ in 0..actions {
            self.context.sleep_ns(self.pause_ns()).await;
            if self.is_over() {
                break;
            }
            self.perhaps_convert(&subject, &targets).await;
            // It may have deleted one.
            let targets = self.targets(&subject);
            self.perhaps_lose_power_with_a_drive().await;
            self.perhaps_lose_connection(&subject).await;
            self.perhaps_pin(&subject, &targets).await;
            self.perhaps_rebalance(&subject).await;
            self.perhaps_fail_otherwise(&subject, &targets).await;
            self.act(&subject, &targets).await;
        }
        if matches!(ending, Ending::Close) || self.world.is_broken() {
            if self.world.chance(0.5) {
                self.is_ending.set(true);
            }
            self.bounded("the clients", join_all(running)).await;
            self.is_ending.set(true);
            self.end(&subject).await;
        } else {
            self.context.sleep_ns(self.world.below(20_000_000)).await;
        }
    }

    fn count_manner(&self) {
        let plan = &self.world.plan;
        self.world.cover(|coverage| {
            coverage.crowded_lives += u64::from(plan.manner.is_crowded);
            coverage.short_lives += u64::from(plan.manner.is_often);
            coverage.long_lives += u64::from(plan.manner.is_long);
            coverage.tiered_lives += u64::from(!plan.fast_bytes.is_empty());
        });
    }

    fn arm(self: &Rc<Self>, ending: Ending) {
        match ending {
            Ending::CutAtCopy(structure, count) => self.power.cut_at_copy(structure, count),
            Ending::Close => {}
            Ending::CutAtWrite(count) => self.power.cut_at_write(count),
            Ending::CutAfter(delay_ns) => {
                let life = self.clone();
                self.context.spawn(async move {
                    life.context.sleep_ns(delay_ns).await;
                    life.power.cut();
                });
            }
        }
    }

    /// Time until the next event, nanoseconds.
    pub(crate) fn pause_ns(&self) -> u64 {
        let most_ns = match (self.world.plan.manner.is_long, self.world.chance(0.8)) {
            (false, true) => 3_000_000,
            (false, false) => 60_000_000,
            (true, true) => 3 * SECOND_NS,
            (true, false) => 60 * SECOND_NS,
        };
        self.world.below(most_ns)
    }
}
