//! The error on systems and layouts that no number was fitted to.
//!
//! Each system of a study, or each layout, is left out in turn: the study's fitted numbers start a
//! quarter off their places, are fitted to the rows of the others, and predict the rows that were
//! left out. A number that no other row depends on cannot be fitted to them. It is forgotten, and
//! the model's default takes its place, as for a part of which nothing was measured.

use std::collections::BTreeSet;

use serde::Serialize;

use super::fit::{Fit, Number, numbers, parts, perturb};
use super::halves::STUDIES;
use super::questions::Question;
use super::summary::quantiles;
use super::{Made, Predictor, all_questions, distance};
use crate::studies::{DataError, Row};
use crate::system::{Catalogue, ComponentKind, Over, System};

/// Groups of a study's rows that are left out, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OneOf {
    /// Controller or software with a kind of drive, or a drive alone.
    System,
    /// Level, whatever system has it.
    Layout,
}

impl OneOf {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Layout => "layout",
        }
    }
}

/// The errors on the rows of a study that were left out, each once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Number of the study.
    pub study: String,
    /// Kind of groups that were left out.
    pub one_of: OneOf,
    /// Rows of all groups; 0 where the study has one group, since nothing is left to fit to.
    pub rows: usize,
    /// Rows whose system has a number that no other row depends on: it has the model's default.
    pub rows_with_defaults: usize,
    /// Half of the rows err less; null without rows.
    pub median_error_percent: Option<f64>,
    /// Nine of ten rows err less; null without rows.
    pub p90_error_percent: Option<f64>,
    /// The median of the same rows with the numbers that were fitted to all.
    pub fitted_median_percent: Option<f64>,
    /// The ninetieth percentile of the same rows with the numbers that were fitted to all.
    pub fitted_p90_percent: Option<f64>,
    /// Every group.
    pub groups: Vec<LeftOutGroup>,
}

/// One system or layout that was left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOutGroup {
    /// Name of the system or layout.
    pub name: String,
    /// Number of its rows.
    pub rows: usize,
    /// Numbers with the model's default, as `part name`.
    pub defaults: Vec<String>,
    /// Number of its rows whose system has such a number.
    pub rows_with_defaults: usize,
    /// Half of its rows err less.
    pub median_error_percent: f64,
    /// Nine of ten of its rows err less.
    pub p90_error_percent: f64,
}

/// Leaves out each system, then each layout, of every study.
///
/// # Errors
/// Faulty fields.
pub fn leave_out(catalogue: &Catalogue, rows: &[Row], seed: u64) -> Result<Vec<LeftOut>, DataError> {
    let mut found = Vec::new();
    for study in STUDIES {
        let rows: Vec<Row> = rows.iter().filter(|row| row.text("study") == study).cloned().collect();
        let questions = all_questions(&rows)?;
        if questions.is_empty() {
            continue;
        }
        let made = Made::default();
        for one_of in [OneOf::System, OneOf::Layout] {
            found.push(of_study(catalogue, study, &questions, one_of, &made, seed));
        }
    }
    Ok(found)
}

fn of_study(
    catalogue: &Catalogue,
    study: &str,
    questions: &[Question],
    one_of: OneOf,
    made: &Made,
    seed: u64,
) -> LeftOut {
    let predictor = Predictor::new(catalogue, made, 1.0);
    let named: Vec<(Option<String>, &Question)> =
        questions.iter().map(|question| (name(&predictor, question, one_of), question)).collect();
    let names: BTreeSet<&String> = named.iter().filter_map(|(name, _)| name.as_ref()).collect();
    let (mut groups, mut distances, mut as_fitted) = (Vec::new(), Vec::new(), Vec::new());
    for group in names.iter().filter(|_| names.len() > 1) {
        let chosen = |is_left: bool| {
            let belongs = move |(name, _): &&(Option<String>, _)| (name.as_ref() == Some(*group)) == is_left;
            named.iter().filter(belongs).map(|(_, question)| *question).collect::<Vec<&Question>>()
        };
        let (left, others) = (chosen(true), chosen(false));
        let (fitted, forgotten) = fitted_to(catalogue, study, &others, made, seed);
        let errors = errors(&Predictor::new(&fitted, made, 1.0), &left);
        let (median_error_percent, p90_error_percent) = quantiles(errors.clone());
        let has_default = |question: &&&Question| {
            let parts = parts(&predictor, question);
            forgotten.iter().flatten().any(|(component, _)| parts.contains(component))
        };
        groups.push(LeftOutGroup {
            name: (*group).clone(),
            rows: left.len(),
            defaults: forgotten.iter().map(|places| format!("{} {}", places[0].0, places[0].1)).collect(),
            rows_with_defaults: left.iter().filter(has_default).count(),
            median_error_percent,
            p90_error_percent,
        });
        distances.extend(errors);
        as_fitted.extend(self::errors(&predictor, &left));
    }
    let rows = distances.len();
    let percent = |distances| (rows > 0).then(|| quantiles(distances));
    let (all, fitted) = (percent(distances), percent(as_fitted));
    LeftOut {
        study: study.to_owned(),
        one_of,
        rows,
        rows_with_defaults: groups.iter().map(|group| group.rows_with_defaults).sum(),
        median_error_percent: all.map(|all| all.0),
        p90_error_percent: all.map(|all| all.1),
        fitted_median_percent: fitted.map(|fitted| fitted.0),
        fitted_p90_percent: fitted.map(|fitted| fitted.1),
        groups,
    }
}

/// The catalogue fitted to these questions, and the numbers that none of them depends on.
fn fitted_to(
    catalogue: &Catalogue,
    study: &str,
    questions: &[&Question],
    made: &Made,
    seed: u64,
) -> (Catalogue, Vec<Number>) {
    let mut fitted = catalogue.clone();
    let all = numbers(catalogue, study);
    perturb(&mut fitted, &all, seed);
    let fit = Fit::new(catalogue, questions, made);
    let (known, forgotten): (Vec<Number>, Vec<Number>) =
        all.into_iter().partition(|number| fit.depends_on(&fitted, number));
    for (component, name) in forgotten.iter().flatten() {
        fitted.forget(component, name);
    }
    fit.run(&mut fitted, &known);
    (fitted, forgotten)
}

fn errors(predictor: &Predictor, questions: &[&Question]) -> Vec<f64> {
    let predicted = predictor.answers(questions);
    questions.iter().zip(predicted).map(|(one, predicted)| distance(predicted, one.published)).collect()
}

/// The group of a question; `None`: no system answers it.
fn name(predictor: &Predictor, question: &Question, one_of: OneOf) -> Option<String> {
    let system = predictor.system(question.asked.subjects().first()?)?;
    Some(match one_of {
        OneOf::System => system_name(predictor.catalogue, &system),
        OneOf::Layout => system.shape.level.to_string(),
    })
}

/// Controller or software, kind of drive and how both are put together; a lone drive is a system.
fn system_name(catalogue: &Catalogue, system: &System) -> String {
    if system.drives == 1 {
        return system.drive_name.clone();
    }
    let own = &system.controller_name;
    // Parts of a family, as `zfs` and `zfs-raidz`, are one system.
    let is_family =
        |name: &&String| own.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'));
    let family = catalogue.component.keys().find(is_family).unwrap_or(own);
    let drives = if system.drive.kind == ComponentKind::Ssd { "solid-state drives" } else { "disks" };
    let over = match system.over {
        Over::Drives => "",
        Over::Jbod => ", software over JBOD",
        Over::SimpleVolumes => ", software over simple volumes",
        Over::HardwareRaid0 => ", software over hardware RAID 0",
    };
    let several = if system.controllers > 1 {
        format!(" of {} controllers", system.controllers)
    } else {
        String::new()
    };
    format!("{family} with {drives}{over}{several}")
}
