//! Candidate arrays of the drives: every layout and number of groups that they allow, with and
//! without a journal on solid-state drives, on one controller or several.

use std::cmp::Reverse;

use stripewise_layout::{LayoutSpec, Level, MAXIMUM_WIDTH, Shape};

use super::AdviceError;
use super::drives::{self, Kind};
use super::wanted::Need;
use crate::system::{Catalogue, Configuration, Over};

/// A way to use drives, before it is predicted.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Drives of each kind, the largest first.
    pub(super) parts: Vec<Kind>,
    pub(super) drives: usize,
    pub(super) spec: LayoutSpec,
    pub(super) usable_bytes: u64,
    /// Bytes in use on the fullest drive.
    pub(super) drive_bytes: u64,
    /// True if there are more drives than columns, so that rows lie on varying drives.
    pub(super) varying_rows: bool,
    pub(super) interleave_bytes: u64,
    pub(super) journal: Option<Kind>,
    /// The array to predict: as many of the slowest drives as a row has columns.
    pub(super) configuration: Configuration,
    /// Capacity of the predicted drives.
    pub(super) predicted_bytes: u64,
}

impl Candidate {
    /// Description of the array.
    pub(super) fn name(&self) -> String {
        let parts: Vec<String> =
            self.parts.iter().map(|kind| format!("{} {}", kind.count, kind.name)).collect();
        let mut name = format!("{} of {}", self.spec.level.name(), parts.join(" and "));
        if let Some(columns) = self.spec.columns.filter(|columns| *columns < self.drives) {
            name += &format!(" in {columns} columns");
        }
        if let Some(groups) = self.spec.groups {
            name += &format!(" in {groups} groups");
        }
        name
    }

    /// Price of all drives, spares and journal drives included; `None` where one has no price.
    pub(super) fn cost(&self, need: &Need) -> Option<f64> {
        let price =
            |kind: &Kind| need.prices.iter().find(|(name, _)| kind.is_named(name)).map(|(_, price)| *price);
        let mut sum = 0.0;
        for kind in &self.parts {
            sum += price(kind)? * kind.count as f64;
        }
        // The largest are the spares.
        sum += price(&self.parts[0])? * need.spares as f64;
        let journal = self.journal.as_ref();
        Some(sum + journal.map_or(0.0, |kind| kind.count as f64 * price(kind).unwrap_or(0.0)))
    }
}

/// Strips of hard disks: study 004's; of solid-state drives: below an erase block, by study 002.
const HDD_INTERLEAVE: u64 = 256 << 10;
const SSD_INTERLEAVE: u64 = 64 << 10;

/// Wider groups are left out where the drives divide into narrower ones: makers of arrays default
/// to 14 to 16 drives in a group of dual parity.
const WIDEST_GROUP: usize = 16;
/// Numbers of drives to buy that are tried; of more, every second or third.
const MOST_COUNTS: usize = 16;
/// Bays that may stay empty where capacity counts.
const EMPTY_BAYS: usize = 3;
/// Fewer columns on drives of several sizes are a candidate where they hold this much more.
const WORTH_FEWER_COLUMNS: f64 = 1.02;

/// All of them.
pub(super) fn of(need: &Need, assumptions: &mut Vec<String>) -> Result<Vec<Candidate>, AdviceError> {
    let catalogue = drives::catalogue(&need.drives);
    let mut found = Vec::new();
    for family in families(need, assumptions) {
        let all: usize = family.iter().map(|kind| kind.count).sum();
        let wanted = all.min(need.bays.unwrap_or(all));
        if wanted <= need.spares {
            continue;
        }
        let most = wanted - need.spares;
        if most > MAXIMUM_WIDTH {
            return Err(AdviceError::Wish {
                what: format!("an array has at most {MAXIMUM_WIDTH} drives, not {most}"),
                hint: "ask for one of several arrays, with its share of the drives".to_owned(),
            });
        }
        for drives in counts(need, most, assumptions) {
            let slowest = slowest(&family, &catalogue);
            let mut build =
                Build { need, parts: taken(&family, drives, need.spares), slowest, found: &mut found };
            build.all(drives);
        }
        if (WIDEST_GROUP + 1..=most).any(divides) {
            let limit = format!(
                "groups of parity of more than {WIDEST_GROUP} drives are left out: a choice, as makers of arrays \
                 default to 14 to 16"
            );
            assumptions.push(limit);
        }
    }
    if found.is_empty() {
        return Err(AdviceError::Wish {
            what: "no drives are left for data".to_owned(),
            hint: "give more drives or bays, or fewer --spares".to_owned(),
        });
    }
    Ok(found)
}

/// Numbers of drives to try: all that are at hand; of drives to buy several up to the most.
fn counts(need: &Need, most: usize, assumptions: &mut Vec<String>) -> Vec<usize> {
    if !need.buy {
        return vec![most];
    }
    // More drives are faster and hold more: of bays that are there few are left empty, of a budget
    // at least half is spent.
    let least = match (need.prefers_capacity(), need.prices.is_empty()) {
        (true, true) => most.saturating_sub(EMPTY_BAYS).max(1),
        (true, false) => most.div_ceil(2),
        (false, _) => 1,
    };
    let step = (most - least + 1).div_ceil(MOST_COUNTS);
    if least > 1 || step > 1 {
        let each = if step > 1 { format!(", in steps of {step}") } else { String::new() };
        assumptions.push(format!("arrays of {least} to {most} drives are compared{each}"));
    }
    (least..=most).rev().step_by(step).collect()
}

/// The first `drives` drives of a family after its spares, the largest first.
fn taken(family: &[Kind], drives: usize, spares: usize) -> Vec<Kind> {
    let (mut skip, mut left) = (spares, drives);
    let mut parts = Vec::new();
    for kind in family {
        let skipped = skip.min(kind.count);
        skip -= skipped;
        let count = (kind.count - skipped).min(left);
        left -= count;
        if count > 0 {
            parts.push(kind.clone().times(count));
        }
    }
    parts
}

/// The kind with the lowest rate; of equals the smallest.
fn slowest(family: &[Kind], catalogue: &Catalogue) -> Kind {
    let rate = |kind: &Kind| {
        let part = catalogue.component.get(&kind.name);
        part.map_or(0.0, |part| part.get("outer_rate").unwrap_or(part.or("sequential_write", 0.0)))
    };
    let slower = |a: &&Kind, b: &&Kind| rate(a).total_cmp(&rate(b)).then(a.bytes.cmp(&b.bytes));
    family.iter().min_by(slower).expect("a family has drives").clone()
}

/// Bytes of each column that `width` columns can have over drives of these sizes, as a pool lays
/// its rows: each row on another set of drives, the larger ones in more of them.
pub(super) fn column_bytes(parts: &[Kind], width: usize) -> u64 {
    let fits = |bytes: u64| {
        let room: u128 =
            parts.iter().map(|kind| kind.count as u128 * u128::from(kind.bytes.min(bytes))).sum();
        room >= width as u128 * u128::from(bytes)
    };
    let sum: u128 = parts.iter().map(|kind| kind.count as u128 * u128::from(kind.bytes)).sum();
    let (mut low, mut high) = (0, (sum / width.max(1) as u128) as u64 + 1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// Columns' worth of data in a row.
fn data_columns(shape: &Shape) -> f64 {
    match shape.level {
        Level::Single | Level::Raid1 => 1.0,
        Level::Raid10 => shape.width as f64 / 2.0,
        level => (shape.width - shape.groups * level.parity_units()) as f64,
    }
}

/// Candidates of one set of drives.
struct Build<'a> {
    need: &'a Need,
    parts: Vec<Kind>,
    slowest: Kind,
    found: &'a mut Vec<Candidate>,
}

impl Build<'_> {
    fn all(&mut self, drives: usize) {
        for level in Level::ALL {
            for spec in shapes(level, drives) {
                self.add(drives, spec);
            }
        }
        if self.parts.len() > 1 {
            self.fewer_columns(drives);
        }
        if let Some(spec) = self.need.include.filter(|spec| is_new(self.found, spec, drives)) {
            self.add(drives, spec);
        }
    }

    /// Rows of fewer columns over drives of several sizes, where they hold more.
    fn fewer_columns(&mut self, drives: usize) {
        for level in [Level::Raid0, Level::Raid10, Level::Raid5, Level::Raid6, Level::Raid7] {
            let mut best = 0.0;
            for columns in (1..=drives).rev() {
                let spec = LayoutSpec { columns: Some(columns), ..LayoutSpec::new(level) };
                let Ok(shape) = spec.resolve(drives) else { continue };
                if level.parity_units() > 0 && columns > WIDEST_GROUP {
                    continue;
                }
                let holds = column_bytes(&self.parts, columns) as f64 * data_columns(&shape);
                let is_worth_it = holds > WORTH_FEWER_COLUMNS * best;
                best = holds.max(best);
                // All columns are among the usual shapes.
                if is_worth_it && columns < drives {
                    self.add(drives, spec);
                }
            }
        }
    }

    fn add(&mut self, drives: usize, spec: LayoutSpec) {
        let Ok(shape) = spec.resolve(drives) else { return };
        let (need, kind) = (self.need, &self.slowest);
        let mixed = self.parts.len() > 1;
        let columns = column_bytes(&self.parts, shape.width);
        let largest = self.parts.iter().map(|kind| kind.bytes).max().unwrap_or(0);
        let interleave_bytes = if kind.is_ssd { SSD_INTERLEAVE } else { HDD_INTERLEAVE };
        let predicted = if mixed { shape.width } else { drives };
        let configuration = Configuration {
            drives: format!("{predicted}x{}", kind.like.unwrap_or(&kind.name)),
            layout: spec.level.name().to_owned(),
            columns: if mixed { None } else { spec.columns },
            interleave_kib: (spec.level != Level::Single).then_some(interleave_bytes >> 10),
            groups: spec.groups,
            controller: need.controller.clone(),
            controllers: 1,
            over: Over::Drives,
            file_system: false,
            link: need.link.as_ref().filter(|link| link.is_usb()).map(|link| link.name.clone()),
            journal: None,
            filled: None,
        };
        let predicted_bytes = kind.like.map_or(kind.bytes, drives::bytes_of);
        let base = Candidate {
            parts: self.parts.clone(),
            drives,
            spec,
            usable_bytes: (columns as f64 * data_columns(&shape)) as u64,
            drive_bytes: columns.min(largest),
            varying_rows: mixed && shape.width < drives,
            interleave_bytes,
            journal: None,
            configuration,
            predicted_bytes,
        };
        // A journal for every layout, so that it shows where it gains nothing.
        if let Some(journal) = &need.journal
            && !kind.is_ssd
        {
            self.found.push(Candidate { journal: Some(journal.clone()), ..base.clone() });
        }
        for controllers in 2..=need.controllers.min(drives) {
            let configuration =
                Configuration { controllers, over: Over::SimpleVolumes, ..base.configuration.clone() };
            self.found.push(Candidate { configuration, ..base.clone() });
        }
        self.found.push(base);
    }
}

/// True if such an array is valid and not in the list yet.
fn is_new(found: &[Candidate], spec: &LayoutSpec, drives: usize) -> bool {
    let Ok(shape) = spec.resolve(drives) else { return false };
    let is_it = |other: &Candidate| {
        other.spec.resolve(other.drives).is_ok_and(|known| {
            (known.level, known.width, known.groups) == (shape.level, shape.width, shape.groups)
        })
    };
    !found.iter().filter(|other| other.drives == drives).any(is_it)
}

/// Sets of drives to make an array of: each kind alone, and all hard disks or all solid-state
/// drives together, the largest first.
fn families(need: &Need, assumptions: &mut Vec<String>) -> Vec<Vec<Kind>> {
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in &need.drives {
        match kinds.iter_mut().find(|known| known.name == kind.name) {
            Some(known) => {
                known.count += kind.count;
                known.bytes = known.bytes.min(kind.bytes);
            }
            None => kinds.push(kind.clone()),
        }
        assumptions.extend(kind.assumption.clone());
    }
    let mut families: Vec<Vec<Kind>> = kinds.iter().map(|kind| vec![kind.clone()]).collect();
    let alike = kinds.iter().all(|kind| kind.is_ssd == kinds[0].is_ssd);
    if kinds.len() > 1 && alike && !need.buy {
        kinds.sort_by_key(|kind| Reverse(kind.bytes));
        assumptions.push(
            "drives of several sizes together are laid out as a pool does it: rows of the given columns on \
             varying drives; their rates are those of as many of the slowest drives as a row has columns"
                .to_owned(),
        );
        families.push(kinds);
    }
    families
}

/// Returns a level on this number of drives, with each number of groups that divides them.
fn shapes(level: Level, drives: usize) -> Vec<LayoutSpec> {
    let spec = LayoutSpec::new(level);
    match level {
        Level::Single => (drives == 1).then_some(spec).into_iter().collect(),
        // Two copies on more than two drives is RAID 10.
        Level::Raid1 if drives == 2 => vec![spec],
        Level::Raid1 if drives == 3 => vec![LayoutSpec { columns: Some(3), ..spec }],
        // RAID 4 is RAID 5 with a drive that limits writes.
        Level::Raid1 | Level::Raid4 => Vec::new(),
        Level::Raid10 if drives < 3 => Vec::new(),
        level if level.is_grouped() => (2..=drives / level.minimum_group_width())
            .filter(|groups| drives.is_multiple_of(*groups))
            .map(|groups| LayoutSpec { groups: Some(groups), ..spec })
            .collect(),
        _ => vec![spec],
    }
    .into_iter()
    .filter(|spec| match spec.resolve(drives) {
        Ok(shape) => level.parity_units() == 0 || shape.group_width() <= WIDEST_GROUP || !divides(drives),
        Err(_) => false,
    })
    .collect()
}

/// True if the drives divide into groups of dual parity that are not too wide.
fn divides(drives: usize) -> bool {
    (Level::Raid6.minimum_group_width()..=WIDEST_GROUP)
        .any(|width| drives > width && drives.is_multiple_of(width))
}

#[cfg(test)]
mod tests {
    use super::super::drives::parse_drives;
    use super::*;

    #[test]
    fn rows_use_drives_of_several_sizes_as_a_pool_does() {
        let parts = parse_drives("4x8TB-hdd,2x4TB-hdd").unwrap();
        let terabytes = |width| column_bytes(&parts, width) as f64 / 1e12;
        // All six: as the smallest. Five: the large ones in every row, the small ones in half.
        assert!((terabytes(6) - 4.0).abs() < 1e-6);
        assert!((terabytes(5) - 8.0).abs() < 1e-6);
        assert!((terabytes(4) - 10.0).abs() < 1e-6);
        assert!((terabytes(2) - 20.0).abs() < 1e-6);
    }
}
