//! Executed plans: correct for every request and every set of missing members, and with the fewest
//! I/Os.

use crate::kit::field;
use crate::kit::simulation::{CELLS, Cells, Simulation, cells_of, contiguous, every_write};
use crate::kit::{Random, geometry, members, period};
use stripewise_layout::{
    Geometry, Level, MemberSet, ReadPlan, UnitRange, WriteMethod, WritePlan, plan_read, plan_reconstruct,
    plan_write,
};

/// Arrays small enough for every request.
fn arrays() -> Vec<Geometry> {
    let mut arrays = vec![geometry(Level::Single, 1, None, 4), geometry(Level::Raid50, 6, None, 4)];
    for (level, widths) in [
        (Level::Raid0, 2..=3),
        (Level::Raid1, 2..=4),
        (Level::Raid10, 2..=5),
        (Level::Raid4, 3..=5),
        (Level::Raid5, 3..=5),
        (Level::Raid6, 4..=6),
        (Level::Raid7, 5..=7),
        (Level::Raid60, 8..=8),
    ] {
        arrays.extend(widths.map(|width| geometry(level, width, None, 9)));
    }
    arrays
}

/// Every set of missing members, each with a stripe that the random numbers choose.
fn every_loss(geometry: &Geometry, random: &mut Random) -> Vec<Simulation> {
    let sets = 0..1u32 << geometry.width();
    let stripes = period(geometry);
    sets.map(|bits| Simulation::new(geometry, random.below(stripes), members(bits), random)).collect()
}

/// The fewest reads of each method by its definition, over cells; `None` where the method cannot be
/// used.
fn reads_by_method(simulation: &Simulation, written: &[Cells]) -> [(WriteMethod, Option<usize>); 4] {
    let (data_units, units) = (simulation.geometry.data_units(), simulation.geometry.units());
    let start = written.iter().map(|cells| cells.start).min().unwrap();
    let end = written.iter().map(|cells| cells.end).max().unwrap();
    let is_written =
        |unit: usize, cell: usize| written.iter().any(|w| w.unit == unit && (w.start..w.end).contains(&cell));
    let gone = |unit: usize| simulation.is_missing(unit);
    let with_hole: Vec<usize> =
        (0..data_units).filter(|&unit| (start..end).any(|cell| !is_written(unit, cell))).collect();
    let parity_present = (data_units..units).filter(|&unit| !gone(unit)).count();
    let full = with_hole.is_empty().then_some(0);
    let modify = written.iter().all(|w| !gone(w.unit)).then_some(written.len() + parity_present);
    let reconstruct = with_hole.iter().all(|&unit| !gone(unit)).then_some(with_hole.len());
    [
        (WriteMethod::FullStripe, full),
        (WriteMethod::ReadModifyWrite, modify),
        (WriteMethod::ReconstructWrite, reconstruct),
        (WriteMethod::DecodeWrite, Some(data_units)),
    ]
}

fn check_fewest(simulation: &Simulation, written: &[Cells], plan: &WritePlan) {
    let units = simulation.geometry.units();
    let data_units = simulation.geometry.data_units();
    let gone = |unit: usize| simulation.is_missing(unit);
    let has_parity = (data_units..units).any(|unit| !gone(unit)) && simulation.geometry.parity_units() > 0;
    assert_eq!(plan.decode.is_some(), plan.method == WriteMethod::DecodeWrite);
    assert_eq!(plan.window.is_some(), has_parity);
    if !has_parity {
        assert_eq!(plan.method, WriteMethod::Copy);
        assert!(plan.reads.is_empty());
    } else {
        let methods = reads_by_method(simulation, written);
        let fewest = methods.iter().filter_map(|(_, reads)| *reads).min().unwrap();
        // The methods are listed in the order that decides a tie.
        let best = methods.iter().find(|(_, reads)| *reads == Some(fewest)).unwrap().0;
        assert_eq!(plan.reads.len(), fewest, "{:?} for {written:?} without {:?}", plan, simulation.missing);
        assert_eq!(plan.method, best, "{written:?} without {:?}", simulation.missing);
        check_exact_reads(simulation, written, plan);
    }
    let mut expected: Vec<Cells> = if simulation.geometry.parity_units() == 0 {
        (0..units).map(|unit| Cells { unit, ..written[0] }).collect()
    } else {
        written.to_vec()
    };
    if let Some((start, end)) = plan.window {
        let range = |unit| cells_of(UnitRange { unit, start, end });
        expected.extend((data_units..units).map(range));
    }
    expected.retain(|cells| !gone(cells.unit));
    let writes: Vec<Cells> = plan.writes.iter().map(|&range| cells_of(range)).collect();
    assert_eq!(writes, expected, "no write too many or too few");
}

/// No byte is read, and no unit reconstructed, that the method does not need.
fn check_exact_reads(simulation: &Simulation, written: &[Cells], plan: &WritePlan) {
    let (data_units, units) = (simulation.geometry.data_units(), simulation.geometry.units());
    let window = plan.window.expect("parity is written");
    let whole = |unit: usize| cells_of(UnitRange { unit, start: window.0, end: window.1 });
    // From the first to the last cell of the window that is not written: one read may not have a
    // gap.
    let hole = |unit: usize| {
        let Cells { start, end, .. } = whole(unit);
        let is_written =
            |cell: &usize| written.iter().any(|w| w.unit == unit && (w.start..w.end).contains(cell));
        let first = (start..end).find(|cell| !is_written(cell))?;
        let last = (start..end).rfind(|cell| !is_written(cell))?;
        Some(Cells { unit, start: first, end: last + 1 })
    };
    let present_parity = (data_units..units).filter(|&unit| !simulation.is_missing(unit));
    let expected: Vec<Cells> = match plan.method {
        WriteMethod::Copy | WriteMethod::FullStripe => Vec::new(),
        WriteMethod::ReadModifyWrite => written.iter().copied().chain(present_parity.map(whole)).collect(),
        WriteMethod::ReconstructWrite => (0..data_units).filter_map(hole).collect(),
        WriteMethod::DecodeWrite => {
            let decode = plan.decode.as_ref().expect("decode-write decodes");
            let needed = (0..data_units).filter(|&unit| simulation.is_missing(unit) && hole(unit).is_some());
            assert!(decode.wanted.iter().copied().eq(needed));
            assert_eq!((decode.start, decode.end), window);
            decode.sources.iter().map(|&unit| whole(unit)).collect()
        }
    };
    let reads: Vec<Cells> = plan.reads.iter().map(|&range| cells_of(range)).collect();
    assert_eq!(reads, expected, "{:?} of {written:?}", plan.method);
}

/// Number of tests that share the arrays, since all together take long.
const SHARES: usize = 4;

#[test]
fn writes_keep_stripes_consistent_with_fewest_reads_1() {
    check_writes(0);
}

#[test]
fn writes_keep_stripes_consistent_with_fewest_reads_2() {
    check_writes(1);
}

#[test]
fn writes_keep_stripes_consistent_with_fewest_reads_3() {
    check_writes(2);
}

#[test]
fn writes_keep_stripes_consistent_with_fewest_reads_4() {
    check_writes(3);
}

/// Checks every write to every array of one share.
fn check_writes(share: usize) {
    let mut random = Random(1);
    let mut seen = std::collections::HashMap::new();
    for geometry in arrays().into_iter().skip(share).step_by(SHARES) {
        for mut simulation in every_loss(&geometry, &mut random) {
            let tolerable = simulation.missing_units() <= geometry.fault_tolerance();
            for written in every_write(geometry.data_units()) {
                let plan = simulation.check_write(&written, &mut random);
                assert_eq!(plan.is_some(), tolerable, "{geometry:?} without {:?}", simulation.missing);
                if let Some(plan) = plan {
                    check_fewest(&simulation, &written, &plan);
                    *seen.entry(plan.method).or_insert(0) += 1;
                }
            }
        }
    }
    assert_eq!(seen.len(), 5, "every method occurs: {seen:?}");
}

#[test]
fn reads_return_the_right_bytes_or_report_the_loss() {
    let mut random = Random(2);
    for geometry in arrays() {
        for simulation in every_loss(&geometry, &mut random) {
            let tolerable = simulation.missing_units() <= geometry.fault_tolerance();
            let cells = geometry.data_units() * CELLS;
            for from in 0..cells {
                for to in from + 1..=cells {
                    let outcome = simulation.check_read(from, to, |members| members.len() - 1);
                    assert!(outcome.lost_cells == 0 || !tolerable);
                    check_fewest_reads(&simulation, from, to, &outcome.plan, outcome.lost_cells > 0);
                }
            }
        }
    }
}

/// A read takes one I/O per unit it touches; with one of them missing, as many as there are data
/// units. No code can do better: fewer units do not determine all the data.
fn check_fewest_reads(simulation: &Simulation, from: usize, to: usize, plan: &ReadPlan, lost: bool) {
    let touched: Vec<usize> = (from / CELLS..=(to - 1) / CELLS).collect();
    let present = touched.iter().filter(|unit| !simulation.is_missing(**unit)).count();
    if simulation.geometry.parity_units() == 0 {
        assert_eq!(plan.reads.len(), usize::from(!lost));
    } else if lost || present == touched.len() {
        assert_eq!(plan.reads.len(), present);
        assert_eq!(plan.decode, None);
        let exact = contiguous(from, to).into_iter().filter(|cells| !simulation.is_missing(cells.unit));
        assert!(plan.reads.iter().map(|&range| cells_of(range)).eq(exact), "no byte too many");
    } else {
        assert_eq!(plan.reads.len(), simulation.geometry.data_units());
        let wanted = &plan.decode.as_ref().expect("a missing unit was read").wanted;
        let expected = touched.iter().copied().filter(|&unit| simulation.is_missing(unit));
        assert!(wanted.iter().copied().eq(expected), "nothing is reconstructed that was not asked for");
    }
}

/// The copies of a mirror that are offered are the present ones, and the one preferred is read.
#[test]
fn mirrors_read_the_copy_that_is_preferred() {
    for geometry in [geometry(Level::Raid1, 4, None, 4), geometry(Level::Raid10, 5, None, 4)] {
        for simulation in every_loss(&geometry, &mut Random(3)) {
            let members: Vec<usize> = simulation.stripe.units.iter().map(|place| place.member).collect();
            let present: Vec<usize> =
                members.iter().copied().filter(|member| !simulation.missing.contains(*member)).collect();
            for choice in 0..present.len() {
                let outcome = simulation.check_read(0, CELLS, |offered| {
                    assert_eq!(offered, present);
                    choice
                });
                assert_eq!(members[outcome.plan.reads[0].unit], present[choice]);
            }
        }
    }
}

/// The fewest units that have to be read for the new parity to follow from them, over all linear
/// ways there are to compute it: every parity byte that is written has to be a combination of new
/// data and of what was read.
fn fewest_by_linear_algebra(simulation: &Simulation, written: &[Cells], below: usize) -> Option<usize> {
    let (data_units, units) = (simulation.geometry.data_units(), simulation.geometry.units());
    let start = written.iter().map(|cells| cells.start).min().unwrap();
    let end = written.iter().map(|cells| cells.end).max().unwrap();
    let mut needed: Vec<Vec<u8>> = Vec::new();
    for cell in start..end {
        for parity in (data_units..units).filter(|&unit| !simulation.is_missing(unit)) {
            let mut row = field::unit_row(data_units, parity);
            let new = written.iter().filter(|w| (w.start..w.end).contains(&cell));
            new.for_each(|cells| row[cells.unit] = 0);
            needed.push(row);
        }
    }
    let present: u32 = (0..units).filter(|&unit| !simulation.is_missing(unit)).map(|unit| 1 << unit).sum();
    let subsets = (0..1u32 << units).filter(|subset| subset & !present == 0);
    let suffices = |subset: &u32| {
        let read: Vec<Vec<u8>> = (0..units)
            .filter(|unit| subset & (1 << unit) != 0)
            .map(|unit| field::unit_row(data_units, unit))
            .collect();
        let rank = field::rank(read.clone());
        let with_needed = |row: &Vec<u8>| field::rank(read.iter().chain([row]).cloned().collect());
        needed.iter().all(|row| with_needed(row) == rank)
    };
    let smaller = subsets.filter(|subset| (subset.count_ones() as usize) < below);
    smaller.filter(suffices).map(|subset| subset.count_ones() as usize).min()
}

/// For writes of one contiguous range no linear computation whatever needs fewer reads than the
/// plan.
#[test]
fn contiguous_writes_use_the_fewest_possible_reads() {
    let mut random = Random(4);
    for (level, width) in [
        (Level::Raid5, 3),
        (Level::Raid5, 4),
        (Level::Raid5, 5),
        (Level::Raid5, 7),
        (Level::Raid6, 4),
        (Level::Raid6, 5),
        (Level::Raid6, 6),
        (Level::Raid7, 6),
    ] {
        let geometry = geometry(level, width, None, 9);
        for mut simulation in every_loss(&geometry, &mut random) {
            if simulation.missing_units() > geometry.fault_tolerance() {
                continue;
            }
            let cells = geometry.data_units() * CELLS;
            for from in 0..cells {
                for to in from + 1..=cells {
                    let written = contiguous(from, to);
                    let plan = simulation.check_write(&written, &mut random).unwrap();
                    let better = fewest_by_linear_algebra(&simulation, &written, plan.reads.len());
                    assert_eq!(better, None, "{plan:?} for {written:?} without {:?}", simulation.missing);
                }
            }
        }
    }
}

#[test]
fn any_unit_is_reconstructed_from_the_others() {
    let mut random = Random(5);
    for geometry in arrays() {
        for simulation in every_loss(&geometry, &mut random) {
            for wanted_bits in 1..1u32 << geometry.units() {
                check_reconstruction(&simulation, members(wanted_bits));
            }
        }
    }
}

fn check_reconstruction(simulation: &Simulation, wanted: MemberSet) {
    let geometry = &simulation.geometry;
    let list: Vec<usize> = wanted.iter().collect();
    let cells = Cells { unit: 0, start: 1, end: CELLS };
    let range = cells.range();
    let planned =
        plan_reconstruct(geometry, &simulation.stripe, &list, range.start, range.end, &simulation.missing);
    let left =
        (0..geometry.units()).filter(|&unit| !simulation.is_missing(unit) && !wanted.contains(unit)).count();
    let Ok(plan) = planned else {
        assert!(left < geometry.data_units(), "{left} units are left");
        return;
    };
    assert!(left >= geometry.data_units());
    assert!(plan.reads.iter().all(|read| !wanted.contains(read.unit)));
    assert_eq!(plan.reads.len(), geometry.data_units());
    let known = simulation.carry_out_read(&plan);
    for cell in cells.start..cells.end {
        for &unit in &list {
            let holder = if geometry.parity_units() == 0 { plan.reads[0].unit } else { unit };
            assert_eq!(known.byte(holder, cell), Some(simulation.held_byte(unit, cell)));
        }
    }
}

/// Rebuilding one member of a three-way mirror reads from both others.
#[test]
fn reconstruction_of_a_mirror_spreads_over_the_copies() {
    let geometry = geometry(Level::Raid1, 3, None, 10);
    let mut reads = [0; 3];
    for index in 0..geometry.stripes() {
        let plan = plan_reconstruct(&geometry, &geometry.stripe(index), &[1], 0, 4096, &MemberSet::EMPTY);
        reads[plan.unwrap().reads[0].unit] += 1;
    }
    assert_eq!(reads, [5, 0, 5]);
}

/// Requests that no stripe can have are bugs of the caller, and are caught before they become
/// writes.
#[test]
fn impossible_requests_are_caught() {
    let geometry = geometry(Level::Raid5, 4, None, 9);
    let stripe = geometry.stripe(0);
    let range = |unit, start, end| UnitRange { unit, start, end };
    let none = MemberSet::EMPTY;
    for written in [
        vec![],
        vec![range(0, 0, 0)],
        vec![range(0, 512, 512)],
        vec![range(0, 1024, 512)],
        vec![range(0, 0, 4097)],
        vec![range(3, 0, 512)],
        vec![range(1, 0, 512), range(0, 0, 512)],
        vec![range(1, 0, 512), range(1, 1024, 2048)],
    ] {
        let planned = std::panic::catch_unwind(|| plan_write(&geometry, &stripe, &written, &none).is_ok());
        assert!(planned.is_err(), "{written:?}");
    }
    for (from, to) in [(0, 0), (512, 512), (1024, 512), (0, 3 * 4096 + 1)] {
        let planned =
            std::panic::catch_unwind(|| plan_read(&geometry, &stripe, from, to, &none, |_| 0).is_ok());
        assert!(planned.is_err(), "{from}..{to}");
    }
    for (wanted, start, end) in [(vec![], 0, 512), (vec![4], 0, 512), (vec![0], 512, 512), (vec![0], 0, 4097)]
    {
        let planned = std::panic::catch_unwind(|| {
            plan_reconstruct(&geometry, &stripe, &wanted, start, end, &none).is_ok()
        });
        assert!(planned.is_err(), "{wanted:?} {start}..{end}");
    }
    let beyond = geometry.stripes();
    assert!(std::panic::catch_unwind(|| geometry.stripe(beyond)).is_err());
    assert!(std::panic::catch_unwind(|| geometry.place_of_unit(beyond, 0)).is_err());
    assert!(std::panic::catch_unwind(|| geometry.place_of_unit(0, 4)).is_err());
    assert!(std::panic::catch_unwind(|| geometry.volume_offset(beyond, 0, 0)).is_err());
    assert!(std::panic::catch_unwind(|| geometry.data_unit_place(geometry.capacity_bytes())).is_err());
    assert!(std::panic::catch_unwind(|| geometry.copy_place(0, 1)).is_err());
}
