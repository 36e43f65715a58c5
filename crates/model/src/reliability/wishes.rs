//! A question with most parameters left open; the assumptions made are listed.
//!
//! Expected faults: invalid numbers; layouts that the drives do not allow.

use stripewise_layout::{LayoutError, LayoutSpec, Level};

use super::defaults::{HOURS_PER_YEAR, REBUILD_BYTES_PER_SECOND, REPLACEMENT_HOURS, SCRUB_HOURS, field};
use super::{Batch, BitErrors, Law, PredictedRebuild, Question, QuestionError, Repairs, Structure};

/// Requirements and assumptions of an estimate.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The layout.
    pub layout: LayoutSpec,
    /// Drives of the array.
    pub drives: usize,
    /// The mission.
    pub years: f64,
    /// True for solid-state drives, which have failure data of their own.
    pub is_ssd: bool,
    /// Unrecoverable read errors of the data sheet; they take the place of latent errors that are
    /// left open.
    pub bit_errors: Option<BitErrors>,
    /// True if each row lies on another set of the drives, so that all of them are one group.
    pub varying_rows: bool,
    /// Distribution of the time to drive failure.
    pub failure: Option<Law>,
    /// Duration of a rebuild.
    pub restore: Option<Law>,
    /// Latent errors: their mean time in hours, or none. Left open: the default where the failure
    /// law is left open too, else none, as in a textbook.
    pub latent_hours: Option<Option<f64>>,
    /// Scrubs, or none.
    pub scrub: Option<Option<Law>>,
    /// Spare drives, or spare space on all drives.
    pub spares: Spares,
    /// Hours until a new drive is there, or none. Left open: the default where the rebuild time is
    /// left open.
    pub replacement: Option<Option<Law>>,
    /// Bad batches.
    pub batch: Option<Batch>,
    /// Scheduling of concurrent rebuilds.
    pub repairs: Repairs,
    /// Capacity of one drive.
    pub drive_bytes: u64,
    /// Rebuild rate under load, of one drive's data.
    pub rebuild_bytes_per_second: Option<f64>,
    /// Rebuild time under load by the model of performance, used where neither time nor rate is
    /// given.
    pub predicted: Option<PredictedRebuild>,
    /// Each drive is a volume of another pool: its layout and its drives.
    pub inner: Option<(LayoutSpec, usize)>,
}

/// Spares and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spares {
    /// Drives that wait.
    Dedicated(usize),
    /// Space on all drives: each rebuild reads from and writes to all of them.
    Distributed(usize),
}

/// A question with nothing left open.
#[derive(Clone, Debug)]
pub struct Asked {
    /// For [`super::estimate`].
    pub question: Question,
    /// For [`super::estimate`].
    pub bytes_per_group: f64,
    /// Values that the caller did not give, with their source.
    pub assumptions: Vec<String>,
}

/// Reason why a question cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    /// The layout does not fit the drives.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// A number is invalid.
    #[error("{0}")]
    Question(#[from] QuestionError),
}

impl Wishes {
    /// Everything left open but the layout and the drives.
    pub fn new(layout: LayoutSpec, drives: usize) -> Self {
        Self {
            layout,
            drives,
            years: 10.0,
            is_ssd: false,
            bit_errors: None,
            varying_rows: false,
            failure: None,
            restore: None,
            latent_hours: None,
            scrub: None,
            spares: Spares::Dedicated(0),
            replacement: None,
            batch: None,
            repairs: Repairs::OneAtATime,
            drive_bytes: 8_000_000_000_000,
            rebuild_bytes_per_second: None,
            predicted: None,
            inner: None,
        }
    }

    /// Fills in what is left open.
    pub fn question(&self) -> Result<Asked, WishError> {
        let structure = match &self.inner {
            None if self.varying_rows => Structure::of(&self.layout, self.drives)?.on_varying_drives(),
            None => Structure::of(&self.layout, self.drives)?,
            Some((inner, drives)) => Structure::stacked(&self.layout, self.drives, inner, *drives)?,
        };
        let mut assumptions = Vec::new();
        if self.inner.is_some() {
            assumptions.push(
                "a volume below that has lost more drives than it can spare is made again as a whole, in the time of \
                 a rebuild once its drives are there"
                    .to_owned(),
            );
        }
        let field = field(self.is_ssd);
        let failure = self.failure.unwrap_or_else(|| {
            assumptions.push(format!("drive failures {}: {}", field.failure.value, field.failure.source));
            field.failure.value
        });
        let restore = self.restore.unwrap_or_else(|| self.rebuild_time(&structure, &mut assumptions));
        let replacement = match (self.replacement, self.restore) {
            (Some(given), _) => given,
            (None, Some(_)) => None,
            (None, None) => {
                assumptions.push(format!(
                    "a new drive is there after {} hours: {}",
                    REPLACEMENT_HOURS.value, REPLACEMENT_HOURS.source
                ));
                Some(Law::Fixed(REPLACEMENT_HOURS.value))
            }
        };
        let latent_hours = match (self.latent_hours, self.failure) {
            (Some(given), _) => given,
            (None, _) if self.bit_errors.is_some() => None,
            (None, Some(_)) => {
                assumptions
                    .push("no latent sector errors, since none were given with the failures".to_owned());
                None
            }
            (None, None) => {
                let hours = field.latent_hours.value;
                let source = field.latent_hours.source;
                assumptions.push(format!("latent errors after {hours} hours on average: {source}"));
                Some(hours)
            }
        };
        let scrub = match (self.scrub, latent_hours) {
            (_, None) => None,
            (Some(given), Some(_)) => given,
            (None, Some(_)) => {
                assumptions
                    .push(format!("a scrub every {} hours: {}", SCRUB_HOURS.value, SCRUB_HOURS.source));
                Some(Law::Uniform { from: 0.0, to: SCRUB_HOURS.value })
            }
        };
        if structure.declustered {
            assumptions.push(
                "rows lie on ever other drives: more drives missing than a row can spare lose some row"
                    .to_owned(),
            );
        }
        if self.layout.level == Level::Single && self.drives > 1 {
            assumptions.push("single uses one drive, and so does this answer".to_owned());
        }
        let (Spares::Dedicated(spares) | Spares::Distributed(spares)) = self.spares;
        if spares > 0 && replacement.is_none() {
            assumptions.push("spares change nothing: each new drive is there at once".to_owned());
        }
        let read_error = self.bit_errors.map_or(0.0, |errors| {
            assumptions.push(format!(
                "reads fail at {:e} a bit as the data sheet says, in rebuilds that have no redundancy left",
                errors.per_bit()
            ));
            errors.reading(self.drive_bytes as f64)
        });
        let bytes_per_group = self.drive_bytes as f64 * structure.data_per_group_milli as f64 / 1000.0;
        let question = Question {
            structure,
            mission_hours: self.years * HOURS_PER_YEAR,
            failure,
            restore,
            repairs: self.repairs,
            replacement,
            spares,
            latent_hours,
            scrub,
            read_error,
            batch: self.batch,
            sector_bytes: 4096.0,
        };
        question.check()?;
        Ok(Asked { question, bytes_per_group, assumptions })
    }

    fn rebuild_time(&self, structure: &Structure, assumptions: &mut Vec<String>) -> Law {
        let of_rate = |rate: f64| self.drive_bytes as f64 / rate / 3600.0;
        let mut hours = match (self.rebuild_bytes_per_second, &self.predicted) {
            (Some(rate), _) => of_rate(rate),
            (None, Some(predicted)) => {
                assumptions.push(format!(
                    "a rebuild under load as the model of performance predicts it: {}",
                    predicted.of
                ));
                predicted.hours
            }
            (None, None) => {
                let rate = REBUILD_BYTES_PER_SECOND.value;
                let source = REBUILD_BYTES_PER_SECOND.source;
                assumptions.push(format!("a rebuild writes {:.0} MB/s: {source}", rate / 1e6));
                of_rate(rate)
            }
        };
        if matches!(self.spares, Spares::Distributed(spares) if spares > 0) {
            // Every drive writes its share; the drives of a group are read as before, but all
            // groups are.
            let group = structure.groups.iter().map(super::Group::drives).max().unwrap_or(1);
            let faster = (structure.drives() as f64 / group as f64).max(1.0);
            let faster = if structure.declustered { structure.drives() as f64 / 2.0 } else { faster };
            hours /= faster;
            assumptions
                .push(format!("space for spares on all drives makes a rebuild {faster:.1} times as fast"));
        }
        assumptions.push(format!(
            "a rebuild takes {hours:.1} hours: a drive of {} TB",
            self.drive_bytes as f64 / 1e12
        ));
        Law::Fixed(hours)
    }
}
