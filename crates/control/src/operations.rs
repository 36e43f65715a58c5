//! Execution of requests on pools, drives and volumes: a file for each. Requests with streamed
//! input or output (`pool iostat`, `volume read`, `volume write`) are executed by the front ends,
//! which have the streams.

use crate::failure::Failure;

pub mod alert_test;
pub mod drives;
pub mod jobs;
pub mod mounts;
pub mod pools;
pub mod snapshots;
pub mod volumes;

/// Refuses a destructive request without `--yes`, and names the loss.
fn unconfirmed(command: &str, loss: &str) -> Failure {
    Failure::usage(format!("{loss}; this cannot be undone"))
        .hint(format!("if that is what you want: stripewise {command} --yes"))
}
