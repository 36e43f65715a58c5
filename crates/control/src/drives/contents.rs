//! Existing contents of drives that are to be added to a pool: refused, unless they are to be
//! overwritten.
//!
//! Expected faults: drives of other pools, of newer and older formats, file systems, other files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::pool::{PoolError, inspect};
use stripewise_export::bridge::off_thread;

use crate::drives::candidates::Candidate;
use crate::drives::emptiness::{Contents, drive_holds_data};
use crate::drives::opened::OpenedDrive;
use crate::environment::Environment;
use crate::failure::{Failure, Result, pool_failure};

/// Refuses a drive that holds data, or, with `force`, warns of its loss.
pub async fn refuse_contents(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
    force: bool,
) -> Result<()> {
    let path = candidate.path.display();
    let mut contents = match inspect(&*opened.bare).await {
        Ok(None) => contents_of(environment, candidate, opened).await?.in_words(),
        Ok(Some(label)) => {
            let volumes: Vec<&str> = label
                .volumes
                .iter()
                .filter(|volume| volume.on_this_drive)
                .map(|volume| volume.name.as_str())
                .collect();
            let parts = if volumes.is_empty() {
                String::new()
            } else {
                format!(", with parts of {}", volumes.join(", "))
            };
            // A refusal names the pool as people do; a warning of loss, without ambiguity.
            let identity = if force { format!(" ({})", label.pool_id) } else { String::new() };
            vec![format!("a drive of pool `{}`{identity}{parts}", label.pool_name)]
        }
        Err(PoolError::NewerFormat { version, .. }) => vec![format!("a pool of a newer format ({version})")],
        Err(PoolError::OlderFormat { version, .. }) => vec![format!("a pool of an older format ({version})")],
        Err(PoolError::UnknownFeatures { .. }) => {
            vec!["a pool with features unknown to this version".to_owned()]
        }
        Err(PoolError::UnreadableState { pool_id, .. }) => {
            vec![format!("a drive of pool {pool_id}, whose state cannot be read from it")]
        }
        Err(error) => return Err(pool_failure(format!("cannot read what {path} holds"), &error)),
    };
    if contents.is_empty() {
        return Ok(());
    }
    contents.dedup();
    let holds = contents.join(" and ");
    if force {
        environment.warning(format!("{path} is overwritten; it held {holds}"));
        return Ok(());
    }
    Err(Failure::new(format!("{path} holds {holds}; nothing was changed"))
        .hint("--force overwrites it: all that it holds would be lost"))
}

/// Contents of a drive that is not in a pool. Runs concurrently with everything else, and stops
/// reading when the result is no longer wanted.
pub async fn contents_of(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
) -> Result<Contents> {
    let _place = environment.place_to_look().await;
    match candidate.is_path() {
        true => contents_of_path(candidate).await,
        false => Ok(Contents { has_unknown: drive_holds_data(&*opened.bare).await?, ..Contents::default() }),
    }
}

async fn contents_of_path(candidate: &Candidate) -> Result<Contents> {
    let (candidate, stop) = (candidate.clone(), StopOnDrop::default());
    let stopped = stop.0.clone();
    let looked = off_thread(move || candidate.contents_until(&stopped)).await;
    looked.unwrap_or_else(|error| Err(Failure::because("cannot look at a drive", &error)))
}

/// Ends a search when the future that waits for it is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
