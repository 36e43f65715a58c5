//! What is asked of pools, drives and volumes, carried out: a file for each request. Those whose
//! input or output is a stream (`pool iostat`, `volume read`, `volume write`) are carried out by
//! the faces, which have the streams.

use crate::failure::Failure;

pub mod alert_test;
pub mod drives;
pub mod jobs;
pub mod pools;
pub mod volumes;

/// What cannot be undone is only done when `--yes` says so: this says what it would be.
fn unconfirmed(command: &str, loss: &str) -> Failure {
    Failure::usage(format!("{loss}; that cannot be undone"))
        .hint(format!("if that is what you want: stripewise {command} --yes"))
}
