//! A stripe of tiny strips on which plans are executed, and the plain data that it must match.
//!
//! A strip has three cells of one byte, which stand for unequal parts of a strip of 4 KiB.
//! Everything that a plan may not do (touch a missing unit, use what it has not read, read twice)
//! is an assertion.

use stripewise_layout::{
    Geometry, MemberSet, ReadPlan, Stripe, UnitRange, WriteMethod, WritePlan, plan_read, plan_write,
};

use super::Random;
use super::field;

pub const CELLS: usize = 3;
/// Boundaries of the cells in a strip, in bytes.
const BOUNDARIES: [u64; CELLS + 1] = [0, 512, 3584, 4096];

/// Cells `start..end` of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    pub unit: usize,
    pub start: usize,
    pub end: usize,
}

impl Cells {
    pub fn range(self) -> UnitRange {
        UnitRange { unit: self.unit, start: BOUNDARIES[self.start], end: BOUNDARIES[self.end] }
    }
}

fn cell_at(byte: u64) -> usize {
    BOUNDARIES.iter().position(|&boundary| boundary == byte).expect("plans only cut where requests do")
}

pub fn cells_of(range: UnitRange) -> Cells {
    Cells { unit: range.unit, start: cell_at(range.start), end: cell_at(range.end) }
}

/// The offset of a cell in the stripe's data, cells counted through all data units.
pub fn data_offset(cell: usize) -> u64 {
    (cell / CELLS) as u64 * BOUNDARIES[CELLS] + BOUNDARIES[cell % CELLS]
}

/// Contents of a stripe's units, as the members hold them, and of its data, as they should be.
#[derive(Clone)]
pub struct Simulation {
    pub geometry: Geometry,
    pub stripe: Stripe,
    pub missing: MemberSet,
    held: Vec<[u8; CELLS]>,
    data: Vec<[u8; CELLS]>,
}

/// Data that was read or reconstructed, by unit and cell.
pub struct Known(Vec<[Option<u8>; CELLS]>);

impl Known {
    pub fn byte(&self, unit: usize, cell: usize) -> Option<u8> {
        self.0[unit][cell]
    }
}

impl Simulation {
    /// A consistent stripe of random data.
    pub fn new(geometry: &Geometry, stripe: u64, missing: MemberSet, random: &mut Random) -> Simulation {
        let data: Vec<[u8; CELLS]> =
            (0..geometry.data_units()).map(|_| std::array::from_fn(|_| random.next() as u8)).collect();
        let mut simulation = Simulation {
            geometry: geometry.clone(),
            stripe: geometry.stripe(stripe),
            missing,
            held: Vec::new(),
            data,
        };
        simulation.held = (0..geometry.units()).map(|unit| simulation.expected_unit(unit)).collect();
        simulation
    }

    /// Returns the contents of a unit in a consistent stripe.
    fn expected_unit(&self, unit: usize) -> [u8; CELLS] {
        let data_units = self.geometry.data_units();
        std::array::from_fn(|cell| {
            if self.geometry.parity_units() == 0 {
                self.data[0][cell]
            } else if unit < data_units {
                self.data[unit][cell]
            } else {
                let column: Vec<u8> = self.data.iter().map(|strip| strip[cell]).collect();
                field::encode(unit - data_units, &column)
            }
        })
    }

    pub fn is_missing(&self, unit: usize) -> bool {
        self.missing.contains(self.stripe.units[unit].member)
    }

    /// Returns the contents of a unit as if its member were present.
    pub fn held_byte(&self, unit: usize, cell: usize) -> u8 {
        self.held[unit][cell]
    }

    pub fn missing_units(&self) -> usize {
        (0..self.geometry.units()).filter(|&unit| self.is_missing(unit)).count()
    }

    fn read(&self, reads: &[UnitRange]) -> Known {
        assert!(reads.is_sorted_by_key(|range| range.unit), "reads out of order: {reads:?}");
        let mut known = Known(vec![[None; CELLS]; self.geometry.units()]);
        for &range in reads {
            let Cells { unit, start, end } = cells_of(range);
            assert!(start < end, "nothing to read: {range:?}");
            assert!(!self.is_missing(unit), "reads missing unit {unit}");
            assert!(known.0[unit].iter().all(Option::is_none), "reads unit {unit} twice");
            for cell in start..end {
                known.0[unit][cell] = Some(self.held[unit][cell]);
            }
        }
        known
    }

    /// Reads, and reconstructs from what was read alone.
    pub fn carry_out_read(&self, plan: &ReadPlan) -> Known {
        let mut known = self.read(&plan.reads);
        let Some(decode) = &plan.decode else { return known };
        let data_units = self.geometry.data_units();
        assert_eq!(decode.sources.len(), data_units);
        assert!(decode.sources.is_sorted() && decode.wanted.is_sorted() && !decode.wanted.is_empty());
        assert!(decode.wanted.iter().all(|unit| !decode.sources.contains(unit)));
        for cell in cell_at(decode.start)..cell_at(decode.end) {
            let source =
                |&unit: &usize| (unit, known.byte(unit, cell).expect("every source is read over the window"));
            let data = field::solve(data_units, &decode.sources.iter().map(source).collect::<Vec<_>>());
            for &unit in &decode.wanted {
                let byte =
                    if unit < data_units { data[unit] } else { field::encode(unit - data_units, &data) };
                known.0[unit][cell] = Some(byte);
            }
        }
        known
    }

    /// Reads a range of the stripe's data, `from..to` counted in cells, and compares it with what
    /// it should be.
    pub fn check_read(&self, from: usize, to: usize, prefer: impl FnMut(&[usize]) -> usize) -> ReadOutcome {
        let (start, end) = (data_offset(from), data_offset(to - 1) + cell_bytes(to - 1));
        let planned = plan_read(&self.geometry, &self.stripe, start, end, &self.missing, prefer);
        let is_mirror = self.geometry.parity_units() == 0;
        match planned {
            Ok(plan) => {
                let known = self.carry_out_read(&plan);
                for cell in from..to {
                    let holder = if is_mirror { plan.reads[0].unit } else { cell / CELLS };
                    assert_eq!(known.byte(holder, cell % CELLS), Some(self.data[cell / CELLS][cell % CELLS]));
                }
                ReadOutcome { plan, lost_cells: 0 }
            }
            Err(error) => {
                let known = self.carry_out_read(&error.rest);
                assert_eq!(error.stripe, self.stripe.index);
                let mut lost_cells = 0;
                for cell in from..to {
                    let unit = cell / CELLS;
                    let lost = error.lost.iter().any(|lost| {
                        let Cells { unit: lost_unit, start, end } = cells_of(lost.range);
                        lost_unit == unit && (start..end).contains(&(cell % CELLS))
                    });
                    assert_eq!(lost, self.is_missing(unit), "lost is what is missing, no more and no less");
                    if lost {
                        lost_cells += 1;
                    } else {
                        assert_eq!(known.byte(unit, cell % CELLS), Some(self.data[unit][cell % CELLS]));
                    }
                }
                assert!(lost_cells > 0, "an error where nothing is lost");
                assert!(
                    error.lost.iter().all(|lost| self.stripe.units[lost.range.unit].member == lost.member)
                );
                assert_eq!(error.missing_members, self.missing_members());
                assert_eq!(error.rest.decode, None);
                ReadOutcome { plan: *error.rest, lost_cells }
            }
        }
    }

    /// All missing members of the stripe, by unit.
    pub fn missing_members(&self) -> Vec<usize> {
        let members = self.stripe.units.iter().map(|place| place.member);
        members.filter(|member| self.missing.contains(*member)).collect()
    }

    /// Writes new data over the cells by way of the plan, and checks that the stripe is consistent
    /// afterwards. `None` where the plan is refused.
    pub fn check_write(&mut self, written: &[Cells], random: &mut Random) -> Option<WritePlan> {
        let ranges: Vec<UnitRange> = written.iter().map(|cells| cells.range()).collect();
        let plan = match plan_write(&self.geometry, &self.stripe, &ranges, &self.missing) {
            Ok(plan) => plan,
            Err(error) => {
                assert_eq!(error.stripe, self.stripe.index);
                assert_eq!(error.missing_members, self.missing_members());
                let lost: Vec<UnitRange> = error.lost.iter().map(|lost| lost.range).collect();
                let on_missing = ranges.into_iter().filter(|range| self.is_missing(range.unit));
                assert_eq!(lost, on_missing.collect::<Vec<_>>());
                return None;
            }
        };
        let reads = ReadPlan { reads: plan.reads.clone(), decode: plan.decode.as_deref().cloned() };
        let old = self.carry_out_read(&reads);
        let before = self.data.clone();
        for &Cells { unit, start, end } in written {
            self.data[unit][start..end].fill_with(|| random.next() as u8);
        }
        let is_written = |unit: usize, cell: usize| {
            written.iter().any(|w| w.unit == unit && (w.start..w.end).contains(&cell))
        };
        for &range in &plan.writes {
            let Cells { unit, start, end } = cells_of(range);
            assert!(!self.is_missing(unit), "writes missing unit {unit}");
            for cell in start..end {
                self.held[unit][cell] = if self.geometry.parity_units() == 0 {
                    self.data[0][cell]
                } else if unit < self.geometry.data_units() {
                    assert!(is_written(unit, cell), "writes what was not written");
                    self.data[unit][cell]
                } else {
                    assert_eq!(
                        plan.window,
                        Some((range.start, range.end)),
                        "parity is written over the window"
                    );
                    self.new_parity(&plan, &old, &before, unit, cell, is_written)
                };
            }
        }
        self.check_consistent();
        Some(plan)
    }

    /// Computes the new parity from the sources that the method names, and from nothing else.
    fn new_parity(
        &self,
        plan: &WritePlan,
        old: &Known,
        before: &[[u8; CELLS]],
        unit: usize,
        cell: usize,
        is_written: impl Fn(usize, usize) -> bool,
    ) -> u8 {
        let data_units = self.geometry.data_units();
        let parity = unit - data_units;
        let read = |unit: usize| old.byte(unit, cell).expect("the method's sources are read");
        match plan.method {
            WriteMethod::Copy => panic!("a copy has no parity"),
            WriteMethod::FullStripe => {
                assert!(plan.reads.is_empty());
                let column = (0..data_units).map(|data| {
                    assert!(is_written(data, cell), "a full stripe is written in full");
                    self.data[data][cell]
                });
                field::encode(parity, &column.collect::<Vec<_>>())
            }
            WriteMethod::ReadModifyWrite => {
                (0..data_units).filter(|&data| is_written(data, cell)).fold(read(unit), |sum, data| {
                    let change = read(data) ^ self.data[data][cell];
                    sum ^ field::multiply(field::coefficient(parity, data), change)
                })
            }
            WriteMethod::ReconstructWrite | WriteMethod::DecodeWrite => {
                let column = (0..data_units).map(|data| {
                    if is_written(data, cell) {
                        return self.data[data][cell];
                    }
                    assert_eq!(read(data), before[data][cell]);
                    read(data)
                });
                field::encode(parity, &column.collect::<Vec<_>>())
            }
        }
    }

    /// Checks every present unit, and that missing data can be reconstructed from the others.
    fn check_consistent(&self) {
        let units = self.geometry.units();
        let present: Vec<usize> = (0..units).filter(|&unit| !self.is_missing(unit)).collect();
        for &unit in &present {
            assert_eq!(self.held[unit], self.expected_unit(unit), "unit {unit}");
        }
        if self.geometry.parity_units() == 0 {
            return;
        }
        // Any k of the present units give the data; the last k are those with the most parity.
        let data_units = self.geometry.data_units();
        for cell in 0..CELLS {
            let sources = present.iter().rev().take(data_units);
            let known: Vec<(usize, u8)> = sources.map(|&unit| (unit, self.held[unit][cell])).collect();
            let data: Vec<u8> = self.data.iter().map(|strip| strip[cell]).collect();
            assert_eq!(field::solve(data_units, &known), data);
        }
    }
}

pub struct ReadOutcome {
    /// The executed plan: the original, or the rest that can still be read.
    pub plan: ReadPlan,
    pub lost_cells: usize,
}

fn cell_bytes(cell: usize) -> u64 {
    BOUNDARIES[cell % CELLS + 1] - BOUNDARIES[cell % CELLS]
}

/// Every set of written cells that a write plan takes: for every data unit nothing or one range.
pub fn every_write(data_units: usize) -> impl Iterator<Item = Vec<Cells>> {
    let choices: Vec<Option<(usize, usize)>> = std::iter::once(None)
        .chain((0..CELLS).flat_map(|start| (start + 1..=CELLS).map(move |end| Some((start, end)))))
        .collect();
    let sets = choices.len().pow(data_units as u32);
    (1..sets).map(move |number| {
        let digit = |unit: usize| number / choices.len().pow(unit as u32) % choices.len();
        let chosen = (0..data_units).filter_map(|unit| choices[digit(unit)].map(|range| (unit, range)));
        chosen.map(|(unit, (start, end))| Cells { unit, start, end }).collect()
    })
}

/// Cells `from..to` of the stripe's data as one range per data unit.
pub fn contiguous(from: usize, to: usize) -> Vec<Cells> {
    let unit_cells = |unit: usize| Cells {
        unit,
        start: from.max(unit * CELLS) - unit * CELLS,
        end: to.min((unit + 1) * CELLS) - unit * CELLS,
    };
    (from / CELLS..=(to - 1) / CELLS).map(unit_cells).collect()
}
