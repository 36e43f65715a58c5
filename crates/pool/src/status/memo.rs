//! Cache of the row scans that status needs, valid until the record changes: clients wait during a
//! scan, and status is queried more often than the record changes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::sparing::planner::SparePlanner;
use crate::status::condition::Repair;
use stripewise_array::rows::SlotState;

/// Drives on which columns are being filled.
#[derive(Default)]
pub(crate) struct FilledDrives {
    /// New slabs.
    pub rebuilding: BTreeSet<u32>,
    /// Slabs of a drive that was away.
    pub catching_up: BTreeSet<u32>,
}

/// Inputs of a plan: the record, drives that work, parts that can be rebuilt.
type Basis = (u64, BTreeSet<u32>, BTreeSet<Id>);

/// One answer, and what it rests on.
type Kept<K, T> = RefCell<Option<(K, T)>>;

/// See the module.
#[derive(Default)]
pub(crate) struct StatusMemo {
    filled: Kept<u64, Rc<FilledDrives>>,
    repair: Kept<Basis, Repair>,
    evacuation: Kept<Basis, Option<String>>,
}

fn kept<K: PartialEq, T: Clone>(of: &Kept<K, T>, key: K, make: impl FnOnce() -> T) -> T {
    if let Some((of, answer)) = &*of.borrow()
        && *of == key
    {
        return answer.clone();
    }
    let answer = make();
    *of.borrow_mut() = Some((key, answer.clone()));
    answer
}

impl StatusMemo {
    pub(crate) fn filled(&self, manifest: &Manifest) -> Rc<FilledDrives> {
        kept(&self.filled, manifest.generation, || {
            let mut filled = FilledDrives::default();
            let runs = manifest.parts().flat_map(|part| part.rows.runs());
            for place in runs.flat_map(|run| &run.places) {
                let drives = match place.state {
                    SlotState::Active | SlotState::Missing => continue,
                    SlotState::Rebuilding => &mut filled.rebuilding,
                    SlotState::CatchingUp => &mut filled.catching_up,
                };
                drives.insert(place.drive);
            }
            Rc::new(filled)
        })
    }

    /// The repair that jobs will make, as `plan` determines it.
    pub(crate) fn repair(
        &self,
        manifest: &Manifest,
        planner: SparePlanner,
        plan: impl FnOnce(&SparePlanner) -> Repair,
    ) -> Repair {
        kept(&self.repair, basis(manifest, &planner), || plan(&planner))
    }

    /// Why a drive cannot be emptied, as `plan` says it.
    pub(crate) fn evacuation(
        &self,
        manifest: &Manifest,
        planner: SparePlanner,
        plan: impl FnOnce(&SparePlanner) -> Option<String>,
    ) -> Option<String> {
        kept(&self.evacuation, basis(manifest, &planner), || plan(&planner))
    }
}

fn basis(manifest: &Manifest, planner: &SparePlanner) -> Basis {
    (manifest.generation, planner.working.clone(), planner.rebuildable.clone())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::MIB;
    use crate::testing::pool;

    #[test]
    fn a_plan_is_made_once_for_each_change() {
        let (memo, plans) = (StatusMemo::default(), Cell::new(0));
        let mut manifest = pool(&[64; 3], MIB);
        let ask = |manifest: &Manifest, working: &[u32]| {
            let working = working.iter().copied().collect();
            let planner = SparePlanner { working, rebuildable: BTreeSet::new() };
            let made = memo.repair(manifest, planner, |_| {
                plans.set(plans.get() + 1);
                Repair::Spare(plans.get().to_string())
            });
            (made, plans.get())
        };
        for _ in 0..3 {
            assert_eq!(ask(&manifest, &[0, 1]), (Repair::Spare("1".to_owned()), 1));
        }
        assert_eq!(ask(&manifest, &[0]).1, 2, "a drive failed");
        manifest.generation += 1;
        assert_eq!(ask(&manifest, &[0]).1, 3, "something was recorded");
    }
}
