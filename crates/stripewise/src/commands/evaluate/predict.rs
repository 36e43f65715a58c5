//! `evaluate --predict`: compares the measured arrays with a prediction from their drives alone.
//!
//! The drives are measured concurrently, at their pace in the evaluation, into an entry as `drive
//! measure` writes it; the same evaluation then runs on modelled drives of that entry, in virtual
//! time. The prediction uses no figures of the arrays. It also ignores processor time: where the
//! processor is the bottleneck, the prediction is too high.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use stripewise_drive::{Drive, Pace, PacedDrive};
use stripewise_lab::Scratch;
use stripewise_lab::evaluate::{DriveSource, EvaluateOptions, GivenDrive, NoProgress, evaluate};
use stripewise_lab::results::{Evaluation, State};
use stripewise_layout::LayoutSpec;
use stripewise_model::catalogue::{drive_text, parse_drive};
use stripewise_model::measured::MeasureOptions;
use stripewise_runtime::{CreateOptions, create_drive_file};

use super::{Model, Options, default_layouts, failure};
use crate::commands::App;
use crate::commands::drive::measure::{QUICK_SECONDS, SECONDS, measure_drives};
use crate::failure::{Failure, Result, chain, system_text};

/// Default size of temporary drives.
const MADE_BYTES: u64 = 1 << 30;
/// Default size of temporary drives with `--quick`.
const QUICK_MADE_BYTES: u64 = 256 << 20;

/// Temporary drives of one evaluation; their directory is removed on drop.
pub(super) struct MadeDrives {
    folder: Scratch,
    count: usize,
}

impl MadeDrives {
    fn paths(&self) -> Vec<PathBuf> {
        (0..=self.count).map(|number| self.folder.path().join(format!("drive{number}.img"))).collect()
    }

    /// All drives, including one replacement.
    pub(super) fn drives(&self) -> Vec<GivenDrive> {
        self.paths().into_iter().map(GivenDrive::from).collect()
    }

    /// Drives per array.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Makes temporary drives to evaluate and measure, if no drives are given.
pub(super) fn make_drives(options: &Options) -> Result<Option<MadeDrives>> {
    let folder = match options.drives.as_slice() {
        [] => Path::new("."),
        [folder] if folder.is_dir() => folder,
        _ => return Ok(None),
    };
    let layouts = options.layouts.clone().map_or_else(default_layouts, |layouts| layouts.0);
    let least = |spec: &LayoutSpec| spec.level.minimum_width().max(spec.columns.unwrap_or(0));
    let asked = options.count.map_or(4, usize::from);
    let count = layouts.iter().map(least).fold(asked, usize::max);
    let unusable = |why: String| {
        Failure::new(format!("cannot make drives in {}: {why}", folder.display()))
            .hint("choose another directory with --drives, or smaller drives with --size")
    };
    let scratch = Scratch::new(folder).map_err(|error| unusable(system_text(&error)))?;
    let made = MadeDrives { folder: scratch, count };
    let usual_bytes = if options.quick { QUICK_MADE_BYTES } else { MADE_BYTES };
    let size_bytes = options.size.map_or(usual_bytes, |size| size.0);
    let create = CreateOptions { allocate: true, ..CreateOptions::new(size_bytes / 4096 * 4096) };
    for path in made.paths() {
        create_drive_file(&path, &create).map_err(|error| unusable(chain(&error)))?;
    }
    Ok(Some(made))
}

/// A figure and its prediction.
#[derive(Debug, Serialize)]
pub(super) struct Predicted {
    layout: String,
    /// `None` for a rebuild without load.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// Name of the load, or `rebuild`.
    workload: String,
    measured_mb_per_s: f64,
    predicted_mb_per_s: f64,
    error_percent: f64,
}

/// All figures with their predictions.
#[derive(Debug, Serialize)]
pub(super) struct Predictions {
    predictions: Vec<Predicted>,
    /// Median of the absolute errors.
    median_error_percent: f64,
    /// Largest absolute error.
    largest_error_percent: f64,
    /// Time spent measuring the drives.
    drives_measured_seconds: f64,
}

impl Predictions {
    /// Formats the predictions as a table.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("\nPrediction from the drives alone, in virtual time (MB/s)\n\n");
        let row = |cells: [&str; 6]| {
            let [layout, state, load, measured, predicted, error] = cells;
            format!("{layout:<8} {state:<12} {load:<10} {measured:>10} {predicted:>10} {error:>9}\n")
        };
        text += &row(["LAYOUT", "STATE", "LOAD", "MEASURED", "PREDICTED", "ERROR"]);
        for one in &self.predictions {
            let state = one.state.map_or_else(|| "idle".into(), |state| state.to_string());
            text += &row([
                &one.layout,
                &state,
                &one.workload,
                &format!("{:.1}", one.measured_mb_per_s),
                &format!("{:.1}", one.predicted_mb_per_s),
                &format!("{:+.1} %", one.error_percent),
            ]);
        }
        text + &format!(
            "\nmedian error {:.1} %, largest {:.1} %; the drives were measured for {:.0} s\n",
            self.median_error_percent, self.largest_error_percent, self.drives_measured_seconds
        )
    }
}

/// exp|ln(predicted/measured)| − 1 in percent; negative where the prediction is too low.
fn error_percent(predicted: f64, measured: f64) -> f64 {
    let ratio = (predicted / measured).ln();
    100.0 * (ratio.abs().exp() - 1.0) * ratio.signum()
}

/// Measures the drives of a finished evaluation and predicts its figures.
pub(super) fn predict(app: &App, asked: &EvaluateOptions, evaluation: &Evaluation) -> Result<Predictions> {
    let DriveSource::Paths(given) = &asked.drives else {
        return Err(Failure::usage("--predict requires real drives"));
    };
    let pace = match &evaluation.settings.pace {
        Some(pace) => Some(pace.text.parse::<Pace>().map_err(|error| Failure::new(error.to_string()))?),
        None => None,
    };
    app.printer.note("measuring the drives for the prediction");
    // Shorter runs shorten this measurement as well.
    let (usual, usual_run) = if asked.quick { (QUICK_SECONDS, 0.5) } else { (SECONDS, 2.0) };
    let shorter = asked.seconds_per_run.map_or(1.0, |seconds| (seconds / usual_run).clamp(0.1, 1.0));
    let seconds = usual * shorter;
    let options = MeasureOptions { seconds, quick: asked.quick, may_write: true, seed: asked.seed };
    let taken = {
        let executor = app.executor()?;
        let open = |given: &GivenDrive| -> Result<Rc<dyn Drive>> {
            let file = given.open(&executor.opener())?;
            Ok(match pace {
                Some(pace) => PacedDrive::new(&executor.context(), file, pace),
                None => file,
            })
        };
        let drives = given.iter().take(asked.count).map(open).collect::<Result<Vec<_>>>()?;
        measure_drives(app, &drives, options)?
    };
    // By way of an entry, as for a later prediction from a file.
    let text = drive_text("measured", "measured", "evaluate --predict", &taken);
    let entry = parse_drive("measured", &text)
        .map_err(|error| Failure::because("cannot predict from the measured drives", &error))?;
    let modelled = EvaluateOptions {
        drives: Model::Catalogue(Arc::new(entry)).source_as_measured(),
        drive_bytes: Some(evaluation.settings.drive_bytes),
        ..asked.clone()
    };
    let predicted = evaluate(&modelled, &NoProgress).map_err(|error| failure(&error))?;
    Ok(beside(evaluation, &predicted, taken.seconds))
}

fn beside(measured: &Evaluation, predicted: &Evaluation, seconds: f64) -> Predictions {
    let mut predictions = Vec::new();
    for (array, model) in measured.arrays.iter().zip(&predicted.arrays) {
        let mut put = |state, workload: &str, measured: f64, predicted: f64| {
            predictions.push(Predicted {
                layout: array.layout.clone(),
                state,
                workload: workload.to_owned(),
                measured_mb_per_s: measured,
                predicted_mb_per_s: predicted,
                error_percent: error_percent(predicted, measured),
            });
        };
        for (state, cells) in &array.states {
            for (workload, cell) in cells {
                if let Some(other) = model.cell(*state, workload) {
                    put(Some(*state), workload, cell.mb_per_s, other.mb_per_s);
                }
            }
        }
        if let (Some(of_array), Some(of_model)) = (array.rebuild_mb_per_s, model.rebuild_mb_per_s) {
            put(None, "rebuild", of_array, of_model);
        }
    }
    let mut errors: Vec<f64> = predictions.iter().map(|one| one.error_percent.abs()).collect();
    errors.sort_by(f64::total_cmp);
    Predictions {
        median_error_percent: errors.get(errors.len() / 2).copied().unwrap_or(0.0),
        largest_error_percent: errors.last().copied().unwrap_or(0.0),
        drives_measured_seconds: seconds,
        predictions,
    }
}

#[cfg(test)]
mod tests {
    use super::error_percent;

    #[test]
    fn errors_are_ratios_with_a_direction() {
        assert!((error_percent(110.0, 100.0) - 10.0).abs() < 1e-9);
        assert!((error_percent(100.0, 110.0) + 10.0).abs() < 1e-9);
        assert_eq!(error_percent(5.0, 5.0).abs(), 0.0);
    }
}
