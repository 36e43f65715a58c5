//! Joins our figures with the published ones, in the study's tables and charts. Pure.

use std::collections::HashMap;

use super::findings::judge_findings;
use super::page::{DRIVE_COUNTS, STRIPE_UNITS};
use super::published::published;
use super::{OwnFigures, StudyNumber, StudyResult, StudyRow, StudyTable};
use crate::method::parse_bytes;
use crate::records::record::{MeasurementRecord, Unit};
use crate::statistics::median;

/// Builds the tables of our figures beside the published ones.
pub(super) fn conclude(
    study: StudyNumber,
    ours: &OwnFigures,
    pace: Option<String>,
    notes: Vec<String>,
) -> StudyResult {
    let theirs = published(study);
    let singles: HashMap<&str, f64> = theirs.iter().map(|one| (one.key.as_str(), one.value)).collect();
    let mut tables: Vec<StudyTable> = Vec::new();
    let mut answered: Vec<&str> = Vec::new();
    for one in &theirs {
        let (key, single_key) = match study {
            // A figure contains throughput and latency.
            StudyNumber::S002 => (without_metric(&one.key), without_metric(&one.single_key)),
            _ => (one.key.as_str(), one.single_key.as_str()),
        };
        let figure = ours.get(key);
        answered.extend(figure.map(|_| key));
        let value = |figure: &MeasurementRecord| in_metric(figure, &one.metric);
        let measured = figure.and_then(value);
        let share = |value: Option<f64>, single: Option<f64>| {
            value
                .zip(single)
                .filter(|(_, single)| *single > 0.0)
                .map(|(value, single)| 100.0 * (value / single))
        };
        let row = StudyRow {
            key: key.to_owned(),
            row: one.row.clone(),
            metric: one.metric.clone(),
            measured,
            ci95: figure.filter(|_| one.metric.contains("MB/s")).and_then(|figure| figure.ci95),
            published: Some(one.value),
            percent_of_single: share(measured, ours.get(single_key).and_then(value)),
            published_percent_of_single: share(
                Some(one.value),
                singles.get(one.single_key.as_str()).copied(),
            ),
        };
        match tables.iter_mut().find(|table| table.table == one.table) {
            Some(table) => table.rows.push(row),
            None => tables.push(StudyTable { table: one.table.clone(), rows: vec![row] }),
        }
    }
    let mut alone: Vec<(&String, &MeasurementRecord)> =
        ours.iter().filter(|(key, _)| !answered.contains(&key.as_str())).collect();
    alone.sort_by_key(|(key, _)| *key);
    for (key, figure) in alone {
        let (table, row) = (chart_of(study, key), only_ours(key, figure, ours));
        match tables.iter_mut().find(|known| known.table == table) {
            Some(known) => known.rows.push(row),
            None => tables.push(StudyTable { table, rows: vec![row] }),
        }
    }
    tables.iter_mut().for_each(|table| table.rows.sort_by_key(|row| row_order(study, row)));
    StudyResult { study: study.text().into(), pace, tables, findings: judge_findings(study, ours), notes }
}

/// Chart of the study, published without figures, to which one of our figures belongs.
fn chart_of(study: StudyNumber, key: &str) -> String {
    let configuration = key.split('/').next().unwrap_or_default();
    match study {
        StudyNumber::S002 if configuration.starts_with("RAID0x4u") => STRIPE_UNITS.into(),
        StudyNumber::S002 if configuration.starts_with("RAID0n") => DRIVE_COUNTS.into(),
        StudyNumber::S003 => format!("ATTO, {configuration}"),
        _ => "measured here only".into(),
    }
}

/// Charts are ordered by their varied parameter, tables as printed.
fn row_order(study: StudyNumber, row: &StudyRow) -> (String, u64) {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok();
    match (study, row.row.split_once(' ')) {
        _ if row.published.is_some() => Default::default(),
        (StudyNumber::S003, Some((_, test))) => {
            let (size, op) = test.split_once('_').unwrap_or((test, ""));
            (op.to_owned(), parse_bytes(size).unwrap_or(0))
        }
        (StudyNumber::S002, Some((configuration, test))) => {
            let varied = configuration.rsplit(['u', 'n']).next().unwrap_or_default();
            (test.to_owned(), digits(varied).unwrap_or(0))
        }
        _ => (row.row.clone(), 0),
    }
}

fn only_ours(key: &str, figure: &MeasurementRecord, ours: &OwnFigures) -> StudyRow {
    let measured = figure.runs.first().and(match figure.unit {
        Unit::MbPerS => figure.mb_per_s,
        Unit::PerSecond => figure.iops,
        _ => median(&figure.runs),
    });
    let single = key.split_once('/').and_then(|(_, test)| ours.get(&format!("single/{test}")));
    let single = single.and_then(|single| median(&single.runs)).filter(|single| *single > 0.0);
    StudyRow {
        key: key.to_owned(),
        row: key.replace('/', " "),
        metric: figure.unit.text().into(),
        measured,
        ci95: figure.ci95,
        published: None,
        percent_of_single: measured.zip(single).map(|(value, single)| 100.0 * (value / single)),
        published_percent_of_single: None,
    }
}

fn without_metric(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(key, _)| key)
}

/// Converts our figure to the unit of the published one.
fn in_metric(figure: &MeasurementRecord, metric: &str) -> Option<f64> {
    let latency = figure.latency_us.unwrap_or_default();
    let scaled = |us: Option<f64>| us.map(|us| if metric.ends_with("ms") { us / 1e3 } else { us });
    match metric {
        _ if metric.contains("avg_latency") => scaled(latency.mean),
        _ if metric.contains("max_latency") => scaled(latency.max),
        _ if metric.contains("IOPS") => figure.iops,
        _ if metric.contains("MB/s") => figure.mb_per_s,
        _ => median(&figure.runs),
    }
}
