//! What drives that are to come into a pool hold already: refused, unless they are to be
//! overwritten.
//!
//! Expected faults: drives of other pools, of newer and older formats, file systems, other
//! files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::pool::{PoolError, inspect, is_released};
use stripewise_export::bridge::off_thread;

use crate::drives::candidates::Candidate;
use crate::drives::emptiness::{Contents, drive_holds_data};
use crate::drives::opened::OpenedDrive;
use crate::environment::Environment;
use crate::failure::{Failure, Result, pool_failure};

/// Refuses a drive that holds something, unless told to overwrite it: then says what is lost.
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
            // What is refused is named as people name it; what is lost, so that it cannot be
            // mistaken.
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

/// Finds what a drive holds that is no drive of a pool. Everything else goes on; it is read no
/// further when the result is wanted no more.
pub async fn contents_of(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
) -> Result<Contents> {
    let _place = environment.place_to_look().await;
    let mut contents = match candidate.is_path() {
        true => contents_of_path(candidate).await?,
        false => Contents { has_unknown: drive_holds_data(&*opened.bare).await?, ..Contents::default() },
    };
    if contents.has_unknown && contents.recognised.is_empty() && is_released(&*opened.bare).await {
        contents.has_unknown = false;
        contents.is_released = true;
    }
    Ok(contents)
}

async fn contents_of_path(candidate: &Candidate) -> Result<Contents> {
    let (candidate, stop) = (candidate.clone(), StopOnDrop::default());
    let stopped = stop.0.clone();
    let looked = off_thread(move || candidate.contents_until(&stopped)).await;
    looked.unwrap_or_else(|error| Err(Failure::because("cannot look at a drive", &error)))
}

/// Ends a look when the future that waits for it is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
