//! `model validate --own`: compares this engine, with its defaults, on the modelled drives of
//! studies 004 and 002, in virtual time, with the best published system of each cell.
//!
//! Streams run at the outer edge of the disks, as in the study. Mixed loads and rebuilds, which
//! cover the whole disk, run on disks shrunk in proportion, so that filling them takes seconds of
//! computation: shrunk disks keep their rates and their seek times by fraction of the stroke, on
//! one surface; a load uses the same fraction of the array as in the study. Solid-state drives are
//! shrunk as well and keep their fraction of spare blocks. Processor time is not modelled, as
//! always in virtual time.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;
use stripewise_lab::evaluate::{EvaluateOptions, NoProgress, evaluate};
use stripewise_lab::results::{Evaluation, State};
use stripewise_lab::{Region, Workload, method};
use stripewise_layout::{LayoutSpec, Level};
use stripewise_model::catalogue::{DriveEntry, DriveModel, drive};
use stripewise_model::hdd::DataSheet;
use stripewise_model::ssd::SsdParameters;
use stripewise_model::studies::{Row, built_in};

use crate::commands::App;
use crate::commands::evaluate::{Model, failure};
use crate::failure::{Failure, Result};

/// Heading of the section in a report.
pub(super) const HEADING: &str = "## Stripewise on these drives\n";
/// Capacity of a shrunk disk: some ten thousand tracks.
const DISK_BYTES: u64 = 64 << 30;
/// Size of the area for streams, at the outer edge of a full-size disk.
const EDGE_BYTES: u64 = 32 << 30;
/// Capacity of a shrunk solid-state drive: small enough to overwrite quickly.
const SSD_BYTES: u64 = 256 << 20;
/// Preconditioning load, not reported: brings solid-state drives to the steady state of random
/// writes.
const SETTLING: &str = "settling";
/// Block sizes of Tables 5 and 6 of study 002.
const BLOCKS_KIB: [u64; 6] = [8, 16, 32, 64, 128, 256];

/// One cell of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    study: &'static str,
    layout: String,
    /// `None` for a rebuild without load.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    load: String,
    unit: &'static str,
    stripewise: f64,
    published: Option<f64>,
    system: String,
}

fn shrunk(name: &str) -> Result<DriveEntry> {
    let entry = drive(name).map_err(|error| Failure::new(error.to_string()))?;
    let model = match &entry.model {
        DriveModel::Hdd(sheet) => {
            DriveModel::Hdd(DataSheet { capacity_bytes: DISK_BYTES, heads: 1, ..sheet.clone() })
        }
        DriveModel::Ssd(drive) => {
            DriveModel::Ssd(SsdParameters { capacity_bytes: SSD_BYTES, ..drive.clone() })
        }
        DriveModel::Measured(drive) => DriveModel::Measured(drive.clone()),
    };
    Ok(DriveEntry { model, ..entry.clone() })
}

fn evaluated(
    entry: DriveEntry,
    drive_bytes: u64,
    (level, count): (Level, usize),
    workloads: Vec<Workload>,
    seconds: f64,
) -> Result<Evaluation> {
    let options = EvaluateOptions {
        drives: Model::Catalogue(Arc::new(entry)).source(),
        count,
        drive_bytes: Some(drive_bytes),
        layouts: vec![LayoutSpec::new(level)],
        workloads,
        runs: Some(1),
        seconds_per_run: Some(seconds),
        ..EvaluateOptions::new(Default::default(), String::new())
    };
    evaluate(&options, &NoProgress).map_err(|error| failure(&error))
}

/// Returns the largest value and its row.
fn best<'a>(
    rows: impl Iterator<Item = &'a Row>,
    value: impl Fn(&Row) -> Option<f64>,
) -> Option<(f64, &'a Row)> {
    let valued = rows.filter_map(|row| Some((value(row)?, row)));
    valued.max_by(|one, other| one.0.total_cmp(&other.0))
}

/// Computes all cells; prints a note for each array.
pub(super) fn cells(app: &App) -> Result<Vec<Cell>> {
    let published = built_in();
    let mut cells = of_004(app, &published)?;
    cells.extend(of_002(app, &published)?);
    Ok(cells)
}

fn of_004(app: &App, published: &[Row]) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    // The 6 TB file of the study fills this fraction of the published arrays.
    for (level, count, share) in [(Level::Raid5, 4, 0.5), (Level::Raid10, 4, 0.75), (Level::Raid1, 2, 0.75)] {
        app.printer.note(format!("{level} of {count} disks of study 004"));
        let data = match level {
            Level::Raid5 => count as u64 - 1,
            _ => count as u64 / 2,
        };
        let loads = |drive_bytes: u64| {
            let length_bytes = (share * (data * drive_bytes) as f64) as u64 >> 20 << 20;
            let region = Some(Region { offset_bytes: 0, length_bytes });
            Workload::study_004().map(|load| Workload { region, ..load }).to_vec()
        };
        let whole = drive("mg08ada800e").map_err(|error| Failure::new(error.to_string()))?;
        let at_edge = evaluated(whole.clone(), EDGE_BYTES, (level, count), loads(EDGE_BYTES), 20.0)?;
        let all_over = shrunk("mg08ada800e")?;
        let all_over = evaluated(all_over, DISK_BYTES, (level, count), loads(DISK_BYTES), 30.0)?;
        let array = &all_over.arrays[0];
        // Streams come from the evaluation at the edge, other loads from the shrunk disks.
        let figures = array.states.iter().flat_map(|(state, measured)| {
            let edge = |load: &String| at_edge.arrays[0].cell(*state, load).filter(|_| load != "mixed");
            measured.iter().map(move |(load, cell)| (state, load, edge(load).unwrap_or(cell)))
        });
        let level_name = level.name().to_uppercase();
        let of_level =
            || published.iter().filter(|row| row.text("study") == "004" && row.text("level") == level_name);
        for (state, load, cell) in figures {
            let is_it = |row: &&Row| row.text("state") == state.to_string() && row.text("workload") == load;
            let best = best(of_level().filter(is_it), |row| row.number("mb_per_s").ok());
            cells.push(Cell {
                study: "004",
                layout: array.layout.clone(),
                state: Some(*state),
                load: load.clone(),
                unit: "MB/s",
                stripewise: cell.mb_per_s,
                published: best.map(|best| best.0),
                system: best.map_or_else(String::new, |best| best.1.text("vendor").to_owned()),
            });
        }
        if let Some(stripewise) = array.rebuild_mb_per_s {
            let rate = |row: &Row| {
                let minutes = row.number("rebuild_minutes").ok()?;
                Some(row.number("disk_capacity_tb").ok()? * 1e6 / (60.0 * minutes))
            };
            let best = best(of_level(), rate);
            cells.push(Cell {
                study: "004",
                layout: array.layout.clone(),
                state: None,
                load: "rebuild".into(),
                unit: "MB/s",
                stripewise,
                published: best.map(|best| best.0),
                system: best.map_or_else(String::new, |best| best.1.text("vendor").to_owned()),
            });
        }
    }
    Ok(cells)
}

fn of_002(app: &App, published: &[Row]) -> Result<Vec<Cell>> {
    let profile = method::built_in("iometer-heavy").map_err(|error| Failure::new(error.to_string()))?;
    let mut asked = Vec::new();
    for step in &profile.steps {
        let block_kib = step.workload.blocks[0].bytes >> 10;
        if BLOCKS_KIB.contains(&block_kib) && step.workload.blocks[0].bytes >= 1024 {
            let pattern = if step.workload.pattern.is_sequential() { "sequential" } else { "random" };
            let op = if step.workload.read_share > 0.5 { "read" } else { "write" };
            let name = format!("{pattern}_{op}_{block_kib}");
            asked.push((pattern, op, block_kib, Workload { name, ..step.workload.clone() }));
        }
    }
    let settling = asked
        .iter()
        .find(|asked| asked.3.name == "random_write_8")
        .map(|asked| Workload { name: SETTLING.into(), ..asked.3.clone() });
    let mut cells = Vec::new();
    for level in [Level::Raid0, Level::Raid5, Level::Raid10] {
        app.printer.note(format!("{level} of 8 solid-state drives of study 002"));
        let mut loads: Vec<Workload> = asked.iter().map(|asked| asked.3.clone()).collect();
        let first = loads.iter().position(|load| load.name.starts_with("random_write")).unwrap_or(0);
        settling.iter().for_each(|load| loads.insert(first, load.clone()));
        let evaluation = evaluated(shrunk("x25e")?, SSD_BYTES, (level, 8), loads, 0.5)?;
        let array = &evaluation.arrays[0];
        for (pattern, op, block_kib, load) in &asked {
            let Some(cell) = array.cell(State::Normal, &load.name) else { continue };
            let is_it = |row: &&Row| {
                row.text("study") == "002"
                    && ["Table 5", "Table 6"].contains(&row.text("table"))
                    && row.text("level") == level.name().to_uppercase()
                    && (row.text("pattern"), row.text("op")) == (*pattern, *op)
                    && row.text("block_kib") == block_kib.to_string()
            };
            let best = best(published.iter().filter(is_it), |row| row.number("value").ok());
            let (unit, stripewise) = match *pattern {
                "random" => ("IOPS", cell.iops),
                _ => ("MB/s", cell.mb_per_s),
            };
            cells.push(Cell {
                study: "002",
                layout: array.layout.clone(),
                state: Some(State::Normal),
                load: format!("{pattern} {op}, {block_kib} KiB"),
                unit,
                stripewise,
                published: best.map(|best| best.0),
                system: best.map_or_else(String::new, |best| best.1.text("config").to_owned()),
            });
        }
    }
    Ok(cells)
}

/// Writes the section of the report.
pub(super) fn section(cells: &[Cell]) -> String {
    let mut text = format!(
        "{HEADING}\nWritten by `stripewise model validate --own --report docs/validation.md`. Our own engine with its\n\
         defaults, in virtual time, beside the best published system of each cell. Disks are four MG08ADA800E (8 TB;\n\
         two for RAID 1; the published RAID 5 and RAID 10 are of the 4 TB model), solid-state drives eight X25-E.\n\
         Streams run at the outer edge of the disks. Mixed loads and rebuilds run on disks shrunk in proportion, with\n\
         their rates and with seeks by share of the stroke, and use the same share of the array as in print. The\n\
         processor costs nothing. Rebuilds are those without load, in MB/s of the replacement; a published rate above\n\
         the disk's own means that not all of it was rebuilt.\n"
    );
    for (study, title) in
        [("004", "Four disks of study 004"), ("002", "Eight X25-E of study 002, heavy load")]
    {
        let _ = writeln!(text, "\n### {title}\n");
        text += "| array | state | load | unit | Stripewise | best published | system | of the best |\n";
        text += "|---|---|---|---|---:|---:|---|---:|\n";
        for cell in cells.iter().filter(|cell| cell.study == study) {
            let state = cell.state.map_or_else(|| "idle".into(), |state| state.to_string());
            let figure = |value: f64| match value >= 100.0 {
                true => format!("{value:.0}"),
                false => format!("{value:.1}"),
            };
            let published = cell.published.map_or_else(String::new, figure);
            let share =
                cell.published.map(|published| format!("{:.0} %", 100.0 * cell.stripewise / published));
            let _ = writeln!(
                text,
                "| {} | {state} | {} | {} | {} | {published} | {} | {} |",
                cell.layout,
                cell.load,
                cell.unit,
                figure(cell.stripewise),
                cell.system,
                share.unwrap_or_default()
            );
        }
        let shares = cells.iter().filter(|cell| cell.study == study);
        let ratios: Vec<f64> = shares.filter_map(|cell| Some(cell.stripewise / cell.published?)).collect();
        let behind = ratios.iter().filter(|ratio| **ratio < 0.95).count();
        let _ = writeln!(
            text,
            "\nBehind the best published system by more than 5 % in {behind} of {} cells.",
            ratios.len()
        );
    }
    text
}

/// Returns the section of an existing report.
pub(super) fn kept(report: &str) -> &str {
    report.find(HEADING).map_or("", |at| &report[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_found_again_in_a_report() {
        let cell = Cell {
            study: "004",
            layout: "raid5".into(),
            state: Some(State::Normal),
            load: "seq_read".into(),
            unit: "MB/s",
            stripewise: 600.0,
            published: Some(800.0),
            system: "Adaptec".into(),
        };
        let section = section(&[cell]);
        assert!(
            section.contains("| raid5 | normal | seq_read | MB/s | 600 | 800 | Adaptec | 75 % |"),
            "{section}"
        );
        assert!(section.contains("more than 5 % in 1 of 1 cells"), "{section}");
        assert_eq!(kept(&format!("# Report\n\nrows\n\n{section}")), section);
        assert_eq!(kept("# Report\n"), "");
    }

    #[test]
    fn every_study_004_cell_has_a_best_published_system() {
        let published = built_in();
        let of_cell = |level: &str, state: &str, load: &str| {
            let is_it = |row: &&Row| {
                (row.text("level"), row.text("state"), row.text("workload")) == (level, state, load)
                    && row.text("study") == "004"
            };
            best(published.iter().filter(is_it), |row| row.number("mb_per_s").ok()).map(|best| best.0)
        };
        for level in ["RAID5", "RAID10", "RAID1"] {
            for state in State::ALL {
                for load in ["seq_write", "seq_read", "mixed"] {
                    assert!(of_cell(level, &state.to_string(), load).is_some(), "{level} {state} {load}");
                }
            }
        }
    }
}
