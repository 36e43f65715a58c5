//! Duration of a rebuild, from the performance model.
//!
//! Expected faults: drives and layouts that do not match, unknown controllers.

use stripewise_layout::LayoutSpec;

use crate::advise::{AdviceError, Kind, Use, catalogue_with};
use crate::predict::{State, predict};
use crate::system::{Configuration, Over};

/// A rebuild time and what it follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedRebuild {
    /// Until a new drive is filled.
    pub hours: f64,
    /// Drive, controller and load.
    pub of: String,
}

/// Hours to fill one new drive of an array while it serves a workload; nothing where there is
/// nothing to fill it from.
pub fn predicted_rebuild(
    layout: &LayoutSpec,
    kind: &Kind,
    controller: &str,
    workload: &Use,
) -> Result<Option<PredictedRebuild>, AdviceError> {
    let configuration = Configuration {
        drives: format!("{}x{}", kind.count, kind.name),
        layout: layout.level.name().to_owned(),
        columns: layout.columns,
        interleave_kib: layout.interleave_bytes.map(|bytes| bytes >> 10),
        groups: layout.groups,
        controller: controller.to_owned(),
        controllers: 1,
        over: Over::Drives,
        file_system: false,
        link: None,
        journal: None,
        filled: None,
    };
    let system = catalogue_with([kind]).build("array", &configuration)?;
    if system.shape.fault_tolerance() == 0 {
        return Ok(None);
    }
    let seconds = workload.loads.iter().filter_map(|load| {
        let found = predict(&system, State::Rebuilding, load);
        found.rebuild_under_load_seconds.or(found.rebuild_seconds)
    });
    // Load that leaves a rebuild the least bandwidth.
    let longest = seconds.fold(0.0, f64::max);
    Ok((longest > 0.0).then(|| PredictedRebuild {
        hours: longest / 3600.0,
        of: format!("{} behind {controller} under {} work", kind.name, workload.name),
    }))
}
