//! Draws made before a life begins: how it ends, and which drives are absent.

use std::collections::BTreeSet;

use stripewise_drive::SplitMix64;

use super::World;
use super::bias::EndingKind;
use crate::power::{Ending, Structure};

impl World {
    /// Draws the end of a life.
    pub(crate) fn draw_ending(&self, number: usize) -> Ending {
        if let Some(random) = self.later() {
            let mut random = random.borrow_mut();
            let manner = self.plan.manner;
            if manner.is_paired {
                return match self.is_copy_to_be_seen(number) {
                    true => Ending::CutAfter(10_000_000 + random.below(40_000_000)),
                    false => Ending::CutAtCopy(Structure::Map, 1 + random.below(12)),
                };
            }
            if self.is_copy_to_be_seen(number) {
                return Ending::CutAfter(10_000_000 + random.below(200_000_000));
            }
            if let Some(endings) = self.bias.endings {
                return draw_of(&mut random, endings);
            }
            if manner.is_often && random.chance(0.7) {
                return Ending::Close;
            }
            if random.chance(0.2) {
                let structure = Structure::ALL[random.below(5) as usize];
                let most = if random.chance(0.5) { 8 } else { 60 };
                return Ending::CutAtCopy(structure, 1 + random.below(most));
            }
            if manner.is_long {
                return Ending::CutAfter(30_000_000_000 + random.below(300_000_000_000));
            }
        }
        match self.below(10) {
            0..=2 => Ending::Close,
            3..=5 => Ending::CutAtWrite(1 + self.below(if self.chance(0.4) { 40 } else { 1500 })),
            6..=8 => Ending::CutAfter(self.below(if self.chance(0.4) { 3_000_000 } else { 120_000_000 })),
            _ => Ending::CutAfter(self.below(4_000_000_000)),
        }
    }

    /// Draws the absent drives of a life: some of those that were pulled, and some that are lost at
    /// that instant, as many as can be spared.
    pub(crate) fn draw_absent(&self, number: usize) -> BTreeSet<usize> {
        let mut absent = BTreeSet::new();
        if number == 0 {
            return absent;
        }
        self.perhaps_roll_back(number);
        let lost_copy = self.copy_to_be_lost(number);
        if self.is_copy_to_be_seen(number) {
            self.disks.borrow_mut().iter_mut().for_each(|disk| disk.is_away = false);
            return absent;
        }
        let volumes = self.volumes.borrow();
        let harm = |disk: usize, absent: &mut BTreeSet<usize>| {
            let one = BTreeSet::from([disk]);
            let can_spare = volumes.iter().all(|guarded| guarded.can_spare(&one));
            if can_spare {
                volumes.iter().for_each(|guarded| guarded.harm(&one));
                absent.insert(disk);
            }
        };
        let count = self.disks.borrow().len();
        if let Some(disk) = lost_copy {
            harm(disk, &mut absent);
            let is_lost = u64::from(absent.contains(&disk));
            self.cover(|coverage| {
                coverage.drive_losses += is_lost;
                coverage.lost_single_copies += is_lost;
            });
        }
        for disk in 0..count {
            if self.disks.borrow()[disk].is_away
                && !absent.contains(&disk)
                && self.chance(self.bias.stays_away)
            {
                harm(disk, &mut absent);
            }
        }
        while self.chance(self.bias.absent) {
            let disk = self.below(count as u64) as usize;
            if !absent.contains(&disk) {
                harm(disk, &mut absent);
                self.cover(|coverage| coverage.drive_losses += u64::from(absent.contains(&disk)));
            }
        }
        for (number, disk) in self.disks.borrow_mut().iter_mut().enumerate() {
            disk.is_away = absent.contains(&number);
        }
        if absent.len() == count {
            absent.clear();
        }
        absent
    }
}

/// One of some endings.
fn draw_of(random: &mut SplitMix64, endings: &[EndingKind]) -> Ending {
    match endings[random.below(endings.len() as u64) as usize] {
        EndingKind::Close => Ending::Close,
        EndingKind::AtWrite(most) => Ending::CutAtWrite(1 + random.below(most)),
        EndingKind::AfterNs(most) => Ending::CutAfter(random.below(most)),
    }
}
