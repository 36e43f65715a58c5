//! What drives that are to come into a pool hold already: refused, unless they are to be
//! overwritten.
//!
//! Expected faults: drives of other pools, of newer and older formats, file systems, other
//! files.

use stripewise_drive::{Buffer, IoRequest};
use stripewise_engine::pool::{PoolError, inspect};

use crate::drives::candidates::Candidate;
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
        Ok(None) if candidate.is_path() => candidate.contents()?,
        Ok(None) => contents_of(opened).await?,
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

/// File systems and tables of partitions say so at the beginning.
const LOOKED_AT_BYTES: usize = 128 << 10;

/// What a volume or an export holds that is no drive of a pool.
pub async fn contents_of(opened: &OpenedDrive) -> Result<Vec<String>> {
    let info = opened.bare.info();
    let length = LOOKED_AT_BYTES.min(info.capacity_bytes as usize);
    let start = Buffer::from_bytes(&vec![0; length]);
    opened
        .bare
        .submit(IoRequest::read(0, start.clone()))
        .await
        .map_err(|error| Failure::because(format!("cannot read {}", info.label), &error))?;
    let holds = start.to_vec().iter().any(|byte| *byte != 0);
    Ok(holds.then(|| "data of an unknown kind".to_owned()).into_iter().collect())
}
