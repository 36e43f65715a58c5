//! Candidate arrays of the drives: every layout and number of groups that they allow, with and
//! without a journal on solid-state drives, on one controller or several.

use stripewise_layout::{LayoutSpec, Level, MAXIMUM_WIDTH};

use super::AdviceError;
use super::drives::Kind;
use super::wanted::Need;
use crate::system::{Configuration, Over};

/// A way to use drives, before it is predicted.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    pub(super) drives: usize,
    pub(super) spec: LayoutSpec,
    pub(super) interleave_bytes: u64,
    pub(super) journal: Option<Kind>,
    pub(super) configuration: Configuration,
}

/// Strips of hard disks: study 004's; of solid-state drives: below an erase block, by study 002.
const HDD_INTERLEAVE: u64 = 256 << 10;
const SSD_INTERLEAVE: u64 = 64 << 10;

/// Wider groups are left out where the drives divide into narrower ones: makers of arrays default
/// to 14 to 16 drives in a group of dual parity.
const WIDEST_GROUP: usize = 16;

/// All of them.
pub(super) fn of(need: &Need, assumptions: &mut Vec<String>) -> Result<Vec<Candidate>, AdviceError> {
    let mut found = Vec::new();
    for kind in families(need, assumptions)? {
        let wanted = kind.count.min(need.bays.unwrap_or(kind.count));
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
        let least = if need.buy { 1 } else { most };
        for drives in least..=most {
            for level in Level::ALL {
                for spec in shapes(level, drives) {
                    add(&mut found, need, &kind, drives, spec);
                }
            }
            if let Some(spec) = need.include.filter(|spec| is_new(&found, spec, drives)) {
                add(&mut found, need, &kind, drives, spec);
            }
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

/// Kinds of drives to make an array of: each alone, and all hard disks together.
fn families(need: &Need, assumptions: &mut Vec<String>) -> Result<Vec<Kind>, AdviceError> {
    let mut families: Vec<Kind> = Vec::new();
    for kind in &need.drives {
        match families.iter_mut().find(|known| known.name == kind.name) {
            Some(known) => {
                known.count += kind.count;
                known.bytes = known.bytes.min(kind.bytes);
            }
            None => families.push(kind.clone()),
        }
        assumptions.extend(kind.assumption.clone());
    }
    let alike = families.iter().all(|kind| kind.is_ssd == families[0].is_ssd);
    if families.len() > 1 && alike && !need.buy {
        let smallest = families.iter().min_by_key(|kind| kind.bytes).expect("there are some").clone();
        let count = families.iter().map(|kind| kind.count).sum();
        assumptions.push(format!(
            "drives of several sizes together count as {count} of the smallest ({}); a pool can use the rest of the \
             larger ones for volumes of fewer columns",
            smallest.name
        ));
        families.push(Kind { count, ..smallest });
    }
    Ok(families)
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

fn add(found: &mut Vec<Candidate>, need: &Need, kind: &Kind, drives: usize, spec: LayoutSpec) {
    let interleave_bytes = if kind.is_ssd { SSD_INTERLEAVE } else { HDD_INTERLEAVE };
    let parity = spec.level.parity_units() > 0;
    let controller = match need.controller.as_str() {
        "storage-spaces" if parity => "storage-spaces-parity".to_owned(),
        other => other.to_owned(),
    };
    let configuration = Configuration {
        drives: format!("{drives}x{}", kind.name),
        layout: spec.level.name().to_owned(),
        columns: spec.columns,
        interleave_kib: (spec.level != Level::Single).then_some(interleave_bytes >> 10),
        groups: spec.groups,
        controller,
        controllers: 1,
        over: Over::Drives,
        file_system: false,
        link: None,
        journal: None,
        filled: None,
    };
    let base = Candidate { kind: kind.clone(), drives, spec, interleave_bytes, journal: None, configuration };
    // A journal for every layout, so that it shows where it gains nothing.
    if let Some(journal) = &need.journal
        && !kind.is_ssd
    {
        found.push(Candidate { journal: Some(journal.clone()), ..base.clone() });
    }
    for controllers in 2..=need.controllers.min(drives) {
        let configuration =
            Configuration { controllers, over: Over::SimpleVolumes, ..base.configuration.clone() };
        found.push(Candidate { configuration, ..base.clone() });
    }
    found.push(base);
}
