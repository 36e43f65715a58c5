//! One array on drives at a disk's pace, beside those on drives without a cost per request.
//!
//! File-backed drives serve thousands of requests a second, so a layout that needs many small ones
//! looks as good as one that needs few. These drives serve 200, of any size, and show the
//! difference. They are modelled, in virtual time: the engine is the same, and it takes seconds.
//! Expected faults: those of an evaluation.

use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, Pace, PacedDrive};
use stripewise_layout::{LayoutSpec, Level};

use super::options::{
    DriveMaker, DriveSource, EvaluateError, EvaluateOptions, NoProgress, PaceChoice, Progress,
};
use crate::records::results::Evaluation;

/// Transfer rate and positions a second of a disk of 7,200 rpm with a filled queue.
const DISK: Pace = Pace { bytes_per_second: Some(200_000_000), iops: Some(200) };
/// Large enough for a rebuild of seconds, small enough to be computed in seconds.
const DRIVE_BYTES: u64 = 512 << 20;
const RUN_S: f64 = 4.0;

/// Creates drives at that pace.
#[derive(Debug)]
struct Disk;

impl DriveMaker for Disk {
    fn make(
        &self,
        context: &Context,
        _: u32,
        contents: Rc<dyn Drive>,
    ) -> Result<Rc<dyn Drive>, EvaluateError> {
        Ok(PacedDrive::new(context, contents, DISK))
    }

    fn bytes_per_second(&self) -> f64 {
        DISK.bytes_per_second.map_or(0.0, |rate| rate as f64)
    }

    fn iops(&self) -> f64 {
        DISK.iops.map_or(0.0, |rate| rate as f64)
    }
}

/// The requested layout with the highest cost in positions: parity before copies, the first of
/// either.
fn costliest(layouts: &[LayoutSpec]) -> Option<LayoutSpec> {
    let with_parity = layouts.iter().find(|spec| spec.level.parity_units() > 0);
    with_parity.or_else(|| layouts.iter().find(|spec| spec.level != Level::Single)).copied()
}

/// Evaluates one of the layouts, and a single drive for comparison; `None` if no array is among
/// them.
pub(super) fn measure(
    options: &EvaluateOptions,
    progress: &dyn Progress,
) -> Result<Option<Evaluation>, EvaluateError> {
    let Some(layout) = costliest(&options.layouts) else { return Ok(None) };
    progress.note(&format!("{} on modelled drives of {DISK} each", layout.level.name()));
    let modelled = EvaluateOptions {
        drives: DriveSource::Model { name: DISK.to_string(), maker: Rc::new(Disk) },
        count: options.count,
        drive_bytes: Some(DRIVE_BYTES),
        layouts: vec![LayoutSpec::new(Level::Single), layout],
        workloads: options.workloads.clone(),
        pace: PaceChoice::None,
        seconds_per_run: Some(RUN_S),
        runs: Some(1),
        rebuild_priority_percent: options.rebuild_priority_percent,
        seed: options.seed,
        ..EvaluateOptions::new(PathBuf::new(), options.date.clone())
    };
    super::evaluate(&modelled, &NoProgress).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::options::default_layouts;
    use crate::records::results::{RebuildKind, State};
    use crate::report_html;
    use crate::reports::tables::summary_text;

    #[test]
    fn the_costliest_layout_is_measured_on_disks() {
        let named = |names: &[&str]| {
            let layouts: Vec<LayoutSpec> = names.iter().map(|name| name.parse().expect("one")).collect();
            costliest(&layouts).map(|spec| spec.level)
        };
        assert_eq!(costliest(&default_layouts()).map(|spec| spec.level), Some(Level::Raid5));
        assert_eq!(named(&["raid10", "raid6", "raid5"]), Some(Level::Raid6));
        assert_eq!(named(&["single", "raid10"]), Some(Level::Raid10));
        assert_eq!(named(&["single"]), None);
    }

    #[test]
    fn a_layout_below_its_cost_model_names_the_causes() {
        let options = EvaluateOptions::new(PathBuf::new(), "2026-01-01T00:00:00Z".into());
        let found = measure(&options, &NoProgress).expect("measured").expect("there is an array");
        let [single, raid5] = &found.arrays[..] else { panic!("{:?}", found.arrays.len()) };
        assert_eq!((single.layout.as_str(), raid5.layout.as_str()), ("single", "raid5"));
        assert_eq!(raid5.interleave_bytes, 256 << 10, "as volume create chooses it for disks");
        assert_eq!(raid5.states.len(), State::ALL.len());
        assert_eq!(raid5.rebuilds.last().map(|rebuild| rebuild.kind), Some(RebuildKind::Idle));
        let mixed = |array: &crate::records::results::ArrayResult| {
            array.cell(State::Normal, "mixed").expect("measured").mb_per_s
        };
        assert!(mixed(raid5) < 1.2 * mixed(single), "small writes cost positions");
        // As if reads did not skip parity.
        let mut slower = found.clone();
        let cells = slower.arrays[1].states.get_mut(&State::Normal).expect("measured");
        cells.get_mut("seq_read").expect("measured").mb_per_s *= 0.5;
        let slower = Evaluation { remarks: crate::reports::remarks::remarks(&slower), ..slower };
        let of_raid5 = |remark: &&crate::records::results::Remark| remark.layout.as_deref() == Some("raid5");
        let remark = slower.remarks.iter().filter(of_raid5).find(|remark| remark.text.contains("cost model"));
        let text = &remark.expect("it reads less than its drives do").text;
        assert!(text.contains("positions for each request: ") && text.contains(" for client data"), "{text}");

        let mut whole = crate::example::quiet();
        let without = (summary_text(&whole), report_html(&whole));
        whole.on_disks = Some(Box::new(slower));
        let (printed, page) = (summary_text(&whole), report_html(&whole));
        assert!(!without.0.contains("On disks") && !without.1.contains("On disks"));
        for shown in [&printed, &page] {
            assert!(shown.contains("On disks") && shown.contains("200MB/s,200iops"), "{shown}");
            assert!(shown.contains("positions for each request: "), "the cause is shown");
        }
        let text = serde_json::to_string(&whole).expect("plain data");
        let read: Evaluation = serde_json::from_str(&text).expect("read again");
        assert_eq!(read.on_disks.map(|disks| disks.arrays.len()), Some(2));
    }
}
