//! Predictions that answer the questions of published rows.

use super::Predictor;
use super::questions::{Asked, Figure, MIB, Question, Subject};
use crate::predict::{Bonnie, PostMark, State, Workload, software_processor};
use crate::system::System;

/// Eight lanes of 2.5 GT/s, 8 of 10 bits.
const PCIE_1_X8_MB_PER_S: f64 = 2000.0;

/// The prediction; `None`: no system of the catalogue answers.
pub(super) fn answer(predictor: &Predictor, question: &Question) -> Option<f64> {
    let resolve = |subject: &Subject| predictor.system(subject);
    match &question.asked {
        Asked::Run { subject, state, loads, figure } => {
            let system = resolve(subject)?;
            let figures: Option<Vec<f64>> =
                loads.iter().map(|load| figure_of(predictor, &system, *state, load, *figure)).collect();
            figures.map(|figures| figures.iter().sum::<f64>() / figures.len() as f64)
        }
        Asked::Ratio { subjects: [one, other], load } => {
            let of = |subject| {
                figure_of(predictor, resolve(subject)?.as_ref(), State::Normal, load, Figure::Requests)
            };
            Some(of(one)? / of(other)?)
        }
        Asked::Times { subject, drives, load, figure } => {
            Some(drives * figure_of(predictor, resolve(subject)?.as_ref(), State::Normal, load, *figure)?)
        }
        Asked::Metric { subject, name } => metric_001(resolve(subject)?.as_ref(), name),
        Asked::Rebuild { subject } => {
            let system = resolve(subject)?;
            let load = Workload::simple(true, true, 4096, 1);
            let seconds = predictor.predict(&system, State::Normal, &load).rebuild_seconds?;
            Some(seconds / 60.0)
        }
        Asked::Worst { subject, read } => {
            resolve(subject)?.drive.get(if *read { "worst_read" } else { "worst_write" })
        }
        Asked::Uncached { subject } => resolve(subject)?.drive.get("program"),
        Asked::Bus { subject, load } => {
            let rate = figure_of(predictor, resolve(subject)?.as_ref(), State::Normal, load, Figure::Rate)?;
            Some(100.0 * rate / PCIE_1_X8_MB_PER_S)
        }
        Asked::Processor { subject, load } => {
            let system = resolve(subject)?;
            let iops = figure_of(predictor, &system, State::Normal, load, Figure::Requests)?;
            Some(100.0 * software_processor(&system, load, iops))
        }
        // Strips go out one after the other, and each is programmed before the next.
        Asked::UncachedRate { subject } => {
            let system = resolve(subject)?;
            let strip = system.shape.interleave_bytes as f64;
            let transfer_us = system.drive.get("command")? + strip / system.drive.get("sequential_write")?;
            Some(strip / (transfer_us + system.drive.get("program")?))
        }
        Asked::Nothing => None,
    }
}

fn figure_of(
    predictor: &Predictor,
    system: &System,
    state: State,
    load: &Workload,
    figure: Figure,
) -> Option<f64> {
    let prediction = predictor.predict(system, state, load);
    Some(match figure {
        Figure::Rate => prediction.mb_per_s,
        Figure::Requests => prediction.iops,
        Figure::Milliseconds => prediction.latency_us.mean / 1000.0,
        Figure::Microseconds => prediction.latency_us.mean,
    })
}

fn metric_001(system: &System, name: &str) -> Option<f64> {
    let bonnie = Bonnie::on(system);
    let postmark = PostMark::on(system, 5000.0, 5000.0, 500.0, 1e7);
    let total = postmark.total_seconds;
    // PostMark cuts its rates to whole numbers.
    let rate = |count: f64, seconds: f64| Some((count / seconds).floor());
    Some(match name {
        "test_file_size" => 2030.0,
        "test_file_size_bytes" => 2030.0 * MIB as f64,
        "write_per_char_putc" => bonnie.putc,
        "write_per_char_putc_cpu" => bonnie.putc_cpu,
        "write_block" => bonnie.write,
        "write_block_cpu" => bonnie.write_cpu,
        "rewrite" => bonnie.rewrite,
        "rewrite_cpu" => bonnie.rewrite_cpu,
        "read_per_char_getc" => bonnie.getc,
        "read_per_char_getc_cpu" => bonnie.getc_cpu,
        "read_block" => bonnie.read,
        "read_block_cpu" => bonnie.read_cpu,
        "random_seek_04k_3_seekers" => bonnie.seeks,
        "random_seek_cpu" => bonnie.seeks_cpu,
        "total_time" => total,
        "transaction_time" => postmark.transaction_seconds,
        "transactions_rate" => return rate(postmark.transactions, postmark.transaction_seconds),
        "files_created" => postmark.created,
        "files_created_rate" => return rate(postmark.created, total),
        "creation_alone" => postmark.created_alone,
        "creation_alone_rate" => postmark.created_alone_rate.floor(),
        "creation_mixed" => postmark.created_mixed,
        "creation_mixed_rate" => return rate(postmark.created_mixed, postmark.transaction_seconds),
        "files_read" => postmark.read,
        "files_read_rate" => return rate(postmark.read, postmark.transaction_seconds),
        "files_appended" => postmark.appended,
        "files_appended_rate" => return rate(postmark.appended, postmark.transaction_seconds),
        "files_deleted" => postmark.deleted_alone + postmark.deleted_mixed,
        "files_deleted_rate" => return rate(postmark.deleted_alone + postmark.deleted_mixed, total),
        "deletion_alone" => postmark.deleted_alone,
        "deletion_alone_rate" => postmark.deleted_alone_rate.floor(),
        "deletion_mixed" => postmark.deleted_mixed,
        "deletion_mixed_rate" => return rate(postmark.deleted_mixed, postmark.transaction_seconds),
        "data_read" => postmark.data_read_mb,
        "data_read_rate" => postmark.data_read_mb / total,
        "data_written" => postmark.data_written_mb,
        "data_written_rate" => postmark.data_written_mb / total,
        _ => return None,
    })
}
