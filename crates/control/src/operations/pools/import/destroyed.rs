//! Destroyed pools in an import: searched for only with `--destroyed`.
//!
//! Expected faults: a pool of the other kind is meant, drives that were used again since.

use std::path::PathBuf;

use stripewise_runtime::OpenOptions;

use super::{FoundDrives, Import, places_as_options};
use crate::drives::candidates::Candidate;
use crate::drives::contents::contents_in_words;
use crate::drives::opened::look_open;
use crate::failure::{Failure, Result};
use crate::messages::report::DriveState;
use crate::messages::response::FoundPool;

impl Import<'_> {
    /// Reports pools that were found and not searched for: destroyed ones, or, with `--destroyed`,
    /// the others. The failure if the wanted one is among them.
    pub(super) fn note_others(&self, groups: &[FoundDrives<'_>], is_lacking: bool) -> Result<()> {
        let others: Vec<&FoundDrives<'_>> =
            groups.iter().filter(|group| group.is_destroyed() != self.asked.destroyed).collect();
        let places = places_as_options(self.asked);
        let Some(wanted) = &self.asked.pool else {
            let names: Vec<&str> = others.iter().map(|group| group.name()).collect();
            if !names.is_empty() && !self.asked.destroyed && !self.asked.all {
                self.control.note(format!(
                    "destroyed pools were found, too ({}): `stripewise pool import{places} --destroyed` \
                     lists them",
                    names.join(", ")
                ));
            }
            return Ok(());
        };
        match others.iter().find(|group| is_lacking && group.is(wanted)) {
            None => Ok(()),
            Some(group) if self.asked.destroyed => {
                Err(Failure::new(format!("pool `{}` ({}) is not destroyed", group.name(), group.id))
                    .hint(format!("stripewise pool import{places} {wanted}")))
            }
            Some(group) => Err(Failure::new(format!("pool `{}` ({}) was destroyed", group.name(), group.id))
                .hint(format!("stripewise pool import{places} --destroyed {wanted} brings it back"))),
        }
    }

    /// Contents of the places at which a pool's missing drives were last seen.
    pub(super) async fn lost_drives(&self, found: &FoundPool) -> Vec<String> {
        let mut lost = Vec::new();
        for drive in found.pool.drives.iter().filter(|drive| drive.state == DriveState::Missing) {
            let path = PathBuf::from(&drive.path);
            let options = OpenOptions { read_only: true, lock: false, buffered: false };
            let Ok(candidate) = Candidate::look(self.control, &path).await else { continue };
            let opening = look_open(self.control, self.executor, &candidate.path, &options);
            let Ok(opened) = opening.await else { continue };
            let Ok(holds) = contents_in_words(self.control, &candidate, &opened, false).await else {
                continue;
            };
            let holds = if holds.is_empty() { "nothing".to_owned() } else { holds.join(" and ") };
            lost.push(format!("{} now holds {holds}", drive.path));
        }
        lost
    }
}
